"""Labels by vote: a second file has many opinions on each row of a table."""

from __future__ import annotations

import pandas as pd

from fairfrontier.prepare.config.source import Votes
from fairfrontier.prepare.table.column import as_levels, sort_levels
from fairfrontier.runtime.errors import ConfigError, DataError, nearest


def count_votes(ballots: pd.DataFrame, votes: Votes) -> pd.Series:
    """Return the level that most opinions on a key are for, as a Series of str indexed by key.

        w(k) = argmax_l #{i : key_i = k, level_i = l},

    and ``votes.tie`` where several levels have the most. An opinion without a key or a level does
    not count. O(opinions + keys · levels).
    """
    for name in (votes.by, votes.column):
        if name not in ballots:
            raise ConfigError(
                f"source.votes: the file has no column {name!r}.", nearest(name, ballots.columns)
            )
    keys, levels = as_levels(ballots[votes.by]), as_levels(ballots[votes.column])
    counts = ballots.groupby([keys, levels]).size().unstack(fill_value=0)  # noqa: PD010
    if counts.empty:
        return pd.Series([], index=pd.Index([], dtype="str"), dtype="str")
    # Keys in the order of the file, so that errors name the first.
    order = keys[keys.notna() & levels.notna()].unique()
    counts = counts.reindex(index=order, columns=list(sort_levels(counts.columns)))
    winner = counts.idxmax(axis=1).astype("str")
    tied = counts.eq(counts.max(axis=1), axis=0).sum(axis=1) > 1
    if tied.any():
        if votes.tie is None:
            raise DataError(
                f"source.votes: the votes tie for {int(tied.sum())} keys, first for "
                f"{tied.idxmax()}.",
                "Name the level that wins a tie: tie: LEVEL.",
            )
        winner = winner.mask(tied, votes.tie)
    return winner


def join_votes(frame: pd.DataFrame, winners: pd.Series, votes: Votes) -> pd.DataFrame:
    """Return the table with the column that was voted on; rows without votes lack the cell."""
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
    keys = pd.Index(as_levels(frame[votes.by]))
    column = pd.Series(winners.reindex(keys).to_numpy(), index=frame.index, dtype="str")
    return frame.assign(**{votes.column: column})
