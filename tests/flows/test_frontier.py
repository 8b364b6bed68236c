from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from fairfrontier.runner import run_plain
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.writer import check_folder
from fairfrontier.study.config import RunOptions
from fairfrontier.study.run import check_options, start_study
from flows.frontier import frontier
from tests.project import STUDY, make_project


def run(home: Path, **changes: str):
    return frontier(RunOptions(**{"study": "loans", "conf": str(home), **changes}))


@pytest.mark.once
def test_a_second_run_trains_nothing_and_prefect_says_cached(inline, project, tmp_path):
    done = run(project, out=str(tmp_path))
    assert done["trained"] == 0
    assert done["folder"] == str(tmp_path / "loans")
    assert (Path(done["folder"]) / "points.parquet").read_bytes() == inline[1]
    from prefect.client.orchestration import get_client

    # Without the kept files every fit is asked for again, and Prefect remembers what it was told.
    shutil.rmtree(project / "data" / "cache" / "store" / "results")
    run(project)
    with get_client(sync_client=True) as client:
        tasks = client.read_task_runs(limit=200)
    names = {task.state_name for task in tasks if task.name.startswith("fit ")}
    assert "Cached" in names


@pytest.mark.slow
def test_two_workers_give_the_same_bytes(inline, fresh):
    cluster = fresh / "two.yaml"
    cluster.write_text("kind: local\nworkers: 2\n")
    done = run(fresh, cluster=str(cluster))
    assert done["trained"] == 8
    assert (Path(done["folder"]) / "points.parquet").read_bytes() == inline[1]


def test_the_server_shows_table_card_links_and_progress(inline):
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(like_="loans"))
        )
    by_key = {artifact.key: artifact for artifact in found}
    assert {"loans-frontier", "loans-card", "loans-files", "loans-fits"} <= set(by_key)
    assert json.loads(by_key["loans-frontier"].data)[0]["method"] in {"gbdt", "linear", "reweigh"}
    assert "data:image/png;base64," in by_key["loans-card"].data
    assert by_key["loans-card"].data.startswith("# loans")
    # Of the run that came last.
    assert "- [report.html](file:///" in by_key["loans-files"].data
    assert float(by_key["loans-fits"].data) == 100.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"study": "loan"}, "Did you mean 'loans'"),
        ({"profile": "shrot"}, "Did you mean 'short'"),
        ({"cluster": "locl"}, "Did you mean 'local'"),
        ({"out": "/proc/results"}, "--out"),
    ],
)
def test_what_can_be_known_to_be_wrong_is_said_at_once(project, changes, told):
    asked = RunOptions(**{"study": "loans", "conf": str(project), **changes})
    with pytest.raises((ConfigError, StoreError), match=told):
        check_options(asked)


def test_an_unknown_method_gets_the_nearest(tmp_path):
    home = make_project(tmp_path, study=STUDY.replace("  linear:", "  lineer:"))
    with pytest.raises(ConfigError, match="Did you mean 'linear'"):
        check_options(RunOptions(study="loans", conf=str(home)))


def test_the_parameters_are_a_strict_model():
    for wrong in ({}, {"study": ""}, {"study": "loans", "profil": "paper"}):
        with pytest.raises(ValidationError):
            RunOptions.model_validate(wrong)


def test_the_question_whether_a_folder_can_be_written_leaves_no_trace(tmp_path):
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError):
        check_folder(tmp_path / "file" / "b")


@pytest.mark.once
def test_the_graph_of_a_run_shows_the_chain(harness, tmp_path):
    from prefect.client.orchestration import get_client

    home = make_project(tmp_path, study=STUDY.replace("  linear: {}", "  project: {}"))
    done = run(home, cluster="inline", profile="short")
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_runs(limit=1, sort="START_TIME_DESC")[0]
        graph = client.request("GET", f"/flow_runs/{flow_run.id}/graph-v2").json()
    nodes = dict(graph["nodes"])
    stages = {key: node["label"].partition(" ")[0] for key, node in nodes.items()}
    edges = {
        (stages[parent["id"]], stages[key])
        for key, node in nodes.items()
        for parent in node["parents"]
    }
    assert edges == {
        ("prepare", "metric"),
        ("prepare", "fit"),
        ("metric", "fit"),
        ("fit", "measure"),
        ("measure", "frontier"),
        ("frontier", "compare"),
        ("frontier", "report"),
        ("compare", "report"),
    }
    assert sum(stage == "fit" for stage in stages.values()) == done["fits"]


def test_plain_and_flow_leave_the_same_bytes(inline, fresh):
    run_plain(start_study(RunOptions(study="loans", conf=str(fresh), cluster="inline")))
    folder = Path(inline[0]["folder"])
    for name in ("points.parquet", "frontier.csv", "models.csv"):
        assert (fresh / "data" / "results" / "loans" / name).read_bytes() == (
            folder / name
        ).read_bytes()
