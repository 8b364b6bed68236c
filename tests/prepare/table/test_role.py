from __future__ import annotations

import dataclasses
import gzip
import hashlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairfrontier.prepare.table.column import Cells
from fairfrontier.prepare.table.role import (
    DecisionColumns,
    ScoreColumns,
    ScoreTable,
    name_cells,
    read_audited,
    read_confusion,
    read_pairs,
)
from fairfrontier.runtime.errors import ConfigError, DataError

COLUMNS = ScoreColumns("s", ("sex",), labels="y")


def write(path, **columns):
    table = {"s": [0.1, 0.9, 0.4], "sex": ["F", "M", "F"], "y": [0, 1, 1], **columns}
    pd.DataFrame(table).to_parquet(path)
    return path


def read(path, columns=COLUMNS, **options):
    """Return scores, groups by name, labels, weights and ids of a whole table."""
    score, group, label, weight, ids = [], [], [], [], []
    for batch in ScoreTable(path, columns, **options).batches():
        assert batch.start == len(group)
        score.extend(batch.score.tolist())
        group.extend(batch.levels[code] for code in batch.cell)
        label.extend([] if batch.label is None else batch.label.tolist())
        weight.extend(batch.weight.tolist())
        ids.extend(batch.ids.tolist())
    assert batch.share == pytest.approx(1.0)
    return score, group, label, weight, ids


def test_parquet_csv_gzip_tabs_and_folders_read_the_same(tmp_path):
    frame = pd.DataFrame(
        {
            "s": np.linspace(0, 1, 50),
            "sex": ["F", "M"] * 25,
            "age": [1, 2, 3, 4, 5] * 10,
            "y": [0, 1] * 25,
            "w": np.arange(50.0),
            "id": np.arange(50)[::-1],
        }
    )
    columns = ScoreColumns("s", ("sex", "age"), "y", (), "w", "id")
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=7)
    frame.to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress((tmp_path / "b.csv").read_bytes(), mtime=0))
    frame.rename(columns={"sex": " sex "}).to_csv(tmp_path / "d.tsv", sep="\t", index=False)
    folder = tmp_path / "parts"
    folder.mkdir()
    frame[:20].to_parquet(folder / "0.parquet")
    frame[20:].to_parquet(folder / "1.parquet")
    first = read(tmp_path / "a.parquet", columns)
    assert first[1][:2] == [("F", "1"), ("M", "2")]
    assert first[4] == frame["id"].tolist()
    for name in ("b.csv", "c.csv.gz", "d.tsv", "parts"):
        assert read(tmp_path / name, columns) == first, name
    assert read(tmp_path / "a.parquet", columns, batch_rows=3) == first
    assert ScoreTable(tmp_path / "b.csv", columns).digest() == (
        hashlib.sha256((tmp_path / "b.csv").read_bytes()).hexdigest()
    )


