"""BuDRO's solvers behind one interface, from a problem to a map with its certificate.

The losses of margins under every label, and a boosting step on rows that carry all labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import xgboost
from array_api_compat import array_namespace, device
from scipy.special import expit, log_softmax, softmax

from fairfrontier.models.individual.budget import check_budget
from fairfrontier.models.individual.budro.entropic import solve_sinkhorn, solve_sinkhorn_sgd
from fairfrontier.models.individual.budro.geometry import Geometry, build_geometry
from fairfrontier.models.individual.budro.transport import (
    Transport,
    solve_exact,
    solve_linear_program,
    solve_restricted,
    solve_sgd,
)
from fairfrontier.runtime.arrays import Backend, as_backend, to_numpy
from fairfrontier.runtime.errors import ConfigError, nearest


def evaluate_losses(margin: np.ndarray) -> np.ndarray:
    """Return ℓ(f(x_i), k) for every label k, float64 (n_samples, n_labels).

    A margin of shape (n_samples,) is the log-odds of class 1, with the logistic loss; one of shape
    (n_samples, n_classes) has the loss −log softmax_k.
    """
    if margin.ndim == 1:
        return np.stack([np.logaddexp(0.0, margin), np.logaddexp(0.0, -margin)], axis=1)
    loss: np.ndarray = -log_softmax(margin, axis=1)
    return loss


def balance_classes(y: np.ndarray, weight: np.ndarray, n_classes: int) -> np.ndarray:
    """Return factors that give every class the weight of the first one, float64 (n_classes,).

    A class without rows keeps 1.
    """
    total = np.bincount(y, weights=weight, minlength=n_classes)
    factor = np.ones(n_classes)
    present = total > 0
    factor[present] = total[present][0] / total[present]
    return factor


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

SOLVERS = ("linear_program", "exact", "sgd", "sinkhorn", "sinkhorn_sgd")
HISTORY = ("eta", "cost", "objective", "gap", "iterations")


@dataclass(frozen=True, eq=False)
class Problem:
    """One transport problem: the rows, their losses, and how far they may be moved.

    max_Π ⟨R, Π⟩   s.t.  Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                         (2.8)

    C_ij = ‖z_i − z_j‖² and m come from the ``geometry``, the same in every round; R_ij = loss[i,
    y_j], with the loss of every row under every label, (n_samples, n_labels), on the geometry's
    backend. ε ≥ 0 is the ``budget``, in squared units of the embedding.
    """

    geometry: Geometry
    loss: Array
    budget: float


@dataclass(frozen=True)
class Setting:
    """Options of the solvers, each of which takes its own; all but ``dtype`` as in `BuDRO`.

    ``dtype`` is the precision of the products in ``exact`` and ``sgd``.
    """

    tolerance: float = 1e-3
    column_share: float | None = None
    sources: int | None = None
    entropy_weight: float = 5e-5
    dual_start: float = 0.1
    batch_size: int = 200
    steps: int = 100
    momentum: float = 0.9
    dual_learning_rate: float = 1e-4
    dtype: Literal["float32", "float64"] = "float32"

    @classmethod
    def of(cls, model: Any) -> Setting:
        """Return an estimator's parameters of the same names, with defaults for the others."""
        names = [option.name for option in fields(cls) if hasattr(model, option.name)]
        return cls(**{name: getattr(model, name) for name in names})


def build_problem(
    z: Array, label: Array, loss: Array, budget: float, *, mass: Array | None = None
) -> Problem:
    """Return the problem of embedded rows; arguments as in `build_geometry` and `Problem`.

    Raises
    ------
    ConfigError
        When the budget is below 0 or not finite.
    """
    if not 0 <= budget < math.inf:
        raise ConfigError(
            f"The budget of the transport is {budget}.", "Give a number that is 0 or more."
        )
    geometry = build_geometry(z, label, n_labels=int(loss.shape[1]), mass=mass)
    return Problem(geometry, loss, budget)


