"""Splits backed by Dask hold what in-memory splits hold."""

from __future__ import annotations

import gzip

import dask
import dask.array as da
import numpy as np
import pytest

from fairfrontier import load
from fairfrontier.prepare.table import reader
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.prepare.conftest import HOUSING

FEATURES = {
    "numeric": ["income", "points"],
    "quantile": {"columns": ["age"], "bins": 3},
    "categorical": ["city"],
    "binary": {"owner": True},
    "groups": ["origin"],
}
SECTIONS = {
    "features": FEATURES,
    "weight": "weight",
    "perturb": {"noisy_groups": {"origin": {"share": 0.2}}},
    "protected": ["origin", "age", "owner"],
}
VERSION = ("X", "groups")


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def assert_agree(memory, lazy):
    assert lazy.digest == memory.digest
    for field in ("dataset", "task", "feature_names", "protected_columns", "protected_kinds"):
        assert getattr(lazy, field) == getattr(memory, field)
    for (name, part), (other, twin) in zip(memory.parts(), lazy.parts(), strict=True):
        assert name == other
        assert (twin.attributes, twin.classes) == (part.attributes, part.classes)
        assert twin.n_samples == part.n_samples
        order = np.argsort(part.ids)
        rows = twin.X.chunks[0]
        fields = ("ids", "X", "y", "groups", "protected", "weight", "true_groups")
        expected = {field: getattr(part, field) for field in fields}
        lazily = {field: getattr(twin, field) for field in fields}
        for array in filter(lambda each: each is not None, lazily.values()):
            assert isinstance(array, da.Array)
            assert array.chunks[0] == rows
            assert array.chunks[1:] == tuple((size,) for size in array.shape[1:])
        for key, variants in part.counterfactuals.items():
            twins = twin.counterfactuals[key]
            assert [each.name for each in twins] == [each.name for each in variants]
            for each, other in zip(variants, twins, strict=True):
                expected |= {(key, each.name, field): getattr(each, field) for field in VERSION}
                lazily |= {(key, each.name, field): getattr(other, field) for field in VERSION}
        # All at once: a block is read and encoded for each computation.
        (found,) = dask.compute(lazily)
        for field, value in found.items():
            if expected[field] is None:
                assert value is None
                continue
            assert value.dtype == expected[field].dtype
            assert np.array_equal(value, expected[field][order]), (name, field)


@pytest.mark.parametrize("select_on", ["train", "validation"])
def test_csv_in_blocks_agrees_with_memory(project, tmp_path, monkeypatch, select_on):
    monkeypatch.setattr(reader, "BLOCK_BYTES", 4000)
    path = project(**SECTIONS)
    memory = load(path, home=tmp_path, seed=2, select_on=select_on)
    lazy = load(path, home=tmp_path, seed=2, select_on=select_on, backend="dask")
    assert lazy.train.X.numblocks[0] > 3
    assert_agree(memory, lazy)


def test_other_codes_and_decimals_agree_with_memory(project, tmp_path, monkeypatch, people):
    monkeypatch.setattr(reader, "BLOCK_BYTES", 4000)
    people["city"] = people["city"].replace("Bern", "Zürich")
    people.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False, encoding="cp1252")
    source = {"path": "t.csv", "separator": ";", "decimal": ",", "encoding": "cp1252"}
    path = project(source={**source, "missing": ["?"]})
    assert_agree(load(path, home=tmp_path), load(path, home=tmp_path, backend="dask"))


@pytest.mark.parametrize("policy", ["median", "mean"])
def test_parquet_row_groups_agree_with_memory(project, tmp_path, people, policy):
    people.iloc[:300].to_parquet(tmp_path / "0.parquet", row_group_size=60)
    people.iloc[300:].to_parquet(tmp_path / "1.parquet", row_group_size=60)
    missing = {"numeric": policy, "categorical": "category", "columns": {"age": "drop"}}
    source = {
        "path": [{"path": "0.parquet", "part": "train"}, {"path": "1.parquet", "part": "test"}],
        "format": "parquet",
    }
    split = {"kind": "column", "column": "part", "train": "train", "test": "test"}
    path = project(source=source, missing=missing, **{**SECTIONS, "split": split})
    assert_agree(load(path, home=tmp_path), load(path, home=tmp_path, backend="dask"))


