"""A chosen model that decides on raw rows: the same as in the study, in any order and process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import accuracy_score, roc_auc_score

import fairfrontier as ff
from fairfrontier.choose.select import Choice, MixedChoice, Study
from fairfrontier.deployment.bundle import (
    FORMAT,
    Bundle,
    describe_reference,
    list_facts,
    load_bundle,
    make_bundle,
)
from fairfrontier.models.baseline.gbdt import GBDT
from fairfrontier.models.baseline.linear import Linear
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.runtime import text_file
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.runtime.text_file import MOST_VALUES
from tests.choose.saved import CLASSES, make_table, save_bundles, seal
from tests.project import environment

DIFFERENCE = "selection_rate_difference:origin"
METHODS = ("gbdt", "linear", "drawn", "mixed")


def choose(study: Study, method: str) -> Choice | MixedChoice:
    """Return the choice of one method, or a mixture of two."""
    if method == "mixed":
        chosen = study.select("accuracy", {DIFFERENCE: 0.2}, mixture=True)
        assert isinstance(chosen, MixedChoice)
        return chosen
    kept = study.frontier[study.frontier["method"] == method]
    alone = Study(study.folder, study.home, study.facts)
    alone.__dict__["frontier"] = kept
    chosen = alone.select()
    assert isinstance(chosen, Choice)
    return chosen


@pytest.fixture(scope="module")
def folders(loans, tmp_path_factory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("bundles")
    return {name: choose(loans, name).export(base / name) for name in METHODS}


@pytest.fixture(scope="module")
def bundles(folders) -> dict[str, Bundle]:
    return {name: load_bundle(folder) for name, folder in folders.items()}


@pytest.mark.parametrize("method", METHODS)
def test_raw_rows_are_decided_as_the_study_decided_encoded_ones(loans, bundles, raw, method):
    choice = choose(loans, method)
    test = ff.load("loans", 0, select_on="validation", home=loans.home).test
    decided = bundles[method].decide(raw.loc[test.ids])
    assert (decided["refused"] == "").all()
    keywords = {"sensitive_features": test.groups, "ids": test.ids}
    known = {name: keywords[name] for name in choice.model.predict_needs}
    chance = choice.model.predict_proba(test.X, **known)[:, 1]
    if method in ("drawn", "mixed"):
        wanted = choice.model.predict(test.X, **keywords)
        np.testing.assert_allclose(decided["probability"], chance, atol=1e-12)
        assert 0 < decided["probability"].nunique() > 2
    else:
        wanted = choice.model.predict(test.X)
        np.testing.assert_allclose(decided["score"], chance, atol=1e-12)
        assert set(decided["probability"]) == {0.0, 1.0}
    np.testing.assert_array_equal(decided["decision"].astype(int), wanted)
    measured = choice.measures.set_index("name")["value"]
    rates = pd.Series(decided["probability"].to_numpy()).groupby(test.groups[:, 0]).mean()
    assert rates.max() - rates.min() == pytest.approx(measured[DIFFERENCE], abs=1e-9)


def test_a_fresh_process_decides_the_same(folders, bundles, raw, loans, tmp_path):
    code = (
        "import sys, pandas, fairfrontier as ff\n"
        "table = pandas.read_csv(sys.argv[1])\n"
        "for folder in sys.argv[2:]:\n"
        "    ff.load_bundle(folder).decide(table).to_parquet(folder.rpartition('/')[2])\n"
    )
    table = Path(loans.home) / "data/raw/loans.csv"
    arguments = [sys.executable, "-c", code, str(table), *map(str, folders.values())]
    subprocess.run(arguments, env=environment(tmp_path), cwd=tmp_path, check=True)
    for method, bundle in bundles.items():
        again = pd.read_parquet(tmp_path / method)
        pd.testing.assert_frame_equal(again, bundle.decide(raw), check_exact=True)


def test_a_bundle_whose_writer_was_killed_is_found(folders, tmp_path):
    folder = tmp_path / "choice" / "bundle"
    draft = tmp_path / ".complete@"
    shutil.copytree(folders["linear"], draft / "choice" / "bundle")
    load_bundle(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["choice"]


@given(st.randoms(use_true_random=False), st.lists(st.integers(1, 899), max_size=4))
@settings(max_examples=4)
@pytest.mark.parametrize("method", ["drawn", "mixed"])
def test_neither_order_nor_batches_matter(bundles, loans, method, random, cuts):
    table = pd.read_csv(Path(loans.home) / "data/raw/loans.csv")
    table["name"] = [f"person {row}" for row in range(len(table))]
    whole = bundles[method].decide(table, row_id="name")
    order = list(range(len(table)))
    random.shuffle(order)
    mixed = table.iloc[order].reset_index(drop=True)
    edges = [0, *sorted(set(cuts)), len(table)]
    pieces = [
        bundles[method].decide(mixed.iloc[start:stop], row_id="name")
        for start, stop in pairwise(edges)
    ]
    again = pd.concat(pieces).set_index("id").loc[table["name"]]
    pd.testing.assert_frame_equal(again.reset_index(), whole, check_exact=True)


def test_draws_belong_to_row_ids(bundles, raw):
    bundle = bundles["drawn"]
    decided = bundle.decide(raw)
    kept = decided["refused"] == ""
    drawn = uniforms(bundle.model.random_state, np.arange(len(raw)))
    wanted = (drawn < decided["probability"]).astype(int)
    assert (decided["decision"][kept].astype(int) == wanted[kept]).all()
    # The index names rows where no column does.
    moved = bundle.decide(raw.set_axis(np.arange(len(raw)) + 7))
    assert (moved["decision"][kept.to_numpy()].to_numpy() != decided["decision"][kept]).any()
    with pytest.raises(ConfigError, match=r"no column 'customer' of row ids. Add it"):
        bundle.decide(raw, row_id="customer")
    named = raw.assign(customer=["a", None, *["b"] * 898])
    with pytest.raises(DataError, match="missing in row 1"):
        bundle.decide(named, row_id="customer")
    # Rows of a batch are numbered as in the table.
    with pytest.raises(DataError, match="missing in row 501"):
        bundle.decide(named.set_axis(pd.RangeIndex(500, 1400)), row_id="customer")
    with pytest.raises(DataError, match="Name another column with --row-id"):
        bundle.decide(raw.assign(customer=0.5), row_id="customer")


def test_scikit_learn_takes_it_for_a_classifier_on_frames(bundles, raw):
    bundle = bundles["gbdt"]
    table = raw[raw["age"] >= 20]
    label = (table["outcome"] == "repaid").astype(int)
    assert clone(bundle) is bundle
    assert bundle.fit(table, label) is bundle
    assert bundle.score(table, label) == accuracy_score(label, bundle.predict(table)) > 0.75
    assert roc_auc_score(label, bundle.predict_proba(table)[:, 1]) > 0.85
    assert bundle.classes_.tolist() == [0, 1]
    assert bundle.class_names == ("late", "repaid")
    assert bundle.feature_names_in_.tolist() == ["income", "age", "region", "job"]
    assert bundles["drawn"].feature_names_in_[-1] == "origin"
    assert "Bundle" in repr(bundle)
    with pytest.raises(DataError):
        bundle.predict(raw)
    with pytest.raises(DataError):
        bundle.predict(table.to_numpy())


class Stream:
    """Whatever speaks Arrow's C stream, as frames of polars, whose text has views."""

    def __init__(self, table: pa.Table) -> None:
        views = [
            pa.field(each.name, pa.string_view() if pa.types.is_string(each.type) else each.type)
            for each in table.schema
        ]
        self.table = table.cast(pa.schema(views))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", [lambda table: table, Stream, pa.Table.to_reader])
