"""CS with linear functions: a linear programme over the hinge losses of all thresholds."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack

from fairfrontier.train.regression.oracle.oracle import Costs
from fairfrontier.train.regression.predictor import LinearPredictor, Predictor

# Rounds of cuts; each is finite, and few are needed from pieces near the last solution.
ROUNDS = 60
# The rows' losses may exceed those in the programme by this share of the objective.
SLACK = 1e-6


class HingeOracle:
    """The linear function of least weighted hinge loss over rows and thresholds.

    min_β  Σ_i Σ_z W_iz max{0, α/2 − Y_iz (⟨β, x_i⟩ − z)},  |β_j| ≤ 1,

    with W = |c_λ|, Y = +1 where c_λ ≤ 0 and −1 elsewhere; x ends with a constant 1. The programme
    printed in appendix G lacks z and the weights. Rows of equal features in one cell are merged.

    Notes
    -----
    The hinges of a row add up to one convex function of ⟨β, x_i⟩, linear between (k + ½)/N; rows of
    a cell share it. HiGHS is given one variable per row and the pieces near the last solution, and
    violated pieces are added; by its interior-point method, faster here than the simplex method.
    Some seconds for 1,000 rows of 40 features, less from a near start. Not exact as an oracle, for
    the hinge is a surrogate of the costs.
    """

    exact = False

    def __init__(self, X: np.ndarray, weight: np.ndarray, cell: np.ndarray, n_grid: int) -> None:
        self.n_grid = n_grid
        rows, merged = np.unique(np.column_stack([X, cell]), axis=0, return_inverse=True)
        self.cell = rows[:, -1].astype(np.int64)
        self.weight = np.bincount(merged, weights=weight) / weight.sum()
        self.design = np.column_stack([rows[:, :-1], np.ones(len(rows))])
        self.solution = np.zeros(X.shape[1] + 1)
        self.solution[-1] = 0.5

    def respond(self, costs: Costs) -> Predictor:
        """Return the linear function of least hinge loss."""
        slope, height = tabulate_hinges(np.diff(costs.total, axis=-1).reshape(-1, self.n_grid))
        self.solution = self._solve(slope, height)
        return LinearPredictor(self.solution[:-1], float(self.solution[-1]))

    def _solve(self, slope: np.ndarray, height: np.ndarray) -> np.ndarray:
        """Add pieces until the programme's losses equal those of the rows."""
        slope, height = slope[self.cell], height[self.cell]
        n_rows, n_pieces = slope.shape
        size = self.design.shape[1]
        rows = np.arange(n_rows)
        beta: np.ndarray = self.solution
        included = np.zeros((n_rows, n_pieces), dtype=bool)
        near = self._piece(beta)
        for shift in (-1, 0, 1):
            included[rows, np.clip(near + shift, 0, n_pieces - 1)] = True
        included[:, [0, -1]] = True
        cost = np.concatenate([np.zeros(size), self.weight])
        bounds = [(-1.0, 1.0)] * size + [(None, None)] * n_rows
        for _ in range(ROUNDS):
            row, piece = np.nonzero(included)
            steep = slope[row, piece]
            constraint = hstack(
                [
                    csr_array(self.design[row] * steep[:, None]),
                    csr_array((-np.ones(row.size), (np.arange(row.size), row)),
                              shape=(row.size, n_rows)),
                ]
            )  # fmt: skip
            result = linprog(
                cost,
                A_ub=constraint.tocsr(),
                b_ub=-height[row, piece],
                bounds=bounds,
                method="highs-ipm",
            )
            if result.x is None:  # pragma: no cover - the programme is feasible and bounded
                raise RuntimeError(f"HiGHS: {result.message}")
            beta = result.x[:size]
            value = self.design @ beta
            now = self._piece(beta)
            true = slope[rows, now] * value + height[rows, now]
            missing = self.weight * (true - result.x[size:])
            if missing.sum() <= SLACK * max(1e-12, abs(float(result.fun))):
                break
            broken = (missing > 0) & ~included[rows, now]
            included[rows[broken], now[broken]] = True
        return beta

    def _piece(self, beta: np.ndarray) -> np.ndarray:
        """Return the piece on which each row's value lies, 0, …, N + 1."""
        piece = np.ceil(self.design @ beta * self.n_grid - 0.5).astype(np.int64)
        within: np.ndarray = np.clip(piece, 0, self.n_grid + 1)
        return within


def tabulate_hinges(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pieces of φ(f) = Σ_j |c_j| max{0, α/2 − Y_j (f − j/N)}, Y_j = +1 iff c_j ≤ 0.

    For costs of shape (n_cells, N), slope and height have shape (n_cells, N + 2): φ(f) = slope_k f
    + height_k between (k − ½)/N and (k + ½)/N; the first and the last piece are unbounded. φ is the
    largest of the pieces.
    """
    n_grid = cost.shape[1]
    zero = np.zeros((len(cost), 1))
    up, down = np.maximum(cost, 0.0), np.maximum(-cost, 0.0)
    rising = np.hstack([zero, np.cumsum(up, axis=1)])
    rising = np.hstack([rising, rising[:, -1:]])
    falling = np.cumsum(down[:, ::-1], axis=1)[:, ::-1]
    falling = np.hstack([falling[:, :1], falling, zero])
    slope = rising - falling
    kink = (np.arange(n_grid + 1) + 0.5) / n_grid
    # At ½/N only the hinges that push upwards count; from there on slopes accumulate.
    first = (down * (np.arange(1, n_grid + 1) / n_grid)).sum(axis=1, keepdims=True)
    value = np.hstack([first, first + np.cumsum(slope[:, 1:-1] / n_grid, axis=1)])
    at = np.concatenate([kink[:1], kink])
    return slope, np.hstack([value[:, :1], value]) - slope * at
