from __future__ import annotations

import json

import pytest

from fairfrontier.auditing.option import AuditConfig
from fairfrontier.runtime.errors import DataError, StoreError
from flows.audit import audit
from tests.auditing.hiring import make_applicants
from tests.auditing.noisy_rows import make_table
from tests.auditing.test_noisy_groups import FILES

COLUMNS = {"decisions": "decision", "labels": "y", "group": "group"}


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "loans.v3.csv.gz"
    make_table().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def done(harness, project, decided):
    asked = {**COLUMNS, "auxiliary": str(decided), "true_group": "true"}
    return audit(AuditConfig(table=str(decided), conf=project, **asked))


def test_a_table_becomes_a_folder_of_results(done, project):
    folder = project / "data" / "results" / "audit" / "loans.v3"
    assert done["folder"] == str(folder)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert done["counts"]["rows"] == 600


def test_the_server_shows_conclusions_bounds_card_links_and_progress(done, project):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(like_="audit-loans-v3"))
        )
    by_key = {artifact.key.removeprefix("audit-loans-v3-"): artifact for artifact in found}
    assert {"conclusions", "bounds", "card", "rows", "files"} <= set(by_key)
    assert json.loads(by_key["conclusions"].data)[0]["measure"] == "tpr"
    assert json.loads(by_key["bounds"].data)[0]["bound"] == "overall"
    assert "[audit.json](file:///" in by_key["files"].data
    assert by_key["rows"].data == 100.0
    assert "data:image/png;base64," in by_key["card"].data
    # A card may be copied elsewhere.
    assert str(project) not in by_key["card"].data


def test_what_fails_leaves_the_results_as_they_were(done, project, decided, tmp_path):
    folder = project / "data" / "results" / "audit" / "loans.v3"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    make_table().assign(y=[*[0] * 590, *[7] * 10]).to_csv(tmp_path / "loans.v3.csv", index=False)
    asked = {**COLUMNS, "level": 0.1, "conf": project}
    with pytest.raises(DataError, match="row 590"):
        audit(AuditConfig(table=str(tmp_path / "loans.v3.csv"), **asked))
    with pytest.raises(StoreError, match="--out"):
        audit(AuditConfig(table=str(decided), out="/proc/nowhere", **asked))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_groups_without_noise_are_compared(harness, project, tmp_path):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    make_applicants(400).to_csv(tmp_path / "applicants.csv", index=False)
    limit = {"selection_rate_ratio:sex": 0.8}
    asked = {"decisions": "hired", "groups": ("sex", "race"), "limit": limit}
    done = audit(AuditConfig(table=tmp_path / "applicants.csv", conf=project, **asked))
    assert done["limits"][0]["limit"] == "selection_rate_ratio:sex"
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(like_="audit-applicants"))
        )
    by_key = {artifact.key.removeprefix("audit-applicants-"): artifact for artifact in found}
    assert {"impact", "limits", "card", "rows", "files"} <= set(by_key)
    assert "data:image/png;base64," in by_key["card"].data