def test_frames_of_other_libraries_are_decided_on_and_explained(bundles, raw, kind):
    bundle = bundles["gbdt"]
    table = pa.Table.from_pandas(raw, preserve_index=False)
    wanted = bundle.decide(raw)
    pd.testing.assert_frame_equal(bundle.decide(kind(table)), wanted)
    kept = (wanted["refused"] == "").to_numpy()
    some, own = table.filter(pa.array(kept)), raw[kept]
    np.testing.assert_array_equal(bundle.predict(kind(some)), bundle.predict(own))
    np.testing.assert_array_equal(bundle.predict_proba(kind(some)), bundle.predict_proba(own))
    explained = ff.explain(bundle, kind(some)).values.to_numpy()
    np.testing.assert_array_equal(explained, ff.explain(bundle, own).values.to_numpy())


def test_rows_that_cannot_be_used_are_refused_with_the_reason(bundles, raw):
    table = raw[raw["age"] >= 20].head(8).astype(object).reset_index(drop=True)
    table.loc[0, "income"] = "much"
    table.loc[1, "income"] = np.inf
    table.loc[2, "income"] = None
    table.loc[3, "job"] = "pilot"
    table.loc[4, "origin"] = None
    table.loc[5, "origin"] = "moon"
    table.loc[6, "age"] = 3
    refused = bundles["drawn"].decide(table)
    assert refused["refused"].tolist() == [
        "income is no number",
        "income is infinite",
        "",
        "",
        "origin is missing",
        "origin is of no known group",
        "age is outside of what the model was made for",
        "",
    ]
    lost = (refused["refused"] != "").to_numpy()
    assert (refused[["score", "probability", "decision"]].isna().all(axis=1) == lost).all()
    # A model that does not look at groups decides on all of them, with or without their column.
    plain = bundles["gbdt"].decide(table.drop(columns="origin"))
    assert (plain["refused"].iloc[3:6] == "").all()
    with pytest.raises(ConfigError, match=r"no column 'origin', which the model decides by"):
        bundles["drawn"].decide(table.drop(columns="origin"))
    with pytest.raises(ConfigError, match=r"no column 'income'.*Did you mean 'Income'"):
        bundles["gbdt"].decide(table.rename(columns={"income": "Income"}))


