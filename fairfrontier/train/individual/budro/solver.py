"""BuDRO's solvers behind one interface: a problem goes in, a map with its certificate out."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace, device

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.train.individual.budro.entropic import solve_sinkhorn, solve_sinkhorn_sgd
from fairfrontier.train.individual.budro.geometry import Geometry, build_geometry
from fairfrontier.train.individual.budro.linear_program import solve_merged_programme
from fairfrontier.train.individual.budro.transport import Transport, solve_exact, solve_sgd

Array = Any

SOLVERS = ("linear_program", "exact", "sgd", "sinkhorn", "sinkhorn_sgd")


@dataclass(frozen=True, eq=False)
class Problem:
    """One transport problem: the rows, their losses, and how far they may be moved.

    max_Π ⟨R, Π⟩   s.t.  Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                         (2.8)

    Attributes
    ----------
    geometry : Geometry
        C_ij = ‖z_i − z_j‖² and m, from ``build_geometry``; the same in every round.
    loss : float64 array of shape (n_samples, n_labels)
        R_ij = loss[i, y_j]: the loss of row i under every label, on the geometry's backend.
    budget : float
        ε ≥ 0, in squared units of the embedding.
    """

    geometry: Geometry
    loss: Array
    budget: float


@dataclass(frozen=True)
class Setting:
    """What the solvers can be told; each takes what concerns it.

    Attributes
    ----------
    tolerance : float
        Of ``exact``, and of the entropic problem of ``sinkhorn``: duality gap as a share of what
        moving gains.
    column_share : float, optional
        Of ``exact`` and ``sinkhorn``: share of the columns, in (0, 1], on which η is sought before
        all of them are moved. It saves ``sinkhorn`` passes; ``exact`` has bounds that save more.
    entropy_weight : float
        Of ``sinkhorn`` and ``sinkhorn_sgd``: γ > 0, in units of the loss.
    dual_start, batch_size, steps, momentum, dual_learning_rate
        Of ``sgd`` and ``sinkhorn_sgd``; the defaults are the paper's for Adult.
    dtype : {"float32", "float64"}
        Of ``exact`` and ``sgd``: precision of the products that propose moves.
    """

    tolerance: float = 1e-3
    column_share: float | None = None
    entropy_weight: float = 5e-5
    dual_start: float = 0.1
    batch_size: int = 200
    steps: int = 100
    momentum: float = 0.9
    dual_learning_rate: float = 1e-4
    dtype: Literal["float32", "float64"] = "float32"

    @classmethod
    def of(cls, model: Any) -> Setting:
        """Return what an estimator's parameters of the same names say; defaults for the others."""
        names = [each.name for each in fields(cls) if hasattr(model, each.name)]
        return cls(**{name: getattr(model, name) for name in names})


