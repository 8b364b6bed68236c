"""Raw rows of another day are read as the study's table was."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fairfrontier.prepare.loader import fit_table, load, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.table.reader import read_rows
from fairfrontier.runtime.errors import DataError


def test_bands_derived_labels_and_decimal_commas(project, tmp_path, people):
    people["city"] = people["city"].fillna("Ulm")
    people.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    path = project(
        source={"path": "t.csv", "separator": ";", "decimal": ",", "missing": ["?"]},
        label={"column": "points", "above": 30},
        groups={"age": {"column": "age", "below": [30, 50]}},
        protected=["age"],
        counterfactuals={},
    )
    table = fit_table(make_request(path, home=tmp_path))
    split = table.encode()
    RowEncoder.of(table).save(tmp_path)
    encoder = RowEncoder.load(tmp_path)
    raw = pd.read_csv(tmp_path / "t.csv", sep=";", dtype=str)
    rows = encoder.encode(raw, ["age"])
    ids = split.test.ids
    assert rows.refusals.accepted[ids].all()
    assert np.array_equal(rows.X[ids], split.test.X)
    assert np.array_equal(rows.groups[ids], split.test.groups)
    assert set(np.unique(split.test.groups)) == {0, 1, 2}
    assert np.array_equal(encoder.read_labels(raw)[ids], split.test.y)
    assert np.isnan(encoder.read_labels(raw.assign(points="?"))).all()
    for wrong in ("many", "inf", "-inf"):
        points = raw["points"].where(raw.index != 7, wrong)
        with pytest.raises(DataError, match=f"'points' holds '{wrong}' in row 7, no finite number"):
            encoder.read_labels(raw.assign(points=points))


LABELS = {
    "binary": {"column": "verdict", "positive": "granted"},
    "by order": {"column": "verdict"},
    "classes": {"column": "city", "task": "multiclass"},
    "share": {"column": "verdict", "task": "regression", "positive": "granted"},
}


@pytest.mark.parametrize("kind", LABELS)
def test_a_label_that_the_table_never_had_is_no_negative_one(project, tmp_path, people, kind):
    people["city"] = people["city"].fillna("Ulm")
    people.to_csv(tmp_path / "people.csv", index=False)
    label, column = LABELS[kind], LABELS[kind]["column"]
    used = {"features": {"numeric": ["income", "age"]}, "missing": {"numeric": "drop"}}
    keep = {"verdict": {"not": "pending"}} if kind == "by order" else {}
    path = project(label=label, counterfactuals={}, rows={"keep": keep}, **used)
    RowEncoder.of(fit_table(make_request(path, home=tmp_path))).save(tmp_path)
    encoder = RowEncoder.load(tmp_path)
    raw = pd.read_csv(tmp_path / "people.csv")
    assert set(encoder.levels) == set(raw[column]) - ({"pending"} if keep else set())
    raw = raw[raw["verdict"] != "pending"] if keep else raw
    if kind != "classes":
        known = (
            (raw[column] == ("refused" if keep else "granted")).astype(float).where(raw.index > 0)
        )
        found = encoder.read_labels(raw.assign(**{column: raw[column].where(raw.index > 0)}))
        np.testing.assert_array_equal(found, known)
        upper = raw[column].where(raw.index != 7, raw[column].str.upper())
        with pytest.raises(DataError, match=rf"t\.csv: .* '{upper[7]}' in row 7, .* "):
            encoder.read_labels(raw.assign(**{column: upper}), "t.csv")


@pytest.fixture
def encoder(project, tmp_path):
    path = project(
        label={"column": "points", "above": 30},
        rows={"keep": {"weight": {"above": 0}}},
        counterfactuals={},
    )
    return RowEncoder.of(fit_table(make_request(path, home=tmp_path)))


@pytest.mark.parametrize("unseen", ["zeros", "refuse"])
@pytest.mark.parametrize("declared", [{}, {"owner": ["True", "False", "N/K"]}])
def test_the_other_level_of_a_binary_column_is_known_too(
    project, tmp_path, people, unseen, declared
):
    path = project(
        features={"categorical": ["city"], "binary": {"owner": True}, "levels": declared},
        counterfactuals={},
    )
    RowEncoder.of(fit_table(make_request(path, home=tmp_path)), unseen).save(tmp_path)
    encoder = RowEncoder.load(tmp_path)
    people = people.dropna()
    assert not encoder.encode(people).unseen
    written = people["owner"].map({True: "Yes", False: "N/K"}).where(people.index % 2 == 0, False)
    rows = encoder.encode(people.assign(owner=written))
    wrong = ~written.isin([False, *(["N/K"] if declared else [])]).to_numpy()
    assert np.array_equal(rows.unseen["owner"], wrong)
    reasons = {"zeros": "", "refuse": "owner has a level that training had not"}
    assert (rows.refusals.reasons == np.where(wrong, reasons[unseen], "")).all()


def test_of_a_number_that_is_compared_with_one_others_are_to_be_expected(project, tmp_path, people):
    path = project(
        features={"numeric": ["income", "points"], "binary": {"points": 7}}, counterfactuals={}
    )
    RowEncoder.of(fit_table(make_request(path, home=tmp_path)), "refuse").save(tmp_path)
    rows = RowEncoder.load(tmp_path).encode(people.assign(points=[7.0, 7.5] * 200))
    assert not rows.unseen
    assert rows.refusals.accepted.all()
    assert rows.X[:2, 2].tolist() == [1.0, 0.0]


NO_NUMBERS = {
    "dates": pd.Timestamp("2024-01-01"),
    "durations": pd.Timedelta(days=30),
    "periods": pd.Period("2024", "Y"),
    "truth values": True,
    "truth values beside missing cells": pd.NA,
    "complex numbers": 3 + 0j,
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("dtype", [None, object])
def test_what_is_no_number_is_none_wherever_one_is_expected(encoder, people, kind, dtype):
    cells = pd.Series([NO_NUMBERS[kind]] * len(people), dtype=dtype)
    if kind == "truth values beside missing cells":
        cells = pd.Series([True, None] * (len(people) // 2), dtype=dtype or "boolean")
    present = cells.notna().to_numpy()
    people = people.assign(age=40.0)
    rows = encoder.encode(people.assign(income=cells), ["age"])
    assert (rows.refusals.reasons[present] == "income is no number").all()
    rows = encoder.encode(people.assign(age=cells), ["age"])
    assert (rows.refusals.reasons[present] == "age is no number").all()
    assert (rows.groups[:, 1] == -1).all()
    rows = encoder.encode(people.assign(weight=cells))
    assert not rows.refusals.accepted.any()
    with pytest.raises(DataError, match=r"column 'points' holds .*, no finite number"):
        encoder.read_labels(people.assign(points=cells))


def test_numbers_of_any_type_are_numbers(encoder, people):
    whole = people["points"]
    wanted = encoder.encode(people.assign(age=whole), ["age"])
    written = (whole.map(Decimal), whole.astype("Int64"), whole.astype("category"), whole.map(str))
    for cells in (*written, whole.astype(object), whole.map(lambda cell: str(cell).encode())):
        rows = encoder.encode(people.assign(age=cells), ["age"])
        assert np.array_equal(rows.X, wanted.X)
        assert np.array_equal(rows.groups, wanted.groups)
        assert (rows.refusals.reasons == wanted.refusals.reasons).all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("city", pa.string_view()),
        ("city", pa.binary_view()),
        ("city", pa.decimal32(5, 1)),
        ("age", pa.decimal64(5, 1)),
    ],
)
def test_types_of_arrow_that_pandas_cannot_handle_are_read(encoder, people, name, kind):
    number = pa.types.is_decimal(kind)
    cells = [Decimal("40.0") if number else city for city in people["city"].fillna("Ulm")]
    rows = people.assign(**{name: cells}).iloc[::-1]
    typed = pd.arrays.ArrowExtensionArray(pa.array(cells[::-1], kind))
    wanted, given = (encoder.encode(each, ["age"]) for each in (rows, rows.assign(**{name: typed})))
    np.testing.assert_array_equal(given.X, wanted.X)
    assert np.array_equal(given.groups, wanted.groups)
    assert (given.refusals.reasons == wanted.refusals.reasons).all()


@pytest.mark.parametrize("cell", [1e300, -1.7e308, "1e300", 1e43])
def test_numbers_beyond_those_of_models_are_refused(encoder, people, cell):
    wanted = encoder.encode(people)
    income = people["income"].astype(object)
    income[1] = cell
    rows = encoder.encode(people.assign(income=income))
    assert rows.refusals.reasons[1] == "income is too large"
    others = np.arange(len(people)) != 1
    assert (rows.refusals.reasons[others] == wanted.refusals.reasons[others]).all()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_codes_of_eighteen_digits_are_the_same_in_every_table(project, tmp_path, people, form):
    draw = np.random.default_rng(3)
    people["origin"] = 10**17 + draw.integers(0, 4, len(people))
    people["city"] = people["origin"] + 10
    people["verdict"] = people["origin"] % 2 + 2**62
    people.to_parquet(tmp_path / "t.parquet")
    sources = {
        "csv": {"path": "people.csv", "missing": ["?"]},
        "parquet": {"path": "t.parquet", "format": "parquet"},
    }
    path = project(
        source=sources[form],
        label={"column": "verdict", "positive": 2**62 + 1},
        counterfactuals={},
        missing={"numeric": "median"},
        features={"numeric": ["income"], "categorical": ["city"]},
        groups={"origin": {"column": "origin"}},
        protected=["origin"],
    )
    table = fit_table(make_request(path, home=tmp_path))
    split = table.encode()
    assert split.train.attributes["origin"] == tuple(str(10**17 + code) for code in range(4))
    assert (split.train.X.sum(axis=0)[1:] > 0).tolist() == [True] * 4
    lazy = load(path, home=tmp_path, backend="dask")
    assert lazy.train.attributes == split.train.attributes
    encoder, ids = RowEncoder.of(table), split.test.ids
    text = people[["origin", "city", "verdict"]].astype("str")
    for written in (people, people.assign(**text), people.convert_dtypes()):
        rows = encoder.encode(written, ["origin"])
        assert rows.refusals.accepted.all()
        assert np.array_equal(rows.X[ids], split.test.X)
        assert np.array_equal(rows.groups[ids], split.test.groups)
        assert np.array_equal(encoder.read_labels(written)[ids], split.test.y)
    with pytest.raises(DataError, match="floats of 2"):
        encoder.encode(people.assign(city=people["city"].astype(float)))


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_a_row_is_depends_on_no_other_row(project, tmp_path, form):
    draw = np.random.default_rng(6)
    blank = "\u00a0a" if form == "csv" else " a"
    frame = pd.DataFrame(
        {
            name: draw.choice([blank, "a", "b", "2.0"], 40)
            for name in ("city", "origin", "verdict", "kept")
        }
    )
    frame["income"] = draw.normal(30, 5, 40)
    path = tmp_path / f"t.{form}"
    frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path, row_group_size=7)
    described = project(
        source={"path": path.name, "format": form},
        rows={"keep": {"kept": {"in": [blank, 2]}}},
        label={"column": "verdict", "positive": [blank, "b"]},
        features={"numeric": ["income"], "categorical": ["city"]},
        groups={"origin": {"column": "origin"}},
        protected=["origin"],
        missing={},
        counterfactuals={},
    )
    table = fit_table(make_request(described, home=tmp_path))
    split, encoder = table.encode(), RowEncoder.of(table)
    assert split.feature_names == ("income", "city_2", "city_a", "city_b")
    assert split.train.attributes == {"origin": ("2", "a", "b")}
    lazy = load(described, home=tmp_path, backend="dask")
    rows = [encoder.encode(frame.iloc[[row]], ["origin"]) for row in range(len(frame))]
    for part, twin in zip(
        (split.train, split.calibration, split.test),
        (lazy.train, lazy.calibration, lazy.test),
        strict=True,
    ):
        order = np.argsort(part.ids)
        assert np.array_equal(part.ids[order], np.asarray(twin.ids))
        for name in ("X", "y", "groups"):
            assert np.allclose(getattr(part, name)[order], np.asarray(getattr(twin, name)))
        assert all(rows[row].refusals.accepted.all() for row in part.ids)
        assert np.array_equal(np.vstack([rows[row].X for row in part.ids]), part.X)
        assert np.array_equal(np.vstack([rows[row].groups for row in part.ids]), part.groups)
        labels = [encoder.read_labels(frame.iloc[[row]])[0] for row in part.ids]
        assert np.array_equal(labels, part.y)
    used = np.concatenate([part.ids for _, part in split.parts()])
    assert all(rows[row].refusals.accepted.all() == (row in used) for row in range(len(frame)))


def test_a_group_of_missing_cells_is_the_studys(project, tmp_path):
    draw = np.random.default_rng(6)
    frame = pd.DataFrame({"origin": draw.choice(["a", "b", ""], 400)})
    frame["income"] = draw.normal(30, 5, 400)
    frame["verdict"] = draw.choice(["yes", "no"], 400)
    frame.to_csv(tmp_path / "t.csv", index=False)
    described = project(
        source={"path": "t.csv"},
        label={"column": "verdict", "positive": "yes"},
        features={"numeric": ["income"]},
        groups={"origin": {"column": "origin"}},
        protected=["origin"],
        missing={"categorical": "category"},
        counterfactuals={},
    )
    table = fit_table(make_request(described, home=tmp_path))
    split = table.encode()
    rows = RowEncoder.of(table).encode(pd.read_csv(tmp_path / "t.csv"), ["origin"])
    assert split.test.attributes == {"origin": ("a", "b", "missing")}
    assert rows.refusals.accepted.all()
    assert np.array_equal(rows.groups[split.test.ids], split.test.groups)


MARKS = ["-999", "1e3", "99,90", "9.999", "?", "odd"]
WRITTEN = ["-999", "-999.0", "1000", "1000,0", "1e3", "99,90", "9.999", "?", "odd", "", " "]
WRITTEN += ["-999,0", "1.000", "1,5", "1.234,5", "7", "7,0", "+8", " 9", "9 ", "0,25", "-999 "]
TEXTS = ["-999", "-999.0", "?", "odd", "odd ", " a", "a", "a ", "7", "7.0", "b"]


@pytest.mark.parametrize("form", ["file", "text", "objects", "categories"])
@pytest.mark.parametrize("marks", [MARKS, [], None])
def test_every_cell_is_read_as_the_study_read_it(project, tmp_path, form, marks):
    draw = np.random.default_rng(3)
    numbers = [cell for cell in WRITTEN if marks == MARKS or cell not in ("?", "odd", "-999.0")]
    frame = pd.DataFrame(
        {
            "income": draw.choice(numbers, 600),
            "age": draw.choice([*"1234567", *(["-999", "-999.0"] if marks else [])], 600),
            "city": draw.choice(TEXTS, 600),
            "origin": draw.choice(["?", "odd", "a", " a", "a ", "\u00a0a", "\ta", "b"], 600),
            "verdict": draw.choice(["yes", "yes ", "no", *(["odd"] if marks else [])], 600),
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False, sep=";")
    source = {"path": "t.csv", "separator": ";", "decimal": ",", "thousands": "."}
    path = project(
        source=source if marks is None else {**source, "missing": marks},
        label={"column": "verdict", "positive": "yes"},
        features={"numeric": ["income", "age"], "categorical": ["city"]},
        groups={"origin": {"column": "origin"}, "age": {"column": "age", "below": 4}},
        protected=["origin", "age"],
        missing={
            "numeric": "mean",
            "categorical": "category",
            "columns": {"age": "drop", "origin": "drop"},
        },
        rows={"drop_missing": ["verdict"]},
        counterfactuals={},
    )
    table = fit_table(make_request(path, home=tmp_path))
    split = table.encode()
    RowEncoder.of(table).save(tmp_path)
    encoder = RowEncoder.load(tmp_path)
    if form == "file":
        used = dict.fromkeys(frame, "bundle")
        source = encoder.config.source
        batches = read_rows(tmp_path / "t.csv", used, 10**6, source)
        frame = pd.concat([batch.frame for batch in batches])
    elif form != "text":
        frame = frame.astype({"objects": object, "categories": "category"}[form])
    rows, labels = encoder.encode(frame, encoder.names), encoder.read_labels(frame)
    read = ~np.isnan(labels) & rows.refusals.accepted
    parts = [split.train, split.calibration, split.test]
    assert np.array_equal(np.flatnonzero(read), np.sort(np.concatenate([p.ids for p in parts])))
    assert not rows.unseen
    for part in parts:
        assert np.array_equal(rows.X[part.ids], part.X)
        assert np.array_equal(rows.groups[part.ids], part.groups)
        assert np.array_equal(labels[part.ids], part.y)


@pytest.mark.parametrize(
    ("marks", "notation"),
    [
        (["-9.00", "1000.50"], {}),
        (["-9,00", "1.000,5"], {"decimal": ",", "thousands": ".", "separator": ";"}),
    ],
)
@pytest.mark.parametrize("backend", ["numpy", "dask"])
def test_marks_of_text_are_those_of_numbers(project, tmp_path, marks, notation, backend):
    draw = np.random.default_rng(5)
    numbers = draw.choice([-9.0, 1000.5, 1.0, 2.25, 30.0], 400)
    written = [f"{number:,.2f}" for number in numbers]
    signs = str.maketrans(",.", ".,") if notation else str.maketrans("", "", ",")
    frame = pd.DataFrame({"income": [cell.translate(signs) for cell in written]})
    frame["city"] = draw.choice(["a", "b"], 400)
    frame["verdict"] = draw.choice(["granted", "no"], 400)
    frame.to_csv(tmp_path / "t.csv", index=False, sep=notation.get("separator", ","))
    described = project(
        source={"path": "t.csv", "missing": marks, **notation},
        features={"numeric": ["income"]},
        groups={"city": {"column": "city"}},
        protected=["city"],
        missing={"numeric": "mean"},
        counterfactuals={},
    )
    split = load(described, home=tmp_path, backend=backend)
    RowEncoder.of(fit_table(make_request(described, home=tmp_path))).save(tmp_path)
    encoder = RowEncoder.load(tmp_path)
    ids, X = np.asarray(split.train.ids), np.asarray(split.train.X)
    assert np.array_equal(np.isclose(X[:, 0], 0), np.isin(numbers[ids], [-9.0, 1000.5]))
    for table in (frame, frame.assign(income=numbers)):
        assert np.allclose(encoder.encode(table).X[ids], X)


@pytest.mark.parametrize("backend", ["numpy", "dask"])
def test_among_numbers_no_text_is_a_code(project, tmp_path, backend):
    draw = np.random.default_rng(6)
    written = {
        "1e+20": 1e20,
        "1E20": 1e20,
        "09": 9,
        "9e0": 9,
        "-9.99e+02": -999,
        "3": 3,
        "4.5": 4.5,
    }
    texts = pd.DataFrame(draw.choice([*written], (600, 3)), columns=["income", "age", "score"])
    texts["city"] = draw.choice(["a", "b"], 600)
    # A row that is left out, one without a target, and levels, of which some are codes.
    texts["code"] = draw.choice(["09", "9", "1e+20"], 600)
    texts.loc[texts["score"].map(written).isin([1e20, 9, -999]), "score"] = "4"
    numbers = texts.assign(
        **{
            name: texts[name].map(written | {"4": 4}).astype(float)
            for name in ("income", "age", "score")
        },
        code=[{"09": "09", "9": 9, "1e+20": 1e20}[cell] for cell in texts["code"]],
    )
    texts.to_csv(tmp_path / "t.csv", index=False)
    described = project(
        source={"path": "t.csv", "missing": [1e20, 9, "-999"]},
        rows={"keep": {"age": {"at_least": 0}}},
        label={"column": "score", "task": "regression"},
        features={"numeric": ["income"], "categorical": ["code"]},
        groups={"city": {"column": "city"}},
        protected=["city"],
        missing={"numeric": "median", "categorical": "category"},
        counterfactuals={},
    )
    split = load(described, home=tmp_path, backend=backend)
    ids, X = np.asarray(split.train.ids), np.asarray(split.train.X)
    assert set(numbers["age"][ids]) == {3.0, 4.5}
    assert split.feature_names == ("income", "code_09", "code_missing")
    # The median is one of the two numbers that are no marks.
    assert len(np.unique(X[:, 0])) == 2
    encoder = RowEncoder.of(fit_table(make_request(described, home=tmp_path)))
    for table in (texts, numbers):
        rows = encoder.encode(table)
        assert np.array_equal(rows.refusals.accepted, numbers["age"].isin([3, 4.5]))
        assert np.allclose(rows.X[ids], X)
        marked = table.assign(score=written["1e+20"] if table is numbers else "1E20")
        assert np.isnan(encoder.read_labels(marked)).all()


def test_columns_left_out_of_the_rest_are_so_in_a_bundle(project, tmp_path):
    described = project(
        features={"numeric": ["income"], "categorical": "rest", "drop": ["age"]},
        groups={"city": {"column": "city"}},
        protected=["city"],
        missing={"numeric": "mean", "categorical": "category"},
        counterfactuals={},
    )
    encoder = RowEncoder.of(fit_table(make_request(described, home=tmp_path)))
    encoder.save(tmp_path)
    assert RowEncoder.load(tmp_path).encoder.feature_names == encoder.encoder.feature_names


@pytest.mark.parametrize("form", ["numbers", "objects", "decimals", "nullable", "whole"])
def test_typed_numbers_that_equal_a_mark_are_missing(project, tmp_path, form):
    draw = np.random.default_rng(4)
    cells = draw.choice([-999, 1000, 7, 8, 2**53 + 1], 400)
    frame = pd.DataFrame({"income": draw.normal(30, 5, 400).round(1), "code": cells})
    frame.loc[::5, "income"] = -999
    frame["flag"] = draw.choice([True, False], 400)
    frame["verdict"] = draw.choice(["granted", "no"], 400)
    frame.to_csv(tmp_path / "t.csv", index=False)
    path = project(
        source={"path": "t.csv", "missing": ["-999", "1e3", "True", 0]},
        features={"numeric": ["income"], "categorical": ["code"], "binary": {}},
        groups={"flag": {"column": "flag"}},
        protected=["flag"],
        missing={"numeric": "mean", "categorical": "category"},
        counterfactuals={},
    )
    table = fit_table(make_request(path, home=tmp_path))
    split, encoder = table.encode(), RowEncoder.of(table)
    if form == "objects":
        frame = frame.astype(object)
    elif form == "decimals":
        frame["income"] = [Decimal(str(cell)) for cell in frame["income"]]
    elif form == "nullable":
        frame = frame.convert_dtypes()
    elif form == "whole":
        assert encoder.encode(frame.assign(income=-999)).refusals.accepted.all()
    rows = encoder.encode(frame)
    assert not rows.unseen
    assert rows.refusals.accepted.all()
    assert np.array_equal(rows.X[split.test.ids], split.test.X)
    assert np.array_equal(rows.groups[split.test.ids], split.test.groups)
