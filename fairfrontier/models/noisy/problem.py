"""Problem, settings and solution of training with noisy groups.

Full-batch training under constraints: min over θ, max over multipliers, and an inner player.

    min_θ max_{λ ≥ 0, Σ λ ≤ R}  E[(1 − ỹ φ_θ(x))₊] + Σ_rj λ_rj g_rj(θ, a_j)

with hinge constraints g and the inner player's row masses a_j. Every array has a leading model
axis, so that the rates of a sweep train together on one table.

The constraints of a classifier that was trained on noisy groups, on any rows.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from array_api_compat import device

from fairfrontier.models.base import TrainingWarning, training_weight
from fairfrontier.models.group import take_attribute
from fairfrontier.models.neural.estimator import PREDICTION_ROWS
from fairfrontier.models.neural.network import Adam, Network, blocks, forward, parameter_gradient
from fairfrontier.models.noisy.assignment import bound_rates
from fairfrontier.models.noisy.noise import NoiseModel, bound_rate_of_cells
from fairfrontier.models.noisy.player import Game, Player
from fairfrontier.models.noisy.rate import (
    RATE_CELLS,
    GroupedRows,
    Rate,
    count_cells,
    find_rates,
    project_capped_simplex,
    sum_scores,
)
from fairfrontier.runtime.arrays import Backend, array_namespace, to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError

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


Approach = Literal["unconstrained", "true_groups", "naive", "dro", "soft_assignment"]
# Approaches with an adversary, which need to know the noise.
ROBUST = ("dro", "soft_assignment")
# Parameters of which a model may be given several values, to choose on validation rows.
TUNED = ("slack", "learning_rate", "multiplier_rate", "inner_rate")


def _is_rate(value: Any, least: float = np.nextafter(0, 1)) -> bool:
    rates = np.atleast_1d(value)
    allowed = rates.ndim == 1 and rates.size > 0 and (rates >= least) & np.isfinite(rates)
    return bool(np.all(allowed))


def _is_above(value: Any, least: float) -> bool:
    return value is None or least <= value < np.inf


def _are_shares(value: Any) -> bool:
    return value is None or all(0 <= share < 1 for share in np.atleast_1d(value))


_RATE = (_is_rate, "a number of more than 0, or a list of them")
_COUNT = (lambda value: value is None or value >= 1, "1 or more")
# The values allowed for each parameter that an estimator has.
ALLOWED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "budget": (lambda value: _is_above(value, 0), "a number of 0 or more"),
    "slack": (lambda value: _is_rate(value, 0), "a number of 0 or more, or a list of them"),
    "level": (_are_shares, "shares in [0, 1), or null"),
    "tv": (lambda value: value in ("paper", "valid"), "paper or valid"),
    "variant": (lambda value: value in ("paper", "authors"), "paper or authors"),
    "radius": (lambda value: _is_above(value, np.nextafter(0, 1)), "a number above 0"),
    "iterations": _COUNT,
    "learning_rate": _RATE,
    "multiplier_rate": _RATE,
    "inner_rate": _RATE,
    "inner_steps": _COUNT,
    "validation_groups": (lambda value: value in ("noisy", "true"), "noisy or true"),
    "best": (lambda value: value in ("paper", "ranks", "last"), "paper, ranks or last"),
    "record_every": _COUNT,
    "dtype": (lambda value: value in ("float32", "float64"), "float32 or float64"),
}


@dataclass(frozen=True)
class Setting:
    """How a model is trained; what an approach does not use keeps its default.

    Attributes are parameters of the estimators, but for ``approach``, what stands in for the true
    groups, ``widths``, those of the hidden layers, and ``mix``, which makes a mixture of a solution
    and the iterates of training with and without constraints, on the rows with the setting.
    """

    approach: Approach
    criterion: str
    attribute: int
    iterations: int
    learning_rate: float | Sequence[float]
    record_every: int
    dtype: Literal["float32", "float64"]
    backend: Backend
    random_state: int
    best: Best = "paper"
    widths: tuple[int, ...] = ()
    budget: float = 0.0
    slack: float | Sequence[float] = 0.0
    radius: float = 1.0
    multiplier_rate: float | Sequence[float] = 1.0
    validation_groups: Literal["noisy", "true"] = "noisy"
    level: float | Sequence[float] | None = None
    confusion: Sequence[Sequence[float]] | None = None
    tv: Literal["paper", "valid"] = "paper"
    inner: str = "exact"
    variant: Literal["paper", "authors"] = "paper"
    inner_rate: float | Sequence[float] = 1.0
    inner_steps: int = 1
    mix: Callable[..., Solution] | None = None


def list_candidates(setting: Setting) -> list[Setting]:
    """Return a setting for every combination of the listed values."""
    values = {name: np.atleast_1d(getattr(setting, name)).tolist() for name in TUNED}
    if setting.inner == "exact":
        values["inner_rate"] = values["inner_rate"][:1]
    return [
        replace(setting, **dict(zip(values, combination, strict=True)))
        for combination in itertools.product(*values.values())
    ]


def rank_candidates(trials: np.ndarray) -> int:
    """Return which of (error, violation) is best: the least error of those without violation.

    If all violate a constraint, the least violated, then of least error, then the first. A NaN
    violation, where no group has a row of an event, counts as the largest.
    """
    error = trials[:, 0]
    violation = np.where(np.isnan(trials[:, 1]), np.inf, trials[:, 1])
    feasible = violation <= TOLERANCE
    if feasible.any():
        return int(np.argmin(np.where(feasible, error, np.inf)))
    return int(np.lexsort((error, violation))[0])


@dataclass(frozen=True, eq=False)
class ConstrainedProblem:
    """Training rows, the groups that are constrained, and what is known of their noise.

    ``y`` holds 0 and 1, ``codes`` m̂ groups. ``noise`` is None where it is not used, or where only
    levels are known; ``level`` holds γ_j of the balls, shape (m,), and is empty without balls.
    """

    X: np.ndarray
    y: np.ndarray
    codes: np.ndarray
    n_groups: int
    weight: np.ndarray
    noise: NoiseModel | None
    level: np.ndarray


@dataclass(frozen=True, eq=False)
class Solution:
    """A classifier, or a mixture of several, and its values in training.

    Attributes
    ----------
    network : Network
        Weights and biases, float64, with an axis for the K classifiers.
    probability : ndarray of float64, shape (K,)
        Of each.
    error, violation : float
        Share of wrong decisions and largest constraint, as the inner player saw it; −∞ where
        nothing is constrained.
    gap : float
        Duality gap of the game whose mixture it is, see ``mix`` of `Setting`; NaN of single
        classifiers, whose game need not have an equilibrium.
    step : int
        Which iterate it is; of a mixture the steps of its game.
    level : ndarray of float64, shape (m,)
        γ_j of the balls; empty where there are none.
    joint : ndarray of float64, shape (m, m̂)
        P(G=j, Ĝ=k) of the noise model; empty where none is used.
    cell_mass : ndarray of float64, shape (R, m, m̂, 4)
        The adversary's masses of the cells, relative to their weight.
    history : mapping of str to ndarray of float64
        See ``lagrangian.Training``.
    """

    network: Network
    probability: np.ndarray
    error: float
    violation: float
    gap: float
    step: int
    level: np.ndarray
    joint: np.ndarray
    cell_mass: np.ndarray
    history: Mapping[str, np.ndarray]

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return φ of every classifier, float64, shape (n_samples, K)."""
        rows, network = np.asarray(X, dtype=np.float64), self.network
        if len(network.weight) == 1:
            linear = rows @ network.weight[0][:, :, 0].T
            return np.asarray(linear + network.bias[0][:, 0, 0])
        parts = [
            forward(network, rows[start : start + PREDICTION_ROWS]).logits[..., 0].T
            for start in range(0, len(rows), PREDICTION_ROWS)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.probability)))

    def decide(self, X: np.ndarray) -> np.ndarray:
        """Return 1{φ ≥ 0} of every classifier, float64, shape (n_samples, K)."""
        return (self.scores(X) >= 0).astype(np.float64)


