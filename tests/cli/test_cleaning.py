from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from fairfrontier.cli import cleaning
from fairfrontier.cli.cleaning import (
    COMMANDS,
    KINDS,
    NAMED,
    CleanConfig,
    choose_items,
    clean,
    list_items,
)
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.option import SIGNS, ResultOptions
from fairfrontier.runtime.store import Store, open_store
from fairfrontier.runtime.writer import filling, holding, locking, sharing
from tests.project import ROOT, call_here


def write(store: Store, kind: str, description: dict, text: str = "x" * 100) -> str:
    key = store.key(kind, description)
    with store.writing(kind, key, description) as folder:
        (folder / "file").write_text(text)
    return key


@pytest.fixture
def home(tmp_path):
    """Return a project with two studies, which share a fit, and with each kind of what is held."""
    (tmp_path / "conf" / "studies").mkdir(parents=True)
    store = open_store(tmp_path)
    own, shared, base = (write(store, "fit", {"number": i}) for i in range(3))
    ruled = write(store, "fit", {"base": base, "then": "rule"})
    write(store, "fit", {"number": "of a run that never ended"})
    write(store, "split", {"seed": 0})
    plans = {"german": (own, shared, ruled), "adult": (shared,)}
    for study, fits in plans.items():
        points = [write(store, "points", {"fit": fit}) for fit in fits]
        plan = [{"points": key} for key in points]
        named = {"study": study, "profile": "paper" if study == "adult" else "default"}
        write(store, "results", {"study": named, "plan": plan})
    write(Store(tmp_path / "data" / "cache" / "tables"), "table", {"of": "texts"})
    downloaded = tmp_path / "data" / "cache" / "downloads" / ("ab" * 32)
    downloaded.mkdir(parents=True)
    (downloaded / "file.csv").write_text("1,2\n")
    vectors = tmp_path / "data" / "cache" / "embeddings"
    vectors.mkdir()
    (vectors / "cd.sqlite").write_text("vectors")
    for name in ("german", "adult@paper", "audit/loans", "monitor/german", "debias/of-a-user"):
        folder = tmp_path / "data" / "results" / name
        folder.mkdir(parents=True)
        (folder / ("notes.txt" if "user" in name else "report.html")).write_text("report")
        if name in ("german", "adult@paper"):
            pd.DataFrame(columns=list(SIGNS["run"])).to_parquet(folder / "points.parquet")
        elif name == "audit/loans":
            (folder / "audit.json").write_text("\n".join(SIGNS["audit"]))
        elif name == "monitor/german":
            (folder / "monitor.json").write_text("\n".join(SIGNS["monitor"]))
            (folder / "rows@2026-01.parquet").touch()
    return tmp_path


def find_rest(home) -> dict[str, int]:
    kinds = [item.kind for item in list_items(home)]
    return {kind: kinds.count(kind) for kind in KINDS if kind in kinds}


ALL = {
    "fits": 5,
    "measures": 3,
    "copies": 2,
    "inputs": 1,
    "tables": 1,
    "embeddings": 1,
    "downloads": 1,
    "results": 3,
    "histories": 1,
}


def test_nothing_is_removed_unless_it_is_asked_for(home):
    assert find_rest(home) == ALL
    done = clean(CleanConfig(conf=home))
    assert {item.kind for item in done.chosen} == {*KINDS} - {*NAMED}
    assert (done.removed, find_rest(home)) == ([], ALL)
    done = clean(CleanConfig(conf=home, yes=True))
    assert find_rest(home) == {"results": 3, "histories": 1}
    assert len(done.removed) == len(done.chosen)
    # A folder that no command left is nobody's.
    clean(CleanConfig(conf=home, yes=True, kind="results,histories"))
    assert find_rest(home) == {}
    assert (home / "data" / "results" / "debias" / "of-a-user" / "notes.txt").is_file()
    assert not [path for path in home.rglob(".*") if path.is_dir()]


