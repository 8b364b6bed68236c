"""Measures by group from arrays and frames: those of the house, and any function."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as skm

import fairfrontier as ff
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.runtime.errors import ConfigError, InputError
from tests.metrics.made import make_part, make_rows

by_group = ff.metrics.by_group


def make(n=200, seed=0):
    """Return labels, decisions, scores and two attributes."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "race": rng.choice(["a", "b", "c"], n)})
    y = rng.integers(0, 2, n)
    score = np.round(rng.beta(2 + y, 3), 2)
    return y, (score > 0.4).astype(int), score, frame


def find(table, measure, group=""):
    row = table[(table["measure"] == measure) & (table["group"] == group)]
    assert len(row) == 1, (measure, group)
    return row.iloc[0]


def test_measures_of_the_house_are_those_that_evaluate_returns():
    y, groups, score, attributes = make_rows(300)
    decision = (score > 0.4).astype(float)
    part = make_part(y, groups, attributes)
    names = {
        name: np.array(levels)[groups[:, i]] for i, (name, levels) in enumerate(attributes.items())
    }
    found = by_group(y, decision, sensitive_features=names, scores=score)
    wanted = tabulate(Prediction(score, decision), part, minimum=1)
    both = wanted.merge(found, on=["measure", "group"], suffixes=("", "_found"), how="left")
    for name in ("value", "n", "low", "high", "left_out"):
        np.testing.assert_array_equal(both[f"{name}_found"], both[name])


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), n=st.integers(30, 80), weighted=st.booleans())
def test_what_is_of_a_whole_table_is_computed_within_every_group(seed, n, weighted):
    y, decision, score, frame = make(n, seed)
    y[:12], frame.loc[:11, "sex"] = [0, 1] * 6, ["f"] * 6 + ["m"] * 6
    weight = np.random.default_rng(seed).uniform(0.5, 2, n) if weighted else None
    names = ["auc", "f1", "balanced_accuracy", "log_loss"]
    found = by_group(
        y,
        decision,
        sensitive_features=frame["sex"],
        scores=score,
        sample_weight=weight,
        measures=[*names, skm.accuracy_score],
    )
    peers = {
        "auc": (skm.roc_auc_score, score),
        "f1": (skm.f1_score, decision),
        "balanced_accuracy": (skm.balanced_accuracy_score, decision),
        "log_loss": (skm.log_loss, score),
        "accuracy_score": (skm.accuracy_score, decision),
    }
    for name, (peer, predicted) in peers.items():
        values = {}
        for level in ("", "f", "m"):
            own = np.ones(n, dtype=bool) if not level else (frame["sex"] == level).to_numpy()
            if name == "f1" and not (y[own] + decision[own]).any():
                continue
            given_weight = None if weight is None else weight[own]
            wanted = peer(y[own], predicted[own], sample_weight=given_weight)
            row = find(found, name, f"sex={level}" if level else "")
            assert row["value"] == pytest.approx(wanted)
            assert row["n"] == own.sum()
            values[level] = wanted
        if len(values) < 3:
            continue
        overall, *levels = values.values()
        aggregates = {
            "difference": max(levels) - min(levels),
            "min": min(levels),
            "max": max(levels),
            "mean": np.mean(levels),
            "difference_to_overall": max(abs(x - overall) for x in levels),
        }
        if min(levels) > 0:
            aggregates["ratio"] = min(levels) / max(levels)
            folds = [min(x / overall, overall / x) for x in levels]
            aggregates["ratio_to_overall"] = min(folds)
        for aggregate, value in aggregates.items():
            row = find(found, f"{name}_{aggregate}", "sex")
            assert row["value"] == pytest.approx(value), aggregate
            assert not row["low"] > row["value"] + 1e-9
            assert not row["high"] < row["value"] - 1e-9


def test_targets_and_predictions_are_measured_as_a_regression():
    rng = np.random.default_rng(0)
    y, group = rng.normal(size=100), rng.choice(["a", "b"], 100)
    predicted = y + rng.normal(size=100)
    found = by_group(
        y,
        predicted,
        sensitive_features=group,
        measures=["mean_prediction", "r2", skm.mean_squared_error],
    )
    for level in "ab":
        own, name = group == level, f"sensitive_feature_0={level}"
        assert find(found, "mean_prediction", name)["value"] == pytest.approx(predicted[own].mean())
        for measure, peer in (("r2", skm.r2_score), ("mean_squared_error", skm.mean_squared_error)):
            assert find(found, measure, name)["value"] == pytest.approx(
                peer(y[own], predicted[own])
            )


