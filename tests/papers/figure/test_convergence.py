from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.runtime.errors import ConfigError
from papers.figure.classifier import list_classifiers
from papers.figure.convergence import draw_convergence, trace_convergence
from tests.papers.debiased import METHODS, behind, make_scene


@pytest.fixture(scope="module")
def found(debiased):
    return trace_convergence(debiased)


def test_the_exact_thresholds_are_those_of_the_stored_rule(debiased, found):
    (plain,) = list_classifiers(debiased, "figure")
    processor = plain.find("randomized_threshold").fits[0].model()
    np.testing.assert_allclose(found.threshold, processor.rule_.threshold, atol=1e-12)
    assert (found.width, found.rate) == (processor.width_, processor.rate_)
    assert (found.levels, found.positive) == (("woman", "man"), "yes")


def test_the_steps_come_to_the_exact_thresholds_and_average_to_the_path(found):
    np.testing.assert_array_equal(found.path[0], 0)
    late = found.steps[len(found.steps) // 2 :].mean(axis=0)
    np.testing.assert_allclose(late, found.threshold, atol=0.05)
    lasted = np.diff(found.epochs)
    np.testing.assert_allclose(lasted @ found.steps / found.epochs[-1], found.path[-1], atol=1e-9)


def test_the_same_scene_is_the_same_bytes(debiased, found):
    picture = draw_convergence(debiased)
    assert picture == draw_convergence(debiased)
    assert f"woman: exact {found.threshold[0]:+.4f}" in picture.alt


def test_a_rule_without_a_ramp_has_no_descent(debiased_folder):
    methods = {"plain": METHODS["plain"], "coin": behind("randomized_threshold", width=0.0)}
    scene = make_scene(debiased_folder, methods, seeds=1, name="coin")
    with pytest.raises(ConfigError, match="ramp of 'coin', whose width is 0"):
        draw_convergence(scene)
