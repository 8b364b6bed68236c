import numpy as np
import pandas as pd
import pytest

from fairfrontier.models.base import TrainingWarning
from fairfrontier.models.thresholds.curve import BOUNDED
from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
from fairfrontier.runtime.errors import ConfigError, DataError, InputError


def make_rows(n=600, seed=0):
    generator = np.random.default_rng(seed)
    groups = np.column_stack([generator.integers(2, size=n), generator.integers(3, size=n)])
    score = generator.beta(2 + groups[:, 0], 3)
    return score, (generator.random(n) < score).astype(np.int64), groups


def rates(chance, y, code):
    kinds = (np.ones(len(y), bool), y == 1, y == 0)
    codes = range(code.max() + 1)
    return np.array([[chance[kind & (code == k)].mean() for kind in kinds] for k in codes])


@pytest.mark.parametrize("criterion", BOUNDED)
@pytest.mark.parametrize("randomized", [True, False])
def test_rates_differ_by_the_bound_at_most(criterion, randomized):
    score, y, groups = make_rows()
    model = GroupThresholds(criterion=criterion, bound=0.05, randomized=randomized)
    chance = model.fit(score, y, sensitive_features=groups).predict_proba(
        score, sensitive_features=groups
    )[:, 1]
    found = rates(chance, y, groups @ [3, 1])[:, BOUNDED[criterion]]
    gaps = np.ptp(found, axis=0)
    gap = gaps.mean() if criterion == "average_odds" else gaps.max()
    assert gap <= 0.05 + 1e-12
    assert gap == pytest.approx(model.result_["gap"])
    assert model.score(score, y, sensitive_features=groups) == pytest.approx(model.result_["value"])
    assert set(np.unique(chance)) <= {0.0, 1.0} or randomized


def test_one_attribute_of_two_makes_the_groups():
    score, y, groups = make_rows()
    model = GroupThresholds(attributes=0).fit(score, y, sensitive_features=groups)
    assert len(model.cells_) == 2
    chance = model.predict_proba(score, sensitive_features=groups)[:, 1]
    assert np.ptp(rates(chance, y, groups[:, 0])[:, 0]) < 1e-12


def test_calibrated_scores_stand_for_labels():
    score, _, groups = make_rows()
    model = GroupThresholds(criterion="equal_opportunity").fit(score, sensitive_features=groups)
    chance = model.predict_proba(score, sensitive_features=groups)[:, 1]
    code = groups @ [3, 1]
    expected = [np.average(chance[code == k], weights=score[code == k]) for k in range(6)]
    assert np.ptp(expected) < 1e-12


def test_smoothed_labels_serve_fresh_rows_better_when_rows_are_few():
    fresh = make_rows(20_000, seed=99)
    code = fresh[2][:, 0]

    def reach(labels, seed):
        score, y, groups = make_rows(120, seed=seed)
        model = GroupThresholds(criterion="equal_opportunity", attributes=0, labels=labels)
        model.fit(score, y, sensitive_features=groups)
        chance = model.predict_proba(fresh[0], sensitive_features=fresh[2])[:, 1]
        return model.score(fresh[0], fresh[1], sensitive_features=fresh[2]), np.ptp(
            rates(chance, fresh[1], code)[:, 1]
        )

    observed, smoothed = (
        np.mean([reach(labels, seed) for seed in range(20)], axis=0)
        for labels in ("observed", "smoothed")
    )
    assert smoothed[0] > observed[0]
    assert smoothed[1] < 0.8 * observed[1]


def test_costs_move_the_thresholds():
    score, y, groups = make_rows()
    chosen = []
    for miss in (0.2, 1.0, 5.0):
        costs = {"costs": {"false_positive": 1.0, "false_negative": miss}}
        model = GroupThresholds(objective=costs, randomized=False, bound=0.1)
        chance = model.fit(score, y, sensitive_features=groups).predict_proba(
            score, sensitive_features=groups
        )[:, 1]
        chosen.append(chance.mean())
        cost = np.mean(np.where(y == 1, miss * (1 - chance), chance))
        assert model.result_["value"] == pytest.approx(-cost)
    assert chosen[0] < chosen[1] - 0.1 < chosen[2] - 0.2


