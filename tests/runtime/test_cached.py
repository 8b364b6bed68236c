from __future__ import annotations

import os

import pytest

from fairfrontier.runtime.cached import cached_by_files, note_file
from fairfrontier.runtime.config import read_yaml
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import hash_file


@pytest.fixture
def calls():
    return []


@pytest.fixture
def read(calls):
    @cached_by_files
    def read(path, *, times=1):
        calls.append(path)
        return (read_yaml(path), hash_file(path.with_suffix(".csv"))) * times

    return read


def test_a_result_is_kept_until_a_file_behind_it_changes(tmp_path, read, calls):
    path, table = tmp_path / "a.yaml", tmp_path / "a.csv"
    path.write_text("a: 1")
    table.write_text("x")
    first = read(path)
    assert read(path) is first
    assert len(calls) == 1
    path.write_text("a: 2")
    assert read(path)[0] == {"a": 2}
    # Put in its place with the same size and time.
    other = tmp_path / "other"
    other.write_text("y")
    facts = table.stat()
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    other.replace(table)
    assert read(path)[1] != first[1]
    assert len(calls) == 3
    assert read(path, times=2) == read(path) * 2
    assert len(calls) == 4


def test_a_fault_is_not_kept(tmp_path, read, calls):
    path = tmp_path / "a.yaml"
    path.with_suffix(".csv").write_text("x")
    for _ in range(2):
        with pytest.raises(ConfigError):
            read(path)
    path.write_text("a: 1")
    assert read(path)[0] == {"a": 1}
    path.unlink()
    with pytest.raises(ConfigError):
        read(path)
    assert len(calls) == 4


def test_a_folder_changes_with_its_files(tmp_path):
    @cached_by_files
    def count():
        note_file(tmp_path)
        return len(list(tmp_path.iterdir()))

    assert count() == 0
    (tmp_path / "a").touch()
    assert count() == 1


def test_what_is_recalled_within_another_hangs_on_its_files(tmp_path, read):
    @cached_by_files
    def outer(path):
        return read(path)[0]["a"]

    path = tmp_path / "a.yaml"
    path.with_suffix(".csv").write_text("x")
    path.write_text("a: 1")
    read(path)
    assert outer(path) == 1
    path.write_text("a: 23")
    assert outer(path) == 23
