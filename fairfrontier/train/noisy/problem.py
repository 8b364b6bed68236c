"""Problem, settings and solution of training with noisy groups."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fairfrontier.runtime.arrays import Backend
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.base import TrainingWarning, training_weight
from fairfrontier.train.group import take_attribute
from fairfrontier.train.neural.estimator import PREDICTION_ROWS
from fairfrontier.train.neural.network import Network, forward
from fairfrontier.train.noisy.lagrangian import TOLERANCE, Best
from fairfrontier.train.noisy.noise import NoiseModel

Approach = Literal["unconstrained", "true_groups", "naive", "dro", "soft_assignment"]
Inner = Literal["ascent", "exact", "joint"]
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
    inner: Inner = "exact"
    variant: Literal["paper", "authors"] = "paper"
    inner_rate: float | Sequence[float] = 1.0
    inner_steps: int = 1
    mix: Callable[..., Solution] | None = None


def list_candidates(setting: Setting) -> list[Setting]:
    """Return a setting for every combination of the listed values."""
    values = {name: np.atleast_1d(getattr(setting, name)).tolist() for name in TUNED}
    if setting.inner != "ascent":
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
    noisy = take_attribute(data["groups"], setting.attribute)
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
