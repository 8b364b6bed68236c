"""BuDRO's stochastic descent on the dual of its transport: Algorithm 2.

    min_{η≥0} M(η) = ηε + Σ_j m_j max_i (R_ij − η C_ij)                       (B.14)

`solve_exact` finds the same minimum by its pieces; this solver is for comparison with the published
results.

References
----------
A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
Algorithm 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.models.individual.budro.geometry import Geometry
from fairfrontier.models.individual.budro.search import Minimum, Search
from fairfrontier.models.individual.budro.transport import (
    Problem,
    Setting,
    Transport,
    finish,
    transport_solver,
)
from fairfrontier.runtime.arrays import to_numpy

Array = Any

# Relative difference of a step's price from the expected one, and steps that are prepared together
# if the last round had no such steps.
NEAR = 0.05
AHEAD = 16


@dataclass(frozen=True, eq=False)
class Descended(Transport):
    """A map that was found by descent; ``path`` has η before each step."""

    path: tuple[float, ...] = ()


@transport_solver("sgd")
def solve_by_descent(
    problem: Problem, setting: Setting, start: Transport | None, generator: np.random.Generator
) -> Transport:
    """Solve a transport problem by stochastic steps on its dual."""
    return solve_sgd(
        problem.geometry,
        problem.loss,
        problem.budget,
        dtype=setting.dtype,
        **read_descent(problem.geometry, setting, start, generator),
    )


def read_descent(
    geometry: Geometry, setting: Setting, start: Transport | None, generator: np.random.Generator
) -> dict[str, Any]:
    """Return the keywords of the stochastic solvers."""
    return {
        "sample": draw_batches(geometry, setting.steps, setting.batch_size, generator),
        "eta": setting.dual_start,
        "momentum": setting.momentum,
        "learning_rate": setting.dual_learning_rate,
        "start": start,
    }


def draw_batches(
    geometry: Geometry, steps: int, batch_size: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw rows in proportion to their masses, with replacement, int64 (steps, batch_size)."""
    mass = to_numpy(geometry.row_mass)
    if mass.min() == mass.max():
        return generator.integers(mass.size, size=(steps, batch_size))
    return generator.choice(mass.size, size=(steps, batch_size), p=mass / mass.sum())


def descend_dual(
    pay: Callable[[np.ndarray, float], float],
    sample: np.ndarray,
    budget: float,
    *,
    eta: float,
    momentum: float,
    learning_rate: float,
) -> float:
    """Approach the minimum of M by stochastic subgradient steps; return the last η.

    v ← μ v + (ε − mean_b C_b),  η ← max(0, η − α v), over batches b of columns: the rows of
    ``sample``, (steps, batch_size) row numbers. ``pay`` takes a batch and η and returns the mean
    cost.
    """
    velocity = 0.0
    for rows in sample:
        velocity = momentum * velocity + budget - pay(rows, eta)
        eta = max(0.0, eta - learning_rate * velocity)
    return eta


def solve_sgd(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    sample: np.ndarray,
    eta: float = 0.1,
    momentum: float = 0.9,
    learning_rate: float = 1e-4,
    start: Transport | None = None,
    dtype: str = "float32",
) -> Descended:
    """Approach the dual's minimum by stochastic subgradient steps, then move all (Algorithm 2).

    v ← μ v + (ε − mean_b C_{i(b),b}),  η ← max(0, η − α v), over batches b of columns: the row
    numbers ``sample``, (steps, batch_size). μ is ``momentum`` and α ``learning_rate``. At the last
    η every column goes to its best row. The cost may be above or below the budget, and ``gap``
    bounds the suboptimality only if it is not above. ``start`` saves work and does not change η.

    O((steps · batch_size + n) n k) operations, most of which bounds save on NumPy as in
    ``solve_exact``. There the columns of all steps are moved at once, for prices around those of
    the same steps a round before; if the steps leave these, for some further steps.
    """
    search = Search(geometry, loss, dtype)
    target = geometry.column_point if start is None else start.destination[0, :]
    expected = start.path if isinstance(start, Descended) else ()
    batches = Batches(search, sample, target, expected)
    eta = descend_dual(
        batches.pay, sample, budget, eta=eta, momentum=momentum, learning_rate=learning_rate
    )
    final = search.move_all(eta, budget, batches.start)
    minimum = Minimum(((1.0, final),), eta, final.dual, sample.shape[0], True, final.slack)
    return Descended(**vars(finish(search, minimum)), path=tuple(batches.path))


