"""Balanced minibatches: every class equally often."""

from __future__ import annotations

import numpy as np


class BalancedRows:
    """Draws rows so that every class that occurs fills the same share of a batch.

    The remainder goes to the first classes. ``replacement`` says whether a row can occur in a batch
    more than once; it always can where a class has fewer rows than its share.
    """

    def __init__(
        self, y: np.ndarray, batch_size: int, *, replacement: bool, generator: np.random.Generator
    ) -> None:
        members = [np.flatnonzero(y == code) for code in np.unique(y)]
        share, more = divmod(batch_size, len(members))
        self._members = [(rows, share + (position < more)) for position, rows in enumerate(members)]
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
