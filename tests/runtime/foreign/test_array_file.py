"""Arrays from files that anybody may have written: numbers, and no more than the file's size."""

from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.runtime.foreign.array_file import read_numbers


def test_numbers_come_back_as_they_were(tmp_path):
    first, second = np.arange(6.0).reshape(2, 3), np.zeros((0, 4))
    np.savez(tmp_path / "a.npz", first=first, second=second)
    found = read_numbers(tmp_path / "a.npz", "second", "first")
    assert [each.shape for each in found] == [(0, 4), (2, 3)]
    assert np.array_equal(found[1], first)


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.0, np.nan]),
        np.array([np.inf]),
        np.array([1, 2]),
        np.array([1.0], dtype=np.float32),
        np.array([1.0 + 0j]),
        np.array(["a"]),
        np.array([{}], dtype=object),
    ],
    ids=lambda array: f"{array.dtype} {array[-1]}",
)
def test_other_values_than_finite_numbers_are_refused(tmp_path, array):
    np.savez(tmp_path / "a.npz", a=array)
    with pytest.raises(ValueError, match=r"finite numbers|allow_pickle=False"):
        read_numbers(tmp_path / "a.npz", "a")


def test_what_unpacks_to_more_than_the_file_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(100_000))
    with pytest.raises(ValueError, match="unpacks to more"):
        read_numbers(tmp_path / "a.npz", "a")
