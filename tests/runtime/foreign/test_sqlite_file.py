"""Opening an SQLite file of somebody else's writes to and removes no other file."""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import closing

import pytest

from fairfrontier.runtime.foreign.sqlite_file import find_trap

MAGIC = bytes.fromhex("d9d505f920a163d7")
PAGE = 4096


def lay_journal(path, victim):
    """Write a database with a journal from which SQLite removes a file, by its absolute path."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE a (b)")
    pages = path.stat().st_size // PAGE
    head = (MAGIC + struct.pack(">IIIII", 0, 0, pages, 512, PAGE)).ljust(512, b"\0")
    name = bytes(victim)
    end = struct.pack(">II", len(name), sum(name)) + MAGIC
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(head + struct.pack(">I", 0x40000000 // PAGE + 1) + name + end)


def test_a_journal_that_names_a_file_is_found(tmp_path):
    victim = tmp_path / "thesis.txt"
    victim.write_text("mine")
    lay_journal(tmp_path / "a.sqlite", victim)
    assert find_trap(tmp_path / "a.sqlite") == (
        "a.sqlite-journal names another file, which SQLite would remove"
    )
    # It would.
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("SELECT * FROM a").fetchall()
    assert not victim.exists()


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm"])
def test_links_and_pipes_are_found(tmp_path, suffix):
    path = tmp_path / "a.sqlite"
    path.touch()
    file = path.with_name(path.name + suffix)
    file.unlink(missing_ok=True)
    file.symlink_to(tmp_path / "dangling")
    assert find_trap(path) == f"{file.name} is a link, or no plain file"
    file.unlink()
    os.mkfifo(file)
    assert find_trap(path) == f"{file.name} is a link, or no plain file"


def test_another_name_of_a_file_is_no_journal(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    (tmp_path / "a.sqlite-wal").hardlink_to(tmp_path / "thesis.txt")
    assert find_trap(tmp_path / "a.sqlite").startswith("a.sqlite-wal is a link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_a_journal_of_another_user_is_found(tmp_path):
    journal = tmp_path / "a.sqlite-journal"
    journal.touch()
    os.chown(journal, 12345, 12345)
    assert find_trap(tmp_path / "a.sqlite") == "a.sqlite-journal belongs to another user"


def test_a_living_writers_journal_is_none(tmp_path):
    path = tmp_path / "a.sqlite"
    assert find_trap(path) == ""
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE a (b)")
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.executemany("INSERT INTO a VALUES (?)", [("x" * 3000,) for _ in range(50)])
        assert (tmp_path / "a.sqlite-journal").stat().st_size > 0
        assert find_trap(path) == ""
        writer.execute("COMMIT")
