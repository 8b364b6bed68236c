from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

import fairfrontier as ff
from fairfrontier.auditing.debias import (
    AFTER,
    _square_differences,
    decide_rows,
    describe_doubt,
    fit_debiasing,
    hold_out,
    measure_objective,
    read_again,
)
from fairfrontier.auditing.option import DebiasConfig
from fairfrontier.models.base import TrainingWarning
from fairfrontier.models.thresholds import sample
from fairfrontier.models.thresholds.base import find_backward
from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
from fairfrontier.models.thresholds.randomized_threshold import RandomizedThreshold
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.auditing.scored import make_scores


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "scores.parquet"
    make_scores().to_parquet(path, row_group_size=500)
    return path


def ask(path, **options):
    given = {"table": str(path), "scores": "s", "groups": ["sex", "race"], "ids": "id"}
    # Pooling has tests of its own.
    return DebiasConfig(**given | {"pool_below": 0} | options)


def means(frame, h):
    """Return E[h] of each group, in order."""
    return frame.assign(h=h).groupby(["sex", "race"])["h"].mean().to_numpy()


def decide(debiasing, frame):
    book = debiasing.rulebook
    cells = {cell: code for code, cell in enumerate(book.cells)}
    columns = [frame[column] for column in debiasing.columns.groups]
    code = np.array([cells[cell] for cell in zip(*columns, strict=True)])
    return book.decision_rule.probability(2 * frame["s"].to_numpy() - 1, code)


def test_every_group_gets_the_rate_on_the_rows_of_the_fit(scored):
    frame = pd.read_parquet(scored)
    found = fit_debiasing(ask(scored))
    kept = hold_out(frame["id"].to_numpy(), found.config)
    assert 0.45 < kept.mean() < 0.55
    target = found.rulebook.target.rate
    assert target == pytest.approx(frame.loc[~kept, "s"].mean())
    h = decide(found, frame)
    np.testing.assert_allclose(means(frame[~kept], h[~kept]), target, atol=1e-9)
    # On fresh rows within what a sample of this size shows.
    np.testing.assert_allclose(means(frame[kept], h[kept]), target, atol=0.1)
    assert found.rulebook.rule.width == 0.1
    assert [each.n for each in found.rulebook.thresholds] == (
        frame[~kept].groupby(["sex", "race"]).size().tolist()
    )


def test_a_budget_lets_rates_differ_by_so_much(scored):
    frame = pd.read_parquet(scored)
    found = fit_debiasing(ask(scored, budget=0.1, rate=0.4, holdout=0.0))
    rates = means(frame, decide(found, frame))
    assert np.ptp(rates) == pytest.approx(0.1, abs=1e-9)
    assert (abs(rates - 0.4) <= 0.05 + 1e-9).all()


