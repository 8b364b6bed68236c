from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.runtime.text_file import list_rows, read_csv, to_csv

ROOT = Path(__file__).resolve().parents[2]
BEGINS = ("=", "+", "-", "@", "\t", "\r")


def read_cells(content):
    """Return the rows of cells that a spreadsheet sees."""
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def write_and_read(table, folder):
    (folder / "table.csv").write_bytes(to_csv(table))
    return read_csv(folder / "table.csv", na_values=[])


@pytest.mark.parametrize("begin", BEGINS)
def test_text_is_no_formula_and_numbers_are_numbers(begin, tmp_path):
    text = f"{begin}HYPERLINK(1)"
    table = pd.DataFrame(
        {
            "level": [text, f"1{begin}"],
            "kind": pd.Categorical([text, "b"]),
            "mixed": pd.Series([text, -2], dtype=object),
            "value": [-0.3, 0.1 + 0.2],
            "n": [-1, 2],
            text: ["a", "b"],
        }
    )
    head, first, second = read_cells(to_csv(table))
    assert head == ["level", "kind", "mixed", "value", "n", f"'{text}"]
    assert first == [f"'{text}", f"'{text}", f"'{text}", "-0.3", "-1", "a"]
    assert second == [f"1{begin}", "b", "-2", repr(0.1 + 0.2), "2", "b"]
    again = write_and_read(table.drop(columns="mixed"), tmp_path)
    pd.testing.assert_frame_equal(again, table.drop(columns="mixed").astype({"kind": "str"}))


def test_only_empty_cells_are_missing(tmp_path):
    table = pd.DataFrame({"label": ["None", "NA", "nan", None], "value": [1.0, np.nan, -0.5, 2.0]})
    (tmp_path / "table.csv").write_bytes(to_csv(table))
    pd.testing.assert_frame_equal(read_csv(tmp_path / "table.csv"), table)


def test_rows_are_plain_values():
    flags = pd.array([True, None], "boolean")
    table = pd.DataFrame({"n": [1, 2], "value": [np.inf, np.nan], "name": ["a", None]})
    rows = list_rows(table.assign(flag=flags))
    assert rows == [
        {"n": 1, "value": None, "name": "a", "flag": True},
        {"n": 2, "value": None, "name": None, "flag": None},
    ]
    assert type(rows[0]["n"]) is int


@given(st.lists(st.text(st.sampled_from("'=-@\t\r\nab,;\""), max_size=6), min_size=1, max_size=5))
def test_what_is_read_is_what_was_written(texts):
    table = pd.DataFrame({"text": texts, "value": np.linspace(-1, 1, len(texts))})
    content = to_csv(table)
    cells = [row[0] for row in read_cells(content)[1:]]
    assert len(cells) == len(texts)
    assert not [cell for cell in cells if cell.startswith(BEGINS)]
    again = read_csv(io.BytesIO(content), na_values=[])
    assert again["text"].tolist() == texts
    assert again["value"].dtype == float


def test_a_carriage_return_begins_no_row():
    table = pd.DataFrame({"text": ["a\r=1+1", "b"], "value": [-1.5, 2.0]})
    assert to_csv(table).decode().split("\n")[1] == '"a\r=1+1",-1.5'


def test_every_csv_is_written_here():
    sources = [
        path for name in ("fairfrontier", "flows", "tasks") for path in (ROOT / name).rglob("*.py")
    ]
    writers = (".to_csv(", "csv.writer", "csv.DictWriter", "write_csv(")
    found = [path for path in sources if any(each in path.read_text() for each in writers)]
    assert found == [ROOT / "fairfrontier/runtime/text_file.py"]
