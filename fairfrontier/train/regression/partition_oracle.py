"""Oracles and problems of fair regression whose rows are on Dask workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.train.dask.collective import convene
from fairfrontier.train.dask.placement import Placement
from fairfrontier.train.regression import partition
from fairfrontier.train.regression.bounded_loss import BoundedLossProblem
from fairfrontier.train.regression.grid import measure_parity
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.moment import factorise
from fairfrontier.train.regression.oracle.logistic import LogisticRegressor
from fairfrontier.train.regression.oracle.oracle import (
    GroupSquareOracle,
    LeastSquaresOracle,
    Response,
    TreeOracle,
)
from fairfrontier.train.regression.parity import ParityProblem
from fairfrontier.train.regression.partition import CellTargets, WorkerRows
from fairfrontier.train.regression.predictor import TreePredictor

# Labels of a fit when rows keep their own.
OWN = np.zeros(0)


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionedParity(ParityProblem):
    """A parity problem that knows of its rows only the weight of each group and label cell.

    Its ``group``, ``labels`` and ``weight`` describe one row for each such cell, and its ``cell``
    numbers all of them, so that the targets of a call are those of the cells. ``rows`` are
    partitions whose rows are in cells, ``total`` is Σ w.
    """

    rows: Placement
    total: float

    def judge(self, response: Response) -> tuple[float, np.ndarray]:
        """Return the discretised loss and γ̂ of a predictor from histograms of the partitions.

        The predictor goes to every worker; (n_labels + n_groups)(N + 1) numbers come back.
        """
        n_labels, n_groups = self.table.shape[0], self.share.size
        sizes = (n_groups, n_labels, self.n_grid)
        joint, counts = self.rows.sum(partition.judge_levels, response.predictor, *sizes)
        return float(np.sum(joint * self.table)) / self.total, measure_parity(counts)


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionedBoundedLoss(BoundedLossProblem):
    """A problem of bounded group loss that knows of its rows only Σ w of each group, ``total``."""

    rows: Placement
    loss: Loss
    total: np.ndarray

    def sum_group_losses(self, response: Response) -> np.ndarray:
        """Return the groups' mean losses; n_groups numbers come from every worker."""
        arguments = (response.predictor, self.loss, self.total.size)
        losses: np.ndarray = self.rows.sum(partition.sum_losses, *arguments) / self.total
        return losses


class PartitionedLeastSquares(LeastSquaresOracle):
    """``LeastSquaresOracle`` from sums of the partitions; a call does not read the rows."""

    def __init__(self, rows: Placement, n_cells: int) -> None:
        moments, self.sums = rows.sum(partition.sum_design, n_cells)
        self.factor = factorise(moments)
        self.X = np.zeros((0, len(self.sums) - 1))


class PartitionedGroupSquare(GroupSquareOracle):
    """``GroupSquareOracle`` from sums of the partitions; a call does not read the rows."""

    def __init__(self, rows: Placement, n_groups: int, *, exact: bool) -> None:
        self.exact = exact
        self.moments, self.cross = rows.sum(partition.sum_group_design, n_groups)
        self.X = np.zeros((0, len(self.cross) - 1))


class PartitionedLogisticRegressor(LogisticRegressor):
    """``LogisticRegressor`` by sums of gradients and Hessians over the partitions.

    ``total`` is Σ w of each group. ``solve`` takes labels by cell, or ``OWN``, and the weights of
    whole groups. A step moves d numbers to each worker and back, a Hessian d². The Hessian is
    estimated from the same rows as by ``LogisticRegressor``, so that the steps are the same.
    """

    def __init__(
        self, rows: Placement, n_samples: int, n_features: int, total: np.ndarray, penalty: float
    ) -> None:
        super().__init__(np.zeros((0, n_features)), penalty)
        self.rows, self.total, self.count = rows, total, n_samples
        self._targets = CellTargets(OWN, np.ones_like(total))

    def _sum(
        self, theta: np.ndarray, label: np.ndarray, weight: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        self._targets = CellTargets(label, weight / self.total)
        value, gradient = self.rows.sum(partition.evaluate_logistic, theta, self._targets)
        return value, gradient, theta

    def _sum_curvature(
        self,
        chance: np.ndarray,
        weight: np.ndarray,  # noqa: ARG002 - the last sum had the same
        stride: int,
    ) -> tuple[np.ndarray, float]:
        sums: tuple[np.ndarray, float] = self.rows.sum(
            partition.evaluate_curvature, chance, self._targets, stride
        )
        return sums

    @property
    def _n_samples(self) -> int:
        return self.count


class PartitionedTrees(TreeOracle):
    """``TreeOracle`` by XGBoost's collective training on the workers that hold the rows.

    ``total`` is Σ w of each group, ``parameters`` are those of ``TreeOracle``. Every worker makes
    its matrix once and all train at once: each needs a free thread. Histograms of gradients and, at
    the end, the trees are sent. Bins are quantiles that the workers agree on: those of one process
    while a worker has at most 2,048 different values of a feature (eight times XGBoost's 256 bins),
    approximately so beyond.
    """

    def __init__(
        self, rows: Placement, n_features: int, total: np.ndarray, **parameters: Any
    ) -> None:
        super().__init__(np.zeros((0, n_features)), np.zeros(0), **parameters)
        self.weight = total
        self.workers = rows.make_each(WorkerRows)
        self.workers.call(WorkerRows.prepare)

    def fit(self, target: np.ndarray, weight: np.ndarray) -> Response:
        """Return the ensemble grown on targets by cell, or ``OWN``, with weights of groups."""
        targets = CellTargets(target, weight / self.weight)
        peers = convene(self.workers)
        answers = self.workers.call(WorkerRows.grow, targets, self.parameters, self.rounds, peers)
        booster = next(answer for answer in answers if answer is not None)
        return Response(TreePredictor(booster, *self.units), np.zeros(0))
