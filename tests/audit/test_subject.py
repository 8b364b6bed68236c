"""Models and bundles are audited by what they decide: as the study measures it, and by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.audit import rows as audit_rows
from fairfrontier.audit import subject
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.verb import check_options, write
from fairfrontier.choose import scoring
from fairfrontier.choose.bundle import load_bundle
from fairfrontier.cli.audit_command import show_plain_audit
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.train.baseline.linear import Linear
from tests.monitor.watched import make_bundle, make_rows


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
    monkeypatch.setattr(audit_rows, "MOST_ANSWERS", 60 * (2 + 2 * versions))
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
    with pytest.raises(StoreError, match="Name the folder of a bundle"):
        ff.audit(AuditConfig(table=tmp_path / "rows.csv", model=tmp_path / "other"))