def make_part(frame, groups):
    """Return rows of a table as a part, for the estimator."""
    return Part(
        dataset="scores",
        name="validation",
        ids=frame["id"].to_numpy(),
        X=frame["s"].to_numpy()[:, None],
        y=frame["y"].to_numpy(),
        groups=groups,
        protected=groups.astype(np.float64),
        weight=np.ones(len(frame)),
        attributes={"sex": ("Female", "Male"), "race": ("A", "B")},
        classes=("0", "1"),
    )


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("solver", ["exact", "histogram"])
def test_width_and_rate_are_chosen_as_the_estimator_chooses_them(scored, tmp_path, tied, solver):
    frame = pd.read_parquet(scored)
    if tied:
        # Scores that know the label: under a loose budget every width and rate is always right.
        frame["s"] = frame["y"].astype(float)
    frame.to_parquet(tmp_path / "scores.parquet")
    given = {"budget": 1.0 if tied else 0.0, "solver": solver, "bins": 1 << 12}
    found = fit_debiasing(ask(tmp_path / "scores.parquet", labels="y", **given))
    kept = hold_out(frame["id"].to_numpy(), found.config)
    groups = np.column_stack([frame["sex"] == "Male", frame["race"] == "B"]).astype(np.int64)
    fitted, checked = (make_part(frame[each], groups[each]) for each in (~kept, kept))
    model = RandomizedThreshold(**given)
    model.fit(fitted.X, fitted.y, sensitive_features=fitted.groups, validation=checked)
    assert (np.ptp(model.candidates_.accuracy) < 1e-9) == tied
    assert found.rulebook.rule.width == model.width_
    assert found.rulebook.target.rate == pytest.approx(model.rate_)
    np.testing.assert_allclose(found.rulebook.decision_rule.threshold, model.rule_.threshold)
    assert found.fitted["settings"] == len(model.candidates_) == 65


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({"budget": 0.02}, {"bound": 0.02}),
        ({"criterion": "equalized_odds", "unseen": "pooled"}, {"unseen": "pooled"}),
        ({"criterion": "equal_opportunity", "certain": True}, {"randomized": False}),
        # Of windows of two lengths not all are tried.
        (
            {"criterion": "average_odds", "certain": True, "budget": 0.05},
            {"randomized": False, "bound": 0.05},
        ),
        ({"criterion": "predictive_equality", "no_harm": True}, {}),
        ({"objective": "balanced_accuracy"}, {}),
        (
            {"objective": "1,4"},
            {"objective": {"costs": {"false_positive": 1, "false_negative": 4}}},
        ),
        ({"labels": None}, {}),
        ({"pool_below": 1000}, {"pool_below": 1000}),
    ],
)
def test_exact_thresholds_are_those_of_the_estimator(scored, options, parameters):
    frame = pd.read_parquet(scored)
    found = fit_debiasing(ask(scored, **{"labels": "y", "rule": "group_thresholds"} | options))
    kept = hold_out(frame["id"].to_numpy(), found.config)
    groups = np.column_stack([frame["sex"] == "Male", frame["race"] == "B"]).astype(np.int64)
    fitted = make_part(frame[~kept], groups[~kept])
    shared = {
        name: options[name] for name in ("criterion", "objective", "no_harm") if name in options
    }
    model = GroupThresholds(**shared | parameters)
    model.fit(fitted.X, None if "labels" in options else fitted.y, sensitive_features=fitted.groups)
    rule = found.rulebook.decision_rule
    assert rule.to_json() == model.rule_.to_json()
    assert found.rulebook.target.criterion == model.criterion
    assert found.fitted["value"] == model.result_["value"]
    assert found.fitted["converged"] == model.result_["converged"]
    assert found.fitted["pooled"] == np.count_nonzero(model.result_["pooled"])
    assert (found.fitted["pooled"] > 0) == ("pool_below" in options)
    assert (rule.share.shape[1] == 1) == bool(options.get("certain"))
    assert found.curve["bias"].iloc[0] < found.curve["bias"].iloc[-1]
    # On one column alone its own groups are equal, the crossed ones are not.
    own = found.alone["sex"]
    assert np.array_equal(own.threshold[0], own.threshold[1])
    assert not np.array_equal(own.threshold[1], own.threshold[2])


def test_a_group_of_one_class_has_no_true_positive_rate(tmp_path):
    frame = make_scores(600)
    frame.loc[frame["race"] == "B", "y"] = 0
    frame.to_parquet(tmp_path / "a.parquet")
    options = {"labels": "y", "rule": "group_thresholds", "criterion": "equal_opportunity"}
    with pytest.raises(DataError):
        fit_debiasing(ask(tmp_path / "a.parquet", **options))


def test_f1_needs_rows_that_are_labelled_one(tmp_path):
    path = tmp_path / "scores.parquet"
    make_scores().assign(y=0).to_parquet(path)
    config = ask(path, rule="group_thresholds", labels="y", objective="f1")
    with pytest.raises(DataError, match="labelled 1, and F1 is of such rows"):
        fit_debiasing(config)


def test_a_histogram_is_within_its_bound_of_the_scores(scored):
    frame = pd.read_parquet(scored)
    options = {"width": 0.2, "rate": 0.4, "holdout": 0.0}
    exact = fit_debiasing(ask(scored, **options, solver="exact"))
    binned = fit_debiasing(ask(scored, **options, solver="histogram", bins=256))
    bound = binned.fitted["parity_error_at_most"]
    assert bound == 1 / (256 * 0.2)
    rates = means(frame, decide(binned, frame))
    np.testing.assert_allclose(rates, 0.4, atol=bound)
    assert not np.allclose(rates, means(frame, decide(exact, frame)), atol=1e-9)


