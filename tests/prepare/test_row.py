"""Raw rows of another day are read as the study's table was."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairfrontier.prepare.loader import fit_table, make_request
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
