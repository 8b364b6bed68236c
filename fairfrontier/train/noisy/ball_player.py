"""The inner players of distributionally robust training: row distributions p̃_j near p̂_j.

Rows that are equal have equal gradients and starts, so that p̃_j is stored for merged rows, as mass
by weight. Rows outside of a rate's event have no gradient, and one entry for each noisy group
represents them.
"""

from __future__ import annotations

from typing import Any

import array_api_compat

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.train.neural.optimiser import Adam
from fairfrontier.train.noisy.ambiguity import BallMaximum, bound_rate_of_cells, maximise_over_ball
from fairfrontier.train.noisy.assignment import Variant
from fairfrontier.train.noisy.player import ConstraintValues, Game, StepSums
from fairfrontier.train.noisy.projection import find_floor, find_level
from fairfrontier.train.noisy.row import fill_slopes

Array = Any

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
