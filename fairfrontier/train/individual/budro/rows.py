"""The rows that fair boosting learns from: what they must be, and which of them count."""

from __future__ import annotations

import numpy as np

from fairfrontier.runtime.errors import DataError, InputError
from fairfrontier.train.base import unit_weight

CODES = "Give codes 0, 1, …, K − 1 of K classes, each of which has a row of weight above 0."


def take_rows(
    X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of weight above 0, their labels as codes, and their weights.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Encoded rows.
    y : ndarray of shape (n_samples,)
        Whole numbers that are 0 or more, of any type of numbers.
    sample_weight : ndarray of shape (n_samples,), optional
        Case weights; ones by default.

    Returns
    -------
    X : ndarray of shape (n_kept, n_features)
    y : int64 ndarray of shape (n_kept,)
    weight : float64 ndarray of shape (n_kept,)

    Raises
    ------
    DataError
        For arrays of different lengths, other labels, and weights that cannot be.
    """
    if np.ndim(X) != 2:
        raise DataError(
            f"The rows to learn from are an array of shape {np.shape(X)}.",
            "Give an array of shape (n_samples, n_features).",
        )
    weight = unit_weight(sample_weight, len(X))
    if not np.shape(y) == weight.shape == (len(X),):
        raise DataError(
            f"There are {len(X)} rows, but labels of shape {np.shape(y)} and case weights of "
            f"shape {weight.shape}.",
            "Give every row a label and, where there are weights, a weight.",
        )
    codes = _take_codes(np.asarray(y))
    kept = weight > 0
    if kept.all():
        return X, codes, weight
    return np.asarray(X)[kept], codes[kept], weight[kept]


def check_rows(codes: np.ndarray) -> None:
    """Raise DataError unless there are rows, and one of each code up to the last; or 1 alone."""
    if not codes.size:
        raise InputError(
            "There is no row of a weight above 0: all case weights are zero.",
            "Give it rows to train on.",
        )
    present = np.unique(codes)
    if present[-1] >= max(2, present.size):
        lacking = int(np.setdiff1d(np.arange(present.size + 1), present)[0])
        raise DataError(
            f"The labels go up to {present[-1]}, and no row has the label {lacking}.", CODES
        )


def _take_codes(labels: np.ndarray) -> np.ndarray:
    """Return labels as int64."""
    if labels.dtype.kind not in "biuf":
        raise DataError(f"The labels are {labels.dtype}, and no numbers.", CODES)
    whole = np.isfinite(labels) & (labels >= 0) & (labels == np.floor(labels))
    if not whole.all():
        place = int(np.argmin(whole))
        raise DataError(f"The label of row {place} is {labels[place].item()!r}.", CODES)
    codes: np.ndarray = labels.astype(np.int64)
    return codes
