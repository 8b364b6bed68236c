"""Logistic regression by sums over rows: Newton's method."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from scipy.special import expit, log_softmax, softmax

from fairfrontier.runtime.cluster.executor import Block, Rows
from fairfrontier.runtime.errors import DataError

# Of the line search of scikit-learn's newton-cholesky, whose steps these are.
DECREASE, HALVINGS = 2.0**-11, 21
STEPS = 1000
# Coefficients for whose Hessian there is room.
MOST_NEWTON = 500
# The share of the largest eigenvalue below which one is rounding.
RANK = 1e-12


@dataclass(frozen=True, eq=False)
class LogisticFit:
    """Coefficients (K, n_features) and intercepts (K,), K = 1 for two classes; the steps taken."""

    coefficient: np.ndarray
    intercept: np.ndarray
    iterations: int


def fit_logistic(
    rows: Rows, n_classes: int, penalty: float, *, tolerance: float = 1e-6
) -> LogisticFit:
    """Solve min_{W,b} Σ_i w_i ℓ(y_i, W x_i + b) / Σ_i w_i + (penalty/2) ‖W‖².

    The steps are those of scikit-learn's ``newton-cholesky`` from zero, so that the result is its
    own to rounding: it ends where no entry of the gradient, nor half of the squared Newton
    decrement, exceeds ``tolerance``. For more than two classes ℓ is multinomial, of one row of W
    for each class, and the intercepts, of which only differences matter, have the sum 0.

    Parameters
    ----------
    rows : Rows
        With the columns ``y``, codes 0, …, K − 1, int64, or shares of class 1 of two, float64 from
        0 to 1; and ``weight``, float64 case weights.
    n_classes : int
        K.
    penalty : float
        > 0.

    Raises
    ------
    DataError
        When the steps do not converge, as where numbers are too large to be squared.

    Notes
    -----
    O(n (K d)²) operations a step, O((K d)²) numbers from every block.
    """
    shape = (1 if n_classes == 2 else n_classes, rows.n_features + 1)
    total = float(rows.sum(_weigh))
    rows = rows.derive(_append_one, width=shape[1])
    ridge = np.full(shape, penalty)
    ridge[:, -1] = 0.0
    # Intercepts of several classes may all be moved alike: this fixes them, and changes no more.
    fixed = np.zeros((*shape, *shape))
    fixed[:, -1, :, -1] = 1.0 / n_classes if shape[0] > 1 else 0.0

    def look(W: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        loss, gradient, hessian = rows.sum(_expand, W)
        hessian = hessian / total + fixed
        size = W.size
        flat = hessian.reshape(size, size) + np.diag(ridge.ravel())
        return float(loss / total + (ridge * W**2).sum() / 2), gradient / total + ridge * W, flat

    W = np.zeros(shape)
    loss, gradient, hessian = look(W)
    for iteration in range(1, STEPS):
        if not np.isfinite(hessian).all():
            break
        step = _solve(hessian, -gradient.ravel()).reshape(shape)
        decrease, before, at = float((gradient * step).sum()), hessian, 1.0
        for _ in range(HALVINGS):
            value, slope, curvature = look(W + at * step)
            level = abs(value - loss) <= 16 * np.finfo(np.float64).eps * abs(loss)
            flatter = np.abs(slope).sum() < np.abs(gradient).sum()
            if value - loss <= at * DECREASE * decrease or (level and flatter):
                break
            at /= 2
        else:
            # Rounding alone is left of the gradient.
            return LogisticFit(W[:, :-1], W[:, -1], iteration)
        W, loss, gradient, hessian = W + at * step, value, slope, curvature
        decrement = float(step.ravel() @ before @ step.ravel())
        if np.abs(gradient).max() <= tolerance and decrement / 2 <= tolerance:
            return LogisticFit(W[:, :-1], W[:, -1], iteration)
    raise DataError(
        "Newton's steps of a logistic regression do not converge.",
        "Look for features with huge numbers, and standardise them (features: numeric).",
    )


def _solve(hessian: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return the Newton step, without the directions in which the Hessian is 0 to rounding."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
        try:
            return np.asarray(scipy.linalg.solve(hessian, slope, assume_a="pos"))
        except (np.linalg.LinAlgError, scipy.linalg.LinAlgWarning):
            pass
    # Of columns in unlike units only those that depend on others count as such directions.
    scale = 1.0 / np.sqrt(np.diag(hessian).clip(min=np.finfo(np.float64).tiny))
    inverse = scipy.linalg.pinvh(hessian * np.outer(scale, scale), rtol=RANK)
    return np.asarray(scale * (inverse @ (scale * slope)))


def _append_one(block: Block) -> Block:
    return replace(block, X=np.column_stack([block.X, np.ones(len(block))]))


def _weigh(block: Block) -> float:
    return float(block["weight"].sum())


def _expand(block: Block, W: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the sums of loss, gradient (K, d + 1) and Hessian (K, d + 1, K, d + 1) over rows."""
    y, weight = block["y"], block["weight"]
    Z = block.X
    margin = Z @ W.T
    if len(W) == 1:
        loss = np.logaddexp(0.0, margin[:, 0]) - y * margin[:, 0]
        probability = expit(margin)
        label = y[:, None]
    else:
        rows = np.arange(len(y))
        loss = -log_softmax(margin, axis=1)[rows, y]
        probability = softmax(margin, axis=1)
        label = np.eye(len(W))[y]
    gradient = (weight[:, None] * (probability - label)).T @ Z
    hessian = np.empty((*W.shape, *W.shape))
    for k in range(len(W)):
        for m in range(k + 1):
            product = probability[:, k] * (float(k == m) - probability[:, m])
            part = Z.T @ ((weight * product)[:, None] * Z)
            hessian[k, :, m, :] = part
            hessian[m, :, k, :] = part.T
    return float(weight @ loss), gradient, hessian
