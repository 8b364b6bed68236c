"""BuDRO's rows as points of the fair metric: what stays the same over the rounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.individual.budro.bound import BoundsCache

Array = Any

# Coordinates that lie closer are one: a projection leaves the last digits of coincident rows
# unequal, and in other digits if other rows are projected with them.
SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Portion:
    """The columns that one of several processes moves; each has all points.

    Attributes
    ----------
    number : int64 ndarray of shape (n_columns,)
        Their places among all columns, rising.
    columns : tuple of (first, last)
        Per label, the range of all columns.
    add_up : callable
        float64 ndarray -> its sum over the processes, to the same bits on each of them.
    """

    number: np.ndarray
    columns: tuple[tuple[int, int], ...]
    add_up: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Geometry:
    """What stays the same over the rounds: distinct points, and columns merged by (point, label).

    Attributes
    ----------
    point : float64 array of shape (n_points, k)
        Distinct embedded rows.
    row_point, row_column : int64 arrays of shape (n_samples,)
        Point and merged column of each row; -1 for a column that another process moves.
    row_order, point_stop : int64 arrays of shape (n_samples,) and (n_points,)
        Rows sorted by point, and one past the place of each point's last row in that order.
    columns : tuple of (first, last)
        Per label, the range of its merged columns.
    column_point : int64 array of shape (n_columns,)
        Point of each merged column; columns are sorted by label.
    column_mass : float64 array of shape (n_columns,)
        Sum of the merged masses m_j.
    row_mass : float64 array of shape (n_samples,)
        m_j of each row.
    portion : Portion or None
        Which of all columns these are; None where they are all.
    bounds : BoundsCache
        Where `search` keeps what speeds up its next pass over these columns.
    """

    point: Array
    row_point: Array
    row_column: Array
    row_order: Array
    point_stop: Array
    columns: tuple[tuple[int, int], ...]
    column_point: Array
    column_mass: Array
    row_mass: Array
    portion: Portion | None = None
    bounds: BoundsCache = field(repr=False, default_factory=BoundsCache)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.columns)

    def add_up(self, values: Array) -> Array:
        """Return sums over these columns as sums over all of them."""
        if self.portion is None:
            return values
        total = self.portion.add_up(np.asarray(to_numpy(values), dtype=np.float64))
        return array_namespace(self.point).asarray(total, device=device(self.point))


def build_geometry(
    z: Array, label: Array, *, n_labels: int | None = None, mass: Array | None = None
) -> Geometry:
    """Merge coincident rows and columns, once for all rounds.

    Parameters
    ----------
    z : float64 array of shape (n_samples, k)
        Embedded rows: ‖z_i − z_j‖² is the fair distance. Rows whose coordinates are the
        same, to SAME, are one point.
    label : int64 array of shape (n_samples,)
        Codes 0..n_labels-1.
    n_labels : int, optional
        At least 1 + the largest label; 2 or more.
    mass : float64 array of shape (n_samples,), optional
        Column masses m_j > 0; 1/n each by default.

    Returns
    -------
    Geometry
        On the backend of ``z``.

    Raises
    ------
    DataError
        When a coordinate is not finite.

    Notes
    -----
    One lexicographic sort on the host, O(n k log n); memory O(n k).
    """
    xp = array_namespace(z)
    rows, codes = to_numpy(z), to_numpy(label).astype(np.int64)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise DataError(
            f"The embedding of row {int(np.argmin(finite))} is not finite.",
            "Give rows, and a metric, of finite numbers.",
        )
    n_samples = rows.shape[0]
    masses = np.full(n_samples, 1.0 / n_samples) if mass is None else to_numpy(mass)
    point, row_point = np.unique(snap_coordinates(rows), axis=0, return_inverse=True)
    row_point = row_point.reshape(-1)
    pair, row_column = np.unique(codes * point.shape[0] + row_point, return_inverse=True)
    row_column = row_column.reshape(-1)
    total = max(2, int(codes.max()) + 1) if n_labels is None else n_labels
    bounds = np.searchsorted(pair, np.arange(total + 1) * point.shape[0])
    stop = np.cumsum(np.bincount(row_point, minlength=point.shape[0]))

    def move(values: np.ndarray, kind: str) -> Array:
        return xp.asarray(values.astype(kind), device=device(z))

    return Geometry(
        point=move(point, "float64"),
        row_point=move(row_point, "int64"),
        row_column=move(row_column, "int64"),
        row_order=move(np.argsort(row_point, kind="stable"), "int64"),
        point_stop=move(stop, "int64"),
        columns=tuple((int(a), int(b)) for a, b in itertools.pairwise(bounds)),
        column_point=move(pair % point.shape[0], "int64"),
        column_mass=move(np.bincount(row_column, weights=masses), "float64"),
        row_mass=move(masses, "float64"),
    )


def snap_coordinates(rows: np.ndarray) -> np.ndarray:
    """Replace each coordinate by the lowest of those it is the same as, directly or in a chain.

    Parameters
    ----------
    rows : float64 ndarray of shape (n_samples, k)

    Returns
    -------
    float64 ndarray of shape (n_samples, k)
        Equal for coordinates that differ by their last digits; which ones do, and in which order
        they come, does not hang on these digits, as it would if they were rounded to decimals.
    """
    snapped = np.empty_like(rows)
    for axis in range(rows.shape[1]):
        rising = np.sort(rows[:, axis])
        lowest = rising[np.append(True, np.diff(rising) > SAME)]
        snapped[:, axis] = lowest[np.searchsorted(lowest, rows[:, axis], side="right") - 1]
    # The negative zero is zero.
    return snapped + 0.0


def keep_columns(
    geometry: Geometry, number: np.ndarray, add_up: Callable[[np.ndarray], np.ndarray]
) -> Geometry:
    """Keep the columns that one of several processes moves; all rows and points stay.

    Parameters
    ----------
    geometry : Geometry
        All columns.
    number : int64 ndarray
        Places of the columns to keep, rising; every column is kept by one process.
    add_up : callable
        float64 ndarray -> its sum over the processes, to the same bits on each of them.

    Returns
    -------
    Geometry
        The solvers of `transport` and `entropic` then run in step on all processes and find the
        weights, costs and certificates of the whole; ``destination`` is that of the kept columns.
    """
    xp = array_namespace(geometry.point)

    def move(values: np.ndarray) -> Array:
        return xp.asarray(values.astype(np.int64), device=device(geometry.point))

    ends = [0, *(last for _, last in geometry.columns)]
    place = np.full(ends[-1], -1)
    place[number] = np.arange(number.size)
    kept = move(number)
    return replace(
        geometry,
        row_column=move(place[to_numpy(geometry.row_column)]),
        columns=tuple(
            (int(a), int(b)) for a, b in itertools.pairwise(np.searchsorted(number, ends))
        ),
        column_point=xp.take(geometry.column_point, kept),
        column_mass=xp.take(geometry.column_mass, kept),
        portion=Portion(number, geometry.columns, add_up),
        bounds=BoundsCache(),
    )


def sample_columns(geometry: Geometry, share: float) -> Geometry:
    """Keep a share of the columns of every label, evenly spaced, with the mass of all.

    Parameters
    ----------
    geometry : Geometry
        All columns; within a label they are in the lexicographic order of their points.
    share : float
        In (0, 1]; at least one column of a label that has any is kept.

    Returns
    -------
    Geometry
        For choosing η only: rows are all there, ``row_column`` no longer fits.
    """
    xp, portion = array_namespace(geometry.point), geometry.portion
    chosen, columns, total = [], [], 0
    for first, last in geometry.columns if portion is None else portion.columns:
        size = min(last - first, max(1, round(share * (last - first))))
        places = first + ((np.arange(size) + 0.5) * (last - first) / max(size, 1)).astype(np.int64)
        if portion is not None:
            places = np.flatnonzero(np.isin(portion.number, places))
        chosen.append(xp.asarray(places, device=device(geometry.point)))
        columns.append((total, total + places.size))
        total += places.size
    masses = [xp.take(geometry.column_mass, kept) for kept in chosen]
    whole = [xp.sum(geometry.column_mass[first:last]) for first, last in geometry.columns]
    sums = geometry.add_up(xp.stack([*whole, *(xp.sum(mass) for mass in masses)]))
    n = geometry.n_labels
    masses = [
        mass * (sums[k] / sums[n + k]) if mass.shape[0] else mass for k, mass in enumerate(masses)
    ]
    return replace(
        geometry,
        columns=tuple(columns),
        column_point=xp.take(geometry.column_point, xp.concat(chosen)),
        column_mass=xp.concat(masses),
        bounds=geometry.bounds.sample(share),
    )
