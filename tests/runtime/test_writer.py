from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.writer import filling, recover
from tests.project import ROOT


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


WRITE = """
import os, signal, sys
from pathlib import Path
from fairfrontier.runtime.writer import filling, recover
from tests.project import ROOT
count = int(sys.argv[2])
replace = Path.replace
def replace_or_die(path, target):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(path, target)
Path.replace = replace_or_die
with filling(Path(sys.argv[1]), ["a", "b", "c"]) as work:
    for name in "ab":
        (work / name).write_text("new")
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("moved", [-1, 0, 1, 2])
def test_a_killed_writer_leaves_all_or_nothing(tmp_path, moved):
    for name in "abc":
        (tmp_path / name).write_text("old")
    command = [sys.executable, "-c", WRITE, str(tmp_path), str(moved)]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == (0 if moved == 2 else -signal.SIGKILL)
    if moved == 1:
        assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()
    recover(tmp_path)
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == (dict.fromkeys("abc", "old") if moved < 0 else dict.fromkeys("ab", "new"))


def test_the_draft_of_a_living_writer_stays(tmp_path):
    with filling(tmp_path, []) as work:
        (work / "a").write_text("1")
        recover(tmp_path)
        with filling(tmp_path, []):
            pass
        assert (work / "a").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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


@pytest.mark.parametrize("content", [b"\xff", b"a\0b", None])
def test_a_draft_that_nobody_wrote_here_stays(tmp_path, content):
    draft = tmp_path / ".complete@0"
    draft.mkdir()
    if content is None:
        os.mkfifo(draft / ".removed")
    else:
        (draft / ".removed").write_bytes(content)
    recover(tmp_path)
    assert draft.is_dir()


def test_a_list_of_removed_files_leads_to_none_outside(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("mine")
    draft = tmp_path / "shared" / ".complete@x"
    draft.mkdir(parents=True)
    (draft / ".removed").write_text(f"../kept\n{kept}\nold")
    (tmp_path / "shared" / "old").write_text("old")
    os.mkfifo(tmp_path / "shared" / ".unfinished@pipe")
    recover(tmp_path / "shared")
    assert kept.read_text() == "mine"
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [".unfinished@pipe"]
