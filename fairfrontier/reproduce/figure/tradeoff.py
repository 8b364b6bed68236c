"""Bias against accuracy: what post-processors reach on test rows as what they sweep moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from sklearn.base import clone

from fairfrontier.reproduce.figure.classifier import Scored
from fairfrontier.train.postprocess.choice import trace_budgets
from fairfrontier.train.postprocess.hardt import Hardt
from fairfrontier.train.postprocess.randomized_threshold import RandomizedThreshold
from fairfrontier.train.postprocess.reject_option import GRID, trace_curve

# Tolerances of Hardt et al., as shares of the way from the row's own to the unmodified bias.
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
# fairlearn's time grows with the number of distinct scores: along the curve they are rounded.
DECIMALS = 3


@dataclass(frozen=True, eq=False)
class Curve:
    """A path through bias and accuracy.

    Attributes
    ----------
    swept : ndarray of float64, shape (n_points,)
        ε, the tolerance, or θ.
    bias : ndarray of float64, shape (n_points,)
        max_k E[h | k] − min_k E[h | k].
    accuracy : ndarray of float64, shape (n_points,)
        Expected accuracy.
    """

    swept: np.ndarray
    bias: np.ndarray
    accuracy: np.ndarray


def average(curves: Sequence[Curve]) -> Curve:
    """Return the mean of curves, place by place; ``swept`` may differ between them."""
    fields = ("swept", "bias", "accuracy")
    return Curve(*(np.mean([getattr(each, name) for each in curves], axis=0) for name in fields))


def trace_thresholds(processor: RandomizedThreshold, calibration: Scored, test: Scored) -> Curve:
    """Sweep ε of randomised thresholds, from 0 up to where every threshold is 0.

    Parameters
    ----------
    processor : RandomizedThreshold
        Fitted, by parity; its width and rate, given or chosen on validation, serve every ε.
    calibration, test : Scored
        Rows with the same groups; solved on the first, measured on the other.

    Returns
    -------
    Curve
        See `choice.trace_budgets`.
    """
    calibration, test = (each.calibrated(processor.calibration_) for each in (calibration, test))
    # Other criteria than parity have other rates.
    rate = cast(float, processor.rate_)
    return Curve(*trace_budgets(calibration.problem(), test.labelled(), processor.width_, rate))


def trace_hardt(processor: Hardt, decision: np.ndarray, calibration: Scored, test: Scored) -> Curve:
    """Sweep the tolerance of Hardt et al. up to the bias of the unmodified classifier.

    Parameters
    ----------
    processor : Hardt
        Says what is maximised, and on which grid.
    decision : ndarray of float64, shape (n_test,)
        What it decided on ``test``: where the curve starts.
    calibration, test : Scored
        Rows with the same groups; fitted on the first, measured on the other.

    Returns
    -------
    Curve
        From the second point on, of rules on scores f that are rounded to thousandths.

    Notes
    -----
    Five fits by fairlearn of 2,001 distinct scores at most.
    """
    rounded, asked = np.round(calibration.score, DECIMALS), np.round(test.score, DECIMALS)
    most = max(measure_unmodified(calibration)[0], processor.tolerance)
    tolerances = processor.tolerance + (most - processor.tolerance) * np.array([0.0, *SHARES])
    points = [measure_decision(test, decision)]
    for tolerance in tolerances[1:].tolist():
        rule = clone(processor).set_params(attributes=0, scale="signed", tolerance=tolerance)
        rule.fit(rounded, calibration.y, groups=calibration.code[:, None])
        h = rule.predict_proba(asked, groups=test.code[:, None])[:, 1]
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
    """Return bias and expected accuracy of decision probabilities h.

    Parameters
    ----------
    rows : Scored
        Labels, groups and weights.
    decision : ndarray of float64, shape (n_samples,)
        h.

    Returns
    -------
    bias : float
        max_k E[h | k] − min_k E[h | k] over the groups that have rows.
    accuracy : float
        E[y h + (1 − y)(1 − h)].
    """
    size = len(rows.levels)
    mass = np.bincount(rows.code, rows.weight, size)
    chosen = np.bincount(rows.code, rows.weight * decision, size)
    right = np.where(rows.y == 1, decision, 1.0 - decision)
    rates = chosen[mass > 0] / mass[mass > 0]
    return float(np.ptp(rates)), float(np.average(right, weights=rows.weight))
