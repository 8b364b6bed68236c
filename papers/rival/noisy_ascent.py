"""The inner players of noisy groups as the paper finds them: steps of ascent, projected.

The row masses of the constraints, p̃_j near p̂_j or soft assignments w, take Adam's steps and are
projected after each. `player` has their true maxima in closed form; these players are for
comparison with the published results, which they made.

References
----------
Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020, algorithms
2 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import array_api_compat

from fairfrontier.models.neural.network import Adam
from fairfrontier.models.noisy.player import (
    AssignmentPlayer,
    BallPlayer,
    CellPlayer,
    ConstraintValues,
    Event,
    Game,
    Player,
    StepSums,
)
from fairfrontier.models.noisy.problem import ConstrainedProblem, Setting
from fairfrontier.models.noisy.rate import N_CELLS, project_simplex
from fairfrontier.models.noisy.solver import inner_player
from fairfrontier.runtime.arrays import array_namespace

Array = Any
Variant = Literal["paper", "authors"]

# Columns of at most this many entries are sorted by exchanges between rows.
FEW = 6
# A root takes about four passes from the last step's, ten from further away.
MOST_PASSES = 100
# Entries that are projected at a time on a CPU: they and their temporaries fit into the cache of a
# core, and models whose roots are found do not wait for many others.
BLOCK_ENTRIES = 1 << 17


@inner_player("ascent")
def start_ascent(
    problems: Sequence[ConstrainedProblem],
    settings: Sequence[Setting],
    game: Game,
    stack: Callable[[Sequence[Any]], Array],
) -> Player:
    """Return the player that ascends, of distributionally robust training or soft assignments."""
    leader = settings[0]
    noises = [problem.noise for problem in problems if problem.noise is not None]
    rate = stack([setting.inner_rate for setting in settings])[:, None, None]
    options: dict[str, Any] = {"steps": leader.inner_steps, "variant": leader.variant}
    if leader.approach == "dro":
        level = stack([problem.level for problem in problems])
        centre = noises[0].centre if noises else None
        return BallAscentPlayer(game, level, rate, centre=centre, **options)
    posterior = stack([noise.posterior for noise in noises])
    return AssignmentAscentPlayer(game, posterior, rate, **options)


class AssignmentAscentPlayer(AssignmentPlayer):
    """Adam's steps on soft assignments w(j | ŷ, y, k), each projected onto W(θ).

    Parameters
    ----------
    game, posterior
        As in `AssignmentPlayer`.
    rate : float64 array, shape (M, 1, 1)
        Learning rate of w.
    steps : int
        Steps on w for each step of θ.
    variant : {"paper", "authors"}
        ``paper``: constraints linear in w, which starts at P(G=j | Ĝ=k), projected by Dykstra's
        algorithm. ``authors``: ratios, w starts at 0 and is projected without its correction.
    """

    def __init__(
        self,
        game: Game,
        posterior: Array,
        rate: Array,
        *,
        steps: int = 1,
        variant: Variant = "paper",
    ) -> None:
        super().__init__(game, posterior, ratio=variant == "authors")
        xp = array_namespace(posterior)
        self._steps, self._variant = steps, variant
        self._weight = self._plain if variant == "paper" else 0.0 * self._plain
        self._mass = self._relative(self._weight)
        models, m, seen, _ = self._weight.shape
        self._optimiser = Adam([xp.reshape(self._weight, (models, m, seen * N_CELLS))], rate)

    def evaluate(self, score: Array, stage: StepSums) -> ConstraintValues:
        """Return the constraints at these scores under the present w."""
        return CellPlayer.evaluate(self, score, stage)

    def move(self, multiplier: Array, score: Array, stage: StepSums) -> None:  # noqa: ARG002
        """Take steps on w."""
        xp = array_namespace(multiplier)
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


class BallAscentPlayer(BallPlayer):
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


def project_assignment(
    weight: Array, cells: Array, posterior: Array, *, rounds: int = 20, variant: Variant = "paper"
) -> Array:
    """Project onto W(θ) by alternating projections.

    argmin ‖w − x‖² s.t. Σ_c w(j | c, k) P(c | k) = P(G=j | Ĝ=k), Σ_j w(j | c, k) = 1, w ≥ 0

    The variant ``paper`` is Dykstra's algorithm between the total probabilities and the simplices,
    whose limit is the nearest point of W(θ). ``authors`` projects onto w ≥ 0 and Σ_j w = 1
    separately and without Dykstra's correction, as their code sets negative entries to 0
    afterwards: a point near W(θ), not the nearest. After finitely many rounds the total
    probabilities hold approximately; the sums over j are exact in the variant ``paper`` only.
    O(rounds × M m m̂).

    References
    ----------
    J. P. Boyle, R. L. Dykstra. A method for finding projections onto the intersection of convex
    sets in Hilbert spaces. Lecture Notes in Statistics 37, 1986.
    """
    xp = array_namespace(weight)
    groups, seen = int(weight.shape[-3]), int(weight.shape[-2])
    lead = weight.shape[:-3]
    # True groups and cells first, so that a pass over all models and noisy groups is one operation.
    point = xp.permute_dims(xp.reshape(weight, (-1, groups, seen, N_CELLS)), (1, 3, 0, 2)) + 0.0
    masses = xp.reshape(xp.broadcast_to(cells, (*lead, seen, N_CELLS)), (-1, seen, N_CELLS))
    targets = xp.reshape(xp.broadcast_to(posterior, (*lead, seen, groups)), (-1, seen, groups))
    target = xp.permute_dims(targets, (2, 0, 1)) + 0.0
    size = xp.sum(masses, axis=-1, keepdims=True)
    share = xp.permute_dims(masses / xp.where(size > 0, size, 1.0), (2, 0, 1)) + 0.0
    square = _add([share[cell, ...] * share[cell, ...] for cell in range(N_CELLS)])
    # A noisy group without rows imposes nothing: its shares are 0.
    pull = xp.where(square > 0, share / xp.where(square > 0, square, 1.0), 0.0)
    correction = xp.zeros_like(point)
    for _ in range(rounds):
        product = point * share
        deficit = target - _add([product[:, cell, ...] for cell in range(N_CELLS)])
        point += deficit[:, None, ...] * pull
        if variant == "paper":
            point += correction
            correction = point
            point = project_leading_simplex(point)
            correction = correction - point
        else:
            point -= (_add([point[j, ...] for j in range(groups)]) - 1.0) / groups
            point = xp.maximum(point, 0.0)
    back = xp.permute_dims(point, (2, 0, 3, 1)) + 0.0
    return xp.reshape(back, (*lead, groups, seen, N_CELLS))


def _add(parts: list[Array]) -> Array:
    """Return the sum of a few arrays."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def project_leading_simplex(point: Array) -> Array:
    """Project onto the simplex along the leading axis: ``project_simplex`` for many short columns.

    O(m²) passes over an axis of all columns, shape (m, ...), which are sorted by exchanges: with
    few entries per column this costs less than sorting each.
    """
    xp = array_namespace(point)
    m = int(point.shape[0])
    if m > FEW:
        columns = xp.moveaxis(point, 0, -1)
        return xp.moveaxis(project_simplex(columns), -1, 0)
    ordered = [point[index, ...] for index in range(m)]
    for last in range(m - 1, 0, -1):
        for index in range(last):
            one, two = ordered[index], ordered[index + 1]
            ordered[index], ordered[index + 1] = xp.maximum(one, two), xp.minimum(one, two)
    # Relative to the largest, as in project_simplex; the s that the first 1, 2, … entries need.
    top = ordered[0]
    depth = total = 1.0 + 0.0 * top
    for count in range(1, m):
        total = total - (ordered[count] - top)
        depth = xp.minimum(depth, total / (count + 1))
    return xp.maximum(point - (top - depth), 0.0)