def test_types_of_columns_do_not_matter(tmp_path):
    plain = read(write(tmp_path / "a.parquet"))
    table = pa.table(
        {
            "s": pa.array(["0.1", " 0.9", "0.4"]),
            "sex": pa.array(["F ", "M", "F"]).dictionary_encode(),
            "y": pa.array([False, True, True]),
        }
    )
    pq.write_table(table, tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet") == plain
    yes = write(tmp_path / "c.parquet", y=["no", "yes", "yes"])
    assert read(yes, ScoreColumns("s", ("sex",), "y", ("yes",))) == plain


def test_missing_groups_are_a_level_and_numbers_are_written_as_levels(tmp_path):
    path = write(tmp_path / "a.parquet", sex=[2.0, None, 3.5])
    assert read(path)[1] == [("2",), ("missing",), ("3.5",)]
    path = write(tmp_path / "b.parquet", sex=["2.0", None, "3.5"])
    assert read(path)[1] == [("2",), ("missing",), ("3.5",)]
    (tmp_path / "c.csv").write_text("s,sex,y\n.1,2,0\n.2,,1\n.3,3.5,1\n")
    assert read(tmp_path / "c.csv")[1] == [("2",), ("missing",), ("3.5",)]

    path = write(tmp_path / "d.parquet", sex=pd.array([10**17 + 1, 10**17 + 2, None]))
    assert read(path)[1] == [(f"{10**17 + 1}",), (f"{10**17 + 2}",), ("missing",)]
    path = write(tmp_path / "e.parquet", sex=[1.0, 1e17, None])
    with pytest.raises(DataError, match=r"column 'sex' holds floats of 2\^53 or more"):
        read(path)


def number(values):
    return Cells(pd.Series(values), "ids", "t").ids()


def test_ids_are_numbers_or_digests_of_text():
    words = [7, -1, 2**63 + 5]
    _, signed = number(words[:2])
    _, text = number([str(word) for word in words])
    assert signed.tolist() == [7, 2**64 - 1]
    assert text.tolist() == [7, 2**64 - 1, 2**63 + 5]
    _, whole = number([7.0, -1.0])
    assert whole.tolist() == signed.tolist()
    _, named = number(["A-17", "007", "5"])
    digest = hashlib.sha256(b"A-17").digest()[:8]
    assert named[0] == int.from_bytes(digest, "little")
    assert named[1] != 7
    assert named[2] == 5


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"s": [0.1, None, 0.4]}, r"'s' is missing in row 1"),
        ({"s": [0.1, 0.2, 1.5]}, r"'s' holds 1.5 in row 2, and a probability score.*--scale"),
        ({"s": ["0.1", "high", "0.5"]}, r"'s' holds 'high' in row 1, which is no number"),
        ({"y": [0, 2, 1]}, r"'y' holds 2 in row 1, which is neither 0 nor 1.*--positive"),
        ({"id": [1.5, 2.0, 3.0]}, r"'id' holds .*1.5.* in row 0, and an id is a whole number"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named(tmp_path, columns, told):
    path = write(tmp_path / "a.parquet", **{"w": [1.0, 1, 1], "id": [1, 2, 3], **columns})
    with pytest.raises(DataError, match=told):
        read(path, ScoreColumns("s", ("sex",), "y", (), "w", "id"))


def test_rows_are_counted_over_batches(tmp_path):
    score = np.full(500, 0.5)
    score[333] = 7
    path = tmp_path / "a.parquet"
    pd.DataFrame({"s": score, "sex": "F"}).to_parquet(path, row_group_size=50)
    with pytest.raises(DataError, match="row 333"):
        read(path, ScoreColumns("s", ("sex",)), batch_rows=30)


def test_columns_and_levels_get_the_nearest(tmp_path):
    path = write(tmp_path / "a.parquet", y=["no", "yes", "yes"])
    with pytest.raises(ConfigError, match=r"no column 'sexx' \(--groups\). Did you mean 'sex'"):
        ScoreTable(path, ScoreColumns("s", ("sexx",)))
    with pytest.raises(ConfigError, match=r"never is 'yess' \(--positive\). Did you mean 'yes'"):
        read(path, ScoreColumns("s", ("sex",), "y", ("yess",)))
    with pytest.raises(ConfigError, match=r"Did you mean 'a\.parquet'"):
        ScoreTable(tmp_path / "b.parquet", COLUMNS)
    pd.DataFrame({"s": 0.5, "sex": np.arange(2000)}).to_parquet(path)
    with pytest.raises(DataError, match="more than 1000 levels"):
        read(path, ScoreColumns("s", ("sex",)))
    wide = tuple(f"g{k}" for k in range(64))
    pd.DataFrame({"s": 0.5, **{name: ["a", "b"] for name in wide}}).to_parquet(path)
    with pytest.raises(ConfigError, match="64 columns of groups"):
        read(path, ScoreColumns("s", wide))


def test_other_columns_are_not_read(tmp_path):
    # A cell with a line break, and bytes that are no UTF-8, in columns that nobody asked for.
    path = tmp_path / "a.csv"
    path.write_bytes(b's,note,sex,y\n.1,"a\nb",F,0\n.2,\xff,M,1\n')
    assert read(path)[1] == [("F",), ("M",)]


def test_streams_that_grow_far_beyond_their_size_are_refused(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"s,sex,y\n.5,F,1\n" + b"\n" * 80_000_000, 1))
    with pytest.raises(DataError, match="unpacks to more than 67 MB"):
        read(path)
    rows = np.zeros(12_000_000, dtype=np.int8)
    pq.write_table(pa.table({"s": rows, "sex": rows, "y": rows}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="unpacks to more than 67 MB"):
        read(tmp_path / "t.parquet")
    # One text for all rows, of which a copy for each would take 200 GB.
    rows = np.zeros(200_000)
    text = pa.DictionaryArray.from_arrays(rows.astype(np.int32), pa.array(["F" * 1_000_000]))
    table = pa.table({"s": rows, "sex": text, "y": rows})
    pq.write_table(table, tmp_path / "t.parquet", store_schema=False)
    with pytest.raises(DataError, match="unpacks to more than 67 MB"):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize("weight", [1e155, 1e-155, 1e300])
def test_weights_beyond_what_can_be_squared_are_refused(tmp_path, weight):
    columns = dataclasses.replace(COLUMNS, weights="w")
    path = write(tmp_path / "t.parquet", w=[1.0, 0.0, weight])
    with pytest.raises(DataError, match=r"holds 1e[+-]\d+ in row 2, beyond .* Divide all weights"):
        read(path, columns)
    assert read(write(path, w=[1e70, 0.0, 1e-70]), columns)[3] == [1e70, 0.0, 1e-70]


def test_no_two_combinations_of_groups_have_one_name():
    assert name_cells([("a×b", "c"), ("a", "b")], "t") == ("a×b×c", "a×b")
    with pytest.raises(DataError, match="t: two combinations of levels are both named 'a×b×c'"):
        name_cells([("a×b", "c"), ("a", "b×c")], "t")


DECIDED = DecisionColumns(labels="y", groups=("g",), decisions="d", weights="w")


def make_decisions(n=50):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "d": rng.integers(0, 2, n),
            "y": rng.integers(0, 2, n),
            "g": rng.choice(["10", "9", "1"], n),
            "w": rng.random(n),
        }
    )


