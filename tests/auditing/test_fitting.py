"""Pooled thresholds: what chance makes of few rows is not fitted, and real differences are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from fairfrontier.auditing.debias import fit_pooled
from fairfrontier.models.thresholds.ramp import solve_exact
from fairfrontier.models.thresholds.sample import ScoredRows

COLOURS, SEXES = 4, 2
COLUMNS = [np.repeat(np.arange(COLOURS), SEXES), np.tile(np.arange(SEXES), COLOURS)]
FRESH = 40_000


def draw(rows: int, rng: np.random.Generator, effect: float) -> ScoredRows:
    """Return scores of colours that differ by so much, and of sexes that hardly do."""
    sex = rng.choice(SEXES, rows, p=[0.4, 0.6])
    colour = rng.choice(COLOURS, rows, p=[0.55, 0.25, 0.12, 0.08])
    margin = rng.normal(-0.8, 1.2, rows) + effect * np.array([0, 0.5, -0.5, 0.3])[colour]
    signed = 2.0 * expit(margin + 0.05 * sex) - 1.0
    return ScoredRows(signed, colour * SEXES + sex, np.ones(rows), None, COLOURS * SEXES)


def fit(rows: ScoredRows, below: int, width: float = 0.1, budget: float = 0.0):
    counts = np.bincount(rows.code, minlength=rows.n_groups)
    return fit_pooled(rows, counts, COLUMNS, width=width, rate=0.3, budget=budget, below=below)


def measure_gaps(h: np.ndarray, code: np.ndarray) -> list[float]:
    """Return the gaps between sexes, colours and crossed groups."""
    levels = (COLUMNS[1][code], COLUMNS[0][code], code)
    return [float(np.ptp(np.bincount(each, h) / np.bincount(each))) for each in levels]


@pytest.mark.parametrize("effect", [0.0, 0.6])
def test_gaps_grow_less_on_fresh_rows_when_groups_are_pooled(effect):
    found = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        rows, fresh = draw(1300, rng, effect), draw(FRESH, rng, effect)
        rules = [fit(rows, below)[0] for below in (0, 1000)]
        decided = [(fresh.signed >= 0).astype(float)]
        decided += [rule.probability(fresh.signed, fresh.code) for rule in rules]
        found.append([measure_gaps(h, fresh.code) for h in decided])
    before, alone, pooled = np.mean(found, axis=0)
    # Each for itself: sexes that hardly differed are further apart than they were.
    assert alone[0] > before[0] + 0.005
    assert pooled[0] - before[0] < 0.7 * (alone[0] - before[0])
    assert (pooled < alone).all()
    assert pooled[2] < 0.7 * alone[2]
    if effect:
        # Colours that do differ are still brought together.
        assert pooled[1] < before[1] / 2
    else:
        assert alone[2] > 3 * before[2]


@pytest.mark.parametrize("width", [0.0, 0.1])
def test_groups_with_enough_rows_are_fitted_by_themselves(width):
    rows = draw(3000, np.random.default_rng(0), 0.6)
    counts = np.bincount(rows.code)
    own = solve_exact(rows.problem(), width, 0.3, 0.02).rule
    rule, pooled = fit(rows, 400, width, 0.02)
    large = counts >= 400
    assert large.any()
    assert not large.all()
    assert (pooled[large] == 0).all()
    assert (pooled[~large] > 0).all()
    np.testing.assert_array_equal(rule.threshold[large], own.threshold[large])
    np.testing.assert_array_equal(rule.coin[large], own.coin[large])
    np.testing.assert_array_equal(fit(rows, 0, width, 0.02)[0].threshold, own.threshold)
    # A group of a fold may have no row: it has its parent's threshold.
    kept = rows.code != int(counts.argmin())
    some = ScoredRows(rows.signed[kept], rows.code[kept], rows.weight[kept], None, rows.n_groups)
    rule, pooled = fit(some, 400, width, 0.02)
    assert pooled[counts.argmin()] == 1.0
    assert np.isfinite(rule.threshold).all()
