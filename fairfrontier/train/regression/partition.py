"""What a worker does with its rows in fair regression: sums that add up over partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import xgboost

from fairfrontier.runtime.errors import DataError
from fairfrontier.train.base import take_attribute, unit_weight
from fairfrontier.train.regression.grid import bin_labels, count_levels, round_down
from fairfrontier.train.regression.loss import Loss, scale_labels
from fairfrontier.train.regression.moment import Moments, sum_by_cell, sum_moments
from fairfrontier.train.regression.oracle.logistic import sum_curvature, sum_logistic
from fairfrontier.train.regression.oracle.oracle import weigh_copies
from fairfrontier.train.regression.predictor import Predictor


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows of positive weight that one worker holds.

    Attributes
    ----------
    number : int
        Place among the partitions.
    X : ndarray of float64, shape (n_samples, n_features)
    y : ndarray of float64, shape (n_samples,)
        Labels in [0, 1].
    group : ndarray of int64, shape (n_samples,)
        Codes; 0, …, n_groups − 1 once arranged.
    weight : ndarray of float64, shape (n_samples,)
    start : int
        Rows of the partitions before, once arranged.
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
        # By which Dask judges memory and transfers.
        arrays = (self.X, self.y, self.group, self.weight, self.cell)
        return sum(each.nbytes for each in arrays)


@dataclass(frozen=True, eq=False)
class Aim:
    """Labels and weights of a fit, told in few numbers.

    Attributes
    ----------
    target : ndarray of float64, shape (n_cells,) or (0,)
        Label of the rows of each cell; their own labels when empty.
    factor : ndarray of float64, shape (n_groups,)
        What the weights of each group are multiplied by.
    """

    target: np.ndarray
    factor: np.ndarray

    def labels(self, rows: Partition) -> np.ndarray:
        """Return the label of each row."""
        found: np.ndarray = self.target[rows.cell] if self.target.size else rows.y
        return found

    def weights(self, rows: Partition) -> np.ndarray:
        """Return the weight of each row."""
        found: np.ndarray = rows.weight * self.factor[rows.group]
        return found


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

    Raises
    ------
    DataError
        For labels outside their range, and integers that are not 0 or 1.
    """
    if np.issubdtype(y.dtype, np.integer) and not np.isin(y, (0, 1)).all():
        raise DataError(
            "fair_regression is given classes other than 0 and 1.",
            "Give it two classes, or numbers as floats.",
        )
    weight = unit_weight(sample_weight, len(y))
    label = y.astype(np.float64)
    if label.size:
        label = scale_labels(label, *label_range)
    held = weight > 0
    X, group = np.asarray(X, dtype=np.float64), take_attribute(groups, attribute).astype(np.int64)
    if not held.all():
        X, label, group, weight = X[held], label[held], group[held], weight[held]
    return Partition(number, X, label, group, weight, 0, np.zeros(0, dtype=np.int64))


def describe_rows(rows: Partition) -> tuple[int, int, list[int], bool]:
    """Return the partition's number, its rows, group codes, and whether all labels are 0 or 1."""
    binary = bool(np.isin(rows.y, (0.0, 1.0)).all())
    return rows.number, len(rows.y), np.unique(rows.group).tolist(), binary


def arrange(rows: Partition, levels: np.ndarray, starts: np.ndarray) -> Partition:
    """Return the rows with groups numbered from 0, and their place among all."""
    group = np.searchsorted(levels, rows.group)
    return replace(rows, group=group, start=int(starts[rows.number]))


def weigh_labels(rows: Partition, sharpness: float) -> Partition:
    """Return the rows with the weights of their copies in place of labels; see ``weigh_copies``."""
    return replace(rows, y=weigh_copies(rows.y, sharpness))


