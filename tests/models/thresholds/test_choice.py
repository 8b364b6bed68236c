from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.models.thresholds.randomized_threshold import choose_best, list_rates


def test_rates_are_cut_to_probabilities_and_listed_once():
    assert list_rates(0.5) == pytest.approx([0.4, 0.45, 0.5, 0.55, 0.6])
    assert list_rates(0.04) == pytest.approx([0.0, 0.04, 0.09, 0.14])
    assert list_rates(1.0, [0.1, 0.0, -0.2]) == pytest.approx([0.8, 1.0])


def choose(rows, met=None):
    widths, rates, accuracy = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return choose_best(widths, rates, accuracy, 0.3, None if met is None else np.array(met))


def test_accuracy_comes_first():
    assert choose([(0.1, 0.3, 0.7), (0.5, 0.2, 0.8)]) == 1


def test_of_equals_the_narrowest_then_the_nearest_then_the_lowest():
    rows = [(0.5, 0.3, 0.8), (0.1, 0.1, 0.8), (0.1, 0.4, 0.8 + 1e-12), (0.1, 0.2, 0.8)]
    assert choose(rows) == 3
    assert choose(rows[:3]) == 2


def test_what_misses_its_criterion_comes_last():
    rows = [(0.1, 0.3, 0.9), (0.5, 0.2, 0.8)]
    assert choose(rows, [False, True]) == 1
    assert choose(rows, [False, False]) == 0
