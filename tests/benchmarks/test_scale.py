from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import scale
from benchmarks.scale import MOVED, check_points, list_methods, write_rows


def test_rows_are_like_adults_and_the_same_for_a_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "GROUP", 300)
    monkeypatch.setattr(scale, "FILE", 600)
    for name in ("one", "other"):
        assert write_rows(tmp_path / name, 1000) > 0
    one, other = (pd.read_parquet(tmp_path / name) for name in ("one", "other"))
    pd.testing.assert_frame_equal(one, other)
    assert len(one) == 1000
    assert len(list((tmp_path / "one").iterdir())) == 2
    for name, (_, low, high) in MOVED.items():
        assert one[name].between(low, high).all()
    assert 0.1 < (one["income"].str.contains(">50K")).mean() < 0.4


def test_an_epoch_reads_every_training_row_once():
    assert "budro" not in list_methods(1000, 0, sensei=False)
    methods = list_methods(1_000_000, 3, sensei=True)
    assert methods["sensei"]["steps"] * methods["sensei"]["batch_size"] == 640_000
    assert methods["budro"]["n_estimators"] == 3


def test_measures_that_differ_stop_the_run():
    keys = {"setting": "{}", "seed": 0, "part": "test", "measure": "accuracy", "group": ""}
    points = pd.DataFrame([{"method": name, "value": 0.8, **keys} for name in ("gbdt", "linear")])
    assert check_points(points, points) == {"gbdt": 0.0, "linear": 0.0}
    other = points.assign(value=points["value"] + np.array([0.001, 0.0]))
    assert check_points(points, other)["gbdt"] == pytest.approx(0.001)
    with pytest.raises(SystemExit, match="linear differ"):
        check_points(points, points.assign(value=0.8 + np.array([0.0, 1e-8])))
