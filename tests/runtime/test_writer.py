from __future__ import annotations

import os
import socket

import pytest

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.writer import filling


def test_files_appear_together_and_stale_ones_go(tmp_path):
    folder = tmp_path / "a" / "b"
    with filling(folder, ["one", "two"]) as work:
        (work / "one").write_text("1")
        (work / "two").write_text("2")
        assert {path.name for path in folder.iterdir()} == {work.name}
    (folder / "mine").write_text("stays")
    with filling(folder, ["one", "two"]) as work:
        (work / "one").write_text("3")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "one": "3",
        "mine": "stays",
    }


def test_what_raises_leaves_all_as_it_was(tmp_path):
    folder = tmp_path / "a"

    def fail():
        with filling(folder, ["one"]) as work:
            (work / "one").write_text("new")
            raise KeyError("no")

    with pytest.raises(KeyError):
        fail()
    assert not folder.exists()
    folder.mkdir()
    (folder / "one").write_text("old")
    with pytest.raises(KeyError):
        fail()
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("one", "old")]


def test_what_killed_processes_left_is_removed(tmp_path):
    # No process has this number: it is beyond what Linux gives out.
    dead = tmp_path / f".unfinished@{socket.gethostname()}@{2**31 - 7}@ab"
    alive = tmp_path / f".unfinished@{socket.gethostname()}@{os.getppid()}@ab"
    for folder in (dead, alive):
        folder.mkdir()
    with filling(tmp_path, []):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [alive.name]


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="--out"), filling(tmp_path / "file" / "a", []):
        pass


def test_a_folder_in_the_way_is_said_before_anything_is_moved(tmp_path):
    (tmp_path / "report.html").mkdir()
    (tmp_path / "a.csv").write_text("old")

    def write():
        with filling(tmp_path, ["a.csv", "report.html"]) as work:
            (work / "a.csv").write_text("new")
            (work / "report.html").write_text("new")

    with pytest.raises(StoreError, match=r"report\.html is a folder"):
        write()
    assert (tmp_path / "a.csv").read_text() == "old"