@pytest.mark.parametrize("method", METHODS)
def test_a_row_without_a_finite_answer_is_refused(bundles, raw, method, monkeypatch):
    table = raw[raw["age"] >= 20].head(60)
    bundle = bundles[method]
    wanted, X = bundle.decide(table), bundle.encode(table).X
    lost = X[:, 0] > np.median(X[:, 0])
    for kind in (Linear, GBDT):
        monkeypatch.setattr(kind, "predict_proba", spoil(kind.predict_proba, X[lost, 0].min()))
    found = bundle.decide(table)
    reasons = np.where(lost, "the model gives no finite answer", "")
    assert found["refused"].tolist() == reasons.tolist()
    pd.testing.assert_frame_equal(found[~lost], wanted[~lost])
    assert found.loc[lost, ["score", "probability", "decision"]].isna().all(axis=None)
    with pytest.raises(DataError):
        bundle.predict(table)


def spoil(predict, least):
    """Return a method that predicts NaN where the first feature is at least a number."""
    return lambda self, X: np.where(X[:, :1] >= least, np.nan, predict(self, X))


def test_a_level_that_training_had_not_is_refused_where_the_bundle_says_so(loans, raw, tmp_path):
    bundle = load_bundle(choose(loans, "gbdt").export(tmp_path / "strict", unseen="refuse"))
    table = raw[raw["age"] >= 20].head(3).copy()
    table.iloc[0, table.columns.get_loc("job")] = "pilot"
    table.iloc[1, table.columns.get_loc("job")] = None
    assert bundle.manifest["unseen_levels"] == "refuse"
    reasons = ["job has a level that training had not", "", ""]
    assert bundle.decide(table)["refused"].tolist() == reasons


def test_text_is_read_as_in_the_study(bundles, raw):
    text = raw.astype(object).map(lambda cell: "NA" if pd.isna(cell) else f" {cell} ")
    whole = raw.assign(age=raw["age"].astype(float), region=pd.Categorical(raw["region"]))
    for bundle in bundles.values():
        decided = bundle.decide(raw)
        pd.testing.assert_frame_equal(bundle.decide(text), decided)
        pd.testing.assert_frame_equal(bundle.decide(whole), decided)


def test_the_reference_counts_the_test_rows(loans, bundles, raw):
    reference = bundles["drawn"].reference
    test = ff.load("loans", 0, select_on="validation", home=loans.home).test
    decided = bundles["drawn"].decide(raw.loc[test.ids])
    assert reference["rows"] == reference["counts"]["labelled"] == test.n_samples
    assert reference["counts"]["positive"] == test.y.sum()
    assert reference["counts"]["selected"] == pytest.approx(decided["probability"].sum())
    for code, level in enumerate(test.attributes["origin"]):
        rows = test.groups[:, 0] == code
        counts = reference["groups"]["origin"][level]
        assert counts["rows"] == rows.sum()
        chance = decided["probability"].to_numpy()[rows]
        assert counts["true_positive"] == pytest.approx(chance @ test.y[rows])
    for histogram in (reference["score"], *reference["features"].values()):
        assert sum(histogram["counts"]) == test.n_samples
        assert min(histogram["counts"][:-2]) >= loans.facts["minimum"]


