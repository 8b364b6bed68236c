"""How a table is written is found out, and the loader then reads what was meant."""

from __future__ import annotations

import errno
import gzip
import io
import re
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather

from fairfrontier.prepare.config.section import MISSING_MARKERS
from fairfrontier.prepare.draft.draft import read_raw
from fairfrontier.prepare.table.frame import write_parquet
from fairfrontier.runtime.errors import ConfigError, DataError

FRAME = pd.DataFrame({"Größe": [1.5, 2.0, 1234.25], "who": ["a", "b", "a"]})


def sniff(folder, content, name="t.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_raw(path)


@pytest.mark.parametrize(
    ("content", "keys", "first"),
    [
        ("a,b\n1,x\n2,y\n", {}, ["1", "x"]),
        ("a;b\n1;x, y\n2;y\n", {"separator": ";"}, ["1", "x, y"]),
        ("a\tb\n1\tx\n", {"separator": "\t"}, ["1", "x"]),
        ("a|b\n1|x\n", {"separator": "|"}, ["1", "x"]),
        ("ä;b\n1;x\n".encode("cp1252"), {"encoding": "cp1252", "separator": ";"}, ["1", "x"]),
        ("a;b\n1,5;2,25\n3,5;4\n", {"separator": ";", "decimal": ","}, ["1.5", "2.25"]),
        (
            "a;b\n1.234,5;2\n3,5;4\n",
            {"separator": ";", "decimal": ",", "thousands": "."},
            ["1234.5", "2"],
        ),
        (
            "a;b\n0,77;7.284\n3,5;781\n",
            {"separator": ";", "decimal": ",", "thousands": "."},
            ["0.77", "7284"],
        ),
        ('a,b\n"1,234",2\n"12,500.5",4\n', {"thousands": ","}, ["1234", "2"]),
        ('a,b\n"1,23",2\n"12,5",4\n', {"decimal": ","}, ["1.23", "2"]),
        ("1,x\n2,y\n3,x\n", {"columns": ["column1", "column2"]}, ["1", "x"]),
        (
            "A1 6 x\nA2 7 y\n",
            {"format": "whitespace", "columns": ["column1", "column2", "column3"]},
            ["A1", "6", "x"],
        ),
        ("n k\n1 2\n3 4\n", {"format": "whitespace", "columns": ["n", "k"]}, ["1", "2"]),
        ("Report of 2020\n\na,b\n1,x\n2,y\n", {}, ["1", "x"]),
        ("a,b\n-,x\n2,-\n", {"missing": [*MISSING_MARKERS, "-"]}, [np.nan, "x"]),
        ("a,b\n?,x\n2,y\n", {"missing": [*MISSING_MARKERS, "?"]}, [np.nan, "x"]),
    ],
)
def test_text_tables(tmp_path, content, keys, first):
    raw = sniff(tmp_path, content)
    assert raw.keys == keys
    pd.testing.assert_series_equal(
        raw.frame.iloc[0].reset_index(drop=True), pd.Series(first), check_names=False,
        check_dtype=False,
    )  # fmt: skip


def test_a_level_that_could_mean_missing_stays_where_there_are_no_numbers(tmp_path):
    raw = sniff(tmp_path, "debt,n\nnone,1\nsome,2\n")
    assert raw.frame["debt"].tolist() == ["none", "some"]
    assert raw.keys == {}


def test_packed_and_named_after_the_table(tmp_path):
    raw = sniff(tmp_path, gzip.compress(b"a\tb\n1\tx\n"), "Loans 2020.tsv.gz")
    assert (raw.name, raw.keys) == ("Loans 2020", {"separator": "\t"})


def make_stream():
    class Stream:
        """A frame that is known by Arrow's protocol alone, as those of polars are."""

        def __arrow_c_stream__(self, schema=None):
            return pa.Table.from_pandas(FRAME).__arrow_c_stream__(schema)

    return Stream()


@pytest.mark.parametrize("kind", ["pandas", "arrow", "stream", "feather", "parquet", "folder"])
def test_tables_with_types(tmp_path, kind):
    path = tmp_path / "t"
    table = {"pandas": FRAME, "arrow": pa.Table.from_pandas(FRAME), "stream": make_stream()}.get(
        kind, path
    )
    if kind == "feather":
        feather.write_feather(FRAME, path)
    elif kind == "parquet":
        FRAME.to_parquet(path)
    elif kind == "folder":
        path.mkdir()
        FRAME.to_parquet(path / "0.parquet")
    raw = read_raw(table)
    assert raw.frame["Größe"].tolist() == [1.5, 2.0, 1234.25]
    assert raw.keys == {"format": "parquet"}
    # What the loader does not read itself is kept as Parquet.
    assert (raw.parquet is None) == (kind in ("parquet", "folder"))
    if raw.parquet:
        pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(raw.parquet)), FRAME)


