"""How differently a model treats the counterfactual versions of a row: decisions and scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from fairfrontier.metrics.certificate.certificate import Loss, name_budget
from fairfrontier.metrics.measure.registry import Audit, MeasureRow, Need, measure
from fairfrontier.metrics.statistic.interval import average, effective_size, wilson
from fairfrontier.prepare.split import Part


def weigh_versions(part: Part, name: str) -> np.ndarray:
    """Return the case weights of the rows that have versions in a set, float64 (n_rows,)."""
    rows = part.counterfactuals[name].rows
    weight = np.asarray(part.weight, dtype=np.float64)
    return weight if rows is None else weight[rows]


@measure(
    "consistency",
    what="share of rows that get the same decision in all variants of a counterfactual set",
    needs=("decision", "counterfactuals"),
    task=("binary", "multiclass"),
    direction="higher",
    reference="Yurochkin, Bower and Sun, Training individually fair ML models with SenSR, 2020",
)
def measure_consistency(audit: Audit) -> Iterator[MeasureRow]:
    """Yield one row for each counterfactual set: mean_i [1 − (max_v h_iv − min_v h_iv)].

    h_iv is the probability of deciding 1 for variant v of row i. Under common draws (one uniform
    number a row, whatever the variant) the decisions of all variants agree with exactly the
    probability 1 − (max h − min h); for deterministic rules this is 1 or 0. With more than two
    classes a row counts when the class is the same in all variants. Rows without versions are
    left out where the set declares them. The interval is Wilson's.

    Notes
    -----
    O(n) per variant. A set with one variant is consistent by definition.
    """
    for name, variants in audit.prediction.counterfactuals.items():
        weight = weigh_versions(audit.part, name)
        decisions = [decision for _, decision in variants]
        total = weight.sum()
        if not decisions or not total > 0:
            yield MeasureRow(name, np.nan, weight.size)
            continue
        spread = np.maximum.reduce(decisions) - np.minimum.reduce(decisions)
        agreement = 1 - np.minimum(spread, 1.0)
        value = float(np.sum(weight * agreement) / total)
        variance = np.sum((weight * (agreement - value)) ** 2) / total**2
        size = effective_size(
            np.asarray(value), variance, total**2 / np.sum(weight**2), weight.size
        )
        low, high = wilson(np.asarray(value), size)
        yield MeasureRow(name, value, weight.size, float(low), float(high))


@measure(
    "counterfactual_fairness",
    what="CTF score: how much the probabilities of the classes vary over the versions of a row",
    needs=("counterfactual_score",),
    task=("binary", "multiclass"),
    direction="lower",
    reference="Garg et al., Counterfactual fairness in text classification through robustness, "
    "2019; Yurochkin and Sun, SenSeI, 2021",
)
def measure_counterfactual_fairness(audit: Audit) -> Iterator[MeasureRow]:
    """Yield one row for each counterfactual set: the weighted mean over the rows with versions.

    Two classes: mean_i std_v P(Y=1 | version v of row i). More: the mean over rows and over pairs
    of versions of ‖p_iv − p_iv'‖², p the probabilities of the classes. The interval is the normal
    one of a mean over rows, clipped at 0.

    Notes
    -----
    O(n m K) for m versions.
    """
    for name, scores in audit.prediction.counterfactual_scores.items():
        weight = weigh_versions(audit.part, name)
        if not scores:
            yield MeasureRow(name, np.nan, weight.size)
            continue
        value, n, low, high = average(vary(scores), weight)
        yield MeasureRow(name, value, n, max(low, 0.0), high)


def vary(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return how much the scores of each row vary over its versions; 0 for one version.

    For probabilities of one class it is the standard deviation (NumPy's, over m versions and not
    m − 1); of probabilities of K classes the mean over the m(m − 1)/2 pairs of versions of the
    squared Euclidean distance, which is 2/(m − 1) Σ_v ‖p_v − p̄‖².
    """
    m = len(scores)
    # From the first version, so that versions that agree vary by exactly 0.
    mean = sum((score - scores[0] for score in scores), np.zeros_like(scores[0])) / m
    square = sum(((score - scores[0] - mean) ** 2 for score in scores), np.zeros_like(mean))
    if square.ndim == 1:
        return np.asarray(np.sqrt(square / m))
    return np.asarray(square.sum(axis=1) * 2 / max(m - 1, 1))


TAIL = 0.95


