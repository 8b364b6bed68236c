"""Losses and errors of predictions that are numbers: overall, by level, and the largest level's.

For a regression that draws one of several regressors they are expectations over the draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import logit

from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import (
    CONFIDENCE,
    Mean,
    Z,
    average,
    average_cells,
    bound_extreme,
)
from fairfrontier.metrics.statistic.rate import divide, read_codes
from fairfrontier.models.prediction import task_of
from fairfrontier.prepare.split import Task

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
        mean, count = _average_levels(audit, attribute, *losses)
        known = count >= max(audit.minimum, 1)
        n, left_out = int(count.sum()), int(((count > 0) & ~known).sum())
        mean = Mean(*(each[known] for each in (mean.value, mean.error, mean.degrees, mean.skew)))
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
    codes = read_codes(audit.part, attribute, n_levels)
    count = np.bincount(codes, minlength=n_levels)
    return average_cells(values, audit.weight, codes, n_levels, possible), count


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


@measure(
    "rmse",
    what="root mean squared error, in units of the target",
    needs=("score",),
    task=("regression",),
    direction="lower",
)
def measure_rmse(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the root of the mean squared error; its interval is that of the mean square, rooted."""
    square = 2 * expect_loss(audit, compute_square)
    value, n, low, high = average(square, audit.weight)
    root = np.sqrt(np.maximum([value, low, high], 0.0))
    yield MeasureRow("", float(root[0]), n, float(root[1]), float(root[2]))


@measure(
    "mae",
    what="mean absolute error, in units of the target",
    needs=("score",),
    task=("regression",),
    direction="lower",
)
def measure_mae(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the mean absolute error."""
    yield MeasureRow("", *average(expect_loss(audit, compute_absolute), audit.weight))


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
        codes = read_codes(part, attribute, len(levels))
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