def test_differences_are_those_of_a_metric_frame():
    y, decision, _, frame = make()
    found = by_group(y, decision, sensitive_features=frame, measures=["selection_rate", "tpr"])
    for name, metric in (
        ("selection_rate", ff.metrics.selection_rate),
        ("tpr", ff.metrics.true_positive_rate),
    ):
        for attribute, columns in (("sex", ["sex"]), ("sex×race", ["sex", "race"])):
            framed = ff.metrics.MetricFrame(
                metrics=metric, y_true=y, y_pred=decision, sensitive_features=frame[columns]
            )
            for kind in ("difference", "ratio"):
                for suffix, method in (("", "between_groups"), ("_to_overall", "to_overall")):
                    value = find(found, f"{name}_{kind}{suffix}", attribute)["value"]
                    assert value == pytest.approx(getattr(framed, kind)(method=method))


def test_small_groups_are_shown_and_marked_and_left_out_when_asked():
    y, decision, _, frame = make(100)
    frame.loc[:3, "race"], decision[:4] = "rare", 1
    shown, kept = (
        by_group(
            y,
            decision,
            sensitive_features=frame["race"],
            measures=["selection_rate", skm.zero_one_loss],
            leave_out_small=leave_out,
        )
        for leave_out in (False, True)
    )
    for table in (shown, kept):
        rare = find(table, "selection_rate", "race=rare")
        assert (rare["value"], rare["n"], rare["small"]) == (1.0, 4, True)
        assert table["small"].sum() == 2
    for name in ("selection_rate", "zero_one_loss"):
        rows = shown[shown["group"].str.startswith("race=") & (shown["measure"] == name)]
        for table, own in ((shown, rows), (kept, rows[~rows["small"]])):
            row = find(table, f"{name}_difference", "race")
            assert row["value"] == pytest.approx(own["value"].max() - own["value"].min())
            assert row["left_out"] == len(rows) - len(own)


@pytest.mark.parametrize("kind", ["list", "object", "category", "series", "arrow", "2d"])
def test_features_of_any_kind_are_the_same_groups(kind):
    y, decision, _, frame = make()
    wide = frame.to_numpy()
    features = {
        "list": lambda: {name: frame[name].tolist() for name in frame},
        "object": lambda: {name: frame[name].to_numpy(dtype=object) for name in frame},
        "category": lambda: frame.astype("category"),
        "series": lambda: frame.set_axis(range(7, 7 + len(frame))),
        "arrow": lambda: pa.Table.from_pandas(frame),
        "2d": lambda: wide,
    }[kind]()
    found = by_group(y, decision, sensitive_features=features, measures="accuracy")
    wanted = by_group(y, decision, sensitive_features=frame, measures="accuracy")
    if kind == "2d":
        names = {"sensitive_feature_0": "sex", "sensitive_feature_1": "race"}
        found["group"] = found["group"].replace(names, regex=True)
    pd.testing.assert_frame_equal(found, wanted)


def test_truth_values_numbers_and_missing_cells_are_levels():
    y, decision, _, _ = make(60)
    features = {"old": [True, False, None] * 20, "age": [30, 4, np.nan] * 20}
    found = by_group(y, decision, sensitive_features=features, measures=skm.accuracy_score)
    levels = found["group"][found["group"].str.fullmatch(r"(old|age)=.*")]
    assert [*levels] == [
        *("old=False", "old=True", "old=missing"),
        *("age=30", "age=4", "age=missing"),
    ]


def test_control_features_divide_the_rows_first():
    y, decision, score, frame = make()
    keywords = {"measures": ["tpr", "auc"]}
    found = by_group(
        y,
        decision,
        sensitive_features=frame["sex"],
        control_features=frame[["race"]],
        scores=score,
        **keywords,
    )
    assert [*found["control"].unique()] == ["race=a", "race=b", "race=c"]
    own = (frame["race"] == "b").to_numpy()
    alone = by_group(
        y[own], decision[own], sensitive_features=frame["sex"][own], scores=score[own], **keywords
    )
    part = found[found["control"] == "race=b"].drop(columns="control").reset_index(drop=True)
    pd.testing.assert_frame_equal(part, alone)


def test_labels_of_any_kind_and_the_positive_one():
    y, decision, score, frame = make()
    wanted = by_group(y, decision, sensitive_features=frame, scores=score)
    words = np.array(["no", "yes"])
    turned = np.array(["good", "bad"])
    for labels, keywords in (
        ((y == 1, decision == 1), {}),
        ((words[y], words[decision]), {}),
        ((2 * y - 1, 2 * decision - 1), {}),
        ((turned[y], turned[decision]), {"pos_label": "bad"}),
    ):
        found = by_group(*labels, sensitive_features=frame, scores=score, **keywords)
        pd.testing.assert_frame_equal(found, wanted)


