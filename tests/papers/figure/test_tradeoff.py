from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.models.thresholds.randomized_threshold import RandomizedThreshold
from papers.figure.classifier import list_classifiers, score_part
from papers.figure.tradeoff import (
    Curve,
    average,
    measure_decision,
    measure_unmodified,
    trace_hardt,
    trace_reject_option,
    trace_thresholds,
)
from tests.papers.debiased import ROOT


@pytest.fixture(scope="module")
def plain(debiased):
    (found,) = list_classifiers(debiased, "figure")
    return found


@pytest.fixture(scope="module")
def parts(plain):
    names = ("calibration", "test")
    return {name: score_part(plain.base.fits[0], name, ("sex",), ROOT) for name in names}


def test_bias_and_accuracy_of_decisions_are_those_of_the_rows(parts):
    rows = parts["test"]
    h = np.random.default_rng(0).random(rows.score.size)
    bias, accuracy = measure_decision(rows, h)
    rates = [h[rows.code == k].mean() for k in (0, 1)]
    assert bias == pytest.approx(abs(rates[1] - rates[0]))
    assert accuracy == pytest.approx(np.mean(np.where(rows.y == 1, h, 1 - h)))
    assert measure_unmodified(rows) == measure_decision(rows, 1.0 * (rows.score >= 0))


def test_no_budget_leaves_no_bias_where_it_was_fitted_and_the_widest_is_the_model(plain, parts):
    processor = plain.find("randomized_threshold").fits[0].model()
    rows = parts["calibration"]
    curve = trace_thresholds(processor, rows, rows)
    assert curve.bias[0] == pytest.approx(0, abs=1e-9)
    assert (np.diff(curve.bias) >= -1e-9).all()
    assert (curve.bias <= curve.swept + 1e-9).all()
    # The last rule has its ramp where the unmodified one has a step, at a score of 0.
    free = np.clip(rows.score / processor.width_, 0, 1)
    assert (curve.bias[-1], curve.accuracy[-1]) == pytest.approx(measure_decision(rows, free))
    assert measure_unmodified(rows)[0] > 0.1


def test_every_point_is_what_the_estimator_would_decide(plain, parts):
    stored = plain.find("randomized_threshold").fits[0]
    processor = stored.model()
    curve = trace_thresholds(processor, parts["calibration"], parts["test"])
    assert curve.swept.size == 25
    decided = measure_decision(parts["test"], stored.predictions()["test"].decision)
    assert (curve.bias[0], curve.accuracy[0]) == pytest.approx(decided)
    for place in (5, 15):
        fresh = RandomizedThreshold(
            attributes=0,
            scale="signed",
            width=processor.width_,
            rate=processor.rate_,
            budget=float(curve.swept[place]),
        ).fit(parts["calibration"].score, sensitive_features=parts["calibration"].code[:, None])
        h = fresh.predict_proba(
            parts["test"].score, sensitive_features=parts["test"].code[:, None]
        )[:, 1]
        found = (curve.bias[place], curve.accuracy[place])
        assert found == pytest.approx(measure_decision(parts["test"], h))


def test_scores_are_calibrated_where_the_estimator_does(parts):
    rows = parts["calibration"]
    processor = RandomizedThreshold(
        attributes=0, scale="signed", width=0.3, rate=0.3, calibrate="isotonic"
    ).fit(rows.score, rows.y, sensitive_features=rows.code[:, None])
    curve = trace_thresholds(processor, rows, parts["test"])
    h = processor.predict_proba(
        parts["test"].score, sensitive_features=parts["test"].code[:, None]
    )[:, 1]
    found = (curve.bias[0], curve.accuracy[0])
    assert found == pytest.approx(measure_decision(parts["test"], h))


def test_the_curve_of_the_reject_option_starts_unmodified_and_holds_the_chosen_point(plain, parts):
    curve = trace_reject_option(parts["test"])
    assert (curve.bias[0], curve.accuracy[0]) == pytest.approx(measure_unmodified(parts["test"]))
    stored = plain.find("reject_option").fits[0]
    place = np.flatnonzero(np.isclose(curve.swept, stored.model().theta_))[0]
    decided = measure_decision(parts["test"], stored.predictions()["test"].decision)
    assert (curve.bias[place], curve.accuracy[place]) == pytest.approx(decided)


def test_the_curve_of_hardt_goes_from_its_decisions_to_the_unmodified_bias(plain, parts):
    stored = plain.find("hardt").fits[0]
    decision = stored.predictions()["test"].decision
    curve = trace_hardt(stored.model(), decision, parts["calibration"], parts["test"])
    assert (curve.bias[0], curve.accuracy[0]) == measure_decision(parts["test"], decision)
    assert curve.swept[0] == 0
    assert curve.swept[-1] == pytest.approx(measure_unmodified(parts["calibration"])[0])
    assert curve.bias[-1] > curve.bias[0] + 0.5 * curve.swept[-1]


def test_curves_are_averaged_place_by_place():
    first = Curve(np.array([0.0, 1.0]), np.array([0.0, 0.2]), np.array([0.7, 0.8]))
    second = Curve(np.array([0.0, 3.0]), np.array([0.1, 0.4]), np.array([0.5, 0.6]))
    mean = average([first, second])
    np.testing.assert_allclose(mean.swept, [0, 2])
    np.testing.assert_allclose(mean.bias, [0.05, 0.3])
    np.testing.assert_allclose(mean.accuracy, [0.6, 0.7])
