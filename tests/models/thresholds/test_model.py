from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

from fairfrontier import create, evaluate, load, load_model, post_process
from fairfrontier.models.prediction import predict_part
from fairfrontier.models.thresholds.model import fit_processor
from fairfrontier.prepare.split import Split, Variant
from fairfrontier.runtime.errors import ConfigError, DataError, InputError
from tests.metrics.made import MadeSet, make_part
from tests.project import DATASET, make_project

METHODS = ["group_thresholds", "randomized_threshold", "hardt", "reject_option", "shift_inference"]
LEVELS = {"sex": ("F", "M"), "race": ("A", "B", "C"), "place": ("{group}", "[0]")}
FRESH = "split: {kind: random, train: 0.4, calibration: 0.2, validation: 0.2, test: 0.2}"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Split:
    dataset = DATASET.replace("split: {kind: random, train: 0.6, test: 0.4}", FRESH)
    home: Path = make_project(tmp_path_factory.mktemp("project"), dataset=dataset)
    return load("loans", home=home)


@pytest.fixture(scope="module")
def model(split: Split) -> RandomForestClassifier:
    # Not of the house: it knows nothing of groups, ids or saving.
    forest = RandomForestClassifier(n_estimators=20, max_depth=4, random_state=0)
    return forest.fit(split.train.X, split.train.y)


@pytest.mark.parametrize("method", METHODS)
def test_any_model_is_post_processed(model, split, method):
    chain = post_process(model, split, method, attributes="origin")
    rows = evaluate(chain, split.test).set_index(["measure", "group"])["value"]
    plain = evaluate(model, split.test).set_index(["measure", "group"])["value"]
    key = ("selection_rate_difference", "origin")
    assert 0 <= rows[key] <= 1
    assert rows["accuracy", ""] > 0.5
    if method in ("group_thresholds", "randomized_threshold"):
        assert rows[key] < plain[key]
        fresh = split.calibration
        decided = chain.predict_proba(fresh.X, sensitive_features=fresh.groups)[:, 1]
        rates = [decided[fresh.group("origin") == code].mean() for code in range(3)]
        assert np.ptp(rates) == pytest.approx(0.0, abs=1e-9)


def test_a_model_may_name_the_classes_otherwise(model, split, tmp_path):
    named = clone(model).fit(split.train.X, np.where(split.train.y == 1, "yes", "no"))
    part = split.test
    decided = [
        post_process(each, split, "group_thresholds", attributes="origin").predict(
            part.X, sensitive_features=part.groups, ids=part.ids
        )
        for each in (named, model)
    ]
    np.testing.assert_array_equal(*decided)
    back = load_model(
        post_process(named, split, "group_thresholds", attributes="origin").save(tmp_path / "rule")
    )
    given = {"sensitive_features": part.groups, "ids": part.ids}
    np.testing.assert_array_equal(back.predict(part.X, **given), decided[0])
    with pytest.raises(ConfigError, match="pos_label"):
        post_process(model, split, "group_thresholds", attributes="origin", pos_label=0)


def test_groups_without_calibration_rows_are_refused_or_pooled(model, split):
    fresh = split.calibration
    short = split.replace(calibration=fresh.take(np.flatnonzero(fresh.group("origin") < 2)))
    with pytest.raises(DataError, match="No calibration row") as refused:
        post_process(model, short, "group_thresholds", attributes="origin")
    assert "with unseen: pooled" in refused.value.mend
    with pytest.raises(DataError, match="No calibration row") as refused:
        post_process(model, short, "hardt", attributes="origin")
    assert "unseen" not in refused.value.mend
    chain = post_process(model, short, "group_thresholds", attributes="origin", unseen="pooled")
    chosen = chain.predict_proba(split.test.X, sensitive_features=split.test.groups)[:, 1]
    assert 0 < chosen[split.test.group("origin") == 2].mean() < 1


@pytest.fixture(scope="module")
def scored() -> Split:
    """Ten rows of every combination of groups, with scores of both labels."""
    groups = np.argwhere(np.ones((2, 3, 2))).repeat(10, axis=0)
    y = np.tile([0, 1], 60)
    part = make_part(y, groups, LEVELS, X=np.linspace(0.1, 0.9, 120)[:, None])
    parts = {name: replace(part, name=name) for name in ("train", "calibration", "test")}
    return Split("made", 0, "binary", ("score",), {}, {}, **parts)