def test_parity_on_one_column_alone_is_fitted_beside(scored):
    frame = pd.read_parquet(scored)
    found = fit_debiasing(ask(scored, width=0.1, rate=0.4, holdout=0.0))
    codes, levels = found.attributes()["sex"]
    assert levels == ("Female", "Male")
    assert list(found.attributes()) == ["sex", "race", "sex×race"]
    rule = found.alone["sex"]
    code = codes.searchsorted(np.array([levels.index(each) for each in frame["sex"]]))
    h = rule.probability(2 * frame["s"].to_numpy() - 1, code)
    rates = frame.assign(h=h).groupby("sex")["h"].mean()
    np.testing.assert_allclose(rates, 0.4, atol=1e-9)
    # Inside the levels of sex, race still matters: this is what the cross product is for.
    assert np.ptp(means(frame, h)) > 0.1
    assert len(found.rules()) == 4
    assert list(found.rules())[-1] == AFTER


def test_the_curve_ends_where_nothing_binds(scored):
    frame = pd.read_parquet(scored)
    found = fit_debiasing(ask(scored, labels="y", holdout=0.0, width=0.1))
    curve = found.curve
    assert curve["bias"].iloc[0] == pytest.approx(0, abs=1e-9)
    assert (curve["bias"].diff().dropna() >= -1e-12).all()
    h = np.clip((2 * frame["s"] - 1) / 0.1, 0, 1)
    assert curve["bias"].iloc[-1] == pytest.approx(np.ptp(means(frame, h)), abs=1e-9)
    right = np.where(frame["y"] == 1, h, 1 - h).mean()
    assert curve["accuracy"].iloc[-1] == pytest.approx(right, abs=1e-9)


def test_the_order_and_the_batches_of_rows_change_no_threshold(scored, tmp_path, monkeypatch):
    frame = pd.read_parquet(scored)
    frame.sample(frac=1, random_state=1).to_parquet(tmp_path / "other.parquet", row_group_size=77)
    monkeypatch.setattr(sample, "FLUSH_ROWS", 300)
    for solver in ("exact", "histogram"):
        first = fit_debiasing(ask(scored, labels="y", solver=solver)).rulebook
        second = fit_debiasing(ask(tmp_path / "other.parquet", labels="y", solver=solver)).rulebook
        assert first.thresholds == second.thresholds
        assert first.target == second.target


def test_width_zero_needs_the_scores_themselves(scored, monkeypatch):
    frame = pd.read_parquet(scored)
    found = fit_debiasing(ask(scored, width=0, rate=0.4, holdout=0.0))
    np.testing.assert_allclose(means(frame, decide(found, frame)), 0.4, atol=1e-9)
    monkeypatch.setattr(sample, "EXACT_ROWS", 100)
    with pytest.raises(ConfigError):
        fit_debiasing(ask(scored, width=0, rate=0.4))


def test_weights_count(tmp_path):
    frame = make_scores(1000)
    frame["w"] = np.where(np.arange(1000) % 2, 3.0, 0.5)
    frame.to_parquet(tmp_path / "a.parquet")
    found = fit_debiasing(ask(tmp_path / "a.parquet", weights="w", rate=0.3, holdout=0.0))
    frame["h"] = decide(found, frame)
    for _, group in frame.groupby(["sex", "race"]):
        assert np.average(group["h"], weights=group["w"]) == pytest.approx(0.3, abs=1e-9)


def test_a_group_without_rows_in_a_part_is_named(tmp_path):
    frame = make_scores(1000)
    frame.loc[0, "race"] = "C"
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"group sex×race=\w+×C has 1 row, but no row.*--holdout 0"):
        fit_debiasing(ask(tmp_path / "a.parquet"))
    assert len(fit_debiasing(ask(tmp_path / "a.parquet", holdout=0)).rulebook.thresholds) == 5