def build_problem(
    z: Array, label: Array, loss: Array, budget: float, *, mass: Array | None = None
) -> Problem:
    """Return the problem of embedded rows.

    Parameters
    ----------
    z : float64 array of shape (n_samples, k)
        Embedded rows: ‖z_i − z_j‖² is the fair distance.
    label : int64 array of shape (n_samples,)
        Codes 0..n_labels-1.
    loss : float64 array of shape (n_samples, n_labels)
        Loss of every row under every label, n_labels ≥ 2.
    budget : float
        ε ≥ 0.
    mass : float64 array of shape (n_samples,), optional
        Column masses m_j > 0; 1/n each by default.

    Returns
    -------
    Problem

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

    Parameters
    ----------
    problem : Problem
        What to solve.
    solver : {"linear_program", "exact", "sgd", "sinkhorn", "sinkhorn_sgd"}
        HiGHS, for 200 rows at most; the dual's root (Algorithm 7, with the budget met exactly);
        stochastic steps on the dual (Algorithm 2); the entropic problem by its root (Algorithms 4
        and 5) or by stochastic steps (Algorithm 6).
    setting : Setting, optional
        The defaults where it is not given.
    start : Transport, optional
        The last round's solution on the same geometry, of any solver. The linear programme does
        without.
    generator : numpy.random.Generator, optional
        Draws the stochastic solvers' batches; of seed 0 by default.

    Returns
    -------
    Transport
        η, objective ⟨R, Π⟩, dual value M(η), gap, cost ⟨C, Π⟩, iterations, and the map.

    Raises
    ------
    ConfigError
        When there is no such solver, or the problem is too large for the linear programme.

    Notes
    -----
    All but the linear programme run in blocks of O(n k) memory; none makes an n × n array.
    """
    told = setting or Setting()
    geometry, loss, budget = problem.geometry, problem.loss, problem.budget
    if solver == "linear_program":
        return solve_merged_programme(geometry, loss, budget)
    if solver == "exact":
        return solve_exact(
            geometry,
            loss,
            budget,
            tolerance=told.tolerance,
            start=start,
            column_share=told.column_share,
            dtype=told.dtype,
        )
    if solver == "sinkhorn":
        return solve_sinkhorn(
            geometry,
            loss,
            budget,
            entropy_weight=told.entropy_weight,
            tolerance=told.tolerance,
            start=start,
            column_share=told.column_share,
        )
    if solver not in SOLVERS:
        raise ConfigError(
            f"There is no solver {solver!r} of the transport.", nearest(solver, SOLVERS)
        )
    random = np.random.default_rng(0) if generator is None else generator
    descent: dict[str, Any] = {
        "sample": draw_batches(geometry, told.steps, told.batch_size, random),
        "eta": told.dual_start,
        "momentum": told.momentum,
        "learning_rate": told.dual_learning_rate,
        "start": start,
    }
    if solver == "sgd":
        return solve_sgd(geometry, loss, budget, dtype=told.dtype, **descent)
    return solve_sinkhorn_sgd(geometry, loss, budget, entropy_weight=told.entropy_weight, **descent)


def draw_batches(
    geometry: Geometry, steps: int, batch_size: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw the rows of stochastic batches in proportion to their masses.

    Returns
    -------
    int64 ndarray of shape (steps, batch_size)
        Row numbers, with replacement.
    """
    mass = to_numpy(geometry.row_mass)
    if mass.min() == mass.max():
        return generator.integers(mass.size, size=(steps, batch_size))
    return generator.choice(mass.size, size=(steps, batch_size), p=mass / mass.sum())


def plan_columns(problem: Problem, found: Transport, rows: Array) -> Array:
    """Return columns of the map Π: where the mass of given rows goes.

    Parameters
    ----------
    problem : Problem
        What was solved.
    found : Transport
        Its solution by any solver.
    rows : int64 array of shape (m,)
        Row numbers j.

    Returns
    -------
    float64 array of shape (n_samples, m)
        Π[:, rows]. Over all rows its sums per label are ``found.weight``, each column's sum is the
        row's mass. Mass that goes to coincident rows of equal loss is split equally.

    Notes
    -----
    O(n m k) operations, O(n m) memory: ask for some rows at a time where n is large.
    """
    geometry, loss = problem.geometry, problem.loss
    xp = array_namespace(geometry.point)
    column = xp.take(geometry.row_column, rows)
    own = xp.take(geometry.row_point, rows)
    ends = xp.asarray([last for _, last in geometry.columns], device=device(geometry.point))
    label = xp.searchsorted(ends, column, side="right")
    gain = xp.take(loss, label, axis=1)
    plan = xp.zeros_like(gain)
    for i, (share, eta) in enumerate(zip(found.share, found.etas, strict=True)):
        if found.entropy_weight > 0:
            plan = plan + share * _soften(geometry, gain, own, eta, found.entropy_weight)
        else:
            target = xp.take(found.destination[i, :], column)
            there = geometry.row_point[:, None] == target[None, :]
            plan = plan + share * _share_worst(gain, there)
    return plan * xp.take(geometry.row_mass, rows)[None, :]


def _share_worst(gain: Array, there: Array) -> Array:
    """Return columns split equally among the rows of the largest loss at their target."""
    xp = array_namespace(gain)
    level = xp.where(there, gain, -xp.inf)
    worst = xp.astype(level == xp.max(level, axis=0), gain.dtype)
    return worst / xp.sum(worst, axis=0)


def _soften(geometry: Geometry, gain: Array, own: Array, eta: float, gamma: float) -> Array:
    """Return softmax_i((R_ij + γ log q_i − η C_ij) / γ); of coincident rows alone at η = ∞."""
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
