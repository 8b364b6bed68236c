"""Raw rows of another day are read as the study's table was."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder


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
