"""Groups as they are given to estimators: codes of attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, InputError


def read_groups(groups: Any) -> np.ndarray:
    """Return groups as a matrix of codes, int64 (n_samples, n_attributes).

    InputError is raised for what are no whole numbers, and for other shapes than that and
    (n_samples,).
    """
    matrix = to_numpy(groups)
    if matrix.dtype == object:
        # Frames of several types, and of pandas' own.
        matrix = np.array(matrix.tolist())
    whole = matrix.dtype.kind in "biu" or (
        matrix.dtype.kind == "f"
        and bool((np.isfinite(matrix) & (matrix == np.trunc(matrix))).all())
    )
    if matrix.ndim not in (1, 2) or not whole:
        kind = "text" if matrix.dtype.kind in "US" else str(matrix.dtype)
        raise InputError(
            f"Groups are whole numbers, one a row for each attribute, and were given {kind} of "
            f"shape {matrix.shape}.",
            "Number each attribute's levels: numpy.unique(levels, return_inverse=True)[1].",
        )
    return matrix.reshape(len(matrix), -1).astype(np.int64, copy=False)


def take_attribute(groups: Any, attribute: int) -> np.ndarray:
    """Return one column of ``groups``, shape (n_samples,); ConfigError where there is none."""
    codes = read_groups(groups)
    if not -codes.shape[1] <= attribute < codes.shape[1]:
        raise ConfigError(
            f"The attribute is column {attribute} of groups of shape {codes.shape}.",
            "Give groups a column per attribute, and the number of one of them, from 0.",
        )
    return codes[:, attribute]