@pytest.mark.parametrize("stranger", ["my-notes.md", "choice/explain.csv", "scores.csv"])
def test_results_with_a_file_that_no_command_wrote_stay(home, stranger):
    folder = home / "data" / "results" / "german"
    (folder / stranger).parent.mkdir(exist_ok=True)
    (folder / stranger).write_text("mine")
    done = clean(CleanConfig(conf=home, yes=True, kind="results"))
    # Of a folder without any of ours its name is told.
    assert done.kept == {folder: f"{folder} holds something else: {stranger.partition('/')[0]}"}
    assert (folder / stranger).read_text() == "mine"
    assert folder not in {item.path for item in done.removed}


@pytest.mark.parametrize("place", ["monitor/german", "german/watched", "thesis"])
def test_a_history_with_a_file_that_no_command_wrote_stays(home, place):
    folder = home / "data" / "results" / place
    folder.mkdir(exist_ok=True)
    for name in ("report.html", "history.parquet", "mine.docx"):
        (folder / name).write_text("mine")
    done = clean(CleanConfig(conf=home, yes=True, kind="histories"))
    assert (folder / "mine.docx").read_text() == "mine"
    (reason,) = done.kept.values()
    assert "holds something else" in reason
    assert [item.path.name for item in done.removed] == ["german"] * (place != "monitor/german")


def test_what_a_killed_clean_had_moved_away_goes(home):
    for base in ("data/cache/store", "data/results", "data/results/audit"):
        (home / base / ".unfinished@0" / "1").mkdir(parents=True)
    clean(CleanConfig(conf=home, kind="fits"))
    assert len([*home.rglob(".unfinished@*")]) == 3
    clean(CleanConfig(conf=home, kind="fits", yes=True))
    assert [*home.rglob(".unfinished@*")] == []


def test_results_with_a_completed_paper_stay(home):
    choice = home / "data" / "results" / "german" / "choice"
    (choice / "bundle").mkdir(parents=True)
    (choice / "bundle" / "bundle.json").write_text('{"files": {}}')
    (choice / "technical-file.md").write_text("completed")
    written = {"query": "", "selected": {}, "papers": {"technical-file.md": "another"}}
    (choice / "choice.json").write_text(json.dumps(written))
    done = clean(CleanConfig(conf=home, yes=True, kind="results"))
    assert "technical-file.md is not as the last choice left it" in done.kept[choice.parent]
    assert (choice / "technical-file.md").is_file()


def test_what_another_study_needs_stays(home):
    owned = {(item.kind, *sorted(item.studies)) for item in list_items(home)}
    assert ("fits", "adult@paper", "german") in owned
    done = clean(CleanConfig(conf=home, study="german", yes=True))
    # Its own fit, that of its rule and the model behind it; points of the first two, and a copy.
    assert sorted(item.kind for item in done.removed) == [
        "copies",
        *["fits"] * 3,
        *["measures"] * 2,
    ]
    assert {item.studies for item in list_items(home) if item.kind == "fits"} == {
        frozenset(),
        frozenset({"adult@paper"}),
    }
    with pytest.raises(ConfigError, match=r"study 'germany'\. Did you mean 'german'"):
        clean(CleanConfig(conf=home, study="germany"))


def test_measures_that_are_gone_leave_the_other_fits_known(home):
    alone = frozenset({"german"})
    gone = next(
        item for item in list_items(home) if (item.kind, item.studies) == ("measures", alone)
    )
    shutil.rmtree(gone.path)
    left = [item.studies for item in list_items(home) if item.kind == "fits"]
    assert left.count(alone) in (1, 2)
    assert frozenset({"german", "adult@paper"}) in left


@pytest.mark.parametrize(
    "description",
    [{}, {"study": "german"}, {"study": {"study": [], "profile": 1}, "plan": [{"points": {}}]}],
)
def test_a_copy_of_another_kind_belongs_to_nobody(home, description):
    write(open_store(home), "results", description)
    assert find_rest(home) == ALL | {"copies": 3}
    copies = [item.studies for item in list_items(home) if item.kind == "copies"]
    assert frozenset({"german"}) in copies


