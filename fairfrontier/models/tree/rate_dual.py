"""The best decisions within a bound on rates of groups that are known up to probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

# Planes that are cut before the minimum is given up.
MOST_PLANES = 500
# Width of the box of prices, in the largest gain of a row.
BOX = 4.0


@dataclass(frozen=True, eq=False)
class RateProblem:
    """Gains of decision 1, and what a row adds to each cell's rate.

        max_h  E[g h]   subject to   max_k E[s_ek h] − min_k E[s_ek h] ≤ ε   for each event e

    over h from 0 to 1. ``gain`` g has shape (n_samples,); ``share`` s, (n_samples, n_cells), is
    P(row in the cell)/P(cell), of mean 1; ``event``, int64 (n_cells,), says which cells are
    compared; ``weight``, (n_samples,), adds up to 1; ``bound`` is ε.
    """

    gain: np.ndarray
    share: np.ndarray
    event: np.ndarray
    weight: np.ndarray
    bound: float


@dataclass(frozen=True, eq=False)
class RateOptimum:
    """Prices λ of the cells' rates, which add up to 0 in each event.

    h = 1{g > Σ λ s} is best, but for rows on which both sides are equal. ``value``, of the dual
    problem, is what no rule within the bound exceeds, and ``gap`` is how far it may be from the
    least such value.
    """

    price: np.ndarray
    value: float
    gap: float
    iterations: int


def solve_rates(problem: RateProblem, tolerance: float = 1e-5) -> RateOptimum:
    """Minimise the dual D(λ) = E[(g − Σ λ s)₊] + ε Σ |λ|/2 by cutting planes.

    D is convex and piecewise linear: each plane touches it at the minimum of the planes before.
    Ends when that is within ``tolerance`` of the least value found. O(n m) for each plane and m
    cells, some ten planes for two groups.

    References
    ----------
    J. E. Kelley. The cutting-plane method for solving convex programs. SIAM Journal 8, 1960.
    """
    n_cells = problem.share.shape[1]
    cost = np.append(np.full(2 * n_cells, problem.bound / 2.0), 1.0)
    balanced = problem.event == np.unique(problem.event)[:, None]
    fixed = np.column_stack([balanced, -balanced.astype(float), np.zeros(len(balanced))])
    box = BOX * float(np.abs(problem.gain).max())
    limits = [(0.0, box)] * (2 * n_cells) + [(0.0, None)]
    price, best, gap = np.zeros(n_cells), np.zeros(n_cells), np.inf
    least, planes, heights = np.inf, list[np.ndarray](), list[float]()
    while gap > tolerance and len(planes) < MOST_PLANES:
        margin = problem.gain - problem.share @ price
        chosen = problem.weight * (margin > 0)
        surplus = float(chosen @ margin)
        value = surplus + problem.bound / 2.0 * float(np.abs(price).sum())
        if value < least:
            least, best = value, price
        slope = -chosen @ problem.share
        planes.append(np.concatenate([slope, -slope, [-1.0]]))
        heights.append(float(slope @ price) - surplus)
        found = linprog(
            cost,
            A_ub=np.array(planes),
            b_ub=np.array(heights),
            A_eq=fixed,
            b_eq=np.zeros(len(fixed)),
            bounds=limits,
        )
        price = found.x[:n_cells] - found.x[n_cells:-1]
        gap = least - found.fun
    return RateOptimum(best, least, max(gap, 0.0), len(planes))
