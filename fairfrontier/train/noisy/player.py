"""The inner players of training, which hold the row masses of every group.

These masses are those of hard groups, of the worst soft assignment, or of an assignment after
steps of ascent. Rows of one noisy group, decision and label have the same mass, so that tables of
cells suffice, whatever the number of rows; ``ball_player`` has the players whose masses differ by
row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import array_api_compat

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.train.neural.optimiser import Adam
from fairfrontier.train.noisy.assignment import (
    Variant,
    bound_rates,
    maximise_by_group,
    project_assignment,
)
from fairfrontier.train.noisy.rate import RATE_CELLS, Rate, RateCells
from fairfrontier.train.noisy.row import GroupedRows, Sums, fill_slopes

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
