"""Balanced accuracy, F1, cost of errors, log loss, AUC, and mean predictions of a regression.

Accuracy is a rate of the group table (metrics/statistic/rate.py), overall and by level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from scipy.special import logit

from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import (
    CONFIDENCE,
    Mean,
    Z,
    average,
    average_cells,
    bound_difference,
    bound_extreme,
    bound_ratio,
    effective_size,
    wilson,
)
from fairfrontier.metrics.statistic.rate import divide
from fairfrontier.models.prediction import task_of
from fairfrontier.models.regression.barycentre import Distance, compare_distributions
from fairfrontier.prepare.split import Task

# Losses and errors of predictions that are numbers: overall, by level, and the largest level's.

REFERENCE = (
    "Agarwal, Dudík and Wu, Fair regression: quantitative definitions and reduction-based "
    "algorithms, 2019"
)
# The paper's C: predictions in [0, 1] are probabilities σ(C (2u − 1)).
STEEPNESS = 5.0
LOGISTIC_SCALE = 2 * float(np.log1p(np.exp(STEEPNESS)))

Compute = Callable[[np.ndarray, np.ndarray], np.ndarray]


def compute_square(y: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return (y − u)²/2."""
    return np.asarray((y - u) ** 2 / 2)


def compute_absolute(y: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return |y − u|."""
    return np.asarray(np.abs(y - u))


def compute_logistic_nats(y: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(−C (2y − 1)(2u − 1))), which is −log P(y) for a target of 0 or 1."""
    return np.asarray(np.logaddexp(0.0, -STEEPNESS * (2 * y - 1) * (2 * u - 1)))


def compute_logistic(y: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the same over 2 log(1 + e^C), which keeps it in [0, 1] for y and u in [0, 1]."""
    return compute_logistic_nats(y, u) / LOGISTIC_SCALE


@dataclass(frozen=True)
class Loss:
    """A loss; ``compute`` maps targets and predictions to the loss of every row."""

    name: str
    what: str
    compute: Compute
    task: tuple[Task, ...] = ("regression",)


LOSSES = (
    Loss("square_loss", "mean of (y − u)²/2, half the squared error", compute_square),
    Loss("absolute_loss", "mean of |y − u|", compute_absolute),
    Loss(
        "logistic_loss",
        "mean of log(1 + exp(−5 (2y − 1)(2u − 1))) / (2 log(1 + e⁵))",
        compute_logistic,
        ("binary", "regression"),
    ),
    Loss(
        "logistic_loss_nats",
        "mean of log(1 + exp(−5 (2y − 1)(2u − 1))), which is −log P(y) for targets of 0 and 1",
        compute_logistic_nats,
        ("binary", "regression"),
    ),
)


def list_outcomes(audit: Audit) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers u that may be predicted for every row, (n, K), and their probabilities.

    For a classifier that gives probabilities alone, u = clip(1/2 + logit(p)/(2C), 0, 1), which
    represents p where p lies between σ(−C) and σ(C).
    """
    prediction = audit.prediction
    if task_of(audit.part) == "binary" and prediction.components is None:
        with np.errstate(divide="ignore"):
            u = np.clip(0.5 + logit(prediction.score) / (2 * STEEPNESS), 0.0, 1.0)
        return u[:, None], np.ones(1)
    return prediction.outcomes


def expect_loss(audit: Audit, compute: Compute, y: np.ndarray | None = None) -> np.ndarray:
    """Return every row's expected loss Σ_k p_k ℓ(y_i, f_k(x_i)) over the K regressors, float64.

    ``y`` are other targets than the part's. O(n K) time, O(n) memory.
    """
    y = np.asarray(audit.part.y if y is None else y, dtype=np.float64)
    values, probability = list_outcomes(audit)
    total = np.zeros(y.shape)
    for column, share in enumerate(probability):
        total += share * compute(y, values[:, column])
    return total


def _list_losses(audit: Audit, compute: Compute) -> tuple[np.ndarray, np.ndarray | None]:
    """Return every row's loss, and those it has for either label, (n, 2), of two classes."""
    y = np.asarray(audit.part.y)
    if task_of(audit.part) == "regression":
        return expect_loss(audit, compute), None
    possible = [expect_loss(audit, compute, np.full(y.shape, label)) for label in (0, 1)]
    return np.where(y == 1, possible[1], possible[0]), np.stack(possible, axis=1)


def measure_loss(audit: Audit, compute: Compute) -> Iterator[MeasureRow]:
    """Yield the weighted mean loss of the part and of every level.

    A level with fewer rows than the audit's minimum is not estimable.
    """
    loss, possible = _list_losses(audit, compute)
    yield MeasureRow("", *average(loss, audit.weight, possible=possible))
    for attribute in audit.part.attributes:
        yield from measure_means(audit, attribute, loss, possible)


def measure_largest_loss(audit: Audit, compute: Compute) -> Iterator[MeasureRow]:
    """Yield, for every attribute, the largest of its levels' losses; see `bound_extreme`.

    This is what a bounded group loss keeps below its bound.
    """
    losses = _list_losses(audit, compute)
    for attribute in audit.part.attributes:
        mean, n, left_out = _average_known(audit, attribute, *losses)
        low, high = bound_extreme(mean.limit, mean.value.shape, largest=True)
        value = float(np.fmax.reduce(mean.value, initial=np.nan))
        yield MeasureRow(attribute, value, n, low, high, left_out)


def measure_means(
    audit: Audit, attribute: str, values: np.ndarray, possible: np.ndarray | None = None
) -> Iterator[MeasureRow]:
    """Yield the mean of the rows' values for every level of an attribute; see `average_cells`."""
    mean, count = _average_levels(audit, attribute, values, possible)
    numbers = np.where(count >= audit.minimum, [mean.value, *mean.limit(Z)], np.nan)
    for level, (value, low, high), n in zip(
        audit.part.attributes[attribute], numbers.T.tolist(), count.tolist(), strict=True
    ):
        yield MeasureRow(f"{attribute}={level}", value, n, low, high)


def _average_levels(
    audit: Audit, attribute: str, values: np.ndarray, possible: np.ndarray | None
) -> tuple[Mean, np.ndarray]:
    """Return the means by level, and rows."""
    n_levels = len(audit.part.attributes[attribute])
    codes = audit.part.group(attribute)
    count = np.bincount(codes, minlength=n_levels)
    return average_cells(values, audit.weight, codes, n_levels, possible), count


def _count_known(audit: Audit, count: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Return which levels have rows enough, the rows of all, and the levels left out."""
    known = count >= max(audit.minimum, 1)
    return known, int(count.sum()), int(((count > 0) & ~known).sum())


def _average_known(
    audit: Audit, attribute: str, values: np.ndarray, possible: np.ndarray | None = None
) -> tuple[Mean, int, int]:
    """Return the means of the levels with rows enough, all rows, and the levels left out."""
    mean, count = _average_levels(audit, attribute, values, possible)
    known, n, left_out = _count_known(audit, count)
    parts = (each[known] for each in (mean.value, mean.error, mean.degrees, mean.skew))
    return Mean(*parts), n, left_out


for each in LOSSES:
    measure(
        each.name,
        what=f"{each.what}; overall and by level",
        needs=("score",),
        task=each.task,
        direction="lower",
        reference=REFERENCE,
    )(partial(measure_loss, compute=each.compute))
    measure(
        f"{each.name}_max",
        what=f"{each.what}; largest of an attribute's levels",
        needs=("score", "group"),
        task=each.task,
        direction="lower",
        reference=REFERENCE,
    )(partial(measure_largest_loss, compute=each.compute))


def measure_error(audit: Audit, compute: Compute, power: float) -> Iterator[MeasureRow]:
    """Yield the mean error of the part and of every level to a power, in units of the target.

    Intervals are those of the mean error, to the power.
    """
    loss, unit = expect_loss(audit, compute), audit.part.units[1]
    for row in _list_means(audit, loss):
        value, low, high = unit * np.maximum([row.value, row.low, row.high], 0.0) ** power
        yield row._replace(value=float(value), low=float(low), high=float(high))


def _list_means(audit: Audit, values: np.ndarray) -> Iterator[MeasureRow]:
    yield MeasureRow("", *average(values, audit.weight))
    for attribute in audit.part.attributes:
        yield from measure_means(audit, attribute, values)


def compute_squared(y: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return (y − u)²."""
    return np.asarray((y - u) ** 2)


ERRORS: Mapping[str, tuple[str, Compute, float]] = MappingProxyType(
    {
        "rmse": ("root mean squared error", compute_squared, 0.5),
        "mae": ("mean absolute error", compute_absolute, 1.0),
    }
)
for error, (what, compute, power) in ERRORS.items():
    measure(
        error,
        what=f"{what}, in units of the target; overall and by level",
        needs=("score",),
        task=("regression",),
        direction="lower",
        has_units=True,
    )(partial(measure_error, compute=compute, power=power))


@measure(
    "r2",
    what="share of the target's variance that is explained",
    needs=("score",),
    task=("regression",),
    direction="higher",
)
def measure_r2(audit: Audit) -> Iterator[MeasureRow]:
    """Yield R² = 1 − E(y − f(x))² / E(y − E y)², without an interval.

    Not estimable for fewer than two rows or a constant target. What is drawn at random explains
    nothing: R² of a mixture is below that of its mean.
    """
    y, weight = audit.part.y, audit.weight
    value = np.nan
    if y.size > 1 and np.ptp(y) > 0 and weight.sum() > 0:
        spread = float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
        square = 2 * expect_loss(audit, compute_square)
        if spread > 0:
            value = 1 - float(np.average(square, weights=weight)) / spread
    yield MeasureRow("", value, y.size)


@measure(
    "mean_residual",
    what="mean of the target less the prediction, in units of the target; overall and by level",
    needs=("score",),
    task=("regression",),
    has_units=True,
)
def measure_mean_residual(audit: Audit) -> Iterator[MeasureRow]:
    """Yield E(y − f(x)) of the part and of every level: above 0 where predictions are too low."""
    yield from _list_means(audit, _find_residuals(audit))


def _find_residuals(audit: Audit) -> np.ndarray:
    """Return the residuals of the expected predictions, in units of the target."""
    return np.asarray(audit.part.units[1] * (audit.part.y - audit.prediction.score))


@measure(
    "mean_residual_difference",
    what="largest difference between two levels in the mean of the target less the prediction, in "
    "units of the target",
    needs=("score", "group"),
    task=("regression",),
    direction="lower",
    has_units=True,
)
def measure_residual_difference(audit: Audit) -> Iterator[MeasureRow]:
    """Yield max_ab |E(y − f(x) | a) − E(y − f(x) | b)| for every attribute; `bound_difference`."""
    residual = _find_residuals(audit)
    for attribute in audit.part.attributes:
        mean, n, left_out = _average_known(audit, attribute, residual)
        value, limits = mean.value[:, None], lambda reach, mean=mean: _stand(mean.limit(reach))
        worst = float(np.ptp(value)) if len(value) > 1 else np.nan
        yield MeasureRow(attribute, worst, n, *bound_difference(value, limits), left_out)


def measure_error_ratio(audit: Audit, compute: Compute, power: float) -> Iterator[MeasureRow]:
    """Yield the smallest ratio between two levels' mean errors to a power; see `bound_ratio`.

    Not estimable where the larger error is 0.
    """
    loss = expect_loss(audit, compute)
    for attribute in audit.part.attributes:
        mean, n, left_out = _average_known(audit, attribute, loss)

        def limits(reach: float, mean: Mean = mean) -> tuple[np.ndarray, np.ndarray]:
            return _stand(np.maximum(each, 0.0) ** power for each in mean.limit(reach))

        value = mean.value[:, None] ** power
        some = len(value) > 1 and value.max() > 0
        worst = float(value.min() / value.max()) if some else np.nan
        interval = bound_ratio(value, limits) if some else (np.nan, np.nan)
        yield MeasureRow(attribute, worst, n, *interval, left_out)


def _stand(ends: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return limits as columns."""
    low, high = ends
    return low[:, None], high[:, None]


for error, (what, compute, power) in ERRORS.items():
    measure(
        f"{error}_ratio",
        what=f"smallest ratio between two levels in {what}",
        needs=("score", "group"),
        task=("regression",),
        direction="higher",
    )(partial(measure_error_ratio, compute=compute, power=power))


def measure_distance(audit: Audit, distance: Distance) -> Iterator[MeasureRow]:
    """Yield the largest distance between the distributions of two levels' predictions.

    Of a difference between distribution functions the lower end holds for all pairs of levels at
    once, and the upper where the true distance is attained, as in `bound_deviations`; Wasserstein's
    has no interval.
    """
    part, weight = audit.part, audit.weight
    values, probability = audit.prediction.outcomes
    for attribute, levels in part.attributes.items():
        codes = part.group(attribute)
        count = np.bincount(codes, audit.weight > 0, len(levels)).astype(np.int64)
        known, n, left_out = _count_known(audit, count)
        rows = [np.flatnonzero(codes == code) for code in np.flatnonzero(known)]
        if len(rows) < 2:
            yield MeasureRow(attribute, np.nan, n, left_out=left_out)
            continue
        mass = [np.outer(weight[each], probability).ravel() for each in rows]
        apart = compare_distributions([values[each].ravel() for each in rows], mass, distance)
        low = high = np.nan
        if distance == "wasserstein":
            apart = apart * part.units[1]
        if distance == "kolmogorov_smirnov":
            inverse = np.array([np.sum(w**2) / np.sum(w) ** 2 for w in (weight[r] for r in rows)])
            root, pairs = np.sqrt(inverse[:, None] + inverse), len(rows) * (len(rows) - 1) / 2
            above = np.sqrt(np.log(2 * pairs / (1 - CONFIDENCE)) / 2)
            low = max(float((apart - above * root).max()), 0.0)
            high = min(float((apart + Z / 2 * root).max()), 1.0)
        yield MeasureRow(attribute, float(apart.max()), n, low, high, left_out)


DISTANCES: Mapping[Distance, str] = MappingProxyType(
    {
        "kolmogorov_smirnov": "largest difference between two levels' distribution functions of "
        "the predictions",
        "wasserstein": "largest area between two levels' distribution functions of the "
        "predictions, in units of the target",
    }
)
for distance, what in DISTANCES.items():
    measure(
        distance,
        what=what,
        needs=("score", "group"),
        task=("regression",),
        direction="lower",
        reference="Chzhen et al., Fair regression with Wasserstein barycenters, 2020",
        has_units=distance == "wasserstein",
    )(partial(measure_distance, distance=distance))


# How far the predictions of groups are distributed from those of all rows.

# Predictions closer than this, relative to 1 or to their size, differ by rounding only.
TIE = 1e-12


def find_distances(
    values: np.ndarray,
    probability: np.ndarray,
    codes: np.ndarray,
    n_levels: int,
    weight: np.ndarray,
) -> np.ndarray:
    """Return how far each level's distribution of predictions is from that of all rows.

    D_a = sup_z |P(f(X) ≥ z | A = a) − P(f(X) ≥ z)| over all real z, for a prediction that is
    f_k(X) with probability p_k: ``values`` of shape (n_samples, n_components) and ``probability``
    of shape (n_components,). It is the Kolmogorov-Smirnov distance of the weighted empirical
    distributions of the n K values, of weights w_i p_k; NaN for a level without weight.

    O(n K log(n K)) for one sort, then O(n K) per level; O(n K) memory.
    """
    size = probability.size
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    mass = (weight[:, None] * probability).ravel()[order]
    row = order // size
    # Only the last of equal values counts.
    gap = np.diff(ordered)
    last = np.append(gap > TIE * np.maximum(1.0, np.abs(ordered[1:])), True)
    overall = np.cumsum(mass)[last] if flat.size else np.zeros(0)
    distance = np.full(n_levels, np.nan)
    for code in range(n_levels):
        share = np.cumsum(np.where(codes[row] == code, mass, 0.0))
        if flat.size and share[-1] > 0:
            distance[code] = np.abs(share[last] / share[-1] - overall / overall[-1]).max()
    return distance


def bound_deviations(
    codes: np.ndarray, n_levels: int, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how far `find_distances` may be above and below the true distances, by level.

    With s_a the level's share of the weight, F_a − F is 1 − s_a times the difference between two
    independent distributions, of the level and of the other rows. Let 1/n = 1/n_a + 1/n_rest, both
    of them (Σw)²/Σw². The estimates exceed the truth by at most sqrt(log(2·n_levels/δ)/(2n)), for
    all levels at once with probability 1 − δ = .95; and where a level's true distance is attained,
    it exceeds the estimate by at most z/sqrt(4n), with probability 1 − δ/2.

    References
    ----------
    Massart, "The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality", 1990. Wei and
    Dudley, "Two-sample Dvoretzky-Kiefer-Wolfowitz inequalities", 2012.
    """
    total, squares = (np.bincount(codes, each, n_levels) for each in (weight, weight**2))
    rest = total.sum() - total
    inverse = divide(squares, total**2) + divide(squares.sum() - squares, rest**2)
    share = rest / max(float(total.sum()), 1e-300)
    known = max(int((total > 0).sum()), 1)
    above = share * np.sqrt(np.log(2 * known / (1 - CONFIDENCE)) / 2 * inverse)
    return above, share * Z / 2 * np.sqrt(inverse)


@measure(
    "disparity",
    what="largest difference over all z between P(prediction ≥ z) of a level and of all rows; "
    "by level, and the largest of an attribute's levels",
    needs=("score", "group"),
    task=("binary", "regression"),
    direction="lower",
    reference=REFERENCE,
)
def measure_disparity(audit: Audit) -> Iterator[MeasureRow]:
    """Yield max_a sup_z |F_a(z) − F(z)| for every attribute, and the distance of every level.

    For a classifier the scores are compared, not the decisions: a disparity of 0 is parity of
    decisions at every threshold.

    n counts all rows for an attribute and the level's rows for a level. A level with fewer rows
    than the audit's minimum is not estimable, and left out of the largest.

    Notes
    -----
    For the intervals see `bound_deviations`; the paper's band, the value ± sqrt(log(2/.05)/(2n)) of
    all n rows, is too narrow where the farthest level has few of them. Under parity the value is
    above 0 by about the deviation of the smallest level.
    """
    part, weight = audit.part, audit.weight
    values, probability = audit.prediction.outcomes
    for attribute, levels in part.attributes.items():
        codes = part.group(attribute)
        distance = find_distances(values, probability, codes, len(levels), weight)
        count = np.bincount(codes, minlength=len(levels))
        distance[count < audit.minimum] = np.nan
        above, below = bound_deviations(codes, len(levels), weight)
        low, high = np.maximum(distance - above, 0.0), np.minimum(distance + below, 1.0)
        ends = (distance, low, high)
        value, least, most = (float(np.fmax.reduce(each, initial=np.nan)) for each in ends)
        left_out = int(((count > 0) & (count < audit.minimum)).sum())
        yield MeasureRow(attribute, value, codes.size, least, most, left_out)
        for code, level in enumerate(levels):
            value, least, most = (float(each[code]) for each in ends)
            yield MeasureRow(f"{attribute}={level}", value, int(count[code]), least, most)


@measure(
    "balanced_accuracy",
    what="mean over the classes of the share of their rows that are decided right",
    task=("binary", "multiclass"),
    direction="higher",
    reference="Brodersen et al., The balanced accuracy and its posterior distribution, 2010",
)
def measure_balanced_accuracy(audit: Audit) -> Iterator[MeasureRow]:
    """Yield mean_k P(decision = k | Y = k) over the K classes that occur; expected if random.

    The interval combines Wilson's intervals of the K recalls: value − sqrt(Σ (r_k − l_k)²)/K and
    likewise above. Fewer than two classes: not estimable.

    References
    ----------
    Zou and Donner, "Construction of confidence limits about effect measures: a general
    approach", 2008.
    """
    y, right, weight = audit.part.y, audit.right, audit.weight
    total = np.bincount(y, weight)
    present = total > 0
    if present.sum() < 2:
        yield MeasureRow("", np.nan, y.size)
        return
    recall = np.divide(
        np.bincount(y, weight * right), total, where=present, out=np.zeros_like(total)
    )
    squares = np.bincount(y, (weight * (right - recall[y])) ** 2)[present]
    kish = total[present] ** 2 / np.bincount(y, weight**2)[present]
    recall, total = recall[present], total[present]
    rows = np.bincount(y)[present]
    low, high = wilson(recall, effective_size(recall, squares / total**2, kish, rows))
    value = float(recall.mean())
    below = np.sqrt(np.sum((recall - low) ** 2)) / recall.size
    above = np.sqrt(np.sum((high - recall) ** 2)) / recall.size
    yield MeasureRow("", value, y.size, max(value - below, 0.0), min(value + above, 1.0))


@measure(
    "f1",
    what="harmonic mean of precision and recall of the positive class",
    direction="higher",
    reference="van Rijsbergen, Information Retrieval, 1979",
)
def measure_f1(audit: Audit) -> Iterator[MeasureRow]:
    """Yield 2 TP/(2 TP + FP + FN), expected counts if random, with Wilson's interval.

    Its effective size is that of the variance of a ratio of sums, Σ w²(2 tp − F (2 tp + fp + fn))²
    over the squared sum below. No positive row and no decision 1: not estimable.
    """
    y, decision, weight = audit.part.y, audit.prediction.decision, audit.weight
    above, below = 2 * (y == 1) * decision, (y == 1) + decision
    total = float(np.sum(weight * below))
    if not total > 0:
        yield MeasureRow("", np.nan, y.size)
        return
    value = float(np.sum(weight * above)) / total
    some, error = weight[below > 0], (above - value * below)[below > 0]
    squares = np.sum(some**2)
    # Of few heavy rows the first is too low as often as not.
    spread = max(np.sum((some * error) ** 2), np.average(error**2, weights=some) * squares)
    size = effective_size(np.asarray(value), spread / total**2, some.sum() ** 2 / squares)
    low, high = wilson(np.asarray(value), size)
    yield MeasureRow("", value, y.size, float(low), float(high))


@measure(
    "error_cost",
    what="mean cost of the errors, at the costs of the study's objective",
    needs=("decision", "costs"),
    direction="lower",
    reference="Elkan, The foundations of cost-sensitive learning, 2001",
)
def measure_error_cost(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the weighted mean of c_FP 1{y = 0} d + c_FN 1{y = 1} (1 − d), expected if random.

    The interval is Wilson's, of the share that the cost is of the larger one of both.
    """
    y, decision, weight = audit.part.y, audit.prediction.decision, audit.weight
    false_positive, false_negative = audit.costs or (1.0, 1.0)
    most = max(false_positive, false_negative)
    cost = np.where(y == 1, false_negative * (1 - decision), false_positive * decision) / most
    total, squares = float(np.sum(weight)), float(np.sum(weight**2))
    if not total > 0:
        yield MeasureRow("", np.nan, y.size)
        return
    value = np.asarray(np.sum(weight * cost) / total)
    variance = np.asarray(np.sum((weight * (cost - value)) ** 2) / total**2)
    size = effective_size(value, variance, total**2 / np.asarray(squares), y.size)
    low, high = wilson(value, size)
    yield MeasureRow("", most * float(value), y.size, most * float(low), most * float(high))


@measure(
    "log_loss",
    what="mean of −log P(Y = y | x), in nats",
    needs=("score",),
    task=("binary", "multiclass"),
    direction="lower",
    reference="Good, Rational decisions, 1952",
)
def measure_log_loss(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the weighted mean of −log p_y; its interval allows for skewness (`average_cells`).

    Probabilities are clipped 2.2e-16 away from 0 and 1, as in scikit-learn.
    """
    y, score = audit.part.y, audit.prediction.score
    likelihood = np.stack([1 - score, score], axis=1) if score.ndim == 1 else score
    eps = np.finfo(np.float64).eps
    losses = -np.log(np.clip(likelihood, eps, 1 - eps))
    yield MeasureRow("", *average(losses[np.arange(y.size), y], audit.weight, possible=losses))


@measure(
    "auc",
    what="probability that a positive row scores above a negative one, ties counting half",
    needs=("score",),
    direction="higher",
    reference="DeLong, DeLong and Clarke-Pearson, Comparing the areas under two or more "
    "correlated ROC curves, 1988",
)
def measure_auc(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the weighted AUC with Wilson's interval of an effective size.

    V_i is the weighted share of the other class that row i is on the right side of (ties count
    half). AUC is the weighted mean of V over either class, and DeLong's variance the sum over both
    classes of Σ w²(V − AUC)² / (Σw)². Of few rows it may be far too small, as where none of the
    worst was drawn: at least Hanley and McNeil's is taken, whichever class varies more. One class
    only: not estimable.

    Notes
    -----
    O(n log n): one sort, then sums by distinct score.

    References
    ----------
    Sun and Xu, "Fast implementation of DeLong's algorithm for comparing the areas under
    correlated receiver operating characteristic curves", 2014. Hanley and McNeil, "The meaning and
    use of the area under a receiver operating characteristic (ROC) curve", 1982.
    """
    y, score, weight = audit.part.y, audit.prediction.score, audit.weight
    _, rank = np.unique(score, return_inverse=True)
    positive = np.bincount(rank, weight * (y == 1))
    negative = np.bincount(rank, weight * (y == 0))
    if not (positive.sum() > 0 and negative.sum() > 0):
        yield MeasureRow("", np.nan, y.size)
        return
    below = (np.cumsum(negative) - negative / 2) / negative.sum()
    above = (positive.sum() - np.cumsum(positive) + positive / 2) / positive.sum()
    value = float(np.sum(positive * below) / positive.sum())
    squares = np.where(y == 1, below[rank], above[rank]) - value
    share = weight / np.where(y == 1, positive.sum(), negative.sum())
    rows = np.array([1.0 / np.sum(share[y == k] ** 2) for k in (0, 1)])
    terms = np.array([(1.0 - value) / (2.0 - value), value / (1.0 + value)])
    least = value * (1.0 - value) * max(terms @ (1.0 / rows), terms[::-1] @ (1.0 / rows))
    variance = np.maximum(np.sum((share * squares) ** 2), least)
    low, high = wilson(np.asarray(value), effective_size(np.asarray(value), variance, rows.min()))
    yield MeasureRow("", value, y.size, float(low), float(high))


@measure(
    "mean_prediction",
    what="mean predicted value, in units of the target; overall and by level",
    needs=("score",),
    task=("regression",),
    has_units=True,
)
def measure_mean_prediction(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the weighted mean prediction of the part and of every level."""
    least, unit = audit.part.units
    yield from _list_means(audit, least + unit * audit.prediction.score)
