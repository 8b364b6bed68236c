"""Bundles hold the fair metric: audits of raw rows give what the study certified, in any order."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.verb import check_options, write
from fairfrontier.runtime.errors import ConfigError
from tests.monitor.watched import make_bundle, make_rows
from tests.project import DATASET, make_project

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
    with pytest.raises(ConfigError, match="holds no fair metric"):
        check_options(config)