def solve(
    problem: Problem,
    solver: str = "exact",
    setting: Setting | None = None,
    *,
    start: Transport | None = None,
    generator: np.random.Generator | None = None,
) -> Transport:
    """Solve a transport problem by a solver's name.

    ``linear_program`` is HiGHS, for 200 rows at most; ``exact`` the dual's root (Algorithm 7, with
    the budget met exactly); ``sgd`` stochastic steps on the dual (Algorithm 2); ``sinkhorn`` the
    entropic problem by its root (Algorithms 4 and 5) and ``sinkhorn_sgd`` by stochastic steps
    (Algorithm 6). With ``sources``, ``exact`` looks for each column at so many points only, and
    returns bounds of the optimum. All but the first run in blocks of O(n k) memory; none makes an
    n × n array.

    ``start`` is the last round's solution on the same geometry, of any solver. ``generator`` draws
    the stochastic batches and the columns that are checked; it has seed 0 by default.

    Raises
    ------
    ConfigError
        When there is no such solver, or the problem is too large for the linear programme.
    """
    setting = setting or Setting()
    geometry, loss, budget = problem.geometry, problem.loss, problem.budget
    if solver == "linear_program":
        return solve_linear_program(geometry, loss, budget)
    random = np.random.default_rng(0) if generator is None else generator
    if solver == "exact" and setting.sources is not None:
        return solve_restricted(
            geometry,
            loss,
            budget,
            sources=setting.sources,
            generator=random,
            tolerance=setting.tolerance,
            start=start,
            dtype=setting.dtype,
        )
    if solver == "exact":
        return solve_exact(
            geometry,
            loss,
            budget,
            tolerance=setting.tolerance,
            start=start,
            column_share=setting.column_share,
            dtype=setting.dtype,
        )
    if solver == "sinkhorn":
        return solve_sinkhorn(
            geometry,
            loss,
            budget,
            entropy_weight=setting.entropy_weight,
            tolerance=setting.tolerance,
            start=start,
            column_share=setting.column_share,
        )
    if solver not in SOLVERS:
        raise ConfigError(
            f"There is no solver {solver!r} of the transport.", nearest(solver, SOLVERS)
        )
    descent: dict[str, Any] = {
        "sample": draw_batches(geometry, setting.steps, setting.batch_size, random),
        "eta": setting.dual_start,
        "momentum": setting.momentum,
        "learning_rate": setting.dual_learning_rate,
        "start": start,
    }
    if solver == "sgd":
        return solve_sgd(geometry, loss, budget, dtype=setting.dtype, **descent)
    return solve_sinkhorn_sgd(
        geometry, loss, budget, entropy_weight=setting.entropy_weight, **descent
    )


def draw_batches(
    geometry: Geometry, steps: int, batch_size: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw rows in proportion to their masses, with replacement, int64 (steps, batch_size)."""
    mass = to_numpy(geometry.row_mass)
    if mass.min() == mass.max():
        return generator.integers(mass.size, size=(steps, batch_size))
    return generator.choice(mass.size, size=(steps, batch_size), p=mass / mass.sum())


def plan_columns(problem: Problem, transport: Transport, rows: Array) -> Array:
    """Return columns Π[:, rows] of the map that any solver transport, float64 (n_samples, m).

    Summed over all rows of a label, they are ``transport.weight``; each column sums to the row's
    mass. Mass that goes to coincident rows of equal loss is split equally. O(n m k) operations and
    O(n m) memory: pass some rows at a time if n is large.
    """
    geometry, loss = problem.geometry, problem.loss
    xp = array_namespace(geometry.point)
    column = xp.take(geometry.row_column, rows)
    own = xp.take(geometry.row_point, rows)
    ends = xp.asarray([last for _, last in geometry.columns], device=device(geometry.point))
    label = xp.searchsorted(ends, column, side="right")
    gain = xp.take(loss, label, axis=1)
    plan = xp.zeros_like(gain)
    for i, (share, eta) in enumerate(zip(transport.share, transport.etas, strict=True)):
        if transport.entropy_weight > 0:
            plan = plan + share * _soften(geometry, gain, own, eta, transport.entropy_weight)
        else:
            target = xp.take(transport.destination[i, :], column)
            arrives = geometry.row_point[:, None] == target[None, :]
            plan = plan + share * _share_worst(gain, arrives)
    return plan * xp.take(geometry.row_mass, rows)[None, :]


def _share_worst(gain: Array, arrives: Array) -> Array:
    """Return columns split equally among the rows of the largest loss at their target."""
    xp = array_namespace(gain)
    level = xp.where(arrives, gain, -xp.inf)
    worst = xp.astype(level == xp.max(level, axis=0), gain.dtype)
    return worst / xp.sum(worst, axis=0)


def _soften(geometry: Geometry, gain: Array, own: Array, eta: float, gamma: float) -> Array:
    """Return softmax_i((R_ij + γ log q_i − η C_ij) / γ), over coincident rows alone at η = ∞."""
    xp = array_namespace(gain)
    value = gain + gamma * xp.log(geometry.row_mass / xp.mean(geometry.row_mass))[:, None]
    if eta == float("inf"):
        value = xp.where(geometry.row_point[:, None] == own[None, :], value, -xp.inf)
    else:
        z = xp.take(geometry.point, geometry.row_point, axis=0)
        step = z[:, None, :] - xp.take(geometry.point, own, axis=0)[None, :, :]
        value = value - eta * xp.sum(step * step, axis=2)
    term = xp.exp((value - xp.max(value, axis=0)) / gamma)
    return term / xp.sum(term, axis=0)


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
    model.require("solver", model.solver in SOLVERS, " or ".join(SOLVERS))
    for name in ("tolerance", "entropy_weight", "dual_learning_rate"):
        model.require(name, 0 < getattr(model, name) < math.inf, finite)
    model.require("dual_start", 0 <= model.dual_start < math.inf, number)
    model.require("momentum", 0 <= model.momentum < 1, "a number in [0, 1)")
    model.require("steps", model.steps >= 1, "1 or more")
    model.require("batch_size", model.batch_size >= 1, "1 or more")
    model.require("random_state", model.random_state >= 0, "0 or more")
