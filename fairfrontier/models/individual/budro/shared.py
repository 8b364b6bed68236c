"""BuDRO's transport for rows that stay with several processes, which share its sources.

Each process has its rows as the columns that may move, and as points to which columns of all may
move. In a round it offers the points that are best for some places of the metric's space, by
R_ik − η‖z_i − c‖² for the middle c of near columns of label k; what all of them offer are the
sources. Blocks of near columns choose among these as in `restricted`, and its bounds hold here,
too, since the columns on which they rest are compared with the points of all processes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fairfrontier.models.individual.budro.geometry import TILE, round_off, split_points
from fairfrontier.models.individual.budro.search import TIE, Minimum, Piece, blocks, minimise_dual
from fairfrontier.models.individual.budro.transport import (
    BLOCK,
    CELL,
    CENTRES,
    CHECKED,
    LOSS,
    LOWER,
    RISK,
    SOUGHT,
    Transport,
    bound_mean,
    choose_cells,
    minimise_restricted,
)

# Places that are offered points, over all processes, and offers for each source of a column.
PLACES = 64
OFFERED = 32
# Places that are compared with all points at once, and columns that are weighed at once.
ABREAST = 8
WEIGHED = 1 << 16


@dataclass(frozen=True, eq=False)
class Process:
    """One of several processes that run in step.

    ``rank`` is its number out of ``size``. ``add_up`` returns the sum of a float64 ndarray over the
    processes, to the same bits on each of them.
    """

    rank: int
    size: int
    add_up: Callable[[np.ndarray], np.ndarray]

    def gather(self, values: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the rows (m, c) of all processes, in their order, and where its own begin."""
        sizes = np.zeros(self.size)
        sizes[self.rank] = len(values)
        ends = np.cumsum(self.add_up(sizes)).astype(np.int64)
        first = int(ends[self.rank]) - len(values)
        whole = np.zeros((int(ends[-1]), values.shape[1]))
        whole[first : first + len(values)] = values
        return self.add_up(whole), first

    def find_largest(self, values: np.ndarray) -> np.ndarray:
        """Return the largest of the processes' values (m,), one by one."""
        table = np.zeros((self.size, values.size))
        table[self.rank] = values
        largest: np.ndarray = self.add_up(table).max(axis=0)
        return largest


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The rows of one process, the same in all rounds; each is a point and a column.

    ``z`` (n_rows, k) is float32, around the mean of all rows, and ``square`` their ‖z‖²; ``label``
    are codes, and ``mass`` adds up to 1 over all processes. ``blocks`` has, for each label, arrays
    of the numbers of near rows, and ``places`` (n_places, k) the middles of some of all processes.
    """

    z: np.ndarray
    square: np.ndarray
    label: np.ndarray
    mass: np.ndarray
    blocks: tuple[tuple[np.ndarray, ...], ...]
    places: tuple[np.ndarray, ...]
    process: Process


def share_rows(
    z: np.ndarray,
    label: np.ndarray,
    mass: np.ndarray,
    n_labels: int,
    sources: int,
    process: Process,
) -> SharedRows:
    """Cut rows into blocks, as many at most as there are sources, and agree on places.

    O(n k log n) operations, and O(k) numbers for each of the places to all processes.
    """
    size = max(BLOCK, -(-2 * len(z) // sources))
    held: list[tuple[np.ndarray, ...]] = []
    places = []
    for k in range(n_labels):
        number = np.flatnonzero(label == k)
        parts: list[np.ndarray] = []
        middles = np.zeros((0, z.shape[1]))
        if number.size:
            order, start = split_points(z, size, number)
            parts = np.split(order, start[1:])
            count = min(len(parts), -(-PLACES // (n_labels * process.size)))
            near = [np.concatenate(each) for each in _deal(parts, count)]
            middles = np.stack([z[each].mean(axis=0, dtype=np.float64) for each in near])
        held.append(tuple(parts))
        places.append(process.gather(middles)[0].astype(np.float32))
    square = np.einsum("ij,ij->i", z, z, dtype=np.float64)
    return SharedRows(z, square, label, mass, tuple(held), tuple(places), process)


def _deal(parts: Sequence[np.ndarray], count: int) -> list[Sequence[np.ndarray]]:
    """Return so many runs of consecutive parts, of nearly equal numbers."""
    ends = np.linspace(0, len(parts), count + 1).astype(int)
    return [parts[first:last] for first, last in itertools.pairwise(ends)]


@dataclass(frozen=True, eq=False)
class Sources:
    """The points that columns may move to in a round: what all processes offered.

    ``z`` (n_sources, k) is float32, ``place`` numbers those that coincide alike, ``level``
    (n_sources, n_labels) is the largest loss there, and ``worst`` says which have it. Those from
    ``first`` on are the rows ``number`` of this process. ``order`` are sources by cell, the last
    one repeated as often as the last cell is short.
    """

    z: np.ndarray
    place: np.ndarray
    level: np.ndarray
    worst: np.ndarray
    number: np.ndarray
    first: int
    order: np.ndarray

    @classmethod
    def of(cls, z: np.ndarray, loss: np.ndarray, number: np.ndarray, first: int) -> Self:
        """Return points with their losses as sources, in cells."""
        distinct, place = np.unique(z, axis=0, return_inverse=True)
        place = place.reshape(-1)
        most = np.full((len(distinct), loss.shape[1]), -np.inf)
        np.maximum.at(most, place, loss)
        level = most[place]
        order, _ = split_points(z, CELL)
        order = np.append(order, np.full(-order.size % CELL, order[-1]))
        return cls(z, place, level, loss == level, number, first, order)

    def line_up(self, label: int, eta: float) -> np.ndarray:
        """Return [2z, (R − centre)/η − ‖z‖²] by cell, in float32; that of the worst at η = 0."""
        level = self.level[:, label]
        top = level.max()
        square = np.einsum("ij,ij->i", self.z, self.z, dtype=np.float64)
        if eta > 0:
            worth = (level - (top + level.min()) / 2) / eta - square
        else:
            worth = np.where(level >= top - TIE * abs(top), -square, -np.inf)
        left = np.concatenate([2.0 * self.z, worth[:, None].astype(np.float32)], axis=1)
        in_cells: np.ndarray = left[self.order]
        return in_cells

    def split_evenly(self, mass: np.ndarray) -> np.ndarray:
        """Split the mass (n_labels, n_sources) at coincident sources among those of most loss."""
        shares = [
            np.bincount(self.place, came) / np.bincount(self.place, worst)
            for came, worst in zip(mass, self.worst.T, strict=True)
        ]
        return self.worst.T * np.stack(shares)[:, self.place]


class SharedSearch:
    """One round: the losses of the rows, and the best of the shared sources for every column.

    A map is an array of sources (n_rows,), −1 for columns that stay; ``shared`` are those that
    `offer` exchanged last.
    """

    shared: Sources

    def __init__(self, rows: SharedRows, loss: np.ndarray, budget: float) -> None:
        self.rows, self.loss, self.budget = rows, loss, budget
        self.own = loss[np.arange(len(loss)), rows.label]
        self.top = rows.process.find_largest(loss.max(axis=0))
        self.stay = self._piece(0.0, np.full(len(loss), -1), self.own, np.zeros(len(loss)))

    def _piece(self, eta: float, target: np.ndarray, gain: np.ndarray, cost: np.ndarray) -> Piece:
        mass = self.rows.mass
        total = self.rows.process.add_up(np.array([mass @ gain, mass @ cost]))
        return Piece(eta, float(total[0]), float(total[1]), self.budget, target)

    def offer(self, eta: float, count: int) -> None:
        """Share about so many points as sources: the best for each place at a price.

        Without a price, at η = 0, they are rows evenly spaced by their number.
        """
        rows = self.rows
        if eta == 0:
            step = max(1, len(self.loss) * rows.process.size // max(1, count))
            return self._share(np.arange(0, len(self.loss), step))
        total = max(1, sum(len(places) for places in rows.places) * rows.process.size)
        quota = min(len(self.loss), -(-count // total))
        chosen = []
        for k, places in enumerate(rows.places):
            worth = (self.loss[:, k] / eta - rows.square).astype(np.float32)
            for first, last in blocks(len(places), ABREAST):
                value = rows.z @ (2.0 * places[first:last].T) + worth[:, None]
                # A view of the last ones would keep all of them.
                chosen += [np.argpartition(column, -quota)[-quota:].copy() for column in value.T]
        return self._share(np.unique(np.concatenate(chosen)))

    def _share(self, number: np.ndarray) -> None:
        """Exchange the rows of these numbers, and the worst of each label, as sources."""
        rows = self.rows
        number = np.union1d(number, self.loss.argmax(axis=0))
        shared, first = rows.process.gather(
            np.concatenate([rows.z[number], self.loss[number]], axis=1)
        )
        k = rows.z.shape[1]
        self.shared = Sources.of(shared[:, :k].astype(np.float32), shared[:, k:], number, first)

    def move_all(self, eta: float, sources: int) -> Piece:
        """Move every column to the best of its sources, or let it stay if none is better.

        Without a price, at η = 0, that is the cheapest of the worst.
        """
        target = np.full(len(self.loss), -1)
        for label, held in enumerate(self.rows.blocks):
            left = self.shared.line_up(label, eta)
            for first in range(0, len(held), CENTRES):
                self._move_blocks(left, held[first : first + CENTRES], sources, target)
        return self._piece(eta, *self._weigh(np.arange(len(target)), target, eta))

    def _move_blocks(
        self, left: np.ndarray, held: Sequence[np.ndarray], sources: int, target: np.ndarray
    ) -> None:
        """Set the best sources of the columns of some blocks."""
        z, shared = self.rows.z, self.shared
        centre = np.stack([_stand(z[block]).mean(axis=0) for block in held], axis=1)
        n_cells = len(left) // CELL
        highest = (left @ centre).reshape(n_cells, CELL, len(held)).max(axis=1)
        chosen = choose_cells(highest.T, min(n_cells, -(-sources // CELL)), np)
        cells = left.reshape(n_cells, CELL, -1)
        for block, cell in zip(held, chosen, strict=True):
            near = cells[cell].reshape(-1, left.shape[1])
            best = np.argmax(_stand(z[block]) @ near.T, axis=1)
            target[block] = shared.order[cell[best // CELL] * CELL + best % CELL]

    def _weigh(
        self, number: np.ndarray, target: np.ndarray, eta: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the targets of some columns that are better than to stay, loss and cost."""
        rows, shared = self.rows, self.shared
        gain, cost = self.own[number], np.zeros(number.size)
        target = target.copy()
        for first, last in blocks(number.size, WEIGHED):
            part, goal = number[first:last], target[first:last]
            step = rows.z[part].astype(np.float64) - shared.z[goal]
            paid = np.einsum("ij,ij->i", step, step)
            reached = shared.level[goal, rows.label[part]]
            better = (goal >= 0) & (reached - eta * paid > gain[first:last])
            gain[first:last] = np.where(better, reached, gain[first:last])
            cost[first:last] = np.where(better, paid, 0.0)
            target[first:last] = np.where(better, goal, -1)
        return target, gain, cost

    def seek_price(self, start: float, tolerance: float) -> float:
        """Return the η of the problem of some columns of every label, and all sources."""
        # The first price is far from any guess: it takes some steps on few columns.
        for columns in (SOUGHT,) if start else (SOUGHT // 16, SOUGHT):
            start = self._seek_price(columns, start, tolerance)
        return start

    def _seek_price(self, columns: int, start: float, tolerance: float) -> float:
        rows, process = self.rows, self.rows.process
        number, weight = self._sample(columns)

        def add_up(eta: float, target: np.ndarray, gain: np.ndarray, cost: np.ndarray) -> Piece:
            total = process.add_up(np.array([weight @ gain, weight @ cost]))
            return Piece(eta, float(total[0]), float(total[1]), self.budget, target)

        def explore(eta: float, _: Any) -> Piece:
            target = np.full(number.size, -1)
            for k in range(len(rows.blocks)):
                left = self.shared.line_up(k, eta)
                mine = np.flatnonzero(rows.label[number] == k)
                for first, last in blocks(mine.size, max(1, 4 * TILE // len(left))):
                    part = mine[first:last]
                    best = np.argmax(_stand(rows.z[number[part]]) @ left.T, axis=1)
                    target[part] = self.shared.order[best]
            return add_up(eta, *self._weigh(number, target, eta))

        stay = add_up(0.0, np.full(number.size, -1), self.own[number], np.zeros(number.size))
        return minimise_dual(
            explore,
            explore(0.0, None),
            stay,
            start=(start, stay.target) if start else None,
            tolerance=tolerance,
            floor=stay.gain,
        ).eta

    def _sample(self, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Return about so many columns, evenly spaced, with the mass of all of their label."""
        rows = self.rows
        numbers, weights = [], []
        for k in range(len(rows.blocks)):
            own = np.flatnonzero(rows.label == k)
            size = -(-columns * own.size // (len(rows.label) * rows.process.size))
            chosen = own[:: max(1, own.size // max(1, size))]
            sums = [rows.mass[own].sum(), rows.mass[chosen].sum()]
            total, taken = rows.process.add_up(np.array(sums))
            numbers.append(chosen)
            weights.append(rows.mass[chosen] * (total / taken if taken > 0 else 0.0))
        return np.concatenate(numbers), np.concatenate(weights)

    def bound_loss(self, piece: Piece, generator: np.random.Generator) -> float:
        """Return an upper bound of Σ_j m_j d_j at the price of a piece, as in `restricted`."""
        rows, process = self.rows, self.rows.process
        _, gain, cost = self._weigh(np.arange(len(self.loss)), piece.target, piece.eta)
        value = gain - piece.eta * cost
        room = np.maximum(self.top[rows.label] - value, 0.0)
        weight = rows.mass * room
        own = float(weight.sum())
        total, n_columns = map(float, process.add_up(np.array([own, weight.size])))
        sampled = n_columns > CHECKED and total > 0
        chosen = np.flatnonzero(weight)
        if sampled and chosen.size:
            # Of each process in proportion to its weight, rounded up.
            draws = generator.random(math.ceil(CHECKED * own / total)) * own
            place = np.searchsorted(np.cumsum(weight), draws, side="right")
            chosen = np.minimum(place, chosen[-1])
        lack = np.clip(self._find_best(chosen, piece.eta) - value[chosen], 0.0, room[chosen])
        if not sampled:
            return float(process.add_up(np.array([rows.mass[chosen] @ lack]))[0])
        sums = np.array([np.sum(lack / room[chosen]), chosen.size])
        share, count = map(float, process.add_up(sums))
        return total * count / CHECKED * bound_mean(share / count, int(count), RISK)

    def _find_best(self, chosen: np.ndarray, eta: float) -> np.ndarray:
        """Return the best value of own columns over all points, not below it for rounding."""
        rows, process = self.rows, self.rows.process
        k = rows.z.shape[1]
        asked, first = process.gather(
            np.concatenate([rows.z[chosen], rows.label[chosen][:, None]], axis=1)
        )
        z, label = asked[:, :k].astype(np.float32), asked[:, k].astype(np.int64)
        square = np.einsum("ij,ij->i", z, z, dtype=np.float64)
        # A product is off by at most unit (2 ‖z_i‖² + 2 ‖z_j‖² + max |R − centre| / η).
        unit = round_off(float(np.finfo(np.float32).eps), k + 2)
        most = np.full(len(z), -np.inf)
        for code in np.unique(label):
            level = self.loss[:, code]
            centre = (level.max() + level.min()) / 2
            worth = ((level - centre) / eta - (1 - 2 * unit) * rows.square).astype(np.float32)
            mine = np.flatnonzero(label == code)
            right = 2.0 * z[mine].T
            best = np.full(mine.size, -np.inf, dtype=np.float32)
            for begin, stop in blocks(len(level), max(1, 4 * TILE // mine.size)):
                product = rows.z[begin:stop] @ right
                product += worth[begin:stop, None]
                np.maximum(best, product.max(axis=0), out=best)
            error = unit * (2 * square[mine] + np.abs(level - centre).max() / eta)
            most[mine] = eta * (best - square[mine] + error) + centre
        return process.find_largest(most)[first : first + chosen.size]

    def finish(self, minimum: Minimum) -> Transport:
        """Return the map of a minimum, with the weights of this process's rows."""
        rows = self.rows
        weight = np.zeros_like(self.loss)
        arrived = np.zeros((len(self.top), len(self.shared.z)))
        for share, piece in minimum.maps:
            mass = share * rows.mass
            stays = np.flatnonzero(piece.target < 0)
            weight[stays, rows.label[stays]] += mass[stays]
            for k, came in enumerate(arrived):
                goes = (piece.target >= 0) & (rows.label == k)
                came += np.bincount(piece.target[goes], mass[goes], came.size)
        split = self.shared.split_evenly(rows.process.add_up(arrived))
        first, number = self.shared.first, self.shared.number
        weight[number] += split[:, first : first + number.size].T
        return Transport.of(minimum, weight, np.zeros((1, 0), dtype=np.int64))


def solve_shared(
    rows: SharedRows,
    loss: np.ndarray,
    budget: float,
    *,
    sources: int,
    generator: np.random.Generator,
    tolerance: float = 1e-3,
    start: float = 0.0,
) -> Transport:
    """Solve (2.8) with ``sources`` points for each column, between bounds as of `solve_restricted`.

    ``loss`` (n_rows, n_labels) are those of this process's rows, and so is the weight; the rest of
    the result is of all processes, which call this in step. η is sought from ``start``, that of the
    last round, on SOUGHT columns among all sources; at 0 among evenly spaced ones first. With a
    budget of 0 nothing moves, not even between coincident rows.

    A process with n rows takes O(n m k) operations for m sources and O(n k) for each of the fixed
    numbers of places and checked columns, and O((n + OFFERED m) k) memory in single precision;
    OFFERED m (k + K) numbers go to all processes, CHECKED (k + 1) for the bound, and two for each
    price that is tried.
    """
    search = SharedSearch(rows, loss, budget)
    if budget == 0:
        search.offer(0.0, 0)
        still = Minimum(((1.0, search.stay),), float("inf"), search.stay.gain, 0, True)
        return search.finish(still)
    eta = start if 0 < start < float("inf") else 0.0
    for _ in range(1 if eta else 2):
        search.offer(eta, OFFERED * sources)
        eta = search.seek_price(eta, LOSS / 10)
        if eta == 0:
            free = search.move_all(0.0, sources)
            if free.slope >= 0:
                return search.finish(Minimum(((1.0, free),), 0.0, free.dual, 0, True))
            eta = (free.gain - search.stay.gain) / free.cost
    minimum, best = minimise_restricted(
        lambda price: search.move_all(price, sources),
        lambda: search.move_all(0.0, sources),
        LOWER * eta,
        search.stay,
        max(tolerance, LOSS),
    )
    unknown = search.bound_loss(best, generator)
    return search.finish(replace(minimum, dual=best.dual, slack=best.slack + unknown))


def _stand(point: np.ndarray) -> np.ndarray:
    """Return [z, 1] of points."""
    return np.concatenate([point, np.ones_like(point[:, :1])], axis=1)
