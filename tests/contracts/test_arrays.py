"""The arrays of every dataset stay what they are to the last byte, in memory and on Dask."""

from __future__ import annotations

import dask
import pytest

from fairfrontier.prepare.loader import load
from fairfrontier.prepare.table import reader
from tests.contracts.arrays import NAMES, ROOT, digest_split, read_kept, sort_rows

# On Dask the others take seconds each.
QUICK = {"german", "compas", "neighbourhoods", "synthetic"}


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_the_kept_ones(name):
    assert digest_split(load(name, home=ROOT)) == read_kept()[name]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in NAMES]
)
def test_arrays_of_many_blocks_on_dask_are_those_in_memory(name, monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_BYTES", 2**18)
    memory = sort_rows(load(name, home=ROOT))
    with dask.config.set(scheduler="synchronous"):
        blocks = load(name, home=ROOT, backend="dask")
        assert digest_split(blocks) == digest_split(memory)