def test_one_group_is_refused(tmp_path):
    make_scores(100).assign(sex="F", race="A").to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="all rows are of one group, sex×race=F×A"):
        fit_debiasing(ask(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"groups": ()}, "scores and groups are needed"),
        ({"groups": ("sex", "sex")}, "names a column twice"),
        ({"positive": "yes"}, "positive is given without labels"),
        ({"width": 0, "solver": "histogram"}, "positive widths only"),
        ({"width": 1e-9}, "width is 1e-09"),
        ({"bins": 7}, "multiple of 2"),
        ({"budget": -0.1}, "greater than or equal to 0"),
        ({"holdout": 1.0}, "less than 1"),
        ({"apply": "rule.json", "pool_below": 1000}, "groups is given beside apply"),
        ({"scal": "margin"}, "no key 'scal'"),
        ({"certain": True}, "certain is given with the rule randomized_threshold"),
        ({"rule": "group_thresholds", "width": 0.1}, "width is given with the rule group_thresh"),
        ({"rule": "group_thresholds", "solver": "histogram"}, "solver is histogram"),
        ({"rule": "group_thresholds", "criterion": "equalized_odds"}, "there are no labels"),
        ({"rule": "group_thresholds", "objective": "auc"}, "objective is auc"),
        ({"rule": "group_thresholds", "objective": "1,2,3"}, "objective is 1,2,3"),
        ({"rule": "group_thresholds", "objective": "1,-2"}, "objective is 1,-2"),
        ({"rule": "group_thresholds", "objective": "1,x"}, "objective is 1,x"),
    ],
)
def test_what_cannot_be_asked_for_is_said(scored, options, told):
    with pytest.raises(ValidationError, match=told):
        ask(scored, **options)


def test_groups_with_few_rows_are_pooled_and_the_curve_is_that_of_the_rule(scored):
    frame = pd.read_parquet(scored)
    found = fit_debiasing(ask(scored, width=0.1, rate=0.4, holdout=0.0, labels="y", pool_below=600))
    sizes = frame.groupby(["sex", "race"]).size().to_numpy()
    assert found.fitted["pooled"] == (sizes < 600).sum() > 0
    rates = means(frame, decide(found, frame))
    np.testing.assert_allclose(rates[sizes >= 600], 0.4, atol=1e-9)
    assert (abs(rates[sizes < 600] - 0.4) > 1e-6).all()
    np.testing.assert_allclose([each.rate for each in found.rulebook.thresholds], rates)
    assert found.curve["bias"].iloc[0] == pytest.approx(np.ptp(rates), abs=1e-9)


@pytest.mark.parametrize("helps", [True, False])
def test_what_a_rule_does_to_fresh_rows_is_cross_validated(tmp_path, helps):
    frame = make_scores(1300)
    if not helps:
        # Groups that say nothing about the score: there is no bias to be lowered.
        rng = np.random.default_rng(5)
        frame["sex"] = rng.choice(["Female", "Male"], len(frame))
        frame["race"] = rng.choice(["A", "B", "C", "D"], len(frame))
    frame.to_parquet(tmp_path / "a.parquet")
    frame.sample(frac=1, random_state=1).to_parquet(tmp_path / "b.parquet")
    found, other = (
        fit_debiasing(ask(tmp_path / f"{name}.parquet", labels="y", width=0.1, holdout=0.0))
        for name in "ab"
    )
    assert found.expected == other.expected
    bias = {each["attribute"]: each for each in found.expected["bias"]}
    crossed = bias["sex×race"]
    # On the rows of the fit itself there is no bias at all.
    assert np.ptp(means(frame, decide(found, frame))) < 1e-9 < 0.01 < crossed["after"]
    before = (frame["s"] >= 0.5).astype(float)
    # Less than it seems by what chance adds.
    assert crossed["before"] < np.ptp(means(frame, before)) < crossed["before"] + 0.15
    right = np.where(frame["y"] == 1, before, 1 - before).mean()
    assert found.expected["accuracy"]["before"] == pytest.approx(right)
    assert ("sex×race from" in describe_doubt(found.expected)) != helps
    if helps:
        assert crossed["after"] < crossed["before"] / 2