def test_small_groups_and_levels_are_pooled(bundles):
    encoder, table = bundles["gbdt"].encoder, bundles["gbdt"]
    rows = pd.DataFrame(
        {
            "income": np.arange(40.0),
            "age": 30,
            "region": ["a"] * 37 + ["b"] * 3,
            "job": "clerk",
            "origin": ["north"] * 20 + ["south"] * 15 + ["island"] * 4 + ["moon"],
        }
    )
    from fairfrontier.deployment.bundle import describe_rows

    encoded = table.encode(rows)
    decided = table.judge_rows(rows, encoded)
    found = describe_rows(encoder, encoded, decided, np.full(40, np.nan), 10)
    assert {name: each["rows"] for name, each in found["groups"]["origin"].items()} == {
        "north": 20,
        "south": 15,
        "other": 5,
    }
    assert found["features"]["region"] == {"levels": ["a"], "counts": [37, 3, 0]}
    assert found["features"]["income"]["counts"] == [10, 10, 10, 10, 0]
    assert found["counts"]["labelled"] == 0


@pytest.mark.parametrize("name", ["bundle.json", "encoder.json", "model/manifest.json"])
def test_an_altered_file_is_named(loans, tmp_path, name):
    folder = choose(loans, "linear").export(tmp_path / "bundle")
    path = folder / name
    path.write_text(path.read_text().replace("linear", "lineal").replace("income", "incomes"))
    with pytest.raises(StoreError) as caught:
        load_bundle(folder)
    assert caught.value.fault == f"The file {path} is not what was exported."


def test_files_that_are_missing_or_more_are_refused(loans, tmp_path):
    folder = choose(loans, "linear").export(tmp_path / "bundle")
    with pytest.raises(StoreError):
        choose(loans, "linear").export(folder)
    (folder / "rule").mkdir()
    load_bundle(folder)
    (folder / "rule" / "more.json").write_text("{}")
    with pytest.raises(StoreError, match=r"more\.json is not what was exported"):
        load_bundle(folder)
    (folder / "rule" / "more.json").unlink()
    (folder / "model" / "arrays.npz").unlink()
    with pytest.raises(StoreError, match=r"arrays\.npz is not what was exported"):
        load_bundle(folder)
    manifest = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps({**manifest, "format": 1}))
    with pytest.raises(StoreError, match="bundle of format 1, and this version reads 2"):
        load_bundle(folder)
    (folder / "bundle.json").unlink()
    os.mkfifo(folder / "bundle.json")
    for nothing in (folder, tmp_path):
        with pytest.raises(StoreError):
            load_bundle(nothing)
    assert not [*tmp_path.rglob("*.pkl")]


