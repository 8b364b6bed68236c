from __future__ import annotations

import hashlib

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from fairfrontier.prepare.description import PrepareConfig
from fairfrontier.runtime.errors import ConfigError
from flows import artifact as door
from flows.prepare import prepare
from tests.prepare.source.server import serve
from tests.project import DATASET


def test_the_parts_of_a_table_are_shown(harness, project):
    rows = prepare(PrepareConfig(dataset="loans", conf=str(project)))
    assert [row["part"] for row in rows] == ["train", "test"]
    assert sum(row["rows"] for row in rows) == 900
    for row in rows:
        shares = [value for name, value in row.items() if name.startswith("origin=")]
        assert sum(shares) == pytest.approx(1, abs=1e-3)
        assert all(type(value) in (str, int, float) for value in row.values())


def test_an_unknown_dataset_gets_the_nearest(harness, project):
    with pytest.raises(ConfigError, match="Did you mean 'loans'"):
        prepare(PrepareConfig(dataset="lones", conf=str(project)))


def test_a_fetched_table_shows_how_far_it_is(harness, fresh, monkeypatch):
    monkeypatch.setattr(door, "PUBLISH_SECONDS", 0)
    table = fresh / "data" / "raw" / "loans.csv"
    content = table.read_bytes()
    table.unlink()
    with serve() as server:
        url = server.add("/loans.csv", content)
        sources = f"{{sha256: {hashlib.sha256(content).hexdigest()}, sources: [{{url: '{url}'}}]}}"
        described = DATASET.replace("dataset: loans", "dataset: far-loans")
        described = described.replace("path: data/raw/loans.csv", f"path: {sources}")
        (fresh / "conf" / "datasets" / "far-loans.yaml").write_text(described)
        rows = prepare(PrepareConfig(dataset="far-loans", conf=str(fresh)))
    assert sum(row["rows"] for row in rows) == 900
    wanted = ArtifactFilter(key=ArtifactFilterKey(any_=["far-loans-fetch"]))
    with get_client(sync_client=True) as client:
        shown = client.read_artifacts(artifact_filter=wanted)[-1]
    assert (shown.type, float(shown.data)) == ("progress", 100.0)
    assert shown.description.startswith("loans.csv, ")


def test_progress_is_published_now_and_then(monkeypatch):
    made, moved, clock = [], [], [0.0]
    monkeypatch.setattr(door.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        door,
        "create_progress_artifact",
        lambda share, **facts: made.append((share, facts["key"])) or "0" * 32,
    )
    monkeypatch.setattr(
        door, "update_progress_artifact", lambda _, progress: moved.append(progress)
    )
    shown = door.FetchArtifact("My Table.v2")
    for arrived in range(0, 101, 10):
        clock[0] += 1.0
        shown("x.csv", arrived, 100)
        shown("unknown", arrived, None)
    assert made == [(10.0, "my-table-v2-fetch")]
    assert moved == [30.0, 50.0, 70.0, 90.0, 100.0]
