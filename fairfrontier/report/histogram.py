"""Scores by group of every setting: how they are distributed, and how calibrated they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.evaluate.statistic.interval import wilson
from fairfrontier.evaluate.statistic.rate import BINS, SUMS, divide
from fairfrontier.report.finding import name_pool
from fairfrontier.runtime.store import Store
from fairfrontier.study.expand import Planned
from fairfrontier.study.points import read_counts

KEYS = ["method", "setting", "group"]
COLUMNS = (*KEYS, "score_low", "score_high", *SUMS)
# As many as there are colours for.
LEVELS = 8
# Calibration is shown by tenths of the scores, which have twice the rows of a bin.
MERGED = 2
TINY = np.finfo(np.float64).tiny


def average_counts(plan: Sequence[Planned], store: Store, home: Path, minimum: int) -> pd.DataFrame:
    """Return the scores of the frontier's settings on test, counted by group and bin.

    The columns are ``COLUMNS``: the `count_scores` of a split, means over the seeds. Levels of
    fewer rows than the minimum, and those beyond the largest ``LEVELS``, are pooled, and left out
    where they are fewer still.
    """
    frontier = [planned.group for planned in plan if "frontier" in planned.blocks]
    read = [read_counts(group, store, home) for group in frontier]
    counted = [table for table in read if table is not None and len(table)]
    if not counted:
        return pd.DataFrame(columns=list(COLUMNS))
    counts = pd.concat(counted, ignore_index=True)
    seeds = counts.groupby(["method", "setting"])["seed"].transform("nunique")
    counts[list(SUMS)] = counts[list(SUMS)].div(seeds, axis=0)
    pooled, summed = _pool_levels(counts, minimum), [*KEYS, "bin"]
    counts = counts.assign(group=[pooled.get(group, group) for group in counts["group"]])
    table = counts.groupby(summed, as_index=False)[list(SUMS)].sum()
    few = table.groupby(KEYS)["n"].transform("sum") < minimum
    table = table.assign(score_low=table["bin"] / BINS, score_high=(table["bin"] + 1) / BINS)
    return table.loc[~few, list(COLUMNS)].reset_index(drop=True)


def _pool_levels(counts: pd.DataFrame, minimum: int) -> dict[str, str]:
    """Return level -> the pool of its attribute, for every level that has no curve of its own."""
    sizes = counts.groupby(KEYS)["n"].sum().groupby("group").max().drop("", errors="ignore")
    sizes = sizes.sort_values(ascending=False, kind="stable")
    pools: dict[str, str] = {}
    for attribute, own in sizes.groupby([str(group).partition("=")[0] for group in sizes.index]):
        pooled = own < minimum
        if len(own) > LEVELS or pooled.any():
            pooled |= np.arange(len(own)) >= LEVELS - 1
        pools |= dict.fromkeys(own.index[pooled], f"{attribute}={name_pool(int(pooled.sum()))}")
    return pools


def tabulate_scores(
    counts: pd.DataFrame, keys: Sequence[tuple[str, str]], minimum: int
) -> list[dict[str, Any]]:
    """Return what the explorer draws of `average_counts`: for every group, by setting of ``keys``.

    ``share`` has the thousandths of the group's weight in each bin, and ``calibration`` a row for
    each tenth with the minimum of rows or more: mean score, share of positives and its Wilson
    interval at Kish's effective size, in percent. None where a setting has no scores.
    """
    places = pd.MultiIndex.from_tuples(keys).get_indexer(pd.MultiIndex.from_frame(counts[KEYS[:2]]))
    bins = np.rint(counts["score_low"].to_numpy(dtype=np.float64) * BINS).astype(int)
    values = counts[list(SUMS)].to_numpy(dtype=np.float64)
    shown: list[dict[str, Any]] = []
    for group, rows in sorted(counts.groupby("group").indices.items()):
        sums = np.zeros((len(SUMS), len(keys), BINS))
        sums[:, places[rows], bins[rows]] = values[rows].T
        attribute, _, level = str(group).partition("=")
        shown.append({"attribute": attribute, "level": level, **_draw_scores(sums, minimum)})
    return shown


def _draw_scores(sums: np.ndarray, minimum: int) -> dict[str, list[Any]]:
    """Return the numbers of one group for `tabulate_scores`; sums by setting and bin."""
    n, negative, positive, _, _ = sums
    weight = negative + positive
    share = 1000 * weight / np.maximum(weight.sum(axis=1, keepdims=True), TINY)
    tenths = sums.reshape(len(SUMS), len(n), -1, MERGED).sum(axis=3)
    rows, below, above, score, square = tenths
    total = below + above
    rate = divide(above, total)
    interval = wilson(rate, divide(total**2, square))
    lines = np.stack([divide(score, total), rate, *interval], axis=2)
    kept = (rows >= minimum) & (total > 0)
    found = n.sum(axis=1)
    return {
        "n": [round(each) or None for each in found.tolist()],
        "share": [
            np.rint(each).astype(int).tolist() if known else None
            for each, known in zip(share, found, strict=True)
        ],
        "calibration": [
            np.rint(100 * each[where]).astype(int).tolist() if known else None
            for each, where, known in zip(lines, kept, found, strict=True)
        ],
    }
