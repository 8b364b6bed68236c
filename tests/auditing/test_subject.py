"""Models and bundles are audited by what they decide: as the study measures it, and by hand."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import fairfrontier as ff
from fairfrontier.auditing import subject
from fairfrontier.auditing.audit import check_options, write
from fairfrontier.auditing.option import AuditConfig
from fairfrontier.auditing.subject import RewrittenRows, Sample
from fairfrontier.cli.command import show_plain_audit
from fairfrontier.deployment import scoring
from fairfrontier.deployment.bundle import load_bundle
from fairfrontier.models.baseline.linear import Linear
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from tests.deployment.watched import make_bundle, make_rows
from tests.prepare.embedding.test_feature import COMMENTS, project
from tests.prepare.text.conftest import make_comments
from tests.project import DATASET, make_project


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("lines"))


@pytest.fixture
def judge(bundle, tmp_path):
    """Return a function that audits the bundle's decisions on rows."""

    def audit(rows, **options):
        rows.to_csv(tmp_path / "rows.csv", index=False)
        return ff.audit(AuditConfig(table=tmp_path / "rows.csv", model=bundle, **options))

    return audit


def values(measures):
    return measures.set_index(["measure", "group"])["value"]


def test_a_model_is_measured_as_in_a_study(fresh):
    split = ff.load("loans", home=fresh)
    model = ff.create("gbdt", n_estimators=10, max_depth=3).fit(split.train.X, split.train.y)
    model.save(fresh / "model")
    limit = "consistency:origin=0.99,counterfactual_score_gap=0,selection_rate_ratio=0.1"
    asked = {"model": fresh / "model", "dataset": "loans", "conf": fresh, "limit": limit}
    config = AuditConfig(**asked)
    check_options(config)
    found = ff.audit(config)
    measured = values(ff.evaluate(model, split.test))
    own = values(found.measures)
    # The floor's folds are drawn by row id, and an audit has no ids.
    same = [each for each in measured.index if each in own.index and "floor" not in each[0]]
    pd.testing.assert_series_equal(own[same], measured[same])
    wanted = {("consistency", "origin"), ("counterfactual_rank_gap_95", "origin"), ("auc", "")}
    assert wanted | {("tpr", "origin=north"), ("selection_rate_ratio", "origin")} <= {*same}
    selected = pd.Series(model.predict(split.test.X)).groupby(split.test.group("origin")).sum()
    rates = found.impact[found.impact["measure"] == "selection_rate"]
    assert rates["level"].tolist() == list(split.test.attributes["origin"])
    assert rates["selected"].tolist() == selected.tolist()
    # The model has no feature of the origin.
    assert own["consistency", "origin"] == 1.0
    assert found.limits["verdict"].tolist() == ["within"] * 3
    other = ff.audit(AuditConfig(**{**asked, "part": "train"}))
    assert other.n_samples == split.train.n_samples
    for change, told in (
        ({"limit": "consistency:orgin=0.9"}, "Did you mean 'origin'"),
        ({"groups": "orgin"}, "no group attribute 'orgin'.*Did you mean 'origin'"),
    ):
        with pytest.raises(ConfigError, match=told):
            check_options(AuditConfig(**{**asked, **change}))


def test_rates_are_of_the_decisions_that_are_good_for_the_person(fresh):
    """29 CFR 1607.4(D): of the rates of what people want, by every command alike."""
    split = ff.load("loans", home=fresh)
    path = fresh / "conf/datasets/loans.yaml"
    path.write_text(path.read_text().replace("favourable: repaid", "favourable: late"))
    turned = ff.load("loans", home=fresh)
    model = ff.create("gbdt", n_estimators=10, max_depth=3).fit(split.train.X, split.train.y)
    model.save(fresh / "model")
    before, after = (values(ff.evaluate(model, each.test)) for each in (split, turned))
    rates = [f"origin={level}" for level in split.test.attributes["origin"]]
    np.testing.assert_allclose(after["selection_rate"][rates], 1 - before["selection_rate"][rates])
    wanted = 1 - before["selection_rate"][rates]
    assert after["selection_rate_ratio", "origin"] == pytest.approx(wanted.min() / wanted.max())
    same = ("selection_rate_difference", "tpr", "fpr", "gap_max", "auc", "accuracy")
    for name in same:
        np.testing.assert_allclose(after[name], before[name])
    asked = {"model": fresh / "model", "dataset": "loans", "conf": fresh}
    found = ff.audit(AuditConfig(**asked))
    assert found.subject["selected"] == "late"
    rows = found.impact[found.impact["measure"] == "selection_rate"].set_index("level")
    np.testing.assert_allclose(rows["rate"], wanted)
    own = values(found.measures)
    for name in ("selection_rate", "selection_rate_ratio", *same):
        kept = own[name].index.intersection(after[name].index)
        np.testing.assert_allclose(own[name][kept], after[name][kept])
    # Who scores high is who is likely to get what people want.
    score = 1 - model.predict_proba(turned.test.X)[:, 1]
    above = pd.Series(score > np.median(score)).groupby(turned.test.group("origin")).mean()
    rows = found.impact[found.impact["measure"] == "scoring_rate"].set_index("level")
    np.testing.assert_allclose(rows["rate"], above)
    noisy = ff.audit(AuditConfig(**asked, level=0.1, attribute="origin"))
    seen = noisy.bounds[
        (noisy.bounds["measure"] == "selection_rate") & (noisy.bounds["group"] == "")
    ]
    assert (seen["value"] - after["selection_rate", ""]).abs().max() < 1e-9


