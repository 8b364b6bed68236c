from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairfrontier.study.config import FrontierConfig
from fairfrontier.study.frontier import list_fits
from papers.figure.accuracy_bin import (
    WIDTH,
    choose_in_bins,
    choose_settings,
    list_criteria,
    tabulate_settings,
)
from tests.study.synthetic import make_plan, make_points, make_study

FRONTIER = FrontierConfig(fairness=("gap_rms:sex", "gap_rms:race", "consistency:spouse"))
scores = st.one_of(st.just(float("nan")), st.integers(0, 4).map(float))


@given(st.lists(st.tuples(st.integers(0, 60), scores), max_size=40))
def test_every_bin_has_its_best_setting_as_brute_force_finds_it(settings):
    # Thousandths against bins of .0016, as .0 and .0016 are not representable.
    accuracy = [place / 1000 + 0.0001 for place, _ in settings]
    score = [value for _, value in settings]
    expected = []
    for number in range(50):
        inside = [
            i
            for i, x in enumerate(accuracy)
            if number * WIDTH <= x < (number + 1) * WIDTH and not np.isnan(score[i])
        ]
        if inside:
            best = max(score[i] for i in inside)
            tied = [i for i in inside if score[i] == best]
            expected.append(max(tied, key=lambda i: (accuracy[i], -i)))
    assert choose_in_bins(accuracy, score).tolist() == expected


def test_bins_of_the_whole_axis_hold_one():
    assert choose_in_bins([0.2, 0.9, 0.5], [1.0, 0.5, 3.0], width=1.0).tolist() == [2]
    assert choose_in_bins([0.2, 0.9], [np.nan, np.nan], width=1.0).size == 0


def test_bins_are_as_wide_as_the_papers():
    # Of .0016: the first two are in [.8160, .8176).
    assert choose_in_bins([0.8161, 0.8175, 0.8177], [0.0, 1.0, 0.0]).tolist() == [1, 2]


def test_criteria_are_the_mean_of_the_gaps_and_every_measure():
    assert list(list_criteria(FRONTIER)) == [
        ("gap_rms:sex", "gap_rms:race"),
        ("gap_rms:sex",),
        ("gap_rms:race",),
        ("consistency:spouse",),
    ]
    signed = FrontierConfig(fairness=("selection_rate_gap:sex", "gap_rms:sex"))
    assert list_criteria(signed)[0] == signed.fairness
    one = FrontierConfig(fairness=("gap_rms:sex", "consistency:spouse"))
    assert list(list_criteria(one)) == [("gap_rms:sex",), ("consistency:spouse",)]


@pytest.fixture(scope="module")
def run():
    plan = make_plan(make_study())
    return make_points(plan), list_fits(plan, "frontier")


def test_settings_are_averaged_over_their_splits(run):
    points, fits = run
    table = tabulate_settings(points, fits, FRONTIER)
    assert len(table) == len(fits.drop_duplicates(["method", "setting"]))
    for (method, setting), line in table.iterrows():
        own = points[(points.method == method) & (points.setting == setting)]
        own = own[(own.part == "test") & (own.measure == "gap_rms") & (own.group == "sex")]
        assert line["n_seeds", ""] == len(own) == 3
        assert line["value", "gap_rms:sex"] == pytest.approx(own.value.mean())
        assert line["high", "gap_rms:sex"] == pytest.approx(own.value.mean() + own.value.std())
        assert line["low", "gap_rms:sex"] == pytest.approx(own.value.mean() - own.value.std())


def test_a_single_split_shows_its_own_interval(run):
    points, fits = run
    table = tabulate_settings(points, fits[fits.seed == 0], FRONTIER)
    own = points[(points.seed == 0) & (points.part == "test") & (points.measure == "consistency")]
    own = own[own.group == "spouse"].set_index(["method", "setting"])
    for column in ("value", "low", "high"):
        there = table[column, "consistency:spouse"]
        pd.testing.assert_series_equal(
            there, own[column].reindex(there.index), check_names=False, check_freq=False
        )


def test_a_measure_without_results_is_never_chosen(run):
    points, fits = run
    asked = FrontierConfig(fairness=("gap_rms:sex", "gap_rms:religion"))
    table = tabulate_settings(points, fits, asked)
    assert table["value", "gap_rms:religion"].isna().all()
    by_it = ("gap_rms:religion",)
    assert choose_settings(table, "budro", "balanced_accuracy", by_it).empty


@pytest.mark.parametrize("criterion", list_criteria(FRONTIER))
def test_rows_are_chosen_as_brute_force_does(run, criterion):
    table = tabulate_settings(*run, FRONTIER)
    chosen = choose_settings(table, "budro", "balanced_accuracy", criterion)
    signs = [1 if each.startswith("consistency") else -1 for each in criterion]
    own = table.loc[["budro"]]
    best: dict[int, tuple[float, str]] = {}
    for (_, setting), line in own.iterrows():
        score = np.mean([s * line["value", m] for s, m in zip(signs, criterion, strict=True)])
        number = int(line["value", "balanced_accuracy"] // WIDTH)
        best[number] = max(best.get(number, (-np.inf, "")), (score, setting))
    assert [setting for _, setting in chosen.index] == [best[n][1] for n in sorted(best)]
    assert choose_settings(table, "nobody", "balanced_accuracy", criterion).empty