def build_problem(data: Mapping[str, Any], setting: Setting, name: str) -> ConstrainedProblem:
    """Return the rows with the groups that the approach constrains, and their noise.

    ``data`` holds what ``fit`` takes, with y as 0 and 1; ``name`` is the estimator's, for messages.
    ConfigError for a noise model that does not fit the groups, DataError for groups without a row
    and where nothing is known of the noise, InputError for weights that are all zero.
    """
    X, y = np.asarray(data["X"]), np.asarray(data["y"])
    weight = training_weight(data.get("sample_weight"), len(y))
    noisy = take_attribute(data["sensitive_features"], setting.attribute)
    true = data.get("true_groups")
    true = None if true is None else take_attribute(true, setting.attribute)
    codes = true if setting.approach == "true_groups" and true is not None else noisy
    n_groups = int(codes.max()) + 1
    shares = np.bincount(codes, weights=weight, minlength=n_groups)
    if (shares <= 0).any():
        raise DataError(
            f"The group {int(np.argmin(shares))} has no training row of positive weight.",
            "Merge it with another group in the dataset's YAML.",
        )
    noise, level = None, np.zeros(0)
    if setting.approach in ROBUST:
        noise = _find_noise(setting, name, noisy, true, shares / shares.sum(), weight)
    if setting.approach == "dro":
        level = _find_levels(setting, noise, n_groups)
    return ConstrainedProblem(X, y.astype(np.int64), codes, n_groups, weight, noise, level)


