from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairfrontier.models.objective import choose_cut
from fairfrontier.models.persistence import write_state
from fairfrontier.models.registry import create, load_model
from fairfrontier.models.thresholds.randomized_threshold import (
    CRITERIA,
    SOLVERS,
    WIDTHS,
    RandomizedThreshold,
    list_rates,
)
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.models.thresholds.made import make_part

TRAIN, CHECK, TEST = (make_part(0), make_part(1, 2000, "validation"), make_part(2, 2000, "test"))


def fit(part: Part = TRAIN, y=True, **parameters) -> RandomizedThreshold:
    keywords = {"validation": parameters.pop("validation", None), "sensitive_features": part.groups}
    model = create("randomized_threshold", **parameters)
    return model.fit(part.X, part.y if y else None, sample_weight=part.weight, **keywords)


def rates(model: RandomizedThreshold, part: Part) -> np.ndarray:
    """Return E[h | sex, race]."""
    h = model.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    cell = part.groups @ [3, 1]
    return np.bincount(cell, part.weight * h, 6) / np.bincount(cell, part.weight, 6)


@pytest.mark.parametrize("solver", ["exact", "histogram"])
def test_every_cell_of_the_cross_gets_the_rate(solver):
    model = fit(width=0.1, rate=0.3, solver=solver, y=False)
    assert rates(model, TRAIN) == pytest.approx(np.full(6, 0.3), abs=2e-4)
    assert model.result_["rates"] == pytest.approx(rates(model, TRAIN).tolist())
    assert model.cells_.tolist() == [[a, b] for a in range(2) for b in range(3)]
    assert (model.width_, model.rate_) == (0.1, 0.3)
    assert np.isnan(model.base_rate_)
    assert model.candidates_.empty


@pytest.mark.parametrize("width", [None, 0.1])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_rates_are_those_of_the_fitted_rows_by_cell(criterion, width):
    model = fit(criterion=criterion, width=width, within=1 if criterion == "covariance" else None)
    assert np.ptp(rates(model, TRAIN)) > 0 or criterion == "parity"
    assert model.result_["rates"] == pytest.approx(rates(model, TRAIN).tolist(), abs=1e-9)
    assert model.result_["rows"] == np.bincount(TRAIN.groups @ [3, 1]).tolist()


def test_parity_on_one_attribute_leaves_the_other_alone():
    model = fit(attributes=0, width=0.05, rate=0.4)
    h = model.predict_proba(TRAIN.X, sensitive_features=TRAIN.groups)[:, 1]
    by = [[h[TRAIN.groups[:, j] == k].mean() for k in range(3 if j else 2)] for j in range(2)]
    assert by[0] == pytest.approx([0.4, 0.4])
    assert np.ptp(by[1]) > 0.02
    within = fit(attributes=[0, 1], width=0.05, rate=0.4)
    assert np.ptp(rates(within, TRAIN)) < 1e-9


def test_budget_leaves_room():
    model = fit(width=0.1, rate=0.3, budget=0.1)
    assert np.ptp(rates(model, TRAIN)) == pytest.approx(0.1, abs=1e-9)
    assert fit(width=0.1, rate=0.3, budget=2.0).rule_.threshold.tolist() == [0.0] * 6


def expected_accuracy(model: RandomizedThreshold, part: Part) -> float:
    h = model.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    return float(np.average(np.where(part.y == 1, h, 1 - h), weights=part.weight))


def test_choice_is_the_best_of_the_grid_on_validation():
    weighted = replace(CHECK, weight=1.0 + np.arange(2000) % 3)
    model = fit(validation=weighted)
    table = model.candidates_
    assert len(table) == len(WIDTHS) * 5
    assert model.base_rate_ == pytest.approx(TRAIN.y.mean())
    offsets = np.unique((table.rate - model.base_rate_).round(9))
    assert offsets == pytest.approx([-0.1, -0.05, 0, 0.05, 0.1])
    for row in table.iloc[[0, 7, 33, 64]].itertuples():
        single = fit(width=row.width, rate=row.rate)
        assert expected_accuracy(single, weighted) == pytest.approx(row.accuracy)
        assert np.ptp(rates(single, weighted)) == pytest.approx(row.gap)
    best = table.loc[table.accuracy.idxmax()]
    assert (model.width_, model.rate_) == (best.width, best.rate)
    assert expected_accuracy(model, weighted) == pytest.approx(table.accuracy.max())
    again = fit(width=model.width_, rate=model.rate_)
    assert again.rule_.to_json() == model.rule_.to_json()


