"""The restricted adversarial gap of a classifier: loss that similar rows add in the worst case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from fairfrontier.evaluate.certificate.certificate import (
    SMALLEST_PROBABILITY,
    choose_rows,
    name_budget,
)
from fairfrontier.evaluate.certificate.price_map import DRAW_PASSES, SAMPLE_PASSES, PriceMaps
from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.statistic.interval import percentile
from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.train.base import unit_weight
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.prediction import Prediction, predict_part

Loss = Literal["log", "error"]
VARGO = "Vargo, Zhang, Yurochkin and Sun, Individually fair gradient boosting, ICLR 2021"
# How far a bootstrap draw may be from its optimum, as a share of its gap.
DRAW_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Gap:
    """The gap at one budget.

    Attributes
    ----------
    budget : float
        ε: mean fair distance that rows may be moved, in squared units of the metric.
    value : float
        Ĝ(ε), attained by a map within the budget; in nats for the log loss, in shares of rows for
        errors; at least 0.
    upper : float
        The dual's value: an upper bound of the optimum over these rows.
    low, high : float
        95% bootstrap interval; NaN without replicates.
    n : int
        Rows.
    """

    budget: float
    value: float
    upper: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, eq=False)
class GapCertificate:
    """A model's gaps over a range of budgets, and the maps that attain them.

    Attributes
    ----------
    loss : {"log", "error"}
        Which loss.
    gaps : tuple of Gap
        One per budget, in the order asked.
    rows : int64 ndarray of shape (n,)
        Positions of the rows in the part, sorted by what they hold: nothing here depends on the
        order in which rows came.
    twin : int64 ndarray of shape (n,)
        The first of the rows that hold the same as each.
    mass, own : float64 ndarrays of shape (n,)
        Share of each row, and its loss under its own label.
    eta : float64 ndarray of shape (n_maps,)
        Prices of the fair distance, falling from ∞.
    target : int64 ndarray of shape (n_maps, n)
        The row that each row becomes at each price.
    gain, cost : float64 ndarrays of shape (n_maps, n)
        What that adds to its loss, and its fair distance.
    """

    loss: Loss
    gaps: tuple[Gap, ...]
    rows: np.ndarray
    twin: np.ndarray
    mass: np.ndarray
    own: np.ndarray
    eta: np.ndarray
    target: np.ndarray
    gain: np.ndarray
    cost: np.ndarray

    def find_gap(self, budget: float) -> Gap:
        """Return the gap at one of the budgets.

        Raises
        ------
        ConfigError
            When it was not certified.
        """
        for each in self.gaps:
            if each.budget == budget:
                return each
        known = [f"{each.budget:g}" for each in self.gaps]
        raise ConfigError(
            f"The budget {budget:g} was not certified.", f"Choose among: {', '.join(known)}."
        )

    def mix_maps(self, budget: float) -> tuple[tuple[float, int], ...]:
        """Return the (share, number) of the one or two maps whose mixture spends a budget."""
        cost = self.cost @ self.mass
        inside = max(int(np.sum(cost <= budget)), 1) - 1
        if inside == len(cost) - 1:
            return ((1.0, inside),)
        share = (budget - cost[inside]) / (cost[inside + 1] - cost[inside])
        return ((1.0 - share, inside), (share, inside + 1))


def certify(
    model: Any,
    part: Part,
    metric: FairMetric,
    budgets: Sequence[float],
    *,
    loss: Loss | None = None,
    rows: int | None = 2000,
    replicates: int = 1000,
) -> GapCertificate:
    """Certify any fitted classifier on a part: its restricted adversarial gap at every budget.

    Parameters
    ----------
    model : estimator
        Anything scikit-learn shaped, post-processed and randomised rules included; see
        ``predict_part``. Nothing is asked of it but predictions.
    part : Part
        Rows with labels of two or more classes.
    metric : FairMetric
        What "similar" means.
    budgets : sequence of float
        ε ≥ 0 of each gap, in squared units of the metric.
    loss : {"log", "error"}, optional
        ``log``: −log of the probability given to the label, which is cut at 1e-6. ``error``: the
        probability of a wrong decision. By default ``error`` for post-processed models and
        for those that draw their decisions, else ``log``.
    rows : int, optional
        A sample of that many rows, the same for every model; all rows when None.
    replicates : int
        Bootstrap draws; 0 leaves out the intervals.

    Returns
    -------
    GapCertificate
        ``list_worst_moves`` shows the moves behind it.

    Raises
    ------
    ConfigError
        For a budget below 0, an unknown loss, or a part without classes.

    Examples
    --------
    >>> found = certify(model, split.test, metric, [0.1, 0.4])  # doctest: +SKIP
    >>> list_worst_moves(found, 0.1, split.test)  # doctest: +SKIP
    """
    if not part.classes:
        raise ConfigError(
            f"The label of {part.dataset} has no classes.", "Certify models of classes only."
        )
    corrected = isinstance(model, PostProcessed) and not model.processor.rescores
    decides = corrected or getattr(model, "randomized", False)
    chosen: Loss = loss or ("error" if decides else "log")
    predicted = predict_part(model, replace(part, counterfactuals={}))
    (found,) = certify_gaps(
        predicted, part, metric, budgets, rows=rows, losses=(chosen,), replicates=replicates
    )
    return found


def certify_gaps(
    prediction: Prediction,
    part: Part,
    metric: FairMetric,
    budgets: Sequence[float],
    *,
    rows: int | None = 2000,
    losses: Sequence[Loss] = ("log", "error"),
    replicates: int = 1000,
    tolerance: float = 1e-6,
) -> tuple[GapCertificate, ...]:
    """Certify a model from what it predicted on a part; parameters as in ``certify``.

    Returns
    -------
    tuple of GapCertificate
        One per loss.
    """
    chosen = choose_rows(part, rows)
    some = part.take(chosen)
    z = np.asarray(metric.embed(some.X))
    return tuple(
        trace_gap(
            tabulate_loss(prediction, part, loss)[chosen],
            some.y,
            z,
            budgets,
            loss=loss,
            weight=some.weight,
            features=some.X,
            replicates=replicates,
            generator=derive_generator("adversarial gap", part.dataset, part.name),
            rows=chosen,
            tolerance=tolerance,
        )
        for loss in losses
    )


def tabulate_loss(prediction: Prediction, part: Part, loss: Loss) -> np.ndarray:
    """Return every row's loss under every label, float64, shape (n_samples, n_classes).

    Raises
    ------
    ConfigError
        For an unknown loss.
    """
    if loss not in get_args(Loss):
        raise ConfigError(
            f"There is no loss {loss!r} of the certificate.", nearest(str(loss), get_args(Loss))
        )
    classes = max(2, len(part.classes))
    told = prediction.score if loss == "log" else prediction.decision
    if classes == 2:
        probability = np.stack([1.0 - told, told], axis=1)
    elif loss == "log":
        probability = told
    else:
        probability = np.eye(classes)[told.astype(np.int64)]
    if loss == "error":
        return np.asarray(1.0 - probability)
    return np.asarray(-np.log(np.clip(probability, SMALLEST_PROBABILITY, 1.0)))


def trace_gap(
    losses: np.ndarray,
    label: np.ndarray,
    z: np.ndarray,
    budgets: Sequence[float],
    *,
    loss: Loss = "log",
    weight: np.ndarray | None = None,
    features: np.ndarray | None = None,
    rows: np.ndarray | None = None,
    tolerance: float = 1e-6,
    replicates: int = 1000,
    generator: np.random.Generator | None = None,
) -> GapCertificate:
    """Compute the restricted adversarial gap of embedded rows at every budget.

        Ĝ(ε) = max_Π ⟨R, Π⟩ − Σ_j m_j R_jj
               s.t. Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                       (2.8), (3.2)
             = min_{η ≥ 0} ηε + Σ_j m_j max_i (R_ij − η C_ij − R_jj)   (B.14)

    with R_ij the loss of row i under the label of row j, C_ij = ‖z_i − z_j‖² and m = 1/n or the
    normalised weights. The inner maxima do not depend on ε or m: the maps found at some prices η
    serve all budgets and all bootstrap draws, and Ĝ is read off the upper concave hull of their
    (cost, gain), with the tangents there as the upper bound.

    Parameters
    ----------
    losses : float64 array of shape (n, K)
        Loss of every row under every label.
    label : int64 array of shape (n,)
        Codes 0..K-1.
    z : float64 array of shape (n, k)
        Rows embedded by the fair metric.
    budgets : sequence of float
        ε ≥ 0.
    loss : {"log", "error"}
        What ``losses`` are.
    weight : float64 array of shape (n,), optional
        Case weights; rows of weight 0 are left out.
    features : float64 array of shape (n, d), optional
        What else tells rows apart, for moves: of rows that tie, the first in this order is shown.
    rows : int64 array of shape (n,), optional
        What the rows are called in the certificate; 0..n-1 by default.
    tolerance : float
        Of the values: duality gap as a share of Ĝ(ε).
    replicates : int
        Bootstrap draws.
    generator : numpy.random.Generator, optional
        Draws them; of seed 0 by default.

    Raises
    ------
    ConfigError
        For a budget below 0 or infinite, or without a row of positive weight.
    DataError
        For weights that are negative or not finite, or losses that are not finite.

    Notes
    -----
    What is resampled are the people who are moved, rows with their labels and weights, n at a time
    with replacement; the rows that they may become stay all n. A bootstrap of those, too, would
    keep 63% of the rows as counterparts and lower the gap by more than its noise. So the interval
    speaks of other people of the same population against these counterparts: how the gap would
    grow with more counterparts (the first term of Theorem 3.4) is not in it, nor how it differs
    between samples of them, so that it is too narrow for the gap of other tables where few rows
    face many features at a small budget. The gap of a draw is met to 1e-3.

    A price costs O(n² k) operations in blocks of O(n) memory, some 10 to 30 of them for all
    budgets and draws together; a draw costs O(n) for each price. Memory is O(n · prices) and
    2 bytes for each row and draw.

    References
    ----------
    A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
    (2.5), (2.8), Section 3 with (3.2), (B.14).
    """
    if len(budgets) == 0 or not all(0 <= each < np.inf for each in budgets):
        raise ConfigError(
            f"The certificate's budgets are {list(budgets)}.", "Give one or more, each 0 or more."
        )
    given = unit_weight(weight, len(z))
    held = [np.round(z, 9) + 0.0, label[:, None], losses]
    content = np.column_stack(held if features is None else [*held, features])
    order = np.lexsort([given, *content.T[::-1]])
    order = order[given[order] > 0]
    if not order.size:
        raise ConfigError("No row of the certificate has a weight above 0.", "Give it some rows.")
    if not np.isfinite(np.asarray(losses)[order]).all():
        raise DataError(
            "The losses of the certificate are not all finite.",
            "Certify a model whose predictions are numbers on every row.",
        )
    new = np.append(True, np.any(content[order[1:]] != content[order[:-1]], axis=1))
    weight = given[order]
    maps = PriceMaps(z[order], label[order], np.asarray(losses[order], dtype=np.float64), weight)
    one = np.ones((1, order.size), dtype=np.uint16)
    value, upper = maps.settle(one, budgets, tolerance, SAMPLE_PASSES)
    draws = np.empty((0, len(budgets)))
    if replicates:
        random = np.random.default_rng(0) if generator is None else generator
        counts = _draw_counts(order.size, replicates, random)
        draws, _ = maps.settle(counts, budgets, DRAW_TOLERANCE, DRAW_PASSES)
        # The draws' prices may have found a better map for the sample, too.
        value, upper = maps.settle(one, budgets, tolerance, 0)
    gaps = []
    for i, budget in enumerate(budgets):
        low, high = percentile(float(value[0, i]), draws[:, i])
        gaps.append(
            Gap(float(budget), float(value[0, i]), float(upper[0, i]), low, high, order.size)
        )
    return GapCertificate(
        loss=loss,
        gaps=tuple(gaps),
        rows=order if rows is None else rows[order],
        twin=np.flatnonzero(new)[np.cumsum(new) - 1],
        mass=weight / weight.sum(),
        own=maps.own,
        eta=np.array(maps.eta),
        target=np.stack([maps.name_rows(each) for each in maps.target]),
        gain=np.stack(maps.gain),
        cost=np.stack(maps.cost),
    )


def _draw_counts(n: int, replicates: int, generator: np.random.Generator) -> np.ndarray:
    """Draw n rows with replacement and count them, uint16, shape (replicates, n)."""
    counts = np.empty((replicates, n), dtype=np.uint16)
    for draw in range(replicates):
        counts[draw] = np.bincount(generator.integers(n, size=n), minlength=n)
    return counts


def show_gaps(audit: Audit, loss: Loss) -> Iterator[MeasureRow]:
    """Yield one row for each budget, with its bootstrap interval."""
    for found in audit.gaps:
        for each in found.gaps if found.loss == loss else ():
            yield MeasureRow(name_budget(each.budget), each.value, each.n, each.low, each.high)


measure(
    "adversarial_gap",
    what="Log loss that similar rows add to the mean in the worst case, within a budget",
    needs=["gap", "score"],
    task=["binary", "multiclass"],
    direction="lower",
    reference=VARGO,
)(partial(show_gaps, loss="log"))
measure(
    "adversarial_error_gap",
    what="Share of errors that similar rows add to the mean in the worst case, within a budget",
    needs=["gap", "decision"],
    task=["binary", "multiclass"],
    direction="lower",
    reference=VARGO,
)(partial(show_gaps, loss="error"))
