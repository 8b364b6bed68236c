"""Full-batch training under constraints: min over θ, max over multipliers, and an inner player.

    min_θ max_{λ ≥ 0, Σ λ ≤ R}  E[(1 − ỹ φ_θ(x))₊] + Σ_rj λ_rj g_rj(θ, a_j)

with hinge constraints g and the inner player's row masses a_j. Every array has a leading model
axis, so that the rates of a sweep train together on one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, to_numpy
from fairfrontier.train.neural.network import Network, blocks, forward, parameter_gradient
from fairfrontier.train.neural.optimiser import Adam
from fairfrontier.train.noisy.player import Game, Player
from fairfrontier.train.noisy.projection import project_capped_simplex
from fairfrontier.train.noisy.row import GroupedRows, sum_scores

Array = Any
Progress = Callable[[int, int], None]
Best = Literal["paper", "ranks", "last"]

# Constraints are sums in float32: below this they count as satisfied.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Training:
    """The result of training M models.

    ``network`` holds the best iterates, ``step``, (M,), their numbers from 1 on, ``error`` and
    ``violation``, (M,), their share of wrong decisions and largest constraint as the inner player
    saw it, and ``cell_mass``, (M, R, m, m̂, 4), its row masses then; see ``ConstraintValues``. Of
    shape (M, n_records), ``history`` has ``step``, ``objective`` (mean hinge loss), ``error``,
    ``hinge`` and ``violation`` (largest constraints with hinges and slack, and with indicators) and
    ``multiplier`` (Σ λ). ``snapshots`` are the recorded iterates, where requested.
    """

    network: Network
    step: np.ndarray
    error: np.ndarray
    violation: np.ndarray
    cell_mass: np.ndarray
    history: Mapping[str, np.ndarray]
    snapshots: tuple[Network, ...] = ()


def score_rows(rows: GroupedRows, network: Network) -> Array:
    """Return φ of every model and row, shape (M, n)."""
    xp = array_namespace(rows.x)
    if len(network.weight) == 1:
        score = network.weight[0][:, :, 0] @ xp.matrix_transpose(rows.x)
        score += network.bias[0][:, :, 0]
        return score
    score = xp.empty(
        (network.weight[0].shape[0], rows.n), dtype=rows.x.dtype, device=device(rows.x)
    )
    for models, part in blocks(network.weight[0], rows.n, network.widest):
        score[models, part] = forward(network.take(models), rows.x[part, :]).logits[..., 0]
    return score


def carry_back(rows: GroupedRows, network: Network, slope: Array) -> Network:
    """Return the gradient in the parameters for slopes (M, n) in φ, both over the rows' weights."""
    xp = array_namespace(rows.x)
    if len(network.weight) == 1:
        weight = (slope @ rows.weighted)[:, :, None]
        return Network((weight,), ((slope @ rows.weight)[:, None, None],))
    slope = slope * rows.weight
    total = [xp.zeros_like(array) for array in network.arrays]
    for models, part in blocks(network.weight[0], rows.n, network.widest):
        nets, x = network.take(models), rows.x[part, :]
        gradient = parameter_gradient(nets, x, forward(nets, x), slope[models, part][..., None])
        for sums, array in zip(total, gradient.arrays, strict=True):
            sums[models, ...] += array
    return Network.of(total)


