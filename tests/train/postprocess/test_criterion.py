from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.train.postprocess import criterion
from fairfrontier.train.postprocess.conditional import solve_covariance, solve_opportunity
from fairfrontier.train.postprocess.criterion import cross, read_rows
from fairfrontier.train.postprocess.odds import solve_odds
from fairfrontier.train.postprocess.rule import conjugate

SCORE = np.array([-0.5, 0.2, 0.6, 0.9])
CODE = np.array([0, 0, 1, 1])


def test_rows_of_weight_zero_are_left_out():
    rows = read_rows(SCORE, CODE, 2, np.array([1.0, 0.0, 2.0, 3.0]))
    assert rows.score.tolist() == [-0.5, 0.6, 0.9]
    assert rows.weight.tolist() == [1, 2, 3]
    places, share = list(rows.groups())[1]
    assert places.tolist() == [1, 2]
    assert share.tolist() == [0.4, 0.6]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"width": -0.1}, "width is -0.1"),
        ({"width": float("nan")}, "width is nan"),
        ({"rate": 1.2}, "rate is 1.2"),
        ({"budget": -1.0}, "budget is -1.0"),
        ({"n_groups": 3}, r"groups \[2\]"),
        ({"n_groups": 1}, "codes lie outside"),
        ({"weight": np.array([1.0, 1.0, 0.0, 0.0])}, r"groups \[1\]"),
    ],
)
def test_what_cannot_be_solved_is_refused(change, words):
    options = {"n_groups": 2, "width": 0.1, "rate": 0.5, "budget": 0.0, "weight": None} | change
    with pytest.raises(ValueError, match=words):
        solve_opportunity(SCORE, CODE, **options)


def test_cross_numbers_subgroup_and_membership():
    member = np.array([False, True, False, True])
    assert cross(member, CODE).tolist() == [0, 1, 2, 3]


def test_the_gap_tells_a_wrong_multiplier():
    # Of the right solution the gap is 0; the dual at any other multiplier is lower.
    score = np.linspace(-0.9, 0.9, 40)
    member = score > 0.1
    code = np.zeros(40, dtype=np.int64)
    found = solve_covariance(score, member, code, 1, width=0.3, budget=0.01)
    assert abs(found.gap) < 1e-14
    z = member - member.mean()

    def dual(w):
        excess = score - w * z
        ramp = np.clip(excess, 0, 0.3)
        return -np.mean(ramp**2 / 0.6 + np.maximum(excess - 0.3, 0)) - 0.01 * abs(w)

    w = found.multiplier[0]
    assert dual(w) == pytest.approx(found.objective, abs=1e-14)
    assert all(dual(w + step) < dual(w) for step in (-0.1, -0.01, 0.01, 0.1))


def test_rows_are_measured_alike_in_blocks_and_at_once(monkeypatch):
    generator = np.random.default_rng(4)
    score, weight = generator.uniform(-1, 1, (2, 100))
    code, weight = generator.integers(3, size=100), np.abs(weight) + 0.1
    blocks = []
    monkeypatch.setattr(
        criterion, "conjugate", lambda *given: blocks.append(given) or conjugate(*given)
    )
    options = {"width": 0.2, "rates": (0.6, 0.4), "budget": 0.02, "weight": weight}
    whole = solve_odds(score, code, 3, **options)
    assert len(blocks) == 1
    monkeypatch.setattr(criterion, "BLOCK", 7)
    parts = solve_odds(score, code, 3, **options)
    assert len(blocks) == 1 + 15
    for name in ("rate", "reached", "objective", "gap"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-14)
    h = whole.rule.probability(score, code)
    chosen = np.bincount(code, weight * h) / np.bincount(code, weight)
    np.testing.assert_allclose(whole.rate, chosen, atol=1e-14)


def test_a_cell_without_rows_has_no_rate():
    # Of the second group all are members.
    member = np.array([False, True, True, True])
    found = solve_covariance(SCORE, member, CODE, 2, width=0.5, budget=0.0)
    h = found.rule.probability(SCORE, cross(member, CODE))
    assert np.isnan(found.rate[2])
    np.testing.assert_allclose(found.rate[[0, 1, 3]], [h[0], h[1], h[2:].mean()], atol=1e-14)
    assert found.converged
