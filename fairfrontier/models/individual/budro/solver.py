"""BuDRO's solvers behind one interface, from a problem to a map with its certificate.

The losses of margins under every label, and a boosting step on rows that carry all labels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xgboost
from scipy.special import expit, log_softmax, softmax

from fairfrontier.models.individual.budget import check_budget
from fairfrontier.models.individual.budro.geometry import Geometry
from fairfrontier.models.individual.budro.transport import SOLVERS, Problem, Setting, Transport
from fairfrontier.runtime.arrays import Backend, as_backend


def evaluate_losses(margin: np.ndarray) -> np.ndarray:
    """Return ℓ(f(x_i), k) for every label k, float64 (n_samples, n_labels).

    A margin of shape (n_samples,) is the log-odds of class 1, with the logistic loss; one of shape
    (n_samples, n_classes) has the loss −log softmax_k.
    """
    if margin.ndim == 1:
        return np.stack([np.logaddexp(0.0, margin), np.logaddexp(0.0, -margin)], axis=1)
    loss: np.ndarray = -log_softmax(margin, axis=1)
    return loss


def predict_margin(booster: xgboost.Booster, data: xgboost.DMatrix) -> np.ndarray:
    """Return the margins of the training rows, float64."""
    margin = booster.predict(data, output_margin=True, training=True)
    return np.asarray(margin, dtype=np.float64)


def boost_step(
    booster: xgboost.Booster,
    data: xgboost.DMatrix,
    iteration: int,
    weight: np.ndarray,
    scale: np.ndarray,
) -> None:
    """Add a round of trees for the weighted loss on rows that carry all labels.

    Weights w(x_i, k) are (n_samples, n_classes) and multiplied by factors s_k. With two classes and
    p = σ(margin), row i has the summed gradient and hessian of its copies (x_i, 0) and (x_i, 1):

        g_i = s_1 w_i1 (p_i − 1) + s_0 w_i0 p_i,     h_i = (s_1 w_i1 + s_0 w_i0) p_i (1 − p_i).

    With more, p = softmax(margins) and W_i = Σ_k s_k w_ik, there is one tree per class k with

        g_ik = W_i p_ik − s_k w_ik,     h_ik = 2 W_i p_ik (1 − p_ik),

    the factor 2 being XGBoost's own. Since split gains add gradients and hessians over rows, this
    is the boosting step on the rows repeated once per label, weighted: always with tree method
    ``exact``, and with ``hist`` if no feature has more distinct values than bins.
    """
    margin = predict_margin(booster, data)
    share = weight * scale
    if margin.ndim == 1:
        p = expit(margin)
        lower, upper = share[:, 0], share[:, 1]
        grad = upper * (p - 1.0) + lower * p
        hess = (upper + lower) * p * (1.0 - p)
    else:
        p = softmax(margin, axis=1)
        total = share.sum(axis=1, keepdims=True)
        grad = total * p - share
        hess = 2.0 * total * p * (1.0 - p)
    booster.boost(data, iteration, grad=grad.astype(np.float32), hess=hess.astype(np.float32))


Array = Any

HISTORY = ("eta", "cost", "objective", "gap", "iterations")


def solve(
    problem: Problem,
    solver: str = "exact",
    setting: Setting | None = None,
    *,
    start: Transport | None = None,
    generator: np.random.Generator | None = None,
) -> Transport:
    """Solve a transport problem by a solver's name.

    ``exact`` is the dual's root (Algorithm 7, with the budget met exactly), in blocks of O(n k)
    memory. With ``sources``, ``exact`` looks for each
    column at so many points only, and returns bounds of the optimum. The papers register ``sgd``,
    stochastic steps on the dual (Algorithm 2), ``sinkhorn``, the entropic problem by its root
    (Algorithms 4 and 5), and ``sinkhorn_sgd`` (Algorithm 6).

    ``start`` is the last round's solution on the same geometry, of any solver. ``generator`` draws
    the stochastic batches and the columns that are checked; it has seed 0 by default.

    Raises
    ------
    ConfigError
        When there is no such solver.
    """
    random = np.random.default_rng(0) if generator is None else generator
    return SOLVERS.find(solver)(problem, setting or Setting(), start, random)


class WorstCases:
    """The worst cases of successive boosting rounds on the same rows, each found from the last."""

    def __init__(
        self,
        geometry: Geometry,
        budget: float,
        solver: str,
        setting: Setting,
        backend: Backend,
        random_state: int,
    ) -> None:
        self.geometry, self.budget, self.solver = geometry, budget, solver
        self.setting, self.backend = setting, backend
        self.generator = np.random.default_rng(random_state)
        self.last: Transport | None = None
        self.table: list[list[float]] = []

    def solve(self, margin: np.ndarray) -> Transport:
        """Return the worst case for the margins of all rows."""
        # Losses go where the geometry is.
        work = 0.0 if isinstance(self.geometry.point, np.ndarray) else math.inf
        loss = as_backend(evaluate_losses(margin), self.backend, work=work)
        problem = Problem(self.geometry, loss, self.budget)
        self.last = solve(
            problem, self.solver, self.setting, start=self.last, generator=self.generator
        )
        self.add_history(self.last)
        return self.last

    def add_history(self, found: Transport) -> None:
        """Note what a round's solution says of itself."""
        self.table.append([float(getattr(found, key)) for key in HISTORY])

    def read_history(self) -> dict[str, np.ndarray]:
        """Return float64 arrays of shape (n_rounds,), one for each of ``HISTORY``."""
        table = np.asarray(self.table, dtype=np.float64).reshape(-1, len(HISTORY))
        return dict(zip(HISTORY, table.T.copy(), strict=True))


def check_transport(model: Any) -> None:
    """Raise ConfigError for invalid parameters of an estimator that concern the transport."""
    finite, number = "a finite number above 0", "a finite number that is 0 or more"
    check_budget(model)
    SOLVERS.find(model.solver)
    for name in ("tolerance", "entropy_weight", "dual_learning_rate"):
        model.require(name, 0 < getattr(model, name) < math.inf, finite)
    model.require("dual_start", 0 <= model.dual_start < math.inf, number)
    model.require("momentum", 0 <= model.momentum < 1, "a number in [0, 1)")
    model.require("steps", model.steps >= 1, "1 or more")
    model.require("batch_size", model.batch_size >= 1, "1 or more")
    model.require("random_state", model.random_state >= 0, "0 or more")
