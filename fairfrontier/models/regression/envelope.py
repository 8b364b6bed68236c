"""CS with linear functions: a linear programme over the hinge losses of all thresholds.

Differentiable functions in place of the costs: their convex envelope, or the smoothed costs.

Ours: best responses to the convex envelope of the costs, then to the smoothed costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost
from array_api_compat import device
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array, hstack
from scipy.special import expit

from fairfrontier.models.regression.grid import level_values
from fairfrontier.models.regression.oracle import Costs, Targets, TreeOracle, sum_curvature
from fairfrontier.models.regression.predictor import LinearPredictor, Predictor, TreePredictor
from fairfrontier.runtime.arrays import array_namespace

Array = Any

# Scores between these are looked up; beyond them functions are straight lines.
LOW, HIGH = -0.5, 1.5
# Table points per grid step.
FINE = 8


@dataclass(frozen=True, eq=False)
class Surrogate:
    """One differentiable function of a score for each cell.

    ``slope`` is its derivative at equally spaced points of [-.5, 1.5], shape (n_cells, n_points);
    linear between them, constant beyond. ``value`` is its integral from the first point.
    """

    slope: Array
    value: Array

    def evaluate(self, cell: Array, score: Array) -> tuple[Array, Array]:
        """Return the function of each row's cell at its score, and its derivative there."""
        xp = array_namespace(score)
        n_points = self.slope.shape[1]
        step = (HIGH - LOW) / (n_points - 1)
        position = xp.clip((score - LOW) / step, 0.0, float(n_points - 1))
        left = xp.floor(xp.clip(position, 0.0, float(n_points - 2)))
        part, beyond = position - left, score - (LOW + step * position)
        entry = cell * n_points + xp.astype(left, xp.int64)
        slopes = xp.reshape(self.slope, (-1,))
        before, after = xp.take(slopes, entry), xp.take(slopes, entry + 1)
        slope = before + (after - before) * part
        start = xp.take(xp.reshape(self.value, (-1,)), entry)
        value = start + step * part * (before + slope) / 2.0 + beyond * slope
        return value, slope


def find_chords(total: Array) -> Array:
    """Return the slopes between neighbouring points of costs, shape (n_cells, N).

    ``total``, shape (n_cells, N + 1), is g_λ at the levels' points min{(k + ½)/N, 1}.
    """
    point = level_values(total.shape[1] - 1, total)
    return (total[:, 1:] - total[:, :-1]) / (point[1:] - point[:-1])[None, :]


def find_hull(total: Array) -> Array:
    """Return the slopes of the largest convex function below each cell's costs, shape (n_cells, N).

    s_k = max_{i ≤ k} min_{j > k} (g_j − g_i) / (v_j − v_i)

    They ascend: the isotonic regression of the slopes of ``find_chords``. O(n_cells · N²) time,
    O(n_cells · N) memory, no loop over cells.
    """
    xp = array_namespace(total)
    n_grid = total.shape[1] - 1
    point = level_values(n_grid, total)
    least = xp.full_like(total[:, 1:], xp.inf)
    slopes = []
    for k in range(n_grid - 1, -1, -1):
        gap = (point[k + 1] - point[: k + 1])[None, :]
        chord = (total[:, k + 1 : k + 2] - total[:, : k + 1]) / gap
        least = xp.minimum(least[:, : k + 1], chord)
        slopes.append(xp.max(least, axis=1))
    return xp.flip(xp.stack(slopes, axis=1), axis=1)


def smooth(slope: Array, width: float, *, clipped: bool) -> Surrogate:
    """Return the piecewise linear functions of given slopes, convolved with a logistic density.

    s(u) = s_0 + Σ_k (s_k − s_{k−1}) σ((u − v_k) / width),   v_k = min{(k + ½)/N, 1}

    ``slope`` has shape (n_cells, N), between v_k and v_{k+1}. The standard deviation of the density
    is 1.81 times ``width``. If ``clipped``, the functions are constant below v_0 and above v_N, as
    costs of clipped predictions are; else the first and the last slope continue, which keeps a
    convex function convex. O(n_cells · N) for a table of 2 · 8 · N + 1 points.
    """
    xp = array_namespace(slope)
    n_grid = slope.shape[1]
    zero = xp.zeros_like(slope[:, :1])
    first, last = (zero, zero) if clipped else (slope[:, :1], slope[:, -1:])
    padded = xp.concat([first, slope, last], axis=1)
    step = 1.0 / (FINE * n_grid)
    count = round((HIGH - LOW) / step) + 1
    fine = LOW + step * xp.arange(count, dtype=slope.dtype, device=device(slope))
    far = (fine[None, :] - level_values(n_grid, slope)[:, None]) / (2.0 * width)
    table = padded[:, :1] + (padded[:, 1:] - padded[:, :-1]) @ ((1.0 + xp.tanh(far)) / 2.0)
    area = step * (table[:, 1:] + table[:, :-1]) / 2.0
    return Surrogate(table, xp.concat([zero, xp.cumulative_sum(area, axis=1)], axis=1))


# Scales of the smoothing, in grid steps: of the envelope's kinks, and of the costs' jumps.
KINK, JUMP = 0.5, 1.0
# Most quasi-Newton steps of either descent, and the progress below which it ends.
STEPS, PROGRESS = 50, 1e-7
# Added to the diagonal of the features' Gram matrix, as a share of its mean, before it is factored.
RIDGE = 1e-3


