from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from fairfrontier.evaluate.verb import tabulate
from fairfrontier.train.prediction import Prediction
from tests.evaluate.made import make_part, make_regression, mix


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scikit_learn(weighted):
    part, prediction = make_regression(200, weighted=weighted)
    table = tabulate(prediction, part, ["rmse", "mae", "r2"]).set_index("measure")
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
    value = table.set_index("measure")["value"]
    # Every row once for every regressor, weighing its probability.
    y = np.repeat(part.y, 3)
    each, weight = components.ravel(), np.outer(part.weight, probability).ravel()
    assert value["rmse"] == pytest.approx(root_mean_squared_error(y, each, sample_weight=weight))
    assert value["mae"] == pytest.approx(mean_absolute_error(y, each, sample_weight=weight))
    assert value["r2"] == pytest.approx(r2_score(y, each, sample_weight=weight))
    mean = tabulate(Prediction(*[components @ probability] * 2), part, ["rmse"])
    assert value["rmse"] > mean["value"][0]


def test_the_band_of_the_root_is_that_of_the_square():
    part, prediction = make_regression(100)
    row = tabulate(prediction, part, ["rmse"]).iloc[0]
    square = (part.y - prediction.score) ** 2
    error = square.std() / math.sqrt(100)
    assert row["low"] == pytest.approx(math.sqrt(square.mean() - 2 * error))
    assert row["high"] == pytest.approx(math.sqrt(square.mean() + 2 * error))


def test_nothing_and_a_constant():
    empty = make_part(np.zeros(0), np.zeros((0, 0)), {}, classes=())
    assert tabulate(Prediction(np.zeros(0), np.zeros(0)), empty)["value"].isna().all()
    flat = make_part(np.ones(4), np.zeros((4, 0)), {}, classes=())
    table = tabulate(Prediction(np.zeros(4), np.zeros(4)), flat).set_index("measure")["value"]
    assert math.isnan(table["r2"])
    assert table["rmse"] == 1.0
