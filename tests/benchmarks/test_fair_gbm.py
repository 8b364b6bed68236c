from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.fair_gbm import BOUNDS, Judged, Tried, choose_bound, judge, measure, try_fit
from tests.models.tables import make_split


def make_parts(seed=0):
    split = make_split(400, seed)
    names = ("sex_Male", *split.feature_names[1:])
    half = np.arange(split.test.n_samples // 2)
    return split.replace(
        feature_names=names,
        calibration=split.test.take(half),
        validation=split.test.take(half + half.size),
    )


def test_rates_are_women_s_less_men_s():
    part = make_split(12).train
    part = replace(
        part, y=np.array([0, 0, 0, 1, 1, 1]), groups=np.array([0, 1, 1, 0, 0, 1])[:, None]
    )
    judged = judge(np.array([1, 1, 0, 1, 0, 1]), part)
    assert judged.accuracy == pytest.approx(0.5)
    assert judged.difference == pytest.approx((0.5, -0.5))
    assert judged.gap == pytest.approx(0.5)


def test_the_bound_is_chosen_on_validation_alone():
    def tried(accuracy, gap):
        return [Tried(1.0, Judged(accuracy, (gap, 0.0)), Judged(1 - accuracy, (0.0, 0.0)))] * 2

    assert choose_bound({0.0: tried(0.8, 0.01), 0.1: tried(0.9, 0.02), 1.0: tried(1.0, 0.2)}) == 0.1
    assert choose_bound({0.0: tried(0.8, 0.05), 0.1: tried(0.9, 0.06)}) == 0.0


def test_decisions_do_not_see_the_column_of_sex():
    split = make_parts()
    other = [replace(part, X=part.X.copy()) for part in (split.validation, split.test)]
    for part in other:
        part.X[:, 0] = 1 - part.X[:, 0]
    changed = split.replace(validation=other[0], test=other[1])
    found, again = (try_fit(each, 3, 1, 0.0) for each in (split, changed))
    assert (found.validation, found.test) == (again.validation, again.test)


def test_every_bound_is_measured_beside_plain_boosting():
    records = measure([make_parts(seed) for seed in (0, 1)], rounds=3, threads=1)
    assert len(records) == len(BOUNDS)
    assert records[0].case.startswith("chosen bound")
    assert all(each.n == 300 and each.ratio > 0 for each in records)