def test_categories_of_any_text_are_kept():
    levels = pa.array(["a", "b"], pa.string_view())
    codes = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), levels)
    raw = read_raw(pa.table({"who": codes, "n": [1, 2, 3]}))
    assert raw.frame["who"].tolist() == ["b", np.nan, "a"]


def test_polars(tmp_path):
    polars = pytest.importorskip("polars")
    assert read_raw(polars.from_pandas(FRAME)).frame["who"].tolist() == ["a", "b", "a"]


def write_feather(path, compression="uncompressed", **columns):
    feather.write_feather(pa.table(columns), path, compression=compression)
    return path


@pytest.mark.parametrize("kind", ["feather", "frame"])
@pytest.mark.parametrize("offset", [2**30, 200_000, -(2**20)])
def test_offsets_that_lead_out_of_a_table_are_refused(tmp_path, offset, kind):
    cells = pa.array(["abc"] * 5 + [None] + ["abc"] * 5)
    path = write_feather(tmp_path / "t.feather", t=cells, n=list(range(11)))
    offsets = cells.buffers()[1].to_pybytes()
    wrong = np.frombuffer(offsets, np.int32).copy()
    wrong[5] = offset
    raw = path.read_bytes()
    assert raw.count(offsets) == 1
    # A library that writes Arrow checks first and last offsets alone.
    path.write_bytes(raw.replace(offsets, wrong.tobytes()))
    table = path if kind == "feather" else feather.read_table(path)
    with pytest.raises(DataError):
        read_raw(table)


REPEATED = pa.array(np.zeros(10_000, np.int32))


@pytest.mark.parametrize(
    "cells",
    [
        pa.DictionaryArray.from_arrays(REPEATED, pa.array(["x" * 2**15])),
        pa.DictionaryArray.from_arrays(REPEATED, pa.array(["x" * 2**15], pa.large_string())),
        pa.DictionaryArray.from_arrays(REPEATED, pa.array(["x" * 2**15], pa.string_view())),
        pa.DictionaryArray.from_arrays(REPEATED, pa.array([b"x" * 2**15], pa.binary(2**15))),
        pa.nulls(10**8),
    ],
    ids=lambda cells: str(cells.type)[:60],
)
def test_a_small_feather_file_does_not_fill_the_memory(tmp_path, cells):
    path = write_feather(tmp_path / "t.feather", "zstd", t=cells)
    assert path.stat().st_size < 600_000
    with pytest.raises(DataError, match=r"unpacks to more than 67 MB.*Save it as Parquet"):
        read_raw(path)


def test_a_feather_file_of_too_many_columns_or_of_a_name_that_is_no_text(tmp_path):
    path = write_feather(tmp_path / "t.feather", **{f"c{n}": [1] for n in range(10_001)})
    with pytest.raises(DataError, match="has 10,001 columns"):
        read_raw(path)
    path = write_feather(path, abcdefgh=[1, 2])
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"\xffbcdefgh"))
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read_raw(path)


@pytest.mark.parametrize("scale", [-6000, 2 * 10**9])
def test_decimals_that_parquet_does_not_have_are_refused(tmp_path, scale):
    kind = pa.decimal128(38, scale)
    cells = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(bytes(32))])
    path = write_feather(tmp_path / "t.feather", t=cells)
    with pytest.raises(DataError, match=r"t\.feather: column 't' cannot be kept"):
        read_raw(path)


