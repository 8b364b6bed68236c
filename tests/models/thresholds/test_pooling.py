"""Pooled ROC curves: what chance makes of few rows is not fitted, and real differences are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from fairfrontier.models.thresholds.curve import build_curves
from fairfrontier.models.thresholds.group_thresholds import (
    GroupThresholds,
    find_pooling,
    pool_curves,
)

COLOURS, SEXES, FRESH = 4, 2, 40_000


def draw(rows: int, rng: np.random.Generator, effect: float):
    """Return scores, labels and groups: colours differ by so much, and sexes hardly do."""
    sex = rng.choice(SEXES, rows, p=[0.4, 0.6])
    colour = rng.choice(COLOURS, rows, p=[0.55, 0.25, 0.12, 0.08])
    margin = rng.normal(-0.8, 1.2, rows) + effect * np.array([0, 0.5, -0.5, 0.3])[colour]
    score = expit(margin + 0.05 * sex)
    return score, (rng.random(rows) < score).astype(np.int64), np.column_stack([colour, sex])


def measure_gaps(h, y, groups, criterion):
    """Return the criterion's gaps between sexes, colours and crossed groups."""
    rows = {"parity": y >= 0, "equal_opportunity": y == 1}.get(criterion)
    parts = [y == 1, y == 0] if rows is None else [rows]
    levels = (groups[:, 1], groups[:, 0], groups @ [SEXES, 1])
    return [
        max(np.ptp(np.bincount(each[part], h[part]) / np.bincount(each[part])) for part in parts)
        for each in levels
    ]


@pytest.mark.parametrize("criterion", ["parity", "equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("effect", [0.0, 0.6])
def test_gaps_grow_less_on_fresh_rows_when_groups_are_pooled(criterion, effect):
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        (score, y, groups), fresh = draw(1300, rng, effect), draw(FRESH, rng, effect)
        decided = [(fresh[0] >= 0.5).astype(float)]
        for below in (0, 1000):
            model = GroupThresholds(criterion=criterion, pool_below=below)
            model.fit(score, y, sensitive_features=groups)
            decided.append(model.predict_proba(fresh[0], sensitive_features=fresh[2])[:, 1])
        found.append([measure_gaps(h, *fresh[1:], criterion) for h in decided])
    before, alone, pooled = np.mean(found, axis=0)
    # Sexes hardly differed: each group for itself, they do.
    assert alone[0] > before[0] + 0.003
    assert pooled[0] < before[0] + 0.009
    assert (pooled < alone).all()
    assert pooled[2] < 0.7 * alone[2]
    if effect:
        # Colours that do differ are still brought together.
        assert pooled[1] < 0.7 * before[1]
    else:
        assert alone[2] > 2 * before[2]


def make_curves(code, score, y, columns):
    """Return the curves of groups, and the function that makes those of new codes."""

    def build(cells):
        return build_curves(score, y, cells[code], int(cells.max()) + 1)

    return build(np.arange(len(columns[0]))), build


@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize("criterion", ["parity", "equal_opportunity"])
def test_rates_are_shrunk_to_those_of_all_rows_or_of_the_levels(criterion, crossed):
    rng = np.random.default_rng(3)
    code = rng.choice(4, 4000, p=[0.33, 0.33, 0.32, 0.02])
    few = code == 3
    score = (rng.random(4000) ** np.array([1.0, 1.3, 0.8, 0.4])[code]).round(2)
    y = (rng.random(4000) < score).astype(np.int64)
    columns = [np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])] if crossed else [np.arange(4)]

    def build(cells):
        return build_curves(score, y, cells[code], int(cells.max()) + 1)

    curves = build(np.arange(4))
    # Levels have rows enough, and are what they are.
    found, pooled = pool_curves(curves, build, columns, np.bincount(code), criterion, 500)
    assert found[:3] == list(curves[:3])
    assert (pooled[:3] == 0).all()
    assert 0 < pooled[3] < 1

    def rate(rows, chosen, label):
        given = rows if criterion == "parity" else rows & (y == label)
        return (chosen & rows & (y == label)).sum() / given.sum()

    curve, every = found[3], np.full(4000, True)
    for t in (0.0, 0.205, 0.5, 0.705, 1.0):
        cut = curve.find_cuts(np.array([t]))[0]
        for label, mass in ((0, curve.negative), (1, curve.positive)):
            own, parent = (rate(rows, score > t, label) for rows in (few, every))
            if crossed:
                levels = (column[code] == column[3] for column in columns)
                parent += sum(rate(rows, score > t, label) - parent for rows in levels)
            size = few.sum() if criterion == "parity" else (few & (y == label)).sum()
            expected = size * (own + pooled[3] * (parent - own))
            assert mass[cut] == pytest.approx(expected, abs=1e-9)
    assert (np.diff(curve.positive + curve.negative) > 0).all()
    assert (np.diff(curve.score) < 0).all()


def test_groups_with_enough_rows_leave_all_as_it_is():
    rng = np.random.default_rng(1)
    score, y, groups = draw(3000, rng, 0.6)
    one, other = (
        GroupThresholds(pool_below=below).fit(score, y, sensitive_features=groups)
        for below in (0, 20)
    )
    assert other.result_ == one.result_
    assert one.result_["pooled"] == [0.0] * 8
    np.testing.assert_array_equal(one.rule_.threshold, other.rule_.threshold)
    some = GroupThresholds(pool_below=600).fit(score, y, sensitive_features=groups)
    small = np.array(some.result_["rows"]) < 600
    assert ((np.array(some.result_["pooled"]) > 0) == small).all()
    # Rates are those of the fitted rows, which pooled groups need not share.
    h = some.predict_proba(score, sensitive_features=groups)[:, 1]
    assert some.result_["gap"] == pytest.approx(measure_gaps(h, y, groups, "parity")[2])
    assert some.result_["gap"] > 0.01


def test_differences_beyond_chance_are_kept_and_chance_is_not():
    counts = np.array([50, 100, 200])
    rate = np.full(3, 0.3)
    none = find_pooling(rate, np.array([0.03, -0.02, 0.01]), counts, 2.0)
    np.testing.assert_array_equal(none, 1.0)
    some = find_pooling(rate, np.array([0.3, -0.3, 0.3]), counts, 2.0)
    assert (np.diff(some) < 0).all()
    assert some.max() < 0.1
    # B = v/(v + τ²), with τ² of DerSimonian and Laird above 2 + sqrt(2 · 2).
    weight = counts / 0.21
    between = (weight @ np.full(3, 0.09) - 4) / (weight.sum() - (weight**2).sum() / weight.sum())
    np.testing.assert_allclose(some, (1 / weight) / (1 / weight + between))
