from __future__ import annotations

import numpy as np
import pytest

from tasks.evaluate.classifier import list_classifiers
from tasks.evaluate.tradeoff import (
    BUDGETS,
    Curve,
    average,
    measure_decision,
    measure_unmodified,
    trace_hardt,
    trace_reject_option,
    trace_thresholds,
)
from tasks.train.postprocess.base import score_part
from tasks.train.postprocess.randomized_threshold import RandomizedThreshold
from tests.evaluate.debiased import ROOT


@pytest.fixture(scope="module")
def plain(debiased):
    (found,) = list_classifiers(debiased, "figure")
    return found


@pytest.fixture(scope="module")
def parts(plain):
    names = ("calibration", "validation", "test")
    return {name: plain.base.fits[0].scored(name, ("sex",), ROOT) for name in names}


def test_bias_and_accuracy_of_decisions_are_those_of_the_rows(parts):
    rows = parts["test"]
    h = np.random.default_rng(0).random(rows.score.size)
    bias, accuracy = measure_decision(rows, h)
    rates = [h[rows.code == k].mean() for k in (0, 1)]
    assert bias == pytest.approx(abs(rates[1] - rates[0]))
    assert accuracy == pytest.approx(np.mean(np.where(rows.y == 1, h, 1 - h)))
    assert measure_unmodified(rows) == measure_decision(rows, 1.0 * (rows.score >= 0))


def test_no_budget_leaves_no_bias_on_the_fitted_part(plain, parts):
    processor = plain.find("randomized_threshold").fits[0].model()
    # Measured where it was fitted.
    curve = trace_thresholds(processor, parts["calibration"], parts["validation"],
                             parts["calibration"])  # fmt: skip
    assert curve.bias[0] == pytest.approx(0, abs=1e-9)
    # A budget is never overdrawn, and where the last one needs no threshold the bias is the
    # unmodified classifier's, up to the ramp.
    assert (curve.bias <= curve.swept + 1e-9).all()
    unmodified = measure_unmodified(parts["calibration"])[0]
    assert unmodified > 0.1
    assert curve.swept[-1] >= unmodified - 0.01
    assert curve.bias[-1] > 0.8 * unmodified
    # A wider budget never makes the chosen rule worse than bias 0 by more than noise.
    assert curve.accuracy[-1] > curve.accuracy[0]


def test_every_point_is_what_the_estimator_would_do(plain, parts):
    stored = plain.find("randomized_threshold").fits[0]
    curve = trace_thresholds(stored.model(), **parts)
    assert curve.swept.size == BUDGETS
    decided = measure_decision(parts["test"], stored.predictions()["test"].decision)
    assert (curve.bias[0], curve.accuracy[0]) == pytest.approx(decided)
    # Some budget in between, fitted anew.
    split = plain.base.fits[0].split(ROOT)
    scores = plain.base.fits[0].predictions()
    fresh = RandomizedThreshold(attributes=0, budget=float(curve.swept[9])).fit(
        scores["calibration"].score,
        split.calibration.y,
        groups=split.calibration.groups,
        validation=score_part(split.validation, scores["validation"].score),
    )
    h = fresh.predict_proba(scores["test"].score, groups=split.test.groups)[:, 1]
    found = (curve.bias[9], curve.accuracy[9])
    assert found == pytest.approx(measure_decision(parts["test"], h))


def test_given_widths_and_rates_stay_what_they_are(parts):
    processor = RandomizedThreshold(attributes=0, width=0.5, rate=0.3).fit(
        parts["calibration"].score / 2 + 0.5, groups=parts["calibration"].code[:, None]
    )
    curve = trace_thresholds(processor, **parts)
    h = processor.predict_proba(parts["test"].score / 2 + 0.5, groups=parts["test"].code[:, None])[
        :, 1
    ]
    found = (curve.bias[0], curve.accuracy[0])
    assert found == pytest.approx(measure_decision(parts["test"], h), abs=1e-9)


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
