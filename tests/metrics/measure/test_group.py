from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import (
    MetricFrame,
    false_negative_rate,
    false_positive_rate,
    selection_rate,
    true_negative_rate,
    true_positive_rate,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import Part
from tests.metrics.made import make_part, make_rows

RATES = ("accuracy", "selection_rate", "tpr", "tnr", "fpr", "fnr")


def values(table: pd.DataFrame) -> pd.Series:
    return table.set_index(["measure", "group"])["value"]


def loop_rate(rate: str, rows: list[int], y, h, w) -> tuple[float, int]:
    """Rate over some rows, one row at a time."""
    above = below = 0.0
    n = 0
    for i in rows:
        if rate in {0: ("tpr", "fnr"), 1: ("tnr", "fpr")}[y[i]]:
            continue
        right = h[i] if y[i] == 1 else 1 - h[i]
        one = {"accuracy": right, "tnr": 1 - h[i], "fnr": 1 - h[i]}.get(rate, h[i])
        above += w[i] * one
        below += w[i]
        n += 1
    return (above / below if below else math.nan), n


def loop_table(part: Part, h: np.ndarray, minimum: int) -> dict[tuple[str, str], tuple[float, int]]:
    """The whole group table by loops over rows, levels and pairs of levels."""
    y, w = part.y, part.weight
    everyone = list(range(y.size))
    found = {(rate, ""): loop_rate(rate, everyone, y, h, w) for rate in RATES}
    names = list(part.attributes)
    for chosen in [*((name,) for name in names), *combinations(names, 2)]:
        attribute = "×".join(chosen)
        cells: dict[str, list[int]] = {}
        if len(chosen) == 1:
            cells = {level: [] for level in part.attributes[attribute]}
        for i in everyone:
            level = "×".join(part.attributes[name][part.group(name)[i]] for name in chosen)
            cells.setdefault(level, []).append(i)
        estimable = {}
        for rate in RATES:
            good = []
            total = 0
            for level, rows in cells.items():
                value, n = loop_rate(rate, rows, y, h, w)
                total += n
                value = value if n >= minimum else math.nan
                found[rate, f"{attribute}={level}"] = value, n
                if not math.isnan(value):
                    good.append(value)
            estimable[rate] = good
            enough = len(good) > 1
            high, low = (max(good), min(good)) if enough else (math.nan, math.nan)
            found[f"{rate}_difference", attribute] = high - low, total
            found[f"{rate}_max", attribute] = high, total
            found[f"{rate}_min", attribute] = low, total
            found[f"{rate}_ratio", attribute] = (low / high if high > 0 else math.nan), total
            if len(chosen) == 1 and len(cells) == 2:
                values = [found[rate, f"{attribute}={level}"][0] for level in sorted(cells)]
                found[f"{rate}_gap", attribute] = values[0] - values[1], total
        gaps = [
            [a - b for a, b in combinations(estimable[rate], 2)] or [math.nan]
            for rate in ("tnr", "tpr")
        ]
        squares = [np.mean(np.square(each)) for each in gaps]
        largest = np.max([np.max(np.abs(each)) for each in gaps])
        found["gap_max", attribute] = float(largest), y.size
        found["gap_rms", attribute] = float(np.sqrt(np.mean(squares))), y.size
    return found


@st.composite
def drawn_parts(draw) -> tuple[Part, np.ndarray]:
    n = draw(st.integers(0, 60))
    sizes = draw(st.lists(st.integers(1, 4), min_size=0, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    kind = draw(st.sampled_from(["whole", "weighted", "random", "both"]))
    y = rng.integers(0, 2, n) * draw(st.sampled_from([0, 1, 1, 1]))
    groups = np.column_stack([rng.integers(0, s, n) for s in sizes]) if sizes else np.zeros((n, 0))
    h = rng.random(n) if kind in ("random", "both") else rng.integers(0, 2, n).astype(float)
    w = rng.uniform(0.1, 3, n) if kind in ("weighted", "both") else np.ones(n)
    attributes = {f"a{i}": [f"{i}{k}" for k in range(s)] for i, s in enumerate(sizes)}
    return make_part(y, groups, attributes, weight=w), h


@settings(max_examples=60)
@given(drawn_parts(), st.integers(1, 6))
def test_table_equals_loops_over_rows(drawn, minimum):
    part, h = drawn
    table = tabulate(Prediction(h, h), part, minimum=minimum)
    expected = loop_table(part, h, minimum)
    rest = {"auc", "balanced_accuracy", "f1", "log_loss", "consistency", "subgroup_bias_floor"}
    rest |= {"tpr_shortfall", "fpr_excess", "selection_rate_gap_inside", "disparity"}
    rest |= {each for each in table["measure"] if each.startswith("logistic_loss")}
    ours = {
        (row.measure, row.group): (row.value, row.n)
        for row in table.itertuples()
        if row.measure not in rest
    }
    assert set(ours) == set(expected)
    for key, (value, n) in ours.items():
        assert n == expected[key][1], key
        assert value == pytest.approx(expected[key][0], abs=1e-12, nan_ok=True), key


@settings(max_examples=60)
@given(drawn_parts())
def test_intervals_hold_their_values(drawn):
    part, h = drawn
    table = tabulate(Prediction(h, h), part, minimum=1)
    rows = table[~table["value"].isna() & ~table["low"].isna()]
    assert (rows["low"] <= rows["value"]).all()
    assert (rows["value"] <= rows["high"]).all()
    assert table.loc[table["value"].isna(), ["low", "high"]].isna().all(axis=None)


def test_equals_fairlearn():
    y, groups, score, attributes = make_rows(3000, levels=(2, 4))
    h = (score >= 0.5).astype(float)
    part = make_part(y, groups, attributes)
    ours = values(tabulate(Prediction(score, h), part))
    functions = {
        "accuracy": accuracy_score,
        "selection_rate": selection_rate,
        "tpr": true_positive_rate,
        "tnr": true_negative_rate,
        "fpr": false_positive_rate,
        "fnr": false_negative_rate,
    }
    first, second = attributes
    for names in ([first], [second], [first, second]):
        features = {name: part.group(name) for name in names}
        frame = MetricFrame(
            metrics=functions, y_true=y, y_pred=h.astype(int), sensitive_features=features
        )
        attribute = "×".join(names)
        for rate in functions:
            assert ours[rate, ""] == pytest.approx(frame.overall[rate], abs=1e-12)
            for key, value in frame.by_group[rate].items():
                codes = key if isinstance(key, tuple) else (key,)
                level = "×".join(f"level{code}" for code in codes)
                assert ours[rate, f"{attribute}={level}"] == pytest.approx(value, abs=1e-12)
            for each, method in (
                ("difference", "difference"), ("ratio", "ratio"), ("max", "group_max"),
                ("min", "group_min"),
            ):  # fmt: skip
                expected = getattr(frame, method)()[rate]
                assert ours[f"{rate}_{each}", attribute] == pytest.approx(expected, abs=1e-12)


def test_two_levels_give_the_gaps_of_the_paper():
    y = np.repeat([0, 0, 1, 1], 20)
    g = np.tile(np.repeat([0, 1], 20), 2)
    share = {(0, 0): 4, (0, 1): 10, (1, 0): 18, (1, 1): 9}
    h = np.concatenate([np.arange(20) < share[key] for key in ((0, 0), (0, 1), (1, 0), (1, 1))])
    part = make_part(y, g[:, None], {"sex": ("F", "M")})
    ours = values(tabulate(Prediction(h.astype(float), h.astype(float)), part))
    gap_0 = (1 - 4 / 20) - (1 - 10 / 20)
    gap_1 = 18 / 20 - 9 / 20
    assert ours["tnr_gap", "sex"] == pytest.approx(gap_0)
    assert ours["tpr_gap", "sex"] == pytest.approx(gap_1)
    assert ours["gap_max", "sex"] == pytest.approx(max(abs(gap_0), abs(gap_1)))
    assert ours["gap_rms", "sex"] == pytest.approx(math.sqrt((gap_0**2 + gap_1**2) / 2))


def test_order_of_rows_does_not_matter():
    y, groups, score, attributes = make_rows(800)
    h = (score >= 0.5).astype(float)
    part = make_part(y, groups, attributes)
    rows = np.random.default_rng(1).permutation(800)
    there = tabulate(Prediction(score[rows], h[rows]), part.take(rows))
    pd.testing.assert_frame_equal(tabulate(Prediction(score, h), part), there, rtol=1e-12)


def test_names_of_levels_do_not_matter():
    y, groups, score, attributes = make_rows(800)
    h = (score >= 0.5).astype(float)
    renamed = groups.copy()
    renamed[:, 1] = np.array([2, 0, 1])[groups[:, 1]]
    names = dict(attributes)
    second = list(attributes)[1]
    names[second] = tuple(attributes[second][k] for k in (1, 2, 0))
    here = values(tabulate(Prediction(score, h), make_part(y, groups, attributes)))
    there = values(tabulate(Prediction(score, h), make_part(y, renamed, names)))
    pd.testing.assert_series_equal(here.sort_index(), there.sort_index(), rtol=1e-12)


def test_duplicated_rows_equal_weights():
    y, groups, score, attributes = make_rows(400)
    h = (score >= 0.5).astype(float)
    times = np.random.default_rng(2).integers(1, 4, 400)
    weighted = make_part(y, groups, attributes, weight=times)
    rows = np.repeat(np.arange(400), times)
    repeated = make_part(y, groups, attributes).take(rows)
    here = values(tabulate(Prediction(score, h), weighted, minimum=1))
    there = values(tabulate(Prediction(score[rows], h[rows]), repeated, minimum=1))
    pd.testing.assert_series_equal(here, there, rtol=1e-10)


def test_random_decisions_equal_the_mean_over_draws():
    y, groups, score, attributes = make_rows(300)
    part = make_part(y, groups, attributes)
    rng = np.random.default_rng(3)
    expected = values(tabulate(Prediction(score, score), part, RATES))
    draws = [
        values(tabulate(Prediction(score, (rng.random(300) < score).astype(float)), part, RATES))
        for _ in range(300)
    ]
    mean = pd.concat(draws, axis=1).mean(axis=1)
    error = pd.concat(draws, axis=1).std(axis=1) / math.sqrt(300)
    assert (np.abs(mean - expected) < 5 * error + 1e-9).all()


def test_tiny_levels_are_not_estimable_and_keep_their_rows():
    y = np.tile([0, 1], 33)
    g = np.repeat([0, 1, 2], [30, 30, 6])
    h = np.random.default_rng(0).integers(0, 2, 66).astype(float)
    part = make_part(y, g[:, None], {"race": ("a", "b", "c")})
    table = tabulate(Prediction(h, h), part).set_index(["measure", "group"])
    tiny = table.loc[("selection_rate", "race=c")]
    assert tiny["n"] == 6
    assert tiny[["value", "low", "high"]].isna().all()
    two = table.loc["selection_rate"].loc[["race=a", "race=b"], "value"]
    assert table.loc[("selection_rate_difference", "race"), "value"] == np.ptp(two)
    assert table.loc[("selection_rate_difference", "race"), "n"] == 66
    # What leaves the level out says so.
    for name in ("selection_rate_difference", "accuracy_ratio", "gap_max", "disparity"):
        assert table.loc[(name, "race"), "left_out"] == 1
    assert table.loc["selection_rate", "left_out"].eq(0).all()
    one = tabulate(Prediction(h, h), part, ["tpr_difference", "gap_rms"], minimum=20)
    assert one[["value", "low", "high"]].isna().all(axis=None)
    assert one["n"].tolist() == [33, 66]


def test_one_class_only():
    _, groups, score, attributes = make_rows(200)
    h = (score >= 0.5).astype(float)
    part = make_part(np.ones(200, dtype=int), groups, attributes)
    table = values(tabulate(Prediction(score, h), part))
    assert math.isnan(table["tnr", ""])
    assert math.isnan(table["gap_max", "attribute0"])
    assert table["tpr", ""] == pytest.approx(h.mean())
    assert table["accuracy_difference", "attribute0"] > 0


def test_many_levels_are_counted_pair_by_pair(monkeypatch):
    y, groups, score, attributes = make_rows(2000, levels=(3, 5, 7))
    h = (score >= 0.5).astype(float)
    part = make_part(y, groups, attributes, weight=np.random.default_rng(0).random(2000))
    joint = tabulate(Prediction(score, h), part)
    monkeypatch.setattr("fairfrontier.metrics.statistic.rate.JOINT_LIMIT", 8)
    pairs = tabulate(Prediction(score, h), part)
    pd.testing.assert_frame_equal(joint, pairs, rtol=1e-10)


def test_pairs_with_more_cells_than_rows_are_left_out(monkeypatch):
    y, groups, score, attributes = make_rows(60, levels=(4, 5))
    monkeypatch.setattr("fairfrontier.metrics.statistic.rate.JOINT_LIMIT", 8)
    h = (score >= 0.5).astype(float)
    table = tabulate(Prediction(score, h), make_part(y, groups, attributes), ["gap_max"])
    assert table["group"].tolist() == ["attribute0", "attribute1"]


def test_intervals_of_aggregates_cover_the_truth_where_groups_are_equal():
    rng = np.random.default_rng(0)
    truth = {"gap_max": 0.0, "gap_rms": 0.0, "selection_rate_difference": 0.0, "tpr_ratio": 1.0}
    inside = dict.fromkeys(truth, 0)
    for _ in range(40):
        y, g = rng.integers(0, 2, 600), rng.integers(0, 4, 600)
        h = (rng.random(600) < 0.3 + 0.4 * y).astype(float)
        part = make_part(y, g[:, None], {"race": "ABCD"})
        for row in tabulate(Prediction(h, h), part, list(truth)).itertuples():
            inside[row.measure] += row.low <= truth[row.measure] <= row.high
    # The percentile bootstrap covers in no draw, a right interval in fewer than 34 once in 500.
    assert min(inside.values()) >= 34, inside


def test_weighted_intervals_agree_with_counts_where_both_apply():
    y, groups, score, attributes = make_rows(4000)
    h = (score >= 0.5).astype(float)
    counts = tabulate(Prediction(score, h), make_part(y, groups, attributes))
    # Equal weights other than 1 go the way of weighted sums, and say nothing new.
    scaled = make_part(y, groups, attributes, weight=np.full(4000, 2.0))
    sums = tabulate(Prediction(score, h), scaled)
    np.testing.assert_allclose(sums["value"], counts["value"], rtol=1e-12)
    width = (counts["high"] - counts["low"]).to_numpy()
    np.testing.assert_allclose(sums["low"], counts["low"], atol=0.15 * width.max())
    levels = counts["measure"].isin(RATES)
    np.testing.assert_allclose(sums["high"][levels], counts["high"][levels], rtol=1e-10)


def test_same_input_gives_same_bytes():
    y, groups, score, attributes = make_rows(500)
    part = make_part(y, groups, attributes)
    first, second = (tabulate(Prediction(score, score), part) for _ in range(2))
    assert first.to_csv() == second.to_csv()