COSTS = {"costs": {"false_positive": 1, "false_negative": 4}}


def make_rare(seed: int, n: int, name: str = "train") -> Part:
    """Draw calibrated probabilities of a tenth of positives, rarer in one sex."""
    part, generator = make_part(seed, n, name), np.random.default_rng(seed)
    score = generator.beta(0.5 + 0.3 * part.groups[:, 0], 5.5)
    y = (generator.random(n) < score).astype(np.int64)
    return replace(part, X=score[:, None], y=y, weight=1.0 + np.arange(n) % 2)


def measure(objective, model: RandomizedThreshold, part: Part) -> float:
    """Return the expected objective of decisions, of costs the share that is saved."""
    h = model.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    positive, negative = part.weight * part.y, part.weight * (1 - part.y)
    missed, alarmed = positive @ (1 - h), negative @ h
    if objective == "balanced_accuracy":
        return 1 - (missed / positive.sum() + alarmed / negative.sum()) / 2
    return 1 - (4 * missed + alarmed) / (4 * positive.sum() + negative.sum())


@pytest.mark.parametrize("objective", ["balanced_accuracy", COSTS], ids=str)
@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_pair_of_width_and_rate_is_judged_by_the_objective(objective, criterion):
    part, fresh = make_rare(0, 120), make_rare(1, 80, "validation")
    given = {"criterion": criterion, "attributes": 0, "objective": objective}
    widths = [0.05, 0.4] if criterion == "equalized_odds" else [0.0, 0.05, 0.4]
    model = fit(part, width_grid=widths, validation=fresh, **given)
    table, found = model.candidates_, []
    rates_tried = {"parity": 5, "covariance": 1}.get(criterion, 6)
    assert len(table) == len(widths) * rates_tried
    for width, *rate, _, _ in table.to_numpy().tolist():
        fixed = rate if len(rate) > 1 else rate[0] if rate else None
        single = fit(part, width=width, rate=fixed, **given)
        found.append(measure(objective, single, fresh))
    assert table.objective.tolist() == pytest.approx(found)
    best = np.flatnonzero(np.round(found, 9) == np.round(max(found), 9))
    assert model.width_ == table.width[best].min()
    assert measure(objective, model, fresh) == pytest.approx(max(found))


def test_rates_are_around_that_of_the_best_cut():
    part = make_rare(0, 300)
    model = fit(part, objective="balanced_accuracy")
    cut = choose_cut(part.X[:, 0], part.y, part.weight, "balanced_accuracy")
    centre = np.average(part.X[:, 0] >= cut, weights=part.weight)
    assert sorted(set(model.candidates_.rate)) == pytest.approx(list_rates(centre))
    # Without a budget a rate fixes the rule.
    given = {"width": model.width_, "rate": model.rate_}
    assert fit(part, **given).rule_.threshold == pytest.approx(model.rule_.threshold, abs=1e-12)


@pytest.mark.parametrize("criterion", ["parity", "covariance", "equal_opportunity"])
def test_costs_are_prices_in_any_currency(criterion):
    part = make_rare(0, 400)
    rules = []
    for factor in (1, 7, 0.1):
        costs = {name: factor * value for name, value in COSTS["costs"].items()}
        given = {"criterion": criterion, "attributes": 0, "objective": {"costs": costs}}
        rules.append(fit(part, budget=0.05, validation=make_rare(1, 300), **given).rule_.to_json())
    assert rules[0] == rules[1] == rules[2]


@pytest.mark.parametrize(
    ("criterion", "solver"),
    [*(("parity", solver) for solver in SOLVERS), *((each, "exact") for each in CRITERIA[1:])],
)
def test_where_the_budget_binds_nothing_the_best_cut_is_left(criterion, solver):
    part = make_rare(0, 2000)
    model = fit(
        part, criterion=criterion, attributes=0, budget=2.0, solver=solver,
        width=1e-4, objective="balanced_accuracy",
    )  # fmt: skip
    cut = choose_cut(part.X[:, 0], part.y, part.weight, "balanced_accuracy")
    h = model.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    assert np.abs(h - (part.X[:, 0] >= cut)).mean() < 0.002


