"""Bundles of regressions and of several classes: the numbers are those of the study."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wasserstein_distance
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import r2_score

import fairfrontier as ff
from fairfrontier.auditing.audit import write
from fairfrontier.choose.choosing import write_choice
from fairfrontier.choose.config import SelectConfig
from fairfrontier.deployment import explanation
from fairfrontier.deployment.bundle import describe_rows, load_bundle, predict_numbers, view_binary
from fairfrontier.deployment.explanation import explain
from fairfrontier.deployment.monitoring import run_monitor
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.row import EncodedRows, Refusals
from fairfrontier.runtime.errors import ConfigError
from tests.project import DATASET, make_project

LABEL = "label: {column: outcome, positive: repaid, favourable: repaid}"
NUMBER = DATASET.replace(
    LABEL, "label: {column: income, task: regression, range: [0, 70], clip: true}"
).replace("numeric: [income, age]", "numeric: [age]")
CLASSES = DATASET.replace(LABEL, "label: {column: job, task: multiclass}").replace(
    "categorical: [region, job]", "categorical: [region, outcome]"
)
SPLIT = "split: {kind: random, train: 0.6, test: 0.4}"
PARTS = "split: {kind: random, train: 0.5, validation: 0.2, test: 0.3}"
STUDY = """\
study: loans
dataset: loans
methods: {methods}
seeds: 1
threads: 1
objective: {objective}
frontier: {{fairness: ['{fairness}']}}
"""
PARITY = (
    "parity: {method: gbdt_regression, n_estimators: 8, "
    "then: {method: quantile_barycentre, attributes: origin, bound: 0.05}}"
)
FAIR = "fair_regression: {budget: 0.02, iterations: 8, attribute: origin}"


def run(home, dataset, column, **keys):
    """Run a study whose label is never missing, and return it with its raw table."""
    dataset = f"{dataset.replace(SPLIT, PARTS)}rows: {{drop_missing: [{column}]}}\n"
    study = ff.run_study("loans", home=make_project(home, STUDY.format(**keys), dataset))
    return study, pd.read_csv(study.home / "data/raw/loans.csv")


def leave(study, method):
    """Choose a method, and return the folder of the choice."""
    study.__dict__["frontier"] = study.frontier[study.frontier["method"] == method]
    config = SelectConfig(study="loans", conf=study.home)
    choice = study.select()
    return choice, study.folder / "choice", write_choice(choice, config)


@pytest.fixture(scope="module")
def wages(tmp_path_factory):
    return run(
        tmp_path_factory.mktemp("wages"),
        NUMBER,
        "income",
        methods=f"{{gbdt_regression: {{n_estimators: 8}}, {FAIR}, {PARITY}}}",
        objective="rmse",
        fairness="disparity:origin",
    )


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    study, raw = run(
        tmp_path_factory.mktemp("jobs"),
        CLASSES,
        "job",
        methods="{linear: {}, majority: {method: linear, penalty: 1000.0}}",
        objective="accuracy",
        fairness="gap_rms:origin",
    )
    return (*leave(study, "linear"), raw)


def read_points(study, method):
    points = study.points[(study.points["part"] == "test") & (study.points["method"] == method)]
    return points.set_index(["measure", "group"])["value"]


def test_a_regression_predicts_raw_rows_in_the_units_of_its_column(wages):
    study, raw = wages
    choice, folder, _ = leave(ff.Study(study.folder, study.home, study.facts), "fair_regression")
    bundle = ff.load_bundle(folder / "bundle")
    test = ff.load("loans", select_on="validation", home=study.home).test
    rows = raw.loc[test.ids]
    decided = bundle.decide(rows)
    assert tuple(decided.columns) == bundle.columns == ("id", "score", "prediction", "refused")
    np.testing.assert_allclose(decided["score"], 70 * choice.model.predict(test.X), atol=1e-9)
    # One of several regressors is drawn, by row id.
    drawn = 70 * choice.model.sample(test.X, test.ids)
    np.testing.assert_allclose(decided["prediction"], drawn, atol=1e-9)
    assert bundle.randomized
    assert (drawn != decided["score"]).any()
    mixed = bundle.decide(rows.iloc[::-1])
    pd.testing.assert_frame_equal(mixed.iloc[::-1], decided, check_exact=True)
    assert is_regressor(bundle)
    assert bundle.score(rows, rows["income"]) == r2_score(rows["income"], decided["prediction"])
    assert (bundle.predict(rows) == decided["prediction"]).all()
    assert pd.read_parquet(folder / "decisions.parquet").columns.tolist() == ["id", "prediction"]
    card = (folder / "card.md").read_text()
    assert "Predicts **income**" in card
    assert "0 for 0 and 1 for 70" in card
    assert "pipeline_tag: tabular-regression" in card


def test_a_regression_is_audited_as_the_study_measures_it(wages, tmp_path):
    study, raw = wages
    _, folder, _ = leave(ff.Study(study.folder, study.home, study.facts), "fair_regression")
    test = ff.load("loans", select_on="validation", home=study.home).test
    rows = raw.loc[test.ids]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    asked = {"model": folder / "bundle", "limit": "rmse=0.7,disparity:origin=1", "minimum": 10}
    found = ff.audit(tmp_path / "rows.csv", **asked)
    points = read_points(study, "fair_regression")
    own = found.measures.set_index(["measure", "group"])["value"]
    for measure, group in (
        ("rmse", ""),
        ("mae", "origin=south"),
        ("mean_residual_difference", "origin"),
        ("r2", ""),
        ("disparity", "origin"),
        ("disparity", "origin=south"),
        ("absolute_loss", "origin=island"),
        ("square_loss_max", "origin"),
    ):
        assert own[measure, group] == pytest.approx(points[measure, group], abs=1e-12), measure
    assert found.limits["verdict"].tolist() == ["exceeded", "within"]
    # By hand: in the units of the column.
    bundle = ff.load_bundle(folder / "bundle")
    values, chance, _ = predict_numbers(bundle.model, test.X, test.groups, test.ids)
    error = np.abs(70 * values - rows["income"].clip(0, 70).to_numpy()[:, None]) @ chance
    assert own["mae", ""] == pytest.approx(error.mean())
    # By hand: the share of each group above the median of the expected predictions.
    score = ff.load_bundle(folder / "bundle").decide(rows)["score"]
    above = (score > np.median(score)).groupby(rows["origin"]).mean()
    rates = found.impact.set_index("level")["rate"]
    assert set(found.impact["measure"]) == {"scoring_rate"}
    np.testing.assert_allclose(rates[above.index], above)
    write(found, tmp_path / "out", 0.0)
    page = (tmp_path / "out/report.html").read_text()
    assert f"median prediction <b>{np.median(score):.6g}</b>" in page
    assert "MAE" in page
    rows.drop(columns="income").to_csv(tmp_path / "new.csv", index=False)
    unlabelled = ff.audit(tmp_path / "new.csv", model=folder / "bundle")
    measured = set(unlabelled.measures["measure"])
    assert {"disparity", "mean_prediction", "scoring_rate"} <= measured
    assert not measured & {"rmse", "square_loss"}


def test_alarms_of_a_regression_are_of_what_is_above_the_median(wages, tmp_path):
    study, raw = wages
    _, folder, _ = leave(ff.Study(study.folder, study.home, study.facts), "fair_regression")
    bundle = ff.load_bundle(folder / "bundle")
    test = ff.load("loans", select_on="validation", home=study.home).test
    rows = raw.loc[test.ids]
    view = view_binary(bundle)
    cut = 70 * bundle.reference["cut"]
    assert cut == pytest.approx(bundle.decide(rows)["score"].median())
    drawn = bundle.decide(rows)["prediction"] > cut + 1e-9
    assert (view.decide(rows)["decision"].astype(bool) == drawn).all()
    assert (view.encoder.read_labels(rows) == (rows["income"] > cut)).all()
    counts = bundle.reference["counts"]
    assert counts["positive"] == (rows["income"] > cut).sum()
    rows.to_csv(tmp_path / "same.csv", index=False)
    asked = {"bundle": folder / "bundle", "out": tmp_path / "watch"}
    calm = run_monitor(table=tmp_path / "same.csv", **asked)
    assert not calm["alarms"]
    assert calm["bundle"]["selected"] == f"above {cut:.6g}"
    # The young are paid nothing.
    many = pd.concat([rows.assign(age=18, income=1.0)] * 6)
    many.to_csv(tmp_path / "poor.csv", index=False)
    changed = run_monitor(table=tmp_path / "poor.csv", **asked)
    assert {"accuracy:all rows"} <= {alarm["name"] for alarm in changed["alarms"]}
    # In units of the column, of histograms.
    (drift,) = (each for each in changed["drift"] if each["column"] == "score")
    apart = wasserstein_distance(bundle.decide(rows)["score"], bundle.decide(many)["score"])
    assert 0.5 * apart < drift["wasserstein"] < 2 * apart
    with pytest.raises(ConfigError):
        run_monitor(table=tmp_path / "same.csv", accepted="high", **asked)


def test_numbers_moved_by_group_are_scored_audited_and_watched(wages, tmp_path):
    study, raw = wages
    choice, folder, _ = leave(ff.Study(study.folder, study.home, study.facts), "parity")
    bundle = ff.load_bundle(folder / "bundle")
    assert bundle.needed_groups == ("origin",)
    assert "origin" in bundle.feature_names_in_
    test = ff.load("loans", select_on="validation", home=study.home).test
    rows = raw.loc[test.ids]
    decided = bundle.decide(rows)
    moved = 70 * choice.model.predict(test.X, sensitive_features=test.groups)
    plain = 70 * choice.model.estimator_.predict(test.X)
    np.testing.assert_allclose(decided["prediction"], moved, atol=1e-9)
    assert np.abs(moved - plain).max() > 0.1
    strange = bundle.decide(rows.head(2).assign(origin="elsewhere"))
    assert strange["prediction"].isna().all()
    assert (strange["refused"] != "").all()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    found = ff.audit(tmp_path / "rows.csv", model=folder / "bundle", minimum=10)
    own, points = (
        found.measures.set_index(["measure", "group"])["value"],
        read_points(study, "parity"),
    )
    for measure in ("disparity", "kolmogorov_smirnov", "wasserstein", "mean_residual_difference"):
        assert own[measure, "origin"] == pytest.approx(points[measure, "origin"], abs=1e-12)
    watched = run_monitor(
        table=tmp_path / "rows.csv", bundle=folder / "bundle", out=tmp_path / "watch"
    )
    assert not watched["alarms"]


@pytest.mark.parametrize("method", ["gbdt_regression", "fair_regression", "parity"])
def test_values_of_a_regression_add_up_to_its_expected_prediction(wages, tmp_path, method):
    study, raw = wages
    choice, *_ = leave(ff.Study(study.folder, study.home, study.facts), method)
    bundle = load_bundle(choice.export(tmp_path / "bundle"))
    rows = raw.dropna().head(40)
    found = explain(bundle, rows)
    assert found.unit == "units of the label"
    total = found.base + found.values.sum(axis=1)
    if method == "parity":
        # Of the regressor behind which groups are moved.
        bundle.model = bundle.model.estimator_
    np.testing.assert_allclose(total, bundle.decide(rows)["score"], rtol=1e-5)


def test_several_classes_are_decided_by_their_names(jobs, tmp_path):
    choice, folder, summary, raw = jobs
    bundle = ff.load_bundle(folder / "bundle")
    home = choice.study.home
    test = ff.load("loans", select_on="validation", home=home).test
    rows = raw.loc[test.ids]
    decided = bundle.decide(rows)
    scores = [f"score:{name}" for name in ("baker", "clerk", "smith")]
    assert tuple(decided.columns) == ("id", *scores, "decision", "refused")
    chance = choice.model.predict_proba(test.X)
    np.testing.assert_allclose(decided[scores], chance, atol=1e-12)
    assert (decided["decision"].to_numpy() == np.array(test.classes)[chance.argmax(1)]).all()
    assert is_classifier(bundle)
    accuracy = read_points(choice.study, "linear")["accuracy", ""]
    assert bundle.score(rows, rows["job"]) == pytest.approx(accuracy)
    # Nothing says which job is good for the person, so that one has to be named, as it is printed.
    assert bundle.manifest["accepted"] is None
    for name in ("audit", "monitor", "explain"):
        assert summary["commands"][name].endswith(" --accepted smith")
    table = {"table": home / "data/raw/loans.csv"}
    with pytest.raises(ConfigError):
        ff.audit(**table, model=folder / "bundle")
    with pytest.raises(ConfigError):
        run_monitor(**table, bundle=folder / "bundle", out=tmp_path / "watch")
    with pytest.raises(ConfigError):
        explain(bundle, rows.head(3))
    assert "mean of job" not in (folder / "datasheet.md").read_text()
    scored = ff.score(bundle, home / "data/raw/loans.csv", tmp_path / "decisions.parquet")
    written = pd.read_parquet(scored.path)
    assert dict(scored.decided) == written["decision"].value_counts().to_dict()


def test_one_of_several_classes_is_audited_watched_and_explained(jobs, tmp_path, monkeypatch):
    monkeypatch.setattr(explanation, "ORDERS", 2)
    choice, folder, _, raw = jobs
    bundle = ff.load_bundle(folder / "bundle")
    test = ff.load("loans", select_on="validation", home=choice.study.home).test
    rows = raw.loc[test.ids]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    decided = bundle.decide(rows)
    smith = decided["decision"] == "smith"
    found = ff.audit(tmp_path / "rows.csv", model=folder / "bundle", accepted="smith")
    rates = found.impact[found.impact["measure"] == "selection_rate"].set_index("level")["rate"]
    wanted = smith.groupby(rows["origin"]).mean()
    np.testing.assert_allclose(rates[wanted.index], wanted)
    own = found.measures.set_index(["measure", "group"])["value"]
    assert own["tpr", ""] == pytest.approx(smith[rows["job"] == "smith"].mean())
    assert "consistency" in set(found.individual["measure"])
    with pytest.raises(ConfigError, match=r"no class 'smiths'.*Did you mean 'smith'"):
        ff.audit(tmp_path / "rows.csv", model=folder / "bundle", accepted="smiths")
    asked = {"bundle": folder / "bundle", "out": tmp_path / "watch", "accepted": "smith"}
    calm = run_monitor(table=tmp_path / "rows.csv", **asked)
    assert not calm["alarms"]
    checks = pd.read_csv(tmp_path / "watch/checks.csv").set_index("name")
    assert checks.loc["selection_rate:all rows", "reference"] == pytest.approx(smith.mean())
    with pytest.raises(ConfigError):
        run_monitor(table=tmp_path / "rows.csv", **{**asked, "accepted": "baker"})
    explained = explain(bundle, rows.head(30), accepted="smith")
    assert explained.unit == "probability of smith"
    total = explained.base + explained.values.sum(axis=1)
    np.testing.assert_allclose(total, decided["score:smith"].head(30), atol=1e-9)


def test_a_bundle_of_two_classes_can_accept_either(loans, tmp_path):
    folder = loans.select().export(tmp_path / "bundle")
    table = loans.home / "data/raw/loans.csv"
    asked = {"table": table, "model": folder}
    usual, other = ff.audit(**asked), ff.audit(**asked, accepted="late")
    assert [found.subject["selected"] for found in (usual, other)] == ["repaid", "late"]
    rates = [
        found.impact.set_index(["measure", "attribute", "level"])["rate"]
        for found in (usual, other)
    ]
    np.testing.assert_allclose(rates[0]["selection_rate"], 1 - rates[1]["selection_rate"])
    with pytest.raises(ConfigError, match="Did you mean 'repaid'"):
        ff.audit(**asked, accepted="repay")
    watched = {}
    for name in (None, "late"):
        found = run_monitor(table=table, bundle=folder, out=tmp_path / f"{name}", accepted=name)
        assert found["bundle"]["selected"] == (name or "repaid")
        checks = pd.read_csv(tmp_path / f"{name}/checks.csv").set_index("name")
        watched[name] = checks[["reference", "value"]]
    one, two = (watched[name].loc["selection_rate:all rows"] for name in (None, "late"))
    np.testing.assert_allclose(one, 1 - two)
    one, two = (watched[name].loc["tpr:all rows"] for name in (None, "late"))
    np.testing.assert_allclose(one, two)


CONFIG = {
    "dataset": "loans",
    "source": {"path": "loans.csv"},
    "label": {"column": "repaid"},
    "features": {"numeric": ["income"]},
    "split": {"kind": "random", "train": 0.5, "test": 0.5},
}


def test_a_level_that_is_named_other_is_counted_with_the_small_ones():
    codes = np.repeat([0, 1, 2, -1], [20, 30, 3, 2])
    n = codes.size
    encoder: Any = SimpleNamespace(
        config=DatasetConfig.model_validate(CONFIG),
        attributes=[SimpleNamespace(name="race", names=("white", "other", "small"))],
        described=(),
    )
    rows = EncodedRows(np.zeros((n, 0)), codes[:, None], pd.DataFrame(index=range(n)), Refusals(n))
    decided = pd.DataFrame({"score": 0.5, "probability": 1.0, "refused": [""] * n})
    described = describe_rows(encoder, rows, decided, np.ones(n), minimum=10)
    counted = {level: each["rows"] for level, each in described["groups"]["race"].items()}
    assert counted == {"white": 20, "other": 35}


def test_a_rule_of_several_classes_is_chosen_within_a_bound_and_decides_rows(tmp_path):
    rule = "{method: linear_post, criterion: parity, bound: 0.0, attributes: origin, "
    rule += "n_estimators: 10, max_depth: 2}"
    study, raw = run(
        tmp_path,
        CLASSES,
        "job",
        methods=f"{{linear: {{}}, fair: {rule}}}",
        objective="accuracy",
        fairness="selection_rate_difference:origin",
    )
    own = {method: read_points(study, method) for method in ("linear", "fair")}
    for measure in ("selection_rate_difference", "gap_max", "equalized_odds_difference"):
        assert all(np.isfinite(each[measure, "origin"]) for each in own.values())
    _, folder, _ = leave(study, "fair")
    test = ff.load("loans", select_on="validation", home=study.home).test
    rows = raw.loc[test.ids]
    decided = ff.load_bundle(folder / "bundle").decide(rows)["decision"]
    share = pd.crosstab(rows["origin"].to_numpy(), decided.to_numpy(), normalize="index")
    expected = own["fair"]["selection_rate_difference", "origin"]
    assert np.ptp(share.to_numpy(), axis=0).max() == pytest.approx(expected)