def find_level(values: Array, count: Array, total: Array, start: Array) -> Array:
    """Return τ with Σ_i c_i (x_i − τ)₊ = z, by Newton's method from a point near it.

    x is ``values``, (..., n), c > 0 ``count``, (n,), and z ≥ 0 ``total``, (..., 1); ``start`` and τ
    have shape (..., 1).

    Notes
    -----
    The sum is convex and falls with τ: from below steps go up to the root, and from above the first
    one ends below it. Later steps go down by rounding alone, and a small one ends the search; far
    away rounding is coarse. A row's root does not depend on how long others take.
    """
    xp = array_namespace(values)
    top = xp.max(values, axis=-1, keepdims=True)
    far = top - total / xp.min(count)
    rounding = 4 * xp.finfo(values.dtype).eps
    at, done = start, xp.zeros(start.shape, dtype=xp.bool, device=array_api_compat.device(values))
    for number in range(MOST_PASSES):
        excess = xp.maximum(values - at, 0.0)
        slope = (xp.astype(excess > 0, values.dtype) @ count)[..., None]
        value = (excess @ count)[..., None] - total
        safe = xp.where(slope > 0, slope, 1.0)
        # The top is the root where z is 0, or too small to show below it.
        above = at if number else far
        new = xp.where(slope > 0, xp.minimum(at + value / safe, top), above)
        near = rounding * (xp.abs(top) + total / safe)
        converged = xp.abs(new - at) <= near
        if number:
            converged = converged | ((new < at) & (at - new <= 16 * near))
        at = xp.where(done, at, new)
        done = done | converged
        if bool(xp.all(done)):
            break
    return at


def find_floor(values: Array, base: Array, count: Array, total: Array, start: Array) -> Array:
    """Return b with Σ_i c_i min{p, (b − x_i)₊} = z, for z ≤ p Σ c, shape (M, 1).

    x is ``values``, (M, n), p > 0 ``base``, c > 0 ``count``, (n,), z ``total``. Newton's method
    within a bracket, whose middle replaces steps that leave it, and every fourth step that shrinks
    it too little.
    """
    xp = array_namespace(values)
    low = xp.min(values, axis=-1, keepdims=True)
    high = xp.max(values, axis=-1, keepdims=True) + base
    scale = 2 * xp.finfo(values.dtype).eps * xp.maximum(xp.abs(low), xp.abs(high))
    at = xp.minimum(xp.maximum(start, low), high)
    for number in range(1, MOST_PASSES):
        risen = at - values
        filled = xp.minimum(xp.maximum(risen, 0.0), base)
        open_rows = xp.astype((filled > 0) & (filled < base), values.dtype)
        slope = (open_rows @ count)[..., None]
        gap = total - (filled @ count)[..., None]
        low, high = xp.where(gap >= 0, at, low), xp.where(gap <= 0, at, high)
        rising = slope > 0
        step = gap / xp.where(rising, slope, 1.0)
        done = (gap == 0) | (rising & (xp.abs(step) <= scale)) | (high - low <= scale)
        new = at + step
        inside = rising & (new >= low) & (new <= high)
        if number % 4 == 0:
            inside = inside & (xp.abs(step) <= (high - low) / 4)
        at = xp.where(done, at, xp.where(inside, new, (low + high) / 2))
        if bool(xp.all(done)):
            break
    return at
