"""BuDRO's transport problem: where the worst case moves the training rows, at a budget.

    max_Π ⟨R, Π⟩   s.t.  Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                         (2.8)
    min_{η≥0} M(η) = ηε + Σ_j m_j max_i (R_ij − η C_ij)                       (B.14)

C_ij = ‖z_i − z_j‖², and R_ij = loss of row i under the label of column j, so there are only as
many loss vectors as labels. All is array code over one namespace of the array API.

References
----------
A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
Sections 2.2 and 4, Appendix B.2 (Algorithms 2 and 7).

BuDRO's transport with few sources for each column, and a certificate of what that loses.

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
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from array_api_compat import device, is_numpy_namespace

from fairfrontier.models.individual.budro.geometry import (
    TILE,
    Geometry,
    round_off,
    sample_columns,
    split_points,
)
from fairfrontier.models.individual.budro.search import (
    Envelope,
    Minimum,
    Piece,
    Search,
    blocks,
    has_many_pairs,
    minimise_dual,
)
from fairfrontier.runtime.arrays import segment_sum, to_numpy
from fairfrontier.runtime.registry import Registry

Array = Any

# Share of the columns on which a first round seeks η if pairs are many.
COLD_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class Transport:
    """The map that a solver found, with its certificate.

    Attributes
    ----------
    eta : float
        Dual variable; infinite where the budget is 0.
    objective, cost : float
        ⟨R, Π⟩ and ⟨C, Π⟩ of the map.
    dual_value : float
        Smallest M(η) found: an upper bound of the optimum.
    iterations : int
        Passes over all columns, or stochastic steps.
    converged : bool
        Whether the gap met the tolerance; always true for the stochastic solvers.
    weight : float64 array of shape (n_samples, n_labels)
        w(x_i, k) = Σ_j Π_ij 1{y_j = k}; sums to the total mass. Coincident rows that tie share
        equally, so that the next tree does not depend on the order of rows.
    destination : int64 array of shape (n_maps, n_columns)
        Points that each merged column moves to.
    share : tuple of float
        Share of every column's mass that follows each of those maps.
    """

    eta: float
    objective: float
    dual_value: float
    cost: float
    iterations: int
    converged: bool
    weight: Array
    destination: Array
    share: tuple[float, ...]

    @classmethod
    def of(cls, minimum: Minimum, weight: Array, destination: Array) -> Self:
        """Return a minimum of the dual with the weights of the rows and where columns go."""
        return cls(
            eta=minimum.eta,
            objective=minimum.objective,
            dual_value=minimum.dual + minimum.slack,
            cost=minimum.cost,
            iterations=minimum.iterations,
            converged=minimum.converged,
            weight=weight,
            destination=destination,
            share=tuple(share for share, _ in minimum.maps),
        )

    def resume(self) -> tuple[float, Array] | None:
        """Return the η and the map at which the next round begins, unless η is 0 or infinite."""
        return (self.eta, self.destination[0, :]) if 0 < self.eta < float("inf") else None

    @property
    def gap(self) -> float:
        """Duality gap M(η) − ⟨R, Π⟩, ≥ 0 up to rounding for a map within the budget."""
        return self.dual_value - self.objective


Solver = Callable[..., Transport]
SOLVERS: Registry[Solver] = Registry(
    "transport solver",
    "transport_solver",
    ("fairfrontier.models.individual.budro",),
    "fairfrontier.methods",
)


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

    ``dtype`` is the precision of the products in ``exact`` and ``sgd``. Solvers of the papers take
    what is below ``sources``.
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
    def of(cls, model: Any) -> Self:
        """Return an estimator's parameters of the same names, with defaults for the others."""
        names = [option.name for option in fields(cls) if hasattr(model, option.name)]
        return cls(**{name: getattr(model, name) for name in names})


def transport_solver(name: str) -> Callable[[Solver], Solver]:
    """Register a solver ``(problem, setting, start, generator) -> Transport`` under a name."""

    def register(function: Solver) -> Solver:
        SOLVERS.add(name, function, function)
        return function

    return register


def finish(search: Search, minimum: Minimum) -> Transport:
    """Return the map of a minimum, with the weights of the rows."""
    xp, geometry = search.xp, search.geometry
    n_points = geometry.point.shape[0]
    columns, arriving = [], []
    for first, last in geometry.columns:
        mass = geometry.column_mass[first:last]
        came = (
            share * segment_sum(mass, piece.target[first:last], n_points)
            for share, piece in minimum.maps
        )
        arriving.append(sum(came))
    arrived = geometry.add_up(xp.stack(arriving))
    for label in range(geometry.n_labels):
        level = xp.take(search.level[label], geometry.row_point)
        worst = xp.astype(search.loss[:, label] == level, mass.dtype)
        winners = segment_sum(worst, geometry.row_point, n_points)
        columns.append(worst * xp.take(arrived[label, :] / winners, geometry.row_point))
    destination = xp.stack([piece.target for _, piece in minimum.maps], axis=0)
    return Transport.of(minimum, xp.stack(columns, axis=1), destination)


