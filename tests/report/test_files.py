from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from fairfrontier.report import files as result
from fairfrontier.report.files import write_results
from fairfrontier.runtime import writer
from fairfrontier.runtime.errors import DataError, StoreError
from fairfrontier.runtime.option import RESULTS
from fairfrontier.runtime.secret import VARIABLE
from fairfrontier.runtime.store import Store
from fairfrontier.study import drawing
from fairfrontier.study.frontier import POINT_KEYS, SCHEMA, build_results, sort_points
from papers.reproduction import hold_to_paper
from tests.study.synthetic import make_plan, make_points, make_study

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made():
    study = make_study()
    plan = make_plan(study)
    return study, plan, make_points(plan)


@pytest.fixture(autouse=True)
def _draw_nothing(monkeypatch):
    """The picture has tests of its own, and takes a second."""
    names = ("frontier.png", "attributes.png")
    monkeypatch.setattr(result, "draw_frontier", lambda *_: dict.fromkeys(names, b"\x89PNG"))


def write(study, points, folder: Path, seconds: float, plan, store: Store | None = None):
    results = build_results(study, plan, points, {})
    compared = hold_to_paper(results, store, ROOT)
    return write_results(results, folder, seconds, home=ROOT, store=store, reproduction=compared)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_all_files_and_nothing_else(made, tmp_path):
    study, plan, points = made
    paths = write(study, points, tmp_path / "a" / study.slug, 3.0, plan=plan)
    # Without a store there are no models to be named.
    wanted = sorted({*RESULTS["run"]} - {"models.csv", "changes.csv", "scores.parquet"})
    assert sorted(paths) == wanted
    assert sorted(digests(tmp_path / "a" / "toy")) == wanted
    read = pd.read_parquet(paths["points.parquet"])
    assert list(read.columns) == SCHEMA.names
    pd.testing.assert_frame_equal(read, sort_points(points), check_dtype=False)
    assert read[list(POINT_KEYS)].apply(tuple, axis=1).is_monotonic_increasing
    summary = json.loads(paths["summary.json"].read_text())
    assert summary["study"] == "toy"
    assert summary["seconds"] == 3.0
    published = pd.read_csv(paths["published.csv"])
    assert set(published["row"]) >= {"budro", "nn"}
    frontier = pd.read_csv(paths["frontier.csv"])
    assert frontier["on_frontier"].dtype == bool
    # A column of accuracy has the name of the measure that it holds.
    named = {f"{prefix}{made[0].frontier.accuracy}" for prefix in ("", "selected_")}
    assert named <= set(frontier.columns)
    assert made[0].frontier.accuracy == "accuracy" or "accuracy" not in frontier.columns


def test_bytes_depend_on_the_points_alone(made, tmp_path):
    study, plan, points = made
    shuffled = points.sample(frac=1.0, random_state=1)
    # Other dtypes of text, an index, and another time: nothing of it shows.
    shuffled["method"] = shuffled["method"].astype("category").astype(object)
    write(study, points, tmp_path / "a", 3.0, plan=plan)
    write(study, shuffled, tmp_path / "b", 99.0, plan=plan)
    first, second = digests(tmp_path / "a"), digests(tmp_path / "b")
    for name in ("points.parquet", "frontier.csv", "published.csv"):
        assert first[name] == second[name]
    assert pq.read_schema(tmp_path / "a" / "points.parquet").metadata is None


def test_text_is_sorted_by_code_point(made):
    points = made[2].head(3).assign(method=["b", "B", "a"])
    assert sort_points(points)["method"].tolist() == ["B", "a", "b"]


def test_an_old_published_table_does_not_stay(made, tmp_path):
    study, plan, points = made
    write(study, points, tmp_path, 1.0, plan=plan)
    other = make_study(published=None, claims=[])
    paths = write(other, points, tmp_path, 1.0, plan=make_plan(other))
    assert "published.csv" not in paths
    assert not (tmp_path / "published.csv").exists()