def test_another_table_than_the_studys_is_not_bundled(loans, tmp_path):
    choice = choose(loans, "linear")
    choice.study.points["value"] += 0.01
    with pytest.raises(StoreError, match=r"linear has an accuracy of 0\.\d+ on the test rows"):
        choice.export(tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_bundles(tmp_path_factory.mktemp("saved"), ("rule", "classes"))


@pytest.mark.parametrize(
    ("name", "edit", "reason"),
    [
        ("bundle.json", lambda tree: tree.pop("format"), "KeyError: 'format'"),
        ("encoder.json", lambda tree: tree.update(unseen="\x1b[2J a\nb"), "'zeros' or 'refuse'"),
        ("model/manifest.json", lambda tree: tree["facts"].clear(), "another version"),
    ],
)
def test_a_refused_bundle_says_why(saved, tmp_path, name, edit, reason):
    folder = shutil.copytree(saved["rule"], tmp_path / "bundle")
    content = json.loads((folder / name).read_text())
    edit(content)
    (folder / name).write_text(json.dumps(content))
    seal(folder)
    with pytest.raises(StoreError, match=reason) as caught:
        load_bundle(folder)
    assert caught.value.fault.isprintable()


@pytest.mark.parametrize("name", ["encoder.json", "reference.json", "model/manifest.json", "more"])
def test_no_link_and_no_pipe_in_a_bundle_is_followed(saved, tmp_path, name):
    for kind in ("link", "pipe"):
        folder = shutil.copytree(saved["rule"], tmp_path / kind)
        path = folder / name
        if path.is_file():
            path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(path)
        manifest = json.loads((folder / "bundle.json").read_text())
        del manifest["sha256"]
        manifest["files"].pop(name, None)
        seal(folder, manifest)
        with pytest.raises(StoreError):
            load_bundle(folder)


@pytest.mark.parametrize(
    ("name", "size", "told"),
    [
        ("bundle.json", 2**30, r"bundle\.json has more than the 33,554,432 bytes that are read"),
        ("encoder.json", 2**26, r"encoder\.json is not what was exported"),
        ("model/arrays.npz", 2**42, r"holds 4,398,.* bytes, more than any bundle may"),
    ],
)
def test_files_of_any_size_are_not_read(saved, tmp_path, name, size, told):
    folder = shutil.copytree(saved["rule"], tmp_path / "bundle")
    os.truncate(folder / name, size)
    with pytest.raises(StoreError, match=told):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["bundle.json", "reference.json", "model/manifest.json"])
@pytest.mark.parametrize(
    ("lead", "told"),
    [
        (lambda key: f'"{key}": 0,', "it has the key '{key}' twice"),
        (lambda _: f'"more": [{"[]," * MOST_VALUES}0],', "{name} has more than the 2,097,152"),
    ],
    ids=["twice", "many"],
)
def test_json_that_others_read_otherwise_or_fills_the_memory_is_refused(
    saved, tmp_path, name, lead, told
):
    folder = shutil.copytree(saved["rule"], tmp_path / "bundle")
    path = folder / name
    text = path.read_text()
    key = next(iter(json.loads(text)))
    path.write_text(text.replace("{", "{" + lead(key), 1))
    if name != "bundle.json":
        seal(folder)
    with pytest.raises(StoreError, match=told.format(key=key, name=path.name)):
        load_bundle(folder)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A bundle with as many levels, of long names, as a dataset may have by default."""
    home = tmp_path_factory.mktemp("wide")
    rows = make_table(0, 8000)
    rng = np.random.default_rng(0)
    for column, number in {"region": 1000, "origin": 500, "job": 8}.items():
        levels = np.array([f"{column} {'x' * 90} {level}" for level in range(number)])
        rows[column] = levels[rng.permutation(len(rows)) % number]
    for folder in ("conf/datasets", "data/raw"):
        (home / folder).mkdir(parents=True)
    rows.to_csv(home / "data/raw/credit-lines.csv", index=False)
    dataset = CLASSES.replace("counterfactuals: {region: {region: all}}\n", "")
    dataset = dataset.replace("groups: {", "groups: {both: {cross: [origin, sex]}, ")
    (home / "conf/datasets/credit-lines.yaml").write_text(dataset)
    table = fit_table(make_request("credit-lines", home=home))
    split = table.encode()
    model = ff.create("nn", steps=1, hidden=[2]).fit(split.train.X, split.train.y)
    manifest = {"format": FORMAT, "study": "wide", "row_id": "case", "minimum": 1}
    manifest |= {"accepted": rows["job"][0], "models": [{"setting": {"x": [0] * 5000}}]}
    bundle = make_bundle(model, RowEncoder.of(table), manifest)
    manifest |= list_facts(bundle)
    bundle.reference = describe_reference(bundle, rows, bundle.encode(rows), 1)
    return bundle


def test_what_a_wide_table_exports_is_read(wide, tmp_path):
    folder = wide.write(tmp_path / "bundle")
    assert (folder / "reference.json").stat().st_size > 2**21
    assert load_bundle(folder).reference == wide.reference


def test_what_is_too_large_to_be_read_is_not_exported(wide, tmp_path, monkeypatch):
    monkeypatch.setattr(text_file, "MOST_VALUES", 10_000)
    with pytest.raises(ConfigError, match=r"cannot be exported: reference\.json has more than the"):
        wide.write(tmp_path / "bundle")
    assert not [*tmp_path.iterdir()]
