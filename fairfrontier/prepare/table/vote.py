"""Labels by vote: a second file holds many opinions on each row of a table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.section import Votes
from fairfrontier.prepare.table.column import as_levels, sort_levels
from fairfrontier.runtime.errors import ConfigError, DataError, nearest


def count_votes(ballots: pd.DataFrame, votes: Votes) -> pd.Series:
    """Return the level that most opinions on a key are for.

        w(k) = argmax_l #{i : key_i = k, level_i = l},

    and ``votes.tie`` where several levels have the most.

    Parameters
    ----------
    ballots : DataFrame
        One opinion per row; one without a key or a level does not count.
    votes : Votes

    Returns
    -------
    Series of str
        Indexed by key.

    Raises
    ------
    ConfigError
        When a column is not there.
    DataError
        When levels tie and it is not said which one wins.

    Notes
    -----
    O(opinions + keys · levels).
    """
    for name in (votes.by, votes.column):
        if name not in ballots:
            raise ConfigError(
                f"source.votes: the file has no column {name!r}.", nearest(name, ballots.columns)
            )
    keys, names = _encode(ballots[votes.by])
    cast, levels = _encode(ballots[votes.column])
    order = sort_levels(levels)
    rank = pd.Index(order).get_indexer(levels)
    valid = (keys >= 0) & (cast >= 0)
    cells = np.bincount(
        keys[valid] * len(order) + rank[cast[valid]], minlength=len(names) * len(order)
    )
    counts = cells.reshape(len(names), len(order))
    held = np.asarray(counts.any(axis=1))
    counts, names = counts[held], names[held]
    if not len(names):
        return pd.Series([], index=names, dtype="str")
    winner = np.array(order, dtype=object)[counts.argmax(axis=1)]
    tied = (counts == counts.max(axis=1, keepdims=True)).sum(axis=1) > 1
    if tied.any():
        if votes.tie is None:
            raise DataError(
                f"source.votes: the votes tie for {int(tied.sum())} keys, first for "
                f"{names[int(tied.argmax())]}.",
                "Say which level wins then: tie: LEVEL.",
            )
        winner[tied] = votes.tie
    return pd.Series(winner, index=names, dtype="str")


def _encode(column: pd.Series) -> tuple[np.ndarray, pd.Index]:
    """Return the codes of a column's levels, −1 where one is missing, and the levels."""
    # Levels are written for what occurs, not for every cell.
    codes, raw = pd.factorize(column)
    texts, levels = pd.factorize(as_levels(pd.Series(raw, dtype=column.dtype)))
    return np.append(texts, -1)[codes], pd.Index(levels)


def join_votes(frame: pd.DataFrame, winners: pd.Series, votes: Votes) -> pd.DataFrame:
    """Return the table with the column that was voted on; rows without votes lack the cell.

    Raises
    ------
    ConfigError
        When the table lacks the key, or has a column of that name.
    """
    if votes.by not in frame:
        raise ConfigError(
            f"source.votes.by: the table has no column {votes.by!r}.",
            nearest(votes.by, frame.columns),
        )
    if votes.column in frame:
        raise ConfigError(
            f"source.votes.column: the table has a column {votes.column!r} already.",
            "Rename one of them.",
        )
    keys = as_levels(frame[votes.by])
    return frame.assign(**{votes.column: winners.reindex(pd.Index(keys)).to_numpy()}).astype(
        {votes.column: "str"}
    )
