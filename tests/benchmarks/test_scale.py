from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from benchmarks import scale
from benchmarks.scale import (
    MOVED,
    Measured,
    compare_frontier,
    find_differences,
    keep,
    list_methods,
    make_exact,
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


def test_nothing_approximate_is_left_in_an_exact_study():
    methods = list_methods(1000, 3, sensei=True)
    exact = make_exact(methods, 1000)
    assert [*exact] == [*methods]
    assert exact["budro"] == methods["budro"] | {"sources": None}
    assert exact["project"]["max_bin"] == 1000
    assert exact["gbdt"] == methods["gbdt"]


def test_largest_differences_are_those_of_each_method():
    keys = {"setting": "{}", "seed": 0, "part": "test", "group": ""}
    points = pd.DataFrame(
        [
            {"method": name, "measure": measure, "value": 0.8, **keys}
            for name in ("budro", "linear")
            for measure in ("accuracy", "auc")
        ]
    )
    assert find_differences(points, points) == {"budro": 0.0, "linear": 0.0}
    other = points.assign(value=points["value"] + np.array([0.001, -0.002, 0.0, 1e-8]))
    found = find_differences(other, points)
    assert found == pytest.approx({"budro": 0.002, "linear": 1e-8})
    for unlike in (points.iloc[1:], points.assign(value=[np.nan, 0.8, 0.8, 0.8])):
        with pytest.raises(SystemExit, match="different measures"):
            find_differences(unlike, points)


def test_a_difference_where_nothing_is_approximate_stops_the_run(tmp_path, monkeypatch):
    def measure(folder, rows, workers, *_, **__):
        value = 0.8 + 1e-8 * (workers is not None)
        point = {"method": "linear", "seed": 0, "part": "test", "measure": "auc", "group": ""}
        points = pd.DataFrame([{**point, "value": value}])
        return Measured({"total": 1.0}, {}, 1.0, 1.0, points)

    monkeypatch.setattr(scale, "measure", measure)
    whole = measure(tmp_path, 10, 2)
    with pytest.raises(SystemExit, match="more than 1e-09"):
        scale.check(tmp_path, whole, 10, 2, "1GiB", {"linear": {}})


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
