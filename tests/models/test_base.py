import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from fairfrontier.models.base import unit_weight
from fairfrontier.models.group import take_attribute
from fairfrontier.models.registry import METHODS, create, load_model
from fairfrontier.runtime.errors import (
    ConfigError,
    DataError,
    FairfrontierError,
    InputError,
    InputTypeError,
)

generator = np.random.default_rng(0)
X = generator.normal(size=(40, 3))
CODES = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(np.int64)


def test_no_weights_are_ones():
    assert np.array_equal(unit_weight(None, 3), np.ones(3))


def test_whole_numbers_and_noughts_are_weights():
    weight = unit_weight(np.array([0, 2, 1]), 3)
    assert weight.dtype == np.float64
    assert np.array_equal(weight, [0.0, 2.0, 1.0])


@pytest.mark.parametrize("wrong", [[1.0, -1.0], [1.0, np.nan], [np.inf, 1.0], [1.0], [[1.0, 1.0]]])
def test_weights_below_nought_or_beyond_numbers_are_refused(wrong):
    with pytest.raises(DataError):
        unit_weight(np.array(wrong), 2)


def test_an_attribute_is_a_column_of_groups():
    groups = np.array([[0, 1], [2, 3]])
    assert np.array_equal(take_attribute(groups, 1), [1, 3])
    assert np.array_equal(take_attribute(groups, -2), [0, 2])


@pytest.mark.parametrize(("shape", "attribute"), [((2, 2), 2), ((2, 2), -3), ((2,), 1)])
def test_a_column_that_groups_do_not_have_is_refused(shape, attribute):
    with pytest.raises(ConfigError):
        take_attribute(np.zeros(shape, dtype=np.int64), attribute)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("adversarial_debiasing", {}),
        ("fair_classification", {}),
        ("fair_regression", {"budget": 0.1}),
        ("noisy_naive", {}),
        ("reweigh", {}),
        ("seo", {}),
    ],
)
def test_methods_refuse_an_attribute_that_groups_do_not_have(name, parameters):
    generator = np.random.default_rng(0)
    label = np.arange(20) % 2
    y = label if "binary" in METHODS.find(name).task else label.astype(np.float64)
    groups = np.stack([label, 1 - label], axis=1)
    model = create(name, attribute=2, **parameters)
    with pytest.raises(ConfigError):
        model.fit(generator.normal(size=(20, 3)), y, sensitive_features=groups)


LABELS = [
    np.array(["no", "yes"]),
    np.array(["no", "yes"], dtype=object),
    np.array([False, True]),
    np.array([3, 7]),
    np.array([-1.0, 1.0]),
]


@pytest.mark.parametrize("name", ["gbdt", "linear", "nn", "random_forest"])
@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_labels_of_any_kind_come_back_and_are_saved(name, labels, tmp_path):
    frame = pd.DataFrame(X, columns=["income", "age", "hours"])
    model = create(name, **METHODS.find(name).example).fit(frame, labels[CODES])
    coded = create(name, **METHODS.find(name).example).fit(X, CODES)
    assert np.array_equal(model.classes_, labels)
    assert np.array_equal(model.predict_proba(frame), coded.predict_proba(X))
    assert np.array_equal(model.predict(frame), labels[coded.predict(X)])
    assert model.score(frame, labels[CODES]) == coded.score(X, CODES)
    loaded = load_model(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict(frame), model.predict(frame))
    assert loaded.classes_.dtype.kind == np.asarray(labels.tolist()).dtype.kind
    assert list(loaded.feature_names_in_) == list(frame.columns)
    with pytest.raises(InputError):
        loaded.predict(frame[["age", "income", "hours"]])


def test_labels_of_a_frame_may_be_categories():
    y = pd.Series(np.array(["no", "yes"])[CODES], dtype="category")
    assert set(create("linear").fit(X, y).predict(X)) == {"no", "yes"}


@pytest.mark.parametrize(
    ("rows", "y", "match"),
    [
        (X[:, 0], CODES, "Expected 2D array"),
        (X[:5], CODES, "inconsistent numbers of samples"),
        (np.where(X > 2, np.inf, X), CODES, "infinity"),
        (X, np.zeros(40), "one class only, 0"),
        (X, X[:, 0], "continuous"),
        (X.astype(complex), CODES, "Complex data"),
        (X.astype(str)[:, :1] + "a", CODES, "could not convert"),
        (X, None, "requires y"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_in_a_sentence(rows, y, match):
    with pytest.raises(InputError, match=match) as caught:
        create("gbdt").fit(rows, y)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in caught.value.fault


def test_more_classes_than_a_method_learns_are_refused():
    with pytest.raises(InputError):
        create("fair_gbm").fit(X, np.arange(40) % 3, sensitive_features=CODES)


def test_what_was_not_fitted_says_so():
    with pytest.raises(FairfrontierError) as caught:
        create("gbdt").predict(X)
    assert isinstance(caught.value, NotFittedError)


def test_other_features_than_those_of_the_fit_are_refused():
    model = create("gbdt").fit(X, CODES)
    with pytest.raises(InputError, match="X has 2 features, but GBDT is expecting 3"):
        model.predict(X[:, :2])


def test_missing_values_are_for_trees():
    holed = np.where(X > 1.5, np.nan, X)
    assert set(create("gbdt").fit(holed, CODES).predict(holed)) == {0, 1}
    with pytest.raises(InputError):
        create("linear").fit(holed, CODES)


@pytest.mark.parametrize("method", ["fit", "predict", "predict_proba"])
def test_the_former_keyword_groups_is_refused_by_the_name_of_the_new_one(method):
    call = getattr(create("group_thresholds"), method)
    assert "sensitive_features" in inspect.signature(call).parameters
    given = (np.zeros(4), np.arange(4) % 2) if method == "fit" else (np.zeros(4),)
    with pytest.raises(InputTypeError, match="sensitive_features"):
        call(*given, groups=np.zeros((4, 1), dtype=np.int64))