def test_all_or_none_holds_for_scores_that_were_not_seen():
    score, groups = np.array([0.4, 0.5, 0.6, 0.7]), np.array([0, 0, 1, 1])
    model = GroupThresholds(bound=1.0).fit(score, np.array([0, 0, 1, 1]), sensitive_features=groups)
    asked = np.array([1.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(
        model.predict_proba(asked, sensitive_features=groups)[:, 1], [0, 0, 1, 1]
    )
    assert np.isfinite(model.rule_.threshold).all()


@pytest.mark.parametrize("randomized", [True, False])
def test_unseen_groups_are_refused_or_pooled(randomized):
    score, y, groups = make_rows(2000)
    seen = groups[:, 1] < 2
    asked = {"sensitive_features": groups[~seen]}
    options = {"attributes": 1, "bound": 0.02, "randomized": randomized}
    model = GroupThresholds(**options).fit(score[seen], y[seen], sensitive_features=groups[seen])
    with pytest.raises(DataError, match=r"\[2\]"):
        model.predict_proba(score[~seen], **asked)
    pooled = GroupThresholds(**options, unseen="pooled")
    pooled.fit(score[seen], y[seen], sensitive_features=groups[seen])
    np.testing.assert_array_equal(
        pooled.predict_proba(score[seen], sensitive_features=groups[seen]),
        model.predict_proba(score[seen], sensitive_features=groups[seen]),
    )
    everyone = np.full((int(seen.sum()), 2), 2)
    reached = pooled.predict_proba(score[seen], sensitive_features=everyone)[:, 1].mean()
    own = np.array(pooled.result_["rates"])[:, 0]
    assert own.min() - 1e-3 <= reached <= own.max() + 1e-3


def test_rows_of_one_class_have_no_error_rate():
    score, y, groups = make_rows()
    y = np.where(groups[:, 0] == 1, 1, y)
    GroupThresholds(attributes=0).fit(score, y, sensitive_features=groups)
    for criterion in ("predictive_equality", "equalized_odds"):
        with pytest.raises(InputError, match=r"one class"):
            GroupThresholds(attributes=0, criterion=criterion).fit(
                score, y, sensitive_features=groups
            )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", "auc"),
        ("objective", {"costs": {"false_positive": 1}}),
        ("objective", {"costs": {"false_positive": 0, "false_negative": 0}}),
        ("criterion", "odds"),
        ("bound", -0.1),
        ("bound", float("nan")),
        ("randomized", 1),
        ("no_harm", "yes"),
        ("unseen", "guess"),
    ],
)
def test_parameters_that_cannot_be(name, value):
    score, y, groups = make_rows(60)
    with pytest.raises(ConfigError, match=name):
        GroupThresholds(**{name: value}).fit(score, y, sensitive_features=groups)


def test_bounds_in_words_hold_at_once_for_named_and_numbered_attributes():
    score, y, groups = make_rows(n=1200)
    named = pd.DataFrame(
        {"sex": np.array(["f", "m"])[groups[:, 0]], "race": np.array(list("abc"))[groups[:, 1]]}
    )
    model = GroupThresholds(
        bounds=["selection_rate_ratio:race >= 0.9", "tpr_difference:sex | race <= 0.02"]
    ).fit(score, y, sensitive_features=named)
    chance = model.predict_proba(score, sensitive_features=named)[:, 1]
    selected = rates(chance, y, groups[:, 1])[:, 0]
    assert selected.min() >= 0.9 * selected.max() - 1e-9
    within = [
        rates(chance[part], y[part], groups[part, 0])[:, 1]
        for part in (groups[:, 1] == k for k in range(3))
    ]
    assert max(map(np.ptp, within)) <= 0.02 + 1e-9
    assert model.result_["dual_value"] == pytest.approx(model.result_["value"], abs=1e-8)
    numbered = GroupThresholds(
        bounds=["selection_rate_ratio:1 >= 0.9", "tpr_difference:0 | 1 <= 0.02"]
    ).fit(score, y, sensitive_features=groups)
    assert numbered.result_["value"] == pytest.approx(model.result_["value"], abs=1e-12)


def test_a_rule_of_bounds_is_saved(tmp_path):
    score, y, groups = make_rows()
    model = GroupThresholds(bounds=["selected <= 60", "share:0=1 >= 0.3"])
    model.fit(score, y, sensitive_features=groups)
    read = GroupThresholds.load(model.save(tmp_path / "rule"))
    args = {"sensitive_features": groups}
    np.testing.assert_array_equal(
        model.predict_proba(score, **args), read.predict_proba(score, **args)
    )
    assert model.predict_proba(score, **args)[:, 1].sum() == pytest.approx(60)
    with pytest.raises(ConfigError):
        model.to_rulebook()


def test_small_strata_are_pooled_and_named():
    score, y, groups = make_rows(n=400)
    place = np.array([*"xyz"] * 134)[:400]
    place[:9], place[9:18] = "p", "q"
    given = {"sex": groups[:, 0], "place": place}
    model = GroupThresholds(bounds=["selection_rate_difference:sex | place <= 0.01"])
    assert model.fit(score, y, sensitive_features=given).result_["strata"] == ["p", "q"]


@pytest.mark.parametrize(
    "setting",
    [
        {"bounds": []},
        {"bounds": "selected <= 5"},
        {"bounds": ["selected <= 5"], "no_harm": True},
        {"bounds": ["selected <= 5"], "objective": "f1"},
        {"bounds": ["tpr_min:age >= 0.5"]},
        {"bounds": ["tpr:0=7 >= 0.5"]},
        {"bounds": ["tpr_min:1 >= 0.5"], "attributes": [0]},
        {"bounds": ["tpr_min:0 >= 1", "selection_rate <= 0.01"]},
    ],
    ids=str,
)
def test_bounds_that_cannot_be_kept_or_read_are_refused(setting):
    score, y, groups = make_rows()
    with pytest.raises(ConfigError):
        GroupThresholds(**setting).fit(score, y, sensitive_features=groups)


def test_a_group_of_whom_nobody_is_selected_has_no_precision():
    score, y, groups = make_rows()
    y = np.where((groups[:, 0] == 0) & (np.arange(len(y)) % 7 > 0), 0, y)
    model = GroupThresholds(bounds=["ppv_min:0 >= 0.95"])
    with pytest.warns(TrainingWarning):
        model.fit(score, y, sensitive_features=groups)
