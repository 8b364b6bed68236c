"""The inner players of training, which hold the row masses of every group.

These masses are those of hard groups, or of the worst soft assignment. Rows of one noisy group,
decision and label have the same mass, so that tables of cells suffice, whatever the number of rows.

The masses of distributionally robust training, row distributions p̃_j near p̂_j, differ by row.

Rows that are equal have equal gradients and starts, so that p̃_j is stored for merged rows, as mass
by weight. Rows outside of a rate's event have no gradient, and one entry for each noisy group
represents them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import array_api_compat

from fairfrontier.models.noisy.assignment import bound_rates, maximise_by_group
from fairfrontier.models.noisy.noise import BallMaximum, bound_rate_of_cells, maximise_over_ball
from fairfrontier.models.noisy.rate import (
    RATE_CELLS,
    GroupedRows,
    Rate,
    RateCells,
    Sums,
    fill_slopes,
)
from fairfrontier.runtime.arrays import array_namespace

Array = Any


class Game:
    """The R rates that are bounded for every group, and the sums that constraints are made of.

    ``budget`` and ``slack``, float64, shape (M,), are α and β of each model.
    """

    def __init__(
        self, rows: GroupedRows, rates: tuple[Rate, ...], budget: Array, slack: Array
    ) -> None:
        self.rows, self.rates, self.budget, self.slack = rows, rates, budget, slack
        xp = array_namespace(budget)
        self.device = array_api_compat.device(budget)

        numbers = [[float(rate.sign[c % 2]) for c in range(4)] for rate in rates]
        sign = xp.asarray(numbers, dtype=xp.float64, device=self.device)[:, None, :]
        side = xp.asarray([-1.0, -1.0, 1.0, 1.0], dtype=xp.float64, device=self.device)
        # Which cells count with (1 + φ)₊ among the bad, which with (1 − φ)₊, and which are bad.
        self.up, self.down = xp.astype(sign > 0, xp.float64), xp.astype(sign < 0, xp.float64)
        self.wrong = xp.astype(sign == side, xp.float64)
        weights = [
            [xp.sum(xp.astype(rows.weight[rows.cell(label, k)], xp.float64)) for label in (0, 1)]
            for k in range(rows.n_groups)
        ]
        # P(Ĝ=k, Y=y), shape (m̂, 2), whatever the scores.
        self.share = xp.stack([xp.stack(array) for array in weights])

    def sum_rates(self, sums: Sums) -> StepSums:
        """Return the sums of one step, rate by rate."""
        xp = array_namespace(sums.up)
        up, down, count = (array[:, None, ...] for array in (sums.up, sums.down, sums.count))
        bad = up * self.up + down * self.down
        good = up * self.down + down * self.up
        event = count * (self.up + self.down)
        wrong = count * self.wrong
        size = xp.sum(event, axis=(2, 3))
        offset = xp.sum(good, axis=(2, 3)) / size - 1.0 - (self.budget + self.slack)[:, None]
        overall = xp.sum(wrong, axis=(2, 3)) / size + self.budget[:, None]
        return StepSums(sums.count, bad, event, wrong, size, offset, overall)

    def compare_rates(
        self, stage: StepSums, bound_rate: Callable[[RateCells], tuple[Array, Array]]
    ) -> Array:
        """Return constraints with indicators, (M, R, m), given the range of each group's rate.

        A group that cannot have a row of the event counts as one without bad rows.
        """
        xp = array_namespace(stage.count)
        values = []
        for index, rate in enumerate(self.rates):
            low, high = bound_rate(RATE_CELLS[rate.cells])
            bad = 1.0 - low if rate.floor else high
            bad = xp.where(xp.isnan(bad), 0.0, bad)
            values.append(bad - stage.overall[:, index : index + 1])
        return xp.stack(values, axis=1)

    def slope_tables(self, group: Array, pull: Array) -> tuple[Array, Array]:
        """Return the factors of (1 + φ)₊ and (1 − φ)₊ of a row in the Lagrangian, each (M, m̂, 4).

        ``group``, (M, R, m̂, 4), is the factor of the bad side's hinge in each cell, from the
        constraints of all groups; ``pull``, (M, R), that of the good side's hinge of all rows of
        the event.
        """
        xp = array_namespace(group)
        label = xp.asarray([0.0, 1.0, 0.0, 1.0], dtype=xp.float64, device=self.device)
        other = pull[:, :, None, None]
        rise = xp.sum(group * self.up + other * self.down, axis=1) + (1.0 - label)
        fall = xp.sum(group * self.down + other * self.up, axis=1) + label
        return rise, fall


@dataclass(frozen=True, eq=False)
class StepSums:
    """The sums of one step, float64.

    ``count``, shape (M, m̂, 4), is P(Ĝ=k, cell). Over the rows of each rate's event ``bad``,
    ``event`` and ``wrong``, shape (M, R, m̂, 4), are Σ ω (1 + sφ)₊, Σ ω and Σ ω 1{bad}. Of shape
    (M, R), ``size`` is the probability of the event, ``offset`` E[(1 − sφ)₊] − 1 − α − β, which
    constraints with hinges add, and ``overall`` E[1{bad}] + α, which the exact ones subtract.
    """

    count: Array
    bad: Array
    event: Array
    wrong: Array
    size: Array
    offset: Array
    overall: Array


@dataclass(frozen=True, eq=False)
class ConstraintValues:
    """The constraints of a step, as a player sees them, float64; ≤ 0 where satisfied.

    ``hinge`` and ``exact``, (M, R, m), are values with hinges and slack β, and with indicators.
    ``cell_mass``, (M, R, m, m̂, 4), is the row mass relative to the weight in each cell, by which
    the player's constraints can be evaluated on other rows.
    """

    hinge: Array
    exact: Array
    cell_mass: Array


class Player(Protocol):
    """Holds the row masses of the groups while the scores change."""

    n_groups: int

    def evaluate(self, score: Array, stage: StepSums) -> ConstraintValues:
        """Return the constraints at these scores."""
        ...

    def move(self, multiplier: Array, score: Array, stage: StepSums) -> None:
        """Update the masses for multipliers of shape (M, R, m)."""
        ...

    def slope(self, multiplier: Array, score: Array, stage: StepSums) -> Array:
        """Return ∂ Lagrangian / ∂ φ over ω, shape (M, n)."""
        ...


class CellPlayer:
    """Masses that are the same for all rows of a cell: hard groups, or a soft assignment.

    Parameters
    ----------
    game : Game
    mass : float64 array, shape (M, 1, m, m̂, 4) or (M, R, m, m̂, 4)
        Row mass of each true group relative to the weight: 1{k = j} / P(Ĝ=j) of hard groups,
        w(j | c, k) / P(G=j) of an assignment.
    ratio : bool
        Whether constraints divide by the mass in the event; else they are linear in the masses,
        divided by the initial mass in the event.
    by_decision : bool
        Whether masses depend on the decision.
    """

    def __init__(self, game: Game, mass: Array, *, ratio: bool, by_decision: bool) -> None:
        self._game, self._mass = game, mass
        self._ratio, self._by_decision = ratio, by_decision
        self.n_groups = int(mass.shape[2])
        xp = array_namespace(mass)
        # The initial mass of a label's rows does not depend on their decisions.
        shares = xp.concat([game.share, 0.0 * game.share], axis=-1)
        self._nominal = self._inside(shares * (game.up + game.down))

    def _inside(self, table: Array) -> Array:
        """Return Σ mass · table, shape (M, R, m), for a table (M or 1, R, m̂, 4)."""
        xp = array_namespace(self._mass)
        table = table[None, ...] if table.ndim == 3 else table
        return xp.sum(self._mass * table[:, :, None, ...], axis=(3, 4))

    def evaluate(self, score: Array, stage: StepSums) -> ConstraintValues:  # noqa: ARG002 - unlike row players
        """Return the constraints at these scores."""
        xp = array_namespace(self._mass)
        inside, total = self._inside(stage.event), self._inside(stage.bad)
        offset = stage.offset[:, :, None]
        safe = xp.where(inside > 0, inside, 1.0)
        hinge = total / safe + offset if self._ratio else (total + inside * offset) / self._nominal
        # A group to which w assigns no row of the event has no rate to be bounded.
        wrong = self._inside(stage.wrong) / safe
        exact = xp.where(inside > 0, wrong, 0.0) - stage.overall[:, :, None]
        shape = (*exact.shape[:2], *self._mass.shape[2:])
        return ConstraintValues(hinge, exact, xp.broadcast_to(self._mass, shape))

    def move(self, multiplier: Array, score: Array, stage: StepSums) -> None:
        """Do nothing: hard groups are fixed."""

    def slope(self, multiplier: Array, score: Array, stage: StepSums) -> Array:
        """Return ∂ Lagrangian / ∂ φ over ω, shape (M, n)."""
        xp = array_namespace(self._mass)
        inside = self._inside(stage.event)
        scale = multiplier / (xp.where(inside > 0, inside, 1.0) if self._ratio else self._nominal)
        group = xp.sum(scale[..., None, None] * self._mass, axis=2)
        pull = xp.sum(scale * inside, axis=2) / stage.size
        rise, fall = self._game.slope_tables(group, pull)
        return fill_slopes(self._game.rows, score, rise, fall, by_decision=self._by_decision)


def hard_player(game: Game, models: int) -> CellPlayer:
    """Return the player of fixed groups: those of the rows themselves."""
    xp = array_namespace(game.share)
    m = game.rows.n_groups
    own = xp.eye(m, dtype=xp.float64, device=game.device) / xp.sum(game.share, axis=1)
    mass = xp.broadcast_to(own[None, None, :, :, None], (models, 1, m, m, 4))
    return CellPlayer(game, mass, ratio=True, by_decision=False)


class AssignmentPlayer(CellPlayer):
    """For every constraint the soft assignment w(j | ŷ, y, k) within W(θ) that is worst for it.

    ``posterior``, float64 (M, m̂, m), is P(G=j | Ĝ=k); ``ratio`` is as in `CellPlayer`.
    """

    def __init__(self, game: Game, posterior: Array, *, ratio: bool = False) -> None:
        xp = array_namespace(posterior)
        size = xp.sum(game.share, axis=1)
        self._prior = xp.sum(posterior * size[:, None], axis=1)
        every = xp.zeros((4,), dtype=xp.float64, device=game.device)
        self._plain = xp.matrix_transpose(posterior)[..., None] + every
        super().__init__(game, self._relative(self._plain), ratio=ratio, by_decision=True)
        self._posterior = posterior

    def _relative(self, weight: Array) -> Array:
        """Return w(j | c, k) / P(G=j) with an axis for the rates."""
        prior = self._prior[:, None, :, None, None]
        if weight.ndim == 4:
            weight = weight[:, None, ...]
        return weight / prior

    def evaluate(self, score: Array, stage: StepSums) -> ConstraintValues:
        """Find the worst assignments at these scores; constraints are their true maxima."""
        xp = array_namespace(self._posterior)
        gain = stage.bad + stage.offset[:, :, None, None] * stage.event
        worst = [
            maximise_by_group(gain[:, index, ...], stage.count, self._posterior)
            for index in range(len(self._game.rates))
        ]
        self._mass = self._relative(xp.stack(worst, axis=1))
        values = super().evaluate(score, stage)
        exact = self._game.compare_rates(
            stage, lambda rate: bound_rates(stage.count, self._posterior, rate)
        )
        return ConstraintValues(values.hinge, exact, values.cell_mass)


class Event:
    """The rows of the event of one rate or several, and entries that represent the other rows.

    Of the N entries, the first n are the rows ``rows`` of the table; ``others`` more follow, one
    for each noisy group that has other rows. ``count``, (N,), is their weight, ``codes``, (N,),
    their noisy groups, and ``own`` the slices of entries of each noisy group. ``signs`` is s of
    each rate, (n,), 0 outside of its event.
    """

    def __init__(self, game: Game, indices: tuple[int, ...]) -> None:
        rows = game.rows
        xp = array_namespace(rows.weight)
        seen = rows.n_groups
        rates = [game.rates[index] for index in indices]
        labels = [label for label in (0, 1) if any(rate.sign[label] for rate in rates)]
        first, last = rows.event(labels[0]), rows.event(labels[-1])
        self.indices, self.rows = indices, slice(first.start, last.stop)
        dtype, device = rows.weight.dtype, game.device
        groups = xp.arange(seen, dtype=xp.int64, device=device)
        self.signs, codes = [], []
        own: list[list[slice]] = [[] for _ in range(seen)]
        for label in labels:
            for group in range(seen):
                cell = rows.cell(label, group)
                codes.append(groups[group : group + 1] + 0 * xp.astype(rows.weight[cell], xp.int64))
                own[group].append(slice(cell.start - first.start, cell.stop - first.start))
        n = last.stop - first.start
        for rate in rates:
            parts = [
                rate.sign[label] * xp.ones_like(rows.weight[rows.event(label)]) for label in labels
            ]
            self.signs.append(xp.concat(parts))
        others = [label for label in (0, 1) if label not in labels]
        counts = [rows.weight[self.rows]]
        for group in range(seen if others else 0):
            if float(game.share[group, others[0]]) > 0:
                end = n + len(counts) - 1
                own[group].append(slice(end, end + 1))
                codes.append(groups[group : group + 1])
                counts.append(xp.astype(game.share[group, others[0]], dtype)[None])
        self.count, self.codes = xp.concat(counts), xp.concat(codes)
        self.own = [tuple(entries) for entries in own]
        self.n, self.others = n, len(counts) - 1

    def pad(self, values: Array) -> Array:
        """Return values of the rows (M, n) with zeros for the entries of other rows, (M, N)."""
        xp = array_namespace(values)
        zeros = xp.zeros(
            (values.shape[0], self.others),
            dtype=values.dtype,
            device=array_api_compat.device(values),
        )
        return xp.concat([values, zeros], axis=1)

    def hinge(self, number: int, score: Array) -> Array:
        """Return (1 + sφ)₊ of a rate on the rows of its event, shape (M, n), 0 elsewhere."""
        xp = array_namespace(score)
        sign = self.signs[number]
        return xp.maximum(xp.abs(sign) + sign * score[:, self.rows], 0.0)


class BallPlayer:
    """Base of the players on balls: slopes from factors of rows and of rates."""

    def __init__(self, game: Game, level: Array, centre: tuple[int, ...] | None) -> None:
        xp = array_namespace(level)
        self._game, self._level = game, level
        self.n_groups = int(level.shape[1])
        self._centre = tuple(range(self.n_groups)) if centre is None else centre
        # Mass of the centre p̂_j in each rate's event, shape (R, m).
        event = xp.stack([(game.up + game.down)[:, 0, 0], (game.up + game.down)[:, 0, 1]], axis=-1)
        group = game.share / xp.sum(game.share, axis=1)[:, None]
        mass = xp.sum(event[:, None, :] * group[None, :, :], axis=-1)
        self._nominal = xp.stack([mass[:, k] for k in self._centre], axis=-1)

    def _slope(self, factors: list[tuple[Event, int, Array]], pull: Array, score: Array) -> Array:
        """Return the slopes, given factors (M, n) of the bad side's hinge on the rows of events."""
        xp = array_namespace(score)
        group = xp.zeros(
            (score.shape[0], len(self._game.rates), self._game.rows.n_groups, 4),
            dtype=xp.float64,
            device=self._game.device,
        )
        rise, fall = self._game.slope_tables(group, pull)
        slope = fill_slopes(self._game.rows, score, rise, fall, by_decision=False)
        for event, number, factor in factors:
            sign = event.signs[number]
            active = xp.astype(sign * score[:, event.rows] > -1, score.dtype)
            active *= factor
            active *= sign
            slope[:, event.rows] += active
        return slope