def sum_label_cells(rows: Partition, n_groups: int, n_grid: int) -> np.ndarray:
    """Return weight and sum of labels by group and half-step cell, shape (2, n_groups · 2N)."""
    cell = rows.group * (2 * n_grid) + bin_labels(rows.y, n_grid)
    size = n_groups * 2 * n_grid
    return np.stack([np.bincount(cell, each, size) for each in (rows.weight, rows.weight * rows.y)])


def number_labels(rows: Partition, number: np.ndarray, n_labels: int, n_grid: int) -> Partition:
    """Put rows into cells, given the label that each half-step cell has become."""
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
    found: np.ndarray = rows.weight @ loss.value(rows.y[:, None], constants[None, :])
    return found


def sum_deviations(rows: Partition, constant: float, mean: float, loss: Loss) -> float:
    """Return Σ w (ℓ(y, u) − mean)² of one constant."""
    losses = loss.value(rows.y, np.full_like(rows.y, constant))
    return float(rows.weight @ (losses - mean) ** 2)


def sum_design(rows: Partition, n_cells: int) -> tuple[Moments, np.ndarray]:
    """Return what least squares on targets by cell needs: moments, and Σ w x by cell."""
    everyone = np.zeros(len(rows.y), dtype=np.int64)
    moments = sum_moments(rows.X, rows.weight, everyone, 1)
    return moments, sum_by_cell(rows.X, rows.weight, rows.cell, n_cells)


def sum_group_design(rows: Partition, n_groups: int) -> tuple[Moments, np.ndarray]:
    """Return what least squares on the labels needs: moments and Σ w x y of each group."""
    moments = sum_moments(rows.X, rows.weight, rows.group, n_groups)
    return moments, sum_by_cell(rows.X, rows.weight * rows.y, rows.group, n_groups)


def evaluate_logistic(rows: Partition, theta: np.ndarray, aim: Aim) -> tuple[float, np.ndarray]:
    """Return the logistic loss and its gradient, without penalty."""
    value, gradient, _ = sum_logistic(rows.X, theta, aim.labels(rows), aim.weights(rows))
    return value, gradient


def evaluate_curvature(
    rows: Partition, theta: np.ndarray, aim: Aim, stride: int
) -> tuple[np.ndarray, float]:
    """Return the Hessian of every ``stride``-th of all rows, and their weight."""
    some = slice(-rows.start % stride, None, stride)
    weight = aim.weights(rows)[some]
    X = np.ascontiguousarray(rows.X[some])
    chance = sum_logistic(X, theta, np.zeros(len(X)), weight)[2]
    return sum_curvature(X, weight * chance * (1.0 - chance)), float(weight.sum())


class Stand:
    """All rows of one worker, as XGBoost holds them.

    Parameters
    ----------
    parts : sequence of Partition
    """

    def __init__(self, parts: Sequence[Partition]) -> None:
        self.parts = parts

    def __sizeof__(self) -> int:
        return sum(each.__sizeof__() for each in self.parts)

    def __getstate__(self) -> dict[str, Any]:
        # XGBoost's matrix cannot travel; it is made again where it is needed.
        return {"parts": self.parts}

    @cached_property
    def matrix(self) -> xgboost.DMatrix:
        """The matrix, made once, so that its bins are those of the first fit's weights."""
        return xgboost.DMatrix(np.concatenate([each.X for each in self.parts]), nthread=1)

    def prepare(self) -> int:
        """Make the matrix, before others wait for it; return its rows."""
        return int(self.matrix.num_row())

    def grow(
        self, aim: Aim, parameters: Mapping[str, Any], rounds: int, peers: Mapping[str, Any]
    ) -> xgboost.Booster | None:
        """Train together with the other workers; of the trees, the same on all, one sends them."""
        from xgboost.dask import CommunicatorContext

        self.matrix.set_label(np.concatenate([aim.labels(each) for each in self.parts]))
        self.matrix.set_weight(np.concatenate([aim.weights(each) for each in self.parts]))
        with CommunicatorContext(**peers):
            booster = xgboost.train(dict(parameters), self.matrix, rounds)
            return booster if xgboost.collective.get_rank() == 0 else None
