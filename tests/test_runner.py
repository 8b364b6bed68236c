"""The chain of a study, run plain."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairfrontier.auditing.audit import write as write_audit
from fairfrontier.auditing.debias import fit_debiasing
from fairfrontier.auditing.debiased import write_debiasing
from fairfrontier.auditing.noisy_groups import run_noisy_audit
from fairfrontier.auditing.option import AuditConfig, DebiasConfig
from fairfrontier.choose.select import Study, export_choice
from fairfrontier.cli.cleaning import CleanConfig, clean, list_items
from fairfrontier.cli.command import show_end, show_frontiers
from fairfrontier.models.baseline.linear import Linear
from fairfrontier.models.registry import load_model
from fairfrontier.prepare.loader import load
from fairfrontier.runner import run_plain
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.study.config import RunOptions
from fairfrontier.study.frontier import NO_MODEL
from fairfrontier.study.run import SilentObserver, start_study
from tests.auditing.noisy_rows import make_table as make_decisions
from tests.auditing.scored import make_scores
from tests.project import DATASET, STUDY, environment, make_project, make_table
from tests.report.test_explorer import read_data

FILES = {
    "points.parquet",
    "scores.parquet",
    "frontier.csv",
    "frontier.png",
    "report.html",
    "summary.json",
    "models.csv",
}


def run(home: Path, **changes: str):
    options = RunOptions(**{"study": "loans", "conf": str(home), "cluster": "inline", **changes})
    return run_plain(start_study(options))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def done(home):
    return run(home)


def test_a_table_never_seen_before_runs_with_yaml_alone(done, home):
    folder = home / "data" / "results" / "loans"
    assert done["folder"] == str(folder)
    assert done["fits"] == done["trained"] == 8
    assert {path.name for path in folder.iterdir()} == FILES
    points = pd.read_parquet(folder / "points.parquet")
    assert set(points["method"]) == {"gbdt", "linear", "reweigh"}
    assert set(points["part"]) == {"train", "validation", "test"}
    levels = points.loc[points["measure"] == "tpr", "group"].unique()
    assert {"origin=island", "origin=north", "origin=south"} <= set(levels)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Return what a study came to with its rows in memory, and with its rows in files."""
    study = """\
study: loans
dataset: loans
metric: {name: subspace}
methods:
  gbdt: {n_estimators: 5}
  linear: {}
  thresholds: {method: gbdt, n_estimators: 5, then: {method: group_thresholds, attributes: origin}}
  k_neighbors: {}
seeds: 1
threads: 1
objective: balanced_accuracy
frontier: {fairness: [gap_rms:origin]}
"""
    facts = {}
    for memory in ("auto", "dask"):
        source = DATASET.replace("data/raw/loans.csv", "data/raw/loans, format: parquet")
        # Without calibration rows rules are fitted on folds of rows, whose order is another one.
        source = source.replace("train: 0.6, test: 0.4", "train: 0.5, calibration: 0.2, test: 0.3")
        dataset = f"{source}memory: {memory}\n"
        home = make_project(tmp_path_factory.mktemp(memory), study, dataset)
        rows = home / "data" / "raw" / "loans"
        rows.mkdir()
        make_table().to_parquet(rows / "all.parquet", row_group_size=500)
        facts[memory] = run(home)
    return facts


def test_rows_that_stay_in_files_give_the_measures_of_rows_in_memory(both):
    inside, lazy = (
        pd.read_parquet(Path(facts["folder"]) / "points.parquet") for facts in both.values()
    )
    assert set(lazy["method"]) == {"gbdt", "linear", "thresholds"}
    inside = inside[inside["method"] != "k_neighbors"].reset_index(drop=True)
    columns = ["method", "setting", "seed", "part", "measure", "group", "n"]
    pd.testing.assert_frame_equal(lazy[columns], inside[columns])
    for column in ("value", "low", "high"):
        np.testing.assert_allclose(lazy[column], inside[column], atol=1e-9, err_msg=column)


def test_a_report_says_what_needs_rows_in_memory(both):
    facts = both["dask"]
    assert facts["memory"] == "dask"
    assert list(facts["skipped"]) == ["k_neighbors"]
    assert "needs all rows in one process's memory" in facts["skipped"]["k_neighbors"]
    assert "needs all rows" in (Path(facts["folder"]) / "report.html").read_text()
    assert "memory" not in both["auto"]
    assert not both["auto"]["skipped"]


