"""A folder is replaced with what is owned in it, and nothing of anybody else's."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.foreign.owned import check_owned

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
        ("bundle/model/card.html", "bundle/model/card.html"),
        ("._mine/work", "._mine"),
        ("bundle/._mine/work", "bundle/._mine"),
        (".nfs-config/x", ".nfs-config"),
        (".nfs-config", ".nfs-config"),
        (".~lock.", ".~lock."),
        (".ipynb_checkpoints/a.ipynb", ".ipynb_checkpoints/a.ipynb"),
        ("Thumbs.db/work", "Thumbs.db"),
        ("Thumbs.db.md", "Thumbs.db.md"),
        ("card.html/mine.txt", "card.html"),
        ("empty/", "empty"),
        ("bundle/model/trees/", "bundle/model/trees"),
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


def test_a_folder_that_cannot_be_read_may_hold_anything(folder, monkeypatch):
    scan = os.scandir

    def refuse(place):
        if Path(place).name == "model":
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreError, match=r"model cannot be read: Permission denied\."):
        check_owned(folder, OWNED)