@pytest.fixture
def rings(monkeypatch):
    """A figure that draws what it is given, in the registry for one test."""
    drawing.FIGURES.all()
    monkeypatch.setattr(drawing.FIGURES, "_entries", dict(drawing.FIGURES.all()))
    monkeypatch.setattr(drawing.FIGURES, "_origins", dict(drawing.FIGURES._origins))

    def draw(scene: drawing.Scene) -> drawing.Picture:
        where = scene.store.path("fit", "x")
        shown = f"{scene.study.study} {len(scene.plan)} {len(scene.points)} {where}"
        return drawing.Picture(shown.encode(), alt=f"Rings of <{scene.study.study}>")

    drawing.figure("rings", title="Rings & things", what="Rings.")(draw)


def test_further_figures_are_files_and_stand_in_the_report(made, rings, tmp_path):
    _, plan, points = made
    study, store = make_study(figures=["rings"]), Store(tmp_path / "store")
    paths = write(study, points, tmp_path / "a", 1.0, plan=plan, store=store)
    # The table has no YAML, and its fits no key.
    wanted = {*RESULTS["run"]} - {"models.csv", "changes.csv", "scores.parquet"}
    assert sorted(paths) == sorted([*wanted, "rings.png"])
    told = f"toy {len(plan)} {len(points)} {store.path('fit', 'x')}".encode()
    assert paths["rings.png"].read_bytes() == told
    report = paths["report.html"].read_text()
    assert "<h2>Rings &amp; things</h2>" in report
    assert 'alt="Rings of &lt;toy&gt;"' in report
    assert base64.b64encode(told).decode() in report
    # Without a store there is nothing to draw, and an old figure does not stay.
    paths = write(study, points, tmp_path / "a", 1.0, plan=plan)
    assert sorted(digests(tmp_path / "a")) == sorted(wanted) == sorted(paths)


def test_a_folder_that_cannot_be_made(made, tmp_path):
    study, plan, points = made
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot be written to .*file/toy.*--out"):
        write(study, points, tmp_path / "file" / "toy", 1.0, plan=plan)


def test_a_failure_in_the_middle_changes_nothing(made, tmp_path, monkeypatch):
    study, plan, points = made
    write(study, points, tmp_path, 1.0, plan=plan)
    before = digests(tmp_path)
    calls = iter(range(100))
    flush = writer.os.fsync

    def full_disk(handle: int) -> None:
        if next(calls) == 3:
            raise OSError(28, "No space left on device")
        flush(handle)

    monkeypatch.setattr(writer.os, "fsync", full_disk)
    with pytest.raises(StoreError):
        write(study, points, tmp_path, 2.0, plan=plan)
    assert digests(tmp_path) == before


def test_two_points_with_one_key_and_missing_columns(made):
    points = made[2]
    with pytest.raises(DataError):
        sort_points(pd.concat([points, points.tail(1)]))
    with pytest.raises(DataError, match="lack the column high"):
        sort_points(points.drop(columns="high"))


def test_no_file_names_a_folder_of_this_machine(made, tmp_path):
    _, plan, points = made
    study, store = make_study(dataset=str(tmp_path / "toy.yaml")), Store(tmp_path / "store")
    paths = write(study, points, tmp_path / "a", 1.0, plan=plan, store=store)
    for path in paths.values():
        assert str(tmp_path).encode() not in path.read_bytes()
    assert json.loads(paths["summary.json"].read_text())["dataset"] == "toy.yaml"


def test_only_what_was_kept_is_restored(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "secret"))
    made, own = tmp_path / "report.html", tmp_path / "own.txt"
    made.write_text("results")
    own.write_text("of another user")
    store, what, out = Store(tmp_path / "store"), {"study": "x"}, tmp_path / "results"
    out.mkdir()
    result.keep_results({"report.html": made}, store, what)
    assert result.restore_results(out, store, what)
    assert {path.name: path.read_text() for path in out.iterdir()} == {"report.html": "results"}
    for add in (
        lambda entry: (entry / "notes.txt").symlink_to(own),
        lambda entry: os.mkfifo(entry / "pipe.csv"),
    ):
        result.keep_results({"report.html": made}, store, what)
        add(store.path(result.KIND, store.key(result.KIND, what)))
        assert not result.restore_results(out, store, what)
        assert [path.name for path in out.iterdir()] == ["report.html"]
