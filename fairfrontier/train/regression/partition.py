"""What a worker computes from its rows in fair regression: sums that add up over partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import xgboost

from fairfrontier.runtime.errors import DataError
from fairfrontier.train.base import unit_weight
from fairfrontier.train.dask.collective import communicating
from fairfrontier.train.group import take_attribute
from fairfrontier.train.regression.grid import bin_labels, count_levels, round_down
from fairfrontier.train.regression.loss import Loss, scale_labels
from fairfrontier.train.regression.moment import Moments, sum_by_cell, sum_moments
from fairfrontier.train.regression.oracle.logistic import sum_curvature, sum_logistic
from fairfrontier.train.regression.oracle.oracle import weigh_copies
from fairfrontier.train.regression.predictor import Predictor


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows of positive weight on one worker.

    Attributes
    ----------
    number : int
        Position among the partitions.
    X : ndarray of float64, shape (n_samples, n_features)
    y : ndarray of float64, shape (n_samples,)
        Labels in [0, 1].
    group : ndarray of int64, shape (n_samples,)
        Codes; 0, …, n_groups − 1 once arranged.
    weight : ndarray of float64, shape (n_samples,)
    start : int
        Rows of the earlier partitions, once arranged.
    cell : ndarray of int64, shape (n_samples,)
        Pair of group and label cell, once numbered.
    """

    number: int
    X: np.ndarray
    y: np.ndarray
    group: np.ndarray
    weight: np.ndarray
    start: int
    cell: np.ndarray

    def __sizeof__(self) -> int:
        # Dask estimates memory and transfers by this.
        arrays = (self.X, self.y, self.group, self.weight, self.cell)
        return sum(array.nbytes for array in arrays)


@dataclass(frozen=True, eq=False)
class CellTargets:
    """Labels and weights of a fit, described by few numbers.

    ``target`` is the label of the rows of each cell, shape (n_cells,), or empty where rows keep
    their own labels; ``factor`` multiplies the weights of each group, shape (n_groups,).
    """

    target: np.ndarray
    factor: np.ndarray

    def labels(self, rows: Partition) -> np.ndarray:
        """Return the label of each row."""
        labels: np.ndarray = self.target[rows.cell] if self.target.size else rows.y
        return labels

    def weights(self, rows: Partition) -> np.ndarray:
        """Return the weight of each row."""
        weights: np.ndarray = rows.weight * self.factor[rows.group]
        return weights


def make_partition(
    number: int,
    X: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray,
    sample_weight: np.ndarray | None,
    label_range: tuple[float, float],
    attribute: int,
) -> Partition:
    """Return the rows of positive weight, their labels scaled to [0, 1].

    DataError for labels outside their range, and integers other than 0 and 1.
    """
    if np.issubdtype(y.dtype, np.integer) and not np.isin(y, (0, 1)).all():
        raise DataError(
            "fair_regression was given classes other than 0 and 1.",
            "Give it two classes, or numbers as floats.",
        )
    weight = unit_weight(sample_weight, len(y))
    label = y.astype(np.float64)
    if label.size:
        label = scale_labels(label, *label_range)
    used = weight > 0
    X, group = np.asarray(X, dtype=np.float64), take_attribute(groups, attribute)
    if not used.all():
        X, label, group, weight = X[used], label[used], group[used], weight[used]
    return Partition(number, X, label, group, weight, 0, np.zeros(0, dtype=np.int64))


def describe_rows(rows: Partition) -> tuple[int, int, list[int], bool]:
    """Return the partition's number, size and group codes, and whether all labels are 0 or 1."""
    binary = bool(np.isin(rows.y, (0.0, 1.0)).all())
    return rows.number, len(rows.y), np.unique(rows.group).tolist(), binary


def arrange(rows: Partition, levels: np.ndarray, starts: np.ndarray) -> Partition:
    """Return the rows with groups numbered from 0, and their position among all rows."""
    group = np.searchsorted(levels, rows.group)
    return replace(rows, group=group, start=int(starts[rows.number]))


def weigh_labels(rows: Partition, sharpness: float) -> Partition:
    """Return the rows with the weights of their copies as labels; see ``weigh_copies``."""
    return replace(rows, y=weigh_copies(rows.y, sharpness))


def sum_label_cells(rows: Partition, n_groups: int, n_grid: int) -> np.ndarray:
    """Return weight and sum of labels by group and half-step cell, shape (2, n_groups · 2N)."""
    cell = rows.group * (2 * n_grid) + bin_labels(rows.y, n_grid)
    size = n_groups * 2 * n_grid
    return np.stack([np.bincount(cell, mass, size) for mass in (rows.weight, rows.weight * rows.y)])