def _find_noise(
    setting: Setting,
    name: str,
    noisy: np.ndarray,
    true: np.ndarray | None,
    shares: np.ndarray,
    weight: np.ndarray,
) -> NoiseModel | None:
    """Return the given noise model, or the one estimated from rows with true groups."""
    n_groups = len(shares)
    if setting.confusion is not None:
        confusion = np.asarray(setting.confusion, dtype=np.float64)
        if confusion.ndim == 2 and confusion.shape[1] != n_groups:
            raise ConfigError(
                f"The confusion has {confusion.shape[1]} columns, and there are {n_groups} noisy "
                "groups.",
                "Give P(Ĝ=k | G=j) for every noisy group k in row j.",
            )
        return NoiseModel.from_confusion(confusion, noisy_prior=shares)
    if setting.level is None:
        if true is None:
            raise DataError(
                f"The noise of the groups is unknown, and {name} needs it.",
                "Give level or confusion, or rows with true_groups.",
            )
        return _estimate_noise(true, noisy, weight)
    if np.ndim(setting.level):
        levels = np.atleast_1d(setting.level)
        if len(levels) != n_groups:
            raise ConfigError(
                f"The parameter 'level' of {name!r} is {setting.level!r}.",
                f"Give {n_groups} shares, or one.",
            )
        return None
    level = float(np.asarray(setting.level))
    if setting.approach == "dro" and setting.tv == "paper":
        return None
    confusion = np.full((n_groups, n_groups), level / max(n_groups - 1, 1))
    np.fill_diagonal(confusion, 1 - level)
    return NoiseModel.from_confusion(confusion, noisy_prior=shares)


def _estimate_noise(true: np.ndarray, noisy: np.ndarray, weight: np.ndarray) -> NoiseModel:
    """Return the noise model of weighted rows whose true groups are known."""
    if np.all(weight == weight[0]):
        return NoiseModel.from_table(true, noisy)
    size = int(max(true.max(), noisy.max())) + 1
    counts = np.bincount(true * size + noisy, weights=weight, minlength=size * size)
    names = tuple(map(str, range(size)))
    return NoiseModel(counts.reshape(size, size) / counts.sum(), names, names)