def test_a_pipe_in_place_of_a_manifest_is_not_waited_for(home):
    entry = next(item.path for item in list_items(home) if item.kind == "copies")
    (entry / "manifest.json").unlink()
    os.mkfifo(entry / "manifest.json")
    assert find_rest(home) == ALL
    assert len(clean(CleanConfig(conf=home, damaged=True, yes=True)).removed) == 1


def test_only_what_is_old_enough_goes(home):
    old = next(item.path for item in list_items(home) if item.kind == "downloads")
    then = time.time() - 40 * 86_400
    os.utime(old / "file.csv", (then, then))
    done = clean(CleanConfig(conf=home, older_than="30d", yes=True))
    assert [item.path for item in done.removed] == [old]
    assert clean(CleanConfig(conf=home, older_than="0h")).chosen


@pytest.mark.parametrize("text", ["30", "d", "-1d", "30 days", "9999999d"])
def test_an_age_needs_its_unit(home, text):
    done = call_here(home, "clean", f"--older-than={text}")
    assert done.returncode == 2
    assert "as 12h, 30d or 8w" in done.stderr


def test_what_is_damaged_is_found_by_its_digest(home):
    assert clean(CleanConfig(conf=home, damaged=True)).chosen == []
    item = next(item for item in list_items(home) if item.kind == "fits")
    (item.path / "file").write_text("y" * 100)
    done = clean(CleanConfig(conf=home, damaged=True, yes=True))
    assert [item.path for item in done.removed] == [item.path]
    assert find_rest(home) == ALL | {"fits": 4}


def test_a_history_is_no_result_wherever_it_is(home):
    results = home / "data" / "results"
    (results / "german" / "watched").mkdir()
    (results / "german" / "watched" / "history.parquet").touch()
    (results / "audit" / "loans" / "monitor.json").touch()
    done = clean(CleanConfig(conf=home, kind="results", yes=True))
    assert [item.path for item in done.removed] == [results / "adult@paper"]
    assert find_rest(home)["histories"] == 3


def test_what_cannot_be_removed_stays_and_the_rest_goes(home, monkeypatch):
    foreign = next(item for item in list_items(home) if item.kind == "fits")
    rename = Path.rename

    def refuse(path, target):
        if path == foreign.path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    told = call_here(home, "clean", "--kind", "fits", "--yes")
    assert f"{foreign.path} cannot be removed and stays: Permission denied." in told.stderr
    assert "4 entries removed" in told.stdout
    assert find_rest(home) == ALL | {"fits": 1}


RUN = """
import sys
from pathlib import Path
from fairfrontier.runtime.writer import sharing
with sharing(Path(sys.argv[1])):
    print("running", flush=True)
    sys.stdin.read()
"""


def test_what_a_running_command_uses_stays(home):
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(home / "data" / "cache")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline() == b"running\n"
    # Another one runs, too.
    with sharing(home / "data" / "cache"):
        done = clean(CleanConfig(conf=home, kind=KINDS, yes=True))
    assert {item.kind for item in done.held} == {*KINDS} - {*NAMED}
    assert find_rest(home) == {kind: ALL[kind] for kind in ALL if kind not in NAMED}
    process.communicate()
    clean(CleanConfig(conf=home, kind=KINDS, yes=True))
    assert find_rest(home) == {}


def test_results_that_are_being_written_stay(home):
    results = home / "data" / "results"
    removal = CleanConfig(conf=home, kind=NAMED, yes=True)
    with holding(results / "monitor" / "german"), filling(results / "german") as work:
        (work / "report.html").write_text("new")
        done = clean(removal)
    assert {item.path for item in done.held} == {results / "monitor" / "german", results / "german"}
    assert (results / "german" / "report.html").read_text() == "new"
    assert not (results / "audit" / "loans").exists()


def test_a_history_that_is_held_inside_of_results_stays(home):
    folder = home / "data" / "results" / "german"
    (folder / "watched").mkdir()
    (folder / "watched" / "history.parquet").touch()
    with holding(folder / "watched"):
        done = clean(CleanConfig(conf=home, kind="histories", yes=True))
    assert [item.path for item in done.held] == [folder]
    assert (folder / "watched" / "history.parquet").is_file()


