from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from benchmarks import scale
from benchmarks.scale import (
    MOVED,
    Measured,
    check_points,
    compare_frontier,
    keep,
    list_methods,
    write_rows,
)


def test_rows_are_like_adults_and_the_same_for_a_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "GROUP", 300)
    monkeypatch.setattr(scale, "FILE", 600)
    for name in ("one", "other"):
        assert write_rows(tmp_path / name, 1000) > 0
    one, other = (pd.read_parquet(tmp_path / name) for name in ("one", "other"))
    pd.testing.assert_frame_equal(one, other)
    assert len(one) == 1000
    assert len(list((tmp_path / "one").iterdir())) == 2
    for name, (_, low, high, unit) in MOVED.items():
        assert one[name].between(low, high).all()
        assert (one[name] % unit == 0).all()
        assert unit == 1 or (high - low) / unit < 256
    assert 0.1 < (one["income"].str.contains(">50K")).mean() < 0.4


def test_an_epoch_reads_every_training_row_once():
    assert "budro" not in list_methods(1000, 0, sensei=False)
    methods = list_methods(1_000_000, 3, sensei=True)
    assert methods["sensei"]["steps"] * methods["sensei"]["batch_size"] == 640_000
    assert methods["budro"]["n_estimators"] == 3


def test_measures_that_differ_stop_the_run():
    keys = {"setting": "{}", "seed": 0, "part": "test", "measure": "accuracy", "group": ""}
    names = ("budro", "linear", "sensei")
    points = pd.DataFrame([{"method": name, "value": 0.8, **keys} for name in names])
    assert check_points(points, points) == dict.fromkeys(names, 0.0)
    other = points.assign(value=points["value"] + np.array([0.001, 0.0, 1e-8]))
    assert check_points(points, other)["budro"] == pytest.approx(0.001)
    for name, moved in {"linear": [0.0, 1e-8, 0.0], "sensei": [0.0, 0.0, 1e-5]}.items():
        with pytest.raises(SystemExit, match=f"{name} differ"):
            check_points(points, points.assign(value=0.8 + np.array(moved)))


def test_what_a_run_left_is_read_again(tmp_path):
    points = pd.DataFrame({"method": ["gbdt"], "value": [0.8]})
    Measured({"total": 2.0}, {"gbdt": 1.0}, 600.0, 700.0, points).write(tmp_path / "run")
    again = Measured.read(tmp_path / "run")
    assert (again.total, again.fits) == (2.0, {"gbdt": 1.0})
    assert (again.worker_mib, again.own_mib) == (600.0, 700.0)
    pd.testing.assert_frame_equal(again.points, points)


def test_a_frontier_is_compared_with_the_intervals_of_its_own_measures():
    keys = {"method": "gbdt", "seed": 0}
    rows = [
        ("test", "balanced_accuracy", "", 0.80),
        ("test", "consistency", "spouse", 0.95),
        ("test", "balanced_accuracy", "sex=Male", 0.70),
        ("validation", "balanced_accuracy", "", 0.81),
    ]
    inside = pd.DataFrame(
        [
            keys | {"part": part, "measure": name, "group": group, "value": value,
                    "low": value - 0.01, "high": value + 0.01}
            for part, name, group, value in rows
        ]
    )  # fmt: skip
    moved = inside.assign(value=inside["value"] + np.array([0.009, -0.011, 0.0, 0.0]))
    compared = compare_frontier(moved, inside)
    assert compared["measure"].tolist() == ["balanced_accuracy", "consistency"]
    assert compared["within"].tolist() == [True, False]


def test_a_kept_run_takes_the_place_of_the_one_of_as_many_rows_and_workers(tmp_path):
    path = tmp_path / "runs" / "scale.json"
    path.parent.mkdir()
    keep(path, [{"rows": 10, "workers": 2, "worker_mib": 5}, {"rows": 10, "workers": 1}])
    keep(path, [{"rows": 10, "workers": 2, "worker_mib": 6}, {"rows": 5, "workers": 2}])
    kept = json.loads(path.read_text())
    assert [(each["rows"], each["workers"]) for each in kept] == [(5, 2), (10, 1), (10, 2)]
    assert kept[2]["worker_mib"] == 6
