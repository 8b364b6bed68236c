"""One table, the models on it, and the adversary they train against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.runtime.arrays import Backend, as_backend, choose_backend, to_numpy
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.train.neural.network import Network, draw_network
from fairfrontier.train.noisy.assignment_program import solve_program
from fairfrontier.train.noisy.ball_player import BallAscentPlayer, BallMaximumPlayer
from fairfrontier.train.noisy.lagrangian import Training, train
from fairfrontier.train.noisy.mixture import mix_iterates, take_iterates
from fairfrontier.train.noisy.player import AssignmentPlayer, Game, Player, hard_player
from fairfrontier.train.noisy.rate import Rate, find_rates
from fairfrontier.train.noisy.row import Rows, arrange_rows
from fairfrontier.train.noisy.training_table import (
    ROBUST,
    TrainingTable,
    choose_levels,
    prepare_table,
)

if TYPE_CHECKING:
    from fairfrontier.train.noisy.estimator import NoisyGroups

Array = Any
Progress = Callable[[int, int], None]
# Numbers that training holds at once: of every model and row six, and seven more a group.
BATCH_ENTRIES = 2**28


def share_progress(progress: Progress | None, number: int, rounds: int) -> Progress | None:
    """Return what tells the progress of one run of several."""
    if progress is None:
        return None
    tell = progress

    def told(done: int, steps: int) -> None:
        tell(number * steps + done, rounds * steps)

    return told


def fit_table(
    models: Sequence[NoisyGroups], data: Mapping[str, Any], progress: Progress | None
) -> None:
    """Fit the models of one table, as many at once as ``BATCH_ENTRIES`` allows."""
    prepared: dict[str, TrainingTable] = {}
    for model in models:
        # Models of one structure differ in no more that concerns the table.
        noise = repr((model.level, model.confusion))
        if noise not in prepared:
            prepared[noise] = prepare_table(model, data)
    tables = [prepared[repr((model.level, model.confusion))] for model in models]
    n, m = len(tables[0].y), tables[0].n_groups
    size = max(1, BATCH_ENTRIES // (n * (6 + 7 * m)))
    rounds = -(-len(models) // size)
    for number in range(rounds):
        some = slice(number * size, (number + 1) * size)
        _fit_models(models[some], tables[some], share_progress(progress, number, rounds))


def _fit_models(
    models: Sequence[NoisyGroups], tables: Sequence[TrainingTable], progress: Progress | None
) -> None:
    """Fit models that train at once."""
    leader, table = models[0], tables[0]
    n, d = table.X.shape
    sizes = (d, *leader.widths, 1)
    work = 4.0 * n * d * leader.iterations * len(models) * max([1, *leader.widths])
    backend = choose_backend(leader.backend, work)
    rows = _move_rows(
        arrange_rows(table.X, table.y, table.codes, table.n_groups, table.weight, leader.dtype),
        backend,
    )

    def stack(values: Sequence[Any]) -> Array:
        return as_backend(np.asarray(values, dtype=np.float64), backend)

    rates = find_rates(leader.criterion)
    game = Game(
        rows,
        rates,
        stack([model.budget for model in models]),
        stack([model.slack for model in models]),
    )
    if leader.approach != "unconstrained":
        _refuse_empty(game, rates, leader.approach)
    levels = [
        choose_levels(model, each.noise, table.n_groups)
        for model, each in zip(models, tables, strict=True)
    ]

    ideal = leader.approach == "soft_assignments_ideal"

    def play(player: Player, constrained: bool, number: int = 0) -> Training:
        starts = [_start(sizes, model.random_state) for model in models]
        arrays = [np.concatenate(each) for each in zip(*starts, strict=True)]
        network = Network.of([as_backend(each.astype(leader.dtype), backend) for each in arrays])
        return train(
            game,
            player,
            network,
            learning_rate=stack([model.learning_rate for model in models]),
            multiplier_rate=stack([model.multiplier_rate for model in models]),
            radius=stack([model.radius for model in models]),
            iterations=leader.iterations,
            constrained=constrained,
            best=leader.best,
            record_every=leader.record_every,
            snapshots=ideal,
            progress=share_progress(progress, number, 1 + ideal),
        )

    player = _player(leader, models, tables, levels, game, stack)
    done = play(player, leader.approach != "unconstrained")
    pools = [done, play(hard_player(game, len(models)), False, 1)] if ideal else []
    for place, (model, each, level) in enumerate(zip(models, tables, levels, strict=True)):
        model.n_features_in_ = d
        model.level_ = level if level is not None else np.zeros(0)
        model.joint_ = np.zeros((0, 0)) if each.noise is None else each.noise.joint
        model.history_ = {key: value[place].copy() for key, value in done.history.items()}
        if ideal and each.noise is not None:
            mix_iterates(model, [take_iterates(one, place) for one in pools], rows, each.noise)
            continue
        own = slice(place, place + 1)
        model.network_ = Network.of(
            [to_numpy(array)[own].astype(np.float64) for array in done.network.arrays]
        )
        model.probability_ = np.ones(1)
        model.step_ = int(done.step[place])
        model.error_ = float(done.error[place])
        model.violation_ = float(done.violation[place])
        model.carried_ = done.carried[place].copy()


def _refuse_empty(game: Game, rates: Sequence[Rate], approach: str) -> None:
    """Refuse groups that have no row in the event of a rate, where rates of them are divided."""
    share = to_numpy(game.share)
    for rate in rates:
        labels = [label for label in (0, 1) if rate.sign[label]]
        inside = share[:, labels].sum(axis=1)
        missing = inside.sum() <= 0 if approach.startswith("soft") else (inside <= 0).any()
        if missing:
            group = int(np.argmin(inside))
            wanted = " or ".join(str(label) for label in labels)
            raise DataError(
                f"The group {group} has no training row with the label {wanted}, so that it has "
                f"no rate {rate.cells}.",
                "Merge it with another group in the dataset's YAML, or choose another criterion.",
            )


def _player(
    leader: NoisyGroups,
    models: Sequence[NoisyGroups],
    tables: Sequence[TrainingTable],
    levels: Sequence[np.ndarray | None],
    game: Game,
    stack: Callable[[Sequence[Any]], Array],
) -> Player:
    """Return the inner player of the approach."""
    rate = stack([model.inner_rate for model in models])[:, None, None]
    if leader.approach == "dro":
        level = stack([np.zeros(0) if each is None else each for each in levels])
        centre = None if tables[0].noise is None else tables[0].noise.centre
        if leader.inner == "exact":
            return BallMaximumPlayer(game, level, centre)
        steps = leader.inner_steps or 1
        return BallAscentPlayer(
            game, level, rate, centre=centre, steps=steps, variant=leader.variant
        )
    if leader.approach in ROBUST:
        posterior = [each.noise.posterior for each in tables if each.noise is not None]
        exact = leader.approach == "soft_assignments_ideal"
        return AssignmentPlayer(
            game,
            stack(posterior),
            inner="exact" if exact else leader.inner,
            rate=rate,
            steps=leader.inner_steps or 5,
            variant=leader.variant if leader.inner == "ascent" and not exact else "paper",
            joint=_solve_jointly,
        )
    return hard_player(game, len(models))


def _solve_jointly(gain: Array, cells: Array, posterior: Array) -> Array:
    """Return the w that maximises the sum of all gains, a noisy group being a problem of its own.

    ``assignment_program`` for gains (M, m, m̂, 4) of whole cells that differ by noisy group.
    """
    like = cells
    gain, cells, posterior = (to_numpy(each) for each in (gain, cells, posterior))
    models, m, seen, _ = gain.shape
    each = gain / np.where(cells > 0, cells, 1.0)[:, None]
    found = solve_program(
        np.moveaxis(each, 2, 1).reshape(models * seen, m, 4),
        cells.reshape(models * seen, 1, 4),
        posterior.reshape(models * seen, 1, m),
    ).weight
    weight = np.moveaxis(found.reshape(models, seen, m, 4), 1, 2)
    backend: Backend = "numpy" if isinstance(like, np.ndarray) else "cupy"
    return as_backend(np.ascontiguousarray(weight), backend)


def _start(sizes: Sequence[int], seed: int) -> list[np.ndarray]:
    """Return where a model starts: 0 for a linear one, whose problem is convex; else drawn."""
    if len(sizes) == 2:
        return [np.zeros((1, *sizes)), np.zeros((1, 1, 1))]
    return draw_network(sizes, derive_generator("noisy_groups", "weights", seed))


def _move_rows(rows: Rows, backend: Backend) -> Rows:
    return Rows(
        as_backend(rows.x, backend),
        as_backend(rows.weight, backend),
        as_backend(rows.weighted, backend),
        rows.borders,
        rows.n_groups,
        rows.total,
    )