@pytest.mark.parametrize(("name", "partitions"), [("german", 3), ("compas", 1), ("communities", 4)])
def test_shipped_datasets_agree_with_memory(name, partitions):
    memory = load(name, seed=1, rows=300, select_on="validation")
    lazy = load(
        name, seed=1, rows=300, select_on="validation", backend="dask", partitions=partitions
    )
    assert_agree(memory, lazy)
    sizes = lazy.train.X.chunks[0]
    assert len(sizes) == partitions
    assert max(sizes) - min(sizes) <= 1


def test_more_partitions_than_rows_leave_none_empty(project, tmp_path):
    lazy = load(project(), home=tmp_path, rows=20, backend="dask", partitions=50)
    assert lazy.train.X.chunks[0] == (1,) * 20


def test_take_works_on_dask_arrays(project, tmp_path):
    path = project()
    lazy, memory = (load(path, home=tmp_path, backend=each) for each in ("dask", "numpy"))
    few = lazy.test.take(np.array([4, 0]))
    expected = memory.test.take(np.argsort(memory.test.ids)[[4, 0]])
    assert np.allclose(few.X.compute(), expected.X)
    for one, other in zip(few.counterfactuals["who"], expected.counterfactuals["who"], strict=True):
        assert np.allclose(one.X.compute(), other.X)
        assert np.array_equal(one.groups.compute(), other.groups)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", {"keep": {"city": {"in": ["Ulm", "bonn"]}}}),
        ("features", {**HOUSING["features"], "levels": {"city": ["Bonn", "Ulm"]}}),
    ],
)
def test_misspelt_levels_are_refused_as_in_memory(project, tmp_path, people, key, value):
    blocks = {"path": "people.parquet", "format": "parquet"}
    people.to_parquet(tmp_path / "people.parquet", row_group_size=100)
    path = project(source=blocks, **{key: value})
    said = []
    for backend in ("numpy", "dask"):
        with pytest.raises(ConfigError) as raised:
            load(path, home=tmp_path, backend=backend)
        said.append(str(raised.value))
    assert said[0] == said[1]
    # In other blocks than the first.
    value = {"keep": {"city": {"in": ["Bonn", "Ulm", "late"]}}}
    people["city"] = [*people["city"][:-1], "late"]
    people.to_parquet(tmp_path / "people.parquet", row_group_size=100)
    lazy = load(project(source=blocks, rows=value), home=tmp_path, backend="dask")
    assert lazy.train.n_samples > 0


@pytest.mark.parametrize("damage", ["cut", "longer", "altered", "open quote", "late row"])
def test_a_broken_file_is_one_sentence(project, tmp_path, monkeypatch, people, damage):
    path = project(source={"path": "t.csv"}, counterfactuals={})
    text = people.to_csv(index=False).encode()
    packed = gzip.compress(text)
    middle = len(packed) // 2
    content = {
        "cut": packed[:-20],
        "longer": packed + b"behind",
        "altered": packed[:middle] + bytes([packed[middle] ^ 255]) + packed[middle + 1 :],
        "open quote": text.replace(b"Ulm", b'"Ulm', 1),
        "late row": text + b"1,2,3,4,5,6,7,8,9\n",
    }[damage]
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError):
        load(path, home=tmp_path, backend="dask")


def test_errors_of_blocks_reach_the_caller(project, tmp_path, people):
    people["income"] = people["income"].astype(object)
    people.loc[333, "income"] = "much"
    with pytest.raises(DataError, match="'income' holds 'much'"):
        load(project(people), home=tmp_path, backend="dask")
    source = {**HOUSING["source"], "sha256": "0" * 64}
    with pytest.raises(DataError, match="expects 000000"):
        load(project(source=source), home=tmp_path, backend="dask")
