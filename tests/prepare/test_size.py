from __future__ import annotations

import hashlib

import pandas as pd
import pytest

from fairfrontier import load
from fairfrontier.prepare import loader
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.loader import CELL, TEXT_BYTE, estimate_bytes, stays_in_files
from fairfrontier.prepare.source.fetch import FOLDER
from fairfrontier.runtime.errors import ConfigError


@pytest.mark.parametrize(("room", "stays"), [(10**12, False), (1000, True)])
def test_rows_stay_in_files_where_memory_is_short(project, tmp_path, monkeypatch, room, stays):
    path = project()
    monkeypatch.setattr(loader, "count_memory", lambda: room)
    assert stays_in_files(read_dataset(path), path, tmp_path) is stays
    asked = project(memory="dask")
    assert stays_in_files(read_dataset(asked), asked, tmp_path)


def test_encoded_rows_that_the_machine_has_no_room_for_are_refused(project, tmp_path, monkeypatch):
    path = project()
    split = load(path, home=tmp_path)
    parts = [part for _, part in split.parts()]
    wanted = sum(part.X.nbytes for part in parts)
    monkeypatch.setattr(loader, "count_memory", lambda: 2 * wanted)
    assert load(path, home=tmp_path).train.X.shape == split.train.X.shape
    monkeypatch.setattr(loader, "count_memory", lambda: 2 * wanted - 2)
    monkeypatch.setattr(loader, "estimate_bytes", lambda *_: 0)
    told = rf"features makes {len(split.feature_names)} columns of X.*memory: dask\."
    with pytest.raises(ConfigError, match=told):
        load(path, home=tmp_path)


def test_estimates_are_of_cells_and_of_text(project, tmp_path, people):
    path = project()
    text = read_dataset(path).source
    written = (tmp_path / "people.csv").stat().st_size
    assert estimate_bytes(text, tmp_path, tmp_path) == TEXT_BYTE * written
    people.to_parquet(tmp_path / "a.parquet", index=False)
    people.head(7).to_parquet(tmp_path / "b.parquet", index=False)
    columns = read_dataset(project(source={"path": "*.parquet", "format": "parquet"})).source
    cells = (len(people) + 7) * pd.read_parquet(tmp_path / "a.parquet").shape[1]
    assert estimate_bytes(columns, tmp_path, tmp_path) == CELL * cells


def test_files_with_sources_count_where_they_are_here(project, tmp_path):
    project()
    written = (tmp_path / "people.csv").read_bytes()
    digest = hashlib.sha256(written).hexdigest()
    url = {"url": "https://example.org/people.csv", "bytes": 70}

    def estimate(name: str) -> int:
        file = {"path": name, "sources": [url], "sha256": digest}
        source = read_dataset(project(source={"path": [file]})).source
        return estimate_bytes(source, tmp_path, tmp_path)

    assert estimate("people.csv") == TEXT_BYTE * len(written)
    assert estimate("elsewhere.csv") == TEXT_BYTE * 70
    kept = tmp_path / FOLDER / digest
    kept.mkdir(parents=True)
    (kept / "people.csv").write_bytes(written)
    assert estimate("elsewhere.csv") == TEXT_BYTE * len(written)
