from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from fairfrontier import evaluate
from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.metrics.verb import leave_out_small, tabulate
from fairfrontier.models.prediction import Prediction, predict_part
from fairfrontier.prepare.split import Part, Variant
from fairfrontier.runtime.errors import ConfigError
from tests.metrics.made import MadeSet, make_part, make_rows


def make_fitted() -> tuple[LogisticRegression, Part]:
    y, groups, _, attributes = make_rows(300)
    X = np.column_stack([y + np.random.default_rng(0).normal(size=300), groups[:, 0]])
    flipped = np.column_stack([X[:, 0], 1 - X[:, 1]])
    variants = MadeSet((Variant("same", X, groups), Variant("flip", flipped, groups)))
    part = make_part(y, groups, attributes, X=X, counterfactuals={"flip": variants})
    return LogisticRegression().fit(X, y), part


# What the made part has not.
ABSENT = ("certificate", "gap", "box", "true_group", "membership", "costs")


def test_evaluate_gives_a_tidy_table():
    model, part = make_fitted()
    table = evaluate(model, part)
    assert list(table.columns) == ["measure", "group", "value", "n", "low", "high", "left_out"]
    assert not table.duplicated(["measure", "group"]).any()
    assert set(table["measure"]) == {
        name
        for name, each in MEASURES.all().items()
        if "binary" in each.task and not each.needs & {*ABSENT}
    }
    assert table["n"].dtype == np.int64
    assert {"", "attribute0", "attribute0=level1", "attribute0×attribute1", "flip"} <= set(
        table["group"]
    )
    pd.testing.assert_frame_equal(table, tabulate(predict_part(model, part), part))


def test_levels_with_few_rows_have_no_numbers():
    model, part = make_fitted()
    assert max(map(np.max, map(np.bincount, part.groups.T))) < 250
    table = tabulate(predict_part(model, part), part, minimum=250)
    levels = table[table["group"].str.contains("=")]
    assert levels["measure"].nunique() > 10
    assert levels[["value", "low", "high"]].isna().all(axis=None)


def test_levels_with_few_rows_can_be_left_out():
    model, part = make_fitted()
    sizes = np.bincount(part.group("attribute0"))
    minimum = int(sizes.min()) + 1
    table = tabulate(predict_part(model, part), part, minimum=minimum)
    kept = leave_out_small(table, part, minimum)
    gone = f"attribute0=level{sizes.argmin()}"
    left_out = {*table["group"]} - {*kept["group"]}
    assert gone in left_out
    # Of pairs those that are smaller still, and no whole attribute or set.
    assert any("×" in group for group in left_out)
    assert all("=" in group for group in left_out)
    assert f"attribute0=level{sizes.argmax()}" in {*kept["group"]}
    sized = kept.loc[kept["measure"] == "accuracy"]
    assert (sized["n"] >= minimum).all()


@pytest.mark.parametrize("level", ["nobody", "=nobody", "nobody inside sex=m"])
def test_levels_without_a_row_are_left_out(level):
    attributes = {"age": ("young", "old", level), "sex": ("f", "m")}
    code = np.arange(300)
    part = make_part(
        (code % 3 == 0).astype(int), np.column_stack([code % 2, code // 2 % 2]), attributes
    )
    table = tabulate(Prediction((code % 5 == 0).astype(float), np.full(300, 0.5)), part, minimum=1)
    assert f"age={level}" in {*table["group"]}
    left = leave_out_small(table, part, 1)["group"]
    assert {*left} == {group for group in table["group"] if "nobody" not in group}


def test_gaps_inside_a_level_of_few_rows_are_left_out():
    attributes = {"age": ("young", "old"), "place": ("town", "people inside sex=m")}
    code = np.arange(300)
    groups = np.column_stack([code % 2, code >= 290])
    part = make_part((code % 3 == 0).astype(int), groups, attributes)
    table = tabulate(Prediction((code % 5 == 0).astype(float), np.full(300, 0.5)), part, minimum=20)
    assert "age inside place=people inside sex=m" in {*table["group"]}
    left = leave_out_small(table, part, 20)["group"]
    assert "age inside place=town" in {*left}
    assert {*left} == {group for group in table["group"] if "people" not in group}


def test_only_what_is_asked_in_that_order():
    model, part = make_fitted()
    table = evaluate(model, part, ["gap_rms", "accuracy"])
    assert table["measure"].drop_duplicates().tolist() == ["gap_rms", "accuracy"]


def test_unknown_measure():
    model, part = make_fitted()
    with pytest.raises(ConfigError, match="Did you mean 'balanced_accuracy'"):
        evaluate(model, part, ["balanced_acuracy"])


def test_measures_that_the_part_cannot_give():
    part = make_part([0, 1], np.zeros((2, 0)), {})
    prediction = Prediction(np.ones(2), np.ones(2))
    with pytest.raises(ConfigError):
        tabulate(prediction, part, ["consistency"])
    with pytest.raises(ConfigError):
        tabulate(prediction, part, ["gap_rms"])
    assert set(tabulate(prediction, part)["measure"]) & {"consistency", "gap_rms"} == set()


def test_empty_part():
    part = make_part(np.zeros(0, dtype=int), np.zeros((0, 1)), {"sex": ("F", "M")})
    table = tabulate(Prediction(np.zeros(0), np.zeros(0)), part)
    assert (table["n"] == 0).all()
    assert table["value"].isna().all()
