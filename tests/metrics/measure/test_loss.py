from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from fairfrontier.metrics.measure.performance import LOSSES, compute_logistic, compute_logistic_nats
from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.metrics.statistic.interval import Z, average, average_cells
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.models.regression.loss import find_loss
from tests.metrics.made import make_part, make_regression, make_rows, mix

NAMES = [each.name for each in LOSSES]
BY_HAND = {
    "square_loss": lambda y, u: (y - u) ** 2 / 2,
    "absolute_loss": lambda y, u: abs(y - u),
    "logistic_loss": lambda y, u: (
        math.log(1 + math.exp(-5 * (2 * y - 1) * (2 * u - 1))) / (2 * math.log(1 + math.exp(5)))
    ),
    "logistic_loss_nats": lambda y, u: math.log(1 + math.exp(-5 * (2 * y - 1) * (2 * u - 1))),
}

every_loss = pytest.mark.parametrize("name", NAMES)


@every_loss
@pytest.mark.parametrize("weighted", [False, True])
def test_of_a_mixture_row_by_row(name, weighted):
    part, prediction = make_regression(80, weighted=weighted)
    components = np.column_stack([prediction.score, 1 - prediction.score])
    probability = np.array([0.3, 0.7])
    table = tabulate(mix(components, probability), part, [name], minimum=1).set_index("group")
    loss = np.array(
        [
            sum(p * BY_HAND[name](y, u) for p, u in zip(probability, row, strict=True))
            for y, row in zip(part.y, components, strict=True)
        ]
    )
    for group, codes, level in (
        ("", np.zeros(80, dtype=np.intp), 0),
        ("attribute0=level1", part.group("attribute0"), 1),
        ("attribute1=level2", part.group("attribute1"), 2),
    ):
        rows = codes == level
        row = table.loc[group]
        assert row["value"] == pytest.approx(np.average(loss[rows], weights=part.weight[rows]))
        limits = average_cells(loss, part.weight, codes, codes.max() + 1).limit(Z)
        assert row[["low", "high"]].tolist() == pytest.approx([end[level] for end in limits])
        assert row["n"] == rows.sum()


@every_loss
def test_the_largest_is_that_of_the_worst_level_unless_others_may_be_worse(name):
    part, prediction = make_regression(300)
    table = tabulate(prediction, part, [name, f"{name}_max"]).set_index(["measure", "group"])
    levels = table.loc[[(name, f"attribute1=level{k}") for k in range(3)]]
    worst = levels.iloc[int(levels["value"].argmax())]
    largest = table.loc[(f"{name}_max", "attribute1")]
    assert largest["value"] == worst["value"]
    assert largest["low"] <= worst["low"]
    assert largest["high"] == levels.loc[levels["high"] >= largest["low"], "high"].max()
    assert largest["n"] == 300


def test_a_level_of_few_rows_is_left_out_of_the_largest():
    y = np.r_[np.zeros(50), np.ones(3)]
    part = make_part(y, np.r_[np.zeros(50), np.ones(3)][:, None], {"sex": "FM"}, classes=())
    table = tabulate(mix(np.zeros((53, 2)), np.array([0.5, 0.5])), part).set_index(
        ["measure", "group"]
    )["value"]
    assert math.isnan(table["square_loss", "sex=M"])
    assert table["square_loss_max", "sex"] == 0.0
    none = tabulate(mix(np.zeros((53, 2)), np.array([0.5, 0.5])), part, minimum=60)
    assert none.set_index(["measure", "group"])["value"].isna()["square_loss_max", "sex"]


