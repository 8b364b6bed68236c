"""Scores of a table as f ∈ [−1, 1]: points by their ranks, and which end of them is which."""

from __future__ import annotations

import numpy as np

from fairfrontier.debias.config import DebiasConfig
from fairfrontier.prepare.table.score_table import ScoreTable
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.seeds import derive_integer, uniforms
from fairfrontier.train.postprocess.base import TURN, Knots, find_backward
from fairfrontier.train.postprocess.histogram import ScoreHistogram
from fairfrontier.train.postprocess.rulebook import SIGNED, ScoreSection
from fairfrontier.train.postprocess.sample import ScoredRows

# Between two the ranks of scores are on a line.
KNOTS = 257


def describe_scores(table: ScoreTable, config: DebiasConfig) -> ScoreSection:
    """Return what scores are; points are ranked, for which those of the fit are kept in memory."""
    columns = table.columns
    knots: Knots = ()
    if columns.scale == "points":
        kept = [
            (batch.score[own], batch.weight[own], None if batch.label is None else batch.label[own])
            for batch in table.batches()
            if (own := ~hold_out(batch.ids, config) & (batch.weight > 0)).any()
        ]
        if not kept:
            raise DataError(
                f"{config.table}: no row that the rule is fitted on has weight.",
                "Give rows a positive weight, or hold out fewer with --holdout.",
            )
        score, weight = (np.concatenate([each[i] for each in kept]) for i in (0, 1))
        labels = None if columns.labels is None else np.concatenate([each[2] for each in kept])
        knots = rank_points(score, labels, weight, config.rate)
    signed = SIGNED[columns.scale]
    return ScoreSection(
        column=columns.scores, scale=columns.scale, signed=signed, knots=tuple(knots)
    )


def rank_points(
    score: np.ndarray, y: np.ndarray | None, weight: np.ndarray, rate: float | None = None
) -> Knots:
    """Return knots by which scores of any scale are f ∈ [−1, 1], from their ranks.

    f is 0 at the cut by which decisions agree most with the labels ``y``, or where the share
    ``rate`` of the rows is decided 1 without labels, and beside it in proportion to the share of
    rows between, down to −1 and up to 1. Arrays have shape (n,), and weights are > 0. O(n log n).
    """
    order = np.argsort(score, kind="stable")
    levels, first = np.unique(score[order], return_index=True)
    if levels.size < 2:
        raise DataError(
            f"All scores are {levels[0]:g}.", "Name a column of scores that differ between rows."
        )
    mass = np.add.reduceat(weight[order], first)
    share = (np.cumsum(mass) - mass / 2) / mass.sum()
    if y is not None:
        # What is gained by deciding a level 1, from the highest on.
        gain = np.add.reduceat((weight * (2.0 * y - 1.0))[order], first)
        cut = levels.size - 1 - int(np.cumsum(gain[::-1]).argmax())
    else:
        cut = min(int(np.searchsorted(share, 1.0 - float(rate or 0.0))), levels.size - 1)
    low, high = share[[0, -1]]
    below, above = max(share[cut] - low, 1e-9), max(high - share[cut], 1e-9)
    f = (share - share[cut]) / np.where(share < share[cut], below, above)
    kept = np.unique(np.searchsorted(share, np.linspace(low, high, KNOTS)).clip(0, levels.size - 1))
    kept = np.union1d(kept, cut)
    return tuple(zip(levels[kept].tolist(), f[kept].tolist(), strict=True))


def check_direction(rows: ScoredRows | ScoreHistogram, what: str) -> None:
    """Raise a DataError for scores that predict the opposite of the labels."""
    if isinstance(rows, ScoredRows):
        found = find_backward(rows.signed, np.asarray(rows.y), rows.weight)
    else:
        mass, positive = (np.asarray(each).sum(axis=0) for each in (rows.mass, rows.positive))
        bins, labels = np.tile(np.arange(mass.size), 2), np.repeat([0, 1], mass.size)
        found = find_backward(bins, labels, np.append(mass - positive, positive), rows.rows)
    if found:
        raise DataError(f"{what} {found}", TURN)


def hold_out(ids: np.ndarray, config: DebiasConfig) -> np.ndarray:
    """Return which rows are held out for validation, by row id and in any order, bool."""
    return uniforms(derive_integer("debias", "holdout", config.seed), ids) < config.holdout