def number_labels(rows: Partition, number: np.ndarray, n_labels: int, n_grid: int) -> Partition:
    """Assign rows to cells, given the label that each half-step cell has become."""
    return replace(rows, cell=rows.group * n_labels + number[bin_labels(rows.y, n_grid)])


def judge_levels(
    rows: Partition, predictor: Predictor, n_groups: int, n_labels: int, n_grid: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of levels by label and by group, as ``parity.judge`` needs them."""
    level = round_down(predictor.score(rows.X), n_grid)
    by_label = count_levels(level, rows.cell % n_labels, rows.weight, n_labels, n_grid)
    return by_label, count_levels(level, rows.group, rows.weight, n_groups, n_grid)


def sum_losses(rows: Partition, predictor: Predictor, loss: Loss, n_groups: int) -> np.ndarray:
    """Return Σ w ℓ of each group, predictions clipped to [0, 1]."""
    value = loss.value(rows.y, np.clip(predictor.score(rows.X), 0.0, 1.0))
    return np.bincount(rows.group, weights=rows.weight * value, minlength=n_groups)


def sum_group_weights(rows: Partition, n_groups: int) -> np.ndarray:
    """Return Σ w of each group."""
    return np.bincount(rows.group, weights=rows.weight, minlength=n_groups)


def sum_constant_losses(rows: Partition, constants: np.ndarray, loss: Loss) -> np.ndarray:
    """Return Σ w ℓ(y, u) of each constant u."""
    losses: np.ndarray = rows.weight @ loss.value(rows.y[:, None], constants[None, :])
    return losses


def sum_deviations(rows: Partition, constant: float, mean: float, loss: Loss) -> float:
    """Return Σ w (ℓ(y, u) − mean)² of one constant."""
    losses = loss.value(rows.y, np.full_like(rows.y, constant))
    return float(rows.weight @ (losses - mean) ** 2)


def sum_design(rows: Partition, n_cells: int) -> tuple[Moments, np.ndarray]:
    """Return the moments, and Σ w x by cell, for least squares on targets by cell."""
    everyone = np.zeros(len(rows.y), dtype=np.int64)
    moments = sum_moments(rows.X, rows.weight, everyone, 1)
    return moments, sum_by_cell(rows.X, rows.weight, rows.cell, n_cells)


def sum_group_design(rows: Partition, n_groups: int) -> tuple[Moments, np.ndarray]:
    """Return the moments and Σ w x y of each group, for least squares on the labels."""
    moments = sum_moments(rows.X, rows.weight, rows.group, n_groups)
    return moments, sum_by_cell(rows.X, rows.weight * rows.y, rows.group, n_groups)


def evaluate_logistic(
    rows: Partition, theta: np.ndarray, targets: CellTargets
) -> tuple[float, np.ndarray]:
    """Return the logistic loss and its gradient, without penalty."""
    value, gradient, _ = sum_logistic(rows.X, theta, targets.labels(rows), targets.weights(rows))
    return value, gradient


def evaluate_curvature(
    rows: Partition, theta: np.ndarray, targets: CellTargets, stride: int
) -> tuple[np.ndarray, float]:
    """Return the Hessian of every ``stride``-th of all rows, and their weight."""
    some = slice(-rows.start % stride, None, stride)
    weight = targets.weights(rows)[some]
    X = np.ascontiguousarray(rows.X[some])
    chance = sum_logistic(X, theta, np.zeros(len(X)), weight)[2]
    return sum_curvature(X, weight * chance * (1.0 - chance)), float(weight.sum())


class WorkerRows:
    """All rows of one worker, as XGBoost holds them."""

    def __init__(self, parts: Sequence[Partition]) -> None:
        self.parts = parts

    def __sizeof__(self) -> int:
        return sum(part.__sizeof__() for part in self.parts)

    def __getstate__(self) -> dict[str, Any]:
        # XGBoost's matrix cannot be pickled; it is made again where it is needed.
        return {"parts": self.parts}

    @cached_property
    def matrix(self) -> xgboost.DMatrix:
        """The matrix, made once, so that its bins are those of the first fit's weights."""
        return xgboost.DMatrix(np.concatenate([part.X for part in self.parts]), nthread=1)

    def prepare(self) -> int:
        """Make the matrix before the other workers wait for it; return its number of rows."""
        return int(self.matrix.num_row())

    def grow(
        self,
        targets: CellTargets,
        parameters: Mapping[str, Any],
        rounds: int,
        peers: Mapping[str, Any],
    ) -> xgboost.Booster | None:
        """Train together with the other workers; the first of them returns the common trees."""
        self.matrix.set_label(np.concatenate([targets.labels(part) for part in self.parts]))
        self.matrix.set_weight(np.concatenate([targets.weights(part) for part in self.parts]))
        with communicating(**peers):
            booster = xgboost.train(dict(parameters), self.matrix, rounds)
            return booster if xgboost.collective.get_rank() == 0 else None
