from __future__ import annotations

import pandas as pd
import pytest

from benchmarks.search import compare, measure_area


def make_frontier(rows):
    columns = ["fairness", "method", "balanced_accuracy", "fairness_value", "on_frontier"]
    return pd.DataFrame(rows, columns=columns)


FRONTIER = make_frontier(
    [
        ("gap_rms:sex", "gbdt", 0.8, 0.2, True),
        ("gap_rms:sex", "budro", 0.7, 0.1, True),
        ("gap_rms:sex", "nn", 0.9, 0.0, False),
        ("consistency:sex", "gbdt", 0.8, 0.9, True),
        ("consistency:sex", "budro", 0.6, 0.95, True),
    ]
)


def test_the_area_is_that_of_the_steps_up_to_the_reference():
    area = measure_area(FRONTIER, "gap_rms:sex", 0.3)
    assert area == pytest.approx(0.2 * 0.2 + 0.1 * 0.1)
    # More consistency is better.
    assert measure_area(FRONTIER, "consistency:sex", 0.8) == pytest.approx(0.1 * 0.15 + 0.2 * 0.1)


def test_the_reference_is_plain_boosting_of_the_written_settings():
    better = FRONTIER.assign(balanced_accuracy=FRONTIER["balanced_accuracy"] + 0.05)
    sex, consistency = compare(better, FRONTIER)
    # Plain boosting itself dominates nothing up to itself.
    assert (sex.searched, sex.written) == (pytest.approx(0.25 * 0.1), pytest.approx(0.2 * 0.1))
    assert sex.ratio == pytest.approx(1.25)
    assert consistency.ratio == pytest.approx(1.5)
