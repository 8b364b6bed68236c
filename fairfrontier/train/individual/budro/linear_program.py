"""BuDRO's transport as the linear programme it is: the oracle for small n."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from scipy.optimize import linprog
from scipy.sparse import csr_array, kron
from scipy.sparse import eye_array as eye

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.individual.budro.dual import Minimum
from fairfrontier.train.individual.budro.geometry import Geometry
from fairfrontier.train.individual.budro.search import Search
from fairfrontier.train.individual.budro.transport import Transport, finish

Array = Any

LARGEST = 200


def solve_linear_program(
    z: np.ndarray,
    label: np.ndarray,
    loss: np.ndarray,
    budget: float,
    *,
    mass: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Solve max_Π ⟨R, Π⟩ s.t. Π ≥ 0, ⟨C, Π⟩ ≤ ε, Πᵀ1 = m by HiGHS.

    Parameters
    ----------
    z : float64 array of shape (n, k)
        Embedded rows; C_ij = ‖z_i − z_j‖².
    label : int64 array of shape (n,)
        Labels of the columns.
    loss : float64 array of shape (n, n_labels)
        R_ij = loss[i, label[j]].
    budget : float
        ε ≥ 0.
    mass : float64 array of shape (n,), optional
        m; 1/n each by default.

    Returns
    -------
    plan : float64 array of shape (n, n)
        An optimal Π.
    objective : float
        ⟨R, Π⟩.

    Raises
    ------
    ConfigError
        For more than 200 rows: the programme has n² variables.

    References
    ----------
    A. Vargo et al. Individually fair gradient boosting. ICLR 2021, (2.8).
    """
    n = len(z)
    _refuse(n)
    masses = np.full(n, 1.0 / n) if mass is None else mass
    cost = np.sum((z[:, None, :] - z[None, :, :]) ** 2, axis=2)
    found = _optimise(loss[:, label], cost, masses, budget)
    return found.x.reshape(n, n), -float(found.fun)


def solve_merged_programme(geometry: Geometry, loss: Array, budget: float) -> Transport:
    """Solve (2.8) as a linear programme over merged points and columns, as the solvers' result.

    Parameters
    ----------
    geometry : Geometry
        What ``build_geometry`` returns, of at most 200 rows.
    loss : float64 array of shape (n_samples, n_labels)
        ℓ(f(x_i), k) for every label k.
    budget : float
        ε ≥ 0.

    Returns
    -------
    Transport
        ``eta`` is the multiplier that HiGHS gives the budget, and ``dual_value`` M at it.

    Raises
    ------
    ConfigError
        For more than 200 rows.

    Notes
    -----
    Columns that the programme splits become a mixture of maps: one more map for every split.
    """
    _refuse(int(geometry.row_point.shape[0]))
    xp, search = array_namespace(geometry.point), Search(geometry, loss, "float64")
    point, mass = to_numpy(geometry.point), to_numpy(geometry.column_mass)
    column = to_numpy(geometry.column_point)
    cost = np.sum((point[:, None, :] - point[None, column, :]) ** 2, axis=2)
    levels = [to_numpy(each) for each in search.level]
    counts = [last - first for first, last in geometry.columns]
    gain = np.repeat(np.stack(levels, axis=1), counts, axis=1)
    found = _optimise(gain, cost, mass, budget)
    eta = max(0.0, -float(found.ineqlin.marginals[0]))
    dual = eta * budget + float(mass @ np.max(gain - eta * cost, axis=0))
    passed = np.cumsum(found.x.reshape(cost.shape) / mass, axis=0)
    # The last digits of a share are HiGHS's rounding, and no split.
    passed = np.round(passed / passed[-1], 9)
    cuts = np.unique(passed[passed > 0])
    maps = []
    for share, cut in zip(np.diff(cuts, prepend=0.0), cuts, strict=True):
        target = xp.asarray(np.argmax(passed >= cut, axis=0), device=device(geometry.point))
        maps.append((float(share), search.piece(eta, budget, target)))
    return finish(search, Minimum(tuple(maps), eta, dual, int(found.nit), converged=True))


def _refuse(n: int) -> None:
    if n > LARGEST:
        raise ConfigError(
            f"The linear programme of {n} rows has {n * n} variables.",
            f"Use the solver exact beyond {LARGEST} rows.",
        )


def _optimise(gain: np.ndarray, cost: np.ndarray, mass: np.ndarray, budget: float) -> Any:
    """Return HiGHS's answer for max ⟨gain, Π⟩; rows are sources of loss, columns carry the mass."""
    n_rows, n_columns = cost.shape
    return linprog(
        -gain.reshape(-1),
        A_ub=csr_array(cost.reshape(1, -1)),
        b_ub=[budget],
        A_eq=kron(csr_array(np.ones((1, n_rows))), eye(n_columns)),
        b_eq=mass,
        bounds=(0, None),
        method="highs",
    )