@pytest.mark.parametrize(
    ("criterion", "objective", "given", "join"),
    [
        ("parity", "accuracy", [None], max),
        ("equal_opportunity", "1,5", [1], max),
        ("equalized_odds", "balanced_accuracy", [1, 0], max),
        ("average_odds", "f1", [1, 0], lambda gaps: sum(gaps) / 2),
    ],
)
def test_what_exact_thresholds_do_to_fresh_rows_is_cross_validated(
    tmp_path, criterion, objective, given, join
):
    frame, fresh = make_scores(20_000, 3), make_scores(200_000, 4)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.sample(frac=1, random_state=1).to_parquet(tmp_path / "b.parquet")
    options = {"rule": "group_thresholds", "criterion": criterion, "objective": objective}
    found, other = (
        fit_debiasing(ask(tmp_path / name, labels="y", groups=["sex"], holdout=0.0, **options))
        for name in ("a.parquet", "b.parquet")
    )
    assert found.expected == other.expected

    def measure(table, h):
        """Return the bias of decisions, by the definition."""
        rows = [table["y"] >= 0 if label is None else table["y"] == label for label in given]
        return join([np.ptp(pd.Series(h)[some].groupby(table["sex"]).mean()) for some in rows])

    (bias,) = found.expected["bias"]
    # On the rows of the fit there is no bias, on fresh ones some.
    assert measure(frame, decide(found, frame)) < 1e-9
    assert bias["before"] == pytest.approx(measure(fresh, fresh["s"] >= 0.5), abs=0.035)
    assert bias["after"] == pytest.approx(measure(fresh, decide(found, fresh)), abs=0.035)
    reached = found.expected[found.config.measure]
    y, h = fresh["y"], decide(found, fresh)
    true, false = (h * y).sum(), (h * (1 - y)).sum()
    assert reached["after"] == pytest.approx(
        measure_objective(found.config.served, true, false, y.sum(), (1 - y).sum()), abs=0.03
    )


def test_the_estimate_of_a_bias_is_free_of_what_chance_adds():
    rng = np.random.default_rng(0)
    code = np.repeat(np.arange(3), 40)
    share, weight = np.array([0.3, 0.3, 0.5]), np.where(np.arange(120) % 3, 1.0, 2.0)
    draws = (rng.random((4000, 120)) < share[code]).astype(float)
    squares = np.mean([_square_differences(h, code, weight, 3) for h in draws], axis=0)
    # The variance of a weighted rate is unbiased to second order only.
    assert squares[0, 1] == pytest.approx(0.0, abs=0.003)
    assert squares[0, 2] == pytest.approx(0.04, abs=0.003)
    assert np.isnan(_square_differences(draws[0, :41], code[:41], weight[:41], 3)[1:, 1:]).all()


def test_counted_scores_are_not_cross_validated(scored):
    assert fit_debiasing(ask(scored, solver="histogram", width=0.1)).expected == {}


@pytest.mark.parametrize("criterion", ["parity", "equalized_odds"])
def test_folds_without_rows_of_a_group_are_no_hindrance(tmp_path, criterion):
    rng = np.random.default_rng(0)
    group, score = np.repeat(["a", "b", "c"], [40, 16, 4]), rng.random(60).round(1)
    y = np.tile([0, 1], 30)
    pd.DataFrame({"g": group, "s": score, "y": y}).to_parquet(tmp_path / "few.parquet")
    options = {"rule": "group_thresholds", "criterion": criterion, "certain": True}
    for objective in ("accuracy", "f1"):
        found = fit_debiasing(
            DebiasConfig(
                table=tmp_path / "few.parquet", scores="s", groups=["g"], labels="y",
                holdout=0.0, unseen="pooled", objective=objective, **options,
            )
        )  # fmt: skip
        assert [each["attribute"] for each in found.expected["bias"]] == ["g"]


EXACT = {"rule": "group_thresholds", "holdout": 0.0, "pool_below": 0}


@pytest.fixture(scope="module")
def ranked():
    """Return scores in several units, of one order."""
    table = make_scores(400)
    rank = table["s"].rank(method="first")
    points = 300 + rank.astype(int) ** 2
    return table.assign(points=points, negative=-(1e6 / rank), away=np.exp(rank / 3))


def debias(table, folder, **options):
    """Return a rule and the probabilities with which it decides the rows 1."""
    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(folder / "s.parquet")
    asked = {} if "apply" in options else {"groups": "sex"}
    found = fit_debiasing(DebiasConfig(table=folder / "s.parquet", **asked, **options))
    (batch,) = read_again(found)
    code, signed, _ = decide_rows(found, batch)
    return found, found.rulebook.decision_rule.probability(signed, code)


def test_rules_for_points_decide_as_for_probabilities_of_their_order(ranked, tmp_path):
    _, usual = debias(ranked, tmp_path, scores="s", labels="y", **EXACT)
    for scores in ("points", "negative", "away"):
        _, own = debias(ranked, tmp_path, scores=scores, scale="points", labels="y", **EXACT)
        np.testing.assert_array_equal(own, usual)


