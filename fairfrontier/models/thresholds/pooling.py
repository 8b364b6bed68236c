"""ROC curves of groups with few rows, pooled with those of the groups that they are part of.

What few rows say about a group's rates is largely chance, and thresholds that make such rates equal
drive groups apart on fresh rows. The rates of group k at every threshold t are therefore shrunk to
those of its parent,

    r_k(t) = (1 − B_k) r_own(t) + B_k r_parent(t),   B_k = v_k / (v_k + τ²),

where v_k = r(1 − r)/n_k is the chance variance of a rate r, and τ² the variance between groups that
is left beyond chance, at the threshold that chooses as many of all rows as are positive. The parent
of a level is all rows; that of a crossed group adds what its levels, pooled themselves, differ from
all rows. For parity r is the share of all rows that are chosen and of one class, so that base rates
are pooled too; for other criteria it is the share of its class.

References
----------
B. Efron, C. Morris. Data analysis using Stein's estimator and its generalizations. JASA 70, 1975.
R. DerSimonian, N. Laird. Meta-analysis in clinical trials. Controlled Clinical Trials 7, 1986 (τ²).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fairfrontier.models.thresholds.curve import BOUNDED, Criterion, Curve, make_curve
from fairfrontier.models.thresholds.programme import (
    GroupSolution,
    apply_rule,
    find_rates,
    measure_gap,
)
from fairfrontier.models.thresholds.rule import MixtureRule

# Scores of the parent at which a pooled curve has a point, beside the group's own.
GRID = 1000
# Cuts that choose no more, as a share of a group's weight, are left out.
LEAST = 1e-12


def pool_curves(
    curves: Sequence[Curve],
    build: Callable[[np.ndarray], Sequence[Curve]],
    columns: Sequence[np.ndarray],
    counts: np.ndarray,
    criterion: Criterion,
    below: int,
) -> tuple[list[Curve], np.ndarray]:
    """Pool the curves of groups that have fewer rows than ``below``.

    Parameters
    ----------
    curves : sequence of Curve
        Of each group; see `build_curves`.
    build : callable
        From new codes of the groups, int64, shape (n_groups,), to the curves of these.
    columns : sequence of ndarray
        The code of each group's level in every attribute, int64, shape (n_groups,).
    counts : ndarray of int64, shape (n_groups,)
        Rows of each group.
    criterion : str
        Its rates say how far groups differ. For odds each class has a B of its own.

    Returns
    -------
    list of Curve
        Of each group. Nothing is pooled where the criterion's rate of a group is 0/0.
    pooled : ndarray of float64, shape (n_groups,)
        B, for odds the larger one; 0 for groups that are not pooled.

    Notes
    -----
    O(n log n) for a sort of all rows and one for each attribute, and O(K m log m) for K pooled
    groups whose curves have m points.
    """
    bounded = BOUNDED[criterion]
    # The rate that counts for negatives, and that for positives.
    events = bounded[::-1] if len(bounded) == 2 else bounded * 2
    size, none = counts.size, np.zeros(counts.size)
    if (counts >= below).all():
        return list(curves), none
    (whole,) = build(np.zeros(size, dtype=np.int64))
    chosen = np.searchsorted(whole.positive + whole.negative, whole.positive[-1])
    threshold = whole.threshold(int(np.clip(chosen, 1, max(1, whole.score.size - 1))))

    def measure(some: Sequence[Curve]) -> np.ndarray:
        """Return the rates of each class's event at the threshold, (2, n_curves)."""
        rule = MixtureRule(np.full((len(some), 1), threshold), np.ones((len(some), 1)))
        return find_rates(some, apply_rule(some, rule))[:, events].T

    def shrink(
        some: Sequence[Curve], expected: np.ndarray, rows: np.ndarray, freedom: np.ndarray
    ) -> np.ndarray:
        """Return B of each class, (2, n_curves)."""
        shares = np.array([(1.0, *_total(curve)[::-1] / _total(curve).sum()) for curve in some]).T
        pairs = zip(measure(some), expected, shares[list(events)], freedom, strict=True)
        found = [
            find_pooling(rate, rate - mean, rows * share, free) for rate, mean, share, free in pairs
        ]
        return np.where(rows < below, found, 0.0)

    if np.isnan(measure(curves)).any():
        return list(curves), none
    top = measure([whole])
    expected, freedom = np.tile(top, size), np.full(2, size - 1.0)
    terms: list[tuple[np.ndarray, Sequence[Curve], np.ndarray]] = []
    for codes in columns if len(columns) > 1 else ():
        levels, rows = build(codes), np.bincount(codes, counts)
        kept = 1.0 - shrink(levels, np.tile(top, rows.size), rows, np.full(2, rows.size - 1.0))
        expected += (kept * (measure(levels) - top))[:, codes]
        # What the levels keep of their own is no chance between the crossed groups.
        freedom -= kept.sum(axis=1) * (1.0 - 1.0 / rows.size)
        terms.append((kept, levels, codes))
    pooled = shrink(curves, expected, counts, np.maximum(freedom, 1.0))
    found = list(curves)
    for k in np.flatnonzero(pooled.any(axis=0)).tolist():
        parts, left = [(1.0 - pooled[:, k], curves[k])], pooled[:, k]
        for kept, levels, codes in terms:
            factor = pooled[:, k] * kept[:, codes[k]]
            parts, left = [*parts, (factor, levels[codes[k]])], left - factor
        parts.append((left, whole))
        found[k] = _blend(parts, whole, joint=criterion == "parity")
    return found, pooled.max(axis=0)


