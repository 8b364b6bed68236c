"""Training of the models of one table, as many at once as fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairfrontier.models.neural.network import Network, draw_network
from fairfrontier.models.noisy.player import (
    AssignmentPlayer,
    BallMaximumPlayer,
    Game,
    Player,
    hard_player,
)
from fairfrontier.models.noisy.problem import (
    ROBUST,
    ConstrainedProblem,
    Setting,
    Solution,
    Training,
    train,
)
from fairfrontier.models.noisy.rate import Rate, arrange_rows, find_rates
from fairfrontier.runtime.arrays import as_backend, choose_backend, to_numpy
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.registry import Registry
from fairfrontier.runtime.seeds import derive_generator

Array = Any
Progress = Callable[[int, int], None]
# Numbers in memory at once: six for every model and row, and seven more for each group.
BATCH_ENTRIES = 2**28

InnerPlayer = Callable[..., Player]
INNERS: Registry[InnerPlayer] = Registry(
    "inner player", "inner_player", ("fairfrontier.models.noisy",), "fairfrontier.methods"
)


def inner_player(name: str) -> Callable[[InnerPlayer], InnerPlayer]:
    """Register ``(problems, settings, game, stack) -> Player`` of the robust approaches.

    ``stack`` makes an array of one number or array of each model, on the backend.
    """

    def register(function: InnerPlayer) -> InnerPlayer:
        INNERS.add(name, function, function)
        return function

    return register


def share_progress(progress: Progress | None, number: int, rounds: int) -> Progress | None:
    """Return a callback that reports the progress of one of several runs."""
    if progress is None:
        return None
    report = progress
    return lambda done, steps: report(number * steps + done, rounds * steps)


def solve(
    problems: Sequence[ConstrainedProblem],
    settings: Sequence[Setting],
    progress: Progress | None = None,
) -> list[Solution]:
    """Train one model for every problem and setting, ``BATCH_ENTRIES`` numbers at a time.

    The problems have the same rows and groups; their noise may differ. Each setting has one number
    for each rate; settings may differ in budget, slack, noise, radius, rates and seed. DataError
    for a group without a row of the event of a constrained rate.
    """
    n, m = len(problems[0].y), problems[0].n_groups
    size = max(1, BATCH_ENTRIES // (n * (6 + 7 * m)))
    rounds = -(-len(problems) // size)
    solutions: list[Solution] = []
    for number in range(rounds):
        batch = slice(number * size, (number + 1) * size)
        report = share_progress(progress, number, rounds)
        solutions += _solve_at_once(problems[batch], settings[batch], report)
    return solutions


def _solve_at_once(
    problems: Sequence[ConstrainedProblem], settings: Sequence[Setting], progress: Progress | None
) -> list[Solution]:
    """Train models in one program."""
    leader, table = settings[0], problems[0]
    n, d = table.X.shape
    sizes = (d, *leader.widths, 1)
    work = 4.0 * n * d * len(settings) * max([1, *leader.widths])
    backend = choose_backend(leader.backend, work)
    rows = arrange_rows(table.X, table.y, table.codes, table.n_groups, table.weight, leader.dtype)
    moved = {name: as_backend(getattr(rows, name), backend) for name in ("x", "weight", "weighted")}
    rows = replace(rows, **moved)

    def stack(values: Sequence[Any]) -> Array:
        return as_backend(np.asarray(values, dtype=np.float64), backend)

    rates = find_rates(leader.criterion)
    budget, slack = ([getattr(s, name) for s in settings] for name in ("budget", "slack"))
    game = Game(rows, rates, stack(budget), stack(slack))
    if leader.approach != "unconstrained":
        _refuse_empty(game, rates, leader.approach)
    mix = leader.mix

    def play(start_player: Callable[[], Player], constrained: bool, number: int = 0) -> Training:
        starts = [_start_network(sizes, setting.random_state) for setting in settings]
        arrays = [np.concatenate(layer) for layer in zip(*starts, strict=True)]
        return train(
            game,
            start_player,
            Network.of([as_backend(array.astype(leader.dtype), backend) for array in arrays]),
            learning_rate=stack([setting.learning_rate for setting in settings]),
            multiplier_rate=stack([setting.multiplier_rate for setting in settings]),
            radius=stack([setting.radius for setting in settings]),
            iterations=leader.iterations,
            constrained=constrained,
            best=leader.best,
            record_every=leader.record_every,
            snapshots=mix is not None,
            progress=share_progress(progress, number, 1 if mix is None else 2),
        )

    def start_player() -> Player:
        if leader.approach in ROBUST:
            return INNERS.find(leader.inner)(problems, settings, game, stack)
        return hard_player(game, len(settings))

    training = play(start_player, leader.approach != "unconstrained")
    solutions = [_take_model(training, index, problem) for index, problem in enumerate(problems)]
    if mix is None:
        return solutions
    trainings = [training, play(lambda: hard_player(game, len(settings)), False, 1)]
    return [
        mix(solution, [_take_iterates(run, index) for run in trainings], rows, setting)
        for index, (solution, setting) in enumerate(zip(solutions, settings, strict=True))
    ]


def _take_model(done: Training, index: int, problem: ConstrainedProblem) -> Solution:
    """Return one model of those that trained together."""
    model = slice(index, index + 1)
    return Solution(
        network=Network.of(
            [to_numpy(array)[model].astype(np.float64) for array in done.network.arrays]
        ),
        probability=np.ones(1),
        error=float(done.error[index]),
        violation=float(done.violation[index]),
        gap=float("nan"),
        step=int(done.step[index]),
        level=problem.level,
        joint=np.zeros((0, 0)) if problem.noise is None else problem.noise.joint,
        cell_mass=done.cell_mass[index].copy(),
        history={key: value[index].copy() for key, value in done.history.items()},
    )


def _take_iterates(done: Training, index: int) -> list[np.ndarray]:
    """Return the recorded iterates of a model, arrays with a leading axis for them."""
    return [
        np.stack([to_numpy(array)[index] for array in arrays])
        for arrays in zip(*(network.arrays for network in done.snapshots), strict=True)
    ]


def _refuse_empty(game: Game, rates: Sequence[Rate], approach: str) -> None:
    """Refuse groups without a row in the event of a rate that is divided by their rows."""
    share = to_numpy(game.share)
    for rate in rates:
        labels = [label for label in (0, 1) if rate.sign[label]]
        inside = share[:, labels].sum(axis=1)
        soft = approach == "soft_assignment"
        if inside.sum() <= 0 if soft else (inside <= 0).any():
            group = int(np.argmin(inside))
            wanted = " or ".join(str(label) for label in labels)
            raise DataError(
                f"The group {group} has no training row with the label {wanted}, so that it has "
                f"no rate {rate.cells}.",
                "Merge it with another group in the dataset's YAML, or choose another criterion.",
            )


@inner_player("exact")
def start_exact(
    problems: Sequence[ConstrainedProblem],
    settings: Sequence[Setting],
    game: Game,
    stack: Callable[[Sequence[Any]], Array],
) -> Player:
    """Return the player that finds the worst case in closed form at every step."""
    noises = [problem.noise for problem in problems if problem.noise is not None]
    if settings[0].approach == "dro":
        level = stack([problem.level for problem in problems])
        return BallMaximumPlayer(game, level, noises[0].centre if noises else None)
    return AssignmentPlayer(game, stack([noise.posterior for noise in noises]))


def _start_network(sizes: Sequence[int], seed: int) -> list[np.ndarray]:
    """Return the initial weights: 0 for a linear model, whose problem is convex; else drawn."""
    if len(sizes) == 2:
        return [np.zeros((1, *sizes)), np.zeros((1, 1, 1))]
    return draw_network(sizes, derive_generator("noisy_groups", "weights", seed))