def test_certificates_of_rows_that_stay_in_files_are_refused(both):
    home = Path(both["dask"]["folder"]).parents[2]
    study = home / "conf" / "studies" / "loans.yaml"
    certified = study.read_text() + "certificate: {budgets: [0.1]}\n"
    (home / "conf" / "studies" / "certified.yaml").write_text(
        certified.replace("study: loans", "study: certified")
    )
    with pytest.raises(ConfigError, match="certifies models, which needs the rows of loans"):
        run(home, study="certified")


def test_no_bundle_is_made_of_rows_that_stay_in_files(both):
    home = Path(both["dask"]["folder"]).parents[2]
    choice = Study(Path(both["dask"]["folder"]), home, both["dask"]).select()
    with pytest.raises(ConfigError, match="rows stay in files"):
        export_choice(choice, home / "bundle")
    assert not (home / "bundle").exists()


def test_what_a_run_keeps_is_known_as_its_studys_and_stays_while_a_run_lasts(done, home):
    kept = [item for item in list_items(home) if item.kind in ("fits", "measures", "copies")]
    assert {item.studies for item in kept} >= {frozenset({"loans"})}
    assert all("loans" in item.studies for item in kept)
    seen = []

    @contextmanager
    def observe(_):
        seen.append(clean(CleanConfig(conf=home, yes=True)))
        yield SilentObserver()

    # The fits are there: what is new is this profile's report.
    options = RunOptions(study="loans", conf=home, cluster="inline", profile="short")
    run_plain(start_study(options), observe)
    assert len(seen[0].held) == len(seen[0].chosen) > len(kept)
    assert not seen[0].removed


def test_a_model_of_the_frontier_can_be_loaded(done, home):
    folder = Path(done["folder"])
    models = pd.read_csv(folder / "models.csv", keep_default_na=False)
    assert len(models) == done["fits"]
    keys = ["method", "setting", "seed"]
    points = pd.read_parquet(folder / "points.parquet")
    measured = points["part"].eq("test") & points["measure"].eq("accuracy") & points["group"].eq("")
    test = points[measured].set_index(keys)["value"]
    for row in models.to_dict("records"):
        select_on = json.loads(row["setting"])["select_on"]
        split = load("loans", seed=row["seed"], select_on=select_on, home=home)
        right = load_model(home / row["model"]).predict(split.test.X) == split.test.y
        assert test.loc[tuple(row[each] for each in keys)] == pytest.approx(right.mean())


def test_a_level_that_no_row_has_is_refused_before_training(tmp_path):
    home = make_project(tmp_path)
    path = home / "conf" / "studies" / "loans.yaml"
    for named, message in (
        ("tpr:origin=nroth", "'north'"),
        ("tpr:origin=zz", "island, "),
        ("tpr_gap:origin", "origin has 3 levels.*Write tpr_difference:origin"),
    ):
        path.write_text(STUDY.replace("gap_rms:origin", named))
        with pytest.raises(ConfigError, match=f"frontier.fairness names '{named}'.*{message}"):
            run(home, profile="short")
    assert not (home / "data" / "cache" / "store" / "fit").exists()
    path.write_text(STUDY.replace("gap_rms:origin", "tpr:origin=north"))
    assert run(home, profile="short")["fits"] == 4


def test_what_a_killed_cluster_leaves_goes_with_a_run_that_needs_none(
    done, home, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"fairfrontier-{os.getuid()}" / ".unfinished@killed"
    left.mkdir(parents=True)
    # A folder that others may write to is not touched.
    left.parent.chmod(0o777)
    assert run(home)["trained"] == 0
    assert left.exists()
    left.parent.chmod(0o700)
    assert run(home)["trained"] == 0
    assert not left.exists()


def test_a_lost_file_is_restored_without_drawing_again(done, home, monkeypatch):
    folder = home / "data" / "results" / "loans"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "report.html").unlink()
    (folder / "frontier.csv").write_text("spoilt")
    monkeypatch.setattr("fairfrontier.runner.write_results", None)
    assert run(home)["trained"] == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_commands_of_a_report_name_the_folder_of_its_results(done, home):
    assert run(home, out=str(home / "mine"))["trained"] == 0
    for folder, options in ((home / "data" / "results", []), (home / "mine", ["--out", "mine"])):
        page = (folder / "loans" / "report.html").read_text(encoding="utf-8")
        settings = read_data(page)["settings"]
        commands = [shlex.split(each["command"]) for each in settings]
        found = [
            words[4:] for words in commands if words[:3] == ["fairfrontier", "select", "loans"]
        ]
        assert found == [options] * len(found) != []


