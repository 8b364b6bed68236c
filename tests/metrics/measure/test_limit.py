from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fairfrontier.metrics.measure.group import BINS, FOLDS, cross_bins, cross_signs
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from tests.metrics.made import make_part


def draw(n: int, seed: int, strength: float):
    """Return scores on a grid of ten, decisions, and a level whose chance follows the score."""
    generator = np.random.default_rng(seed)
    score = generator.integers(0, 10, n) / 10 + 0.05
    chance = 0.3 + strength * (score - 0.5)
    group = (generator.random(n) < chance).astype(np.int64)
    return score, (score >= 0.5).astype(float), group, chance


def bound_bias(chance, decision, weight) -> float:
    """Return proposition 2's ½ E|γ(x) − γ̄| · min(E ŷ, 1 − E ŷ) for known γ(x) = P(S | x)."""
    mean, rate = (np.average(each, weights=weight) for each in (chance, decision))
    spread = np.average(np.abs(chance - mean), weights=weight)
    return 0.5 * spread * min(rate, 1.0 - rate)


def floors(score, h, group, **changed):
    part = make_part(np.zeros(score.size, dtype=int), group[:, None], {"sex": "FM"}, **changed)
    table = tabulate(Prediction(score, h), part, ["subgroup_bias_floor"])
    return table.set_index("group")


@pytest.mark.parametrize("seed", range(6))
def test_some_split_is_as_biased_as_the_proposition_says(seed):
    generator = np.random.default_rng(seed)
    n = 8
    chance, weight = generator.random(n), generator.exponential(size=n)
    h = generator.integers(0, 2, n).astype(float)
    if seed == 0:
        chance[:] = 0.4
    largest = 0.0
    for split in product([False, True], repeat=n):
        total = 0.0
        for side in (np.array(split), ~np.array(split)):
            if side.any():
                w = weight[side] / weight.sum()
                mean = np.average(h[side], weights=w), np.average(chance[side], weights=w)
                total += abs(np.sum(w * (h[side] - mean[0]) * (chance[side] - mean[1])))
        largest = max(largest, total)
    bound = bound_bias(chance, h, weight)
    assert bound <= largest + 1e-15
    assert (bound == pytest.approx(0, abs=1e-15)) == (seed == 0 or h.mean() in (0, 1))


def test_bound_by_hand():
    chance, h = np.array([0.0, 0.5, 1.0, 0.5]), np.array([1.0, 0.0, 0.0, 0.0])
    assert bound_bias(chance, h, np.ones(4)) == pytest.approx(0.5 * 0.25 * 0.25)


def test_the_floor_is_near_the_bound_and_below_it_on_average():
    value, truth, inside = [], [], 0
    for seed in range(40):
        score, h, group, chance = draw(2000, seed, 0.5)
        found = floors(score, h, group)
        assert found.loc["sex=F", "value"] == pytest.approx(found.loc["sex=M", "value"])
        row = found.loc["sex=M"]
        value.append(row["value"])
        truth.append(bound_bias(chance, h, np.ones(2000)))
        inside += row["low"] <= truth[-1] <= row["high"]
        assert row["n"] == 2000
    assert 0.9 * np.mean(truth) < np.mean(value) < np.mean(truth) + 0.05 * np.std(value)
    assert inside >= 34


def test_the_floor_of_a_score_that_tells_nothing_is_below_its_plug_in():
    value, plug_in = [], []
    for seed in range(40):
        score, h, group, _ = draw(500, seed, 0.0)
        value.append(floors(score, h, group).loc["sex=M", "value"])
        share = np.bincount((10 * score).astype(int), group) / np.bincount((10 * score).astype(int))
        plug_in.append(bound_bias(share[(10 * score).astype(int)], h, np.ones(500)))
    # About half are below 0, and given as 0.
    assert 10 <= np.sum(np.array(value) == 0) <= 30
    assert np.mean(value) < np.mean(plug_in) / 3


def test_row_by_row():
    score, h, group, _ = draw(300, 3, 0.6)
    h = np.where(score == 0.45, 0.3, h)
    weight = np.random.default_rng(1).integers(1, 4, 300).astype(float)
    row = floors(score, h, group, weight=weight).loc["sex=M"]
    cell = cross_bins(score, weight, np.arange(300))
    bins, folds = cell // FOLDS, cell % FOLDS
    member = group.astype(float)
    excess = weight * (member - np.average(member, weights=weight))
    sigma = np.array(
        [np.sign(excess[(bins == bins[i]) & (folds != folds[i])].sum()) for i in range(300)]
    )
    mean, rate = np.sum(sigma * excess) / weight.sum(), np.average(h, weights=weight)
    assert rate > 0.5
    assert row["value"] == pytest.approx(0.5 * mean * (1 - rate))
    # Delta method, row by row.
    part = (1 - rate) * (sigma * excess / weight - mean) - mean * (h - rate)
    error = 0.5 * np.sqrt(np.sum((weight * part) ** 2)) / weight.sum()
    assert row["high"] - row["value"] == pytest.approx(1.959964 * error)


def test_every_level_against_the_rest_and_small_ones_not_at_all():
    score, h, _, _ = draw(400, 0, 0.0)
    group = np.digitize(score, [0.3, 0.7])
    group[:5] = 3
    part = make_part(np.zeros(400, dtype=int), group[:, None], {"race": "abcd"})
    found = tabulate(Prediction(score, h), part, ["subgroup_bias_floor"]).set_index("group")
    assert list(found.index) == [f"race={level}" for level in "abcd"]
    assert (found["value"].iloc[:3] > 0.02).all()
    assert found.loc["race=d", ["value", "low", "high"]].isna().all()


def test_constant_decisions_have_no_floor():
    score, _, group, _ = draw(300, 0, 0.6)
    assert floors(score, np.ones(300), group).loc["sex=M", "value"] == 0


def test_bins_hold_ties_together_and_count_by_weight():
    score = np.array([0.1, 0.1, 0.1, 0.5, 0.9, 0.9])
    ids = np.arange(6)
    bins = cross_bins(score, np.ones(6), ids) // FOLDS
    assert len(set(bins[:3])) == len(set(bins[4:])) == 1
    assert bins[0] < bins[3] < bins[4]
    many = np.random.default_rng(0).random(10_000)
    bins = cross_bins(many, np.ones(10_000), np.arange(10_000)) // FOLDS
    counts = np.bincount(bins, minlength=BINS)
    assert np.abs(counts - 500).max() <= 1
    folds = cross_bins(many, np.ones(10_000), np.arange(10_000)) % FOLDS
    assert np.abs(np.bincount(folds, minlength=FOLDS) - 1000).max() < 150


def test_signs_are_of_the_other_folds():
    sums = np.array([[3.0, -1.0, -1.0], [0.0, 0.0, 2.0]])
    assert cross_signs(sums).tolist() == [[-1, 1, 1], [1, 1, 0]]
