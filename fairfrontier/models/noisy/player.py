"""The inner players of training, which hold the row masses of every group.

These masses are those of hard groups, of the worst soft assignment, or of an assignment after
steps of ascent. Rows of one noisy group, decision and label have the same mass, so that tables of
cells suffice, whatever the number of rows; ``ball_player`` has the players whose masses differ by
row.

The inner players of distributionally robust training: row distributions p̃_j near p̂_j.

Rows that are equal have equal gradients and starts, so that p̃_j is stored for merged rows, as mass
by weight. Rows outside of a rate's event have no gradient, and one entry for each noisy group
represents them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import array_api_compat

from fairfrontier.models.neural.network import Adam
from fairfrontier.models.noisy.assignment import (
    Variant,
    bound_rates,
    maximise_by_group,
    project_assignment,
)
from fairfrontier.models.noisy.noise import BallMaximum, bound_rate_of_cells, maximise_over_ball
from fairfrontier.models.noisy.rate import (
    RATE_CELLS,
    GroupedRows,
    Rate,
    RateCells,
    Sums,
    fill_slopes,
    find_floor,
    find_level,
)
from fairfrontier.runtime.arrays import array_namespace

Array = Any
Joint = Callable[[Array, Array, Array], Array]


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
    """Soft assignments w(j | ŷ, y, k) within W(θ): the worst ones, or steps towards them.

    Parameters
    ----------
    game : Game
    posterior : float64 array, shape (M, m̂, m)
        P(G=j | Ĝ=k).
    inner : {"ascent", "exact", "joint"}
        ``ascent``: Adam's steps on w, each projected onto W(θ). ``exact``: for every constraint
        the assignment that is worst for it. ``joint``: one worst assignment for Σ λ_j g_j.
    rate : array of shape (M, 1, 1)
        Learning rate of w.
    steps : int
        Steps on w for each step of θ.
    variant : {"paper", "authors"}
        ``paper``: constraints linear in w, which starts at P(G=j | Ĝ=k), projected by Dykstra's
        algorithm. ``authors``: ratios, w starts at 0 and is projected without its correction.
    joint : callable, optional
        Solves for ``joint``: (gain (M, m, m̂, 4), cells, posterior) -> w.
    """

    def __init__(
        self,
        game: Game,
        posterior: Array,
        *,
        inner: Literal["ascent", "exact", "joint"],
        rate: Array,
        steps: int = 1,
        variant: Variant = "paper",
        joint: Joint | None = None,
    ) -> None:
        xp = array_namespace(posterior)
        models, seen, m = posterior.shape
        size = xp.sum(game.share, axis=1)
        self._prior = xp.sum(posterior * size[:, None], axis=1)
        every = xp.zeros((4,), dtype=xp.float64, device=game.device)
        plain = xp.matrix_transpose(posterior)[..., None] + every
        super().__init__(game, self._relative(plain), ratio=variant == "authors", by_decision=True)
        self._posterior, self._inner, self._joint = posterior, inner, joint
        self._steps, self._variant = steps, variant
        self._weight = plain if variant == "paper" else 0.0 * plain
        self._mass = self._relative(self._weight)
        flat = xp.reshape(self._weight, (models, m, seen * 4))
        self._optimiser = Adam([flat], rate)

    def _relative(self, weight: Array) -> Array:
        """Return w(j | c, k) / P(G=j) with an axis for the rates."""
        prior = self._prior[:, None, :, None, None]
        if weight.ndim == 4:
            weight = weight[:, None, ...]
        return weight / prior

    def evaluate(self, score: Array, stage: StepSums) -> ConstraintValues:
        """Return the constraints at these scores.

        With indicators they are true maxima over W(θ) unless w results from ascent.
        """
        if self._inner == "ascent":
            return super().evaluate(score, stage)
        xp = array_namespace(self._posterior)
        if self._inner == "exact":
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

    def move(self, multiplier: Array, score: Array, stage: StepSums) -> None:  # noqa: ARG002
        """Take steps on w, or solve for it."""
        xp = array_namespace(multiplier)
        if self._inner == "joint" and self._joint is not None:
            gradient = self._gradient(multiplier, stage)
            self._weight = self._joint(gradient, stage.count, self._posterior)
            self._mass = self._relative(self._weight)
        elif self._inner == "ascent":
            for _ in range(self._steps):
                gradient = self._gradient(multiplier, stage)
                flat = xp.reshape(gradient, (*gradient.shape[:2], -1))
                flat = self._optimiser.step([flat])[0]
                self._weight = project_assignment(
                    self._weight + xp.reshape(flat, self._weight.shape),
                    stage.count,
                    self._posterior,
                    variant=self._variant,
                )
                if self._variant == "paper":
                    self._weight = self._keep_possible(self._weight)
                self._mass = self._relative(self._weight)

    def _keep_possible(self, weight: Array) -> Array:
        """Return w without the impossible groups of a noisy group, which few rounds leave in it."""
        xp = array_namespace(weight)
        possible = xp.matrix_transpose(self._posterior)[..., None] > 0
        kept = xp.where(possible, weight, 0.0 * weight)
        total = xp.sum(kept, axis=1, keepdims=True)
        plain = xp.matrix_transpose(self._posterior)[..., None] + 0.0 * weight
        return xp.where(total > 0, kept / xp.where(total > 0, total, 1.0), plain)

    def _gradient(self, multiplier: Array, stage: StepSums) -> Array:
        """Return ∂/∂w Σ λ_rj g_rj, shape (M, m, m̂, 4)."""
        xp = array_namespace(multiplier)
        if self._ratio:
            inside = self._inside(stage.event)
            inside = xp.where(inside > 0, inside, 1.0)
            level = (self._inside(stage.bad) / inside)[..., None, None]
            gain = stage.bad[:, :, None, ...] - level * stage.event[:, :, None, ...]
        else:
            inside = self._nominal
            gain = (stage.bad + stage.offset[:, :, None, None] * stage.event)[:, :, None, ...]
        scale = multiplier / (inside * self._prior[:, None, :])
        return xp.sum(scale[..., None, None] * gain, axis=1)


# Entries that are projected at a time on a CPU: they and their temporaries fit into the cache of a
# core, and models whose roots are found do not wait for many others.
BLOCK_ENTRIES = 1 << 17


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


class _BallPlayer:
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


class BallMaximumPlayer(_BallPlayer):
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


class BallAscentPlayer(_BallPlayer):
    """Adam's steps on p̃_j, each projected onto the ball.

    Parameters
    ----------
    game, level, centre
        As in `BallMaximumPlayer`.
    rate : float array, shape (M, 1, 1)
        Learning rate of p̃ (of the mass of a row of weight 1).
    steps : int
        Steps on p̃ for each step of θ.
    variant : {"paper", "authors"}
        ``paper``: a p̃ for each constraint, constraints linear in it, projection onto the ball
        within the simplex. ``authors``: one p̃_j for all rates of a group, constraints as ratios,
        p̃ starts at 0, projection onto the ball, negative entries set to 0.
    """

    def __init__(
        self,
        game: Game,
        level: Array,
        rate: Array,
        *,
        centre: tuple[int, ...] | None = None,
        steps: int = 1,
        variant: Variant = "paper",
    ) -> None:
        super().__init__(game, level, centre)
        indices = tuple(range(len(game.rates)))
        blocks = [(index,) for index in indices] if variant == "paper" else [indices]
        dtype = game.rows.weight.dtype
        xp = array_namespace(level)
        self._steps, self._ratio = steps, variant == "authors"
        self._blocks = [
            _Block(
                Event(game, indices),
                self._centre,
                xp.astype(level, dtype),
                xp.astype(rate * game.rows.total, dtype),
                variant,
            )
            for indices in blocks
        ]

    def evaluate(self, score: Array, stage: StepSums) -> ConstraintValues:
        """Return the constraints at these scores under the present p̃."""
        xp = array_namespace(stage.count)
        values: list[tuple[Array, Array, Array]] = []
        for block in self._blocks:
            table = block.tabulate(score, self._game)
            relative = table / xp.where(stage.count > 0, stage.count, 1.0)[:, None, ...]
            for number, index in enumerate(block.event.indices):
                flags = (self._game.up + self._game.down)[index, 0, :]
                inside = xp.sum(table * flags, axis=(2, 3))
                wrong = xp.sum(table * self._game.wrong[index, 0, :], axis=(2, 3))
                total = block.total(number, score)
                offset = stage.offset[:, index : index + 1]
                safe = xp.where(inside > 0, inside, 1.0)
                hinge = (
                    total / safe + offset
                    if self._ratio
                    else (total + inside * offset) / self._nominal[index, :]
                )
                exact = wrong / safe - stage.overall[:, index : index + 1]
                values.append((hinge, exact, relative))
        return ConstraintValues(*(xp.stack(arrays, axis=1) for arrays in zip(*values, strict=True)))

    def move(self, multiplier: Array, score: Array, stage: StepSums) -> None:
        """Take steps on p̃."""
        for block in self._blocks:
            for _ in range(self._steps):
                block.step(self._gradient(block, multiplier, score, stage))

    def slope(self, multiplier: Array, score: Array, stage: StepSums) -> Array:
        """Return ∂ Lagrangian / ∂ φ over ω, shape (M, n)."""
        xp = array_namespace(stage.count)
        factors, pull = [], []
        for block in self._blocks:
            for number, index in enumerate(block.event.indices):
                inside = block.inside(number)
                scale = multiplier[:, index, :] / (
                    xp.where(inside > 0, inside, 1.0) if self._ratio else self._nominal[index, :]
                )
                pull.append(xp.sum(scale * inside, axis=1))
                factors.append((block.event, number, block.combine(scale)))
        return self._slope(factors, xp.stack(pull, axis=1) / stage.size, score)

    def _gradient(self, block: _Block, multiplier: Array, score: Array, stage: StepSums) -> Array:
        """Return ∂/∂p̃ Σ_r λ_rj g_rj, shape (M, m, n)."""
        xp = array_namespace(score)
        gradient = None
        for number, index in enumerate(block.event.indices):
            h = block.event.hinge(number, score)
            if self._ratio:
                inside = block.inside(number)
                safe = xp.where(inside > 0, inside, 1.0)
                level, scale = block.total(number, score) / safe, multiplier[:, index, :] / safe
            else:
                level = -stage.offset[:, index : index + 1] + 0.0 * self._nominal[index, :]
                scale = multiplier[:, index, :] / self._nominal[index, :]
            sign = xp.abs(block.event.signs[number])
            part = h[:, None, :] - xp.astype(level, h.dtype)[:, :, None] * sign
            part *= xp.astype(scale, h.dtype)[:, :, None]
            gradient = part if gradient is None else gradient + part
        return gradient


class _Block:
    """The p̃_j of one event for every group of every model."""

    def __init__(
        self, event: Event, centre: tuple[int, ...], level: Array, rate: Array, variant: Variant
    ) -> None:
        xp = array_namespace(level)
        models, m = level.shape
        self.event, self._centre, self._variant = event, centre, variant
        self._own = [event.own[k] for k in centre]
        self._base = [
            1.0 / xp.sum(xp.concat([event.count[entries] for entries in own])) for own in self._own
        ]
        shape = (models, m, event.count.shape[0])
        self.mass = xp.zeros(shape, dtype=level.dtype, device=array_api_compat.device(level))
        if variant == "paper":
            for j, own in enumerate(self._own):
                for entries in own:
                    self.mass[:, j, entries] = self._base[j]
        self._half = level[:, :, None]
        self._optimiser = Adam([self.mass[:, :, : event.n]], rate)
        # The roots of the last step, from which the search for the next ones starts.
        self._upper = xp.zeros_like(self._half)
        self._lower = [xp.zeros_like(self._half[:, 0, :]) for _ in range(m)]

    def inside(self, number: int) -> Array:
        """Return the mass in a rate's event, float64, shape (M, m)."""
        xp = array_namespace(self.mass)
        event = self.event
        weight = event.count[: event.n] * xp.abs(event.signs[number])
        return xp.astype(self.mass[:, :, : event.n] @ weight, xp.float64)

    def total(self, number: int, score: Array) -> Array:
        """Return Σ p̃ (1 + sφ)₊ of a rate, float64, shape (M, m)."""
        xp = array_namespace(self.mass)
        event = self.event
        h = event.hinge(number, score) * event.count[: event.n]
        hinge = xp.matmul(self.mass[:, :, : event.n], h[:, :, None])[:, :, 0]
        return xp.astype(hinge, xp.float64)

    def combine(self, scale: Array) -> Array:
        """Return Σ_j scale_j p̃_j over the weight of each row, shape (M, n)."""
        xp = array_namespace(self.mass)
        factor = xp.astype(scale, self.mass.dtype)[:, None, :]
        return xp.matmul(factor, self.mass[:, :, : self.event.n])[:, 0, :]

    def tabulate(self, score: Array, game: Game) -> Array:
        """Return the mass of each group in each cell, (M, m, m̂, 4); 0 outside of the event."""
        xp = array_namespace(score)
        rows = game.rows
        shape = (*self.mass.shape[:2], rows.n_groups, 4)
        table = xp.zeros(shape, dtype=xp.float64, device=game.device)
        for label in (0, 1):
            for group in range(rows.n_groups):
                cell = rows.cell(label, group)
                if not self.event.rows.start <= cell.start < self.event.rows.stop:
                    continue
                start = self.event.rows.start
                mass = self.mass[:, :, cell.start - start : cell.stop - start]
                weight = rows.weight[cell]
                above = xp.astype(score[:, cell] >= 0, score.dtype) * weight
                high = xp.matmul(mass, above[:, :, None])[:, :, 0]
                total = mass @ weight
                table[:, :, group, label] = xp.astype(total - high, xp.float64)
                table[:, :, group, 2 + label] = xp.astype(high, xp.float64)
        return table

    def step(self, gradient: Array) -> None:
        """Ascend along the gradient (M, m, n) and project."""
        direction = self._optimiser.step([gradient])[0]
        self.mass[:, :, : self.event.n] += direction
        models, m, entries = self.mass.shape
        many = models
        if array_api_compat.is_numpy_array(self.mass):
            many = max(1, BLOCK_ENTRIES // (m * entries))
        for first in range(0, models, many):
            self._project(slice(first, min(first + many, models)))

    def _project(self, models: slice) -> None:
        """Project the p̃ of some models onto their balls."""
        xp = array_namespace(self.mass)
        half, upper = self._half[models, ...], self._upper[models, ...]
        point = self.mass[models, ...]
        offset = point + 0.0
        for j, own in enumerate(self._own):
            for entries in own:
                offset[:, j, entries] -= self._base[j]
        if self._variant == "authors":
            size = xp.abs(offset)
            upper = find_level(size, self.event.count, 2 * half, upper)
            within = (size @ self.event.count)[..., None] <= 2 * half
            offset = xp.sign(offset) * xp.where(within, size, xp.maximum(size - upper, 0.0))
            for j, own in enumerate(self._own):
                for entries in own:
                    offset[:, j, entries] += self._base[j]
            self.mass[models, ...] = xp.maximum(offset, 0.0)
            self._upper[models, ...] = upper
            return
        upper = find_level(offset, self.event.count, half, upper)
        gain = xp.maximum(offset - upper, 0.0)
        lows = []
        for j, own in enumerate(self._own):
            values = xp.concat([offset[:, j, entries] for entries in own], axis=-1)
            count = xp.concat([self.event.count[entries] for entries in own])
            low = find_floor(
                values, self._base[j], count, half[:, j, :], self._lower[j][models, ...]
            )
            self._lower[j][models, ...] = low
            for entries in own:
                loss = xp.minimum(xp.maximum(low - offset[:, j, entries], 0.0), self._base[j])
                gain[:, j, entries] += self._base[j] - loss
            lows.append(low)
        # Where the ball does not bind; it contains the simplex from γ = 1 on.
        free = (upper < xp.stack(lows, axis=1)) | (half >= 1)
        if bool(xp.any(free)):
            one = xp.ones_like(half)
            level = find_level(point, self.event.count, one, xp.min(point, axis=-1, keepdims=True))
            gain = xp.where(free, xp.maximum(point - level, 0.0), gain)
        self.mass[models, ...] = gain
        self._upper[models, ...] = upper
