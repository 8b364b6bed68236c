from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.choose.select import prepare_export
from tests.loans import DATASET
from tests.project import make_project

STUDY = """\
study: loans
dataset: loans
methods: {linear: {}}
seeds: 1
threads: 1
objective: accuracy
"""
SOURCE = "source: {path: data/raw/loans.csv"
# By the digits behind the decimal mark: each is another notation when it is read again.
NOTATIONS = {1: ", separator: ;, decimal: ',', thousands: .", 3: ", separator: ;, decimal: ','"}


@pytest.mark.parametrize("digits", NOTATIONS)
def test_test_rows_are_read_once(tmp_path, digits):
    dataset = DATASET.replace(SOURCE, SOURCE + NOTATIONS[digits])
    home = make_project(tmp_path, STUDY, dataset)
    path = home / "data/raw/loans.csv"
    table = pd.read_csv(path)
    table["income"] = table["income"].fillna(1500.0)
    written = table["income"].map(f"{{:,.{digits}f}}".format)
    marks = str.maketrans(",.", ".,") if digits == 1 else str.maketrans({",": "", ".": ","})
    table["income"] = written.str.translate(marks)
    table.to_csv(path, sep=";", index=False)
    study = ff.run_study("loans", home=home)
    export = prepare_export(study.select())
    rows = export.reader.encode(export.rows)
    assert rows.refusals.accepted.all()
    assert np.array_equal(rows.X, export.test.X)
    assert export.bundle.reference["counts"]["rows"] == len(export.test.y)
    raw = pd.read_csv(path, sep=";", dtype=str).loc[export.test.ids]
    assert export.bundle.decide(raw)["decision"].tolist() == export.decided["decision"].tolist()
