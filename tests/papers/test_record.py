import json
import subprocess

import pandas as pd
import pytest

from fairfrontier.runtime.errors import StoreError
from fairfrontier.study.check import load_study
from papers.record import record_run
from tests.runtime.test_writer import write_killed

KEY = {"dataset": "german", "setting": '{"budget":1.0}', "n": 10, "low": 0.0, "high": 1.0}


def leave_results(folder):
    named = (
        ("balanced_accuracy", ""),
        ("gap_rms", "age"),
        ("accuracy", "age=young"),
        ("gap_rms", "age×sex"),
        ("tpr", "age=young"),
        ("auc", ""),
    )
    keys = ("method", "seed", "value", "part", "measure", "group")
    rows = [
        {**KEY, **dict(zip(keys, ("budro", seed, value, part, *name), strict=True))}
        for seed, value in enumerate((0.7, 0.8))
        for part in ("validation", "test")
        for name in named
    ]
    folder.mkdir()
    pd.DataFrame(rows).to_parquet(folder / "points.parquet")
    claims = [{"id": "one", "held": True, "evidence": {"numbers": [{"left": 0.123456789}]}}]
    summary = {"seconds": 3.5, "versions": {"python": "3"}, "claims": claims}
    (folder / "summary.json").write_text(json.dumps(summary))


def make_repository(folder):
    person = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    for words in (["init", "-q"], ["add", "."], [*person, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def test_a_run_becomes_a_short_table(root, tmp_path):
    study = load_study("smoke", home=root).study
    leave_results(tmp_path / "smoke")
    path = record_run(study, tmp_path / "smoke", tmp_path)
    assert path == tmp_path / "data" / "reference" / "runs" / "smoke@default.json"
    record = json.loads(path.read_text())
    assert record["profile"] == "default"
    assert record["commit"] == "unknown"
    assert [row["measure"] for row in record["rows"]] == ["balanced_accuracy", "gap_rms:age"]
    row = record["rows"][0]
    assert row["setting"] == {"budget": 1.0}
    assert (row["mean"], row["n_splits"]) == (0.75, 2)
    assert row["sd"] == pytest.approx(0.07071)


SUMMARY = """
with filling(folder) as work:
    (work / "summary.json").write_text((folder / "summary.json").read_text().replace("3.5", "9"))
    (work / "models.csv").touch()
"""


def test_what_a_killed_run_left_is_completed_first(root, tmp_path):
    study = load_study("smoke", home=root).study
    leave_results(tmp_path / "smoke")
    assert write_killed(SUMMARY, 2, tmp_path / "smoke")
    record = json.loads(record_run(study, tmp_path / "smoke", tmp_path).read_text())
    assert record["seconds"] == 9


@pytest.mark.parametrize("content", ["mine", "[" * 100_000, '{"study": "smoke"}', None])
def test_a_file_that_is_no_record_is_not_replaced(root, tmp_path, content):
    study = load_study("smoke", home=root).study
    leave_results(tmp_path / "smoke")
    path = record_run(study, tmp_path / "smoke", tmp_path)
    assert record_run(study, tmp_path / "smoke", tmp_path) == path
    path.unlink()
    if content is None:
        path.symlink_to("mine.json")
    else:
        path.write_text(content)
    with pytest.raises(StoreError):
        record_run(study, tmp_path / "smoke", tmp_path)
    assert path.is_symlink() or path.read_text() == content


def test_the_commit_is_marked_where_files_other_than_records_differ(root, tmp_path, monkeypatch):
    monkeypatch.setattr("papers.record.SHIPPED", tmp_path)

    study = load_study("smoke", home=root).study
    leave_results(tmp_path / "smoke")
    (tmp_path / "code.py").write_text("1")
    path = record_run(study, tmp_path / "smoke", tmp_path)
    make_repository(tmp_path)
    clean = json.loads(record_run(study, tmp_path / "smoke", tmp_path).read_text())["commit"]
    assert len(clean) == 40
    assert (
        json.loads(record_run(study, tmp_path / "smoke", tmp_path).read_text())["commit"] == clean
    )
    (tmp_path / "code.py").write_text("2")
    record_run(study, tmp_path / "smoke", tmp_path)
    assert json.loads(path.read_text())["commit"] == f"{clean}-dirty"


def test_no_program_of_a_project_that_is_not_the_checkout_is_run(root, tmp_path):
    study = load_study("smoke", home=root).study
    leave_results(tmp_path / "smoke")
    make_repository(tmp_path)
    subprocess.run(
        ["git", "config", "core.fsmonitor", f"touch {tmp_path}/ran; false"],
        cwd=tmp_path,
        check=True,
    )
    path = record_run(study, tmp_path / "smoke", tmp_path)
    assert json.loads(path.read_text())["commit"] == "unknown"
    assert not (tmp_path / "ran").exists()


def test_levels_and_claims_that_are_spoken_of_are_kept(root, tmp_path):
    claim = {
        "id": "one",
        "sentence": "A sentence.",
        "compare": {"left": "budro", "value": 0.5, "measure": "tpr:age=young", "relation": ">"},
    }
    study = load_study("smoke", home=root).study
    study = study.model_copy(update={"claims": (claim,)})
    leave_results(tmp_path / "smoke")
    path = record_run(study, tmp_path / "smoke", tmp_path)
    record = json.loads(path.read_text())
    assert [row["measure"] for row in record["rows"]] == [
        "balanced_accuracy",
        "gap_rms:age",
        "tpr:age=young",
    ]
    assert record["claims"][0]["evidence"]["numbers"] == [{"left": 0.12346}]
    # One line a row and a claim.
    assert len(path.read_text().splitlines()) < 25


def test_an_unfinished_run_is_no_evidence(root, tmp_path):
    with pytest.raises(StoreError):
        record_run(load_study("smoke", home=root).study, tmp_path / "smoke", tmp_path)
