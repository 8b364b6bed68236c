from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairfrontier.prepare.embedding.cache import VectorCache
from fairfrontier.runtime.errors import StoreError

ROOT = Path(__file__).resolve().parents[3]
D = 5
WRITER = f"""
import sys, numpy as np
from pathlib import Path
from fairfrontier.prepare.embedding.cache import VectorCache
cache = VectorCache(Path(sys.argv[1]), "digest", {D})
first, lots = int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
for lot in range(first, first + lots):
    numbers = range(100 * lot, 100 * lot + 100)
    keys = [cache.key(str(number)) for number in numbers]
    cache.write(keys, np.repeat(np.array(numbers)[:, None] % 2048, {D}, 1).astype(np.float16))
    print(lot, flush=True)
"""


def start(folder, first, lots):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(first), str(lots)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def vectors_of(numbers):
    return np.repeat(np.array(numbers)[:, None] % 2048, D, axis=1).astype(np.float16)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lots=st.lists(st.lists(st.integers(0, 60), unique=True, max_size=30), max_size=5),
    asked=st.lists(st.integers(0, 60), unique=True),
)
def test_what_is_written_is_read_in_any_order_and_the_first_wins(tmp_path_factory, lots, asked):
    cache = VectorCache(tmp_path_factory.mktemp("cache"), "digest", D)
    kept = {}
    for turn, numbers in enumerate(lots):
        keys = [cache.key(str(number)) for number in numbers]
        given_ = vectors_of(numbers) + np.float16(turn)
        got = cache.write(keys, given_)
        for number, new, row in zip(numbers, given_, got, strict=True):
            assert row.tobytes() == kept.setdefault(number, new.tobytes())
    vectors, found = cache.read([cache.key(str(number)) for number in asked])
    assert found.tolist() == [number in kept for number in asked]
    for number, row in zip(asked, vectors, strict=True):
        assert row.tobytes() == kept.get(number, bytes(2 * D))


def test_ten_thousand_are_found_in_little_space(tmp_path):
    cache = VectorCache(tmp_path, "digest", 384)
    keys = [cache.key(str(number)) for number in range(10_000)]
    cache.write(keys, np.zeros((10_000, 384), dtype=np.float16))
    assert cache.read(keys)[1].all()
    assert cache.path.stat().st_size < 10_000 * (2 * 384 + 300)


def test_a_damaged_vector_is_none_and_is_replaced(tmp_path):
    cache = VectorCache(tmp_path, "digest", D)
    keys = [cache.key("a"), cache.key("b")]
    cache.write(keys, vectors_of([1, 2]))
    with sqlite3.connect(cache.path) as database:
        value = vectors_of([9]).tobytes()
        database.execute("UPDATE keyed_vector SET value = ? WHERE key = ?", (value, keys[0]))
    database.close()
    assert cache.read(keys)[1].tolist() == [False, True]
    assert cache.write(keys, vectors_of([3, 4])).tolist() == vectors_of([3, 2]).tolist()


def test_two_processes_write_at_once(tmp_path):
    writers = [start(tmp_path, first, 20) for first in (0, 10)]
    assert [writer.communicate(timeout=60) and writer.returncode for writer in writers] == [0, 0]
    cache = VectorCache(tmp_path, "digest", D)
    numbers = range(3000)
    vectors, found = cache.read([cache.key(str(number)) for number in numbers])
    assert found.all()
    assert vectors.tobytes() == vectors_of(numbers).tobytes()


def test_a_killed_writer_leaves_whole_lots(tmp_path):
    writer = start(tmp_path, 0, 100_000)
    lines = (writer.stdout.readline() for _ in range(8))
    told = [line.strip() for line in lines]
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate(timeout=60)
    cache = VectorCache(tmp_path, "digest", D)
    numbers = range(2_000_000)[: 100 * 500]
    vectors, found = cache.read([cache.key(str(number)) for number in numbers])
    lots = found.reshape(-1, 100)
    assert (lots.all(axis=1) == lots.any(axis=1)).all()
    assert lots[: int(told[-1]) + 1].all()
    assert vectors[found].tobytes() == vectors_of(numbers)[found].tobytes()
    # And the next one goes on.
    assert cache.write([cache.key("x")], vectors_of([7])).tolist() == vectors_of([7]).tolist()


def test_a_file_that_is_no_database_is_an_error_with_its_name(tmp_path):
    cache = VectorCache(tmp_path, "digest", D)
    cache.path.write_bytes(b"no database at all, " * 100)
    for call in (
        lambda: cache.read([cache.key("a")]),
        lambda: cache.write([cache.key("a")], vectors_of([1])),
    ):
        with pytest.raises(StoreError, match=r"digest\.sqlite cannot be used") as caught:
            call()
        assert "remove the file" in caught.value.mend
    assert cache.path.read_bytes().startswith(b"no database")


@pytest.mark.parametrize("value", [7, "text", bytes(3)])
def test_a_value_that_is_no_vector_is_replaced(tmp_path, value):
    cache = VectorCache(tmp_path, "digest", D)
    keys = [cache.key("a")]
    cache.write(keys, vectors_of([1]))
    with closing(sqlite3.connect(cache.path)) as database, database:
        database.execute("UPDATE keyed_vector SET value = ?", [value])
    assert not cache.read(keys)[1].any()
    assert VectorCache.stored_dimension(tmp_path, "digest") is None
    assert cache.write(keys, vectors_of([2])).tobytes() == vectors_of([2]).tobytes()
    assert cache.read(keys)[1].all()
