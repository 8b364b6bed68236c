"""Fair regression of two classes, whose predictions are probabilities."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import expit

from fairfrontier.train.base import Classifier
from fairfrontier.train.registry import method
from fairfrontier.train.regression.estimator import Reduction


@method("fair_regression_classifier")
class FairRegressionClassifier(Reduction, Classifier):
    """Fair regression of two classes: its predictions in [0, 1] are probabilities.

    The problem of `FairRegression` with labels 0 and 1. Parameters, attributes and notes are those
    of `Reduction`.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression: quantitative definitions and reduction-based
    algorithms. ICML 2019, algorithms 1 and 2.
    """

    default_loss: ClassVar[str] = "logistic"

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities in expectation over the draw, float64, (n_samples, 2).

        P(Y=1|x) is E_f[σ(C(2 f(x) − 1))] of the logistic loss, and E_f[f(x)] of the others.
        """
        value, sharpness = self._components(X), self._loss().sharpness
        chance = expit(sharpness * (2.0 * value - 1.0)) if sharpness else value
        positive = np.clip(chance @ self.probability_, 0.0, 1.0)
        return np.stack([1.0 - positive, positive], axis=1)
