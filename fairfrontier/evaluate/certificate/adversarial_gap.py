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
from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, Need, measure
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
    """The gap Ĝ(ε) at one budget.

    ``value``, at least 0, is attained by a map of the rows within the budget, in nats for the log
    loss and in shares of rows for errors. ``upper`` is the dual's value, an upper bound over these
    rows; ``low`` and ``high`` are a 95% bootstrap interval, NaN without replicates; ``n`` counts
    rows.
    """

    budget: float
    value: float
    upper: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, eq=False)
class GapCertificate:
    """A model's gaps over a range of budgets, and the maps of rows that attain them.

    ``rows`` are positions in the part, sorted by the rows' values, so that nothing here depends on
    their order; ``twin`` is the first row with the same values and ``mass`` the share of each row.
    ``target``, ``gain`` and ``cost``, of shape (n_maps, n), say what each row becomes at each price
    of the fair distance, in falling order from ∞, what that adds to its loss, and its fair
    distance.
    """

    loss: Loss
    gaps: tuple[Gap, ...]
    rows: np.ndarray
    twin: np.ndarray
    mass: np.ndarray
    target: np.ndarray
    gain: np.ndarray
    cost: np.ndarray

    def find_gap(self, budget: float) -> Gap:
        """Return the gap at one of the budgets; ConfigError when it was not certified."""
        for gap in self.gaps:
            if gap.budget == budget:
                return gap
        known = ", ".join(f"{gap.budget:g}" for gap in self.gaps)
        raise ConfigError(f"The budget {budget:g} was not certified.", f"Choose among: {known}.")

    def mix_maps(self, budget: float) -> tuple[tuple[float, int], ...]:
        """Return the (share, position) of the one or two maps whose mixture spends a budget."""
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
        Anything scikit-learn shaped, post-processed and randomised rules included; only its
        predictions are used, see `predict_part`.
    part : Part
        Rows with labels of two or more classes.
    metric : FairMetric
        What "similar" means.
    budgets : sequence of float
        ε ≥ 0 of each gap, in squared units of the metric.
    loss : {"log", "error"}, optional
        ``log``: −log of the probability of the label, clipped at 1e-6. ``error``: the probability
        of a wrong decision. By default ``error`` for post-processed and randomised models, else
        ``log``.
    rows : int, optional
        Size of the sample, the same for every model; all rows when None.
    replicates : int
        Bootstrap draws; 0 leaves out the intervals.

    Returns
    -------
    GapCertificate
        `list_worst_moves` lists the moves behind it.

    Raises
    ------
    ConfigError
        For a budget below 0, an unknown loss, or a part without classes.

    Examples
    --------
    >>> found = certify(model, split.test, metric, [0.1, 0.4])  # doctest: +SKIP
    >>> list_worst_moves(found, 0.1)  # doctest: +SKIP
    """
    if not part.classes:
        raise ConfigError(
            f"The label of {part.dataset} has no classes.", "Certify classifiers only."
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
    """Certify a model from its predictions on a part, once per loss; see `certify`."""
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
    """Return every row's loss under every label, float64, shape (n_samples, n_classes)."""
    if loss not in get_args(Loss):
        raise ConfigError(
            f"There is no loss {loss!r} of the certificate.", nearest(str(loss), get_args(Loss))
        )
    classes = max(2, len(part.classes))
    predicted = prediction.score if loss == "log" else prediction.decision
    if classes == 2:
        probability = np.stack([1.0 - predicted, predicted], axis=1)
    elif loss == "log":
        probability = predicted
    else:
        probability = np.eye(classes)[predicted.astype(np.int64)]
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
        Loss of every row under every label, of the kind ``loss``.
    label : int64 array of shape (n,)
        Codes 0..K-1.
    z : float64 array of shape (n, k)
        Rows embedded by the fair metric.
    weight : float64 array of shape (n,), optional
        Case weights; rows of weight 0 are left out.
    features : float64 array of shape (n, d), optional
        Further values by which rows are sorted: of rows that tie, a move shows the first.
    rows : int64 array of shape (n,), optional
        The rows' positions in the part; 0..n-1 by default.
    tolerance : float
        Of the values: duality gap as a share of Ĝ(ε).

    Raises
    ------
    ConfigError
        For a budget below 0 or infinite, or without a row of positive weight.
    DataError
        For weights that are negative or not finite, or losses that are not finite.

    Notes
    -----
    The bootstrap resamples the people who are moved, rows with their labels and weights, n at a
    time; their n possible counterparts stay the same. Resampling counterparts, too, would keep 63%
    of them and lower the gap by more than its noise. So the interval covers other people of the
    same population against these counterparts. It does not cover the growth of the gap with more
    counterparts (the first term of Theorem 3.4), nor its variation between samples of them, and is
    too narrow for other tables where few rows have many features and the budget is small. Draws
    are solved to 1e-3.

    A price costs O(n² k) operations in blocks of O(n) memory, some 10 to 30 of them for all
    budgets and draws together; a draw costs O(n) for each price. Memory is O(n · prices) and
    2 bytes for each row and draw.

    References
    ----------
    A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
    (2.5), (2.8), Section 3 with (3.2), (B.14).
    """
    if len(budgets) == 0 or not all(0 <= budget < np.inf for budget in budgets):
        raise ConfigError(
            f"The certificate's budgets are {list(budgets)}.", "Give one or more, each 0 or more."
        )
    weight = unit_weight(weight, len(z))
    values = [np.round(z, 9) + 0.0, label[:, None], losses]
    content = np.column_stack(values if features is None else [*values, features])
    order = np.lexsort([weight, *content.T[::-1]])
    order = order[weight[order] > 0]
    if not order.size:
        raise ConfigError(
            "No row of the certificate has a positive weight.", "Give some rows a weight above 0."
        )
    if not np.isfinite(np.asarray(losses)[order]).all():
        raise DataError(
            "The losses of the certificate are not all finite.",
            "Certify a model whose predictions are numbers on every row.",
        )
    new = np.append(True, np.any(content[order[1:]] != content[order[:-1]], axis=1))
    weight = weight[order]
    sorted_losses = np.asarray(losses[order], dtype=np.float64)
    maps = PriceMaps(z[order], label[order], sorted_losses, weight)
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
        middle, bound = float(value[0, i]), float(upper[0, i])
        interval = percentile(middle, draws[:, i])
        gaps.append(Gap(float(budget), middle, bound, *interval, order.size))
    return GapCertificate(
        loss=loss,
        gaps=tuple(gaps),
        rows=order if rows is None else rows[order],
        twin=np.flatnonzero(new)[np.cumsum(new) - 1],
        mass=weight / weight.sum(),
        target=np.stack([maps.name_rows(target) for target in maps.target]),
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
    """Yield the gap for each budget, with its bootstrap interval."""
    for certificate in audit.gaps:
        for gap in certificate.gaps if certificate.loss == loss else ():
            yield MeasureRow(name_budget(gap.budget), gap.value, gap.n, gap.low, gap.high)


LOSSES: tuple[tuple[str, str, Loss, Need], ...] = (
    ("adversarial_gap", "Log loss", "log", "score"),
    ("adversarial_error_gap", "Share of errors", "error", "decision"),
)
for name, what, kind, need in LOSSES:
    measure(
        name,
        what=f"{what} that similar rows add to the mean in the worst case, within a budget",
        needs=["gap", need],
        task=["binary", "multiclass"],
        direction="lower",
        reference=VARGO,
    )(partial(show_gaps, loss=kind))
