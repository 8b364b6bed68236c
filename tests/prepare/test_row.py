"""Raw rows of another day are read as the study's table was."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from fairfrontier.prepare.loader import fit_table, load, make_request
from fairfrontier.prepare.row import RowEncoder
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
        with pytest.raises(DataError, match=rf"t\.csv: .* '{upper[7]}' in row 7, .* Known are: "):
            encoder.read_labels(raw.assign(**{column: upper}), "t.csv")


@pytest.fixture
def encoder(project, tmp_path):
    path = project(
        label={"column": "points", "above": 30},
        rows={"keep": {"weight": {"above": 0}}},
        counterfactuals={},
    )
    return RowEncoder.of(fit_table(make_request(path, home=tmp_path)))


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
