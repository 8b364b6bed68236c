from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairfrontier.prepare.config.source import Source
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.table.cell import clean_typed, mask_numbers
from fairfrontier.prepare.table.column import as_levels, parse_numbers
from fairfrontier.runtime.errors import DataError
from tests.prepare.table.test_table import read


def test_markers_of_missing_cells(tmp_path):
    assert read(tmp_path, "a\nNA\n1\n").frame["a"].isna().tolist() == [True, False]
    marked = read(tmp_path, "a\nNA\n-9\n", missing=[-9]).frame["a"]
    assert marked.isna().tolist() == [False, True]


BEYOND = [2**53, 2**53 + 1, 10**17, 10**17 + 1]


@pytest.mark.parametrize(
    ("mark", "cells", "marked"),
    [
        # A mark of text is what the file holds, one of YAML's numbers the number.
        ("-9.00", ["-9.00", "-9", "-9.0 ", "-9.01", "9"], [0, 1, 2]),
        (-9.0, ["-9.00", "-9", "-90e-1", "- 9"], [0, 1, 2]),
        (1e20, ["1e+20", "1E+20", "1.0E20", "100000000000000000000", "1e20"], [0, 1, 2, 3]),
        ("1e-05", ["0.00001", "1E-5", "1.0e-05", "1e5"], [0, 1, 2]),
        ("odd", ["odd", "odd ", "Odd"], [0, 1]),
        ("odd ", ["odd", "odd "], [1]),
        ("0.1", ["0.10", ".1", "0.1000001"], [0, 1]),
        ("1e400", ["1e400", "1e401", "1"], [0]),
        # Python's own notations of numbers are text in a table.
        ("1_000", ["1_000", "1000"], [0]),
        ("\u0661", ["\u0661", "1"], [0]),
        (str(2**53 + 1), [*map(str, BEYOND), f"{2**53 + 1}.0"], [1, 4]),
        (10**17, ["1e17", *map(str, BEYOND)], [3]),
        # These are codes.
        (9, ["09", "009", "9E0", "9", "9.0"], [3, 4]),
        ("0", ["00", "0E5", "0"], [2]),
    ],
)
def test_a_mark_is_what_the_file_holds_or_a_number_that_equals_it(tmp_path, mark, cells, marked):
    frame = read(tmp_path, "a,b\n" + "".join(f'"{cell}",1\n' for cell in cells), missing=[mark])
    assert np.flatnonzero(frame.frame["a"].isna()).tolist() == marked


@pytest.mark.parametrize(
    ("mark", "marked"), [("1.000", [1, 2]), ("1,0", [0, 3]), ("-1,00", []), (1, [0, 3])]
)
def test_a_mark_is_a_number_in_the_notation_of_its_file(tmp_path, mark, marked):
    content = "a\n1\n1.000\n1000\n1,00\n2\n"
    notation = {"separator": ";", "decimal": ",", "thousands": "."}
    frame = read(tmp_path, content, missing=[mark], **notation).frame
    assert np.flatnonzero(frame["a"].isna()).tolist() == marked


@pytest.mark.parametrize("dtype", ["int64", "Int64", object, "float64"])
@pytest.mark.parametrize("mark", [str(2**53 + 1), f"{10**17}.00"])
def test_a_mark_takes_no_neighbour_with_it(mark, dtype):
    column = pd.Series([*BEYOND, 7], dtype=dtype)
    number = int(mark.removesuffix(".00"))
    # Of floats the neighbours are the same.
    number = float(number) if dtype == "float64" else number
    cleaned = clean_typed(column, Source(path="t.csv", missing=[mark]))
    assert cleaned.isna().tolist() == [cell == number for cell in column]


@pytest.mark.parametrize("cell", ["1.234", "-12.345", "1.234,5", "1.234.567"])
def test_thousands_that_nothing_says_are_thousands_are_refused(tmp_path, cell):
    notation = {"separator": ";", "decimal": ","}
    with pytest.raises(DataError, match=f"column 'a' holds '{cell}' in row 1, .*source.thousands"):
        read(tmp_path, f"a;b\n1,5;1\n{cell};1\n", **notation)
    table = read(tmp_path, f"a;b\n{cell};1\n0.386;1\n1.5;1\n", **notation, missing=[cell])
    assert table.frame["a"].tolist()[1:] == ["0.386", "1.5"]
    assert read(tmp_path, f"a;b\n{cell};1\n", **notation, thousands=".").frame.size == 2


def test_numbers_of_another_notation_are_levels_and_no_numbers(tmp_path):
    notation = {"separator": ";", "decimal": ",", "thousands": "."}
    content = 'a;b\n"  1.234";62.01\n" 1.234,5";1.234\n0,5;.5\n'
    source = Source(path="t.csv", **notation)
    frame = read(tmp_path, content, **notation).frame
    assert frame["a"].tolist() == ["1234", "1234.5", "0.5"]
    # Codes keep their points as levels.
    assert as_levels(frame["b"]).tolist() == ["62.01", "1234", ".5"]
    numbers = parse_numbers(mask_numbers(frame["b"], source))
    assert numbers.fillna(-1.0).tolist() == [-1.0, 1234.0, -1.0]
    assert parse_numbers(mask_numbers(frame["a"], source)).tolist() == [1234.0, 1234.5, 0.5]
    for cell in ("0.449", "12.34", "1234.567", "1.5E+05", "0.000"):
        column = read(tmp_path, f"a;b\n{cell};1\n", **notation).frame["a"]
        assert mask_numbers(column, source).tolist() == [f"{cell} in another notation"]
    commas = read(tmp_path, "a;b\n0,449;1\n", separator=";", thousands=",")
    assert commas.frame["a"].tolist() == ["0,449"]


def test_text_in_other_codes_and_numbers_with_other_marks(tmp_path):
    content = "größe;n\n1.234,5;x\n-,5;1.2.2020\n12;1,2,3\n"
    table = read(
        tmp_path,
        content.encode("cp1252"),
        separator=";",
        encoding="cp1252",
        decimal=",",
        thousands=".",
    )
    assert table.frame["größe"].tolist() == ["1234.5", "-.5", "12"]
    assert table.frame["n"].tolist() == ["x", "1.2.2020", "1,2,3"]
    with pytest.raises(DataError, match=r"is not UTF-8 text. .*source.encoding"):
        read(tmp_path, content.encode("cp1252"), separator=";")


@pytest.mark.parametrize("used", [{}, {"features": {"numeric": ["age"]}}])
def test_a_point_that_may_stand_between_thousands_refuses_its_row_alone(
    project, tmp_path, people, used
):
    people["income"] = people["income"].fillna(1.5)
    people.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    source = {"path": "t.csv", "separator": ";", "decimal": ","}
    # A column that rows are kept by need be no feature.
    path = project(source=source, rows={"keep": {"income": {"at_most": 1e6}}}, **used)
    encoder = RowEncoder.of(fit_table(make_request(path, home=tmp_path)))
    raw = pd.read_csv(tmp_path / "t.csv", sep=";", dtype=str)[:20]
    raw.loc[[3, 5, 7], "income"] = ["1.234", "1.234,5", "0.386"]
    told = "income is in doubt: its point may stand between thousands"
    reasons = encoder.encode(raw).refusals.reasons
    assert np.flatnonzero(reasons == told).tolist() == [3, 5]
    # Alone it means what it means beside others.
    assert encoder.encode(raw.iloc[3:4]).refusals.reasons.tolist() == [told]
