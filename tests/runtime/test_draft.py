from __future__ import annotations

import fcntl
import os
import shutil

import pytest

from fairfrontier.runtime import draft
from fairfrontier.runtime.draft import recover, restore, settle, write_plan
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.writer import filling, replacing
from tests.runtime.test_writer import FILL, REPLACE, write_killed


# The first rename is that of the complete draft; c is to be removed.
@pytest.mark.parametrize("renames", [1, 2])
@pytest.mark.parametrize("name", ["b", "c"])
def test_what_came_after_a_kill_is_neither_replaced_nor_removed(tmp_path, renames, name, caplog):
    for each in "abc":
        (tmp_path / each).write_text("old")
    assert write_killed(FILL, renames, tmp_path)
    (tmp_path / name).write_text("mine")
    recover(tmp_path)
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    # Where nothing was moved yet, nothing is.
    others = {"a": "new", "b": "new"} if renames == 2 else dict.fromkeys("abc", "old")
    assert left == {**others, name: "mine"}
    assert f"{name} was changed after a command was killed" in caplog.text


def test_what_another_wrote_after_a_kill_is_not_joined(tmp_path):
    (tmp_path / "b").write_text("old")
    assert write_killed(FILL, 1, tmp_path)
    (tmp_path / "b").write_text("another's")
    recover(tmp_path)
    # There was no a, and another command has left none.
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"b": "another's"}


@pytest.mark.parametrize("synced", ["files", "plan"])
@pytest.mark.parametrize("how", [filling, replacing])
def test_what_comes_while_a_draft_is_synced_stays(tmp_path, monkeypatch, how, synced):
    folder, flush = tmp_path / "out", draft.flush

    def write(*paths):
        flush(*paths)
        if synced == "files" or paths[0].name == draft._SEAL:
            (folder / "mine").write_text("mine")

    def refuse(*_):
        if (folder / "mine").exists():
            raise StoreError("there is a file of yours.", "")

    options = {"check": refuse} if how is filling else {"what": "choice", "mend": ""}
    monkeypatch.setattr(draft, "flush", write)
    folder.mkdir()
    with pytest.raises(StoreError, match=r"of yours|mine"), how(folder, **options) as work:
        (work / "a").write_text("new")
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_old_files_that_were_restored_after_a_kill_stay_together(tmp_path):
    for each in "abc":
        (tmp_path / each).write_text("old")
    assert write_killed(FILL, 2, tmp_path)
    # Written in its place it might get the same inode.
    (tmp_path / "restored").write_text("old")
    (tmp_path / "restored").rename(tmp_path / "a")
    recover(tmp_path)
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == dict.fromkeys("abc", "old")


@pytest.mark.parametrize("how", ["mode", "link"])
def test_what_changes_no_content_changes_nothing(tmp_path, how):
    for each in "abc":
        (tmp_path / each).write_text("old")
    assert write_killed(FILL, 2, tmp_path)
    for path in [*tmp_path.glob("?")]:
        if how == "mode":
            path.chmod(0o600)
        else:
            os.link(path, tmp_path / f"{path.name}{path.name}")
    recover(tmp_path)
    assert {path.name for path in tmp_path.glob("?")} == {"a", "b"}
    assert (tmp_path / "b").read_text() == "new"


@pytest.mark.parametrize("renames", [1, 2])
@pytest.mark.parametrize("changed", ["notes", "bundle/card", "bundle/notes", "moved here", "."])
def test_a_folder_that_was_changed_after_a_kill_is_not_replaced(tmp_path, renames, changed):
    card = tmp_path / "choice" / "bundle" / "card"
    card.parent.mkdir(parents=True)
    card.write_text("old")
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "mine").write_text("mine")
    assert write_killed(REPLACE, renames, tmp_path)
    mine = tmp_path / "choice" / changed
    if changed == ".":
        (tmp_path / "choice").rename(tmp_path / "older" / "choice")
        (tmp_path / "older").rename(tmp_path / "choice")
        mine, card = (
            tmp_path / "choice" / "mine",
            tmp_path / "choice" / "choice" / "bundle" / "card",
        )
    elif changed == "moved here":
        (tmp_path / "older" / "mine").rename(mine)
    else:
        mine.write_text("mine")
    recover(tmp_path)
    assert mine.read_text() == "mine"
    assert card.read_text() in ("old", "mine")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "older") == ["choice"]