def _blend(parts: Sequence[tuple[np.ndarray, Curve]], whole: Curve, *, joint: bool) -> Curve:
    """Return the first curve with rates that are sums of those of all, times factors by class."""
    own = parts[0][1]
    spread = np.linspace(0, whole.score.size - 1, min(GRID, whole.score.size)).astype(np.int64)
    score = np.unique(np.concatenate([own.score, whole.score[spread]]))[::-1]
    rates, ends = np.zeros((2, score.size)), np.zeros((2, 1))
    for factor, curve in parts:
        total = _total(curve)[:, None]
        scale = factor[:, None] / np.where(total > 0, total.sum() if joint else total, 1.0)
        cuts = curve.score.size - np.searchsorted(curve.score[::-1], score)
        rates += scale * np.stack([curve.negative[cuts], curve.positive[cuts]])
        ends += scale * total
    # What levels add need not rise with every score, as rates do.
    rates = np.clip(np.maximum.accumulate(rates, axis=1), 0.0, ends)
    mass = rates * (_total(own).sum() if joint else _total(own)[:, None])
    kept = np.diff(mass.sum(axis=0), prepend=0.0) > LEAST * mass[:, -1].sum()
    negative, positive = np.diff(mass[:, kept], prepend=0.0)
    return make_curve(score[kept], positive, negative)


def measure_again(
    solution: GroupSolution, curves: Sequence[Curve], criterion: Criterion
) -> GroupSolution:
    """Return a solution with the rates of its rule, and their gap, on other curves."""
    rates = find_rates(curves, apply_rule(curves, solution.rule))
    return replace(solution, rates=rates, gap=measure_gap(rates, criterion))


def find_pooling(
    rate: np.ndarray, deviation: np.ndarray, counts: np.ndarray, freedom: float
) -> np.ndarray:
    """Return B of every group, float64 in [0, 1], shape (n_groups,); 1 for groups without weight.

    ``rate`` and ``deviation`` are a group's rate, NaN without weight, and how far it is from its
    parent's; ``freedom`` the number of deviations that are free. τ² is by how much
    Σ deviation²/v exceeds what chance alone would give it (DerSimonian and Laird's estimator), its
    mean and one standard deviation: with few groups it exceeds the mean too often.
    """
    known = np.isfinite(rate)
    mean = float(np.average(rate[known], weights=counts[known]))
    weight = np.where(known, counts, 0.0) / max(mean * (1.0 - mean), 1e-12)
    excess = float((weight * np.where(known, deviation, 0.0) ** 2).sum())
    excess -= freedom + np.sqrt(2.0 * freedom)
    total = float(weight.sum())
    between = max(excess, 0.0) / max(total - float((weight**2).sum()) / total, 1e-12)
    return np.asarray(1.0 / (1.0 + weight * between))


def _total(curve: Curve) -> np.ndarray:
    """Return the weight of negatives and positives, (2,)."""
    return np.array([curve.negative[-1], curve.positive[-1]])
