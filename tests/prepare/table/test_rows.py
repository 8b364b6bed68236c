from __future__ import annotations

from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.prepare.config.section import Votes
from fairfrontier.prepare.table.rows import count_votes, join_votes
from fairfrontier.runtime.errors import ConfigError, DataError

BALLOTS = st.lists(
    st.tuples(st.sampled_from(["7", "7.0", "8", None]), st.sampled_from(["0", "1", "10", None]))
)


def votes(**changes):
    return Votes(**{"path": "v.csv", "by": "key", "column": "level", "tie": "tie", **changes})


def make(ballots):
    return pd.DataFrame(ballots, columns=["key", "level"], dtype="str")


@given(BALLOTS)
def test_the_level_that_most_are_for_wins(ballots):
    counts: dict[str, Counter] = {}
    for key, level in ballots:
        if key is not None and level is not None:
            counts.setdefault(key.removesuffix(".0"), Counter())[level] += 1
    wanted = {}
    for key, counter in counts.items():
        best = [level for level, count in counter.items() if count == max(counter.values())]
        wanted[key] = best[0] if len(best) == 1 else "tie"
    assert count_votes(make(ballots), votes()).to_dict() == wanted


def test_ties_need_a_word():
    ballots = make([("a", "1"), ("b", "1"), ("b", "0")])
    with pytest.raises(DataError, match="tie for 1 keys, first for b"):
        count_votes(ballots, votes(tie=None))
    assert count_votes(ballots, votes(tie=0)).to_dict() == {"a": "1", "b": "0"}


def test_rows_without_votes_lack_the_cell():
    winners = count_votes(make([("1", "x"), ("2", "y")]), votes())
    table = pd.DataFrame({"key": ["2.0", "3", "1", "2"], "other": list("abcd")}, index=[5, 6, 7, 8])
    joined = join_votes(table, winners, votes())
    assert joined["level"].fillna("-").tolist() == ["y", "-", "x", "y"]
    assert joined.index.tolist() == [5, 6, 7, 8]
    assert "level" not in table


def test_columns_that_are_not_there_or_there_already():
    ballots = make([("1", "x")])
    with pytest.raises(ConfigError, match=r"no column 'kee'. Did you mean 'key'"):
        count_votes(ballots, votes(by="kee"))
    winners = count_votes(ballots, votes())
    with pytest.raises(ConfigError, match="the table has no column 'key'"):
        join_votes(pd.DataFrame({"x": ["1"]}), winners, votes())
    with pytest.raises(ConfigError, match="has a column 'level' already"):
        join_votes(pd.DataFrame({"key": ["1"], "level": ["x"]}), winners, votes())
