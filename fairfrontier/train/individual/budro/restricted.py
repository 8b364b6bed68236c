"""BuDRO's transport with few sources for each column, and a certificate of what that loses.

Columns are cut into blocks of near ones, and a column may stay or go to one of the m points that
are best for the centre c of its block, by R_i − η‖z_i − c‖². At a price η let v_j be the value of
the best of these for column j, and V_j that of the best of all points. The dual of all moves is

    M(η) = ηε + Σ_j m_j V_j = ηε + Σ_j m_j v_j + Σ_j m_j d_j,   0 ≤ d_j = V_j − v_j ≤ b_j,

where b_j is the largest loss less v_j. The map of the v_j, mixed with staying if it costs too much,
is one of the maps of (2.8), so that its objective is below the optimum, and M(η) is above it. The
last sum is bounded from CHECKED columns, drawn in proportion to m_j b_j and each compared with all
points: the d_j / b_j are independent, within [0, 1] and of mean Σ m_j d_j / Σ m_j b_j, which
Hoeffding's inequality bounds but for a probability of RISK. If there are no more columns than that
all are compared, and nothing is left to chance.

References
----------
W. Hoeffding. Probability inequalities for sums of bounded random variables. JASA 58, 1963,
Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import device, is_numpy_namespace

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.train.individual.budro.bound import TILE, round_off, split_points
from fairfrontier.train.individual.budro.dual import Minimum, Piece, minimise_dual
from fairfrontier.train.individual.budro.geometry import Geometry
from fairfrontier.train.individual.budro.search import Search, blocks
from fairfrontier.train.individual.budro.transport import Transport, finish, seek_price, solve_exact

Array = Any

# Columns that are compared with all points, and the probability that the bound does not hold.
CHECKED = 1 << 14
RISK = 1e-6
# Columns on which η is sought, the share of what moving gains that this may lose, and the share of
# η that is taken: a price too low costs least, since mixing with staying makes up for it.
SOUGHT = 1 << 13
LOSS = 0.02
LOWER = 0.99
# Points of a cell: sources are taken by the cell. Columns of a block, unless blocks are too many.
CELL = 32
BLOCK = 128
# Centres that are compared with all points at once.
CENTRES = 64


@dataclass(frozen=True, eq=False)
class Layout:
    """Points in cells and columns in blocks, by trees; the same in all rounds.

    ``order`` (n_cells · CELL,) are points by cell, the last one repeated as often as the last cell
    is short. ``blocks`` has an array of column numbers for each block of each label.
    """

    order: np.ndarray
    blocks: tuple[tuple[np.ndarray, ...], ...]


def lay_out(geometry: Geometry, sources: int) -> Layout:
    """Cut points and columns for so many sources, into as many blocks at most as there are sources.

    O(n k log n) operations on the host.
    """
    point, column_point = to_numpy(geometry.point), to_numpy(geometry.column_point)
    order, _ = split_points(point, CELL)
    size = max(BLOCK, -(-2 * column_point.size // sources))
    held = []
    for first, last in geometry.columns:
        members, start = np.arange(0), np.arange(0)
        if last > first:
            members, start = split_points(point[column_point[first:last]], size)
        held.append(tuple(first + part for part in np.split(members, start[1:])))
    return Layout(np.append(order, np.full(-order.size % CELL, order[-1])), tuple(held))


class RestrictedSearch:
    """The best of few sources for every column, in the place of `Search`'s best of all points."""

    def __init__(self, search: Search, layout: Layout, sources: int) -> None:
        self.search, self.layout = search, layout
        n_cells = layout.order.size // CELL
        self.n_open = min(n_cells, -(-sources // CELL))
        xp, self.order = search.xp, search.xp.asarray(layout.order, device=self._device)
        centred = search.geometry.point - xp.mean(search.geometry.point, axis=0)
        self.centred = xp.astype(centred, search.dtype)
        self.square = xp.sum(centred * centred, axis=1)

    @property
    def _device(self) -> Any:
        return device(self.search.geometry.point)

    def _line_up(self, label: int, eta: float, lift: float = 0.0) -> tuple[Array, float, float]:
        """Return [2z, (R − centre)/η − (1 − lift) ‖z‖²] by cell, centre and max |R − centre|."""
        xp, level = self.search.xp, self.search.level[label]
        centre = (float(xp.max(level)) + float(xp.min(level))) / 2
        worth = (level - centre) / eta - (1 - lift) * self.square
        worth = xp.astype(worth, self.search.dtype)
        left = xp.concat([2.0 * self.centred, worth[:, None]], axis=1)
        return xp.take(left, self.order, axis=0), centre, float(xp.max(xp.abs(level - centre)))

    def move_all(self, eta: float, budget: float) -> Piece:
        """Move every column to the best of its sources, or let it stay if none is better."""
        search, geometry, xp = self.search, self.search.geometry, self.search.xp
        own = geometry.column_point
        members, found = [own[:0]], [own[:0]]
        for label, held in enumerate(self.layout.blocks):
            left, *_ = self._line_up(label, eta)
            for first in range(0, len(held), CENTRES):
                part = [
                    xp.asarray(block, device=self._device)
                    for block in held[first : first + CENTRES]
                    if block.size
                ]
                if part:
                    members += part
                    found += self._move_blocks(left, part)
        place = xp.argsort(xp.concat(members))
        target = xp.take(xp.concat(found), place)
        gain, cost = search.weigh(target)
        least, _ = search.weigh(own)
        better = gain - eta * cost > least + search.tolerance(eta, own)
        return search.piece(eta, budget, xp.where(better, target, own))

    def _move_blocks(self, left: Array, members: list[Array]) -> list[Array]:
        """Return the best sources of the columns of some blocks."""
        xp, own = self.search.xp, self.search.geometry.column_point
        rows = [self._stand(xp.take(own, block)) for block in members]
        centre = xp.stack([xp.mean(row, axis=0) for row in rows], axis=1)
        n_cells, height = left.shape[0] // CELL, max(1, TILE // (CELL * len(rows))) * CELL
        highest = xp.concat(
            [
                xp.max(xp.reshape(left[first:stop, :] @ centre, (-1, CELL, len(rows))), axis=1)
                for first, stop in blocks(left.shape[0], height)
            ],
            axis=0,
        )
        cells = xp.reshape(left, (n_cells, CELL, left.shape[1]))
        targets = []
        chosen = choose_cells(highest.T, self.n_open, xp)
        for b, row in enumerate(rows):
            cell = chosen[b, :]
            near = xp.reshape(xp.take(cells, cell, axis=0), (-1, left.shape[1]))
            best = xp.argmax(row @ near.T, axis=1)
            targets.append(xp.take(self.order, xp.take(cell, best // CELL) * CELL + best % CELL))
        return targets

    def _stand(self, point: Array) -> Array:
        """Return [z, 1] of points."""
        xp = self.search.xp
        row = xp.take(self.centred, point, axis=0)
        return xp.concat([row, xp.ones_like(row[:, :1])], axis=1)

    def bound_loss(self, piece: Piece, generator: np.random.Generator) -> float:
        """Return an upper bound of Σ_j m_j d_j at the price of a piece."""
        search, geometry, xp = self.search, self.search.geometry, self.search.xp
        gain, cost = search.weigh(piece.target)
        value = gain - piece.eta * cost
        most = xp.concat(
            [
                xp.full(
                    (last - first,), float(xp.max(level)), dtype=xp.float64, device=self._device
                )
                for level, (first, last) in zip(search.level, geometry.columns, strict=True)
            ]
        )
        room = xp.where(most > value, most - value, 0.0)
        weight = to_numpy(geometry.column_mass * room)
        total = float(weight.sum())
        lost = 0.0
        # Before the branches, which each worker takes for itself: it is a sum over all of them.
        workers = float(geometry.add_up(xp.asarray(1.0, device=self._device)))
        if total > 0 and weight.size <= CHECKED:
            every = xp.arange(weight.size, device=self._device)
            lost = float(xp.sum(geometry.column_mass * self._lack(every, piece.eta, value, room)))
        elif total > 0:
            ends = np.cumsum(weight)
            drawn = np.searchsorted(ends, generator.random(CHECKED) * ends[-1], side="right")
            drawn = np.sort(np.minimum(drawn, np.flatnonzero(weight)[-1]))
            chosen = xp.asarray(drawn, device=self._device)
            lack = self._lack(chosen, piece.eta, xp.take(value, chosen), xp.take(room, chosen))
            share = float(xp.mean(lack / xp.take(room, chosen)))
            lost = total * bound_mean(share, CHECKED, RISK / workers)
        return float(geometry.add_up(xp.asarray(lost, device=self._device)))

    def _lack(self, chosen: Array, eta: float, value: Array, room: Array) -> Array:
        """Return d_j of some columns, rising, and not below it for rounding."""
        search, xp = self.search, self.search.xp
        column, cuts = search.cut_by_label(chosen)
        found = []
        for label, (first, last) in enumerate(cuts):
            if first == last:
                continue
            # A product is off by at most unit (2 ‖z_i‖² + 2 ‖z_j‖² + max |R − centre| / η).
            unit = round_off(float(xp.finfo(search.dtype).eps), self.centred.shape[1] + 2)
            left, centre, spread = self._line_up(label, eta, 2 * unit)
            own = column[first:last]
            right, square = self._stand(own), xp.take(self.square, own)
            height = max(1, TILE // (last - first))
            best = xp.full((last - first,), -xp.inf, dtype=search.dtype, device=self._device)
            for begin, stop in blocks(left.shape[0], height):
                product = left[begin:stop, :] @ right.T
                best = xp.maximum(best, xp.max(product, axis=0))
            error = unit * (2 * square + spread / eta)
            most = xp.astype(best, xp.float64) - square + error
            found.append(eta * most + centre)
        lack = xp.concat(found) - value
        lack = xp.where(lack > 0, lack, 0.0)
        return xp.where(lack < room, lack, room)


def solve_restricted(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    sources: int,
    generator: np.random.Generator,
    tolerance: float = 1e-3,
    start: Transport | None = None,
    dtype: str = "float32",
    max_iterations: int = 100,
) -> Transport:
    """Solve (2.8) with ``sources`` points for each column, between certified bounds.

    ``objective`` is below the optimum of (2.8), since the map is one of its own, and ``dual_value``
    is above it, but for a probability of RISK if there are more than CHECKED columns; ``gap`` holds
    what the restriction loses, what its bound does not know, and what η loses. The last alone is at
    most the larger of ``tolerance`` and LOSS, relative to what moving gains, if ``converged``. η is
    sought on SOUGHT columns, from that of ``start``. With as many sources as points this is
    `solve_exact`.

    O(n m k) operations for m sources, O(n k) for each of the fixed numbers of columns on which η is
    sought and the bound rests, and O((n + m) k) memory besides the table of `solve_exact` for the
    former columns.
    """
    if sources >= geometry.point.shape[0] or budget == 0:
        return solve_exact(
            geometry,
            loss,
            budget,
            tolerance=tolerance,
            start=start,
            dtype=dtype,
            max_iterations=max_iterations,
        )
    search = Search(geometry, loss, dtype)
    stay = search.stay(budget)
    total = (geometry.columns if geometry.portion is None else geometry.portion.columns)[-1][1]
    begin = None if start is None else start.resume()
    eta = 0.0 if begin is None else begin[0]
    # The first price is far from any guess: it takes some steps on few columns.
    for size in (SOUGHT,) if begin else (SOUGHT // 16, SOUGHT):
        eta = seek_price(
            geometry,
            loss,
            budget,
            share=min(1.0, size / total),
            start=eta or None,
            tolerance=LOSS / 10,
            dtype=dtype,
            max_iterations=max_iterations,
        )
    if eta == 0:
        free = search.move_freely(budget)
        if free.slope >= 0:
            return finish(search, minimise_dual(lambda *_: free, free, stay))
        eta = (free.gain - stay.gain) / free.cost
    layouts = geometry.bounds.layouts
    if sources not in layouts:
        layouts[sources] = lay_out(geometry, sources)
    restricted = RestrictedSearch(search, layouts[sources], sources)
    minimum, best = minimise_restricted(
        lambda price: restricted.move_all(price, budget),
        lambda: search.move_freely(budget),
        LOWER * eta,
        stay,
        max(tolerance, LOSS),
        max_iterations,
    )
    unknown = restricted.bound_loss(best, generator)
    return finish(search, replace(minimum, dual=best.dual, slack=best.slack + unknown))


def minimise_restricted(
    move_all: Callable[[float], Piece],
    move_freely: Callable[[], Piece],
    eta: float,
    stay: Piece,
    tolerance: float,
    max_iterations: int,
) -> tuple[Minimum, Piece]:
    """Return a map of the restricted problem, and the piece of its lowest dual value.

    ``move_all`` returns the piece of a price, ``move_freely`` that of η = 0.
    """
    budget = stay.budget
    best = move_all(eta)
    # One map, mixed with staying if it costs too much, is nearly always enough.
    share = 1.0 if best.cost <= budget else budget / best.cost
    maps = ((1.0, best),) if share == 1 else ((share, best), (1 - share, stay))
    minimum = Minimum(maps, eta, best.dual, 1, True, best.slack)
    if best.dual - minimum.objective <= tolerance * (best.dual - stay.gain):
        return minimum, best

    def explore(price: float, _: Array) -> Piece:
        nonlocal best
        piece = move_all(price)
        best = min(best, piece, key=lambda each: each.dual)
        return piece

    minimum = minimise_dual(
        explore,
        move_freely(),
        stay,
        start=(eta, stay.target),
        tolerance=tolerance,
        floor=stay.gain,
        max_iterations=max_iterations,
    )
    return minimum, best


def choose_cells(highest: Array, n_open: int, xp: Any) -> Array:
    """Return the cells that are best for each centre, (n_centres, n_open), in rising order."""
    if n_open == highest.shape[1]:
        return xp.broadcast_to(xp.arange(n_open, device=device(highest)), highest.shape)
    if is_numpy_namespace(xp):
        chosen = np.argpartition(highest, -n_open, axis=1)[:, -n_open:]
    else:
        chosen = xp.argsort(highest, axis=1)[:, -n_open:]
    return xp.sort(chosen, axis=1)


def bound_mean(mean: float, n: int, risk: float) -> float:
    """Return an upper bound of the expectation of n independent variables within [0, 1].

    The largest p ≥ mean with n KL(mean ‖ p) ≤ log(1 / risk), found by bisection; it is exceeded
    with probability ``risk`` at most.
    """
    low, high = min(max(mean, 0.0), 1.0), 1.0
    for _ in range(100):
        middle = (low + high) / 2
        apart = 0.0 if mean <= 0 else mean * math.log(mean / middle)
        if mean < 1:
            apart += (1 - mean) * math.log((1 - mean) / (1 - middle)) if middle < 1 else math.inf
        low, high = (middle, high) if n * apart <= -math.log(risk) else (low, middle)
    return high