def test_a_bundle_is_audited_on_raw_rows(bundle, judge, tmp_path, monkeypatch):
    rows = make_rows(11, 600).assign(sex=lambda table: table["sex"].where(table.index > 20))
    rows.loc[:4, "income"] = None
    found = judge(rows, limit="consistency=0.999")
    loaded = load_bundle(bundle)
    decided = loaded.decide(rows)
    kept = rows[decided["refused"] == ""].assign(decision=decided["decision"])
    assert found.subject["refused"] == {"income is missing": 5}
    assert found.n_samples == len(kept) == 595
    by_sex = found.impact[
        (found.impact["attribute"] == "sex") & (found.impact["measure"] == "selection_rate")
    ].set_index("level")
    assert by_sex["selected"].to_dict() == pytest.approx(
        kept.fillna({"sex": "unknown"}).groupby("sex")["decision"].sum().to_dict()
    )
    assert by_sex["status"]["unknown"] == "unknown"
    own = values(found.measures)
    right = kept["decision"] == (kept["outcome"] == "repaid")
    assert own["accuracy", ""] == pytest.approx(right.mean())
    versions = [loaded.predict(kept.assign(region=region)) for region in ("north", "south")]
    assert own["consistency", "region"] == np.mean(versions[0] == versions[1]) < 0.999
    assert found.limits["verdict"].tolist() == ["exceeded"]
    write(found, tmp_path / "out", 0.0)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Versions of a row" in page
    assert "bundle of the study <b>credit-lines</b> on <b>rows.csv</b>" in page
    # The order of the rows and batches change nothing.
    monkeypatch.setattr(scoring, "BATCH_ROWS", 37)
    other = judge(rows.sample(frac=1.0, random_state=0), limit="consistency=0.999")
    pd.testing.assert_frame_equal(other.measures, found.measures, check_exact=True)
    framed = ff.audit(rows, model=bundle, groups="sex")
    assert values(framed.measures)["consistency", "region"] == own["consistency", "region"]
    assert set(framed.impact["attribute"]) == {"sex"}


def test_levels_that_training_had_not_are_counted(bundle, judge, tmp_path, capsys):
    rows = make_rows(11, 600)
    assert judge(rows).subject["unseen"] == {}
    far = rows.index % 3 == 0
    rows["region"] = rows["region"].mask(far, "abroad")
    found = judge(rows)
    assert found.subject["unseen"] == {"region": 200}
    show_plain_audit(tmp_path, write(found, tmp_path / "out", 0.0))
    told = " ".join(capsys.readouterr().out.split())
    assert "Decided with a level that training had not" in told
    assert "region 200" in told
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<b>200</b> with a level of <b>region</b> that training had not" in page


def test_a_bundle_makes_no_more_versions_of_a_row_than_may_be(bundle):
    encoder = load_bundle(bundle).encoder
    levels = tuple(f"level-{number}" for number in range(100))
    sets = {"both": {"region": levels, "origin": levels}}
    limits = encoder.config.limits.model_copy(update={"levels": 10**9})
    changed = encoder.config.model_copy(update={"counterfactuals": sets, "limits": limits})
    with pytest.raises(ConfigError, match="make 10,000 versions of a row, and 4,096 are"):
        replace(encoder, config=changed).encode_versions()


def test_more_versions_of_rows_than_are_answered_are_refused(bundle, judge, monkeypatch):
    versions = sum(map(len, load_bundle(bundle).encoder.encode_versions().values()))
    seen, judge_batch = [], subject._judge

    def note(bundle, X, groups, edits):
        seen.append(len(X))
        return judge_batch(bundle, X, groups, edits)

    monkeypatch.setattr(subject, "_judge", note)
    monkeypatch.setattr(subject, "MOST_ANSWERS", 60 * (2 + 2 * versions))
    assert judge(make_rows(12, 60)).n_samples == 60
    with pytest.raises(DataError, match=rf"more than 60 rows, each with {versions} counterfactual"):
        judge(make_rows(12, 61))
    monkeypatch.setattr(scoring, "BATCH_NUMBERS", 10 * (2 + 2 * versions))
    seen.clear()
    judge(make_rows(12, 60))
    assert max(seen) < 10