def train(
    game: Game,
    start_player: Callable[[], Player],
    network: Network,
    *,
    learning_rate: Array,
    multiplier_rate: Array,
    radius: Array,
    iterations: int,
    constrained: bool = True,
    best: Best = "paper",
    record_every: int = 25,
    snapshots: bool = False,
    progress: Progress | None = None,
) -> Training:
    """Train models on one table.

    A step: constraints at θ, ascent on λ, ascent or maximum of the inner player, descent on θ; all
    of it with Adam, λ projected onto {λ ≥ 0, Σ λ ≤ R}. The first step is on θ alone, as λ starts at
    0.

    Parameters
    ----------
    game : Game
        Rows, rates, budgets and slacks.
    start_player : callable
        () -> Player; a new one for each training, as it changes.
    network : Network
        The initial θ, M models with one output; linear models are nets without hidden layers.
    learning_rate, multiplier_rate : array, shape (M,)
        Of Adam on θ and on λ.
    radius : array, shape (M,)
        R.
    iterations : int
        Steps on θ; each results in an iterate.
    constrained : bool
        Whether λ moves; else the objective is minimised alone.
    best : {"paper", "ranks", "last"}
        Which iterate is kept. ``paper``: of those that satisfy the constraints (indicators, as the
        inner player sees them) the one with the least error, else the least violated. ``ranks``: of
        the recorded ones, the least maximum of the ranks of error and violation. ``last``: the end.
    record_every : int
        Steps between records of the history.
    snapshots : bool
        Whether the recorded iterates are returned too.
    progress : callable, optional
        Called with (steps done, steps).

    Notes
    -----
    A step costs two products of the rows with M parameters, some fifteen passes over the scores
    and the inner player's work. A non-convex game (the worst assignment depends on decisions) need
    not converge: only the best iterate is returned, with its violation.

    References
    ----------
    Wang et al., NeurIPS 2020, algorithms 2 and 4. A. Cotter, H. Jiang, K. Sridharan. Two-player
    games for efficient non-convex constrained optimization. ALT 2019, section 5.2 (ranks).
    """
    rows, player = game.rows, start_player()
    xp = array_namespace(rows.x)
    models, where = int(network.weight[0].shape[0]), device(rows.x)
    dtype = rows.x.dtype
    optimiser = Adam(network.arrays, xp.astype(learning_rate, dtype)[:, None, None])
    shape = (models, len(game.rates), player.n_groups)
    multiplier = xp.zeros(shape, dtype=xp.float64, device=where)
    ascent = Adam([multiplier], xp.astype(multiplier_rate, xp.float64)[:, None, None])
    kept: list[_Iterate] = []
    records: list[dict[str, Array]] = []
    taken: list[_Iterate] = []
    for step in range(iterations + 1):
        score = score_rows(rows, network)
        sums = sum_scores(rows, score)
        stage = game.sum_rates(sums)
        values = player.evaluate(score, stage)
        error = xp.sum(sums.count[:, :, 1] + sums.count[:, :, 2], axis=1)
        if constrained:
            violation = xp.max(values.exact, axis=(1, 2))
        else:
            violation = xp.full((models,), -xp.inf, dtype=xp.float64, device=where)
        recorded = step % record_every == 0 or step == iterations
        if step:
            number = xp.full((models,), step, dtype=xp.int64, device=where)
            iterate = _Iterate(number, network, error, violation, values.cell_mass)
            kept = [_keep_better(kept[0], iterate) if kept and best != "last" else iterate]
            if recorded and (snapshots or best == "ranks"):
                taken.append(iterate)
        if recorded:
            lost = sums.up[:, :, 0] + sums.up[:, :, 2] + sums.down[:, :, 1] + sums.down[:, :, 3]
            records.append(
                {
                    "step": xp.full((models,), float(step), dtype=xp.float64, device=where),
                    "objective": xp.sum(lost, axis=1),
                    "error": error,
                    "hinge": xp.max(values.hinge, axis=(1, 2)),
                    "violation": xp.max(values.exact, axis=(1, 2)),
                    "multiplier": xp.sum(multiplier, axis=(1, 2)),
                }
            )
            if progress is not None and step:
                progress(step, iterations)
        if step == iterations:
            break
        if constrained and step:
            raised = multiplier + ascent.step([values.hinge])[0]
            flat = project_capped_simplex(xp.reshape(raised, (models, -1)), radius)
            multiplier = xp.reshape(flat, shape)
            player.move(multiplier, score, stage)
        slope = player.slope(multiplier, score, stage)
        changes = optimiser.step(carry_back(rows, network, slope).arrays)
        network = Network.of(
            [array - change for array, change in zip(network.arrays, changes, strict=True)]
        )
    final = _choose_by_ranks(taken) if best == "ranks" else kept[0]
    history = {
        key: np.stack([to_numpy(record[key]) for record in records], axis=1) for key in records[0]
    }
    return Training(
        final.network,
        to_numpy(final.step),
        to_numpy(final.error),
        to_numpy(final.violation),
        to_numpy(final.cell_mass),
        history,
        tuple(record.network for record in taken) if snapshots else (),
    )


@dataclass(frozen=True, eq=False)
class _Iterate:
    """An iterate of every model."""

    step: Array
    network: Network
    error: Array
    violation: Array
    cell_mass: Array

    def where(self, condition: Array, other: _Iterate) -> _Iterate:
        """Return this iterate for the models where the condition holds, else the other."""
        xp = array_namespace(condition)

        def pick(one: Array, two: Array) -> Array:
            lead = xp.reshape(condition, (-1, *(1,) * (one.ndim - 1)))
            return xp.where(lead, one, two)

        arrays = zip(self.network.arrays, other.network.arrays, strict=True)
        return _Iterate(
            pick(self.step, other.step),
            Network.of([pick(one, two) for one, two in arrays]),
            pick(self.error, other.error),
            pick(self.violation, other.violation),
            pick(self.cell_mass, other.cell_mass),
        )


def _keep_better(kept: _Iterate, iterate: _Iterate) -> _Iterate:
    """Return for each model the feasible iterate of less error, or the less violated one."""
    xp = array_namespace(kept.error)
    feasible, kept_feasible = iterate.violation <= TOLERANCE, kept.violation <= TOLERANCE
    better = xp.where(
        feasible & kept_feasible,
        iterate.error < kept.error,
        xp.where(feasible == kept_feasible, iterate.violation < kept.violation, feasible),
    )
    return iterate.where(better, kept) if bool(xp.any(better)) else kept


def _choose_by_ranks(iterates: Sequence[_Iterate]) -> _Iterate:
    """Return for each model the iterate chosen by ``rank_iterates``."""
    xp = array_namespace(iterates[0].error)
    error = np.stack([to_numpy(iterate.error) for iterate in iterates], axis=1)
    violation = np.stack([to_numpy(iterate.violation) for iterate in iterates], axis=1)
    chosen = rank_iterates(error, violation)
    best = iterates[0]
    for index, iterate in enumerate(iterates):
        best = iterate.where(xp.asarray(chosen == index, device=device(iterate.error)), best)
    return best


def rank_iterates(error: np.ndarray, violation: np.ndarray) -> np.ndarray:
    """Choose among iterates by ranks, (M, S) -> (M,), as in Cotter et al., 2019, section 5.2.

    The rank of a value is one more than the number of smaller ones; violations below 0 count as 0.
    The choice is the least maximum of the ranks of error and violation, then the least error, then
    the latest.
    """
    violated = np.maximum(np.where(violation <= TOLERANCE, 0.0, violation), 0.0)
    ranks = [1 + np.sum(x[:, None, :] < x[:, :, None], axis=-1) for x in (error, violated)]
    worst = np.maximum(*ranks)
    latest = -np.broadcast_to(np.arange(error.shape[1]), error.shape)
    return np.asarray(np.lexsort((latest, error, worst), axis=-1)[:, 0])
