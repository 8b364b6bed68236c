"""Results depend on no order of sets: `make test-seeds` runs this and the other tests."""

from __future__ import annotations

import pytest

from tests.project import call

WRITTEN = ("points.parquet", "frontier.csv")


@pytest.mark.slow
def test_smoke_leaves_the_same_bytes_under_three_hash_seeds(tmp_path):
    results = []
    for seed in "012":
        # An empty project, whose store has nothing of the runs before.
        home = tmp_path / seed
        home.mkdir()
        done = call(home, "run", "smoke", "--cluster", "inline", PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        folder = home / "data" / "results" / "smoke"
        results.append([(folder / name).read_bytes() for name in WRITTEN])
    assert results[0] == results[1] == results[2]
