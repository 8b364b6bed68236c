from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from fairfrontier.runtime import draft, writer
from fairfrontier.runtime.draft import recover, restore
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.lock import lock_folder
from fairfrontier.runtime.writer import drafting, filling, make_private, replacing
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


DIE = """
import os, signal, sys
from pathlib import Path
from fairfrontier.runtime.writer import filling, replacing
count, folder = int(sys.argv[1]), Path(sys.argv[2])
rename = os.rename
def rename_or_die(*args, **keywords):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(*args, **keywords)
os.rename = rename_or_die
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


# Renames: the draft is complete, a and b are moved, and the draft is to be removed.
@pytest.mark.parametrize("renames", range(5))
def test_a_killed_writer_leaves_all_or_nothing(tmp_path, renames):
    for name in "abc":
        (tmp_path / name).write_text("old")
    assert write_killed(FILL, renames, tmp_path) == (renames < 4)
    if renames == 2:
        assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()
    recover(tmp_path)
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == (dict.fromkeys("ab", "new") if renames else dict.fromkeys("abc", "old"))


# Renames: complete; in place of a folder, which fails; the old one away; the new one there; done.
@pytest.mark.parametrize("renames", range(6))
def test_a_folder_is_replaced_or_not_when_its_writer_is_killed(tmp_path, renames):
    card = tmp_path / "choice" / "bundle" / "card"
    card.parent.mkdir(parents=True)
    card.write_text("old")
    assert write_killed(REPLACE, renames, tmp_path) == (renames < 5)
    assert card.is_file() == (renames != 3)
    # As does whoever reads it.
    restore(card.parent)
    assert card.read_text() == ("old" if renames < 3 else "new")
    recover(tmp_path)
    assert card.read_text() == ("new" if renames else "old")
    assert [path.name for path in tmp_path.iterdir()] == ["choice"]


@pytest.mark.parametrize("failure", [OSError("no"), KeyboardInterrupt()])
def test_a_folder_that_cannot_take_its_place_leaves_the_old_one(tmp_path, monkeypatch, failure):
    folder = tmp_path / "choice"
    folder.mkdir()
    (folder / "card").write_text("old")
    rename, left = os.rename, [4]

    def fail_once(*args, **keywords):
        left[0] -= 1
        if left[0] == 0:
            raise failure
        return rename(*args, **keywords)

    def write():
        with replacing(folder, ["card"], what="choice", mend="Mend it.") as work:
            (work / "card").write_text("new")

    monkeypatch.setattr(os, "rename", fail_once)
    interrupted = isinstance(failure, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt if interrupted else StoreError):
        write()
    assert left == [0 if interrupted else -2]
    recover(tmp_path)
    assert (folder / "card").read_text() == ("new" if interrupted else "old")
    assert [path.name for path in tmp_path.iterdir()] == ["choice"]


def test_who_fails_since_another_was_there_meanwhile_replaces_nothing_later(tmp_path, monkeypatch):
    rename, between = os.rename, [True]

    def write(text):
        with replacing(tmp_path / "choice", ["card"], what="choice", mend="Mend it.") as work:
            (work / "card").write_text(text)

    def rename_and_let_in(source, target, **keywords):
        rename(source, target, **keywords)
        if target.startswith(".replaced@") and between.pop():
            between.append(False)
            write("theirs")

    write("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename_and_let_in)
        # They do not wait until ours is moved.
        patch.setattr(draft, "_MOVING", 0.1)
        with pytest.raises(StoreError, match="not empty"):
            write("ours")
    recover(tmp_path)
    assert (tmp_path / "choice" / "card").read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["choice"]


def test_nobody_waits_for_its_own_draft(tmp_path, monkeypatch):
    def refuse(folder):
        raise AssertionError(f"{folder} is asked for")

    with drafting(tmp_path) as work:
        monkeypatch.setattr(writer, "_share_lock", refuse)
        with replacing(work / "model", what="model", mend="Mend it.") as model:
            (model / "one").touch()
        with filling(work, what="file", mend="Mend it.") as inside:
            (inside / "two").touch()
        assert {path.name for path in work.iterdir()} == {"model", "two"}


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
    with pytest.raises(StoreError, match="Not a directory"):
        write()
    assert (tmp_path / "choice").read_text() == "mine"
    (tmp_path / "choice").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "choice").symlink_to("elsewhere")
    write()
    assert (tmp_path / "choice" / "card").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["choice", "elsewhere"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_cannot_be_moved_is_not_moved_later(tmp_path, monkeypatch):
    def fail_to_move(name, *args, **keywords):
        if name == "a":
            raise OSError("no")
        return rename(name, *args, **keywords)

    def write():
        with filling(tmp_path) as work:
            (work / "a").write_text("new")

    rename = os.rename
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail_to_move)
        with pytest.raises(StoreError, match="cannot be written"):
            write()
    recover(tmp_path)
    assert list(tmp_path.iterdir()) == []


def write_both(folder, content):
    with filling(folder, ["one", "two"]) as work:
        for name in ("one", "two"):
            (work / name).write_text(content)


def test_the_files_of_two_writers_are_not_mixed(tmp_path, monkeypatch):
    replace = draft._replace
    second = threading.Thread(target=write_both, args=(tmp_path, "second"))

    def pause(name, *folders):
        replace(name, *folders)
        if name == "one" and not second.ident:
            second.start()
            # Unless it waits, it ends meanwhile.
            second.join(0.3)

    monkeypatch.setattr(draft, "_replace", pause)
    write_both(tmp_path, "first")
    second.join()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "one": "second",
        "two": "second",
    }


@pytest.mark.parametrize("content", [{}, {".plan": b"\xff"}, {"one": b""}], ids=str)
def test_a_draft_in_the_way_stops_nobody(tmp_path, content):
    (tmp_path / ".complete@").mkdir()
    for name, text in content.items():
        (tmp_path / ".complete@" / name).write_bytes(text)
    started = time.monotonic()
    write_both(tmp_path, "text")
    assert (tmp_path / "two").read_text() == "text"
    assert time.monotonic() < started + draft._MOVING / 2


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
    lock = lock_folder(folder, wait=False)
    second.start()
    # Unless it waits, it ends meanwhile.
    second.join(0.3)
    folder.rename(tmp_path / "gone")
    os.close(lock)
    second.join()
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["one"]
    assert [path.name for path in (tmp_path / "gone").iterdir()] == ["old"]


def test_whoever_locks_a_folder_for_long_stops_no_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_MAKING", 0.1)
    lock = lock_folder(tmp_path, wait=False)
    write_both(tmp_path, "text")
    os.close(lock)
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
    with pytest.raises(StoreError, match="others may write to it"):
        make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o775
