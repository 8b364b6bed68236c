from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from fairfrontier.prepare.table import audit_table
from fairfrontier.prepare.table.audit_table import (
    DecisionColumns,
    read_confusion,
    read_decisions,
    read_pairs,
)
from fairfrontier.prepare.table.stream import digest_table
from fairfrontier.runtime.errors import ConfigError, DataError

COLUMNS = DecisionColumns(labels="y", groups=("g",), decisions="d", weights="w")


def make_frame(n=50):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "d": rng.integers(0, 2, n),
            "y": rng.integers(0, 2, n),
            "g": rng.choice(["10", "9", "1"], n),
            "w": rng.random(n),
        }
    )


def same(first, second):
    assert first.levels == second.levels
    for name in ("decision", "y", "codes", "weight"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist()


def test_parquet_csv_gzip_and_folders_read_the_same(tmp_path, monkeypatch):
    frame = make_frame()
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress((tmp_path / "b.csv").read_bytes(), mtime=0))
    folder = tmp_path / "parts"
    folder.mkdir()
    frame[30:].to_parquet(folder / "0.parquet")
    frame[:30].to_parquet(folder / "1.parquet")
    first = read_decisions(tmp_path / "a.parquet", COLUMNS)
    # Levels that are numbers come in the order of numbers.
    assert first.levels == ("1", "9", "10")
    assert first.shares().sum() == pytest.approx(1)
    monkeypatch.setattr(audit_table, "BATCH_ROWS", 7)
    for name in ("a.parquet", "b.csv", "c.csv.gz", "parts"):
        same(first, read_decisions(tmp_path / name, COLUMNS))
    assert digest_table(folder) != digest_table(tmp_path / "a.parquet")


def test_rows_are_those_of_the_table(tmp_path):
    frame = make_frame()
    frame.to_parquet(tmp_path / "a.parquet")
    rows = read_decisions(tmp_path / "a.parquet", COLUMNS)
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
    make_frame().to_csv(tmp_path / "a.csv", index=False)
    told = []
    read_decisions(tmp_path / "a.csv", COLUMNS, told.append)
    assert told[-1] == pytest.approx(1)


def test_pairs_keep_their_rows(tmp_path):
    frame = pd.DataFrame({"g": ["b", "a", "b"], "t": ["x", "x", "y"], "more": 1})
    frame.to_csv(tmp_path / "pairs.csv", index=False)
    (true, names), (noisy, seen) = read_pairs(tmp_path / "pairs.csv", "t", "g")
    assert [names[code] for code in true] == frame["t"].tolist()
    assert [seen[code] for code in noisy] == frame["g"].tolist()
    with pytest.raises(ConfigError, match="as the true and as the noisy group"):
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
        ("true,a,b\na,,1\n", "is missing in row 0"),
        ("true,a,b\na,nan,1\n", "is missing in row 0"),
        ("true,a,b\n,0,1\n", "'true' is missing in row 0"),
        ("true,a,b\na,0,1\na,1,0\n", "two rows 'a'"),
        ("true,a,b\n", "holds no rows"),
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
    assert read_decisions(tmp_path / "a.csv", COLUMNS).levels == ("a", "missing")


def test_the_largest_weights_do_not_overflow(tmp_path):
    frame = make_frame().assign(w=1e308)
    frame.loc[0, "w"] = 0.5
    frame.to_csv(tmp_path / "a.csv", index=False)
    rows = read_decisions(tmp_path / "a.csv", COLUMNS)
    assert rows.shares().sum() == pytest.approx(1)


def test_a_confusion_as_pandas_writes_it(tmp_path):
    frame = pd.DataFrame([[0.9, 0.1], [0.2, 0.8]], index=["a", "b"], columns=["a", "b"])
    frame.to_csv(tmp_path / "c.csv")
    np.testing.assert_array_equal(read_confusion(tmp_path / "c.csv").chance, frame)