def test_a_full_disk_is_no_fault_of_a_frame():
    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        write_parquet(pa.table({"t": [1]}), Full(), "The frame")


def test_a_spreadsheet(tmp_path):
    pytest.importorskip("openpyxl")
    FRAME.to_excel(tmp_path / "t.xlsx", index=False)
    assert read_raw(tmp_path / "t.xlsx").frame["Größe"].tolist() == [1.5, 2.0, 1234.25]


def stretch(path, row, column, other):
    """Put a cell that is far away into a sheet that does not say how far it goes."""
    FRAME.to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    far = f'<row r="{row}"><c r="{column}{row}"><v>1</v></c></row></sheetData>'
    sheet = re.sub(rb"<dimension [^>]*>", b"", members[name])
    members[name] = sheet.replace(b"</sheetData>", far.encode())
    with zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        (1_048_576, "XFD", "columns, and source.width is 10,000"),
        (5, "XFD", "columns, and source.width is 10,000"),
        (1_048_576, "ALL", r"more than 4,194,304 cells, nearly all of them empty"),
        (99_999_999_999, "A", r"more than 4,194,304 cells"),
    ],
)
@pytest.mark.once
def test_a_cell_far_from_the_others_does_not_fill_the_memory(
    tmp_path, monkeypatch, row, column, message
):
    pytest.importorskip("openpyxl")
    stretch(tmp_path / "t.xlsx", row, column, tmp_path / "far.xlsx")
    monkeypatch.setattr(pd, "read_excel", None)
    with pytest.raises(DataError, match=message):
        read_raw(tmp_path / "far.xlsx")


SPREADSHEETML = "application/vnd.openxmlformats-officedocument.spreadsheetml"
NAMESPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
TYPES, SHEET, STRINGS = "[Content_Types].xml", "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"


def make_parts(path, frame):
    """Return the parts of a spreadsheet whose texts are all the first shared one."""
    frame.to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    kind = f'<Override PartName="/{STRINGS}" ContentType="{SPREADSHEETML}.sharedStrings+xml"/>'
    parts[TYPES] = parts[TYPES].replace("</Types>", f"{kind}</Types>")
    parts[SHEET] = re.sub(r't="inlineStr"><is><t>x</t></is>', 't="s"><v>0</v>', parts[SHEET])
    return parts | {STRINGS: share("<t>x</t>")}


def share(*texts):
    return f'<sst xmlns="{NAMESPACE}">{"".join(f"<si>{text}</si>" for text in texts)}</sst>'


def pack(path, parts):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in parts.items():
            archive.writestr(name, each)
    return path


@pytest.mark.once
def test_a_spreadsheet_of_a_long_text_does_not_fill_the_memory(tmp_path, monkeypatch):
    pytest.importorskip("openpyxl")
    parts = make_parts(tmp_path / "t.xlsx", pd.DataFrame({"a": ["x"] * 100}))
    parts[STRINGS] = share(f"<t>{'y' * 2**20}</t>")
    monkeypatch.setattr(pd, "read_excel", None)
    with pytest.raises(DataError, match="unpacks to more than 67 MB"):
        read_raw(pack(tmp_path / "o.xlsx", parts))


@pytest.mark.once
def test_a_spreadsheet_with_formats_and_large_parts_that_hold_no_cells_is_read(tmp_path):
    pytest.importorskip("openpyxl")
    rows = 5000
    parts = make_parts(tmp_path / "t.xlsx", pd.DataFrame({"a": ["x"] * rows, "b": range(rows)}))
    font = '<rPr><b/><sz val="11"/><color rgb="FF000000"/><rFont val="Arial"/></rPr>'
    run = f"<r>{font}<t>x</t></r>"
    parts[STRINGS] = share(*[run * 3] * rows)
    tail = "".join(
        f'<conditionalFormatting sqref="B{n}"><cfRule type="expression" priority="1">'
        "<formula>B1&gt;2</formula></cfRule></conditionalFormatting>"
        for n in range(1, 200)
    )
    tail += "<mergeCells>" + '<mergeCell ref="D1:E1"/>' * 200 + "</mergeCells>"
    widths = "<cols>" + '<col min="1" max="1" width="20"/>' * 100 + "</cols>"
    parts[SHEET] = (
        parts[SHEET].replace("<sheetData>", f"{widths}<sheetData>")
        .replace("</sheetData>", f"</sheetData>{tail}")
    )  # fmt: skip
    parts["xl/worksheets/sheet2.xml"] = parts[SHEET]
    parts["xl/calcChain.xml"] = "<c/>" * 2**19
    parts["xl/media/image1.png"] = "<" * 2**23
    frame = read_raw(pack(tmp_path / "o.xlsx", parts)).frame
    assert frame["a"].tolist() == ["xxx"] * rows
    assert frame["b"].tolist() == list(range(rows))


