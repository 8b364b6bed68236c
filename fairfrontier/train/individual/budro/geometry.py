"""BuDRO's rows as points of the fair metric, which stay the same over the rounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_namespace

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.individual.budro.bound import BoundsCache

Array = Any

# Coordinates closer than this are equal: projecting coincident rows leaves different last digits,
# which also depend on the other rows.
SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Portion:
    """The columns that one of several processes moves; each has all points.

    ``number`` are their indices among all columns, rising, and ``columns`` the range of each label
    in all columns. ``add_up`` returns the sum of a float64 ndarray over the processes, to the same
    bits on each of them.
    """

    number: np.ndarray
    columns: tuple[tuple[int, int], ...]
    add_up: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Geometry:
    """What stays the same over the rounds: distinct points, and columns merged by (point, label).

    ``point`` (n_points, k) are the distinct embedded rows. ``row_point`` and ``row_column``
    (n_samples,) give the point and the merged column of each row, or -1 for a column of another
    process. ``row_order`` are rows sorted by point, and ``point_stop`` (n_points,) the end of each
    point in that order. Columns are sorted by label: ``columns`` has their range per label,
    ``column_point`` and ``column_mass`` (n_columns,) their point and the sum of merged masses m_j;
    ``row_mass`` are the m_j of rows. ``portion`` says which of all columns these are, if not all,
    and ``bounds`` keeps what speeds up the next pass of `search`.
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

    def find_largest(self, values: Array) -> Array:
        """Return the largest of the rows' values at each point."""
        xp = array_namespace(self.point)
        grouped = xp.take(values, self.row_order)
        if is_numpy_namespace(xp):
            return np.maximum.reduceat(grouped, np.append(0, self.point_stop[:-1]))
        owner = xp.take(self.row_point, self.row_order)
        rising = xp.argsort(grouped)
        by_point = xp.take(rising, xp.argsort(xp.take(owner, rising), stable=True))
        return xp.take(grouped, xp.take(by_point, self.point_stop - 1))

    def add_up(self, values: Array) -> Array:
        """Return sums over these columns as sums over all of them."""
        if self.portion is None:
            return values
        total = self.portion.add_up(np.asarray(to_numpy(values), dtype=np.float64))
        return array_namespace(self.point).asarray(total, device=device(self.point))


def build_geometry(
    z: Array, label: Array, *, n_labels: int | None = None, mass: Array | None = None
) -> Geometry:
    """Merge coincident rows and columns, once for all rounds, on the backend of ``z``.

    ``z`` (n_samples, k) are embedded rows with fair distance ‖z_i − z_j‖²; rows whose coordinates
    agree, to SAME, are one point. ``label`` are codes 0..n_labels-1, and ``mass`` the column masses
    m_j > 0, 1/n by default. Costs one lexicographic sort on the host, O(n k log n), and O(n k)
    memory.

    Raises
    ------
    DataError
        When a coordinate is not finite.
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
    """Replace each coordinate by the lowest of those it agrees with, directly or in a chain.

    Coordinates that differ in their last digits become equal. Unlike rounding to decimals, the
    result does not depend on these digits.
    """
    snapped = np.empty_like(rows)
    for axis in range(rows.shape[1]):
        rising = np.sort(rows[:, axis])
        lowest = rising[np.append(True, np.diff(rising) > SAME)]
        snapped[:, axis] = lowest[np.searchsorted(lowest, rows[:, axis], side="right") - 1]
    # Turns negative zeros into zeros.
    return snapped + 0.0


def keep_columns(
    geometry: Geometry, number: np.ndarray, add_up: Callable[[np.ndarray], np.ndarray]
) -> Geometry:
    """Keep the columns of one process, whose numbers rise; all rows and points stay.

    With ``add_up`` as in `Portion`, the solvers of `transport` and `entropic` run in step on all
    processes and return the weights, costs and certificates of all columns; ``destination`` is that
    of the kept columns.
    """
    xp = array_namespace(geometry.point)

    def move(values: np.ndarray) -> Array:
        return xp.asarray(values.astype(np.int64), device=device(geometry.point))

    ends = [0, *(last for _, last in geometry.columns)]
    new_number = np.full(ends[-1], -1)
    new_number[number] = np.arange(number.size)
    chosen = move(number)
    return replace(
        geometry,
        row_column=move(new_number[to_numpy(geometry.row_column)]),
        columns=tuple(
            (int(a), int(b)) for a, b in itertools.pairwise(np.searchsorted(number, ends))
        ),
        column_point=xp.take(geometry.column_point, chosen),
        column_mass=xp.take(geometry.column_mass, chosen),
        portion=Portion(number, geometry.columns, add_up),
        bounds=BoundsCache(),
    )


def sample_columns(geometry: Geometry, share: float) -> Geometry:
    """Keep a share in (0, 1] of the columns of every label, evenly spaced, with the mass of all.

    At least one column of each label is kept. Only for choosing η: ``row_column`` is no longer
    valid.
    """
    xp, portion = array_namespace(geometry.point), geometry.portion
    chosen, columns, total = [], [], 0
    for first, last in geometry.columns if portion is None else portion.columns:
        size = min(last - first, max(1, round(share * (last - first))))
        numbers = first + ((np.arange(size) + 0.5) * (last - first) / max(size, 1)).astype(np.int64)
        if portion is not None:
            numbers = np.flatnonzero(np.isin(portion.number, numbers))
        chosen.append(xp.asarray(numbers, device=device(geometry.point)))
        columns.append((total, total + numbers.size))
        total += numbers.size
    masses = [xp.take(geometry.column_mass, numbers) for numbers in chosen]
    total_mass = [xp.sum(geometry.column_mass[first:last]) for first, last in geometry.columns]
    sums = geometry.add_up(xp.stack([*total_mass, *(xp.sum(mass) for mass in masses)]))
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