def test_an_objective_needs_labels_and_a_name():
    with pytest.raises(DataError, match="labels are needed for 'objective'"):
        fit(y=False, width=0.1, rate=0.3, objective="balanced_accuracy")
    with pytest.raises(ConfigError, match="'objective'"):
        fit(objective="f1")
    with pytest.raises(ConfigError, match="with numbers above 0"):
        fit(objective={"costs": {"false_positive": 1, "false_negative": 0}})


def test_one_of_the_two_may_be_given():
    assert set(fit(width=0.2).candidates_.width) == {0.2}
    table = fit(rate=0.25).candidates_
    assert set(table.rate) == {0.25}
    assert len(table) == len(WIDTHS)


def test_without_validation_the_fitted_rows_judge():
    model = fit(width_grid=[0.1, 0.4])
    assert model.candidates_.accuracy.max() == pytest.approx(expected_accuracy(model, TRAIN))


def test_ties_go_to_the_narrowest_and_the_nearest():
    # Scores at both ends decide alike under every width and rate offset of 0.
    part = replace(TRAIN, X=TRAIN.y[:, None].astype(float), groups=TRAIN.groups * 0)
    model = fit(part, budget=2.0)
    assert (model.candidates_.accuracy == 1).all()
    assert model.width_ == 0.01
    assert model.rate_ == pytest.approx(model.base_rate_)


def test_models_of_former_versions_name_the_steps_of_a_descent(tmp_path):
    model = fit(width=0.1, rate=0.3)
    former = {"solver": "sgd", "steps": None, "batch_size": 1, "learning_rate": None}
    write_state(tmp_path / "m", model.name, model.get_params() | former, model.pack_state(), ())
    loaded = load_model(tmp_path / "m")
    assert loaded.rule_.to_json() == model.rule_.to_json()


def test_width_0_tosses_coins_at_scores():
    coarse = replace(TRAIN, X=np.round(TRAIN.X, 1))
    model = fit(coarse, width=0, rate=0.35)
    assert rates(model, coarse) == pytest.approx(np.full(6, 0.35))
    h = model.predict_proba(coarse.X, sensitive_features=coarse.groups)[:, 1]
    assert len(set(np.unique(h)) - {0.0, 1.0}) == 6


def test_margins_and_signed_scores_are_the_same_scores():
    p = TRAIN.X[:, 0]
    plain = fit(width=0.1, rate=0.3)
    for scale, score in (("margin", np.log(p / (1 - p))), ("signed", 2 * p - 1)):
        other = fit(replace(TRAIN, X=score), width=0.1, rate=0.3, scale=scale)
        assert other.rule_.threshold == pytest.approx(plain.rule_.threshold)


@pytest.mark.parametrize("kind", ["isotonic", "sigmoid"])
def test_calibration_mends_squeezed_scores(kind, tmp_path):
    squeezed = replace(TRAIN, X=0.4 + 0.2 * TRAIN.X)
    model = fit(squeezed, width=0.1, rate=0.3, calibrate=kind)
    inner = model.calibration_.apply(np.array([-0.1, 0.0, 0.1]))
    assert inner == pytest.approx([-0.5, 0.0, 0.5], abs=0.15)
    assert (np.diff(model.calibration_.apply(np.linspace(-1, 1, 50))) >= 0).all()
    assert rates(model, squeezed) == pytest.approx(np.full(6, 0.3))
    loaded = RandomizedThreshold.load(model.save(tmp_path / "model"))
    answers = [
        each.predict_proba(squeezed.X, sensitive_features=TRAIN.groups) for each in (model, loaded)
    ]
    assert answers[0].tobytes() == answers[1].tobytes()
    plain = model.set_params(calibrate=None).fit(squeezed.X, sensitive_features=squeezed.groups)
    assert plain.calibration_ is None


def covariances(model: RandomizedThreshold, part: Part) -> list[float]:
    h = model.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    found = []
    for k in range(3):
        held = part.groups[:, 1] == k
        found.append(np.cov(h[held], part.groups[held, 0], ddof=0)[0, 1])
    return found


@pytest.mark.parametrize(("attributes", "within"), [(0, 1), (0, [1]), (None, 1)])
def test_a_rule_within_subgroups_comes_back(attributes, within, tmp_path):
    model = fit(criterion="covariance", attributes=attributes, within=within)
    back = load_model(model.save(tmp_path / "rule"))
    given = {"X": TRAIN.X, "sensitive_features": TRAIN.groups}
    assert np.array_equal(back.predict_proba(**given), model.predict_proba(**given))


