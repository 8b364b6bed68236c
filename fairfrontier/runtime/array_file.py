"""Arrays in npz files that somebody else may have written."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import numpy as np


def read_numbers(path: Path, *names: str) -> list[np.ndarray]:
    """Return arrays of float64 that ``np.savez`` wrote.

    ValueError for members that are compressed, as archives are that unpack to any size, and for
    arrays of another type or with numbers that are not finite.
    """
    with ZipFile(path) as archive:
        # Members may overlap, too.
        if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
            raise ValueError(f"{path} unpacks to more than its size")
    with np.load(path, allow_pickle=False) as stored:
        arrays = [stored[name] for name in names]
    if any(array.dtype != np.float64 or not np.isfinite(array).all() for array in arrays):
        raise ValueError(f"{path} has arrays of other values than finite numbers")
    return arrays
