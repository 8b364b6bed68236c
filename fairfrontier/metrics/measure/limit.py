"""What debiasing by post-processing cannot do."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import normal
from fairfrontier.metrics.statistic.rate import read_codes
from fairfrontier.runtime.seeds import uniforms

# Cross-fitting of a function of the score: bins of equal mass, and folds of rows.
BINS = 20
FOLDS = 10
FOLD_SEED = 0

PAPER = (
    "Alabdulmohsin and Lucic, A near-optimal algorithm for debiasing trained machine learning "
    "models, 2021"
)


def cross_bins(score: np.ndarray, weight: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return bin · FOLDS + fold of each row, int64.

    Bins have about equal weight and equal scores share one; folds are drawn by row id. Neither
    depends on the order of rows, or on whether a row occurs twice or has weight 2.
    """
    distinct, rank = np.unique(score, return_inverse=True)
    mass = np.bincount(rank, weight, distinct.size)
    middle = (np.cumsum(mass) - mass / 2) / max(mass.sum(), 1e-300)
    bins = np.minimum((BINS * middle).astype(np.int64), BINS - 1)
    folds = (FOLDS * uniforms(FOLD_SEED, ids)).astype(np.int64)
    return np.asarray(bins[rank] * FOLDS + folds)


def cross_signs(sums: np.ndarray) -> np.ndarray:
    """Return for each bin and fold, arrays (BINS, FOLDS), the sign of the other folds' sum."""
    return np.asarray(np.sign(sums.sum(axis=1, keepdims=True) - sums))


@measure(
    "subgroup_bias_floor",
    what="covariance of decision and level that some split of the rows into two must show",
    needs=("score", "decision", "group"),
    reference=f"{PAPER}, proposition 2",
)
def measure_subgroup_bias_floor(audit: Audit) -> Iterator[MeasureRow]:
    """Yield ½ E|γ(s) − γ̄| · min(E ŷ, 1 − E ŷ) for every level of every attribute.

    γ(s) = P(level | score s): how well the score, which is all that a post-processor sees,
    separates the level from the other rows. As long as it does, some subgroup treats the level
    unequally, however well parity holds overall; 0 means that no such bound is shown.

    Notes
    -----
    E|γ(s) − γ̄| is the largest mean of σ(s) (1_level − γ̄) over all σ with values ±1. Here σ is
    constant on 20 bins of the score and learned on the other of 10 folds of the rows, which are
    drawn by row id. The value is therefore in expectation *below* the bound of the score, and that
    one below the bound of x. (The plug-in mean of |bin shares − γ̄| is above it by noise, even
    where the score is independent of the level.) A value below 0, by noise, is given as 0.

    The interval is normal, for σ as learned. Random decisions count by their expectation: the
    proposition then holds with the draw as a part of x. A level with fewer rows than the audit's
    minimum is not estimable. O(n log n), and O(n) for each attribute.
    """
    part, h, weight = audit.part, audit.prediction.decision, audit.weight
    cell = cross_bins(audit.prediction.score, weight, part.ids)
    total = float(weight.sum())
    rate = float(weight @ h) / total if total > 0 else math.nan
    scale, lean = (rate, 1.0) if rate <= 0.5 else (1.0 - rate, -1.0)
    for attribute, levels in part.attributes.items():
        codes = read_codes(part, attribute, len(levels))
        index = cell * len(levels) + codes
        shape = (BINS, FOLDS, len(levels))
        values = (weight, *(weight**2 * h**power for power in range(3)))
        mass, *squares = (np.bincount(index, v, math.prod(shape)).reshape(shape) for v in values)
        count = np.bincount(codes, minlength=len(levels))
        for code, level in enumerate(levels):
            group, n = f"{attribute}={level}", part.n_samples
            if count[code] < audit.minimum or not total > 0:
                yield MeasureRow(group, math.nan, n)
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
            yield MeasureRow(group, value, n, max(low, 0.0), high)
