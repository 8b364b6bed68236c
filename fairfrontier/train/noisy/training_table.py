"""What one model is trained on: its rows, the groups that its approach constrains, the noise."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.base import require_binary, take_attribute, unit_weight
from fairfrontier.train.neural.estimator import TrainingWarning
from fairfrontier.train.noisy.noise import NoiseModel

if TYPE_CHECKING:
    from fairfrontier.train.noisy.estimator import NoisyGroups

ROBUST = ("dro", "soft_assignments", "soft_assignments_ideal")


@dataclass(frozen=True, eq=False)
class TrainingTable:
    """The training rows of one member of a batch, as asked for by its approach."""

    X: np.ndarray
    y: np.ndarray
    codes: np.ndarray
    n_groups: int
    weight: np.ndarray
    noise: NoiseModel | None


def prepare_table(model: NoisyGroups, data: Mapping[str, Any]) -> TrainingTable:
    """Return the rows with the groups that the approach constrains, and the noise model."""
    X, y = np.asarray(data["X"]), np.asarray(data["y"])
    require_binary(y, model.name)
    if len(y) and (y == y[0]).all():
        raise DataError(f"All training labels are {y[0]}.", "Train on rows of both classes.")
    weight = unit_weight(data.get("sample_weight"), len(y))
    noisy = take_attribute(data["groups"], model.attribute).astype(np.int64)
    true = data.get("true_groups")
    true = None if true is None else take_attribute(true, model.attribute).astype(np.int64)
    codes = true if model.approach == "true_groups" and true is not None else noisy
    n_groups = int(codes.max()) + 1
    shares = np.bincount(codes, weights=weight, minlength=n_groups)
    if (shares <= 0).any():
        raise DataError(
            f"The group {int(np.argmin(shares))} has no training row, or none of positive weight.",
            "Merge it with another group in the dataset's YAML.",
        )
    noise = None
    if model.approach in ROBUST:
        noise = _find_noise(model, noisy, true, shares / shares.sum(), weight)
    return TrainingTable(X, y.astype(np.int64), codes, n_groups, weight, noise)


def _find_noise(
    model: NoisyGroups,
    noisy: np.ndarray,
    true: np.ndarray | None,
    shares: np.ndarray,
    weight: np.ndarray,
) -> NoiseModel | None:
    """Return the noise model that was given, or the one of the rows whose true groups are known."""
    n_groups = len(shares)
    if model.confusion is not None:
        confusion = np.asarray(model.confusion, dtype=np.float64)
        if confusion.ndim == 2 and confusion.shape[1] != n_groups:
            raise ConfigError(
                f"The confusion has {confusion.shape[1]} columns, and there are {n_groups} noisy "
                "groups.",
                "Give P(Ĝ=k | G=j) for every noisy group k in row j.",
            )
        return NoiseModel.from_confusion(confusion, noisy_prior=shares)
    if model.level is None:
        if true is None:
            raise DataError(
                f"{model.name} with {model.approach} knows no noise of the groups.",
                "Give level or confusion, or rows with true_groups.",
            )
        return _estimate(true, noisy, weight)
    if np.ndim(model.level):
        model.require(
            "level", len(np.atleast_1d(model.level)) == n_groups, f"{n_groups} shares, or one"
        )
        return None
    level = float(np.asarray(model.level))
    if model.approach == "dro" and model.tv == "paper":
        return None
    confusion = np.full((n_groups, n_groups), level / max(n_groups - 1, 1))
    np.fill_diagonal(confusion, 1 - level)
    return NoiseModel.from_confusion(confusion, noisy_prior=shares)


def _estimate(true: np.ndarray, noisy: np.ndarray, weight: np.ndarray) -> NoiseModel:
    """Return the noise model of weighted rows whose true groups are known."""
    if np.all(weight == weight[0]):
        return NoiseModel.from_table(true, noisy)
    m, seen = int(true.max()) + 1, int(noisy.max()) + 1
    m, seen = max(m, seen), max(m, seen)
    counts = np.bincount(true * seen + noisy, weights=weight, minlength=m * seen)
    names = tuple(str(code) for code in range(m))
    return NoiseModel(counts.reshape(m, seen) / counts.sum(), names, names)


def choose_levels(model: NoisyGroups, noise: NoiseModel | None, n_groups: int) -> np.ndarray | None:
    """Return γ_j of the balls, and warn where the paper's choice of it need not hold."""
    if model.approach != "dro":
        return None
    if noise is None:
        level = np.asarray(model.level, dtype=np.float64)
        return np.broadcast_to(level, (n_groups,)).copy()
    if model.tv == "valid":
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
