"""Logistic regression on labels between 0 and 1, solved repeatedly as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from fairfrontier.runtime.cluster.executor import Block, Rows

if TYPE_CHECKING:
    from fairfrontier.train.regression.oracle.oracle import Targets

# Newton steps at most; two or three are usual from a near start.
STEPS = 100
# Rows whose products with their features are in memory at a time.
BLOCK = 1 << 14
# A step after which more than this share of the gradient remains asks for a new Hessian.
SLOW = 0.3
# Where this share remains after a fresh estimate, the estimate is bad and not merely old.
STUCK = 0.8
# Rows from which a Hessian is first estimated: so many per feature, and at least so many.
PER_FEATURE, LEAST = 40, 2000


class LogisticRegressor:
    """min_{β,b}  Σ w_i (log(1 + exp(m_i)) − p_i m_i) / Σ w + (penalty / 2) ‖β‖²,  m = Xβ + b.

    Labels p between 0 and 1 are the two weighted copies of a row, label 1 with weight p and label 0
    with 1 − p. Keeps the last solution and the last Hessian's factor, from which the next call
    starts. With many rows, the Hessian is that of every k-th row, and of all rows where that is too
    slow: the solution depends on the gradient alone, which ends below ``tolerance`` in every entry.
    A step costs O(n d), a factor from all rows O(n d²). ``penalty`` is above 0.
    """

    def __init__(self, rows: Rows, penalty: float, tolerance: float = 1e-6) -> None:
        self.rows, self.penalty, self.tolerance = rows, penalty, tolerance
        self.solution = np.zeros(rows.n_features + 1)
        self._factor: tuple[np.ndarray, bool] | None = None

    def solve(self, targets: Targets) -> np.ndarray:
        """Return (β, b), float64, shape (n_features + 1,), for labels in [0, 1]."""
        theta = self.solution
        value, gradient = self._evaluate(theta, targets)
        use_all = False
        for _ in range(STEPS):
            size = float(np.abs(gradient).max())
            if size <= self.tolerance:
                break
            fresh = self._factor is None
            if fresh:
                stride = 1 if use_all else self._stride
                self._factor = cho_factor(self._hessian(theta, targets, stride))
            step = cho_solve(self._factor, gradient)
            length = 1.0
            while True:
                candidate = theta - length * step
                reached = self._evaluate(candidate, targets)
                if reached[0] <= value - 1e-4 * length * float(gradient @ step) + 1e-15:
                    break
                length /= 2.0
                if length < 1e-6:
                    break
            failed = length < 1e-6
            if failed and fresh and (use_all or self._stride == 1):
                break
            if not failed:
                theta, (value, gradient) = candidate, reached
            remaining = float(np.abs(gradient).max()) / size
            if failed or length < 1.0 or remaining > SLOW:
                self._factor, use_all = None, failed or (fresh and remaining > STUCK)
        self.solution = theta
        return theta

    def _evaluate(self, theta: np.ndarray, targets: Targets) -> tuple[float, np.ndarray]:
        value, gradient = self.rows.sum(_evaluate, theta, targets)
        pull = self.penalty * np.append(theta[:-1], 0.0)
        return value + float(pull @ theta) / 2.0, gradient + pull

    @property
    def _stride(self) -> int:
        return max(1, self.rows.n_samples // max(LEAST, PER_FEATURE * (self.solution.size - 1)))

    def _hessian(self, theta: np.ndarray, targets: Targets, stride: int) -> np.ndarray:
        curvature, total = self.rows.sum(_evaluate_curvature, theta, targets, stride)
        hessian: np.ndarray = curvature / total
        size = len(hessian) - 1
        hessian[np.arange(size), np.arange(size)] += self.penalty
        # The factorisation must not fail where large margins make the curvature vanish.
        hessian[np.arange(size + 1), np.arange(size + 1)] += 1e-12
        return hessian


def _evaluate(block: Block, theta: np.ndarray, targets: Targets) -> tuple[float, np.ndarray]:
    """Return Σ w (log(1 + exp(m)) − p m) / Σ w of all rows, and its gradient."""
    label, weight = targets.labels(block), targets.weights(block) / targets.total
    margin = block.X @ theta[:-1] + theta[-1]
    value = float(weight @ (np.logaddexp(0.0, margin) - label * margin))
    residual = weight * (expit(margin) - label)
    return value, np.append(residual @ block.X, residual.sum())


def _evaluate_curvature(
    block: Block, theta: np.ndarray, targets: Targets, stride: int
) -> tuple[np.ndarray, float]:
    """Return the Hessian of every ``stride``-th of all rows, and their weight."""
    some = slice(-block.start % stride, None, stride)
    weight = (targets.weights(block) / targets.total)[some]
    X = np.ascontiguousarray(block.X[some])
    chance = expit(X @ theta[:-1] + theta[-1])
    return sum_curvature(X, weight * (chance * (1.0 - chance))), float(weight.sum())


def sum_curvature(X: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Return Σ c x xᵀ, x with a 1 appended, shape (n_features + 1, n_features + 1)."""
    size = X.shape[1]
    hessian = np.zeros((size + 1, size + 1))
    for start in range(0, len(curve), BLOCK):
        rows, some = X[start : start + BLOCK], curve[start : start + BLOCK]
        raised = rows * some[:, None]
        hessian[:size, :size] += rows.T @ raised
        hessian[size, :size] += raised.sum(axis=0)
    hessian[:size, size] = hessian[size, :size]
    hessian[size, size] = curve.sum()
    return hessian
