from __future__ import annotations

import json
import subprocess

import pandas as pd
import pytest

from fairfrontier.cli import command as cli
from fairfrontier.prepare.splitting.encoder import Encoder
from fairfrontier.runner import run_plain
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.text_file import to_csv, write_json
from fairfrontier.study.config import RunOptions
from fairfrontier.study.run import start_study
from tests.cli.process import kill_when
from tests.project import call, call_here, command, environment, make_project


@pytest.mark.once
def test_killed_and_started_again_it_finishes_with_the_same_bytes(fresh, tmp_path):
    store = fresh / "data" / "cache" / "store" / "fit"
    below = kill_when(fresh, lambda: len(list(store.glob("*/*"))) >= 2, "--cluster", "local")
    assert len(below) >= 2, "two workers"
    assert not (fresh / "data" / "results" / "loans" / "points.parquet").exists()
    again = call_here(fresh, "run", "loans")
    assert again.returncode == 0, again.stderr
    assert "Traceback" not in again.stderr
    assert "report.html" in again.stdout
    points = (fresh / "data" / "results" / "loans" / "points.parquet").read_bytes()
    whole = make_project(tmp_path / "whole")
    run_plain(start_study(RunOptions(study="loans", conf=str(whole), cluster="inline")))
    assert points == (whole / "data" / "results" / "loans" / "points.parquet").read_bytes()


@pytest.mark.once
def test_two_runs_at_once_both_finish(fresh):
    both = [
        subprocess.Popen(
            command("run", "loans", "--profile", "short", "--cluster", "inline"),
            env=environment(fresh),
            cwd=fresh,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        _, said = process.communicate(timeout=180)
        assert process.returncode == 0, said
    assert (fresh / "data" / "results" / "loans@short" / "points.parquet").is_file()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "lones"), "Did you mean 'loans'"),
        (("run", "loans", "--out", "/proc/nowhere"), "--out"),
        (("run", "loans", "--out", "data/cache"), "the cache"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(fresh, arguments, told):
    result = call_here(fresh, *arguments)
    assert result.returncode == 2
    assert told in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (fresh / "data" / "results").exists()


def test_a_study_replaces_no_audit_of_its_name(fresh):
    folder = fresh / "data" / "results" / "audit" / "loans"
    folder.mkdir(parents=True)
    for name in ("audit.json", "report.html"):
        (folder / name).touch()
    result = call_here(fresh, "run", "loans", "--out", "data/results/audit")
    assert result.returncode == 2
    assert "another command's" in result.stderr
    assert len(list(folder.iterdir())) == 2


def test_what_is_known_is_listed(project):
    result = call_here(project, "list", "studies", "--json")
    assert result.returncode == 0, result.stderr
    entries = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert entries["paper"]["reproduces"] == "toy.table1"
    assert entries["loans"]["profiles"] == "default, short"


@pytest.mark.parametrize("kind", cli.KINDS)
def test_every_kind_is_listed_as_table_and_as_json(kind, root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    cli.list_known(kind, as_json=True)
    entries = json.loads(capsys.readouterr().out)
    assert len(entries) >= 1
    assert all(entry["name"] for entry in entries)
    cli.list_known(kind, as_json=False)
    assert entries[0]["name"][:5] in capsys.readouterr().out


def test_a_list_for_programs_cannot_steer_the_terminal(monkeypatch, capsys):
    entries = [{"name": "\x1b]0;title\x07 \x9b2J \x7f \u202eü", "about": "[bold]x[/]"}]
    monkeypatch.setattr("fairfrontier.cli.catalog.list_entries", lambda *_: entries)
    cli.list_known("studies", as_json=True)
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == entries


def test_an_unknown_kind_gets_the_nearest(project):
    with pytest.raises(ConfigError, match="Did you mean 'methods'"):
        cli.list_known("method", conf=project)


def test_conf_names_the_folder_or_the_root_that_holds_it(project, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIRFRONTIER_HOME", "")
    assert cli.find_project(project) == project
    assert cli.find_project(project / "conf") == project
    with pytest.raises(ConfigError, match="--conf"):
        cli.find_project(tmp_path)


def test_a_label_may_look_like_a_number(tmp_path, capsys):
    row = {"fairness": "consistency:sex", "method": "2024", "setting": "{}", "on_frontier": True}
    names = ("accuracy", "accuracy_low", "accuracy_high")
    row |= dict.fromkeys([*names, "fairness_value", "fairness_low", "fairness_high"], 0.5)
    row["left_out"] = 2
    (tmp_path / "frontier.csv").write_bytes(to_csv(pd.DataFrame([row])))
    write_json({"accuracy": "accuracy"}, tmp_path / "summary.json")
    facts = {"study": "loans", "folder": str(tmp_path), "fits": 1, "trained": 1, "seconds": 0.0}
    cli.show_frontiers({**facts, "skipped": {}})
    shown = capsys.readouterr().out
    assert "2024" in shown
    # How many groups the difference leaves out stands beside it.
    assert "left out: 2" in " ".join(shown.replace("\N{NO-BREAK SPACE}", " ").split())


def test_rows_that_stay_in_files_are_not_encoded_to_be_described(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError

    home = make_project(tmp_path)
    path = home / "conf" / "datasets" / "loans.yaml"
    inside = call_here(home, "prepare", "loans")
    path.write_text(path.read_text() + "memory: dask\n")
    monkeypatch.setattr(Encoder, "encode", refuse)
    lazy = call_here(home, "prepare", "loans")
    assert lazy.returncode == inside.returncode == 0
    assert lazy.stdout == inside.stdout


def test_the_version_is_printed(project):
    result = call(project, "--version")
    assert result.returncode == 0
    assert result.stdout.strip().count(".") == 2