class Batches:
    """The costs of batches of columns at the prices of their steps.

    If `search` has bounds, what is best for the columns of many steps is found at once, for prices
    within NEAR of the expected ones: proportional to the last round's, ``expected``, or else the
    present price for some steps. ``path`` collects the prices of the steps so far.
    """

    def __init__(
        self, search: Search, sample: np.ndarray, start: Array, expected: tuple[float, ...]
    ) -> None:
        self.search, self.start = search, start
        self.drawn = to_numpy(search.geometry.row_column)[sample]
        self.path: list[float] = []
        alike = len(expected) == len(sample) and min(expected, default=0.0) > 0
        self.expected = np.asarray(expected) if alike else None
        self.known: deque[tuple[float, float, np.ndarray]] = deque()
        self.lines: Lines | None = None

    def _look_ahead(self, eta: float) -> None:
        """Find what is best for the columns of the next steps near the expected prices."""
        search, step = self.search, len(self.path)
        if search.bounds is not None and search.bounds.blank:
            self.start = search.move_columns(None, self.start, eta)
        prices = np.full(min(AHEAD, len(self.drawn) - step), eta)
        if self.expected is not None:
            stop = step + AHEAD if step else len(self.drawn)
            prices = eta * self.expected[step:stop] / self.expected[step]
        low, high = (1 - NEAR) * prices, (1 + NEAR) * prices
        drawn = self.drawn[step : step + prices.size]
        # In order of columns, as `search` requires; those below 0 belong to other processes.
        order = np.argsort(drawn, axis=None, kind="stable")
        order = order[np.count_nonzero(drawn < 0) :]
        owner, column = order // drawn.shape[1], drawn.ravel()[order]
        start = self.start[column]
        self.lines = trace_lines(search, column, start, low[owner], high[owner])
        places = np.split(
            np.argsort(owner, kind="stable"),
            np.cumsum(np.bincount(owner, minlength=prices.size))[:-1],
        )
        self.known = deque(zip(low, high, places, strict=True))

    def pay(self, rows: np.ndarray, eta: float) -> float:
        """Return the mean cost of the next batch at η."""
        search, geometry = self.search, self.search.geometry
        low, high, places = self.known.popleft() if self.known else (1.0, 0.0, rows)
        if not low <= eta <= high and search.bounds is not None and eta > 0:
            self._look_ahead(eta)
            low, high, places = self.known.popleft()
        if self.lines is not None and low <= eta <= high:
            paid = np.sum(self.lines.choose(places, eta)[1])
        else:
            xp, drawn = search.xp, np.sort(self.drawn[len(self.path)])
            chosen = xp.asarray(drawn[drawn >= 0], device=device(self.start))
            target = search.move_columns(chosen, xp.take(self.start, chosen), eta)
            paid = xp.sum(search.weigh(target, chosen)[1])
        self.path.append(eta)
        return float(geometry.add_up(paid)) / rows.size


# Column, target, gain and cost of some lines.
Found = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines that are best for some columns somewhere in their intervals of η.

    ``low`` and ``high`` (n_columns,) are the intervals and ``own`` the columns' points. ``target``,
    ``gain`` and ``cost`` (n_columns, n_lines) are points, R_ij and C_ij, padded with −∞ gains, in
    the order in which ties are settled. ``tolerance`` is that of `Search`.
    """

    low: np.ndarray
    high: np.ndarray
    target: np.ndarray
    gain: np.ndarray
    cost: np.ndarray
    own: np.ndarray
    tolerance: Callable[[float, np.ndarray], np.ndarray]

    def choose(self, rows: np.ndarray, eta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the targets of some of the columns at η and their costs."""
        value = self.gain[rows] - eta * self.cost[rows]
        enough = np.max(value, axis=1) - self.tolerance(eta, self.own[rows])
        best = np.argmax(value >= enough[:, None], axis=1)
        return self.target[rows, best], self.cost[rows, best]


