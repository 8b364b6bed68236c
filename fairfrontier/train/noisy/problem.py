"""Problem, settings and solution of training with noisy groups."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fairfrontier.runtime.arrays import Backend
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.base import take_attribute, unit_weight
from fairfrontier.train.neural.estimator import PREDICTION_ROWS, TrainingWarning
from fairfrontier.train.neural.network import Network, forward
from fairfrontier.train.noisy.lagrangian import TOLERANCE, Best
from fairfrontier.train.noisy.noise import NoiseModel

Approach = Literal["unconstrained", "true_groups", "naive", "dro", "soft_assignment", "ideal"]
Inner = Literal["ascent", "exact", "joint"]
# Approaches with an adversary, which need to know the noise.
ROBUST = ("dro", "soft_assignment", "ideal")


@dataclass(frozen=True)
class Setting:
    """How a model is trained; what an approach does not use keeps its default.

    Attributes are parameters of the estimators, see there; ``approach`` says what stands for the
    true groups, and ``widths`` are those of the hidden layers.
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
    response: Literal["exact", "nested"] = "exact"
    game_steps: int = 1
    response_steps: int = 1
    response_slack: float = 1.0
    response_tolerance: float = 0.0
    response_radius: float | None = None


@dataclass(frozen=True, eq=False)
class ConstrainedProblem:
    """Training rows, the groups that are constrained, and what is known of their noise.

    Attributes
    ----------
    X : ndarray of float, shape (n, d)
    y, codes : ndarray of int64, shape (n,)
        Labels 0 and 1, and groups.
    n_groups : int
        m̂.
    weight : ndarray of float64, shape (n,)
    noise : NoiseModel or None
        None where none is used, or levels alone.
    level : ndarray of float64, shape (m,)
        γ_j of the balls; empty where there are none.
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
    """A classifier, or a mixture of several, and how it stands in training.

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
        Of the game whose mixture it is, see ``IdealSolution``; NaN of single classifiers, whose
        game need not have an equilibrium.
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

    @property
    def feasible(self) -> bool:
        """Whether the constraints are satisfied in training."""
        return self.violation <= TOLERANCE

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Return φ of every classifier, float64, shape (n_samples, K)."""
        rows, network = np.asarray(X, dtype=np.float64), self.network
        if len(network.weight) == 1:
            found = rows @ network.weight[0][:, :, 0].T
            return np.asarray(found + network.bias[0][:, 0, 0])
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

    Parameters
    ----------
    data : mapping
        X, y (0 and 1), ``groups`` and, where there are some, ``true_groups`` and
        ``sample_weight``, as ``fit`` takes them.
    setting : Setting
        Its approach, attribute, level, confusion and tv count.
    name : str
        The estimator's, for messages.

    Raises
    ------
    ConfigError
        For a noise model that does not fit the groups.
    DataError
        For groups without a row, and where nothing is known of the noise.
    """
    X, y = np.asarray(data["X"]), np.asarray(data["y"])
    weight = unit_weight(data.get("sample_weight"), len(y))
    noisy = take_attribute(data["groups"], setting.attribute).astype(np.int64)
    true = data.get("true_groups")
    true = None if true is None else take_attribute(true, setting.attribute).astype(np.int64)
    codes = true if setting.approach == "true_groups" and true is not None else noisy
    n_groups = int(codes.max()) + 1
    shares = np.bincount(codes, weights=weight, minlength=n_groups)
    if (shares <= 0).any():
        raise DataError(
            f"The group {int(np.argmin(shares))} has no training row, or none of positive weight.",
            "Merge it with another group in the dataset's YAML.",
        )
    noise, level = None, np.zeros(0)
    if setting.approach in ROBUST:
        noise = _find_noise(setting, name, noisy, true, shares / shares.sum(), weight)
    if setting.approach == "dro":
        level = _choose_levels(setting, noise, n_groups)
    return ConstrainedProblem(X, y.astype(np.int64), codes, n_groups, weight, noise, level)


def _find_noise(
    setting: Setting,
    name: str,
    noisy: np.ndarray,
    true: np.ndarray | None,
    shares: np.ndarray,
    weight: np.ndarray,
) -> NoiseModel | None:
    """Return the noise model that was given, or the one of the rows whose true groups are known."""
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
                f"Nothing says how noisy the groups are, which {name} has to know.",
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
    names = tuple(str(code) for code in range(size))
    return NoiseModel(counts.reshape(size, size) / counts.sum(), names, names)


def _choose_levels(setting: Setting, noise: NoiseModel | None, n_groups: int) -> np.ndarray:
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
            f"P(Ĝ≠j | G=j) need not bound the distance of the groups {', '.join(short)}, of which "
            "there are more noisy rows than true ones: the model may be less fair than it claims. "
            "With tv: valid the level always holds.",
            TrainingWarning,
            stacklevel=2,
        )
    return noise.level
