"""What bounds cost in a study: each number is that of its points, and of its decisions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from fairfrontier.choose.select import Study
from fairfrontier.cli import command
from fairfrontier.runner import run_plain
from fairfrontier.study.config import PricesOptions, RunOptions
from fairfrontier.study.frontier import name_measures
from fairfrontier.study.price import choose_bounds, find_reach, state_finding
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


@pytest.fixture(scope="module")
def prices(study):
    return study.summary["prices"]


def test_each_price_is_that_of_the_best_on_validation_as_test_shows_it(study, prices):
    seen, shown = (read_points(study, part) for part in ("validation", "test"))
    rows = prices["rows"]
    assert {row["measure"] for row in rows} == {MEASURE}
    assert len(rows) > 1
    for row in rows:
        within = seen if row["bound"] is None else seen[seen[MEASURE] <= row["bound"]]
        key = (row["method"], row["setting"])
        assert seen.loc[key, "accuracy"] == within["accuracy"].max()
        assert row["gap"] == shown.loc[key, MEASURE]
        assert row["objective"] == shown.loc[key, "accuracy"]
        assert row["cost"] == pytest.approx(rows[0]["objective"] - row["objective"])
        assert row["asks_groups"] == ("parity" in row["method"])


def test_the_interval_of_a_cost_is_paired_by_row(study, prices, home):
    last = prices["rows"][-1]
    chosen = [study.select(subject_to=each) for each in ({}, {MEASURE: last["bound"]})]
    part = chosen[0].find_split().load(home).test
    right = [
        each.model.predict(part.X, **({"sensitive_features": part.groups} if asks else {}))
        == part.y
        for each, asks in zip(chosen, (False, last["asks_groups"]), strict=True)
    ]
    apart = right[0].astype(float) - right[1]
    reach = 1.959964 * apart.std() / np.sqrt(len(apart))
    assert last["cost"] == pytest.approx(apart.mean())
    assert last["cost_high"] - last["cost"] == pytest.approx(reach, rel=1e-4)
    assert prices["trivial"] == pytest.approx(max(part.y.mean(), 1 - part.y.mean()))


def test_the_interval_of_a_cost_over_splits_is_that_of_their_mean():
    apart = np.array([0.02, 0.05, -0.01])
    low, high = scipy.stats.t.interval(0.95, 2, apart.mean(), scipy.stats.sem(apart))
    assert find_reach(apart) == pytest.approx((high - low) / 2)


def test_the_title_says_what_the_numbers_say(study, prices):
    free = prices["rows"][0]
    assert f"{100 * free['gap']:.1f} points" in state_finding("loans", prices, "accuracy")
    made = free | {"bound": 0.05, "gap": 0.03, "cost": 0.02, "suggested": True}
    told = {
        (0.01, 0.03): "costs 2.0 points",
        (-0.01, 0.05): "costs nothing measurable",
        (None, None): "costs 2.0 points",
    }
    for (low, high), end in told.items():
        rows = [free, made | {"cost_low": low, "cost_high": high}]
        assert state_finding("loans", {"rows": rows}, "accuracy").endswith(end)
    by_chance = [free | {"gap_low": 0.0}, made | {"cost_low": 0.01, "cost_high": 0.03}]
    assert state_finding("loans", {"rows": by_chance}, "accuracy").endswith("may be chance")
    unknown = free | {"gap": None, "cost": None}
    assert "cannot be estimated" in state_finding("loans", {"rows": [unknown]}, "accuracy")
    ratios = {"rows": [], "minimum": None}
    assert "compare no gap" in state_finding("loans", ratios, "accuracy")
    page = (study.folder / "report.html").read_text()
    assert f"<h1>{state_finding('loans', prices, 'accuracy')}</h1>" in page


def test_three_attributes_fit_a_screen_and_models_have_their_whole_names(study, prices, capsys):
    free = prices["rows"][0]
    assert {free["most"], free["least"]} <= {"island", "north", "south"}
    made = []
    for attribute in ("origin", "country_of_birth", "marital_status"):
        own = {"measure": f"selection_rate_difference:{attribute}", "suggested": False}
        for bound in (None, 0.1, 0.05, 0.02):
            method = f"parity {attribute} (random_forest {bound} of some length)"
            made.append(free | own | {"bound": bound, "method": method})
    made[-1]["suggested"] = True
    made[0]["method"] = "fair_gbm origin_band"
    summary = study.summary | {"prices": prices | {"rows": made}}
    command.show_prices(PricesOptions(study="loans"), summary)
    lines = capsys.readouterr().out.splitlines()
    # Names of this length take lines of their own.
    assert len([line for line in lines if not line.endswith("of some length)")]) <= 25
    assert max(map(len, lines[:-2])) <= 80
    assert sum(line.endswith(" fair_gbm origin_band") for line in lines) == 1
    assert sum("(random_forest 0.02 of some length)" in line for line in lines) == 1
    assert "marital_status <= 0.02" in lines[-2]


def test_bounds_are_below_the_gap():
    assert choose_bounds(MEASURE, 0.07) == [0.05, 0.02]
    assert choose_bounds(MEASURE, 0.01) == []
    assert choose_bounds("distance:sex", 40.0) == [20.0, 8.0]
    assert choose_bounds("distance:sex", np.nan) == []


def test_the_terminal_shows_prices_in_a_screen(home, capsys):
    command.prices(PricesOptions(study="loans", conf=str(home)))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines[:-2])) <= 80
    command.prices(PricesOptions(study="loans", conf=str(home), all=True))
    shown = capsys.readouterr().out
    frontier = json.loads(Path(home / "data/results/loans/summary.json").read_text())["frontier"]
    assert all(row["method"] in shown for row in frontier)
