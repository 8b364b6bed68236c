from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

from fairfrontier.models.baseline.linear import Linear
from fairfrontier.models.prediction import predict_part, task_of
from fairfrontier.prepare.split import Variant
from fairfrontier.runtime.errors import DataError
from papers.rival.hardt import Hardt
from tests.metrics.made import MadeSet, make_part

X = np.linspace(-1, 1, 20)[:, None]
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.tile([0, 1], 10)[:, None]
FLIP = MadeSet((Variant("down", X - 2, GROUPS), Variant("up", X + 2, 1 - GROUPS)))
PART = make_part(Y, GROUPS, {"sex": ("F", "M")}, X=X, counterfactuals={"shift": FLIP})


class Rule:
    """Answers with a fixed function, and remembers how it was asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def predict_proba(self, X, **keywords):
        self.asked.append(keywords)
        return np.asarray(self.answer(X), dtype=float)


def two(p):
    return np.column_stack([1 - p, p])


def test_foreign_classifier():
    model = LogisticRegression().fit(X, Y)
    found = predict_part(model, PART)
    np.testing.assert_array_equal(found.score, model.predict_proba(X)[:, 1])
    np.testing.assert_array_equal(found.decision, Y)
    assert [name for name, _ in found.counterfactuals["shift"]] == ["down", "up"]
    assert (found.counterfactuals["shift"][0][1] == 0).all()
    assert (found.counterfactuals["shift"][1][1] == 1).all()


@pytest.mark.parametrize(
    ("columns", "told"),
    [(["age", "size"], "in another order than"), (["age", "sizes"], "that are not")],
)
def test_a_model_of_other_features_is_refused(columns, told):
    part = replace(PART, X=np.hstack([X, X]), feature_names=("size", "age"), counterfactuals={})
    frame = pd.DataFrame(np.hstack([X, X]), columns=columns)
    inner = Linear().fit(frame, Y)
    for model in (inner, Hardt().behind(inner)):
        with pytest.raises(DataError, match=f"{told} those of made: 'age' stood where 'size'"):
            predict_part(model, part)
    named = replace(part, feature_names=tuple(columns))
    assert predict_part(inner, named).decision.shape == (20,)


def test_one_half_is_decided_one():
    assert (predict_part(Rule(lambda X: np.full((len(X), 2), 0.5)), PART).decision == 1).all()


def test_random_rule_keeps_its_probabilities():
    class Coin(Rule):
        randomized = True

    found = predict_part(Coin(lambda X: two(np.full(len(X), 0.3))), PART)
    assert (found.decision == 0.3).all()
    assert (found.counterfactuals["shift"][0][1] == 0.3).all()


@pytest.mark.parametrize(
    "needs", [set(), {"sensitive_features"}, {"ids"}, {"sensitive_features", "ids"}]
)
def test_groups_and_ids_are_passed_where_needed(needs):
    class Asking(Rule):
        predict_needs = frozenset(needs)

    rule = Asking(lambda X: two(np.zeros(len(X))))
    predict_part(rule, PART)
    assert [set(each) for each in rule.asked] == [needs] * 3
    if "sensitive_features" in needs:
        np.testing.assert_array_equal(rule.asked[0]["sensitive_features"], GROUPS)
        np.testing.assert_array_equal(rule.asked[2]["sensitive_features"], 1 - GROUPS)
    if "ids" in needs:
        np.testing.assert_array_equal(rule.asked[1]["ids"], PART.ids)


def test_classifier_without_probabilities():
    found = predict_part(LinearSVC().fit(X, Y), PART)
    np.testing.assert_array_equal(found.decision, Y)
    np.testing.assert_array_equal(found.score, Y)


def test_fit_that_saw_one_class_only():
    one = Rule(lambda X: np.ones((len(X), 1)))
    one.classes_ = np.array([1])
    assert (predict_part(one, PART).score == 1).all()


def test_three_classes_and_one_unseen():
    part = make_part(np.arange(20) % 3, GROUPS, {"sex": "FM"}, X=X, classes=("a", "b", "c"))
    model = LogisticRegression().fit(X, 2 * Y)
    found = predict_part(model, part)
    assert found.score.shape == (20, 3)
    assert (found.score[:, 1] == 0).all()
    np.testing.assert_array_equal(found.decision, 2 * Y)
    Random = type("Random", (Rule,), {"randomized": True})
    with pytest.raises(DataError, match="is randomised, and made has 3 classes"):
        predict_part(Random(lambda X: np.full((len(X), 3), 1 / 3)), part)


def test_regression():
    part = make_part(X[:, 0], GROUPS, {"sex": "FM"}, X=X, classes=())
    found = predict_part(LinearRegression().fit(X, X[:, 0]), part)
    np.testing.assert_allclose(found.score, X[:, 0])
    assert task_of(part) == "regression"


class Mixture:
    """Draws one of three lines through the origin."""

    task = frozenset({"regression"})

    def __init__(self, probability):
        self.probability_ = np.asarray(probability)

    def predict_components(self, X):
        return X * np.array([1.0, 2.0, 5.0])

    def predict(self, X):
        return self.predict_components(X) @ self.probability_


def test_a_randomised_regression_keeps_what_each_regressor_says():
    part = make_part(X[:, 0], GROUPS, {"sex": "FM"}, X=X, classes=(), counterfactuals={"s": FLIP})
    found = predict_part(Mixture([0.25, 0.0, 0.75]), part)
    np.testing.assert_array_equal(found.components, X * np.array([1.0, 5.0]))
    np.testing.assert_array_equal(found.probability, [0.25, 0.75])
    np.testing.assert_allclose(found.score, 4 * X[:, 0])
    np.testing.assert_array_equal(found.outcomes[0], found.components)
    np.testing.assert_allclose(found.counterfactuals["s"][0][1], 4 * (X[:, 0] - 2))
    sure = predict_part(Mixture([0.0, 1.0, 0.0]), part)
    assert sure.components is None
    values, probability = sure.outcomes
    np.testing.assert_array_equal(values[:, 0], 2 * X[:, 0])
    assert probability.tolist() == [1.0]


def test_the_numbers_behind_a_randomised_classifier_are_kept():
    class Chance(Mixture):
        task = frozenset({"binary", "regression"})

        def predict_proba(self, X):
            return two(1 / (1 + np.exp(-self.predict(X))))

    for probability in ([0.25, 0.0, 0.75], [0.0, 1.0, 0.0]):
        model = Chance(probability)
        found = predict_part(model, PART)
        np.testing.assert_array_equal(found.score, model.predict_proba(X)[:, 1])
        np.testing.assert_array_equal(found.decision, found.score >= 0.5)
        drawn = np.flatnonzero(probability)
        np.testing.assert_array_equal(found.components, model.predict_components(X)[:, drawn])
        np.testing.assert_array_equal(found.probability, np.array(probability)[drawn])


@pytest.mark.parametrize("probability", [[0.5, 0.5, 0.5], [1.5, -0.5, 0.0], [0.5, 0.5, np.nan]])
def test_probabilities_of_regressors_add_up_to_one(probability):
    part = make_part(X[:, 0], GROUPS, {"sex": "FM"}, X=X, classes=())
    with pytest.raises(DataError):
        predict_part(Mixture(probability), part)


def test_regressors_answer_every_row():
    part = make_part(X[:, 0], GROUPS, {"sex": "FM"}, X=X, classes=())
    with pytest.raises(DataError, match=r"shape \(20, 3\) on made/test, not \(20, 2\)"):
        predict_part(Mixture([0.5, 0.5]), part)


def test_a_regression_decides_nothing():
    with pytest.raises(DataError):
        predict_part(Mixture([1.0, 0.0, 0.0]), PART)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda X: np.full((len(X), 2), np.nan), "returns NaN or infinities on made/test"),
        (lambda X: np.ones((len(X), 3)) / 3, r"shape \(20, 3\) on made/test, not \(20, 2\)"),
        (lambda X: np.ones(len(X)), r"shape \(20,\) on made/test"),
        (lambda X: two(np.full(len(X), 1.5)), "returns values outside 0 to 1"),
    ],
)
def test_answers_that_cannot_be(answer, sentence):
    with pytest.raises(DataError, match=sentence):
        predict_part(Rule(answer), PART)


def test_labels_that_are_not_codes():
    model = LogisticRegression().fit(X, np.where(Y, "ja", "nein"))
    with pytest.raises(DataError, match=r"was fitted on labels .* codes its classes 0 to 1"):
        predict_part(model, PART)
    with pytest.raises(DataError):
        predict_part(LinearRegression().fit(X, Y), PART)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_without_versions_are_not_asked_again(n_classes):
    having = np.array([2, 3, 11])
    moved = [X.copy(), X.copy()]
    moved[0][having], moved[1][having] = X[having] - 2, X[having] + 2
    variants = tuple(Variant(name, x, GROUPS) for name, x in zip("ab", moved, strict=True))
    part = make_part(
        Y, GROUPS, {"sex": ("F", "M")}, X=X, classes=tuple("abc")[:n_classes],
        counterfactuals={"some": MadeSet(variants, having), "all": FLIP},
    )  # fmt: skip

    def answer(X):
        p = 1 / (1 + np.exp(-X[:, 0]))
        return np.column_stack([1 - p, *[p / (n_classes - 1)] * (n_classes - 1)])

    model = Rule(answer)
    model.predict_needs = frozenset({"sensitive_features", "ids"})
    found = predict_part(model, part)
    assert list(found.counterfactual_scores) == ["some", "all"]
    assert found.counterfactual_scores["all"][0].shape[0] == 20
    assert found.counterfactuals["all"][0][1].shape == (20,)
    for position, sign in enumerate((-2, 2)):
        wanted = answer(X[having] + sign)
        decision = found.counterfactuals["some"][position][1]
        np.testing.assert_array_equal(decision, wanted.argmax(axis=1))
        score = found.counterfactual_scores["some"][position]
        wanted = wanted[:, 1] if n_classes == 2 else wanted
        np.testing.assert_array_equal(score, wanted.astype(np.float32).astype(np.float64))
        assert score.dtype == np.float64
    assert [len(asked["ids"]) for asked in model.asked] == [20, 3, 3, 20, 20]
    np.testing.assert_array_equal(model.asked[1]["ids"], part.ids[having])