def _find_levels(setting: Setting, noise: NoiseModel | None, n_groups: int) -> np.ndarray:
    """Return γ_j of the balls, and warn where the paper's choice of it need not hold."""
    if noise is None:
        return np.broadcast_to(np.asarray(setting.level, dtype=np.float64), (n_groups,)).copy()
    if setting.tv == "valid":
        return noise.valid_level
    if not noise.level_holds.all():
        short = [
            name for name, holds in zip(noise.names, noise.level_holds, strict=True) if not holds
        ]
        warnings.warn(
            f"P(Ĝ≠j | G=j) need not bound the distance of the groups {', '.join(short)}, which "
            "have more noisy rows than true ones: the model may be less fair than its constraints. "
            "With tv: valid the level always holds.",
            TrainingWarning,
            stacklevel=2,
        )
    return noise.level


def evaluate_constraints(
    setting: Setting,
    solution: Solution,
    decision: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    weight: np.ndarray,
    inner: str,
) -> np.ndarray:
    """Return the constraints of an approach on any rows, with indicators, by rate and group.

    ``decision``, shape (n, K), holds 0 or 1 of every classifier; ``codes`` are the constrained
    groups. With ``inner`` "exact" worst cases are true maxima on these rows, else those under the
    masses of the solution. The result has shape (R, m), or (0, m) without constraints, and is in
    units of the rate: the expectation over a mixture, NaN where a group has no row of the event.
    DataError for a group that training did not have.
    """
    n_groups = solution.cell_mass.shape[-2]
    if codes.size and codes.max() >= n_groups:
        raise DataError(
            f"There is a group with the code {codes.max()}, and training had {n_groups} groups.",
            "Use the groups that the model was trained with.",
        )
    if setting.approach == "unconstrained":
        return np.zeros((0, n_groups))
    cells = count_cells(decision.T, y, codes, n_groups, weight)
    values = [
        _evaluate_rate(setting, solution, cells, index, rate, inner)
        for index, rate in enumerate(find_rates(setting.criterion))
    ]
    return np.asarray(np.einsum("k,krj->rj", solution.probability, np.stack(values, axis=1)))


def take_largest(constraints: np.ndarray) -> float:
    """Return the largest constraint; −∞ of none, NaN where no group has a row of any event."""
    if constraints.size == 0:
        return -np.inf
    return float(np.nan if np.isnan(constraints).all() else np.nanmax(constraints))


def _evaluate_rate(
    setting: Setting, solution: Solution, cells: np.ndarray, index: int, rate: Rate, inner: str
) -> np.ndarray:
    """Return the constraints of one rate for every classifier, shape (K, m)."""
    # Which cells c = 2ŷ + y are in the rate's event, and which of them are bad.
    sign = np.asarray([rate.sign[c % 2] for c in range(4)])
    among, wrong = (sign != 0).astype(np.float64), (sign == [-1, -1, 1, 1]).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = (cells * wrong).sum(axis=(1, 2)) / (cells * among).sum(axis=(1, 2))
        if setting.approach in ("true_groups", "naive"):
            bad = (cells * wrong).sum(axis=2) / (cells * among).sum(axis=2)
        elif inner != "exact":
            mass = solution.cell_mass[index] * cells[:, None]
            bad = (mass * wrong).sum(axis=(2, 3)) / (mass * among).sum(axis=(2, 3))
        else:
            kind, joint = RATE_CELLS[rate.cells], solution.joint
            if setting.approach == "dro":
                low, high = bound_rate_of_cells(cells, solution.level, kind, _find_centre(joint))
            else:
                low, high = bound_rates(cells, (joint / joint.sum(axis=0)).T, kind)
            bad = 1 - low if rate.floor else high
    return np.asarray(bad - overall[:, None] - setting.budget)


def _find_centre(joint: np.ndarray) -> tuple[int, ...] | None:
    """Return the noisy group at the centre of each ball; None where each group is its own."""
    if joint.size == 0:
        return None
    true, noisy = (tuple(map(str, range(size))) for size in joint.shape)
    return NoiseModel(joint, true, noisy).centre
