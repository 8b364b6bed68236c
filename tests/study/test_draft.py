"""A table that nobody has described becomes a study that runs without an edit."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pandas as pd
import pytest

from fairfrontier import init, load
from fairfrontier.prepare.draft.draft import write_value
from fairfrontier.runtime.config import read_yaml
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.check import load_study
from fairfrontier.study.resolve import expand
from tests.fuzz.edit import CELLS, YAML_VALUES
from tests.project import ROOT, make_table

RAW = ROOT / "data" / "raw"
# What the headers do not say, or there are no headers.
KNOWN = {
    "communities.data.gz": {"label": "column128", "protected": ["column8"]},
    "german.data.gz": {"protected": ["column9", "column13"]},
    "synthetic.csv": {"protected": ["horizontal"]},
}
TABLES = sorted(p.name for p in RAW.iterdir() if p.suffix in (".gz", ".csv"))


def study_of(draft, home):
    load(draft.dataset, home=home)
    return expand(load_study(draft.study, home=home))


@pytest.mark.parametrize("name", TABLES)
def test_every_raw_table_gives_a_study(tmp_path, name):
    open_text = gzip.open if name.endswith(".gz") else open
    with open_text(RAW / name, "rt") as file:
        lines = list(itertools.islice(file, 500))
    path = tmp_path / name.removesuffix(".gz")
    path.write_text("".join(lines))
    draft = init(path, out=tmp_path, **KNOWN.get(name, {}))
    assert study_of(draft, tmp_path)
    assert draft.command.startswith("fairfrontier run ")
    assert draft.command.endswith(f"--conf {tmp_path}")
    parts = [part for part, _ in load(draft.dataset, home=tmp_path).parts()]
    # Where two groups of an attribute would have too few rows of one, three parts are drafted.
    assert parts in (
        ["train", "calibration", "validation", "test"],
        ["train", "validation", "test"],
    )


def test_what_headers_say(tmp_path):
    draft = init(RAW / "compas-two-years.csv.gz", out=tmp_path)
    assert draft.summary.startswith("label two_year_recid = 1; protected sex, race, age; ")
    assert any(w.startswith("is_recid tells the label nearly alone") for w in draft.warnings)
    split = load(draft.dataset, home=tmp_path)
    # Not to be charged again is what people want.
    assert split.favourable == 0
    assert split.train.attributes["age"] == (
        *("below 25", "25 to below 40", "40 to below 60", "from 60"),
    )
    assert not [name for name in split.feature_names if name.startswith(("id", "is_recid"))]


def test_a_frame_is_kept_with_the_project(tmp_path):
    draft = init(make_table(), label="outcome", protected=["origin"], out=tmp_path, name="loans")
    assert draft.table == tmp_path / "data" / "raw" / "loans.parquet"
    assert study_of(draft, tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(draft.table), make_table())


def test_nothing_is_overwritten_and_nothing_is_left_of_a_refusal(tmp_path):
    path = tmp_path / "loans.csv"
    make_table().to_csv(path, index=False)
    wrong = {"label": "outcome", "protected": ["origin"], "out": tmp_path}
    with pytest.raises(ConfigError, match="no column 'sex'"):
        init(path, **{**wrong, "protected": ["sex"]})
    assert [each.name for each in tmp_path.iterdir()] == ["loans.csv"]
    draft = init(path, **wrong)
    before = draft.dataset.read_bytes()
    with pytest.raises(ConfigError):
        init(path, **wrong, positive="late")
    assert draft.dataset.read_bytes() == before
    init(path, **wrong, name="late", positive="late")
    with pytest.raises(ConfigError, match=r"no key 'lable' here\. Did you mean 'label'"):
        init(path, lable="outcome")


def test_a_table_of_numbers_gets_what_bounds_distributions_and_residuals(tmp_path):
    table = make_table()
    table["wage"] = np.random.default_rng(0).normal(3000, 500, len(table)).round(2)
    study = init(table, label="wage", protected=["origin"], out=tmp_path, name="wages").study
    content = read_yaml(study)
    rules = {row["then"]["method"] for row in content["methods"].values() if "then" in row}
    assert rules == {"quantile_barycentre", "residual_shift"}
    assert "fair_regression origin" in content["methods"]
    assert "mean_residual_difference:origin" in content["frontier"]["fairness"]


@pytest.mark.parametrize("written", ["csv", "frame"])
def test_what_a_killed_draft_left_is_completed(tmp_path, written):
    make_table().to_csv(tmp_path / "loans.csv", index=False)
    table = tmp_path / "loans.csv" if written == "csv" else make_table()
    asked = {"label": "outcome", "protected": ["origin"], "out": tmp_path, "name": "loans"}
    study = init(table, **asked).study
    # The study is the last file.
    content = study.read_bytes()
    study.unlink()
    (study.parent / ".unfinished@0").mkdir()
    assert init(table, **asked).study.read_bytes() == content
    assert [path.name for path in study.parent.iterdir()] == ["loans.yaml"]
    study.unlink()
    with pytest.raises(ConfigError):
        init(table, **{**asked, "protected": ["job"]})
    assert not study.exists()


def test_the_lines_for_individual_fairness_are_taken_in(tmp_path):
    draft = init(make_table(), label="outcome", protected=["origin"], out=tmp_path, name="loans")
    text = draft.study.read_text()
    for line in ("metric: {name: subspace}", "  budro: {}", "  sensei: {}"):
        assert f"#{line}\n" in text
        text = text.replace(f"#{line}\n", f"{line}\n")
    draft.study.write_text(text)
    methods = {each.group.method for each in study_of(draft, tmp_path)}
    assert {"budro", "sensei"} <= methods


HOSTILE = ("yes", "null", "a: b", "# x", "é\u202e", "\x1b[31m\n", "long " * 300)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_and_levels_are_text(tmp_path, name):
    table = make_table().rename(columns={"region": name, "origin": f"{name}.sex"})
    level = "null." if name == "null" else name  # The text null is a missing cell.
    table[name] = table[name].replace("a", level)
    table[f"{name}.sex"] = table[f"{name}.sex"].replace("island", level)
    draft = init(table, label="outcome", protected=[f"{name}.sex"], out=tmp_path)
    assert study_of(draft, tmp_path)
    assert name in read_yaml(draft.dataset)["features"]["categorical"]


def test_any_text_is_read_back_as_it_was(tmp_path):
    values = [value[:2000] for value in (*YAML_VALUES, *CELLS)]
    path = tmp_path / "t.yaml"
    path.write_text("a:\n" + "".join(f"- {write_value(value)}\n" for value in values))
    assert read_yaml(path) == {"a": values}
    path.write_text("a:\n" + "".join(f"- {write_value({value: 1})}\n" for value in values))
    assert read_yaml(path) == {"a": [{value: 1} for value in values]}


def test_a_table_of_hostile_cells_is_answered(tmp_path):
    rng = np.random.default_rng(0)
    table = make_table(300)
    for place, cell in enumerate(CELLS):
        table[f"c{place}"] = np.where(rng.random(300) < 0.5, cell, "plain")
    draft = init(table, label="outcome", protected=["origin"], out=tmp_path)
    assert study_of(draft, tmp_path)


def test_a_study_of_several_classes_has_boosted_trees_and_no_costs(tmp_path):
    table = make_table().dropna()
    draft = init(table, label="job", protected=["origin"], name="jobs", out=tmp_path)
    assert study_of(draft, tmp_path)
    assert {"gbdt", "ensemble", "reweigh origin"} <= {*read_yaml(draft.study)["methods"]}
    assert "costs" not in draft.study.read_text()
    assert "favourable" not in read_yaml(draft.dataset)["label"]
