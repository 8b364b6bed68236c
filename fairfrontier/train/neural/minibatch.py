"""Balanced minibatches: every class equally often, drawn by NumPy."""

from __future__ import annotations

import numpy as np


class BalancedRows:
    """Draws rows so that every class fills the same share of a batch.

    Parameters
    ----------
    y : int64 array of shape (n_samples,)
        Labels; classes that do not occur get no share. All the same: rows are drawn regardless.
    batch_size : int
        Rows of a batch; what the classes do not divide goes to the first ones.
    replacement : bool
        Whether a row can stand in a batch more than once. Without, it can all the same where a
        class has fewer rows than its share.
    generator : numpy.random.Generator
    """

    def __init__(
        self, y: np.ndarray, batch_size: int, *, replacement: bool, generator: np.random.Generator
    ) -> None:
        members = [np.flatnonzero(y == code) for code in np.unique(y)]
        share, rest = divmod(batch_size, len(members))
        self._members = [(rows, share + (position < rest)) for position, rows in enumerate(members)]
        self._replacement = replacement
        self._generator = generator

    def draw(self) -> np.ndarray:
        """Return the row numbers of the next batch, int64 of shape (batch_size,)."""
        drawn = []
        for rows, size in self._members:
            if self._replacement or size > rows.size:
                chosen = self._generator.integers(rows.size, size=size)
            else:
                chosen = self._generator.choice(rows.size, size=size, replace=False, shuffle=False)
            drawn.append(rows[chosen])
        return np.concatenate(drawn)