class BallMaximumPlayer(BallPlayer):
    """The worst p̃_j of every constraint, in closed form at every step; ``level``, (M, m), is γ_j.

    ``centre`` is as in ``maximise_over_ball``.
    """

    def __init__(self, game: Game, level: Array, centre: tuple[int, ...] | None = None) -> None:
        super().__init__(game, level, centre)
        self._events = [Event(game, (index,)) for index in range(len(game.rates))]
        self._worst: list[tuple[Array, BallMaximum]] = []

    def evaluate(self, score: Array, stage: StepSums) -> ConstraintValues:
        """Find the worst distributions at these scores; constraints are their true maxima."""
        xp = array_namespace(stage.count)
        self._worst, hinge = [], []
        for index, event in enumerate(self._events):
            offset = xp.astype(stage.offset[:, index : index + 1], score.dtype)
            h = event.pad(event.hinge(0, score) + offset)
            worst = maximise_over_ball(
                h, event.codes, self._level, weight=event.count, centre=self._centre
            )
            self._worst.append((h, worst))
            hinge.append(xp.astype(worst.value, xp.float64) / self._nominal[index, :])
        exact = self._game.compare_rates(
            stage, lambda rate: bound_rate_of_cells(stage.count, self._level, rate, self._centre)
        )
        shape = (score.shape[0], len(self._events), self.n_groups, *stage.count.shape[1:])
        nothing = xp.zeros(shape, dtype=xp.float64, device=self._game.device)
        return ConstraintValues(xp.stack(hinge, axis=1), exact, nothing)

    def move(self, multiplier: Array, score: Array, stage: StepSums) -> None:
        """Do nothing: ``evaluate`` finds the worst distributions."""

    def slope(self, multiplier: Array, score: Array, stage: StepSums) -> Array:
        """Return ∂ Lagrangian / ∂ φ over ω, shape (M, n)."""
        xp = array_namespace(stage.count)
        factors, pull = [], []
        for index, (event, (h, worst)) in enumerate(zip(self._events, self._worst, strict=True)):
            scale = xp.astype(multiplier[:, index, :] / self._nominal[index, :], score.dtype)
            mass = worst.combine(scale, h, event.codes, event.count)[:, : event.n]
            pull.append(xp.astype(xp.sum(mass, axis=1), xp.float64))
            factors.append((event, 0, mass / event.count[: event.n]))
        return self._slope(factors, xp.stack(pull, axis=1) / stage.size, score)
