"""What every dataset of conf/datasets keeps to once it is loaded."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache
from pathlib import Path

import dask
import numpy as np
import pytest

from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.prepare.loader import load
from fairfrontier.prepare.source import fetch
from fairfrontier.prepare.split import Part, Split
from fairfrontier.prepare.table import reader
from tests.contracts.arrays import NAMES as KEPT
from tests.contracts.arrays import digest_split, read_kept, sort_rows
from tests.prepare.conftest import count_rows
from tests.prepare.embedding.stub import put_stub
from tests.prepare.fetched import FETCHED, OWN, require_files

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (ROOT / "conf" / "datasets").glob("*.yaml"))

# Of these, some rows are in no part.
PARTIAL = {"credit-dropped", "toxicity", "occupations", "law-sample", "adult-regression-sample"}

# A hundred thousand texts are searched for it.
LARGE = {"toxicity-all"}

MARKS = [(pytest.mark.slow, LARGE), (pytest.mark.fetched, FETCHED)]

every_dataset = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[mark for mark, names in MARKS if name in names]) for name in NAMES],
)


@cache
def config(name: str) -> DatasetConfig:
    return read_dataset(ROOT / "conf" / "datasets" / f"{name}.yaml", ROOT)


@cache
def split(name: str) -> Split:
    require_files(name)
    return load(name, home=ROOT)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    put_stub(monkeypatch)

    def refuse(*arguments, **keywords):
        raise AssertionError("a test of datasets wants to download")

    monkeypatch.setattr(fetch, "_try_each", refuse)


@cache
def kept(name: str) -> int:
    """Return the rows of a table that its dataset keeps."""
    require_files(name)
    rows = count_rows(ROOT, name)
    assert rows is not None
    return rows


def parts(name: str) -> list[Part]:
    return [part for _, part in split(name).parts()]


def test_there_are_datasets():
    assert {"adult", "german", "compas", "credit", "law", "communities"} <= set(NAMES)


@every_dataset
def test_rows_of_every_dataset(name):
    assert kept(name) == (config(name).expected.rows or kept(name))


@every_dataset
def test_says_what_it_is_and_pins_its_files(name):
    described = config(name)
    assert described.dataset == name
    assert described.description
    assert described.notes
    assert described.label.meaning or described.label.task == "regression"
    for file in described.source.files:
        if name in OWN:
            continue
        pinned = file.sha256 or described.source.sha256
        if file.sources:
            # What is not committed is pinned all the same, and its notes say where it is from.
            assert pinned
            continue
        assert pinned == hashlib.sha256((ROOT / file.path).read_bytes()).hexdigest()


@every_dataset
def test_arrays_fit_together(name):
    loaded = split(name)
    assert len(set(loaded.feature_names)) == len(loaded.feature_names)
    assert set(loaded.protected_columns) == set(loaded.protected_kinds)
    for columns in loaded.protected_columns.values():
        assert set(columns) <= set(range(len(loaded.feature_names)))
    for part in parts(name):
        assert part.dataset == name
        n_samples = part.n_samples
        assert n_samples > 0
        assert part.X.dtype == np.float64
        assert part.X.shape == (n_samples, len(loaded.feature_names))
        assert np.isfinite(part.X).all()
        assert part.y.shape == part.ids.shape == part.weight.shape == (n_samples,)
        assert part.groups.shape == (n_samples, len(part.attributes))
        assert part.protected.shape == (n_samples, len(loaded.protected_kinds))
        assert np.isfinite(part.protected).all()
        assert np.isfinite(part.weight).all()
        assert part.weight.min() >= 0


@every_dataset
def test_codes_stay_inside_their_levels(name):
    for part in parts(name):
        for attribute, levels in part.attributes.items():
            codes = part.group(attribute)
            assert codes.dtype == np.int64
            assert codes.min() >= 0
            assert codes.max() == len(levels) - 1
            assert len(set(levels)) == len(levels) > 1
        if split(name).task == "regression":
            assert part.y.dtype == np.float64
            assert np.isfinite(part.y).all()
        else:
            assert part.y.dtype == np.int64
            assert set(np.unique(part.y)) == set(range(len(part.classes)))


@every_dataset
def test_nothing_is_constant_that_a_fair_model_needs(name):
    train = split(name).train
    for attribute, levels in train.attributes.items():
        seen = np.bincount(train.group(attribute), minlength=len(levels))
        assert (seen > 0).all(), attribute
    assert (np.ptp(train.protected, axis=0) > 0).all()


@every_dataset
def test_no_row_is_in_two_parts(name):
    ids = np.concatenate([part.ids for part in parts(name)])
    assert len(np.unique(ids)) == len(ids)
    assert len(ids) <= kept(name)
    if name not in PARTIAL and config(name).expected.rows:
        assert len(ids) == kept(name)


@every_dataset
def test_sizes_are_the_declared_ones(name):
    described = config(name)
    if described.split.kind == "column" or described.perturb.drop:
        # A column of the table decides, or rows are dropped at random afterwards.
        assert sum(part.n_samples for part in parts(name)) <= kept(name)
        return
    declared = described.split.parts
    others = described.split.others
    sizes = {part.name: part.n_samples - others.get(part.name, 0) for part in parts(name)}
    assert set(sizes) == set(declared)
    levels = max(
        [len(part.attributes.get(str(described.split.group), "1")) for part in parts(name)]
    )
    for part, amount in declared.items():
        if isinstance(amount, int):
            assert sizes[part] == amount
        elif isinstance(amount, float) and not described.split.of:
            # Shares are rounded, inside each group where the split is per group.
            assert abs(sizes[part] - amount * kept(name)) <= levels
    if described.split.of:
        return
    if "rest" in declared.values() or sum(map(float, declared.values())) == 1.0:
        assert sum(sizes.values()) == kept(name)


@every_dataset
def test_counterfactuals_change_what_they_say_and_no_more(name):
    described = config(name)
    for part in parts(name)[-1:]:
        assert set(part.counterfactuals) == set(described.set_names)
        for key, variants in part.counterfactuals.items():
            seen = Counter()
            for variant in variants:
                seen[variant.name] += 1
                assert variant.X.shape == part.X.shape
                assert np.isfinite(variant.X).all()
                assert variant.groups.shape == part.groups.shape
                moved = np.flatnonzero((variant.X != part.X).any(axis=0))
                names = {split(name).feature_names[column] for column in moved}
                sources = tuple(described.counterfactuals.get(key, ()))
                if key not in described.counterfactuals:
                    sources = (str(described.text and described.text.column),)
                touched = (*sources, *_made_of(described, sources))
                assert all(each.startswith(touched) for each in names), names
            assert tuple(seen) == tuple(variants.names)
            assert len(seen) > 1
            assert set(seen.values()) == {1}


def _made_of(described: DatasetConfig, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the prefixes of features that are groups, and follow the columns they come from."""
    return tuple(
        f"group:{group}" for group, each in described.groups.items() if each.column in columns
    )


@pytest.mark.parametrize("name", KEPT)
def test_arrays_are_the_kept_ones_to_the_last_byte(name):
    assert digest_split(split(name)) == read_kept()[name]


# On Dask the others take seconds each.
QUICK = {"german", "compas", "neighbourhoods", "synthetic"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in KEPT]
)
def test_arrays_of_many_blocks_on_dask_are_those_in_memory(name, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_BYTES", 2**18)
    with dask.config.set(scheduler="synchronous"):
        blocks = load(name, home=ROOT, backend="dask")
        assert digest_split(blocks) == digest_split(sort_rows(split(name)))


def list_dealt() -> list[str]:
    """Return one dataset for each table and kind of split that a seed deals."""
    found = {}
    for name in NAMES:
        described = config(name)
        if described.split.kind != "column":
            found.setdefault((str(described.source.path), described.split.kind), name)
    return list(found.values())


@pytest.mark.parametrize("name", list_dealt())
def test_another_seed_deals_other_rows(name):
    require_files(name)
    # Of fewer comments none may mention men.
    other = load(name, 1, rows=5_000, home=ROOT)
    assert other.digest != split(name).digest
    assert set(other.test.ids) != set(split(name).test.ids)