def read_decisions(path, columns=DECIDED, progress=None):
    """Return the rows of one column of groups, in an order of their own, and its levels."""
    rows = read_audited(path, columns, progress=progress).sorted()
    ((_, levels),) = rows.attributes.items()
    return SimpleNamespace(
        decision=rows.decision, y=rows.y, codes=rows.codes[:, 0], levels=levels, weight=rows.weight
    )


def test_rows_are_those_of_the_table(tmp_path):
    frame = make_decisions()
    frame.to_parquet(tmp_path / "a.parquet")
    rows = read_decisions(tmp_path / "a.parquet", DECIDED)
    # Levels that are numbers come in the order of numbers.
    assert rows.levels == ("1", "9", "10")
    found = pd.DataFrame(
        {
            "d": rows.decision.astype(int),
            "y": rows.y,
            "g": [rows.levels[code] for code in rows.codes],
            "w": rows.weight * frame["w"].max(),
        }
    )
    pd.testing.assert_frame_equal(
        found.sort_values("w", ignore_index=True),
        frame.sort_values("w", ignore_index=True),
        check_dtype=False,
    )


def test_progress_ends_at_one(tmp_path):
    make_decisions().to_csv(tmp_path / "a.csv", index=False)
    told = []
    read_decisions(tmp_path / "a.csv", DECIDED, told.append)
    assert told[-1] == pytest.approx(1)


