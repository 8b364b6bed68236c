"""Bias and accuracy that post-processors reach on test rows as their parameters are swept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from sklearn.base import clone

from fairfrontier.models.thresholds.randomized_threshold import RandomizedThreshold, trace_budgets
from papers.figure.classifier import Scored
from papers.rival.hardt import Hardt
from papers.rival.reject_option import GRID, trace_curve

# Tolerances of Hardt et al., as shares of the way from the row's own to the unmodified bias.
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
# fairlearn's time grows with the number of distinct scores, so those of the curve are rounded.
DECIMALS = 3


@dataclass(frozen=True, eq=False)
class Curve:
    """Bias, max_k E[h | k] − min_k E[h | k], and expected accuracy against a swept parameter.

    ``swept`` is ε, the tolerance or θ; arrays have the shape (n_points,).
    """

    swept: np.ndarray
    bias: np.ndarray
    accuracy: np.ndarray


def average(curves: Sequence[Curve]) -> Curve:
    """Return the mean of curves, point by point; ``swept`` may differ between them."""
    fields = ("swept", "bias", "accuracy")
    return Curve(*(np.mean([getattr(curve, name) for curve in curves], axis=0) for name in fields))


def trace_thresholds(processor: RandomizedThreshold, calibration: Scored, test: Scored) -> Curve:
    """Sweep ε of randomised thresholds, from 0 up to where every threshold is 0.

    The rules are solved on calibration rows and measured on test rows, at the width and rate of the
    fitted processor, which is by parity. See `trace_budgets`.
    """
    calibration, test = (rows.calibrated(processor.calibration_) for rows in (calibration, test))
    # Other criteria than parity have other rates.
    rate = cast(float, processor.rate_)
    return Curve(*trace_budgets(calibration.problem(), test.labelled(), processor.width_, rate))


def trace_hardt(processor: Hardt, decision: np.ndarray, calibration: Scored, test: Scored) -> Curve:
    """Sweep the tolerance of Hardt et al. up to the bias of the unmodified classifier.

    The curve starts at the processor's own ``decision`` on the test rows, shape (n_test,). Further
    rules have its objective and grid, and are fitted by fairlearn on calibration scores rounded to
    thousandths: five fits of at most 2,001 distinct scores.
    """
    rounded, test_rounded = np.round(calibration.score, DECIMALS), np.round(test.score, DECIMALS)
    most = max(measure_unmodified(calibration)[0], processor.tolerance)
    tolerances = processor.tolerance + (most - processor.tolerance) * np.array([0.0, *SHARES])
    points = [measure_decision(test, decision)]
    for tolerance in tolerances[1:].tolist():
        rule = clone(processor).set_params(attributes=0, scale="signed", tolerance=tolerance)
        rule.fit(rounded, calibration.y, sensitive_features=calibration.code[:, None])
        h = rule.predict_proba(test_rounded, sensitive_features=test.code[:, None])[:, 1]
        points.append(measure_decision(test, h))
    return Curve(tolerances, *np.asarray(points).T)


def trace_reject_option(test: Scored) -> Curve:
    """Sweep θ of the reject option from 0, the unmodified classifier, to 1."""
    # Combinations of levels without rows have no rate.
    _, code = np.unique(test.code, return_inverse=True)
    gain = test.weight / test.weight.sum()
    theta = np.array([0.0, *GRID])
    curve, _ = trace_curve(test.score, code, test.y == 1, gain, test.weight, theta)
    return Curve(theta, curve.bias, curve.objective)


def measure_unmodified(rows: Scored) -> tuple[float, float]:
    """Return bias and expected accuracy of the decisions 1{P(Y=1|x) ≥ 1/2}."""
    return measure_decision(rows, (rows.score >= 0.0).astype(np.float64))


def measure_decision(rows: Scored, decision: np.ndarray) -> tuple[float, float]:
    """Return the bias of h over the groups that have rows, and accuracy E[y h + (1−y)(1−h)]."""
    size = len(rows.levels)
    mass = np.bincount(rows.code, rows.weight, size)
    chosen = np.bincount(rows.code, rows.weight * decision, size)
    right = np.where(rows.y == 1, decision, 1.0 - decision)
    rates = chosen[mass > 0] / mass[mass > 0]
    return float(np.ptp(rates)), float(np.average(right, weights=rows.weight))
