"""Scores made into probabilities, by scikit-learn's isotonic or logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

Kind = Literal["isotonic", "sigmoid"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# Saturated scores have infinite log odds: they are cut at those of this probability.
LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class Calibration:
    """An increasing map of scores f ∈ [−1, 1] to 2 P(y=1 | f) − 1.

    isotonic:  p interpolated between the points (knots, values)
    sigmoid:   p = σ(a m + b) of the log odds m = log((1 + f)/(1 − f)); knots = (a,), values = (b,)

    References
    ----------
    B. Zadrozny, C. Elkan. Transforming classifier scores into accurate multiclass probability
    estimates. KDD 2002.
    J. Platt. Probabilistic outputs for support vector machines. 1999.
    """

    kind: Kind
    knots: np.ndarray
    values: np.ndarray

    def apply(self, signed: np.ndarray) -> np.ndarray:
        """Return calibrated scores in [−1, 1], float64, shape (n_samples,)."""
        if self.kind == "isotonic":
            probability = np.interp(signed, self.knots, self.values)
        else:
            probability = expit(self.knots[0] * log_odds(signed) + self.values[0])
        calibrated: np.ndarray = 2.0 * probability - 1.0
        return calibrated


def fit_calibration(
    kind: Kind, signed: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> Calibration:
    """Fit a calibration map on scores f ∈ [−1, 1], labels 0 and 1, and case weights.

    Isotonic regression costs O(n log n) and ties scores. The sigmoid takes Platt's targets
    (N₁ + 1)/(N₁ + 2) and 1/(N₀ + 2): each row counts for both labels in that proportion, so that
    the fit is finite even where the scores separate the labels.
    """
    if kind == "isotonic":
        model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        model.fit(signed, y, sample_weight=weight)
        return Calibration(kind, model.X_thresholds_, model.y_thresholds_)
    positives = float(weight @ y)
    negatives = float(weight.sum()) - positives
    target = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    odds = np.tile(log_odds(signed), 2)[:, None]
    labels = np.repeat([1, 0], y.size)
    shares = np.concatenate([weight * target, weight * (1 - target)])
    line = LogisticRegression(C=np.inf, solver="newton-cholesky", max_iter=1000, tol=1e-8)
    line.fit(odds, labels, sample_weight=shares)
    return Calibration(kind, line.coef_.reshape(-1), line.intercept_.reshape(-1))


def smooth_labels(
    signed: np.ndarray, y: np.ndarray, code: np.ndarray, weight: np.ndarray | None = None
) -> np.ndarray:
    """Return P(y=1 | f, group) on the rows that it is fitted on, float64, shape (n_samples,).

        logit p = a m + b + b_k,   minimising Σ loss + ½ (a² + Σ_k b_k²),

    with log odds m of the scores f ∈ [−1, 1] and one intercept per code k = 0, …, K − 1. The
    penalty pulls groups with few rows to the others. Labels of one class stay as they are.
    """
    if y.min() == y.max():
        return y.astype(np.float64)
    groups = np.eye(code.max() + 1)[code]
    features = np.column_stack([log_odds(signed), groups])
    line = LogisticRegression(C=1.0, solver="newton-cholesky", max_iter=1000, tol=1e-8)
    probability: np.ndarray = line.fit(features, y, sample_weight=weight).predict_proba(features)
    return probability[:, 1]


def log_odds(signed: np.ndarray) -> np.ndarray:
    """Return log((1 + f)/(1 − f)), cut at the log odds of probabilities 1e-6 and 1 − 1e-6."""
    probability = np.clip((1.0 + signed) / 2.0, LEAST, 1.0 - LEAST)
    odds: np.ndarray = np.log(probability) - np.log1p(-probability)
    return odds