def test_pairs_keep_their_rows(tmp_path):
    frame = pd.DataFrame({"g": ["b", "a", "b"], "t": ["x", "x", "y"], "more": 1})
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    (true, names), (noisy, seen) = read_pairs(tmp_path / "pairs.csv", "t", "g")
    assert [names[code] for code in true] == frame["t"].tolist()
    assert [seen[code] for code in noisy] == frame["g"].tolist()
    with pytest.raises(ConfigError):
        read_pairs(tmp_path / "pairs.csv", "t", "t")
    with pytest.raises(ConfigError, match=r"no column 'truth' \(--true-group\)"):
        read_pairs(tmp_path / "pairs.csv", "truth", "g")


def test_a_confusion_is_read_by_name(tmp_path):
    (tmp_path / "c.csv").write_text("true, x ,z,y\nb,0.1,0.2,0.7\na,0.5,0.5,0\n")
    found = read_confusion(tmp_path / "c.csv")
    assert (found.names, found.noisy_names) == (("a", "b"), ("x", "y", "z"))
    np.testing.assert_array_equal(found.chance, [[0.5, 0, 0.5], [0.1, 0.7, 0.2]])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("true,a,b\na,0.9,0.2\nb,0,1\n", r"row 'a' sums to 1.1.*true groups in rows"),
        ("true,a,b\na,1.1,-0.1\nb,0,1\n", r"row 'a' holds -0.1"),
        ("true,a,b\na,x,1\n", "holds 'x' in row 0, which is no number"),
        ("true,a,b\na,0,1\na,1,0\n", "two rows 'a'"),
        ("true\na\n", "has 1 column"),
        ("true,1,1.0\n1,0,1\n", "two columns '1'"),
    ],
)
def test_a_confusion_that_is_none_is_said(text, told, tmp_path):
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=told):
        read_confusion(path)


def test_a_level_that_is_called_missing_is_a_level(tmp_path):
    frame = pd.DataFrame({"d": [0, 1], "y": [0, 1], "g": ["missing", "a"], "w": 1.0})
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert read_decisions(tmp_path / "a.csv", DECIDED).levels == ("a", "missing")


def test_the_largest_weights_do_not_overflow(tmp_path):
    frame = make_decisions().assign(w=1e308)
    frame.loc[0, "w"] = 0.5
    frame.to_csv(tmp_path / "a.csv", index=False)
    rows = read_decisions(tmp_path / "a.csv", DECIDED)
    assert rows.weight.max() == 1


def test_a_confusion_as_pandas_writes_it(tmp_path):
    frame = pd.DataFrame([[0.9, 0.1], [0.2, 0.8]], index=["a", "b"], columns=["a", "b"])
    frame.to_csv(tmp_path / "c.csv")
    np.testing.assert_array_equal(read_confusion(tmp_path / "c.csv").chance, frame)


def test_a_folders_files_may_write_a_column_in_types_of_their_own(tmp_path):
    # Of a month without any group Arrow writes nulls; the first month's ages are whole numbers.
    months = [
        {"y": [0, 1], "s": [1, 2], "g": ["1", "2"], "h": pd.Categorical(["a", "b"])},
        {"y": [False, True], "s": [0.5, 0.25], "g": [1, 2], "h": ["b", "c"]},
        {"y": [1.0, 0.0], "s": np.float32([0.5, 4]), "g": [None, None], "h": ["a", "c"]},
    ]
    for number, month in enumerate(months):
        pd.DataFrame(month).to_parquet(tmp_path / f"{number}.parquet")
    rows = read_audited(tmp_path, DecisionColumns(("g", "h"), decisions="y", scores="s"), ())
    assert rows.decision.tolist() == [0, 1, 0, 1, 1, 0]
    assert rows.score.tolist() == [1, 2, 0.5, 0.25, 0.5, 4]
    assert rows.attributes == {"g": ("1", "2", "unknown"), "h": ("a", "b", "c")}
    assert rows.codes.T.tolist() == [[0, 1, 0, 1, 2, 2], [0, 1, 1, 2, 0, 2]]