def trace_lines(
    search: Search, chosen: np.ndarray, start: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Lines:
    """Find the lines that are best for some columns between two prices 0 < low < high of each.

    ``chosen`` are column numbers, rising, possibly repeated, and ``start`` points to start from.
    Each line costs one search at the price where it was lines and at most two where it crosses its
    neighbours.
    """
    own = search.geometry.column_point[chosen]
    left = search.move_columns(chosen, start, low)
    right = left.copy()
    moved = np.flatnonzero(left != own)
    right[moved] = search.move_columns(chosen[moved], left[moved], high[moved])
    column = np.arange(chosen.size)
    lines: list[Found] = [(column, left, *search.weigh(left, chosen))]
    apart = np.flatnonzero(left != right)
    lines.append((apart, right[apart], *search.weigh(right[apart], chosen[apart])))
    lower: Found = tuple(values[apart] for values in lines[0])
    upper: Found = lines[1]
    n_points = search.geometry.point.shape[0]
    seen = np.concatenate([line[0] * n_points + line[1] for line in lines])
    while lower[0].size:
        pending = lower[0]
        eta = _cross(lower, upper, low[pending], high[pending])
        target = search.move_columns(chosen[pending], lower[1], eta)
        new: Found = (pending, target, *search.weigh(target, chosen[pending]))
        above = (
            new[2] - eta * new[3] - np.maximum(lower[2] - eta * lower[3], upper[2] - eta * upper[3])
        )
        code = pending * n_points + target
        # Only rounding lets a line come twice, which might never end.
        fresh = ~np.isin(code, seen)
        seen = np.concatenate([seen, code[fresh]])
        # A line that only ties where others cross is best there if it comes first, nowhere else.
        lines.append(tuple(values[fresh] for values in new))
        keep = np.flatnonzero(fresh & (above > search.tolerance(eta, own[pending])))
        new, lower, upper = (tuple(x[keep] for x in line) for line in (new, lower, upper))
        order = np.argsort(np.concatenate([new[0], new[0]]), kind="stable")
        lower, upper = (
            tuple(np.concatenate(pair)[order] for pair in zip(first, second, strict=True))
            for first, second in ((lower, new), (new, upper))
        )
    return _gather(search, chosen, lines, low, high)


def _cross(lower: Found, upper: Found, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return where lines cross; anywhere in the interval where they are parallel."""
    run = lower[3] - upper[3]
    rise = lower[2] - upper[2]
    eta = np.divide(rise, run, out=low.copy(), where=run > 0)
    crossing: np.ndarray = np.clip(eta, low, high)
    return crossing


def _gather(
    search: Search, chosen: np.ndarray, lines: list[Found], low: np.ndarray, high: np.ndarray
) -> Lines:
    """Put each column's lines into a row."""
    column, target, gain, cost = (np.concatenate(parts) for parts in zip(*lines, strict=True))
    own = search.geometry.column_point[chosen]
    order = np.lexsort((np.where(target == own[column], -1, target), column))
    column, target, gain, cost = (values[order] for values in (column, target, gain, cost))
    count = np.bincount(column, minlength=chosen.size)
    position = np.arange(column.size) - np.repeat(np.cumsum(count) - count, count)
    shape = (chosen.size, int(count.max(initial=1)))
    rows = Lines(
        low,
        high,
        np.zeros(shape, dtype=np.int64),
        np.full(shape, -np.inf),
        np.zeros(shape),
        own,
        search.tolerance,
    )
    for table, values in ((rows.target, target), (rows.gain, gain), (rows.cost, cost)):
        table[column, position] = values
    return rows
