"""Scores of two classes, counted by group and bin."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairfrontier.evaluate.statistic.cell import read_codes
from fairfrontier.prepare.split import Part

# Bins of equal width over [0, 1]; the last one holds 1.
BINS = 20
SUMS = ("n", "negative", "positive", "score", "square")


def count_scores(score: np.ndarray, part: Part) -> pd.DataFrame:
    """Count the rows of a part of two classes by score, in all and for every level.

    Columns ``group`` (``""`` or ``attribute=level``), ``bin``, ``n`` rows, the weights of
    ``negative`` and of ``positive`` labels, and the sums of weighted ``score`` and ``square``
    weight. Bins without rows are left out. O(n) for each attribute.
    """
    y, weight = np.asarray(part.y), np.asarray(part.weight)
    position = np.minimum((score * BINS).astype(np.intp), BINS - 1)
    summed = (None, weight * (1 - y), weight * y, weight * score, weight**2)
    tables = []
    for attribute, levels in {"": ("",), **part.attributes}.items():
        cell = position
        if attribute:
            cell = position + BINS * read_codes(part, attribute, len(levels))
        counts = [np.bincount(cell, each, BINS * len(levels)) for each in summed]
        kept = np.flatnonzero(counts[0])
        names = [f"{attribute}={level}" if attribute else "" for level in levels]
        table = pd.DataFrame(
            {"group": np.array(names, dtype=object)[kept // BINS], "bin": kept % BINS}
        )
        tables.append(table.assign(**{name: c[kept] for name, c in zip(SUMS, counts, strict=True)}))
    return pd.concat(tables, ignore_index=True)
