"""Ramps of groups with few rows, pooled with those of the groups that they are part of.

A threshold that is fitted to few rows follows their accidents: on fresh rows such groups may end
up further apart than they were. The rate of group k is therefore shrunk to that by its parent's,

    ρ_k = (1 − B_k) E[h_own | k] + B_k E[h_parent | k],   B_k = v_k / (v_k + τ²),

where v_k = r(1 − r)/n_k is the chance variance of a rate r, and τ² the variance between groups that
is left beyond chance. The parent of a level is all rows; that of a crossed group adds what its
levels, pooled themselves, differ from all rows.

References
----------
B. Efron, C. Morris. Data analysis using Stein's estimator and its generalizations. JASA 70, 1975.
R. DerSimonian, N. Laird. Meta-analysis in clinical trials. Controlled Clinical Trials 7, 1986 (τ²).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairfrontier.train.postprocess.histogram import ScoreHistogram
from fairfrontier.train.postprocess.roc.pooling import find_pooling
from fairfrontier.train.postprocess.rule import ThresholdRule
from fairfrontier.train.postprocess.sample import ScoredRows
from fairfrontier.train.postprocess.threshold import ThresholdProblem, solve_exact, weigh_rule


def fit_pooled(
    rows: ScoredRows | ScoreHistogram,
    counts: np.ndarray,
    columns: Sequence[np.ndarray],
    *,
    width: float,
    rate: float,
    budget: float,
    below: int,
) -> tuple[ThresholdRule, np.ndarray]:
    """Fit a threshold for each group, pooling those with fewer rows than ``below``.

    ``counts`` are the rows of each group, and ``columns`` the code of each group's level in every
    attribute, all of shape (n_groups,). Returns the rule and B, float64, shape (n_groups,), which
    is 0 for groups that are fitted by themselves. One sort, and one for each attribute.
    """
    problem, single = rows.problem(), np.zeros(len(counts), dtype=np.int64)
    own = solve_exact(problem, width, rate, budget).rule
    if (counts >= below).all():
        return own, np.zeros(len(counts))
    top = solve_exact(rows.problem(single), width, rate, budget).rule
    parent, freedom = _spread(top, single), len(counts) - 1.0
    if len(columns) > 1:
        shift = np.zeros(len(counts))
        for codes in columns:
            part, size = rows.problem(codes), np.bincount(codes, counts)
            alone = solve_exact(part, width, rate, budget).rule
            above = _spread(top, np.zeros(len(size), dtype=np.int64))
            level, pooled = _shrink(part, alone, above, size, len(size) - 1.0, below)
            shift += (level.threshold - above.threshold)[codes]
            # What the levels were fitted to is no chance between the crossed groups.
            freedom -= float((1.0 - pooled).sum()) * (1.0 - 1.0 / len(size))
        # Thresholds that moved are no scores, at which a coin would be drawn.
        coin = np.where(shift == 0.0, parent.coin, 0.0)
        parent = ThresholdRule(width, parent.threshold + shift, coin)
    return _shrink(problem, own, parent, counts, max(freedom, 1.0), below)


def _shrink(
    problem: ThresholdProblem,
    own: ThresholdRule,
    parent: ThresholdRule,
    counts: np.ndarray,
    freedom: float,
    below: int,
) -> tuple[ThresholdRule, np.ndarray]:
    """Return the rule between a group's own and its parent's, and B of every group."""
    total = np.array([segment.total for segment in problem.segments])
    with np.errstate(invalid="ignore"):
        inherited, fitted = (weigh_rule(problem, rule) / total for rule in (parent, own))
    pooled = find_pooling(inherited, inherited - fitted, counts, freedom)
    pooled[counts >= below] = 0.0
    ends = ((parent.threshold, own.threshold), (parent.coin, own.coin))
    threshold, coin = (np.where(pooled == 1.0, *each) for each in ends)
    for group in np.flatnonzero((pooled > 0.0) & (pooled < 1.0)):
        target = (1.0 - pooled[group]) * fitted[group] + pooled[group] * inherited[group]
        segment = ThresholdProblem((problem.segments[group],))
        between = solve_exact(segment, own.width, float(np.clip(target, 0.0, 1.0))).rule
        threshold[group], coin[group] = between.threshold[0], between.coin[0]
    return ThresholdRule(own.width, threshold, coin), pooled


def _spread(rule: ThresholdRule, codes: np.ndarray) -> ThresholdRule:
    return ThresholdRule(rule.width, rule.threshold[codes], rule.coin[codes])