@pytest.mark.parametrize("name", ["report.html", "watched/history.parquet"])
def test_results_that_change_after_they_were_listed_stay(home, monkeypatch, name):
    path = home / "data" / "results" / "german" / name

    def choose(*arguments):
        chosen = choose_items(*arguments)
        path.parent.mkdir(exist_ok=True)
        path.write_text("new")
        return chosen

    monkeypatch.setattr(cleaning, "choose_items", choose)
    done = clean(CleanConfig(conf=home, kind="results", yes=True))
    assert path.read_text() == "new"
    assert [item.path.name for item in done.held] == ["german"]
    assert {item.path.name for item in done.removed} == {"adult@paper", "loans"}


@pytest.mark.parametrize("yes", [False, True])
def test_no_run_begins_between_the_listing_and_the_removal(home, monkeypatch, yes):
    def list_all(folder):
        with suppress(StoreError), locking(folder / "data" / "cache", patience=0.0):
            begun.append(True)
        return list_items(folder)

    begun: list[bool] = []
    monkeypatch.setattr(cleaning, "list_items", list_all)
    clean(CleanConfig(conf=home, yes=yes))
    # One that only looks keeps nobody waiting.
    assert begun == ([] if yes else [True])


def test_all_is_moved_away_before_anything_is_deleted(home, monkeypatch):
    chosen = [item.path for item in list_items(home)]
    rmtree, left = shutil.rmtree, []

    def delete(*arguments, **options):
        left.extend(path for path in chosen if path.exists())
        rmtree(*arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", delete)
    clean(CleanConfig(conf=home, kind=KINDS, yes=True))
    assert (left, find_rest(home)) == ([], {})


def test_a_download_that_goes_on_stays(home):
    folder = next(item.path for item in list_items(home) if item.kind == "downloads")
    with locking(folder):
        done = clean(CleanConfig(conf=home, kind="downloads", yes=True))
    assert [item.path for item in done.held] == [folder]
    assert (folder / "file.csv").is_file()


def test_links_lead_nowhere(home, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("tables", "a-download", "report"):
        (elsewhere / name).mkdir()
        (elsewhere / name / "report.html").write_text("mine")
    cache, results = home / "data" / "cache", home / "data" / "results"
    (cache / "tables").rename(home / "tables")
    (cache / "tables").symlink_to(elsewhere / "tables")
    (cache / "downloads" / ("ef" * 32)).symlink_to(elsewhere / "a-download")
    (results / "linked").symlink_to(elsewhere / "report")
    inside = next(item.path for item in list_items(home) if item.kind == "fits")
    (inside / "link").symlink_to(elsewhere)
    done = clean(CleanConfig(conf=home, kind=KINDS, yes=True))
    assert done.links == [cache / "tables"]
    assert find_rest(home) == {}
    assert len(list(elsewhere.rglob("report.html"))) == 3
    (cache / "embeddings").rmdir()
    (home / "data").rename(elsewhere / "data")
    (home / "data").symlink_to(elsewhere / "data")
    assert list_items(home) == []


def test_the_command_says_what_would_go_and_what_went(home):
    shown = call_here(home, "clean", "--kind", "fits", "--study", "german")
    assert shown.returncode == 0, shown.stderr
    assert "would be freed by: fairfrontier clean --kind fits --study german --yes" in shown.stdout
    facts = json.loads(call_here(home, "clean", "--kind", "fits", "--json").stdout)
    held = sum(row["bytes"] for row in facts["holds"] if row["kind"] == "fits")
    assert (facts["removed"], facts["bytes"], facts["held"]) == (False, held, 0)
    assert {row["study"] for row in facts["holds"]} >= {"german", "several", "", "monitor/german"}
    done = call_here(home, "clean", "--kind", "fits", "--yes")
    assert "5 entries removed" in done.stdout
    assert "fits" not in find_rest(home)
    assert call_here(home, "clean", "--damaged").stdout.endswith("Nothing of it was chosen.\n")


def test_commands_with_results_are_known():
    def list_commands(options):
        below = options.__subclasses__()
        return {name for each in below for name in list_commands(each)} or {options.command}

    assert list_commands(ResultOptions) == {*COMMANDS}
