"""Debiasing as a programme over the decisions themselves, for rows few enough."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog, minimize

from tests.models.thresholds.made import Rows


def group_means(rows: Rows, feature: np.ndarray, *, rates: bool) -> np.ndarray:
    """Return the matrix M with (M h)_k = E[z h | k], divided by E[z | k] for rates."""
    means = np.zeros((rows.n_groups, rows.score.size))
    for k in range(rows.n_groups):
        held = rows.code == k
        weighted = (rows.weight * feature)[held]
        means[k, held] = weighted / (weighted.sum() if rates else rows.weight[held].sum())
    return means


def find_best(rows: Rows, means: np.ndarray, low: np.ndarray, high: np.ndarray) -> float | None:
    """Return min Σ w [(γ/2) h² − h f]/Σ w s.t. low ≤ M h ≤ high, 0 ≤ h ≤ 1.

    None where no h is feasible, or the solver of quadratic programmes gave up.
    """
    share = rows.weight / rows.weight.sum()
    limits = {"A_ub": np.vstack([means, -means]), "b_ub": np.concatenate([high, -low]) + 1e-12}
    linear = linprog(-share * rows.score, **limits, bounds=(0, 1))
    if not linear.success:
        return None
    if rows.width == 0:
        return float(linear.fun)
    found = minimize(
        lambda h: share @ (rows.width / 2 * h**2 - h * rows.score),
        linear.x,
        jac=lambda h: share * (rows.width * h - rows.score),
        bounds=[(0, 1)] * rows.score.size,
        constraints=[
            {"type": "ineq", "fun": lambda h: means @ h - low, "jac": lambda _: means},
            {"type": "ineq", "fun": lambda h: high - means @ h, "jac": lambda _: -means},
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    within = np.all(means @ found.x <= high + 1e-7) and np.all(means @ found.x >= low - 1e-7)
    # Status 8: at the end of its line search, as low as it gets.
    return float(found.fun) if (found.success or found.status == 8) and within else None


def least_violation(means: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """Return the least v ≥ 0 with low − v ≤ M h ≤ high + v for some 0 ≤ h ≤ 1."""
    m, n = means.shape
    found = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.block([[means, -np.ones((m, 1))], [-means, -np.ones((m, 1))]]),
        b_ub=np.concatenate([high, -low]),
        bounds=[(0, 1)] * n + [(0, None)],
    )
    assert found.success
    return float(found.fun)