def test_rows_without_a_finite_answer_are_refused(bundle, judge, monkeypatch):
    rows = make_rows(13, 200)
    X = load_bundle(bundle).encode(rows).X
    kind, predict = Linear, Linear.predict_proba
    monkeypatch.setattr(
        kind, "predict_proba", lambda self, X: np.where(X[:, :1] > 0, np.nan, predict(self, X))
    )
    found, lost = judge(rows), int((X[:, 0] > 0).sum())
    assert found.subject["refused"] == {"the model gives no finite answer": lost}
    assert found.n_samples == 200 - lost
    decided = load_bundle(bundle).decide(rows)["decision"]
    assert values(found.measures)["selection_rate", ""] == pytest.approx(decided.mean())


def test_what_a_bundle_cannot_be_audited_on_is_said(bundle, judge, tmp_path):
    rows = make_rows(12, 60)
    assert "tpr" not in set(judge(rows.drop(columns="outcome")).measures["measure"])
    with pytest.raises(DataError, match=r"1 rows of .* have no label in the column 'outcome'"):
        judge(rows.assign(outcome=rows["outcome"].where(rows.index > 0)))
    with pytest.raises(DataError, match=r"rows\.csv: column 'outcome' holds 'Repaid' in row"):
        judge(rows.assign(outcome=rows["outcome"].str.capitalize().replace("Not", "not")))
    with pytest.raises(DataError, match=r"No row of .*: income is missing"):
        judge(rows.assign(income=None))
    with pytest.raises(ConfigError, match="no column 'sex', by which groups are told apart"):
        judge(rows.drop(columns="sex"))
    assert set(judge(rows.drop(columns="sex"), groups="origin").impact["attribute"]) == {"origin"}
    with pytest.raises(ConfigError, match="is a bundle, which decides on raw rows"):
        ff.audit(AuditConfig(model=bundle, dataset="german"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps({}))
    with pytest.raises(StoreError):
        ff.audit(AuditConfig(table=tmp_path / "rows.csv", model=tmp_path / "other"))


__all__ = ["project"]

STUDY_REWRITTEN = {
    "study": "comments",
    "dataset": "comments",
    "methods": {"linear": {}},
    "seeds": 1,
    "objective": "accuracy",
    "select_on": "train",
    "frontier": {"fairness": ["consistency:identity"]},
}


def test_versions_of_texts_are_measured_as_in_the_study(project, tmp_path):
    versions = {"identity": {"terms": "identity", "draw": {"train": 2}}}
    project(text={**COMMENTS["text"], "versions": versions})
    (tmp_path / "conf/studies").mkdir()
    (tmp_path / "conf/studies/comments.yaml").write_text(yaml.safe_dump(STUDY_REWRITTEN))
    study = ff.run_study("comments", home=tmp_path)
    folder = study.select().export(tmp_path / "bundle")
    test = ff.load("comments", home=tmp_path).test
    rows = make_comments().loc[test.ids]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    config = AuditConfig(
        table=tmp_path / "rows.csv", model=folder, limit="consistency:identity=1.0"
    )
    check_options(config)
    found = ff.audit(config)
    points = study.points[study.points["part"] == "test"].set_index(["measure", "group"])["value"]
    own = found.individual.set_index(["measure", "group"])["value"]
    for measure in ("consistency", "counterfactual_fairness"):
        assert own[measure, "identity"] == pytest.approx(points[measure, "identity"], abs=1e-6)
    assert own["counterfactual_fairness", "identity"] > 0
    shuffled = ff.audit(rows.sample(frac=1.0, random_state=1), model=folder)
    pd.testing.assert_frame_equal(shuffled.individual, found.individual, check_exact=True)
    # Without a term there is no version.
    plain = ff.audit(rows.assign(comment=[f"word {i % 7}" for i in range(len(rows))]), model=folder)
    assert plain.individual.empty
    assert np.isnan(own).sum() == 0
    # No bundle makes as many as it says.
    bundle = load_bundle(folder)
    config = bundle.encoder.config
    rule = config.text.versions["identity"].model_copy(update={"draw": {"test": 10**9}})
    text = config.text.model_copy(update={"versions": {"identity": rule}})
    bundle.encoder = replace(bundle.encoder, config=config.model_copy(update={"text": text}))
    with pytest.raises(ConfigError, match="make 1,000,000,000 versions of a row"):
        RewrittenRows(bundle)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 12), st.data())
