"""Tables are decided on in batches as whole frames are, whatever their form."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairfrontier as ff
from fairfrontier.cli import command
from fairfrontier.deployment import scoring
from fairfrontier.deployment.bundle import Bundle, load_bundle
from fairfrontier.deployment.config import ScoreConfig
from fairfrontier.deployment.scoring import score
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.table import text
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from tests.deployment.test_bundle import choose


@pytest.fixture(scope="module")
def bundle(loans, tmp_path_factory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle") / "drawn"
    return load_bundle(choose(loans, "drawn").export(folder))


@pytest.fixture
def table(raw) -> pd.DataFrame:
    return raw.assign(customer=[f"c{row}" for row in range(len(raw))])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_batch_of_many_features_has_few_rows(bundle, table, tmp_path, monkeypatch, form):
    path, seen, encode = tmp_path / f"table.{form}", [], RowEncoder.encode
    table.to_csv(path, index=False) if form == "csv" else table.to_parquet(path)
    whole = score(bundle, path, tmp_path / "out" / "whole.parquet")

    def note(self, frame, needed=()):
        seen.append(len(frame))
        return encode(self, frame, needed)

    numbers = len(bundle.encoder.encoder.feature_names) + len(bundle.encoder.classes)
    monkeypatch.setattr(scoring, "BATCH_NUMBERS", 100 * numbers + 1)
    monkeypatch.setattr(RowEncoder, "encode", note)
    small = score(bundle, path, tmp_path / "out" / "small.parquet")
    assert max(seen) == 100
    assert sum(seen) == small.rows == len(table)
    pd.testing.assert_frame_equal(pd.read_parquet(small.path), pd.read_parquet(whole.path))


@pytest.mark.parametrize("rows", [64, 250, 1 << 16])
@pytest.mark.parametrize("form", ["csv", "csv.gz", "tsv", "parquet", "folder"])
def test_tables_of_every_form_are_decided_as_a_frame_is(
    bundle, table, tmp_path, monkeypatch, form, rows
):
    monkeypatch.setattr(scoring, "BATCH_ROWS", rows)
    monkeypatch.setattr(text, "BLOCK_BYTES", 40 * rows)
    path = tmp_path / f"table.{form}"
    if form == "folder":
        path.mkdir()
        table[:500].to_parquet(path / "1.parquet")
        table[500:].to_parquet(path / "2.parquet")
    elif form == "parquet":
        table.to_parquet(path, row_group_size=300)
    else:
        table.to_csv(path, index=False, sep="\t" if form == "tsv" else ",")
    shares: list[float] = []
    scored = score(
        bundle,
        path,
        tmp_path / "out" / "decisions.parquet",
        row_id="customer",
        progress=lambda _, share: shares.append(share),
    )
    decided = pd.read_parquet(scored.path)
    wanted = bundle.decide(table, row_id="customer")
    assert tuple(decided.columns) == bundle.columns
    pd.testing.assert_frame_equal(decided, wanted, check_dtype=False, check_exact=True)
    assert scored.rows == len(table)
    assert scored.decided["1"] == wanted["decision"].sum()
    assert dict(scored.refused) == {
        "age is outside of what the model was made for": (table["age"] < 20).sum()
    }
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert len(shares) > 1 or rows > 900 or form == "csv.gz"


def test_ids_of_any_size_and_those_of_an_index_are_kept(bundle, table, tmp_path):
    ids = [10**17 + row * row for row in range(len(table))]
    table.assign(customer=ids).set_index("customer").to_parquet(tmp_path / "t.parquet")
    score(bundle, tmp_path / "t.parquet", tmp_path / "d.parquet", row_id="customer")
    assert pd.read_parquet(tmp_path / "d.parquet")["id"].tolist() == ids


def test_rows_decided_by_levels_that_training_had_not_are_counted(
    bundle, table, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(scoring, "BATCH_ROWS", 64)
    table = table.assign(region="0" + table["region"].astype("str"))
    table.loc[table.index[::10], "job"] = "pilot"
    decided = table["age"] >= 20
    table.to_parquet(tmp_path / "t.parquet")
    bundle.write(tmp_path / "bundle")
    config = ScoreConfig(
        bundle=tmp_path / "bundle", table=tmp_path / "t.parquet", out=tmp_path / "d.parquet"
    )
    command.score(config)
    text = " ".join(capsys.readouterr().out.split())
    pilots = int((decided & (table["job"] == "pilot")).sum())
    assert f"region {decided.sum()} job {pilots}" in text
    assert "No cell of region is a level that training had" in text
    assert "No cell of job" not in text
    scored = score(bundle, tmp_path / "t.parquet", tmp_path / "d.parquet")
    assert scored.unseen == {"region": decided.sum(), "job": pilots}


def test_without_ids_rows_are_numbered(bundle, table, raw, tmp_path):
    table.to_parquet(tmp_path / "table.parquet")
    scored = ff.score(bundle, tmp_path / "table.parquet", tmp_path / "d.parquet")
    assert scored.row_id is None
    assert scored.randomized
    decided = pd.read_parquet(scored.path)
    assert decided["id"].tolist() == list(range(len(table)))
    pd.testing.assert_frame_equal(decided, bundle.decide(raw), check_dtype=False)


def test_text_is_written_as_the_dataset_says(loans, table, tmp_path):
    bundle = load_bundle(choose(loans, "gbdt").export(tmp_path / "bundle"))
    source = bundle.encoder.config.source.model_copy(
        update={"separator": ";", "encoding": "cp1252", "decimal": ","}
    )
    config = bundle.encoder.config.model_copy(update={"source": source})
    object.__setattr__(bundle.encoder, "config", config)
    written = {"sep": ";", "decimal": ",", "encoding": "cp1252"}
    table.assign(customer="Zoë").to_csv(tmp_path / "table.csv", index=False, **written)
    scored = score(bundle, tmp_path / "table.csv", tmp_path / "d.parquet", row_id="customer")
    assert scored.decided["1"] == bundle.decide(table)["decision"].sum()
    assert set(pd.read_parquet(scored.path)["id"]) == {"Zoë"}


@pytest.mark.parametrize(
    ("above", "written"),
    [
        ("", {}),
        ("Loans of 2020\n\n", {"sep": ";"}),
        ("", {"sep": "\t", "encoding": "cp1252"}),
        ("", {"na_rep": "NA", "lineterminator": "\r\n"}),
    ],
)
def test_a_table_is_decided_however_it_is_written(bundle, table, raw, tmp_path, above, written):
    table = table.assign(**{"Note\n(free)": "Zoë, 1;2", "": np.nan})
    text = table.to_csv(index=False, **written).replace("\r\r", "\r")
    path = tmp_path / "table.csv"
    path.write_bytes((above + text).encode(written.get("encoding", "utf-8")))
    scored = score(bundle, path, tmp_path / "d.parquet", row_id="customer")
    assert scored.rows == len(raw)
    decided = bundle.decide(table.drop(columns=""), row_id="customer")
    found = pd.read_parquet(scored.path)
    pd.testing.assert_frame_equal(found, decided, check_dtype=False)


def test_columns_are_copied_beside_the_decisions(bundle, table, tmp_path):
    path = tmp_path / "table.csv"
    table.to_csv(path, index=False)
    scored = score(bundle, path, tmp_path / "d.parquet", keep=["origin", "outcome"])
    decided = pd.read_parquet(scored.path)
    assert decided["outcome"].tolist() == table["outcome"].tolist()
    kept = score(bundle, path, tmp_path / "d.parquet", keep=["outcome"], drop_refused=True)
    wanted = decided.loc[decided["refused"] == "", [*bundle.columns, "outcome"]].reset_index(
        drop=True
    )
    assert 0 < len(wanted) < len(decided) == kept.rows
    # With missing decisions pandas reads them as floats.
    pd.testing.assert_frame_equal(pd.read_parquet(kept.path), wanted, check_dtype=False)
    account = pd.array([2**60 + 1, None] * (len(table) // 2), dtype="Int64")
    table.assign(account=account).to_parquet(tmp_path / "table.parquet")
    scored = score(bundle, tmp_path / "table.parquet", tmp_path / "d.parquet", keep=["account"])
    copied = pq.read_table(scored.path)["account"]
    assert copied.to_pylist() == [2**60 + 1, None] * (len(table) // 2)
    (tmp_path / "parts").mkdir()
    for name, note in (("0.parquet", 1.5), ("1.parquet", "a")):
        table.assign(note=note).to_parquet(tmp_path / "parts" / name)
    with pytest.raises(DataError):
        score(bundle, tmp_path / "parts", tmp_path / "d.parquet", keep=["note"])
    table.rename(columns={"job": "score"}).to_csv(path, index=False)
    with pytest.raises(ConfigError, match="two columns 'score'"):
        score(bundle, path, tmp_path / "d.parquet", keep=["score"])


def test_what_is_wrong_is_said_before_a_file_is_replaced(bundle, table, tmp_path):
    out = tmp_path / "decisions.parquet"
    path = tmp_path / "table.csv"
    table.to_csv(path, index=False)
    score(bundle, path, out)
    earlier = out.read_bytes()

    def refused(frame: pd.DataFrame, error: type[Exception], told: str, **options: str) -> None:
        frame.to_csv(path, index=False)
        with pytest.raises(error, match=told):
            score(bundle, path, options.pop("out", out), **options)
        assert out.read_bytes() == earlier

    refused(table.drop(columns="job"), ConfigError, r"table\.csv has no column 'job', which")
    refused(table.drop(columns="origin"), ConfigError, "no column 'origin'")
    refused(table, ConfigError, r"no column 'custmer' \(--row-id\)", row_id="custmer")
    refused(table.assign(customer=""), DataError, "missing in row 0", row_id="customer")
    refused(table[:0], DataError, "holds no rows")
    refused(table, ConfigError, "would replace what is read", out=str(path))
    told = r"as Parquet, and d\.CSV ends in \.CSV \(--out\)\. Name the file d\.parquet\."
    refused(table, ConfigError, told, out=str(tmp_path / "d.CSV"))
    refused(table, StoreError, "cannot be written", out="/proc/nowhere/decisions.parquet")
    with pytest.raises(ConfigError):
        score(bundle, tmp_path / "other.csv", out)
    # It may have the same columns.
    pd.read_parquet(out).to_parquet(out)
    earlier = out.read_bytes()
    refused(table, ConfigError, "would replace what score has not written")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["decisions.parquet", "table.csv"]


def test_decisions_replace_no_results_of_another_command(bundle, table, tmp_path):
    table.to_parquet(tmp_path / "table.parquet")
    folder = tmp_path / "choice"
    folder.mkdir()
    (folder / "choice.json").touch()
    table.to_parquet(folder / "decisions.parquet")
    for name in ("decisions.parquet", "choice.json"):
        with pytest.raises(ConfigError, match=rf"another command.*: .*{name}\."):
            score(bundle, tmp_path / "table.parquet", folder / name)
    for _ in range(2):
        score(bundle, tmp_path / "table.parquet", folder / "applicants.parquet")
    assert len(list(folder.iterdir())) == 3


def test_decisions_join_neither_the_parts_of_the_table_nor_the_bundle(bundle, table, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    table.to_parquet(parts / "part.parquet")
    with pytest.raises(ConfigError, match=r"would join a table: .*parts\."):
        score(bundle, parts, parts / "decisions.parquet")
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    bundle.fill(drawn)
    kept = sorted(tmp_path.rglob("*"))
    for place in ("bundle.json", "model/decisions.parquet"):
        with pytest.raises(ConfigError, match=r"would join a bundle: .*drawn\."):
            score(drawn, parts, drawn / place)
    assert sorted(tmp_path.rglob("*")) == kept


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_frames_of_any_kind_are_scored_and_explained_as_a_file(bundle, table, tmp_path, kind):
    table.to_parquet(tmp_path / "table.parquet")
    paths = [tmp_path / "table.parquet", kind(table)]
    by = [score(bundle, each, tmp_path / f"{i}.parquet") for i, each in enumerate(paths)]
    found = [pd.read_parquet(each.path) for each in by]
    pd.testing.assert_frame_equal(found[1], found[0])
    assert by[1].rows == len(table)
    few, whole = kind(table.head(40)), ff.explain(bundle, table.head(40))
    np.testing.assert_array_equal(ff.explain(bundle, few).values, whole.values)


@pytest.fixture(scope="module")
def batch(loans, tmp_path_factory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle") / "gbdt"
    return load_bundle(choose(loans, "gbdt").export(folder))


@pytest.mark.parametrize("seed", [None, 1])
def test_places_are_given_to_a_table_as_to_a_frame_in_any_order_and_batches(
    batch, table, tmp_path, monkeypatch, capsys, seed
):
    monkeypatch.setattr(scoring, "BATCH_ROWS", 100)
    if seed is not None:
        table = table.sample(frac=1.0, random_state=seed)
    level, other = batch.encoder.attributes[0].names[:2]
    bounds = {"floor": {f"origin={level}": 0.5}, "ceiling": {f"origin={other}": 30}}
    batch.write(tmp_path / "bundle")
    table.to_csv(tmp_path / "table.csv", index=False)
    app = command.app
    words = ["score", str(tmp_path / "bundle"), str(tmp_path / "table.csv"), "--row-id", "customer"]
    words += ["--places", "80", "--floor", f"origin={level}:0.5", "--keep", "origin"]
    words += ["--ceiling", f"origin={other}:30", "--out", str(tmp_path / "d.parquet")]
    app(words, standalone_mode=False)
    assert f"origin={level}" in capsys.readouterr().out
    found = pd.read_parquet(tmp_path / "d.parquet")
    wanted = batch.decide(table, row_id="customer", places=80, **bounds)
    given = found.drop(columns="origin").set_index("id").sort_index()
    pd.testing.assert_frame_equal(
        given, wanted.set_index("id").sort_index(), check_dtype=False, check_index_type=False
    )
    chosen = found[found["decision"] == 1]
    assert len(chosen) == 80
    assert (chosen["origin"] == level).sum() >= 40
    assert (chosen["origin"] == other).sum() <= 30
    assert chosen["waiting"].isna().all()
    rest = found[(found["decision"] == 0)]
    assert sorted(rest["waiting"]) == [*range(1, len(rest) + 1)]
    refused = found[found["refused"] != ""]
    assert len(refused) == (table["age"] < 20).sum()
    assert refused[["decision", "waiting"]].isna().all(axis=None)
    by_score = batch.decide(table, places=80)
    assert by_score.loc[by_score["decision"] == 1, "score"].min() >= (
        by_score.loc[by_score["decision"] == 0, "score"].max()
    )


def test_places_that_cannot_be_given_leave_no_file(batch, table, tmp_path):
    level = batch.encoder.attributes[0].names[0]
    out = tmp_path / "d.parquet"
    for options, told in (
        ({"places": 10**6}, "1000000 places"),
        ({"places": 9, "floor": {"origin=nowhere": 3}}, "nowhere"),
        ({"places": 9, "floor": {"orign=a": 3}}, "orign"),
        ({"floor": {f"origin={level}": 3}}, "no number of places"),
        ({"places": 9, "keep": ["waiting"]}, "two columns"),
    ):
        with pytest.raises(ConfigError, match=told):
            score(batch, table.assign(waiting=1), out, **options)
    with pytest.raises(ConfigError, match="no column 'origin'"):
        score(batch, table.drop(columns="origin"), out, places=9, floor={f"origin={level}": 3})
    with pytest.raises(DataError):
        score(batch, table.assign(customer="same"), out, places=9, row_id="customer")
    assert not out.exists()


def test_places_are_favourable_decisions(batch, table):
    name = batch.class_names[0]
    label = batch.encoder.config.label.model_copy(update={"favourable": name})
    turned = copy(batch)
    config = batch.encoder.config.model_copy(update={"label": label})
    turned.encoder = replace(batch.encoder, config=config)
    decided = turned.decide(table, places=50)
    assert (decided["decision"] == 0).sum() == 50
    assert decided.loc[decided["decision"] == 0, "score"].max() <= (
        decided.loc[decided["decision"] == 1, "score"].min()
    )