def test_classes_and_scores_of_each():
    rng = np.random.default_rng(0)
    y, decision = rng.choice(["x", "y", "z"], (2, 90))
    scores = rng.dirichlet(np.ones(3), 90)
    group = rng.choice(["a", "b"], 90)
    found = by_group(y, decision, sensitive_features=group, scores=scores)
    own = group == "a"
    name = "sensitive_feature_0=a"
    assert find(found, "accuracy", name)["value"] == pytest.approx((y == decision)[own].mean())
    wanted = skm.log_loss(y[own], scores[own], labels=["x", "y", "z"])
    assert find(found, "log_loss", name)["value"] == pytest.approx(wanted)


def test_scores_on_another_scale_are_ranked_alone():
    y, decision, score, frame = make()
    found = by_group(y, decision, sensitive_features=frame, scores=100 * score)
    assert {"auc", "disparity", "tpr"} <= {*found["measure"]}
    assert "log_loss" not in {*found["measure"]}
    same = by_group(y, decision, sensitive_features=frame, scores=score, measures="auc")
    assert find(found, "auc", "sex=f")["value"] == find(same, "auc", "sex=f")["value"]


def test_intervals_of_more_confidence_are_wider():
    y, decision, _, frame = make()
    tables = [
        by_group(y, decision, sensitive_features=frame, measures="tpr", confidence=confidence)
        for confidence in (0.8, 0.95, 0.99)
    ]
    rows = tables[1]["low"].notna() & (tables[1]["low"] > 0) & (tables[1]["high"] < 1)
    widths = [(table["high"] - table["low"])[rows] for table in tables]
    assert rows.sum() > 5
    assert (widths[0] < widths[1]).all()
    assert (widths[1] < widths[2]).all()


def fail_on_few(y, decision):
    if len(y) < 100:
        raise RuntimeError("too few")
    return 0.5


def test_a_function_that_fails_on_a_group_has_no_value_there_and_the_reason():
    y, decision, _, frame = make(150)
    frame["sex"] = ["f"] * 120 + ["m"] * 30
    found = by_group(y, decision, sensitive_features=frame["sex"], measures={"mine": fail_on_few})
    row = find(found, "mine", "sex=m")
    assert np.isnan(row["value"])
    assert row["note"] == "RuntimeError: too few"
    assert find(found, "mine", "sex=f")["value"] == 0.5
    with pytest.raises(RuntimeError, match="too few"):
        by_group(y[:50], decision[:50], sensitive_features=frame["sex"][:50], measures=fail_on_few)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"decision": [1, 0]}, InputError),
        ({"scores": [np.nan] * 4}, InputError),
        ({"y": [0, 1, None, 1]}, InputError),
        ({"decision": [0, 1, 2, 1]}, InputError),
        ({"measures": "recal"}, ConfigError),
        ({"measures": "auc"}, ConfigError),
        ({"scores": [2, 3, 4, 5], "measures": "log_loss"}, ConfigError),
        ({"confidence": 95}, ConfigError),
    ],
)
def test_what_cannot_be_measured_is_refused(change, error):
    keywords = {
        "y": [0, 1, 0, 1],
        "decision": [1, 1, 0, 1],
        "sensitive_features": ["a", "b", "a", "b"],
        **change,
    }
    with pytest.raises(error):
        by_group(keywords.pop("y"), keywords.pop("decision"), **keywords)


def test_rows_are_in_their_order_whatever_index_a_series_has():
    sex = pd.Series(["f", "f", "m", "m"])
    y, decided = [1, 0, 1, 0], [1, 1, 1, 0]
    wanted = by_group(y, decided, sensitive_features={"sex": sex}, measures="selection_rate")
    for turned in (sex.set_axis([3, 2, 1, 0]), sex.to_frame("sex").set_axis([3, 2, 1, 0])):
        given = {"sex": turned} if isinstance(turned, pd.Series) else turned
        found = by_group(y, decided, sensitive_features=given, measures="selection_rate")
        pd.testing.assert_frame_equal(found, wanted)
    numbers = by_group(y, decided, sensitive_features=[1, None, 2, 2], measures="selection_rate")
    assert {"sensitive_feature_0=1", "sensitive_feature_0=missing"} <= set(numbers["group"])
