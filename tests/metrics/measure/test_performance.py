from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    roc_auc_score,
)

from fairfrontier.metrics.statistic.interval import wilson
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.runtime.errors import ConfigError
from tests.metrics.made import make_part, make_rows


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scikit_learn(weighted):
    y, groups, score, attributes = make_rows(700)
    weight = np.random.default_rng(0).uniform(0.2, 3, 700) if weighted else np.ones(700)
    h = (score >= 0.5).astype(float)
    part = make_part(y, groups, attributes, weight=weight)
    ours = tabulate(Prediction(score, h), part).set_index(["measure", "group"])
    expected = {
        "accuracy": accuracy_score(y, h, sample_weight=weight),
        "balanced_accuracy": balanced_accuracy_score(y, h, sample_weight=weight),
        "f1": f1_score(y, h, sample_weight=weight),
        "log_loss": log_loss(y, score, sample_weight=weight),
        "auc": roc_auc_score(y, score, sample_weight=weight),
    }
    for measure, value in expected.items():
        row = ours.loc[(measure, "")]
        assert row["value"] == pytest.approx(value, abs=1e-12)
        assert row["low"] < row["value"] < row["high"]
        assert row["n"] == 700


def test_three_classes_equal_scikit_learn():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    score = rng.dirichlet([1, 1, 1], 300) + 0.4 * np.eye(3)[y]
    score /= score.sum(axis=1, keepdims=True)
    decision = score.argmax(axis=1).astype(float)
    part = make_part(y, rng.integers(0, 2, (300, 1)), {"sex": "FM"}, classes=("a", "b", "c"))
    table = tabulate(Prediction(score, decision), part).set_index(["measure", "group"])["value"]
    assert table["accuracy", ""] == pytest.approx(accuracy_score(y, decision))
    women = part.group("sex") == 0
    assert table["accuracy", "sex=F"] == pytest.approx(accuracy_score(y[women], decision[women]))
    assert table["balanced_accuracy", ""] == pytest.approx(balanced_accuracy_score(y, decision))
    assert table["log_loss", ""] == pytest.approx(log_loss(y, score))
    assert "auc" not in table.index.get_level_values("measure")
    assert "tpr" not in table.index.get_level_values("measure")


def test_auc_and_its_variance_by_pairs_of_rows():
    y, groups, score, attributes = make_rows(80)
    weight = np.random.default_rng(1).uniform(0.5, 2, 80)
    part = make_part(y, groups, attributes, weight=weight)
    row = tabulate(Prediction(score, score), part, ["auc"]).iloc[0]
    won = (score[y == 1, None] > score[y == 0]) + 0.5 * (score[y == 1, None] == score[y == 0])
    one, zero = (weight[y == k] / weight[y == k].sum() for k in (1, 0))
    value = one @ won @ zero
    variance = np.sum((one * (won @ zero - value)) ** 2) + np.sum((zero * (one @ won - value)) ** 2)
    assert row["value"] == pytest.approx(value)
    # The variance is Hanley and McNeil's at least.
    rows = [1 / np.sum(each**2) for each in (one, zero)]
    terms = np.array([(1 - value) / (2 - value), value / (1 + value)])
    least = max(terms @ (1 / np.array(rows)), terms @ (1 / np.array(rows[::-1])))
    size = min(value * (1 - value) / variance, 1 / least)
    low, high = wilson(np.array(value), np.array(size))
    assert row[["low", "high"]].tolist() == pytest.approx([low, high])


def test_balanced_accuracy_interval_is_about_the_delta_method_s():
    y, groups, score, attributes = make_rows(5000)
    h = (score >= 0.5).astype(float)
    row = tabulate(
        Prediction(score, h), make_part(y, groups, attributes), ["balanced_accuracy"]
    ).iloc[0]
    recalls = [np.mean(h[y == k] == k) for k in (0, 1)]
    variance = sum(r * (1 - r) / np.sum(y == k) for k, r in enumerate(recalls)) / 4
    assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * math.sqrt(variance), rel=0.01)


def test_random_decisions_count_by_their_expectation():
    y = np.array([0, 0, 1, 1])
    h = np.array([0.25, 0.5, 0.5, 1.0])
    part = make_part(y, np.zeros((4, 0)), {})
    table = tabulate(Prediction(h, h), part).set_index("measure")["value"]
    assert table["accuracy"] == pytest.approx((0.75 + 0.5 + 0.5 + 1) / 4)
    assert table["balanced_accuracy"] == pytest.approx((0.625 + 0.75) / 2)