@settings(deadline=None)
@given(
    method=st.sampled_from(METHODS),
    chosen=st.permutations(range(3)).flatmap(lambda order: st.sampled_from([order[:2], order])),
    cell=st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)),
    fault=st.sampled_from(["weight", "validation", "class", "train", "variant"]),
    whole=st.booleans(),
)
def test_the_group_is_named_whatever_is_wrong_with_it(scored, method, chosen, cell, fault, whole):
    chosen = [0, 1, 2] if whole else chosen
    fitted = scored.calibration
    own = (fitted.groups[:, chosen] == np.take(cell, chosen)).all(axis=1)
    rule, checked = create(method, attributes=None if whole else chosen), None
    if fault == "weight":
        part = replace(fitted, weight=1.0 - own)
    elif fault == "validation":
        part, checked = fitted, replace(fitted, name="validation", weight=1.0 - own)
        if method not in ("randomized_threshold", "reject_option"):
            return
    elif fault == "class":
        part = replace(fitted, y=np.where(own, 0, fitted.y))
        if method == "group_thresholds":
            rule.set_params(criterion="equal_opportunity")
        elif method not in ("hardt", "shift_inference"):
            return
    else:
        part = fitted.take(np.flatnonzero(~own))
    asked = scored.train if fault == "train" else part
    if fault == "variant":
        flip = MadeSet((Variant("flipped", part.X, np.tile(cell, (part.n_samples, 1))),))
        asked = replace(part, counterfactuals={"flip": flip})
    split = scored.replace(calibration=part, validation=checked, test=part)

    def use() -> None:
        fit_processor(rule, split, part.X[:, 0], None if checked is None else checked.X[:, 0])
        predict_part(rule, asked)

    with pytest.raises(InputError) as refused:
        use()
    levels = [f"{name}={LEVELS[name][cell[i]]}" for i, name in enumerate(LEVELS)]
    named = ", ".join(levels[column] for column in chosen)
    assert f"the group {named}" in refused.value.fault
    assert ("unseen: pooled" in refused.value.mend) == (
        method == "group_thresholds" and fault in ("train", "variant")
    )


def test_draws_belong_to_rows(model, split):
    chain = post_process(model, split, attributes="origin", random_state=5)
    part = split.test
    whole = chain.predict(part.X, sensitive_features=part.groups, ids=part.ids)
    order = np.random.default_rng(0).permutation(part.n_samples)
    some = order[:40]
    np.testing.assert_array_equal(
        chain.predict(part.X[some], sensitive_features=part.groups[some], ids=part.ids[some]),
        whole[some],
    )
    by_content = chain.predict(part.X, sensitive_features=part.groups)
    np.testing.assert_array_equal(
        chain.predict(part.X[order], sensitive_features=part.groups[order]), by_content[order]
    )
    with pytest.raises(ConfigError, match="no ids"):
        chain.rule.predict(part.X[:, 0] > 0, sensitive_features=part.groups)


def test_equals_the_parts_put_together_by_hand(split):
    model = create("linear").fit(split.train.X, split.train.y)
    chain = post_process(model, split, attributes="origin", width=0.2, rate=0.4)
    fresh, part = split.calibration, split.test
    rule = create("randomized_threshold", attributes=0, width=0.2, rate=0.4)
    rule.fit(model.predict_proba(fresh.X)[:, 1], fresh.y, sensitive_features=fresh.groups)
    np.testing.assert_array_equal(
        chain.predict_proba(part.X, sensitive_features=part.groups),
        rule.predict_proba(model.predict_proba(part.X)[:, 1], sensitive_features=part.groups),
    )


@pytest.mark.parametrize(
    ("changes", "parameters", "message"),
    [
        ({"calibration": None, "validation": None}, {}, "no calibration part"),
        ({}, {"attributes": "orgin"}, r"orgin.*Did you mean 'origin'"),
        ({}, {"method": "linear"}, "does not decide from scores"),
        ({}, {"widht": 1}, r"widht.*Did you mean 'width'"),
        ({"task": "regression"}, {}, "learns binary"),
    ],
)
def test_what_cannot_be_is_said(model, split, changes, parameters, message):
    with pytest.raises(ConfigError, match=message):
        post_process(model, split.replace(**changes), **parameters)


def test_names_are_refused_where_columns_are_meant(model, split):
    fresh = split.calibration
    rule = create("randomized_threshold", attributes="origin")
    with pytest.raises(ConfigError):
        rule.fit(model.predict_proba(fresh.X)[:, 1], fresh.y, sensitive_features=fresh.groups)