def measure_gap(audit: Audit, *, ranked: bool, tail: bool) -> Iterator[MeasureRow]:
    """Yield one row for each counterfactual set: mean or 95% quantile of g_i = max_v s_iv − min_v.

    s_iv is the score of version v of row i, of several classes each, of which g_i is the largest;
    or, ``ranked``, its rank F(s_iv), the share of the part's rows whose score is lower, and half of
    those whose score is equal. The quantile is the least number that the g_i of 95% of the rows do
    not exceed. The intervals are the normal one of a mean over rows, clipped at 0, and that of the
    order statistics between the ends of Wilson's interval of .95.

    Notes
    -----
    O(n m K) for m versions, and O(n m log n) for ranks.
    """
    for name, versions in audit.prediction.counterfactual_scores.items():
        weight = weigh_versions(audit.part, name)
        if not versions or not weight.sum() > 0:
            yield MeasureRow(name, np.nan, weight.size)
            continue
        gap = np.ptp(audit.version_ranks[name] if ranked else np.stack(versions), axis=0)
        gap = gap.max(axis=1) if gap.ndim == 2 else gap
        if tail:
            size = np.asarray(weight.sum() ** 2 / np.sum(weight**2))
            ends = [float(end) for end in wilson(np.asarray(TAIL), size)]
            low, value, high = find_quantiles(gap, weight, [ends[0], TAIL, ends[1]])
            yield MeasureRow(name, value, weight.size, low, high)
        else:
            mean, n, low, high = average(gap, weight)
            yield MeasureRow(name, mean, n, max(low, 0.0), high)


def find_quantiles(values: np.ndarray, weight: np.ndarray, shares: Sequence[float]) -> list[float]:
    """Return for each share the least value that this share of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    # A share that is met exactly must not be missed by rounding.
    position = np.searchsorted(total, np.asarray(shares) * total[-1] * (1 - 1e-12))
    return [float(value) for value in values[order[position]]]


for _ranked, _of in ((False, "score"), (True, "rank")):
    for _tail, _statistic in ((False, "mean"), (True, "95% quantile")):
        measure(
            f"counterfactual_{_of}_gap{'_95' if _tail else ''}",
            what=f"{_statistic} over rows of the largest difference in {_of} between their versions"
            " in a counterfactual set",
            needs=("score", "counterfactual_score") if _ranked else ("counterfactual_score",),
            task=("binary", "regression") if _ranked else ("binary", "multiclass", "regression"),
            direction="lower",
        )(partial(measure_gap, ranked=_ranked, tail=_tail))


# Measures of individual fairness that certificates give, one value for each budget.

SENSEI = "Yurochkin and Sun, SenSeI, ICLR 2021"
VARGO = "Vargo, Zhang, Yurochkin and Sun, Individually fair gradient boosting, ICLR 2021"


@measure(
    "dif",
    what="Largest mean output distance between rows and similar rows, within a budget",
    needs=["certificate"],
    task=["binary", "multiclass"],
    direction="lower",
    reference=SENSEI,
)
def show_certificates(audit: Audit) -> Iterator[MeasureRow]:
    """Yield R̂(h) over the data rows for each budget, between its two bounds."""
    for found in audit.certificates:
        yield MeasureRow(name_budget(found.budget), found.value, found.n, found.value, found.upper)


@measure(
    "dif_box",
    what="Lower bound of the mean output distance to similar rows in the data's range, for nets",
    needs=["box"],
    task=["binary", "multiclass"],
    direction="lower",
    reference=SENSEI,
)
def show_bounds(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the bound for each budget; there is no upper bound."""
    for bound in audit.boxes:
        yield MeasureRow(name_budget(bound.budget), bound.value, bound.n, bound.value, np.nan)


def show_gaps(audit: Audit, loss: Loss) -> Iterator[MeasureRow]:
    """Yield the gap for each budget, with its bootstrap interval."""
    for certificate in audit.gaps:
        for gap in certificate.gaps if certificate.loss == loss else ():
            yield MeasureRow(name_budget(gap.budget), gap.value, gap.n, gap.low, gap.high)


LOSSES: tuple[tuple[str, str, Loss, Need], ...] = (
    ("adversarial_gap", "Log loss", "log", "score"),
    ("adversarial_error_gap", "Share of errors", "error", "decision"),
)
for _name, what, kind, need in LOSSES:
    measure(
        _name,
        what=f"{what} that similar rows add to the mean in the worst case, within a budget",
        needs=["gap", need],
        task=["binary", "multiclass"],
        direction="lower",
        reference=VARGO,
    )(partial(show_gaps, loss=kind))
