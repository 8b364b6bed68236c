"""Rules as meta-estimators: behind estimators of others, and on scores of any scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_predict, cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

import fairfrontier as ff
from fairfrontier.models.base import TrainingWarning, UnfittedError
from fairfrontier.models.thresholds.base import hash_rows
from fairfrontier.runtime.errors import ConfigError, FairfrontierError, InputError

SEED = np.random.default_rng(0)
SIZE = 900
SEX = SEED.choice(["man", "woman"], SIZE)
FRAME = pd.DataFrame(
    {
        "job": pd.Series(SEED.choice(["baker", "clerk", "none"], SIZE)).replace("none", None),
        "age": np.where(SEED.random(SIZE) < 0.1, np.nan, SEED.integers(18, 80, SIZE)),
        "income": SEED.normal(size=SIZE) + 0.8 * (SEX == "man"),
        "sex": SEX,
    }
)
Y = np.where(FRAME["income"] + SEED.normal(size=SIZE) > 0.5, "repaid", "default")
TRAIN, FRESH = np.arange(0, 300), np.arange(300, SIZE)


def make_pipe(classifier: Any) -> Pipeline:
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job"]), (SimpleImputer(), ["age", "income"])
    )
    return make_pipeline(encoder, classifier)


def rates(decision: np.ndarray, groups: np.ndarray) -> pd.Series:
    return pd.Series(decision).groupby(groups).mean()


@pytest.mark.parametrize(
    "classifier",
    [GaussianNB(), LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1), LinearSVC()],
    ids=["proba", "lightgbm", "margin"],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_thresholds_behind_a_fitted_pipeline(classifier, tmp_path):
    pipe = make_pipe(classifier)
    if isinstance(classifier, GaussianNB):
        pipe.steps[0][1].set_params(sparse_threshold=0.0)
    pipe.fit(FRAME.iloc[TRAIN], Y[TRAIN])
    rows, groups = FRAME.iloc[FRESH], FRAME[["sex"]].iloc[FRESH]
    rule = ff.GroupThresholds(pipe, bound=0.01, randomized=False, prefit=True)
    rule.fit(rows, Y[FRESH], sensitive_features=groups)
    decided = rule.predict(rows, sensitive_features=pl.from_pandas(groups))
    gap = np.ptp(rates(decided == "repaid", SEX[FRESH]))
    assert gap == pytest.approx(rule.result_["gap"])
    assert gap <= 0.01
    assert rule.classes_.tolist() == ["default", "repaid"]
    # Thresholds are in the estimator's own numbers.
    score = (
        pipe.decision_function(rows)
        if isinstance(classifier, LinearSVC)
        else pipe.predict_proba(rows)[:, 1]
    )
    cut = rule.thresholds_.set_index("sex")["threshold"][SEX[FRESH]].to_numpy()
    np.testing.assert_array_equal(decided == "repaid", score > cut)
    book = rule.to_rulebook()
    assert {each.group["sex"]: each.cuts[0] for each in book.thresholds} == pytest.approx(
        rule.thresholds_.set_index("sex")["threshold"].to_dict()
    )
    back = ff.load_model(rule.save(tmp_path / "rule"))
    np.testing.assert_array_equal(back.predict(rows, sensitive_features=groups), decided)


class Own(GaussianNB):
    """Of a type that nobody trusts."""


def test_a_rule_is_saved_without_an_estimator_that_would_not_be_read_again(tmp_path):
    X = FRAME[["income"]]
    rule = ff.GroupThresholds(Own(), cv=2).fit(X, Y, sensitive_features=SEX)
    with pytest.warns(UserWarning, match="test_behind.Own"):
        rule.save(tmp_path / "rule")
    back = ff.load_model(tmp_path / "rule")
    score = rule.estimator_.predict_proba(X)[:, 1]
    expected = rule.predict_proba(X, sensitive_features=SEX)
    np.testing.assert_array_equal(back.predict_proba(score, sensitive_features=SEX), expected)
    behind = back.behind(rule.estimator_)
    np.testing.assert_array_equal(behind.predict_proba(X, sensitive_features=SEX), expected)


def test_registered_methods_are_saved_with_their_rule(tmp_path):
    X, y = FRAME[["income"]], Y == "repaid"
    rule = ff.GroupThresholds(ff.GBDT(n_estimators=3), cv=2).fit(X, y, sensitive_features=SEX)
    back = ff.load_model(rule.save(tmp_path / "rule"))
    np.testing.assert_array_equal(
        back.predict(X, sensitive_features=SEX), rule.predict(X, sensitive_features=SEX)
    )


def test_an_estimator_is_fitted_on_all_rows_and_the_rule_on_cross_fitted_scores():
    pipe = make_pipe(LogisticRegression())
    rule = ff.GroupThresholds(pipe, criterion="equalized_odds", cv=3)
    rule.fit(FRAME, Y, sensitive_features=SEX)
    scores = cross_val_predict(pipe, FRAME, Y, cv=3, method="predict_proba")[:, 1]
    other = ff.GroupThresholds(FrozenEstimator(pipe.fit(FRAME, Y)), criterion="equalized_odds")
    other.from_scores(scores, Y, sensitive_features=SEX)
    pd.testing.assert_frame_equal(rule.thresholds_, other.thresholds_)
    decided = [each.predict_proba(FRAME, sensitive_features=SEX) for each in (rule, other)]
    np.testing.assert_array_equal(*decided)


def test_a_frozen_estimator_stays_as_it_is_when_the_rule_is_cloned():
    pipe = make_pipe(LogisticRegression()).fit(FRAME.iloc[TRAIN], Y[TRAIN])
    rule = clone(ff.GroupThresholds(FrozenEstimator(pipe)))
    rule.fit(FRAME.iloc[FRESH], Y[FRESH], sensitive_features=SEX[FRESH])
    assert rule.estimator_.estimator.named_steps == pipe.named_steps
    with pytest.raises(FairfrontierError, match="not fitted"):
        clone(ff.GroupThresholds(pipe, prefit=True)).fit(FRAME, Y, sensitive_features=SEX)


@given(seed=st.integers(0, 10**6), method=st.sampled_from(["exp", "points", "far"]))
def test_only_the_order_of_scores_counts(seed, method):
    rng = np.random.default_rng(seed)
    chance = rng.integers(1, 20, 60) / 20
    y, groups = (rng.random(60) < chance).astype(int), rng.integers(0, 2, 60)
    y[:4], groups[:4] = (0, 1, 0, 1), (0, 0, 1, 1)
    turn = {
        "exp": lambda p: np.exp(9 * p),
        "points": lambda p: 300 + 550 * p**3,
        "far": lambda p: -1e9 / p,
    }[method]

    def decide(score: np.ndarray) -> np.ndarray:
        rule = ff.GroupThresholds(criterion="equal_opportunity", bound=0.1)
        rule.from_scores(score, y, sensitive_features=groups)
        return rule.predict_proba(score, sensitive_features=groups)[:, 1]

    np.testing.assert_allclose(decide(turn(chance)), decide(chance), atol=1e-9)


def test_the_favourable_label_is_chosen(tmp_path):
    X, approved = FRAME[["income"]], np.where(Y == "repaid", "approved", "denied")
    keywords: Any = {"criterion": "equal_opportunity", "bound": 0.0, "cv": 2}
    rule = ff.GroupThresholds(LogisticRegression(), pos_label="approved", **keywords)
    rule.fit(X, approved, sensitive_features=SEX)
    assert rule.classes_.tolist() == ["approved", "denied"]
    same = ff.GroupThresholds(LogisticRegression(), **keywords).fit(X, Y, sensitive_features=SEX)
    for each in (rule, same):
        chance = each.predict_proba(X, sensitive_features=SEX)[:, int(each is same)]
        known = np.flatnonzero(Y == "repaid")
        assert abs(each.score(X, approved if each is rule else Y, sensitive_features=SEX)) > 0.6
        assert chance[known].mean() > 0.5
    np.testing.assert_allclose(
        rule.predict_proba(X, sensitive_features=SEX)[:, ::-1],
        same.predict_proba(X, sensitive_features=SEX),
        atol=1e-9,
    )
    decided = rule.predict(X, sensitive_features=SEX)
    back = ff.load_model(rule.save(tmp_path / "rule"))
    np.testing.assert_array_equal(back.predict(X, sensitive_features=SEX), decided)
    # Scorers take the columns to be in the order of the labels.
    frame = X.assign(sex=SEX)
    inner = make_pipeline(make_column_transformer(("passthrough", ["income"])), GaussianNB())
    areas = [
        cross_validate(
            ff.GroupThresholds(inner, attributes="sex", pos_label=label, bound=0.02, cv=2),
            frame, approved, cv=2, scoring="roc_auc",
        )["test_score"].min()
        for label in ("approved", "denied")
    ]  # fmt: skip
    assert min(areas) > 0.6
    with pytest.raises(ConfigError, match="pos_label"):
        rule.set_params(pos_label="yes").fit(X, approved, sensitive_features=SEX)


def test_draws_follow_what_rows_hold():
    pipe = make_pipe(LogisticRegression()).fit(FRAME.iloc[TRAIN], Y[TRAIN])
    rule = ff.RandomizedThreshold(pipe, prefit=True, width=1.0, rate=0.5)
    rule.fit(FRAME.iloc[FRESH], Y[FRESH], sensitive_features=SEX[FRESH])
    whole = rule.predict(FRAME, sensitive_features=SEX)
    turned = rule.predict(FRAME[::-1], sensitive_features=SEX[::-1])
    np.testing.assert_array_equal(turned[::-1], whole)
    # The encoder takes null for another level than NaN, and so scores Polars' rows otherwise.
    np.testing.assert_array_equal(hash_rows(pl.from_pandas(FRAME)), hash_rows(FRAME))
    one = [rule.predict(FRAME.iloc[[k]], sensitive_features=SEX[[k]])[0] for k in range(5)]
    assert one == whole[:5].tolist()
    expected = rule.predict_proba(FRAME, sensitive_features=SEX)[:, 1].mean()
    assert np.mean(whole == "repaid") == pytest.approx(expected, abs=4 * 0.5 / SIZE**0.5)


def test_rules_in_cross_validation():
    rule = ff.GroupThresholds(make_pipe(LogisticRegression()), attributes="sex", cv=2)
    # The attribute is a column of the rows: any scorer asks for predictions without it.
    found = cross_validate(rule, FRAME, Y, cv=2, scoring=["accuracy", "f1_macro"])
    assert found["test_accuracy"].min() > 0.6
    frozen = FrozenEstimator(make_pipe(LogisticRegression()).fit(FRAME.iloc[TRAIN], Y[TRAIN]))
    with sklearn.config_context(enable_metadata_routing=True):
        rule = ff.GroupThresholds(frozen)
        rule.set_fit_request(sensitive_features=True).set_score_request(sensitive_features=True)
        scores = cross_validate(rule, FRAME, Y, cv=2, params={"sensitive_features": SEX})
    assert scores["test_score"].min() > 0.6


def test_weights_reach_the_estimator_and_the_rule():
    X, copies = FRAME[["income"]].to_numpy(), np.random.default_rng(1).integers(1, 3, SIZE)
    frozen = FrozenEstimator(LogisticRegression().fit(X, Y))
    rows = np.repeat(np.arange(SIZE), copies)
    weighted = ff.GroupThresholds(frozen, bound=0.02)
    weighted.fit(X, Y, sensitive_features=SEX, sample_weight=copies)
    repeated = ff.GroupThresholds(frozen, bound=0.02)
    repeated.fit(X[rows], Y[rows], sensitive_features=SEX[rows])
    assert weighted.result_["value"] == pytest.approx(repeated.result_["value"])
    with pytest.raises(ConfigError, match="The estimator KNeighborsClassifier takes no case"):
        ff.GroupThresholds(KNeighborsClassifier()).fit(
            X, Y, sensitive_features=SEX, sample_weight=copies
        )


class Broken(LogisticRegression):
    def predict_proba(self, X):
        return np.full((len(X), 2), np.nan)


@pytest.mark.parametrize(
    ("estimator", "changes", "fault"),
    [
        (LinearRegression(), {}, "LinearRegression has neither predict_proba"),
        (LogisticRegression(), {"y": Y[:-1]}, "numbers of samples"),
        (LogisticRegression(), {"y": np.full(SIZE, "repaid")}, "one class"),
        (LogisticRegression(), {"X": FRAME[["job"]]}, "LogisticRegression cannot be trained"),
        (Broken(), {}, "Broken has no finite score"),
        (LogisticRegression(), {"sensitive_features": None}, "no sensitive_features"),
        (
            FrozenEstimator(LogisticRegression().fit([[0], [1]], [0, 1])),
            {},
            "knows the labels 0, 1",
        ),
    ],
    ids=str,
)
def test_what_is_refused_names_the_estimator(estimator, changes, fault):
    given = {"X": FRAME[["income"]].to_numpy(), "y": Y, "sensitive_features": SEX, **changes}
    with pytest.raises(FairfrontierError, match=fault):
        ff.GroupThresholds(estimator).fit(**given)


def test_an_attribute_that_is_absent_at_prediction_is_said():
    groups = pd.DataFrame({"sex": SEX, "job": FRAME["job"].fillna("none")})
    rule = ff.GroupThresholds(LogisticRegression(), cv=2)
    rule.fit(FRAME[["income"]], Y, sensitive_features=groups)
    for wrong in (None, groups[["job"]], groups.replace("man", "other")):
        with pytest.raises(InputError):
            rule.predict(FRAME[["income"]], sensitive_features=wrong)


def test_scores_that_predict_backwards_are_said_and_turned(tmp_path):
    score, y = -FRAME["income"].to_numpy(), (Y == "repaid").astype(int)
    with pytest.warns(TrainingWarning, match="flip=True"):
        plain = ff.GroupThresholds(bound=0.01).from_scores(score, y, sensitive_features=SEX)
    rule = ff.GroupThresholds(bound=0.01, flip=True).from_scores(score, y, sensitive_features=SEX)
    assert rule.result_["value"] > plain.result_["value"] + 0.1
    chance = rule.predict_proba(score, sensitive_features=SEX)[:, 1]
    assert np.where(y, chance, 1 - chance).mean() == pytest.approx(rule.result_["value"])
    # The frame says all of it.
    shown = np.zeros(SIZE)
    for row in rule.thresholds_.itertuples():
        passed = (score > row.threshold) == row.above
        shown += (rule.thresholds_.iloc[row.Index, 0] == SEX) * passed * row.share
    np.testing.assert_allclose(shown, chance, atol=1e-12)
    back = ff.load_model(rule.save(tmp_path / "rule"))
    np.testing.assert_array_equal(back.predict_proba(score, sensitive_features=SEX)[:, 1], chance)
    with pytest.raises(ConfigError, match="flips decisions"):
        rule.to_rulebook()


def test_a_model_that_gives_other_scores_is_refused():
    X = FRAME[["income"]]
    model, margin = LogisticRegression().fit(X, Y), LinearSVC().fit(X, Y)
    rule = ff.GroupThresholds(model, prefit=True, scale="margin")
    with pytest.raises(ConfigError):
        rule.from_scores(model.decision_function(X), Y, sensitive_features=SEX)
    rule = ff.GroupThresholds(scale="points")
    rule.from_scores(margin.decision_function(X), Y, sensitive_features=SEX)
    assert len(rule.behind(margin).predict_proba(X, sensitive_features=SEX)) == SIZE
    with pytest.raises(ConfigError):
        rule.behind(model)
    rule = ff.GroupThresholds().from_scores(model.predict_proba(X)[:, 1], Y, sensitive_features=SEX)
    with pytest.raises(ConfigError):
        rule.behind(margin)


def test_groups_are_looked_for_in_the_rows_only_if_the_fit_found_them_there(tmp_path):
    frame = FRAME[["income", "sex"]]
    inner = make_pipeline(make_column_transformer(("passthrough", ["income"])), GaussianNB())
    within = ff.GroupThresholds(inner, attributes="sex", cv=2).fit(frame, Y)
    apart = ff.GroupThresholds(inner, attributes="sex", cv=2)
    apart.fit(frame, Y, sensitive_features=FRAME[["sex"]])
    expected = apart.predict_proba(frame, sensitive_features=SEX)
    np.testing.assert_array_equal(within.predict_proba(frame), expected)
    with pytest.raises(InputError):
        apart.predict_proba(frame)


def test_no_rows_get_no_decisions():
    score = np.linspace(0, 1, SIZE)
    rule = ff.GroupThresholds().from_scores(score, Y, sensitive_features=SEX)
    for groups in (SEX[:0], FRAME[["sex"]].iloc[:0], np.empty((0, 1), dtype=int)):
        assert rule.predict_proba(score[:0], sensitive_features=groups).shape == (0, 2)


def test_equal_rows_are_decided_alike_whatever_the_batch_holds():
    rows = pd.DataFrame({"income": [0.1, 2, 5], "job": pd.Series(["5", None, "a"], dtype=object)})
    whole = hash_rows(rows)
    for k in range(3):
        assert hash_rows(rows.iloc[[k]])[0] == whole[k]
    assert len(set(whole)) == 3
    single = rows.assign(income=rows["income"].astype(np.float32), job=[5.0, None, "a"])
    np.testing.assert_array_equal(hash_rows(single), whole)


def test_many_equal_rows_are_said_to_be_drawn_together():
    X = np.repeat([[-1.0], [0.0], [1.0]], SIZE // 3, axis=0)
    y = (np.arange(SIZE) % 4 < 1 + X[:, 0]).astype(int)
    groups = np.arange(SIZE) % 2
    rule = ff.RandomizedThreshold(FrozenEstimator(LogisticRegression().fit(X, y)), width=1.0)
    rule.set_params(rate=0.25).fit(X, y, sensitive_features=groups)
    with pytest.warns(UserWarning, match="ids="):
        rule.predict(X, sensitive_features=groups)
    rule.predict(X, sensitive_features=groups, ids=np.arange(SIZE))
    for ids in (np.arange(SIZE).astype(str), np.arange(3)):
        with pytest.raises(InputError):
            rule.predict(X, sensitive_features=groups, ids=ids)


def test_weights_are_not_dropped_where_metadata_is_routed():
    X, weight = FRAME[["income"]].to_numpy(), np.linspace(1, 2, SIZE)
    with sklearn.config_context(enable_metadata_routing=True):
        for inner in (LogisticRegression(), make_pipeline(LogisticRegression())):
            with pytest.raises(ConfigError, match="set_fit_request"):
                ff.GroupThresholds(inner, cv=2).fit(
                    X, Y, sensitive_features=SEX, sample_weight=weight
                )
        for takes in (True, False):
            inner = LogisticRegression().set_fit_request(sample_weight=takes)
            rule = ff.GroupThresholds(inner, cv=2)
            rule.fit(X, Y, sensitive_features=SEX, sample_weight=weight)
            alone = LogisticRegression().fit(X, Y, sample_weight=weight if takes else None)
            np.testing.assert_array_equal(rule.estimator_.coef_, alone.coef_)


class Wrapper:
    """What a runtime of other models is made to look like."""

    classes_ = np.array(["default", "repaid"])

    def predict_proba(self, X):
        chance = 1 / (1 + np.exp(-np.asarray(X)[:, 0]))
        return np.column_stack([1 - chance, chance])


def test_what_only_predicts_is_taken_as_it_is():
    X = FRAME[["income"]].to_numpy()
    for inner in (Wrapper(), KNeighborsClassifier().fit(X, Y)):
        rule = ff.GroupThresholds(inner, prefit=True, bound=np.float32(0.1), flip=np.False_)
        rule.fit(X, Y, sensitive_features=SEX, sample_weight=np.linspace(1, 2, SIZE))
        assert np.mean(rule.predict(X, sensitive_features=SEX, ids=np.arange(SIZE)) == Y) > 0.6


def test_numbers_of_numpy_are_saved(tmp_path):
    rule = ff.GroupThresholds(bound=np.int64(0), flip=np.True_, random_state=np.int64(1))
    score = np.linspace(0, 1, SIZE)
    with pytest.raises(UnfittedError):
        rule.save(tmp_path / "none")
    rule.fit(score, Y, sensitive_features=SEX)
    back = ff.load_model(rule.save(tmp_path / "rule"))
    np.testing.assert_array_equal(
        *(each.predict_proba(score, sensitive_features=SEX) for each in (rule, back))
    )


@pytest.mark.parametrize("scale", ["probability", "points"])
def test_two_columns_are_no_scores(scale):
    both = Wrapper().predict_proba(FRAME[["income"]])
    with pytest.raises(FairfrontierError, match="estimator="):
        ff.GroupThresholds(scale=scale).fit(both, Y, sensitive_features=SEX)


def test_tables_of_arrow_are_asked_for_their_groups():
    table = pa.Table.from_pandas(FRAME[["income", "sex"]])
    rule = ff.GroupThresholds(bound=0.1).fit(np.linspace(0, 1, SIZE), Y, sensitive_features=SEX)
    with pytest.raises(FairfrontierError):
        rule.predict(table)