PLANS = [
    *(b"\xff", b"{}", b"[]", b'{"moved": 1, "removed": {}}', b" " * 2**21, b"[" * 2**18),
    b'{"moved": {}, "removed": {"a\\u0000b": null}}',
]


@pytest.mark.parametrize("content", [*PLANS, None])
def test_a_draft_that_nobody_wrote_here_stays(tmp_path, content):
    made = tmp_path / ".complete@0"
    made.mkdir()
    if content is None:
        os.mkfifo(made / ".plan")
    else:
        write_plan(made)
        (made / ".plan").write_bytes(content)
        (made / ".seal").write_text(draft._seal((made / ".plan").stat()))
    recover(tmp_path)
    assert made.is_dir()
    with pytest.raises(StoreError, match=r"holds .complete@0, files that a killed command has not"):
        settle(tmp_path)


def test_a_list_of_removed_files_leads_to_none_outside(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("mine")
    (tmp_path / "shared" / ".complete@x").mkdir(parents=True)
    (tmp_path / "shared" / "old").write_text("old")
    write_plan(tmp_path / "shared" / ".complete@x", ["../kept", str(kept), "old"])
    os.mkfifo(tmp_path / "shared" / ".unfinished@pipe")
    recover(tmp_path / "shared")
    assert kept.read_text() == "mine"
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [".unfinished@pipe"]


@pytest.mark.parametrize("name", [".complete@x", ".unfinished@x"])
def test_a_link_is_no_draft(tmp_path, name):
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "results"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "mine").touch()
    write_plan(elsewhere)
    (folder / name).symlink_to(elsewhere)
    with filling(folder) as work:
        (work / "summary.json").touch()
    assert sorted(path.name for path in elsewhere.iterdir()) == [".plan", ".seal", "mine"]
    assert sorted(path.name for path in folder.iterdir()) == [name, "summary.json"]


def test_a_list_that_is_a_link_is_none(tmp_path):
    (tmp_path / "mine").touch()
    (tmp_path / ".complete@x").mkdir()
    write_plan(tmp_path / ".complete@x", ["mine"])
    (tmp_path / ".complete@x" / ".plan").rename(tmp_path / "list")
    (tmp_path / ".complete@x" / ".plan").symlink_to(tmp_path / "list")
    recover(tmp_path)
    assert (tmp_path / "mine").is_file()


@pytest.mark.parametrize("how", ["copy", "archive", "no seal"])
def test_a_draft_from_elsewhere_replaces_and_removes_nothing(tmp_path, how):
    made, here = tmp_path / "made", tmp_path / "here"
    made.mkdir()
    here.mkdir()
    assert write_killed(FILL, 1, made)
    if how == "archive":
        packed = shutil.make_archive(str(tmp_path / "packed"), "tar", made)
        shutil.unpack_archive(packed, here, filter="fully_trusted")
    else:
        shutil.copytree(made / ".complete@", here / ".complete@")
    if how == "no seal":
        (here / ".complete@" / ".seal").unlink()
    for name in "abc":
        (here / name).write_text("mine")
    recover(here)
    restore(here / "bundle")
    assert [(here / name).read_text() for name in "abc"] == ["mine"] * 3
    # Where it was made it is completed.
    recover(made)
    assert (made / "a").read_text() == "new"


def test_a_draft_is_swept_when_its_lock_is_released(tmp_path):
    # Of a container with this name, in which process numbers are others.
    foreign = tmp_path / ".unfinished@0"
    foreign.mkdir()
    handle = os.open(foreign, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    recover(tmp_path)
    assert foreign.exists()
    os.close(handle)
    recover(tmp_path)
    assert not foreign.exists()
