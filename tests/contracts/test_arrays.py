"""The arrays of every dataset stay what they are to the last byte, in memory and on Dask."""

from __future__ import annotations

import pytest

from tests.contracts.arrays import BACKENDS, NAMES, digest_dataset, read_kept

# On Dask the others take seconds each.
QUICK = {"german", "compas", "neighbourhoods", "synthetic"}
CASES = [
    pytest.param(
        name, backend, marks=[pytest.mark.slow] if backend == "dask" and name not in QUICK else []
    )
    for name in NAMES
    for backend in BACKENDS
]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_arrays_are_the_kept_ones(name, backend):
    assert digest_dataset(name, backend) == read_kept()[name][backend]
