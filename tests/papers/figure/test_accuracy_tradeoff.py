from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairfrontier.figure.certificate import refuse_regressions
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.store import Store
from fairfrontier.study.drawing import FIGURES, Scene
from papers.figure.accuracy_bin import list_criteria
from papers.figure.accuracy_tradeoff import (
    average,
    draw_criteria,
    draw_methods,
    find_harm,
    name_criterion,
    name_harm,
    trace_bins,
)
from tests.study.synthetic import CENTRES, make_plan, make_points, make_study

FAIRNESS = ["gap_rms:sex", "gap_rms:race", "consistency:spouse"]


@pytest.fixture(scope="module")
def scene() -> Scene:
    study = make_study(frontier={"fairness": FAIRNESS}, seeds=2)
    plan = make_plan(study)
    home = Path(__file__).resolve().parents[3]
    return Scene(study, plan, make_points(plan), pd.DataFrame(), Store(home / "nowhere"), home)


def test_every_row_is_chosen_from_by_every_criterion(scene):
    table, bins = trace_bins(scene)
    assert [each.criterion for each in bins] == list(list_criteria(scene.study.frontier))
    for each in bins:
        assert list(each.chosen) == [*CENTRES, "budro"]
        for method, chosen in each.chosen.items():
            assert set(chosen.index) <= set(table.index)
            assert set(chosen.index.get_level_values("method")) == {method}
            assert np.all(np.diff(chosen["value", "balanced_accuracy"]) > 0)


def test_what_should_be_one_is_shown_by_its_distance():
    values = pd.Series([0.25, -0.5])
    np.testing.assert_array_equal(find_harm("consistency:spouse", values), [0.75, 1.5])
    np.testing.assert_array_equal(find_harm("gap_rms:sex", values), values)
    np.testing.assert_array_equal(
        find_harm("selection_rate_gap_inside:a inside b=c", values), [0.25, 0.5]
    )
    table = pd.DataFrame({("value", "gap_rms:sex"): [0.1], ("value", "gap_rms:race"): [0.3]})
    assert average(table, FAIRNESS[:2]) == pytest.approx([0.2])
    assert average(table, FAIRNESS[:1]) == pytest.approx([0.1])
    assert name_harm("consistency:spouse") == "1 − Consistency, spouse"
    assert name_harm("gap_rms:sex") == "RMS gap, sex"
    assert name_criterion(tuple(FAIRNESS[:2])) == "Mean of RMS gap, sex and race"


@pytest.mark.parametrize(
    ("draw", "panels", "named"),
    [(draw_criteria, 8, ["gbdt"]), (draw_methods, 3, [*CENTRES, "budro"])],
)
def test_pictures_show_their_panels_and_say_how_they_were_chosen(
    scene, monkeypatch, draw, panels, named
):
    from matplotlib.image import imread

    kept = []

    def keep(figure):
        kept.append(figure)
        return encode(figure)

    from fairfrontier.figure.frontier import encode_png as encode

    monkeypatch.setattr("papers.figure.accuracy_tradeoff.encode_png", keep)
    picture = draw(scene)
    (figure,) = kept
    assert len(figure.axes) == panels
    told = figure.get_suptitle()
    assert "not a choice to deploy" in told
    assert "2 splits, 8,000 training rows, 9 settings" in told
    assert "not a choice to deploy" in picture.alt
    for method in named:
        assert f", {method}: " in picture.alt
    assert imread(io.BytesIO(picture.png)).shape[2] == 4
    # The lines of the methods are what was chosen by the first measure, in every panel.
    if draw is draw_methods:
        _, (_, by_sex, *_) = trace_bins(scene)
        for axes, name in zip(figure.axes, FAIRNESS, strict=True):
            drawn = [line for line in axes.get_lines() if line.get_linestyle() == "-"]
            for line, chosen in zip(drawn, by_sex.chosen.values(), strict=True):
                np.testing.assert_array_equal(
                    line.get_xdata(), chosen["value", "balanced_accuracy"]
                )
                np.testing.assert_array_equal(line.get_ydata(), chosen["value", name])


def test_a_measure_that_no_setting_has_leaves_no_line(monkeypatch):
    from papers.figure import accuracy_tradeoff as bin_figure

    study = make_study(frontier={"fairness": [*FAIRNESS, "gap_rms:religion"]}, seeds=1)
    plan = make_plan(study)
    home, kept = Path(__file__).resolve().parents[3], []
    encode = bin_figure.encode_png
    monkeypatch.setattr(bin_figure, "encode_png", lambda each: kept.append(each) or encode(each))
    draw_criteria(
        Scene(study, plan, make_points(plan), pd.DataFrame(), Store(home / "nowhere"), home)
    )
    # Neither has the mean that it is part of.
    above = kept[0].axes[:3]
    assert len(kept[0].axes) == 6
    told = [text.get_text() for axes in above for text in axes.texts]
    assert "RMS gap, sex" in told
    assert "RMS gap, religion" not in told


def test_a_measure_that_is_named_twice_is_drawn_twice():
    study = make_study(frontier={"fairness": [FAIRNESS[2], FAIRNESS[2]]}, seeds=1)
    plan = make_plan(study)
    home = Path(__file__).resolve().parents[3]
    scene = Scene(study, plan, make_points(plan), pd.DataFrame(), Store(home / "nowhere"), home)
    assert "Consistency, spouse, budro: " in draw_methods(scene).alt


def test_the_report_says_that_it_is_no_choice():
    for name in ("criteria_by_accuracy", "methods_by_accuracy"):
        assert "best on test too" in FIGURES.all()[name].what


def test_what_cannot_be_drawn_is_refused(scene):
    empty = replace(scene, points=scene.points[scene.points.part == "train"])
    with pytest.raises(DataError):
        draw_methods(empty)
    datasets = Path(__file__).resolve().parents[3] / "conf" / "datasets"
    assert "no classes" in str(refuse_regressions(read_dataset(datasets / "communities.yaml")))
    assert refuse_regressions(read_dataset(datasets / "adult.yaml")) is None
