from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest
from filelock import FileLock

from fairfrontier.runtime import writer
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.writer import (
    check_owned,
    drafting,
    filling,
    holding,
    locking,
    make_private,
    recover,
    replacing,
    restore,
    settle,
    sharing,
)
from tests.project import ROOT


def test_files_appear_together_and_stale_ones_go(tmp_path):
    folder = tmp_path / "a" / "b"
    with filling(folder, ["one", "two"]) as work:
        (work / "one").write_text("1")
        (work / "two").write_text("2")
        assert {path.name for path in folder.iterdir()} == {work.name, f"{work.name}.lock"}
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


DIE = """
import os, signal, sys
from pathlib import Path
from fairfrontier.runtime.writer import filling, replacing
count, folder = int(sys.argv[1]), Path(sys.argv[2])
def or_die(rename):
    def call(*args, **keywords):
        global count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(*args, **keywords)
    return call
os.rename, os.replace = or_die(os.rename), or_die(os.replace)
"""
FILL = """
with filling(folder, ["a", "b", "c"]) as work:
    for name in "ab":
        (work / name).write_text("new")
"""
REPLACE = """
with replacing(folder / "choice", ["bundle/card"], what="choice", mend="") as work:
    (work / "bundle").mkdir()
    (work / "bundle" / "card").write_text("new")
"""


def write_killed(code, renames, folder):
    """Write to a folder by a process that is killed after some renames; return whether it was."""
    command = [sys.executable, "-c", DIE + code, str(renames), str(folder)]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    assert status in (0, -signal.SIGKILL)
    return status != 0


# Renames: the draft is complete, and a and b are moved.
@pytest.mark.parametrize("renames", range(4))
def test_a_killed_writer_leaves_all_or_nothing(tmp_path, renames):
    for name in "abc":
        (tmp_path / name).write_text("old")
    assert write_killed(FILL, renames, tmp_path) == (renames < 3)
    if renames == 2:
        assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()
    recover(tmp_path)
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == (dict.fromkeys("ab", "new") if renames else dict.fromkeys("abc", "old"))


# Renames: complete; the old one away; the new one there.
@pytest.mark.parametrize("renames", range(4))
def test_a_folder_is_replaced_or_not_when_its_writer_is_killed(tmp_path, renames):
    card = tmp_path / "choice" / "bundle" / "card"
    card.parent.mkdir(parents=True)
    card.write_text("old")
    assert write_killed(REPLACE, renames, tmp_path) == (renames < 3)
    assert card.is_file() == (renames != 2)
    # As does whoever reads it.
    restore(card.parent)
    assert card.read_text() == ("old" if renames < 2 else "new")
    recover(tmp_path)
    assert card.read_text() == ("new" if renames else "old")
    assert [path.name for path in tmp_path.iterdir()] == ["choice"]


def test_a_folder_is_not_replaced_that_holds_something_else(tmp_path):
    def write(meanwhile):
        with replacing(folder, ["card"], what="choice", mend="Mend it.") as work:
            (work / "card").write_text("new")
            (folder / meanwhile).write_text("mine")

    folder = tmp_path / "choice"
    folder.mkdir()
    with pytest.raises(StoreError, match=r"choice holds something else: notes\."):
        write("notes")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"notes": "mine"}
    (folder / "notes").unlink()
    # What a killed writer left there is nobody's, and what systems leave where one has looked.
    (folder / ".unfinished@0").mkdir()
    for name in (".DS_Store", "._card", "Thumbs.db", "desktop.ini"):
        (folder / name).touch()
    write("card")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"card": "new"}


