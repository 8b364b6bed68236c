import numpy as np
import pytest

from fairfrontier.train.postprocess.roc import odds
from fairfrontier.train.postprocess.roc.curve import build_curves, weigh_objective


def make_curves(n=4000):
    generator = np.random.default_rng(2)
    code = generator.integers(3, size=n)
    score = generator.beta(2 + code, 3)
    return build_curves(score, score, code, 3)


def test_columns_are_generated_until_the_bound_is_reached(monkeypatch):
    curves, gain = make_curves(), weigh_objective("accuracy", 1800.0, 2200.0)
    sizes = []
    solve = odds._solve_programme
    monkeypatch.setattr(
        odds,
        "_solve_programme",
        lambda groups, cuts, *rest, **options: (
            sizes.append(sum(map(len, cuts))) or solve(groups, cuts, *rest, **options)
        ),
    )
    found = odds.solve_odds(curves, gain, 0.02)
    assert found.proven
    assert 1 < len(sizes) < 30
    assert sizes[-1] < 300
    # From more columns, in fewer rounds, comes the same.
    monkeypatch.setattr(odds, "COLUMNS", 200)
    assert odds.solve_odds(curves, gain, 0.02).value == pytest.approx(found.value, abs=1e-9)


def test_few_rounds_leave_a_gap_that_is_stated(monkeypatch):
    curves, gain = make_curves(), weigh_objective("accuracy", 1800.0, 2200.0)
    best = odds.solve_odds(curves, gain, 0.02)
    monkeypatch.setattr(odds, "ROUNDS", 1)
    found = odds.solve_odds(curves, gain, 0.02)
    assert not found.proven
    assert found.value < best.value < found.dual_value


def test_one_cut_per_group_is_proven_the_best_of_many_rows():
    curves, gain = make_curves(100_000), weigh_objective("accuracy", 45_000.0, 55_000.0)
    found = odds.solve_odds(curves, gain, 0.05, randomized=False)
    assert found.proven
    assert 0 <= odds.solve_odds(curves, gain, 0.05).value - found.value < 1e-3
