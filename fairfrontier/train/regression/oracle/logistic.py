"""Logistic regression on labels between 0 and 1, solved repeatedly as they change."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

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

    def __init__(self, X: np.ndarray, penalty: float, tolerance: float = 1e-6) -> None:
        self.X, self.penalty, self.tolerance = X, penalty, tolerance
        self.solution = np.zeros(X.shape[1] + 1)
        self._factor: tuple[np.ndarray, bool] | None = None

    def solve(self, label: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return (β, b), float64, shape (n_features + 1,), for labels in [0, 1]."""
        weight = weight / weight.sum()
        theta = self.solution
        value, gradient, chance = self._evaluate(theta, label, weight)
        use_all = False
        for _ in range(STEPS):
            size = float(np.abs(gradient).max())
            if size <= self.tolerance:
                break
            fresh = self._factor is None
            if fresh:
                stride = 1 if use_all else self._stride
                self._factor = cho_factor(self._hessian(chance, weight, stride))
            step = cho_solve(self._factor, gradient)
            length = 1.0
            while True:
                candidate = theta - length * step
                reached = self._evaluate(candidate, label, weight)
                if reached[0] <= value - 1e-4 * length * float(gradient @ step) + 1e-15:
                    break
                length /= 2.0
                if length < 1e-6:
                    break
            failed = length < 1e-6
            if failed and fresh and (use_all or self._stride == 1):
                break
            if not failed:
                theta, (value, gradient, chance) = candidate, reached
            remaining = float(np.abs(gradient).max()) / size
            if failed or length < 1.0 or remaining > SLOW:
                self._factor, use_all = None, failed or (fresh and remaining > STUCK)
        self.solution = theta
        return theta

    def _evaluate(
        self, theta: np.ndarray, label: np.ndarray, weight: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        value, gradient, chance = self._sum(theta, label, weight)
        pull = self.penalty * np.append(theta[:-1], 0.0)
        return value + float(pull @ theta) / 2.0, gradient + pull, chance

    def _sum(
        self, theta: np.ndarray, label: np.ndarray, weight: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return loss and gradient without penalty, and what ``_sum_curvature`` takes."""
        return sum_logistic(self.X, theta, label, weight)

    def _sum_curvature(
        self, chance: np.ndarray, weight: np.ndarray, stride: int
    ) -> tuple[np.ndarray, float]:
        """Return the Hessian of every ``stride``-th row without penalty, and their weight."""
        some = weight[::stride]
        curve = some * (chance * (1.0 - chance))[::stride]
        return sum_curvature(np.ascontiguousarray(self.X[::stride]), curve), float(some.sum())

    @property
    def _n_samples(self) -> int:
        return len(self.X)

    @property
    def _stride(self) -> int:
        return max(1, self._n_samples // max(LEAST, PER_FEATURE * (self.solution.size - 1)))

    def _hessian(self, chance: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
        curvature, total = self._sum_curvature(chance, weight, stride)
        hessian: np.ndarray = curvature / total
        size = len(hessian) - 1
        hessian[np.arange(size), np.arange(size)] += self.penalty
        # The factorisation must not fail where large margins make the curvature vanish.
        hessian[np.arange(size + 1), np.arange(size + 1)] += 1e-12
        return hessian


def sum_logistic(
    X: np.ndarray, theta: np.ndarray, label: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return Σ w (log(1 + exp(m)) − p m), its gradient, and σ(m); the sums of partitions add up."""
    margin = X @ theta[:-1] + theta[-1]
    chance = expit(margin)
    value = float(weight @ (np.logaddexp(0.0, margin) - label * margin))
    residual = weight * (chance - label)
    return value, np.append(residual @ X, residual.sum()), chance


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
