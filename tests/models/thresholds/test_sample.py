from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.models.thresholds import sample as module
from fairfrontier.models.thresholds.ramp import solve_exact
from fairfrontier.models.thresholds.sample import Collector, sort_cells
from fairfrontier.runtime.errors import DataError

LEVELS = (("F", "10"), ("M", "9"), ("M", "10"))


def make_rows(n=3000):
    rng = np.random.default_rng(1)
    code = rng.integers(0, 3, n)
    # One group comes late.
    code[: n // 2] %= 2
    signed = np.clip(rng.normal(0.2 * code - 0.3, 0.5), -1, 1)
    return signed, code, (rng.random(n) < 0.5 + signed / 2).astype(float), rng.random(n) < 0.5


def collect(solver, size, weight=None, bins=1 << 10):
    signed, code, y, held_out = make_rows()
    weight = np.ones(len(y)) if weight is None else weight
    collector = Collector(solver, bins)
    for start in range(0, len(signed), size):
        rows = slice(start, start + size)
        present, cell = np.unique(code[rows], return_inverse=True)
        levels = [LEVELS[each] for each in present]
        collector.add(signed[rows], cell, levels, y[rows], weight[rows], held_out[rows])
    return collector.finish()


@pytest.fixture
def small(monkeypatch):
    """Let a histogram take over after 1,000 rows, and be filled by some 300."""
    monkeypatch.setattr(module, "EXACT_ROWS", 1000)
    monkeypatch.setattr(module, "FLUSH_ROWS", 300)


@pytest.mark.parametrize("solver", ["auto", "exact", "histogram"])
def test_batches_change_nothing(small, solver):
    weight = np.arange(3000) % 3 + 1.0
    whole = collect(solver, 3000, weight)
    assert whole.exact == (solver == "exact")
    for size in (1, 97, 1500):
        if size == 1 and solver != "exact":
            continue
        parts = collect(solver, size, weight)
        assert parts.cells == whole.cells
        np.testing.assert_array_equal(parts.counts, whole.counts)
        np.testing.assert_array_equal(parts.weights, whole.weights)
        for name in ("calibration", "validation"):
            first, second = getattr(whole, name), getattr(parts, name)
            for one, two in zip(first.labelled().segments, second.labelled().segments, strict=True):
                np.testing.assert_array_equal(one.score, two.score)
                np.testing.assert_array_equal(one.mass, two.mass)


def test_groups_are_in_order_of_their_levels(small):
    found = collect("histogram", 500)
    assert found.cells == (("F", "10"), ("M", "9"), ("M", "10"))
    _, code, _, held_out = make_rows()
    for part, inside in enumerate((~held_out, held_out)):
        np.testing.assert_array_equal(found.counts[part], np.bincount(code[inside]))
    assert sort_cells([("b",), ("10",), ("9",)]) == (("10",), ("9",), ("b",))


def test_a_histogram_solves_as_the_scores_do(small):
    exact, binned = collect("exact", 500), collect("histogram", 500, bins=1 << 12)
    for merged in (None, np.array([0, 1, 1])):
        one = solve_exact(exact.calibration.problem(merged), 0.1, 0.4)
        two = solve_exact(binned.calibration.problem(merged), 0.1, 0.4)
        assert one.rule.threshold.size == (3 if merged is None else 2)
        np.testing.assert_allclose(one.rule.threshold, two.rule.threshold, atol=1 / (1 << 12))


def test_merged_groups_are_the_groups_of_a_column():
    found = collect("exact", 3000)
    signed, code, _, held_out = make_rows()
    merged = solve_exact(found.calibration.problem(np.array([0, 1, 1])), 0.2, 0.3).rule
    inside = ~held_out & (code > 0)
    h = np.clip((signed[inside] - merged.threshold[1]) / 0.2, 0, 1)
    assert h.mean() == pytest.approx(0.3, abs=1e-9)


def test_no_row_may_be_kept_back():
    signed, code, y, _ = make_rows()
    collector = Collector()
    collector.add(signed, code, LEVELS, y, np.ones(3000), np.zeros(3000, dtype=bool))
    found = collector.finish()
    assert found.validation is None
    assert found.counts[1].sum() == 0


def test_too_many_groups_are_refused():
    n = module.MAX_GROUPS + 1
    levels = [(str(k),) for k in range(n)]
    with pytest.raises(DataError, match="more than 200 groups"):
        Collector().add(
            np.zeros(n), np.arange(n), levels, np.zeros(n), np.ones(n), np.zeros(n, dtype=bool)
        )
