"""Shapley values, against their definition: the sum over all subsets of the columns."""

from __future__ import annotations

from itertools import combinations
from math import comb
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, logit

from fairfrontier.choose import shapley
from fairfrontier.choose.mixture import Mixture
from fairfrontier.choose.shapley import attribute_score
from fairfrontier.train.base import Classifier, Regressor
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.registry import create

# Column 2 is encoded as three features, two of them apart from the third.
SPANS = ((slice(0, 1),), (slice(1, 2),), (slice(2, 4), slice(5, 6)), (slice(4, 5),))
KINDS = {
    "gbdt": "log-odds",
    "linear": "log-odds",
    "project": "probability",
    "random_forest": "probability",
    "nn": "probability",
    "mixture": "probability",
    "post-processed": "log-odds",
}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(160, 6))
    score = X @ [1.5, -1.0, 0.7, 0.0, 0.4, 0.9] + X[:, 0] * X[:, 1]
    return X, (score + rng.normal(size=160) > 0).astype(np.int64)


@pytest.fixture(scope="module")
def fitted(rows):
    """Return a function that fits a model of a kind."""
    X, y = rows
    groups = (X[:, :1] > 0).astype(np.int64)

    def fit(kind: str):
        if kind == "mixture":
            return Mixture(fit("post-processed"), fit("random_forest"), 0.3)
        if kind == "post-processed":
            model = fit("gbdt")
            rule = create("hardt", attributes=[0])
            return PostProcessed(model, rule.fit(model.predict_proba(X)[:, 1], y, groups=groups))
        model = create(kind, **dict(create(kind).example))
        metric = SimpleNamespace(sigma=np.eye(6) - np.full((6, 6), 1 / 6))
        return model.fit(X, y, **({"metric": metric} if kind == "project" else {}))

    return fit


def enumerate_values(predict, X: np.ndarray, number: int) -> np.ndarray:
    """Return φ_j(x) = Σ_S (v(S ∪ j) − v(S)) / (p C(p − 1, |S|)), v the mean over rows of X."""
    x, columns = X[number], range(len(SPANS))

    def value(subset: tuple[int, ...]) -> float:
        mixed = X.copy()
        for column in subset:
            for span in SPANS[column]:
                mixed[:, span] = x[span]
        return float(predict(mixed).mean())

    return np.array(
        [
            sum(
                (value((*subset, j)) - value(subset)) / (len(SPANS) * comb(len(SPANS) - 1, size))
                for size in range(len(SPANS))
                for subset in combinations([k for k in columns if k != j], size)
            )
            for j in columns
        ]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_values_add_up_to_the_score(fitted, rows, kind):
    X, _ = rows
    model = fitted(kind)
    found = attribute_score(model, X, SPANS)
    assert found.unit == KINDS[kind]
    if kind == "mixture":
        chance = 0.7 * model.first.model.predict_proba(X) + 0.3 * model.second.predict_proba(X)
    else:
        chance = getattr(model, "model", model).predict_proba(X)
    score = logit(chance[:, 1]) if found.unit == "log-odds" else chance[:, 1]
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), score, atol=1e-5)


def test_values_of_a_linear_model_are_those_of_the_definition(fitted, rows):
    X = rows[0]
    model = fitted("linear")
    found = attribute_score(model, X, SPANS)
    for number in (0, 7):
        wanted = enumerate_values(lambda Z: logit(model.predict_proba(Z)[:, 1]), X, number)
        np.testing.assert_allclose(found.values[number], wanted, atol=1e-9)


def test_trees_of_one_split_each_are_valued_by_hand(rows):
    # Such trees are additive in the columns: the value is the leaf less the mean over the rows,
    # which in the first round have the weight 1/4 each.
    X, y = rows
    model = create("gbdt", n_estimators=1, max_depth=1, base_score=0.5).fit(X, y)
    found = attribute_score(model, X, SPANS)
    margin = logit(model.predict_proba(X)[:, 1])
    assert np.unique(margin).size == 2
    used = np.abs(found.values).max(axis=0) > 0
    assert used.sum() == 1
    np.testing.assert_allclose(found.values[:, used][:, 0], margin - margin.mean(), atol=1e-6)


def test_drawn_values_are_exact_where_at_most_two_columns_interact(rows, monkeypatch):
    # An order and its reverse give each pair both of its orders.
    X = rows[0][:8]
    monkeypatch.setattr(shapley, "ORDERS", 8)

    def predict(Z: np.ndarray) -> np.ndarray:
        return Z[:, 0] * Z[:, 3] - Z[:, 1] * Z[:, 4] + Z[:, 5]

    found = attribute_score(stub(predict), X, SPANS)
    for number in range(8):
        wanted = enumerate_values(predict, X, number)
        np.testing.assert_allclose(found.values[number], wanted, atol=1e-12)


def test_drawn_values_come_near_the_definition_with_more_orders(rows, monkeypatch):
    X = rows[0][:8]

    def predict(Z: np.ndarray) -> np.ndarray:
        return expit(3 * Z[:, 0] * Z[:, 1] * Z[:, 4] + Z[:, 2] * Z[:, 0])

    wanted = np.array([enumerate_values(predict, X, number) for number in range(8)])
    errors = []
    for orders in (8, 2048):
        monkeypatch.setattr(shapley, "ORDERS", orders)
        errors.append(np.abs(attribute_score(stub(predict), X, SPANS).values - wanted).mean())
    # Of drawn means the error falls with the root: here by 16.
    assert errors[1] < 0.005 < errors[0] / 4


@pytest.mark.parametrize("kind", ["gbdt", "linear", "random_forest"])
def test_a_column_that_the_model_does_not_use_has_no_value(fitted, rows, kind):
    X, y = rows
    constant = X.copy()
    constant[:, 4] = 1.0
    model = create(kind, **dict(create(kind).example)).fit(constant, y)
    np.testing.assert_allclose(attribute_score(model, X, SPANS).values[:, 3], 0.0, atol=1e-9)


@pytest.mark.parametrize("kind", ["gbdt", "linear"])
def test_a_column_has_the_sum_of_the_values_of_its_features(fitted, rows, kind):
    X = rows[0]
    apart = attribute_score(fitted(kind), X, [(slice(j, j + 1),) for j in range(6)]).values
    merged = attribute_score(fitted(kind), X, SPANS).values
    np.testing.assert_allclose(merged[:, 2], apart[:, [2, 3, 5]].sum(axis=1), atol=1e-6)
    np.testing.assert_array_equal(merged[:, [0, 1, 3]], apart[:, [0, 1, 4]])


@pytest.mark.parametrize("base", [Classifier, Regressor])
def test_a_booster_of_another_library_is_not_taken_for_xgboosts(rows, base):
    X = rows[0][:8]

    class Foreign(base):
        # As LightGBM names its own.
        booster_ = object()

        def predict(self, Z):
            return expit(Z[:, 0] - 2 * Z[:, 4])

        def predict_proba(self, Z):
            return np.column_stack([1 - self.predict(Z), self.predict(Z)])

    found = attribute_score(Foreign(), X, SPANS)
    wanted = expit(X[:, 0] - 2 * X[:, 4])
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), wanted, atol=1e-12)


def stub(predict) -> SimpleNamespace:
    """Return a model whose P(Y=1|x) is a function."""
    return SimpleNamespace(predict_proba=lambda Z: np.column_stack([1 - predict(Z), predict(Z)]))
