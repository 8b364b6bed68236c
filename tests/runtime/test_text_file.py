from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.runtime import text_file
from fairfrontier.runtime.text_file import list_rows, read_csv, read_json, read_numbers, to_csv

LETTERS = "'=-@\t\r\nab,;\"\ufeff＋"
ROOT = Path(__file__).resolve().parents[2]
BEGINS = ("=", "+", "-", "@", "\t", "\r", "\ufeff=", "＝", "＠")


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


@given(st.lists(st.text(st.sampled_from(LETTERS), max_size=6), min_size=1, max_size=5))
def test_what_is_read_is_what_was_written(texts):
    table = pd.DataFrame({"text": texts, "value": np.linspace(-1, 1, len(texts)), "more": texts})
    content = to_csv(table)
    cells = [row[0] for row in read_cells(content)[1:]]
    assert len(cells) == len(texts)
    assert not [cell for cell in cells if cell.startswith(BEGINS)]
    again = read_csv(io.BytesIO(content), na_values=[])
    assert again["text"].tolist() == texts
    assert again["value"].dtype == float
    for separator in ";\t":
        rows = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator)
        assert not [cell for row in rows for cell in row if cell.startswith(BEGINS)]


def test_no_cell_of_another_separator_is_a_formula(tmp_path):
    texts = ["a;=cmd|' /C calc'!A0;b", "a\t=1", 'a;"=1', "a\n=1", "a;b", "a;'=1", "a; 1"]
    table = pd.DataFrame({"n": range(len(texts)), "level;=1": texts})
    content = to_csv(table).decode()
    assert content.startswith("n,level;'=1\n0,a;'=cmd|' /C calc'!A0;b\n")
    assert "\t=" not in content
    assert "a;b\n" in content
    pd.testing.assert_frame_equal(write_and_read(table, tmp_path), table)


def test_a_carriage_return_begins_no_row():
    table = pd.DataFrame({"text": ["a\r=1+1", "b"], "value": [-1.5, 2.0]})
    assert to_csv(table).decode().split("\n")[1] == '"a\r\'=1+1",-1.5'


def test_every_csv_is_written_here():
    sources = [
        path
        for name in ("fairfrontier", "papers", "flows", "tasks")
        for path in (ROOT / name).rglob("*.py")
    ]
    writers = (".to_csv(", "csv.writer", "csv.DictWriter", "write_csv(")
    found = [path for path in sources if any(each in path.read_text() for each in writers)]
    assert found == [ROOT / "fairfrontier/runtime/text_file.py"]


def test_json_with_half_a_character_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": ["\\u00e9", 1e400, "\\ud83d\\ude00"]}')
    assert read_json(path) == {"a": ["é", float("inf"), "😀"]}
    for text in ('"\\ud83d"', '{"\\udc00": 1}', "{"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"surrogates not allowed|Expecting"):
            read_json(path)


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 1}', '[{"b": {"a": [], "\\u0061": 2}}]'])
def test_json_with_a_key_twice_is_refused(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="it has the key 'a' twice"):
        read_json(path)


def test_json_that_would_fill_the_memory_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text(f"[{'[],' * (text_file.MOST_VALUES // 2)}0]")
    assert path.stat().st_size < text_file.MOST_BYTES
    monkeypatch.setattr(text_file.json, "loads", pytest.fail)
    with pytest.raises(ValueError, match=r"a\.json has more than the 2,097,152 values that are"):
        read_json(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"a\.json has more than the 33,554,432 bytes that are"):
        read_json(path)
    with pytest.raises(FileNotFoundError, match="no file zero"):
        read_json(Path("/dev/zero"))


def test_numbers_come_back_as_they_were(tmp_path):
    first, second = np.arange(6.0).reshape(2, 3), np.zeros((0, 4))
    np.savez(tmp_path / "a.npz", first=first, second=second)
    found = read_numbers(tmp_path / "a.npz", "second", "first")
    assert [each.shape for each in found] == [(0, 4), (2, 3)]
    assert np.array_equal(found[1], first)


@pytest.mark.parametrize(
    "array",
    [np.array([1.0, np.nan]), np.array([1, 2]), np.array(["a"]), np.array([{}], dtype=object)],
    ids=lambda array: f"{array.dtype} {array[-1]}",
)
def test_other_values_than_finite_numbers_are_refused(tmp_path, array):
    np.savez(tmp_path / "a.npz", a=array)
    with pytest.raises(ValueError, match=r"finite numbers|allow_pickle=False"):
        read_numbers(tmp_path / "a.npz", "a")


def test_what_unpacks_to_more_than_the_file_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(100_000))
    with pytest.raises(ValueError, match="unpacks to more"):
        read_numbers(tmp_path / "a.npz", "a")
