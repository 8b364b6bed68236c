"""Places go to the rows that brute force finds, whatever their order."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.runtime.errors import ConfigError, InputError


def draw_batch(rng, n: int, attributes: int, levels: int = 3) -> tuple[np.ndarray, pd.DataFrame]:
    """Return scores with many ties and groups, some of them missing."""
    score = rng.integers(0, 5, n) / 4.0
    groups = pd.DataFrame(rng.choice([*"abc"[:levels], None], (n, attributes)), dtype="str")
    return score, groups.set_axis([*"xyz"[:attributes]], axis=1)


def draw_bounds(rng, groups: pd.DataFrame, places: int) -> tuple[dict, dict]:
    keys = [f"{name}={level}" for name in groups for level in groups[name].dropna().unique()]
    floors = {key: int(rng.integers(0, places // 2 + 1)) for key in keys if rng.random() < 0.5}
    ceilings = {
        key: int(floors.get(key, 0) + rng.integers(1, places)) for key in keys if rng.random() < 0.5
    }
    return floors, ceilings


def excess(groups, rows, floors, ceilings) -> int:
    """Return by how many places a choice of rows breaks the bounds."""
    counts = {
        f"{name}={level}": int((groups[name].iloc[rows] == level).sum())
        for name in groups
        for level in groups[name].dropna().unique()
    }
    short = sum(max(0, least - counts[key]) for key, least in floors.items())
    return short + sum(max(0, counts[key] - most) for key, most in ceilings.items())


@pytest.mark.parametrize("attributes", [1, 2, 3])
def test_the_best_choice_within_bounds_is_found_and_else_the_smallest_relaxation(attributes):
    rng = np.random.default_rng(attributes)
    impossible = 0
    for _ in range(60):
        score, groups = draw_batch(rng, 9, attributes)
        places = int(rng.integers(2, 7))
        floors, ceilings = draw_bounds(rng, groups, places)
        every = [list(rows) for rows in itertools.combinations(range(9), places)]
        broken = [excess(groups, rows, floors, ceilings) for rows in every]
        values = [math.fsum(score[rows]) for rows, by in zip(every, broken, strict=True) if not by]
        ask = {"sensitive_features": groups, "floor": floors, "ceiling": ceilings}
        if not values:
            impossible += 1
            with pytest.raises(ConfigError) as error:
                ff.fill_places(score, places=places, **ask)
            # What the mend says is feasible, by as few places as can be.
            kinds = {"least": floors, "most": ceilings}
            eased = {"least": dict(floors), "most": dict(ceilings)}
            for part in error.value.mend.removesuffix(".").split(" is ", 1)[1].split(" and "):
                key, kind, number = part.replace(" at ", " ").rsplit(" ", 2)
                assert key in kinds[kind]
                eased[kind][key] = int(number)
            steps = sum(
                abs(eased[k][key] - v) for k, own in kinds.items() for key, v in own.items()
            )
            assert steps == min(broken) > 0
            ask |= {"floor": eased["least"], "ceiling": eased["most"]}
            ff.fill_places(score, places=places, **ask)
            continue
        found = ff.fill_places(score, places=places, **ask)
        rows = np.flatnonzero(found.decision)
        assert len(rows) == places
        assert excess(groups, rows, floors, ceilings) == 0
        assert found.total == pytest.approx(max(values), abs=1e-9)
        assert found.bound == pytest.approx(max(values), abs=1e-5)
        assert sorted(found.waiting[found.decision == 0]) == [*range(1, 10 - places)]
        assert not found.waiting[rows].any()
    assert 3 < impossible < 57


@pytest.mark.parametrize("attributes", [1, 2])
def test_rows_are_chosen_and_wait_alike_in_any_order(attributes):
    rng = np.random.default_rng(7)
    score, groups = draw_batch(rng, 400, attributes)
    ids = rng.permutation(10_000)[:400]
    ask = {"places": 90, "floor": {"x=a": 0.4}, "ceiling": {"x=b": 0.2}}
    if attributes == 2:
        ask["floor"]["y=c"] = 40
    first = ff.fill_places(score, sensitive_features=groups, ids=ids, **ask)
    order = rng.permutation(400)
    turned = ff.fill_places(
        score[order], sensitive_features=groups.iloc[order], ids=ids[order], **ask
    )
    assert (turned.decision == first.decision[order]).all()
    assert (turned.waiting == first.waiting[order]).all()
    other = ff.fill_places(score, sensitive_features=groups, ids=ids, random_state=1, **ask)
    assert other.total == pytest.approx(first.total)
    assert (other.decision != first.decision).any()


@pytest.mark.parametrize("crossed", [False, True])
def test_ties_are_drawn_whatever_the_group(crossed):
    groups = pd.DataFrame({"x": ["a"] * 50 + ["b"] * 50, "y": ["c", "d"] * 50})
    floors = {"x=b": 0.1} | ({"y=c": 0.1} if crossed else {})
    places = np.mean(
        [
            ff.fill_places(
                np.ones(100), places=30, sensitive_features=groups, floor=floors, random_state=seed
            ).decision
            for seed in range(200)
        ],
        axis=0,
    )
    # Of 6,000 places with chance 1/2 to be of b: four standard errors.
    assert abs(places[50:].sum() / 30 - 0.5) < 4 * 0.5 / math.sqrt(6_000)
    assert abs(places[::2].sum() / 30 - 0.5) < 4 * 0.5 / math.sqrt(6_000)


def test_the_waiting_list_is_who_follows_and_nobody_loses_a_place_that_is_given_back():
    rng = np.random.default_rng(3)
    score, groups = draw_batch(rng, 60, 1)
    ids = np.arange(60)
    ask = {"floor": {"x=a": 8}, "ceiling": {"x=b": 7}}
    first = ff.fill_places(score, places=20, sensitive_features=groups, ids=ids, **ask)
    for more in range(1, 10):
        later = ff.fill_places(score, places=20 + more, sensitive_features=groups, ids=ids, **ask)
        assert set(np.flatnonzero(later.decision)) == set(
            np.flatnonzero((first.decision == 1) | (first.waiting <= more))
        )
    for row in np.flatnonzero(first.decision):
        left = ids != row
        again = ff.fill_places(
            score[left], places=20, sensitive_features=groups[left], ids=ids[left], **ask
        )
        assert (again.decision >= first.decision[left]).all()


def test_shares_are_those_that_are_written_and_groups_of_any_kind_are_named():
    score = np.linspace(0.0, 1.0, 300)
    codes = np.repeat([0, 1, 2], 100)
    found = ff.fill_places(
        score,
        places=100,
        sensitive_features=codes,
        floor={"sensitive_feature_0=0": 0.07},
        ceiling={"sensitive_feature_0=2": 0.29},
    )
    # .07 of 100 is 7.000000000000001 in floats, and .29 of 100 is 28.999999999999996.
    assert found.groups["places"].tolist() == [7, 29]
    assert found.groups["rows"].tolist() == [100, 100]
    plain = ff.fill_places(score, places=100)
    assert plain.decision.sum() == plain.decision[200:].sum() == 100
    assert plain.waiting[199] == 1
    # No row is of a category that is known all the same.
    bands = pd.Series(pd.Categorical(["a"] * 300, ["a", "b"]), name="band")
    ff.fill_places(score, places=9, sensitive_features=bands, ceiling={"band=b": 0.5})


def test_a_large_batch_of_crossed_groups_is_within_the_bound():
    rng = np.random.default_rng(0)
    score, groups = rng.random(30_000), pd.DataFrame({"x": rng.choice([*"ab"], 30_000)})
    groups["y"] = rng.choice([*"cdefg"], 30_000)
    score += 0.2 * (groups["x"] == "a") + 0.1 * (groups["y"] == "c")
    floors = {"x=b": 0.45, "y=d": 0.18, "y=e": 0.19}
    found = ff.fill_places(score, places=3_000, sensitive_features=groups, floor=floors)
    assert (found.groups["places"] >= found.groups["floor"]).all()
    assert 0.0 <= found.bound - found.total < 1e-5


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"places": 7}, ConfigError),
        ({"places": 0}, ConfigError),
        ({"places": 2.0}, ConfigError),
        ({"floor": {"x=q": 1}}, ConfigError),
        ({"floor": {"q=a": 1}}, ConfigError),
        ({"floor": {"x=a": 1.5}}, ConfigError),
        ({"ceiling": {"x=a": -1}}, ConfigError),
        ({"ceiling": {"x=a": math.nan}}, ConfigError),
        ({"scores": [math.nan] * 6}, InputError),
        ({"ids": [1, 1, 2, 3, 4, 5]}, InputError),
        ({"sensitive_features": {"x": ["a"]}}, InputError),
    ],
)
def test_what_is_wrong_is_refused(wrong, error):
    given = {"scores": np.arange(6.0), "places": 2, "sensitive_features": {"x": [*"aaabbb"]}}
    given |= {"floor": {"x=a": 1}, **wrong}
    with pytest.raises(error):
        ff.fill_places(given.pop("scores"), **given)


def test_bounds_that_contradict_each_other_are_named_and_no_others():
    groups = {"x": [*"aaabbb"], "y": [*"cdcdcd"]}
    with pytest.raises(ConfigError) as error:
        ff.fill_places(
            np.arange(6.0),
            places=3,
            sensitive_features=groups,
            floor={"x=a": 2, "x=b": 2, "y=c": 1},
        )
    assert "x=a at least 2 and x=b at least 2" in error.value.fault
    assert "y=c" not in str(error.value)