def test_modes_are_those_that_the_user_asked_for(tmp_path):
    old = os.umask(0o027)
    try:
        home = make_project(tmp_path / "home")
        run(home, profile="short")
        make_scores(200).to_csv(home / "scores.csv", index=False)
        config = DebiasConfig(table=home / "scores.csv", scores="s", groups=("sex",))
        write_debiasing(fit_debiasing(config), home / "debiased", 0.0)
        make_decisions().to_csv(home / "decisions.csv", index=False)
        columns = {"decisions": "decision", "labels": "y", "group": "group", "level": 0.1}
        audited = run_noisy_audit(AuditConfig(table=home / "decisions.csv", **columns))
        write_audit(audited, home / "audited", 0.0)
    finally:
        os.umask(old)
    for path in home.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640), path


def test_what_a_killed_writer_left_is_cleared_where_nothing_is_written(done, home):
    folder = home / "data" / "results" / "loans"
    left = folder / ".complete@"
    left.mkdir()
    run(home)
    assert {path.name for path in folder.iterdir()} == FILES


def test_changed_notes_are_written_without_training(fresh):
    run(fresh, profile="short")
    study = fresh / "conf" / "studies" / "loans.yaml"
    study.write_text(study.read_text() + "notes: Written later.\n")
    done = run(fresh, profile="short")
    assert done["trained"] == 0
    assert "Written later." in (Path(done["folder"]) / "report.html").read_text()


# The search below is spread in every run of the tests.
@pytest.mark.slow
def test_two_workers_give_the_same_bytes(done, fresh):
    cluster = fresh / "two.yaml"
    cluster.write_text("kind: local\nworkers: 2\n")
    again = run(fresh, cluster=str(cluster))
    assert again["trained"] == 8
    first, second = (Path(facts["folder"]) / "points.parquet" for facts in (done, again))
    assert first.read_bytes() == second.read_bytes()


def test_a_damaged_fit_is_said_and_trained_again(done, home, caplog):
    points = Path(done["folder"]) / "points.parquet"
    before = points.read_bytes()
    entry = next((home / "data" / "cache" / "store" / "fit").glob("*/*"))
    facts = entry / "fit.json"
    facts.write_text(facts.read_text() + " ")
    shutil.rmtree(home / "data" / "cache" / "store" / "points")
    with caplog.at_level(logging.WARNING, logger="fairfrontier"):
        again = run(home)
    assert "damaged" in caplog.text
    assert again["folder"] == done["folder"]
    assert points.read_bytes() == before


def test_a_method_that_does_not_fit_the_data_is_left_out_and_named(tmp_path):
    study = STUDY.replace("{attribute: origin, n_estimators: 10}", "{n_estimators: 10}")
    study = study.replace("metric: {name: subspace, regress: [origin]}\n", "")
    groups = "groups:\n  origin: {column: origin}\n"
    home = make_project(
        tmp_path,
        study=study.replace("gap_rms:origin", "consistency:origin"),
        dataset=DATASET.replace(groups, "").replace("[region, job]", "[region, job, origin]"),
    )
    done = run(home, profile="short")
    assert set(done["skipped"]) == {"reweigh"}
    summary = json.loads((Path(done["folder"]) / "summary.json").read_text())
    assert set(summary["skipped"]) == {"reweigh"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("numeric: [income, age]", "numeric: [incmoe, age]", "incmoe"),
        ("column: outcome,", "column: age,", "age"),
    ],
)
def test_a_table_unlike_its_description_fails_before_anything_is_written(tmp_path, old, new, told):
    home = make_project(tmp_path, dataset=DATASET.replace(old, new))
    with pytest.raises((ConfigError, DataError), match=told):
        run(home)
    assert not (home / "data" / "results").exists()
    assert not (home / "data" / "cache" / "store" / "fit").exists()


# The process dies between the first round and the second.
KILLED = """
import os, signal, sys
from fairfrontier.runner import run_study
from fairfrontier.study import search

measure, done = search._Tuner.tell, []

def tell(tuner, *told):
    done.append(told)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    measure(tuner, *told)

search._Tuner.tell = tell
run_study("loans", cluster="inline", home=sys.argv[1])
"""


