"""BuDRO's transport as a linear programme, for small n."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, kron

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.individual.budro.dual import Minimum
from fairfrontier.train.individual.budro.geometry import Geometry
from fairfrontier.train.individual.budro.search import Search
from fairfrontier.train.individual.budro.transport import Transport, finish

Array = Any

LARGEST = 200


def solve_linear_program(geometry: Geometry, loss: Array, budget: float) -> Transport:
    """Solve (2.8) by HiGHS over merged points and columns, for at most LARGEST rows.

    ``loss`` is (n_samples, n_labels). ``eta`` is the multiplier of the budget, and ``dual_value`` M
    at it. Columns that the programme splits become a mixture of maps, one more map for every split.

    Raises
    ------
    ConfigError
        For more rows.
    """
    n = int(geometry.row_point.shape[0])
    if n > LARGEST:
        raise ConfigError(
            f"The linear programme of {n} rows has {n * n} variables.",
            f"Use the solver exact beyond {LARGEST} rows.",
        )
    xp, search = array_namespace(geometry.point), Search(geometry, loss, "float64")
    point, mass = to_numpy(geometry.point), to_numpy(geometry.column_mass)
    column = to_numpy(geometry.column_point)
    cost = np.sum((point[:, None, :] - point[None, column, :]) ** 2, axis=2)
    levels = [to_numpy(level) for level in search.level]
    counts = [last - first for first, last in geometry.columns]
    gain = np.repeat(np.stack(levels, axis=1), counts, axis=1)
    solution = linprog(
        -gain.reshape(-1),
        A_ub=csr_array(cost.reshape(1, -1)),
        b_ub=[budget],
        A_eq=kron(csr_array(np.ones((1, len(point)))), eye_array(len(mass))),
        b_eq=mass,
        bounds=(0, None),
        method="highs",
    )
    eta = max(0.0, -float(solution.ineqlin.marginals[0]))
    dual = eta * budget + float(mass @ np.max(gain - eta * cost, axis=0))
    arrived = np.cumsum(solution.x.reshape(cost.shape) / mass, axis=0)
    # Differences in the last digits of shares are HiGHS's rounding.
    arrived = np.round(arrived / arrived[-1], 9)
    cuts = np.unique(arrived[arrived > 0])
    maps = []
    for share, cut in zip(np.diff(cuts, prepend=0.0), cuts, strict=True):
        target = xp.asarray(np.argmax(arrived >= cut, axis=0), device=device(geometry.point))
        maps.append((float(share), search.piece(eta, budget, target)))
    return finish(search, Minimum(tuple(maps), eta, dual, int(solution.nit), converged=True))