def test_logistic_loss_is_the_log_likelihood_of_the_probability_it_stands_for():
    u = np.linspace(0, 1, 11)
    p = 1 / (1 + np.exp(-5 * (2 * u - 1)))
    np.testing.assert_allclose(compute_logistic_nats(np.ones(11), u), -np.log(p))
    np.testing.assert_allclose(compute_logistic_nats(np.zeros(11), u), -np.log(1 - p))
    ends = compute_logistic(np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(
        ends, (5 + math.log(1 + math.exp(-5))) / 2 / math.log(1 + math.exp(5))
    )
    assert compute_logistic(np.array([0.0]), np.array([1000.0]))[0] < np.inf


@every_loss
def test_less_is_better_and_only_the_logistic_ones_are_for_classes(name):
    for each in (name, f"{name}_max"):
        assert MEASURES.find(each).direction == "lower"
        assert MEASURES.find(each).task == {"regression"} | (
            {"binary"} if "logistic" in name else set()
        )


def test_of_classes_it_is_the_log_loss_of_probabilities_or_of_the_numbers_behind_them():
    y, groups, score, attributes = make_rows(200)
    part, score = make_part(y, groups, attributes), np.clip(score, 0.02, 0.98)
    decision = (score >= 0.5).astype(float)
    plain = Prediction(score, decision)
    table = tabulate(plain, part, ["logistic_loss_nats", "log_loss"]).set_index(
        ["measure", "group"]
    )["value"]
    assert table["logistic_loss_nats", ""] == pytest.approx(table["log_loss", ""])
    drawn = Prediction(
        score, decision, components=np.column_stack([y, 1 - y]), probability=np.array([0.9, 0.1])
    )
    found = tabulate(drawn, part, ["logistic_loss"])["value"][0]
    ends = [math.log(1 + math.exp(side)) for side in (-5, 5)]
    assert found == pytest.approx((0.9 * ends[0] + 0.1 * ends[1]) / (2 * ends[1]))
    sure = Prediction(y.astype(float), decision)
    assert tabulate(sure, part, ["logistic_loss_nats"])["value"][0] == pytest.approx(ends[0])


@every_loss
def test_a_regressor_that_is_named_twice_is_one(name):
    part, prediction = make_regression(50)
    once = mix(np.column_stack([prediction.score, part.y]), np.array([0.6, 0.4]))
    twice = mix(
        np.column_stack([part.y, prediction.score, prediction.score]), np.array([0.4, 0.5, 0.1])
    )
    left, right = (tabulate(each, part, [name])["value"] for each in (once, twice))
    np.testing.assert_allclose(left, right, atol=1e-14)
    alone = replace(prediction, components=prediction.score[:, None], probability=np.ones(1))
    np.testing.assert_array_equal(
        tabulate(alone, part, [name])["value"], tabulate(prediction, part, [name])["value"]
    )


@pytest.mark.parametrize("name", ["square", "absolute", "logistic"])
def test_what_is_measured_is_what_is_minimised(name):
    rng = np.random.default_rng(0)
    y, u = rng.random((2, 100))
    (measured,) = (each for each in LOSSES if each.name == f"{name}_loss")
    np.testing.assert_allclose(measured.compute(y, u), find_loss(name).value(y, u))


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scikit_learn(weighted):
    part, prediction = make_regression(200, weighted=weighted)
    table = tabulate(prediction, part, ["rmse", "mae", "r2"])
    table = table[table["group"] == ""].set_index("measure")
    guess, expected = prediction.score, {"sample_weight": part.weight}
    assert table.loc["rmse", "value"] == pytest.approx(
        root_mean_squared_error(part.y, guess, **expected)
    )
    assert table.loc["mae", "value"] == pytest.approx(
        mean_absolute_error(part.y, guess, **expected)
    )
    assert table.loc["r2", "value"] == pytest.approx(r2_score(part.y, guess, **expected))


def test_of_a_mixture_they_are_expectations():
    part, prediction = make_regression(60, weighted=True)
    components = np.column_stack([prediction.score, 1 - prediction.score, part.y])
    probability = np.array([0.2, 0.5, 0.3])
    table = tabulate(mix(components, probability), part, ["rmse", "mae", "r2"])
    value = table[table["group"] == ""].set_index("measure")["value"]
    # Every row once for every regressor, weighing its probability.
    y = np.repeat(part.y, 3)
    each, weight = components.ravel(), np.outer(part.weight, probability).ravel()
    assert value["rmse"] == pytest.approx(root_mean_squared_error(y, each, sample_weight=weight))
    assert value["mae"] == pytest.approx(mean_absolute_error(y, each, sample_weight=weight))
    assert value["r2"] == pytest.approx(r2_score(y, each, sample_weight=weight))
    mean = tabulate(Prediction(*[components @ probability] * 2), part, ["rmse"])
    assert value["rmse"] > mean["value"][0]


def test_errors_are_in_units_of_the_target_and_losses_as_it_is_scaled():
    part, prediction = make_regression(200, weighted=True)
    keys = ["measure", "group"]
    plain, there = (
        tabulate(prediction, each, None).set_index(keys)[["value", "low", "high"]]
        for each in (part, replace(part, units=(10.0, 70.0)))
    )
    for measure, rows in plain.groupby("measure"):
        factor = 70.0 if MEASURES.find(measure).has_units else 1.0
        least = 10.0 if measure == "mean_prediction" else 0.0
        np.testing.assert_allclose(there.loc[rows.index], least + factor * rows, err_msg=measure)
    assert plain.loc["rmse"].shape == plain.loc["mae"].shape == (6, 3)


def test_the_band_of_the_root_is_that_of_the_square():
    part, prediction = make_regression(100)
    row = tabulate(prediction, part, ["rmse"]).iloc[0]
    wanted = average((part.y - prediction.score) ** 2, np.ones(100))[2:]
    assert row[["low", "high"]].tolist() == pytest.approx(np.sqrt(wanted).tolist())


def test_nothing_and_a_constant():
    empty = make_part(np.zeros(0), np.zeros((0, 0)), {}, classes=())
    assert tabulate(Prediction(np.zeros(0), np.zeros(0)), empty)["value"].isna().all()
    flat = make_part(np.ones(4), np.zeros((4, 0)), {}, classes=())
    table = tabulate(Prediction(np.zeros(4), np.zeros(4)), flat).set_index("measure")["value"]
    assert math.isnan(table["r2"])
    assert table["rmse"] == 1.0
