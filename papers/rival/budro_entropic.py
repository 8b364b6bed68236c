"""BuDRO's transport with entropy: maps that spread, and so do not depend on how ties are broken.

    max_Π ⟨R, Π⟩ − γ Σ_ij Π_ij log(Π_ij / (q_i m_j))  s.t.  Π ≥ 0, ⟨C, Π⟩ ≤ ε, Πᵀ1 = m     (B.1)
    min_{η≥0} E(η) = ηε + Σ_j m_j γ log Σ_i q_i exp((R_ij − η C_ij) / γ)                 (B.12)

q_i = n m_i is 1 for rows of equal mass, where this is the paper's problem; so a row of weight 2
counts as two rows. Given η, column j is Π_ij = m_j q_i exp((R_ij − η C_ij) / γ) over its sum (B.4),
so only η is sought. Coincident rows enter E by their log-sum-exp, so merging them is exact.

References
----------
A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
Appendix B.1 (Algorithms 4-6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from fairfrontier.models.individual.budro.geometry import Geometry, sample_columns
from fairfrontier.models.individual.budro.search import (
    Minimum,
    Piece,
    Search,
    blocks,
    minimise_dual,
)
from fairfrontier.models.individual.budro.transport import (
    Problem,
    Setting,
    Transport,
    transport_solver,
)
from fairfrontier.runtime.arrays import segment_sum, to_numpy
from papers.rival.budro_descent import descend_dual, read_descent

Array = Any

# Entries of a tile of columns × points: 4 MiB of float64, a handful of which live at a time.
TILE = 1 << 19


@dataclass(frozen=True, eq=False)
class Softened(Transport):
    """A map that spreads the mass of columns, by γ, ``entropy_weight``, and the η of each map."""

    entropy_weight: float = 0.0
    etas: tuple[float, ...] = ()

    def spread(self, geometry: Geometry, gain: Array, rows: Array, number: int) -> Array:
        """Return softmax_i((R_ij + γ log q_i − η C_ij) / γ); over coincident rows at η = ∞."""
        xp, gamma, eta = array_namespace(gain), self.entropy_weight, self.etas[number]
        own = xp.take(geometry.row_point, rows)
        value = gain + gamma * xp.log(geometry.row_mass / xp.mean(geometry.row_mass))[:, None]
        if eta == float("inf"):
            value = xp.where(geometry.row_point[:, None] == own[None, :], value, -xp.inf)
        else:
            z = xp.take(geometry.point, geometry.row_point, axis=0)
            step = z[:, None, :] - xp.take(geometry.point, own, axis=0)[None, :, :]
            value = value - eta * xp.sum(step * step, axis=2)
        term = xp.exp((value - xp.max(value, axis=0)) / gamma)
        return term / xp.sum(term, axis=0)


@transport_solver("sinkhorn")
def solve_by_entropy(
    problem: Problem,
    setting: Setting,
    start: Transport | None,
    generator: np.random.Generator,  # noqa: ARG001 - nothing is drawn
) -> Transport:
    """Solve the entropic problem by its root (Algorithms 4 and 5)."""
    return solve_sinkhorn(
        problem.geometry,
        problem.loss,
        problem.budget,
        entropy_weight=setting.entropy_weight,
        tolerance=setting.tolerance,
        start=start,
        column_share=setting.column_share,
    )


@transport_solver("sinkhorn_sgd")
def solve_by_entropic_descent(
    problem: Problem, setting: Setting, start: Transport | None, generator: np.random.Generator
) -> Transport:
    """Solve the entropic problem by stochastic steps (Algorithm 6)."""
    return solve_sinkhorn_sgd(
        problem.geometry,
        problem.loss,
        problem.budget,
        entropy_weight=setting.entropy_weight,
        **read_descent(problem.geometry, setting, start, generator),
    )


@dataclass(frozen=True, eq=False)
class _Spread:
    """Where a map sends the mass: enough to boost, and to start the next pass."""

    arrived: tuple[Array, ...]  # per label (n_points,), mass that arrives
    likeliest: Array  # (n_columns,), point of the largest term


@dataclass(frozen=True, eq=False)
class _Levels:
    """Points in falling order of γ log Σ q_i exp(R_i / γ) over their rows, for one label."""

    level: Array  # (n_points,)
    within: Array  # (n_samples,), share of a row in its point
    order: Array  # (n_points,)
    sorted: Array  # (n_points,), levels in that order
    left: Array  # (n_points, k + 2) = [−2z, ‖z‖², 1] in that order


class _Softmax:
    """The inner maximisation of E for given losses, in tiles of columns × points."""

    def __init__(self, geometry: Geometry, loss: Array, entropy_weight: float) -> None:
        xp = array_namespace(geometry.point)
        self.xp, self.geometry, self.loss, self.gamma = xp, geometry, loss, entropy_weight
        self.n_points = geometry.point.shape[0]
        # Distances come from products, which lose least near the origin.
        self.point = geometry.point - xp.mean(geometry.point, axis=0)
        self.square = xp.sum(self.point * self.point, axis=1)
        # Rounding of ‖z_i‖² + ‖z_j‖² − 2 z_iᵀz_j: below it two points are equal.
        self.noise = 16 * float(xp.finfo(xp.float64).eps) * float(xp.max(self.square))
        # All terms so far below the largest one add up to less than a rounding error.
        self.reach = entropy_weight * (37.0 + math.log(self.n_points))
        self.levels = [self._sort(k) for k in range(geometry.n_labels)]

    def _sort(self, label: int) -> _Levels:
        xp, geometry, gamma = self.xp, self.geometry, self.gamma
        loss = self.loss[:, label]
        top = xp.take(geometry.find_largest(loss), geometry.row_point)
        count = geometry.row_mass / xp.mean(geometry.row_mass)
        term = count * xp.exp((loss - top) / gamma)
        total = segment_sum(term, geometry.row_point, self.n_points)
        first = xp.take(geometry.row_order, geometry.point_stop - 1)
        level = xp.take(top, first) + gamma * xp.log(total)
        order = xp.argsort(level, descending=True)
        square = xp.take(self.square, order)[:, None]
        point = xp.take(self.point, order, axis=0)
        left = xp.concat([-2.0 * point, square, xp.ones_like(square)], axis=1)
        within = term / xp.take(total, geometry.row_point)
        return _Levels(level, within, order, xp.take(level, order), left)

    def stay(self, budget: float) -> Piece:
        """Return the piece of the map that moves mass among coincident rows only (η → ∞)."""
        xp, geometry = self.xp, self.geometry
        arrived, gain = [], 0.0
        for label, (first, last) in enumerate(geometry.columns):
            mass, column = geometry.column_mass[first:last], geometry.column_point[first:last]
            arrived.append(segment_sum(mass, column, self.n_points))
            gain += float(xp.sum(mass * xp.take(self.levels[label].level, column)))
        gain, _ = self.add_up(gain, 0.0)
        # At a price of 0, equivalent since its cost is 0: an infinite one would make M undefined.
        return Piece(0.0, gain, 0.0, budget, _Spread(tuple(arrived), geometry.column_point))

    def free(self, budget: float) -> Piece:
        """Return the piece at η = 0, where all columns of a label spread alike."""
        xp, geometry = self.xp, self.geometry
        arrived, likeliest, gain, cost = [], [], 0.0, 0.0
        for levels, (first, last) in zip(self.levels, geometry.columns, strict=True):
            mass, column = geometry.column_mass[first:last], geometry.column_point[first:last]
            share, total = self._normalise(levels.level[None, :])
            share = share[0, :]
            moved = xp.sum(mass)
            arrived.append(moved * share)
            likeliest.append(xp.full_like(column, int(levels.order[0])))
            centre = xp.sum(share[:, None] * self.point, axis=0)
            paid = xp.take(self.square, column) - 2.0 * (
                xp.take(self.point, column, axis=0) @ centre
            )
            gain += float(moved * total[0])
            cost += float(xp.sum(mass * (paid + xp.sum(share * self.square))))
        gain, cost = self.add_up(gain, cost)
        cost = 0.0 if self.n_points == 1 else max(0.0, cost)
        return Piece(0.0, gain, cost, budget, _Spread(tuple(arrived), xp.concat(likeliest)))

    def spread(self, eta: float, budget: float, start: _Spread) -> Piece:
        """Return the piece at η: every column spreads over the points by (B.4)."""
        xp, geometry = self.xp, self.geometry
        arrived, likeliest, gain, cost = [], [], 0.0, 0.0
        for label, (first, last) in enumerate(geometry.columns):
            mass, column = geometry.column_mass[first:last], geometry.column_point[first:last]
            came, best, total, paid = self._spread_label(
                label, column, start.likeliest[first:last], mass, eta
            )
            arrived.append(came)
            likeliest.append(best)
            cost += float(xp.sum(mass * paid))
            gain += float(xp.sum(mass * total)) + eta * float(xp.sum(mass * paid))
        gain, cost = self.add_up(gain, cost)
        return Piece(eta, gain, cost, budget, _Spread(tuple(arrived), xp.concat(likeliest)))

    def add_up(self, gain: float, cost: float) -> tuple[float, float]:
        """Return two sums over the columns here as sums over all columns."""
        both = self.xp.asarray([gain, cost], dtype=self.xp.float64, device=device(self.point))
        sums = self.geometry.add_up(both)
        return float(sums[0]), float(sums[1])

    def pay(self, label: int, column: Array, eta: float) -> Array:
        """Return the mean costs of columns at η."""
        ones = self.xp.ones(column.shape, dtype=self.xp.float64, device=device(column))
        return self._spread_label(label, column, column, ones, eta)[3]

    def _spread_label(
        self, label: int, column: Array, start: Array, mass: Array, eta: float
    ) -> tuple[Array, Array, Array, Array]:
        """Return the mass that arrives at points; likeliest point, γ log Σ and cost of columns."""
        xp, levels = self.xp, self.levels[label]
        arrived = xp.zeros(self.n_points, dtype=xp.float64, device=device(mass))
        if column.shape[0] == 0:
            return arrived, column, mass, mass
        step = xp.take(self.point, start, axis=0) - xp.take(self.point, column, axis=0)
        bound = xp.take(levels.level, start) - eta * xp.sum(step * step, axis=1)
        bound = xp.maximum(bound, xp.take(levels.level, column)) - self.reach
        order = xp.argsort(bound, descending=True)
        column, mass, bound = (xp.take(values, order) for values in (column, mass, bound))
        square = xp.take(self.square, column)[:, None]
        right = xp.concat(
            [xp.take(self.point, column, axis=0), xp.ones_like(square), square], axis=1
        )
        tiles = blocks(column.shape[0], max(1, TILE // self.n_points))
        ends = xp.asarray([stop - 1 for _, stop in tiles], device=device(bound))
        reached = xp.searchsorted(-levels.sorted, -xp.take(bound, ends), side="right")
        nothing = xp.zeros((), dtype=xp.float64, device=device(mass))
        best, totals, paid = [], [], []
        for (first, stop), length in zip(tiles, to_numpy(reached), strict=True):
            n = max(1, int(length))
            cost = right[first:stop, :] @ levels.left[:n, :].T
            cost = xp.where(cost > self.noise, cost, nothing)
            share, total = self._normalise(levels.sorted[None, :n] - eta * cost)
            best.append(xp.argmax(share, axis=1))
            totals.append(total)
            paid.append(xp.sum(share * cost, axis=1))
            arrived[:n] += mass[first:stop] @ share
        back = xp.argsort(order)
        return (
            xp.take(arrived, xp.argsort(levels.order)),
            xp.take(xp.take(levels.order, xp.concat(best)), back),
            xp.take(xp.concat(totals), back),
            xp.take(xp.concat(paid), back),
        )

    def _normalise(self, value: Array) -> tuple[Array, Array]:
        """Return softmax(v / γ) and γ log Σ exp(v / γ) along rows."""
        xp = self.xp
        top = xp.max(value, axis=1, keepdims=True)
        term = xp.exp((value - top) / self.gamma)
        total = xp.sum(term, axis=1, keepdims=True)
        return term / total, (top + self.gamma * xp.log(total))[:, 0]

    def finish(self, minimum: Minimum, budget: float) -> Softened:
        """Return the map of a minimum, with a certificate for the problem without entropy."""
        xp, geometry = self.xp, self.geometry
        arriving = [
            sum(share * piece.target.arrived[label] for share, piece in minimum.maps)
            for label in range(geometry.n_labels)
        ]
        arrived, columns = geometry.add_up(xp.stack(arriving)), []
        for label, levels in enumerate(self.levels):
            columns.append(levels.within * xp.take(arrived[label, :], geometry.row_point))
        weight = xp.stack(columns, axis=1)
        best = min((piece for _, piece in minimum.maps), key=lambda piece: piece.dual)
        return Softened(
            eta=minimum.eta,
            objective=float(xp.sum(weight * self.loss)),
            dual_value=self._bound(best, budget, minimum.eta),
            cost=minimum.cost,
            iterations=minimum.iterations,
            converged=minimum.converged,
            weight=weight,
            destination=xp.stack([piece.target.likeliest for _, piece in minimum.maps], axis=0),
            share=tuple(share for share, _ in minimum.maps),
            etas=tuple(
                minimum.eta if len(minimum.maps) == 1 else piece.eta for _, piece in minimum.maps
            ),
            entropy_weight=self.gamma,
        )

    def _bound(self, best: Piece, budget: float, eta: float) -> float:
        """Return M(η), which bounds the problem without entropy at any η."""
        search = Search(self.geometry, self.loss, "float64")
        if math.isinf(eta):
            return search.piece(0.0, budget, self.geometry.column_point).bound
        if best.eta == 0:
            return search.move_freely(budget).bound
        return search.move_all(best.eta, budget, best.target.likeliest).bound


def solve_sinkhorn(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    entropy_weight: float,
    tolerance: float = 1e-3,
    start: Transport | None = None,
    column_share: float | None = None,
    max_iterations: int = 100,
) -> Transport:
    """Solve the entropic problem (B.1) by its one-dimensional dual.

    E is convex and every pass gives one of its tangents, whose slope is m(η) of Algorithm 4;
    `minimise_dual` brackets the root of m, and mixes the maps of the two ends (Algorithm 5) so that
    the cost is ε exactly, until their entropic duality gap is small.

    Arguments are those of ``solve_exact``, and γ = ``entropy_weight`` > 0 in units of the loss;
    ``tolerance`` is a share of what moving gains, the entropy included. ``objective`` is ⟨R, Π⟩
    without the entropy, and ``dual_value`` bounds the optimum of (2.8): with rows of equal mass
    ``gap`` is at most γ log n plus what ``tolerance`` allows. At budget 0 ``eta`` is infinite, and
    mass spreads among coincident rows.

    A pass costs O(n² k) operations and as many exponentials, in tiles of O(n k) memory; points
    whose terms are below rounding, which a small γ makes most of, are left out.
    """
    softmax = _Softmax(geometry, loss, entropy_weight)
    free, stay = softmax.free(budget), softmax.stay(budget)
    begin = None if start is None else start.resume()
    if column_share is not None and free.slope < 0 < budget:
        sample = sample_columns(geometry, column_share)
        eta = solve_sinkhorn(
            sample, loss, budget, entropy_weight=entropy_weight, tolerance=tolerance / 10
        ).eta
        if eta > 0:
            begin = (eta, geometry.column_point if begin is None else begin[1])
    minimum = minimise_dual(
        lambda eta, start: softmax.spread(eta, budget, start),
        free,
        stay,
        start=None if begin is None else (begin[0], _Spread((), begin[1])),
        tolerance=tolerance,
        floor=stay.gain,
        max_iterations=max_iterations,
    )
    return softmax.finish(minimum, budget)


def solve_sinkhorn_sgd(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    sample: np.ndarray,
    entropy_weight: float,
    eta: float = 0.1,
    momentum: float = 0.9,
    learning_rate: float = 1e-4,
    start: Transport | None = None,
) -> Transport:
    """Approach the minimum of E by stochastic steps (Algorithm 6), then spread all (Algorithm 5).

    The gradient of a batch is ε minus the mean cost of its columns; the text's sum over the batch
    lacks its 1/B. Where nothing binds, m(0) ≥ 0, η is 0 without a step. Arguments are those of
    ``solve_sgd`` and ``solve_sinkhorn``; the paper's Algorithm 6 has no momentum. O((steps ·
    batch_size + n) n k) operations, in tiles of O(n k) memory.
    """
    softmax = _Softmax(geometry, loss, entropy_weight)
    free = softmax.free(budget)
    if free.slope >= 0:
        return softmax.finish(Minimum(((1.0, free),), 0.0, free.dual, 0, converged=True), budget)
    xp, last = softmax.xp, [last for _, last in geometry.columns]
    row_column = to_numpy(geometry.row_column)

    def pay(rows: np.ndarray, price: float) -> float:
        drawn = np.sort(row_column[rows])
        drawn = drawn[drawn >= 0]
        paid = 0.0
        for label, columns in enumerate(np.split(drawn, np.searchsorted(drawn, last[:-1]))):
            chosen = xp.asarray(columns, device=device(geometry.column_point))
            column = xp.take(geometry.column_point, chosen)
            paid += float(xp.sum(softmax.pay(label, column, price)))
        return softmax.add_up(0.0, paid)[1] / rows.size

    eta = descend_dual(pay, sample, budget, eta=eta, momentum=momentum, learning_rate=learning_rate)
    target = geometry.column_point if start is None else start.destination[0, :]
    final = softmax.spread(eta, budget, _Spread((), target))
    minimum = Minimum(((1.0, final),), eta, final.dual, sample.shape[0], converged=True)
    return softmax.finish(minimum, budget)