def solve_exact(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    tolerance: float = 1e-3,
    start: Transport | None = None,
    column_share: float | None = None,
    dtype: str = "float32",
    max_iterations: int = 100,
) -> Transport:
    """Solve (2.8) by its one-dimensional dual, to a computed duality gap.

    Every pass over the columns gives an affine piece of M, and `minimise_dual` mixes two maps so
    that the cost is ε exactly. Where nothing binds (η* = 0) every column goes to its cheapest
    worst point and the budget is not used up.

    ``loss`` holds ℓ(f(x_i), k), (n_samples, n_labels). The search stops when the gap is at most
    ``tolerance`` times what moving gains, M(η) − Σ_j m_j R_jj, or unconverged after
    ``max_iterations`` passes. It begins at the η and map of ``start``, the last round's solution.
    With a ``column_share`` η is first sought on that share of the columns: fewer full passes, and
    within the tolerance another of the maps that meet it; COLD_SHARE by default if pairs are many
    and there is no ``start``. ``dtype`` is that of the products, see `Search`.

    A pass is a product of augmented vectors, O(n² k) operations, of which bounds kept from earlier
    passes and rounds (see `bound`) leave some hundredths on NumPy, and a pass between two others
    moves only columns that those leave open (see `envelope`). Memory is O(n) and a table of at most
    512 MiB, kept with the geometry. The order of rows and the number of processes change no map,
    but for values that differ by just the tolerance of ties (see `tie`), to rounding.
    """
    begin = None if start is None else start.resume()
    if column_share is None and begin is None and has_many_pairs(geometry):
        column_share = COLD_SHARE
    search = Search(geometry, loss, dtype)
    # Without a budget nothing moves, whatever is best elsewhere.
    free = search.move_freely(budget) if budget > 0 else search.stay(budget)
    if column_share is not None and free.slope < 0 < budget:
        eta = seek_price(
            geometry, loss, budget, share=column_share, tolerance=tolerance / 10, dtype=dtype
        )
        if 0 < eta < float("inf"):
            begin = (eta, geometry.column_point if begin is None else begin[1])
    return finish(search, _minimise(search, free, begin, tolerance, max_iterations))


def seek_price(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    share: float,
    tolerance: float,
    dtype: str,
    start: float | None = None,
) -> float:
    """Return the η of the problem of a share of the columns, from ``start`` if there is one."""
    sample = Search(sample_columns(geometry, share), loss, dtype)
    begin = None if start is None else (start, sample.geometry.column_point)
    free = sample.move_freely(budget)
    return _minimise(sample, free, begin, tolerance).eta


def _minimise(
    search: Search,
    free: Piece,
    begin: tuple[float, Array] | None,
    tolerance: float,
    max_iterations: int = 100,
) -> Minimum:
    """Minimise M from the piece at η = 0 or from a price and a map."""
    stay = search.stay(free.budget)
    return minimise_dual(
        Envelope(search, free, stay).explore,
        free,
        stay,
        start=begin,
        tolerance=tolerance,
        # Early in boosting all losses are nearly equal, and any map would meet a share of M.
        floor=stay.gain,
        max_iterations=max_iterations,
    )


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
        return solve_exact(geometry, loss, budget, tolerance=tolerance, start=start, dtype=dtype)
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
    )
    unknown = restricted.bound_loss(best, generator)
    return finish(search, replace(minimum, dual=best.dual, slack=best.slack + unknown))


def minimise_restricted(
    move_all: Callable[[float], Piece],
    move_freely: Callable[[], Piece],
    eta: float,
    stay: Piece,
    tolerance: float,
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
        explore, move_freely(), stay, start=(eta, stay.target), tolerance=tolerance, floor=stay.gain
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


@transport_solver("exact")
def _solve_exact(
    problem: Problem, setting: Setting, start: Transport | None, generator: np.random.Generator
) -> Transport:
    given = problem.geometry, problem.loss, problem.budget
    shared: dict[str, Any] = {
        "tolerance": setting.tolerance,
        "start": start,
        "dtype": setting.dtype,
    }
    if setting.sources is None:
        return solve_exact(*given, column_share=setting.column_share, **shared)
    return solve_restricted(*given, sources=setting.sources, generator=generator, **shared)