def test_covariance_within_subgroups():
    free = fit(criterion="covariance", attributes=0, within=1, width=0.1, budget=1.0)
    assert min(covariances(free, TRAIN)) > 0.02
    for budget in (0.0, 0.01):
        model = fit(criterion="covariance", attributes=0, within=1, width=0.1, budget=budget)
        assert covariances(model, TRAIN) == pytest.approx([budget] * 3, abs=1e-9)
        assert model.rate_ is None
        assert model.result_["converged"]
    assert list(model.cells_[0]) == [0, 0]
    named = fit(criterion="covariance", within=[1], width=0.1, budget=0.01)
    assert named.rule_.to_json() == model.rule_.to_json()
    alone = fit(criterion="covariance", attributes=0, width=0.1)
    h = alone.predict_proba(TRAIN.X, sensitive_features=TRAIN.groups)[:, 1]
    assert np.cov(h, TRAIN.groups[:, 0])[0, 1] == pytest.approx(0, abs=1e-9)


def estimated(model: RandomizedThreshold, part: Part) -> np.ndarray:
    """Return the true and false positive rates by sex, as the scores estimate them."""
    h, p = model.predict_proba(part.X, sensitive_features=part.groups)[:, 1], part.X[:, 0]
    sex = part.groups[:, 0]
    return np.array(
        [
            [np.average(h[sex == k], weights=z[sex == k]) for k in range(2)]
            for z in (p, 1 - p)
        ]
    )  # fmt: skip


def test_error_rates_as_the_scores_estimate_them():
    opportunity = fit(criterion="equal_opportunity", attributes=0, width=0.1, rate=0.6)
    assert estimated(opportunity, TRAIN)[0] == pytest.approx([0.6, 0.6])
    odds = fit(criterion="equalized_odds", attributes=0, width=0.1, rate=[0.5, 0.3])
    assert odds.result_["converged"]
    assert estimated(odds, TRAIN).tolist() == [pytest.approx([0.5, 0.5]), pytest.approx([0.3, 0.3])]
    assert odds.rate_ == (0.5, 0.3)
    beyond = fit(criterion="equalized_odds", attributes=0, width=0.1, rate=[1.0, 0.0])
    assert not beyond.result_["converged"]
    assert min(beyond.result_["violation"]) > 0.1


@pytest.mark.parametrize(
    ("criterion", "columns"),
    [("covariance", []), ("equal_opportunity", ["rate"]), ("equalized_odds", ["tpr", "fpr"])],
)
def test_other_criteria_choose_by_accuracy_too(criterion, columns, tmp_path):
    part = TRAIN.take(np.arange(400))
    model = fit(part, criterion=criterion, attributes=0, width_grid=[0.1, 0.5], validation=CHECK)
    table = model.candidates_
    assert list(table.columns) == ["width", *columns, "accuracy", "gap"]
    assert len(table) == (12 if columns else 2)
    assert expected_accuracy(model, CHECK) == pytest.approx(table.accuracy.max())
    loaded = RandomizedThreshold.load(model.save(tmp_path / "model"))
    assert loaded.rate_ == model.rate_
    assert loaded.candidates_.equals(table)
    answers = [
        each.predict_proba(TEST.X, sensitive_features=TEST.groups) for each in (model, loaded)
    ]
    assert answers[0].tobytes() == answers[1].tobytes()
    given = fit(part, criterion=criterion, attributes=0, width=model.width_, rate=model.rate_)
    assert given.rule_.to_json() == model.rule_.to_json()


