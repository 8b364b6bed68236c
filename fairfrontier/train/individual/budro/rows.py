"""Validation of the training rows of fair boosting, and removal of rows without weight."""

from __future__ import annotations

import numpy as np

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import DataError, InputError
from fairfrontier.train.base import unit_weight

CODES = "Give codes 0, 1, …, K − 1 of K classes, each with a row of weight above 0."


def take_rows(
    X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of weight above 0, their labels as int64 codes, and their float64 weights.

    Labels are whole numbers ≥ 0 of any numeric type.

    Raises
    ------
    DataError
        For arrays of different lengths, other labels, and invalid weights.
    """
    if np.ndim(X) != 2:
        raise DataError(
            f"The training rows are an array of shape {np.shape(X)}.",
            "Give an array of shape (n_samples, n_features).",
        )
    weight = unit_weight(sample_weight, len(X))
    if not np.shape(y) == weight.shape == (len(X),):
        raise DataError(
            f"There are {len(X)} rows, but labels of shape {np.shape(y)} and case weights of "
            f"shape {weight.shape}.",
            "Give every row a label and, if there are weights, a weight.",
        )
    codes = _take_codes(to_numpy(y))
    kept = weight > 0
    if kept.all():
        return X, codes, weight
    return np.asarray(X)[kept], codes[kept], weight[kept]


def check_rows(codes: np.ndarray) -> None:
    """Raise DataError unless every code up to the last occurs; one code alone may be 0 or 1."""
    if not codes.size:
        raise InputError(
            "There is no row with a weight above 0: all case weights are zero.",
            "Give some rows a weight above 0.",
        )
    present = np.unique(codes)
    if present[-1] >= max(2, present.size):
        missing = int(np.setdiff1d(np.arange(present.size + 1), present)[0])
        raise DataError(
            f"The labels go up to {present[-1]}, but no row has the label {missing}.", CODES
        )


def _take_codes(labels: np.ndarray) -> np.ndarray:
    """Return labels as int64."""
    if labels.dtype.kind not in "biuf":
        raise DataError(f"The labels are {labels.dtype}, not numbers.", CODES)
    valid = np.isfinite(labels) & (labels >= 0) & (labels == np.floor(labels))
    if not valid.all():
        row = int(np.argmin(valid))
        raise DataError(f"The label of row {row} is {labels[row].item()!r}.", CODES)
    codes: np.ndarray = labels.astype(np.int64)
    return codes
