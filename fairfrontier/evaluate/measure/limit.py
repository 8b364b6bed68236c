"""What debiasing by post-processing cannot do, and what theory promises of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.evaluate.measure.registry import Audit, Row, measure
from fairfrontier.evaluate.statistic.cell import read_codes
from fairfrontier.evaluate.statistic.interval import normal
from fairfrontier.runtime.seeds import uniforms

# Cross-fitting of a function of the score: bins of equal mass, and folds of rows.
BINS = 20
FOLDS = 10
FOLD_SEED = 0

PAPER = (
    "Alabdulmohsin and Lucic, A near-optimal algorithm for debiasing trained machine learning "
    "models, 2021"
)


@dataclass(frozen=True)
class ExcessRisk:
    """The terms of theorem 2, all in units of the error rate.

    Attributes
    ----------
    calibration : float
        E|2η − 1 − f|, as far as the scores themselves tell: from below.
    width : float
        2γ: what the ramp costs.
    lipschitz : float
        8 (2 + 1/γ)/N^⅓: error of the thresholds, through the slope of the ramp.
    groups : float
        4 √((2K + 2 log(2/δ))/N): the same, through the number of groups.
    """

    calibration: float
    width: float
    lipschitz: float
    groups: float

    @property
    def total(self) -> float:
        """Bound on the error rate in excess of the best rule under the same constraint."""
        return self.calibration + self.width + self.lipschitz + self.groups

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing, since no error rate is beyond 1."""
        return self.total >= 1.0


def excess_risk_terms(
    score: np.ndarray,
    y: np.ndarray,
    width: float,
    n_samples: int,
    n_groups: int,
    delta: float = 0.05,
    *,
    weight: np.ndarray | None = None,
    ids: np.ndarray | None = None,
) -> ExcessRisk:
    """Return the terms of theorem 2's bound on the excess risk of parity by a ramp of width γ.

        P(ŷ ≠ y) − P(h* ≠ y) ≤ E|2η(x) − 1 − f(x)| + 2γ + 8(2 + 1/γ)/N^⅓ + 4√((2K + 2 log(2/δ))/N)

    with probability 1 − δ and for some ρ, when the thresholds are fitted on N fresh rows.

    Parameters
    ----------
    score, y : ndarray, shape (n,)
        P(Y=1|x) as the model says, and labels 0 and 1, on rows that neither the model nor the
        thresholds were fitted on.
    width : float
        γ ≥ 0; at 0 the bound is infinite.
    n_samples, n_groups : int
        N and K of the fit.
    delta : float
        δ in (0, 1).
    weight, ids : ndarray, shape (n,), optional
        Case weights, and row ids that fix the folds.

    Notes
    -----
    The first term cannot be known, for η is not. By Jensen's inequality
    E|2η − 1 − f| ≥ E|E[2y − 1 | f] − f|, the scores' own calibration error: a calibrated score
    that is blind to x has 0 there, and any distance from 2η − 1. Of that, ``calibration`` is an
    estimate from below: the mean of s(f) (2y − 1 − f) with signs s by bins of the score, each
    learned on the other folds of the rows. Its expectation is at most the true value, where the
    mean of |bin averages| would be above it, by noise. The total is therefore no bound where the
    scores know less than x does; without its first term it is what theorem 2 adds to the score's
    own error.

    The rest is worst-case: whatever γ, it is above 1 below 8 · 10⁵ rows, so vacuous for the sizes
    at which debiasing is common. For logistic regression on Adult, with N = 9,768 rows, K = 2 and
    γ = 0.1, the total is 4.84, of which the calibration is 0.012.

    References
    ----------
    I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning
    models. NeurIPS 2021, theorem 2.
    """
    score = np.asarray(score, dtype=np.float64)
    weight = np.ones(score.size) if weight is None else np.asarray(weight, dtype=np.float64)
    cell = cross_bins(score, weight, np.arange(score.size) if ids is None else ids)
    residual = np.bincount(cell, weight * 2.0 * (y - score), BINS * FOLDS).reshape(BINS, FOLDS)
    return ExcessRisk(
        calibration=max(0.0, float(np.sum(cross_signs(residual) * residual) / weight.sum())),
        width=2.0 * width,
        lipschitz=8.0 * (2.0 + 1.0 / width) / n_samples ** (1 / 3) if width > 0 else math.inf,
        groups=4.0 * math.sqrt((2.0 * n_groups + 2.0 * math.log(2.0 / delta)) / n_samples),
    )


