"""Ours: best responses to the convex envelope of the costs, then to the smoothed costs."""

from __future__ import annotations

import numpy as np
import xgboost
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit

from fairfrontier.train.regression.oracle.logistic import sum_curvature
from fairfrontier.train.regression.oracle.oracle import Costs, Targets, TreeOracle
from fairfrontier.train.regression.oracle.surrogate import Surrogate, find_chords, find_hull, smooth
from fairfrontier.train.regression.predictor import LinearPredictor, Predictor, TreePredictor

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