def test_decisions_depend_on_seed_row_score_and_group_alone():
    model = fit(width=0.5, rate=0.3)
    whole = model.predict(TEST.X, sensitive_features=TEST.groups, ids=TEST.ids)
    order = np.random.default_rng(0).permutation(TEST.n_samples)
    moved = TEST.take(order)
    np.testing.assert_array_equal(
        model.predict(moved.X, sensitive_features=moved.groups, ids=moved.ids), whole[order]
    )
    chunks = [TEST.take(rows) for rows in np.array_split(np.arange(TEST.n_samples), 7)]
    pieces = [
        model.predict(each.X, sensitive_features=each.groups, ids=each.ids) for each in chunks
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    probability = model.predict_proba(TEST.X, sensitive_features=TEST.groups)[:, 1]
    assert abs(whole.mean() - probability.mean()) < 0.03
    other = model.set_params(random_state=1).predict(
        TEST.X, sensitive_features=TEST.groups, ids=TEST.ids
    )
    assert 0.05 < np.mean(other != whole) < 0.6
    renamed = model.predict(TEST.X, sensitive_features=TEST.groups, ids=TEST.ids + 1)
    assert (renamed != other).any()
    with pytest.raises(ConfigError, match="no ids"):
        model.predict(TEST.X, sensitive_features=TEST.groups)


def test_a_group_without_validation_rows_is_named():
    kept = CHECK.take(np.flatnonzero((CHECK.groups != [1, 2]).any(axis=1)))
    with pytest.raises(DataError, match=r"No validation row .* \[1, 2\]"):
        fit(validation=kept)
    # Nothing is chosen, so nothing is missing.
    fit(validation=kept, width=0.1, rate=0.3)
    with pytest.raises(DataError, match=r"No fitted row .* \[1, 2\]"):
        fit(replace(TRAIN, weight=1.0 - (TRAIN.groups == [1, 2]).all(axis=1)))


def test_an_unknown_group_is_refused():
    few = TRAIN.take(np.flatnonzero(TRAIN.groups[:, 1] < 2))
    model = fit(few, width=0.1, rate=0.3)
    with pytest.raises(DataError, match=r"without a row of the group \[0, 2\]"):
        model.predict_proba(TEST.X, sensitive_features=TEST.groups)
    with pytest.raises(DataError, match="without a row"):
        fit(few, validation=CHECK)


def test_supports_says_why_not():
    split = Split("made", 0, "binary", ("score",), {}, {}, train=TRAIN)
    for parameters in ({}, {"criterion": "covariance", "attributes": 0, "within": 1}):
        assert create("randomized_threshold", **parameters).supports(split) is None
    race = create("randomized_threshold", criterion="covariance", attributes=1)
    assert "race has 3" in race.supports(split)
    assert "scores" in race.supports(split.replace(feature_names=("a", "b")))


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"rate": 1.2}, "rate"),
        ({"rate": -0.1}, "rate"),
        ({"rate": [0.3, 0.2]}, "rate"),
        ({"rate": 0.3, "criterion": "covariance"}, "rate"),
        ({"rate": 0.3, "criterion": "equalized_odds"}, "rate"),
        ({"width": -1.0}, "width"),
        ({"width": 1e-9}, "width"),
        ({"width": 0.0, "solver": "histogram"}, "width"),
        ({"width": 0.0, "criterion": "equalized_odds"}, "width"),
        ({"width_grid": []}, "width_grid"),
        ({"width_grid": [0.1, 0.0], "solver": "histogram"}, "width_grid"),
        ({"rate_offsets": 0.1}, "rate_offsets"),
        ({"budget": -0.1}, "budget"),
        ({"criterion": "fairness"}, "criterion"),
        ({"solver": "histogram", "criterion": "covariance"}, "solver"),
        ({"solver": "adam"}, "solver"),
        ({"within": 1}, "within"),
        ({"bins": 0}, "bins"),
        ({"calibrate": "platt"}, "calibrate"),
        ({"scale": "logit"}, "scale"),
    ],
)
def test_parameters_that_cannot_be(parameters, named):
    with pytest.raises(ConfigError, match=f"parameter '{named}'"):
        fit(**parameters)


def test_other_faults_of_the_caller():
    with pytest.raises(DataError, match="labels are needed for 'rate'"):
        fit(y=False, width=0.1)
    with pytest.raises(DataError, match="labels are needed for 'calibrate'"):
        fit(y=False, width=0.1, rate=0.3, calibrate="sigmoid")
    with pytest.raises(DataError, match="given 3 classes"):
        fit(replace(TRAIN, y=np.arange(len(TRAIN.y)) % 3))
    with pytest.raises(ConfigError, match="more than two levels"):
        fit(criterion="covariance", attributes=1)
    with pytest.raises(ConfigError, match="Name one column"):
        fit(criterion="covariance")
    with pytest.raises(DataError, match="lie in 0 to 1"):
        fit(replace(TRAIN, X=2 * TRAIN.X - 1))
