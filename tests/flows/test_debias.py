from __future__ import annotations

import json

import pandas as pd
import pytest

from fairfrontier.auditing.debiased import FILES
from fairfrontier.auditing.option import DebiasConfig
from fairfrontier.runtime.errors import DataError, StoreError
from flows.debias import debias
from tests.auditing.scored import make_scores


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "loans.v2.csv.gz"
    make_scores(1500).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def done(harness, project, scored):
    asked = {"scores": "s", "groups": ("sex", "race"), "labels": "y", "ids": "id"}
    return debias(DebiasConfig(table=str(scored), conf=project, **asked))


def test_a_csv_of_scores_becomes_a_folder_of_results(done, project):
    folder = project / "data" / "results" / "debias" / "loans.v2"
    assert done["folder"] == str(folder)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert len(pd.read_parquet(folder / "decisions.parquet")) == 1500


def test_the_server_shows_groups_bias_card_links_and_progress(done):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(like_="debias-loans-v2"))
        )
    by_key = {artifact.key.removeprefix("debias-loans-v2-"): artifact for artifact in found}
    assert {"groups", "bias", "card", "rows", "files"} <= set(by_key)
    assert json.loads(by_key["bias"].data)[0]["attribute"] == "sex"
    assert "[thresholds.json](file:///" in by_key["files"].data
    assert by_key["rows"].data == 100.0
    assert "data:image/png;base64," in by_key["card"].data


def test_what_fails_leaves_the_results_as_they_were(done, project, scored, tmp_path):
    folder = project / "data" / "results" / "debias" / "loans.v2"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    frame = make_scores(1500)
    frame.loc[1400, "s"] = 3.0
    frame.to_csv(tmp_path / "loans.v2.csv", index=False)
    asked = {"scores": "s", "groups": ("sex",), "conf": project}
    with pytest.raises(DataError, match="row 1400"):
        debias(DebiasConfig(table=str(tmp_path / "loans.v2.csv"), **asked))
    with pytest.raises(StoreError, match="--out"):
        debias(DebiasConfig(table=str(scored), out="/proc/nowhere", **asked))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
