"""Arrays in npz files that somebody else may have written."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import numpy as np

from fairfrontier.runtime.errors import repeated


def refuse_expansion(path: Path) -> None:
    """Raise ValueError for an archive that unpacks to more than its size, or has a name twice.

    None does that ``np.savez`` wrote, which compresses nothing.
    """
    with ZipFile(path) as archive:
        members = archive.infolist()
    # Members may overlap, too.
    if sum(member.file_size for member in members) > path.stat().st_size:
        raise ValueError(f"{path} unpacks to more than its size")
    if double := repeated(member.filename for member in members):
        raise ValueError(f"{path} has {double[0]!r} twice")


def read_numbers(path: Path, *names: str) -> list[np.ndarray]:
    """Return arrays of float64 that ``np.savez`` wrote.

    ValueError as `refuse_expansion`, and for arrays of another type or with numbers that are not
    finite.
    """
    refuse_expansion(path)
    with np.load(path, allow_pickle=False) as stored:
        arrays = [stored[name] for name in names]
    if any(array.dtype != np.float64 or not np.isfinite(array).all() for array in arrays):
        raise ValueError(f"{path} has arrays of other values than finite numbers")
    return arrays
