"""Plans of BuDRO's transport: which row's mass a map moves to which row."""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import array_namespace, device

from fairfrontier.models.individual.budro.geometry import Geometry, build_geometry
from fairfrontier.models.individual.budro.transport import Problem, Transport
from fairfrontier.runtime.errors import ConfigError
from papers.rival.budro_entropic import Softened

Array = Any


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


def plan_columns(problem: Problem, transport: Transport, rows: Array) -> Array:
    """Return columns Π[:, rows] of the map that any solver transport, float64 (n_samples, m).

    Summed over all rows of a label, they are ``transport.weight``; each column sums to the row's
    mass. Mass that goes to coincident rows of equal loss is split equally. O(n m k) operations and
    O(n m) memory: pass some rows at a time if n is large.
    """
    geometry, loss = problem.geometry, problem.loss
    xp = array_namespace(geometry.point)
    column = xp.take(geometry.row_column, rows)
    ends = xp.asarray([last for _, last in geometry.columns], device=device(geometry.point))
    gain = xp.take(loss, xp.searchsorted(ends, column, side="right"), axis=1)
    plan = xp.zeros_like(gain)
    for number, share in enumerate(transport.share):
        plan = plan + share * spread(transport, geometry, gain, rows, number)
    return plan * xp.take(geometry.row_mass, rows)[None, :]


def spread(
    transport: Transport, geometry: Geometry, gain: Array, rows: Array, number: int
) -> Array:
    """Return where one of the maps sends the columns of some rows, (n_samples, m).

    ``gain`` has the losses under the columns' labels. Columns are split equally among the rows
    of the largest loss at their target.
    """
    if isinstance(transport, Softened):
        return transport.spread(geometry, gain, rows, number)
    xp = array_namespace(gain)
    target = xp.take(transport.destination[number, :], xp.take(geometry.row_column, rows))
    level = xp.where(geometry.row_point[:, None] == target[None, :], gain, -xp.inf)
    worst = xp.astype(level == xp.max(level, axis=0), gain.dtype)
    return worst / xp.sum(worst, axis=0)
