"""What bounds cost in a study: each number is that of its points, and of its decisions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fairfrontier.choose.price import choose_bounds, price
from fairfrontier.choose.select import Study
from fairfrontier.cli import command
from fairfrontier.prepare.loader import load
from fairfrontier.runner import run_plain
from fairfrontier.study.config import PricesOptions, RunOptions
from fairfrontier.study.frontier import name_measures
from fairfrontier.study.run import start_study
from tests.project import make_project

STUDY = """\
study: loans
dataset: loans
methods:
  gbdt: {n_estimators: 5}
  linear: {}
  parity:
    method: linear
    then: {method: group_thresholds, attributes: origin, bound: [0, 0.04], randomized: false}
seeds: 1
objective: accuracy
frontier: {fairness: [selection_rate_difference:origin, gap_max:origin]}
"""
MEASURE = "selection_rate_difference:origin"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = make_project(tmp_path_factory.mktemp("priced"), STUDY)
    run_plain(start_study(RunOptions(study="loans", conf=str(home), cluster="inline")))
    return home


@pytest.fixture(scope="module")
def study(home):
    return Study(home / "data/results/loans", home, {"study": "loans", "dataset": "loans"})


def read_points(study, part):
    points = study.points[study.points["part"] == part]
    return points.assign(name=name_measures(points)).pivot_table(
        "value", index=["method", "setting"], columns="name"
    )


def test_each_price_is_that_of_the_best_on_validation_as_test_shows_it(study):
    seen, shown = (read_points(study, part) for part in ("validation", "test"))
    found = price(study)
    assert set(found.table["measure"]) == {MEASURE}
    assert len(found.table) > 1
    for row in found.table.to_dict("records"):
        within = seen if np.isnan(row["bound"]) else seen[seen[MEASURE] <= row["bound"]]
        key = (row["method"], row["setting"])
        assert seen.loc[key, "accuracy"] == within["accuracy"].max()
        assert row["gap"] == shown.loc[key, MEASURE]
        assert row["objective"] == shown.loc[key, "accuracy"]
        assert row["cost"] == pytest.approx(found.table["objective"][0] - row["objective"])
        assert row["asks_groups"] == ("parity" in row["method"])


def test_the_interval_of_a_cost_is_paired_by_row(study, home):
    table = price(study).table
    free, last = (
        study.select(subject_to={} if np.isnan(bound) else {MEASURE: bound})
        for bound in (np.nan, table["bound"].iloc[-1])
    )
    part = free.find_split().load(home).test
    right = [
        each.model.predict(part.X, **({"sensitive_features": part.groups} if asks else {}))
        == part.y
        for each, asks in ((free, False), (last, table["asks_groups"].iloc[-1]))
    ]
    apart = right[0].astype(float) - right[1]
    reach = 1.959964 * apart.std() / np.sqrt(len(apart))
    cost = table["cost"].iloc[-1]
    assert cost == pytest.approx(apart.mean())
    assert table["cost_high"].iloc[-1] - cost == pytest.approx(reach, rel=1e-4)


def test_the_commoner_answer_is_that_of_test_rows(study, home):
    y = load("loans", home=home).test.y
    assert price(study).trivial == pytest.approx(max(y.mean(), 1 - y.mean()))


def test_bounds_are_below_the_gap():
    assert choose_bounds(MEASURE, 0.07) == [0.05, 0.02]
    assert choose_bounds(MEASURE, 0.01) == []
    assert choose_bounds("distance:sex", 40.0) == [20.0, 8.0]
    assert choose_bounds("distance:sex", np.nan) == []


def test_the_terminal_shows_prices_in_a_screen(home, capsys):
    command.prices(PricesOptions(study="loans", conf=str(home)))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines[1:-2])) <= 80
    command.prices(PricesOptions(study="loans", conf=str(home), all=True))
    shown = capsys.readouterr().out
    frontier = json.loads(Path(home / "data/results/loans/summary.json").read_text())["frontier"]
    assert all(row["method"] in shown for row in frontier)