def test_a_kept_rule_for_points_has_its_thresholds_in_points(ranked, tmp_path):
    asked = {"scores": "points", "scale": "points", "labels": "y", "budget": 0.1}
    found, chance = debias(ranked, tmp_path, **asked, **EXACT)
    found.rulebook.write(tmp_path / "thresholds.json")
    thresholds = json.loads((tmp_path / "thresholds.json").read_text())["thresholds"]
    cuts = {each["group"]["sex"]: each for each in thresholds}
    by_hand = [
        sum(share for share, cut in zip(each["shares"], each["cuts"], strict=True) if points > cut)
        for points, each in zip(ranked["points"], ranked["sex"].map(cuts), strict=True)
    ]
    np.testing.assert_allclose(chance, by_hand)
    _, again = debias(ranked, tmp_path, apply=tmp_path / "thresholds.json")
    np.testing.assert_array_equal(again, chance)
    # Beyond the scores of the fit nothing but the order counts either.
    ends = ranked.head(2).assign(points=[-1e9, 1e9])
    _, own = debias(ends, tmp_path, apply=tmp_path / "thresholds.json")
    assert own.tolist() == [0, 1]


def test_ramps_take_points_by_their_ranks(ranked, tmp_path):
    options = {"scale": "points", "holdout": 0.0, "width": 0.2, "pool_below": 0}
    _, chance = debias(ranked, tmp_path, scores="points", labels="y", **options)
    _, other = debias(ranked, tmp_path, scores="away", labels="y", **options)
    # Both have the same knots; between them a line in points is none in their exponentials.
    np.testing.assert_allclose(chance, other, atol=0.05)
    rates = pd.Series(chance).groupby(ranked["sex"]).mean()
    assert rates.max() - rates.min() < 1e-6
    _, labelless = debias(ranked, tmp_path, scores="points", rate=0.3, **options)
    assert labelless.mean() == pytest.approx(0.3, abs=1e-6)


def test_what_points_need_to_be_decided_is_asked_for(ranked, tmp_path):
    with pytest.raises(ValueError, match="labels"):
        DebiasConfig(table="s.csv", scores="points", groups="sex", scale="points")
    for scale in ("probability", "margin", "signed"):
        with pytest.raises(DataError):
            debias(ranked, tmp_path / scale, scores="points", scale=scale, labels="y")
    with pytest.raises(DataError):
        ff.create("group_thresholds", scale="margin").fit(
            ranked["points"].to_numpy(),
            ranked["y"].to_numpy(),
            sensitive_features=ranked[["sex"]] == "Male",
        )


def test_scores_that_predict_backwards_are_refused(ranked, tmp_path):
    turned = ranked.assign(s=1 - ranked["s"])
    for options in ({}, EXACT, {"solver": "histogram"}):
        with pytest.raises(DataError):
            debias(turned, tmp_path, scores="s", labels="y", **options)
    for solver in ("exact", "histogram"):
        deciles = turned.assign(s=(turned["s"] * 9).round() / 9)
        with pytest.raises(DataError):
            debias(deciles, tmp_path, scores="s", labels="y", solver=solver)
    model, y = ff.create("group_thresholds"), turned["y"].to_numpy()
    groups = turned[["sex"]] == "Male"
    with pytest.warns(TrainingWarning, match="opposite"):
        model.fit(turned["s"].to_numpy(), y, sensitive_features=groups)
    # Rows without weight have no direction.
    both = np.where(np.arange(len(y)) % 2, ranked["s"], turned["s"])
    model.fit(both, y, sensitive_features=groups, sample_weight=np.arange(len(y)) % 2.0)
    # Noise is no direction.
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert not find_backward(rng.random(60), rng.integers(2, size=60), np.ones(60))


def test_labels_of_several_levels_are_told(ranked, tmp_path):
    levels = ranked.assign(
        y=np.where(ranked["y"] == 1, "paid", np.where(ranked.index % 2, "late", "no"))
    )
    found, _ = debias(levels, tmp_path, scores="s", labels="y", positive="paid", **EXACT)
    assert set(found.zeros["y"]) == {"late", "no"}
    found, _ = debias(levels, tmp_path, scores="s", labels="y", positive="paid,late", **EXACT)
    assert found.zeros == {}