@settings(max_examples=60, deadline=None)
def test_a_sample_of_different_rows_counts_each(values, most, data):
    rows = np.array(values, dtype=np.float64)[:, None]
    samples = []
    for order in (rows, rows[data.draw(st.permutations(range(len(rows))))]):
        sample = Sample(most)
        for batch in np.array_split(order, data.draw(st.integers(1, 5))):
            sample.add(batch, np.array([f"{row[0]:g}" for row in batch], dtype=object))
        samples.append(sample)
    kept, counts = samples[0].rows, samples[0].counts
    assert np.array_equal(kept, samples[1].rows)
    assert np.array_equal(counts, samples[1].counts)
    assert samples[0].texts == samples[1].texts == [f"{row[0]:g}" for row in kept]
    assert len(kept) == min(most, len(set(values)))
    assert dict(zip(kept[:, 0], counts, strict=True)).items() <= Counter(map(float, values)).items()


STUDY = """\
study: loans
dataset: loans
metric: {name: subspace}
methods:
  linear: {}
  ruled: {method: linear, then: {method: group_thresholds, attributes: [origin]}}
seeds: 1
objective: accuracy
certificate: {budgets: [0.5, 2]}
frontier: {fairness: [selection_rate_difference:origin]}
"""
MEASURES = ("dif", "adversarial_gap", "adversarial_error_gap")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    dataset = DATASET.replace("train: 0.6, test: 0.4", "train: 0.5, validation: 0.3, test: 0.2")
    return ff.run_study("loans", home=make_project(tmp_path_factory.mktemp("l"), STUDY, dataset))


@pytest.fixture(scope="module")
def folders(study, tmp_path_factory):
    found = {}
    for method in ("linear", "ruled"):
        alone = ff.Study(study.folder, study.home, study.facts)
        alone.__dict__["frontier"] = study.frontier[study.frontier["method"] == method]
        found[method] = alone.select().export(tmp_path_factory.mktemp(method) / "bundle")
    return found


@pytest.fixture
def rows(study):
    test = ff.load("loans", select_on="validation", home=study.home).test
    return pd.read_csv(study.home / "data/raw/loans.csv").loc[test.ids]


def read(table):
    kept = table[table["measure"].isin(MEASURES)]
    return kept.set_index(["measure", "group"])["value"].sort_index()


@pytest.mark.parametrize("method", ["linear", "ruled"])
def test_raw_rows_are_certified_as_in_the_study(study, folders, rows, method, tmp_path):
    points = study.points
    own = read(points[(points["method"] == method) & (points["part"] == "test")])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    found = ff.audit(tmp_path / "rows.csv", model=folders[method])
    assert len(own) == (4 if method == "ruled" else 6)
    np.testing.assert_allclose(read(found.similar)[own.index], own, rtol=1e-5, atol=1e-9)
    assert read(found.measures).equals(read(found.similar))
    assert ff.load_bundle(folders[method]).manifest["metric"] == {"name": "subspace"}
    shuffled = ff.audit(rows.sample(frac=1.0, random_state=0), model=folders[method])
    pd.testing.assert_frame_equal(shuffled.similar, found.similar, check_exact=True)
    unlabelled = ff.audit(rows.drop(columns="outcome"), model=folders[method])
    assert set(unlabelled.similar["measure"]) == {"dif"}
    write(found, tmp_path / "out", 0.0)
    assert "Similar rows" in (tmp_path / "out/report.html").read_text()


def test_budgets_and_limits_of_an_audit(folders, rows, tmp_path):
    rows.to_csv(tmp_path / "rows.csv", index=False)
    asked = {"table": tmp_path / "rows.csv", "model": folders["linear"]}
    limit = "dif:budget=1=1e9,adversarial_error_gap:budget=1=0.0001"
    config = AuditConfig(**asked, certify="1,3", limit=limit)
    check_options(config)
    found = ff.audit(config)
    assert set(found.similar["group"]) == {"budget=1", "budget=3"}
    assert found.limits["verdict"].tolist() == ["within", "exceeded"]
    # More may be moved within more.
    gaps = read(found.similar)
    assert 0 < gaps["dif", "budget=1"] < gaps["dif", "budget=3"]
    with pytest.raises(ConfigError, match=r"--limit dif:budget=2 names no category.*budget=1"):
        ff.audit(AuditConfig(**asked, certify="1", limit="dif:budget=2=1"))


def test_a_bundle_without_a_metric_certifies_nothing(tmp_path):
    folder = make_bundle(tmp_path)
    assert not (folder / "metric.npz").exists()
    make_rows(1, 50).to_csv(tmp_path / "rows.csv", index=False)
    config = AuditConfig(table=tmp_path / "rows.csv", model=folder, certify="1")
    with pytest.raises(ConfigError):
        check_options(config)