def test_one_class_only_has_no_auc_and_no_balanced_accuracy():
    part = make_part(np.zeros(50, dtype=int), np.zeros((50, 0)), {})
    score = np.linspace(0, 0.9, 50)
    table = tabulate(Prediction(score, (score >= 0.5).astype(float)), part).set_index("measure")
    assert table.loc[["auc", "balanced_accuracy"], ["value", "low", "high"]].isna().all(axis=None)
    assert table.loc["auc", "n"] == 50
    assert table.loc["log_loss", "value"] == pytest.approx(np.mean(-np.log(1 - score)))


def test_certain_and_wrong_has_a_finite_loss():
    part = make_part([0, 1], np.zeros((2, 0)), {})
    h = np.array([1.0, 1.0])
    row = tabulate(Prediction(h, h), part, ["log_loss"]).iloc[0]
    assert row["value"] == pytest.approx(log_loss([0, 1], h))


def test_mean_predictions():
    rng = np.random.default_rng(0)
    y, weight = rng.normal(size=200), rng.uniform(0.5, 2, 200)
    guess = y + rng.normal(size=200)
    groups = np.r_[np.zeros(195), np.ones(5)][:, None]
    part = make_part(y, groups, {"sex": ("F", "M")}, weight=weight, classes=())
    table = tabulate(Prediction(guess, guess), part, ["mean_prediction"])
    table = table.set_index(["measure", "group"])
    value = table["value"]
    women = np.average(guess[:195], weights=weight[:195])
    assert value["mean_prediction", "sex=F"] == pytest.approx(women)
    assert math.isnan(value["mean_prediction", "sex=M"])
    assert table.loc[("mean_prediction", "sex=M"), "n"] == 5


def test_measures_of_another_task_are_refused():
    part = make_part(np.ones(4), np.zeros((4, 0)), {}, classes=())
    prediction = Prediction(np.ones(4), np.ones(4))
    with pytest.raises(
        ConfigError, match="'auc' is for binary labels, and made poses a regression"
    ):
        tabulate(prediction, part, ["auc"])


def test_errors_cost_what_the_objective_says():
    y, groups, score, attributes = make_rows(200)
    weight = np.random.default_rng(0).uniform(0.2, 3, 200)
    part = make_part(y, groups, attributes, weight=weight)
    h = (score >= 0.3).astype(float)
    table = tabulate(Prediction(score, h), part, costs=(2.0, 7.0)).set_index(["measure", "group"])
    row = table.loc[("error_cost", "")]
    cost = np.where(y == 1, 7.0 * (h == 0), 2.0 * (h == 1))
    assert row["value"] == pytest.approx(np.average(cost, weights=weight))
    assert row["low"] < row["value"] < row["high"]
    # The expectation over draws.
    half = tabulate(Prediction(score, np.full(200, 0.5)), part, ["error_cost"], costs=(2.0, 7.0))
    expected = np.average(np.where(y == 1, 3.5, 1.0), weights=weight)
    assert half["value"].tolist() == pytest.approx([expected])
    with pytest.raises(ConfigError):
        tabulate(Prediction(score, h), part, ["error_cost"])


def test_f1_of_no_positive_row_and_no_decision_is_not_estimable():
    y, groups, score, attributes = make_rows(20)
    part = make_part(np.zeros_like(y), groups, attributes)
    table = tabulate(Prediction(score, np.zeros(20)), part, ["f1"])
    assert math.isnan(table["value"].iloc[0])
    assert tabulate(Prediction(score, np.ones(20)), part, ["f1"])["value"].tolist() == [0.0]


def test_the_interval_of_f1_is_no_shorter_where_the_heavy_rows_happen_to_be_right():
    y = np.ones(40, dtype=np.int64)
    score = np.where(np.arange(40) < 30, 0.9, 0.1)
    widths = []
    for heavy in (slice(0, 4), slice(0, 40, 10)):
        weight = np.ones(40)
        weight[heavy] = 9.0
        part = make_part(y, np.zeros((40, 0)), {}, weight=weight)
        row = tabulate(Prediction(score, (score > 0.5).astype(float)), part, ["f1"]).iloc[0]
        widths.append((row["high"] - row["low"]) / np.sqrt(row["value"] * (1 - row["value"])))
    assert widths[0] > 0.75 * widths[1]