def cross_bins(score: np.ndarray, weight: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return bin · FOLDS + fold of each row, int64.

    Bins have about equal weight and equal scores share one; folds are drawn by row id. Neither
    depends on the order of rows or on whether a row stands there twice or has weight 2.
    """
    distinct, place = np.unique(score, return_inverse=True)
    mass = np.bincount(place, weight, distinct.size)
    middle = (np.cumsum(mass) - mass / 2) / max(mass.sum(), 1e-300)
    bins = np.minimum((BINS * middle).astype(np.int64), BINS - 1)
    folds = (FOLDS * uniforms(FOLD_SEED, ids)).astype(np.int64)
    return np.asarray(bins[place] * FOLDS + folds)


def cross_signs(sums: np.ndarray) -> np.ndarray:
    """Return for each bin and fold, arrays (BINS, FOLDS), the sign of the other folds' sum."""
    return np.asarray(np.sign(sums.sum(axis=1, keepdims=True) - sums))


def bound_bias(chance: np.ndarray, decision: np.ndarray, weight: np.ndarray) -> float:
    """Return proposition 2's ½ E|γ(x) − γ̄| · min(E ŷ, 1 − E ŷ) for known γ(x) = P(S | x).

    Some division of the rows into two subgroups has at least this mean |Cov(ŷ, γ | subgroup)|,
    for every rule ŷ with decisions 0 and 1.

    Parameters
    ----------
    chance, decision, weight : ndarray of float64, shape (n,)
        γ(x) ∈ [0, 1], ŷ and case weights.
    """
    mean = np.average(chance, weights=weight)
    rate = np.average(decision, weights=weight)
    spread = np.average(np.abs(chance - mean), weights=weight)
    return float(0.5 * spread * min(rate, 1.0 - rate))


@measure(
    "subgroup_bias_floor",
    what="covariance of decision and level that some split of the rows into two must show",
    needs=("score", "decision", "group"),
    reference=f"{PAPER}, proposition 2",
)
def measure_subgroup_bias_floor(audit: Audit) -> Iterator[Row]:
    """Yield ½ E|γ(s) − γ̄| · min(E ŷ, 1 − E ŷ) for every level of every attribute.

    γ(s) = P(level | score s): how well the score, which is all that a post-processor sees, tells
    the level from the rest. As long as it does, some subgroup treats the level unequally, however
    well parity holds overall; 0 says that no such thing is shown.

    Notes
    -----
    E|γ(s) − γ̄| is the largest mean of σ(s) (1_level − γ̄) over all σ with values ±1. Here σ is
    constant on 20 bins of the score and learned on the other of 10 folds of the rows, which are
    drawn by row id. For that reason the value is in expectation *below* the bound of the score,
    and that one below the bound of x: what is shown is there, what is not shown may be. (The
    plug-in mean of |bin shares − γ̄| is above it by noise, even where the score tells nothing.) A
    value below 0, by noise, is given as 0.

    The interval is normal, for σ as learned. Random decisions count by their expectation: the
    proposition then holds with the draw as a part of x. A level with fewer rows than the audit's
    minimum is not estimable. O(n log n), and O(n) for each attribute.
    """
    part, h = audit.part, audit.prediction.decision
    weight = np.asarray(part.weight, dtype=np.float64)
    cell = cross_bins(audit.prediction.score, weight, part.ids)
    total = float(weight.sum())
    rate = float(weight @ h) / total if total > 0 else math.nan
    scale, lean = (rate, 1.0) if rate <= 0.5 else (1.0 - rate, -1.0)
    for attribute, levels in part.attributes.items():
        codes = read_codes(part, attribute, len(levels))
        index = cell * len(levels) + codes
        shape = (BINS, FOLDS, len(levels))

        def table(values: np.ndarray, index: np.ndarray = index, shape: Any = shape) -> np.ndarray:
            return np.asarray(np.bincount(index, values, math.prod(shape)).reshape(shape))

        mass = table(weight)
        squares = [table(weight**2 * h**power) for power in range(3)]
        count = np.bincount(codes, minlength=len(levels))
        for code, level in enumerate(levels):
            group, n = f"{attribute}={level}", part.n_samples
            if count[code] < audit.minimum or not total > 0:
                yield Row(group, math.nan, n, math.nan, math.nan)
                continue
            share = float(mass[..., code].sum()) / total
            excess = mass[..., code] - share * mass.sum(axis=-1)
            sigma = cross_signs(excess)
            spread = max(0.0, float(np.sum(sigma * excess)) / total)
            # A row adds ½ [scale (σ (1_level − γ̄) − spread) + spread · lean (h − rate)].
            inside = np.arange(len(levels)) == code
            fixed = scale * (sigma[..., None] * (inside - share) - spread) - spread * lean * rate
            slope = spread * lean
            variance = np.sum(
                fixed**2 * squares[0] + 2 * fixed * slope * squares[1] + slope**2 * squares[2]
            )
            value = 0.5 * spread * scale
            low, high = normal(value, 0.5 * math.sqrt(max(float(variance), 0.0)) / total)
            yield Row(group, value, n, max(low, 0.0), high)