def test_a_spreadsheet_without_its_library(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "t.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "")
        archive.writestr("xl/workbook.xml", "")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ConfigError, match=r"openpyxl is not .*pip install 'fairfrontier\[excel\]'"):
        read_raw(tmp_path / "t.xlsx")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"a,b\n", "holds no rows"),
        (b"a,a\n1,2\n", "more than one column named 'a'"),
        (b"a a\n1 2\n3 4\n", "columns names a more than once"),
        (b"a,b\n1,2\n1,2,3\n", "not a table that can be read"),
        (b"\x00\x01\x02\x03", "binary data"),
        (b"PAR1 and no more", "not a parquet table that"),
        (b"ARROW1 and no more", "not a table that can be read"),
        (b"PK\x03\x04 [Content_Types].xml", "not a spreadsheet"),
        (b"," * 20_000 + b"\n1\n", "columns, and source.width is 10,000"),
        (b"SQLite format 3", "SQLite database"),
        (b"a" * 2**18 + b",b\n1,2\n", "begins with a cell of more than 128 KiB"),
        ("a,b\n1,2\n".encode("utf-16"), "binary data"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, message):
    with pytest.raises((ConfigError, DataError), match=message):
        sniff(tmp_path, content)


def test_frames_that_are_none():
    with pytest.raises(DataError):
        read_raw({"a": [1]})
    with pytest.raises(DataError, match="more than one column named 'a'"):
        read_raw(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(DataError, match="Arrow has no type for"):
        read_raw(pd.DataFrame({"a": [1, "x", object()]}))
    with pytest.raises(DataError, match="Arrow has no type for"):
        read_raw(pd.DataFrame({"a": [10**25, 1]}))
    with pytest.raises(DataError, match="Arrow has no type for"):
        read_raw(pd.DataFrame({"a": pd.Series(["\ud800"], dtype=object)}))


@pytest.mark.parametrize("separator", [",", "\t"])
def test_commas_beside_numbers_with_points_are_thousands(tmp_path, separator):
    path = tmp_path / ("t.tsv" if separator == "\t" else "t.csv")
    table = pd.DataFrame({"income": ["950", "1,200", "48,500"], "score": [0.76, 0.04, 0.5]})
    table.to_csv(path, sep=separator, index=False)
    keys = read_raw(path).keys
    assert "decimal" not in keys
    assert keys["thousands"] == ","


def test_a_word_that_is_a_level_of_another_column_is_no_mark(tmp_path):
    table = pd.DataFrame(
        {"disability": ["none", "physical", "mental"] * 5, "prior": ["1", "2", "none"] * 5}
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    assert set(read_raw(tmp_path / "t.csv").frame["disability"]) == {"none", "physical", "mental"}


def test_a_mark_among_the_numbers_of_a_sheet_is_missing(tmp_path):
    pytest.importorskip("openpyxl")
    table = pd.DataFrame({"years": [25, "None", 31], "age": [30, "90+", 41], "y": [0, 1, 1]})
    table.to_excel(tmp_path / "t.xlsx", index=False)
    frame = read_raw(tmp_path / "t.xlsx").frame
    assert frame["years"].isna().tolist() == [False, True, False]
    assert [float(x) for x in frame["years"].dropna()] == [25, 31]
    assert frame["age"].isna().sum() == 0