def test_the_model_behind_a_rule_is_one_of_the_fits(tmp_path):
    study = """
dataset: loans
methods: {parity: {method: linear, then: group_thresholds}}
seeds: 1
frontier: {fairness: ["selection_rate_difference:origin"]}
"""
    home = make_project(tmp_path, study=study)
    first, second = run(home), run(home)
    assert first["fits"] == first["trained"] == second["fits"] == 2
    assert second["trained"] == 0


SEARCHED = """
dataset: loans
methods:
  linear: {}
  random_forest: {n_estimators: 5, max_depth: 3, min_samples_leaf: 5}
  gbdt: {n_estimators: 5, max_depth: 2, reg_lambda: 1.0, min_child_weight: 1.0}
  parity: {method: linear, then: group_thresholds}
seeds: 1
search: {trials: 6}
frontier: {fairness: ["selection_rate_difference:origin"]}
"""


def test_a_search_of_which_every_trial_fails_says_the_first_reason(tmp_path, monkeypatch):
    study = SEARCHED.replace("  parity: {method: linear, then: group_thresholds}\n", "")
    study = "".join(line for line in study.splitlines(keepends=True) if "_est" not in line)

    def fail(*_, **__):
        raise DataError("There are too few rows.", "Give more.")

    monkeypatch.setattr(Linear, "fit", fail)
    with pytest.raises(ConfigError, match="the first so: linear: There are too few rows"):
        run(make_project(tmp_path, study=study))


def test_trials_that_raise_anything_are_counted_and_told(tmp_path, monkeypatch, capsys):
    home = make_project(tmp_path, study=SEARCHED)

    def fail(*_, **__):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(Linear, "fit", fail)
    done = run(home)
    told = "The fit raised LinAlgError: Singular matrix."
    count = done["failed_trials"][0]["trials"]
    assert done["failed_trials"] == [{"row": "linear", "reason": told, "trials": count}]
    assert count < done["trials"]
    assert told in done["skipped"]["linear"]
    assert done["skipped"]["parity"] == NO_MODEL
    folder = Path(done["folder"])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["failed_trials"] == done["failed_trials"]
    assert summary["skipped"] == done["skipped"]
    page = (folder / "report.html").read_text()
    assert f"{count} of the {done['trials']} trials of the search failed" in page
    assert NO_MODEL in page
    show_frontiers(done)
    show_end(done)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{count} of {done['trials']} trials failed: linear: {told}" in shown
    # The report of a run in which they succeed is another one.
    monkeypatch.undo()
    again = run(home)
    assert again["failed_trials"] == []
    assert set(again["skipped"]) <= {"parity"}
    assert "trials of the search failed" not in (folder / "report.html").read_text()


def test_a_fit_without_a_search_fails_as_it_raises(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(Linear, "fit", fail)
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        run(make_project(tmp_path), profile="short")


@pytest.mark.parametrize("error", [StoreError("Full.", "Make room."), OSError("no space left")])
def test_what_fails_of_the_disk_ends_a_search(tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(Linear, "fit", fail)
    with pytest.raises(type(error)):
        run(make_project(tmp_path, study=SEARCHED))


@pytest.mark.once
def test_a_search_is_the_same_on_two_workers_and_after_a_kill(tmp_path):
    parts = "split: {kind: random, train: 0.4, calibration: 0.2, validation: 0.2, test: 0.2}"
    dataset = DATASET.replace("split: {kind: random, train: 0.6, test: 0.4}", parts)
    study = """
dataset: loans
methods: {linear: {}, parity: {method: linear, then: group_thresholds}}
search: {trials: 10}
frontier: {fairness: ["selection_rate_difference:origin"]}
"""
    bytes_of = {}
    for name, cluster in (("killed", "inline"), ("spread", "local")):
        home = make_project(tmp_path / name, dataset=dataset, study=study)
        if name == "killed":
            script = [sys.executable, "-c", KILLED, str(home)]
            killed = subprocess.run(script, env=environment(home), cwd=home, check=False)
            assert killed.returncode == -signal.SIGKILL
        facts = run(home, cluster=cluster)
        # The last steps are as small as chance makes them, and are not divided.
        assert facts["fits"] == 9
        # The round before the kill is found in the store.
        assert facts["trained"] == (5 if name == "killed" else 9)
        assert facts["failed_trials"] == []
        bytes_of[name] = (home / "data/results/loans/points.parquet").read_bytes()
    assert run(home)["trained"] == 0
    assert bytes_of["killed"] == bytes_of["spread"]