def test_a_file_or_link_in_the_place_of_a_folder(tmp_path):
    def write():
        with replacing(tmp_path / "choice", what="choice", mend="Mend it.") as work:
            (work / "card").write_text("new")

    (tmp_path / "choice").write_text("mine")
    with pytest.raises(StoreError):
        write()
    assert (tmp_path / "choice").read_text() == "mine"
    (tmp_path / "choice").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "choice").symlink_to("elsewhere")
    write()
    assert (tmp_path / "choice" / "card").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["choice", "elsewhere"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def write_both(folder, content):
    with filling(folder, ["one", "two"]) as work:
        for name in ("one", "two"):
            (work / name).write_text(content)


def test_the_files_of_two_writers_are_not_mixed(tmp_path):
    threads = [threading.Thread(target=write_both, args=(tmp_path, str(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {*left} == {"one", "two"}
    assert left["one"] == left["two"]


def test_the_draft_of_a_living_writer_stays(tmp_path):
    with filling(tmp_path, []) as work:
        (work / "a").write_text("1")
        recover(tmp_path)
        with filling(tmp_path, []):
            pass
        assert (work / "a").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("replace", [False, True])
def test_nothing_is_written_into_a_folder_that_is_being_removed(tmp_path, replace):
    folder = tmp_path / "loans"
    folder.mkdir()
    (folder / "old").touch()

    def write():
        writing = replacing(folder / "one", what="", mend="") if replace else filling(folder)
        with writing as work:
            (work / "one").write_text("new")

    second = threading.Thread(target=write)
    with locking(folder):
        second.start()
        # Unless it waits, it ends meanwhile.
        second.join(0.3)
        folder.rename(tmp_path / "gone")
    second.join()
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["one"]
    assert {path.name for path in (tmp_path / "gone").iterdir()} >= {"old"}
    assert not (tmp_path / "gone" / "one").exists()


def test_whoever_locks_a_folder_for_long_stops_no_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAKING", 0.1)
    with locking(tmp_path):
        write_both(tmp_path, "text")
    assert (tmp_path / "two").read_text() == "text"


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


@pytest.mark.parametrize(("umask", "closed"), [(0o022, 0o755), (0o077, 0o700)])
def test_drafts_are_open_to_nobody_to_whom_the_folder_is_closed(tmp_path, umask, closed):
    def mode(folder):
        return stat.S_IMODE(folder.stat().st_mode)

    old = os.umask(umask)
    try:
        for name, most in {"private": 0o700, "group": 0o750, "open": 0o777}.items():
            folder = tmp_path / name
            folder.mkdir()
            folder.chmod(most)
            for write in (drafting, filling):
                with write(folder) as work:
                    assert mode(work) == most & closed
            with replacing(folder, ["file"], what="bundle", mend="") as work:
                (work / "file").touch()
            assert mode(folder) == most & closed
        with replacing(tmp_path / "new", what="bundle", mend="") as work:
            pass
        assert mode(tmp_path / "new") == closed
    finally:
        os.umask(old)


def test_drafts_in_a_sticky_folder_are_closed_to_other_writers(tmp_path):
    tmp_path.chmod(0o1777)
    old = os.umask(0)
    try:
        with drafting(tmp_path) as work:
            assert stat.S_IMODE(work.stat().st_mode) == 0o755
    finally:
        os.umask(old)


@pytest.mark.parametrize("link", [False, True])
def test_a_private_folder_that_was_open_is_closed(tmp_path, link):
    folder = tmp_path / "prefect"
    folder.mkdir()
    folder.chmod(0o755)
    (tmp_path / "link").symlink_to(folder)
    make_private(tmp_path / "link" if link else folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o775)
    with pytest.raises(StoreError):
        make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o775


def test_a_list_of_removed_files_leads_to_none_outside(tmp_path):
    kept, shared = tmp_path / "kept", tmp_path / "shared"
    kept.write_text("mine")
    (shared / ".complete@").mkdir(parents=True)
    (shared / "old").write_text("old")
    (shared / ".complete@" / ".removed").write_text(json.dumps(["../kept", str(kept), "old"]))
    recover(shared)
    assert kept.read_text() == "mine"
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("name", [".complete@", ".unfinished@x"])
def test_a_link_is_no_draft(tmp_path, name):
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "results"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "mine").touch()
    (folder / name).symlink_to(elsewhere)
    recover(folder)
    settle(tmp_path)
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]
    assert [path.name for path in folder.iterdir()] == [name]


def test_a_draft_is_swept_when_its_lock_is_released(tmp_path):
    # Of a container with this name, in which process numbers are others.
    foreign = tmp_path / ".unfinished@0"
    foreign.mkdir()
    with locking(tmp_path, ".unfinished@0.lock"):
        recover(tmp_path)
        assert foreign.exists()
    recover(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_used_is_waited_for_aloud_and_not_forever(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(writer, "QUIET", 0.1)
    with FileLock(tmp_path / writer.LOCK):
        with pytest.raises(StoreError, match=f"{tmp_path} is still used by"):
            locking(tmp_path, patience=0.3).__enter__()
        [said] = caplog.messages
        assert said == f"Waiting for another process, which uses {tmp_path}."
    caplog.clear()
    # That a process waits for itself is no message.
    with locking(tmp_path), pytest.raises(StoreError):
        locking(tmp_path, patience=0.3).__enter__()
    assert not caplog.messages
    for use in (holding, sharing):
        with use(tmp_path):
            assert list(tmp_path.iterdir())
        assert list(tmp_path.iterdir()) == []


OWNED = ("card.html", "bundle/bundle.json", "bundle/model/trees")


@pytest.fixture
def folder(tmp_path):
    for name in OWNED:
        path = tmp_path / "choice" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "choice"


@pytest.mark.parametrize("place", ["", "bundle", "bundle/model"])
def test_what_systems_leave_where_one_has_looked_goes(folder, place):
    names = (".DS_Store", "._card", "Thumbs.db", "desktop.ini", ".~lock.card.html#")
    for name in (*names, ".nfs0000000001a2b3c4"):
        (folder / place / name).touch()
    (folder / place / ".ipynb_checkpoints").mkdir()
    check_owned(folder, OWNED)
    check_owned(folder / "nowhere", OWNED)


@pytest.mark.parametrize(
    ("mine", "told"),
    [
        ("notes.txt", "notes.txt"),
        ("bundle/notes.txt", "bundle/notes.txt"),
        ("._mine/work", "._mine"),
        (".nfs-config/x", ".nfs-config"),
        (".ipynb_checkpoints/a.ipynb", ".ipynb_checkpoints/a.ipynb"),
        ("Thumbs.db.md", "Thumbs.db.md"),
        ("card.html/mine.txt", "card.html"),
    ],
)
def test_anything_else_stays(folder, mine, told):
    path = folder / mine
    for taken in (path, path.parent):
        if taken.is_file():
            taken.unlink()
    (path if mine.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
    if not mine.endswith("/"):
        path.touch()
    with pytest.raises(StoreError) as caught:
        check_owned(folder, OWNED)
    assert caught.value.fault == f"{folder} holds something else: {told}."


@pytest.mark.parametrize("name", ["card.html", "bundle/model", ".DS_Store", "notes"])
@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_a_name_is_owned_in_its_kind(folder, tmp_path, name, kind):
    path = folder / name
    if path.exists():
        path.rename(tmp_path / "moved")
    if kind == "file":
        path.touch()
    elif kind == "link":
        path.symlink_to(tmp_path / "moved")
    else:
        os.mkfifo(path)
    if kind == "file" and name in ("card.html", ".DS_Store"):
        check_owned(folder, OWNED)
    else:
        with pytest.raises(StoreError, match=f"something else: {name}"):
            check_owned(folder, OWNED)
