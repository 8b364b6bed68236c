from __future__ import annotations

import numpy as np
import pytest

from papers.figure.bias_curve import draw_bias_curve, trace_tradeoff
from papers.figure.classifier import list_classifiers
from tests.papers.debiased import METHODS, make_scene


@pytest.fixture(scope="module")
def tradeoff(debiased):
    return trace_tradeoff(debiased, list_classifiers(debiased, "figure")[0])


@pytest.mark.parametrize(
    ("shown", "row"),
    [
        ("unmodified", "plain"),
        ("randomized_threshold", "plain+threshold"),
        ("hardt", "plain+hardt"),
        ("reject_option", "plain+reject"),
        ("shift_inference", "plain+shift"),
    ],
)
def test_points_are_those_of_the_results(debiased, tradeoff, shown, row):
    points = debiased.points
    test = points[(points.method == row) & (points.part == "test")].sort_values("seed")
    bias = test[(test.measure == "selection_rate_difference") & (test.group == "sex")].value
    accuracy = test[(test.measure == "accuracy") & (test.group == "")].value
    np.testing.assert_allclose(tradeoff.points[shown], np.column_stack([bias, accuracy]))


def test_curves_are_those_of_what_sweeps(tradeoff):
    assert set(tradeoff.curves) == {"randomized_threshold", "hardt", "reject_option"}
    for name, curve in tradeoff.curves.items():
        start = "unmodified" if name == "reject_option" else name
        found = (curve.bias[0], curve.accuracy[0])
        assert found == pytest.approx(tuple(tradeoff.points[start].mean(axis=0)))


def test_the_same_scene_is_the_same_bytes(debiased):
    picture = draw_bias_curve(debiased)
    assert picture == draw_bias_curve(debiased)
    assert picture.png.startswith(b"\x89PNG")
    assert b"tEXt" not in picture.png
    assert "plain: unmodified 0." in picture.alt


def test_rivals_may_be_absent(debiased_folder):
    methods = {name: METHODS[name] for name in ("plain", "plain+threshold")}
    scene = make_scene(debiased_folder, methods, seeds=1, name="alone")
    assert "Hardt" not in draw_bias_curve(scene).alt