class EnvelopeOracle:
    """The linear function of least convex envelope of the costs, improved on the costs themselves.

    min_{β,b}  Σ_i w_i φ_{c(i)}(xᵢᵀβ + b) / Σ w + (penalty / 2) ‖β‖²,

    first with φ the convex envelope of g_λ(ỹ, a, ·) in each cell c = (a, ỹ), whose minimum does not
    depend on the start; from there with φ the costs g_λ themselves, smoothed by a logistic density
    of one grid step, to a local minimum. Not in the paper, whose LS and LR use only where g_λ is
    least: how much a row loses elsewhere is ignored. ``penalty`` is in units of the costs.

    Notes
    -----
    O(n d²) once; a call takes O(n d) for each of some 20 quasi-Newton steps (L-BFGS, with the
    features' Gram matrix as its scale) of either descent, and starts at the last call's envelope.
    No copy of X. Not exact: an envelope is a surrogate, and the second minimum is local.
    On rows held out of Adult's training half (logistic loss, sex; three splits, at disparities from
    .06 to .2) −log p was .022 to .008 below LR's and .011 to .002 below that of fair classification
    in the mean of the splits; paired standard errors of one split are .003 to .001. The second
    descent contributed .004 to .001. On law school there was no difference from LS.

    References
    ----------
    A. Agarwal, M. Dudík, Z. S. Wu. Fair regression. ICML 2019, equation 12, appendix F, for the
    costs.
    """

    exact = False

    def __init__(self, X: np.ndarray, weight: np.ndarray, cell: np.ndarray, penalty: float) -> None:
        self.X, self.weight, self.penalty = X, weight / weight.sum(), penalty
        self.cell = cell
        gram = sum_curvature(X, self.weight)
        diagonal = np.arange(X.shape[1])
        gram[diagonal, diagonal] += RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12)
        self.root = cholesky(gram)
        self.solution = np.zeros(X.shape[1] + 1)
        self.solution[-1] = 0.5

    def respond(self, costs: Costs) -> Predictor:
        """Return the linear function at which both descents end."""
        hull, jumps = find_surrogates(costs)
        self.solution = self.descend(hull, self.solution)
        theta = self.descend(jumps, self.solution)
        return LinearPredictor(theta[:-1], float(theta[-1]))

    def evaluate(self, surrogate: Surrogate, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective at (β, b), and its gradient, shape (n_features + 1,)."""
        value, slope = surrogate.evaluate(self.cell, self.X @ theta[:-1] + theta[-1])
        pull = self.penalty * np.append(theta[:-1], 0.0)
        steep = self.weight * slope
        gradient = np.append(steep @ self.X, steep.sum()) + pull
        return float(self.weight @ value) + float(pull @ theta) / 2.0, gradient

    def descend(self, surrogate: Surrogate, start: np.ndarray) -> np.ndarray:
        """Return (β, b) that is no worse than the start."""

        def objective(scaled: np.ndarray) -> tuple[float, np.ndarray]:
            theta = solve_triangular(self.root, scaled)
            value, gradient = self.evaluate(surrogate, theta)
            return value, solve_triangular(self.root, gradient, trans="T")

        result = minimize(
            objective,
            self.root @ start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": STEPS, "maxcor": 20, "ftol": PROGRESS, "gtol": 1e-7},
        )
        theta: np.ndarray = solve_triangular(self.root, result.x)
        return theta


class EnvelopeTreeOracle:
    """Trees grown by the slopes of the envelope, and from half-way by those of the smoothed costs.

    Each tree takes a Newton step for Σ w φ_c(f), φ as in `EnvelopeOracle`: slopes of φ, and the
    curvature of the loss, which the multipliers do not change: p (1 − p), p = σ(2C (f − ½)), for
    the classifier of the logistic loss, and 1 for a regressor, so that gamma keeps its meaning.
    Rows and settings are those of ``trees``; ``scale`` is that of the loss. A call takes the time
    of as many trees, and O(n) for each.
    """

    exact = False

    def __init__(
        self, trees: TreeOracle, weight: np.ndarray, cell: np.ndarray, scale: float
    ) -> None:
        self.trees, self.weight, self.cell = trees, weight, cell
        self.unit = trees.units[0] / scale if trees.sharpness else 1.0

    def respond(self, costs: Costs) -> Predictor:
        """Return the ensemble."""
        matrix, rounds = self.trees.team.member, self.trees.rounds
        scale, shift = self.trees.units
        data = matrix.tell(Targets(costs.target.reshape(-1), self.trees.total))
        hull, jumps = find_surrogates(costs)
        booster = xgboost.Booster(self.trees.parameters, [data])
        for i in range(rounds):
            margin = booster.predict(data, output_margin=True, training=True).astype(np.float64)
            surrogate = hull if 2 * i < rounds else jumps
            _, slope = surrogate.evaluate(self.cell, margin * scale + shift)
            booster.boost(data, i, grad=self._weigh(slope * self.unit), hess=self._curve(margin))
        return TreePredictor(booster, scale, shift)

    def _curve(self, margin: np.ndarray) -> np.ndarray:
        if not self.trees.sharpness:
            return self._weigh(np.ones_like(margin))
        chance = expit(margin)
        return self._weigh(np.maximum(chance * (1.0 - chance), 1e-6))

    def _weigh(self, rows: np.ndarray) -> np.ndarray:
        # XGBoost does not apply its weights to custom objectives.
        weighted: np.ndarray = (self.weight * rows).astype(np.float32)
        return weighted


def find_surrogates(costs: Costs) -> tuple[Surrogate, Surrogate]:
    """Return the costs' convex envelope and the costs themselves, both smoothed."""
    total = costs.total.reshape(-1, costs.total.shape[-1])
    n_grid = total.shape[1] - 1
    return (
        smooth(find_hull(total), KINK / n_grid, clipped=False),
        smooth(find_chords(total), JUMP / n_grid, clipped=True),
    )


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
