"""The rows that a bundle was reported on, in counts: what later rows are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.text import WORDS
from fairfrontier.prepare.row import EncodedRows, RowEncoder
from fairfrontier.prepare.table.column import as_levels
from fairfrontier.prepare.table.rows import used_columns

# The most bins of a feature, of the scores, and the most levels that are counted by name.
FEATURE_BINS, SCORE_BINS, LEVELS = 10, 50, 100
OTHER = "other"


def describe_rows(
    encoder: RowEncoder, rows: EncodedRows, decided: pd.DataFrame, labels: np.ndarray, minimum: int
) -> dict[str, Any]:
    """Count rows by decision, label, group, score and feature, as plain values.

    Parameters
    ----------
    encoder : RowEncoder
        What encoded them.
    rows : EncodedRows
        The rows.
    decided : DataFrame
        What `Bundle.decide` returns of them.
    labels : ndarray of float64, shape (n_samples,)
        1, 0, or NaN where unknown.
    minimum : int
        Rows that a level or a bin needs to be counted by itself.

    Returns
    -------
    dict
        - ``rows``, ``refused``: numbers of rows, the latter by reason. All below is of the others;
        - ``counts``: see `count_decisions`; ``groups``: attribute -> level -> the same, where
          levels of fewer than ``minimum`` rows, rows of no group, and a level of that name, are
          one, ``other``;
        - ``score``: a histogram; ``features``: column -> a histogram, see `describe_column`.
    """
    kept = decided["refused"].to_numpy() == ""
    probability = decided["probability"].to_numpy(dtype=np.float64)[kept]
    labels, groups = labels[kept], rows.groups[kept]
    numbers = {*used_columns(encoder.config)[0], WORDS}
    described: dict[str, dict[str, Any]] = {}
    for position, attribute in enumerate(encoder.attributes):
        codes = groups[:, position]
        sizes = np.bincount(codes[codes >= 0], minlength=len(attribute.names))
        small = np.append(sizes < minimum, True)[codes]
        levels = {
            name: codes == code
            for code, name in enumerate(attribute.names)
            if sizes[code] >= minimum
        }
        if small.any():
            levels[OTHER] = small | levels.get(OTHER, False)
        described[attribute.name] = {
            name: count_decisions(probability[mask], labels[mask]) for name, mask in levels.items()
        }
    score = pd.Series(decided["score"].to_numpy(dtype=np.float64)[kept])
    return {
        "rows": len(decided),
        "refused": {
            str(reason): int(count)
            for reason, count in decided["refused"].value_counts().items()
            if reason
        },
        "counts": count_decisions(probability, labels),
        "groups": described,
        "score": describe_column(score, True, minimum, SCORE_BINS),
        "features": {
            name: describe_column(rows.columns.loc[kept, name], name in numbers, minimum)
            for name in encoder.described
        },
    }


def count_decisions(probability: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Count rows, decisions and labels.

    ``probability`` is that of deciding 1: ``selected``, ``true_positive`` and ``false_positive``
    are expected numbers of rows, whole where nothing is drawn. ``labelled`` rows have a label,
    ``positive`` ones 1.
    """
    known = ~np.isnan(labels)
    chance, label = probability[known], labels[known]
    return {
        "rows": int(probability.size),
        "selected": float(probability.sum()),
        "labelled": int(known.sum()),
        "positive": int(label.sum()),
        "true_positive": float(chance[label == 1].sum()),
        "false_positive": float(chance[label == 0].sum()),
    }


def describe_column(
    column: pd.Series, numeric: bool, minimum: int, bins: int = FEATURE_BINS
) -> dict[str, Any]:
    """Return the histogram of a column, with what `count_column` needs to count another one by it.

    Numbers are cut at quantiles: bin k is [edge k−1, edge k), and holds about as many rows as the
    others, at least ``minimum``. Levels of fewer rows, and those after the ``LEVELS`` most
    frequent, are counted as one.
    """
    if numeric:
        values = column.to_numpy(dtype=np.float64)
        values = values[~np.isnan(values)]
        parts = max(1, min(bins, values.size // max(1, minimum)))
        inner = np.quantile(values, np.linspace(0, 1, parts + 1)[1:-1]) if values.size else []
        # An edge at the least value would leave the bin below it empty.
        edges = [float(edge) for edge in np.unique(inner) if edge > values.min()]
        described: dict[str, Any] = {"edges": edges}
    else:
        counts = as_levels(column).value_counts()
        named = [str(level) for level in counts.index[counts >= minimum][:LEVELS]]
        described = {"levels": sorted(named)}
    return {**described, "counts": count_column(column, described).tolist()}


def count_column(column: pd.Series, described: Mapping[str, Any]) -> np.ndarray:
    """Count the rows of a column in the bins of a histogram, int64.

    ``described`` has the ``edges`` of numbers or the ``levels``. The bins come first, in order;
    behind those of levels comes the count of all other levels; missing cells are last.
    """
    if "edges" in described:
        values = column.to_numpy(dtype=np.float64)
        missing = np.isnan(values)
        size = len(described["edges"]) + 1
        codes = np.searchsorted(np.asarray(described["edges"]), values[~missing], side="right")
    else:
        levels = as_levels(column)
        missing = levels.isna().to_numpy()
        size = len(described["levels"]) + 1
        codes = pd.Index(described["levels"]).get_indexer(pd.Index(levels[~missing]))
        codes = np.where(codes < 0, size - 1, codes)
    return np.append(np.bincount(codes, minlength=size), missing.sum()).astype(np.int64)
