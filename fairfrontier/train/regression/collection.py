"""Fair regression of Dask arrays: the game is played here, the rows stay on the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.dask.collection import place_partitions, try_twice
from fairfrontier.train.dask.placement import TIMEOUT, Placement
from fairfrontier.train.regression import partition
from fairfrontier.train.regression.bounded_loss import (
    CONSTANTS,
    BoundedLossProblem,
    build_bounded_loss,
)
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.oracle.oracle import (
    LogisticOracle,
    Oracle,
    RiskOracle,
    TargetOracle,
    WeightedOracle,
)
from fairfrontier.train.regression.oracle_choice import read_oracle
from fairfrontier.train.regression.parity import ParityProblem, build_parity
from fairfrontier.train.regression.partition_oracle import (
    OWN,
    PartitionedBoundedLoss,
    PartitionedGroupSquare,
    PartitionedLeastSquares,
    PartitionedLogisticRegressor,
    PartitionedParity,
    PartitionedTrees,
)
from fairfrontier.train.regression.problem import Solution, halve_error
from fairfrontier.train.regression.reduction import ReductionSetting, Report, solve_reduction

if TYPE_CHECKING:
    from distributed import Client

    from fairfrontier.train.regression.saddle import Progress


@dataclass(frozen=True, eq=False)
class Table:
    """Rows on workers, and what is known of them here.

    ``rows`` are partitions with dense group codes, ``levels`` the codes that they stand for, shape
    (n_groups,), and ``total`` is Σ w of each group.
    """

    rows: Placement
    levels: np.ndarray
    n_samples: int
    n_features: int
    total: np.ndarray


def fit_collection(
    setting: ReductionSetting,
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    client: Client | None,
    progress: Progress | None = None,
    timeout: float = TIMEOUT,
) -> tuple[np.ndarray, Solution, Report]:
    """Return group codes, solution and report for Dask arrays.

    The solution is that of a fit in one process to rounding. ``timeout`` is in seconds, for one
    request to the workers.

    Raises
    ------
    ConfigError
        Without a client, and for oracles and learners that need all rows in one place.
    DataError
        As ``Reduction.fit``.
    ClusterError
        When a worker was lost, and again at the second try.

    Notes
    -----
    Rows are placed once and stay; least squares then sends a call's d coefficients and gets back
    histograms of (n_labels + n_groups)(N + 1) numbers a worker. "To rounding" has exceptions:
    a prediction within rounding of a grid point may fall into the other level, XGBoost's bins are
    approximate for many rows (see ``PartitionedTrees``), and logistic regression of permuted
    partitions agrees to its own tolerance where it estimates the Hessian from some of the rows.
    A worker that dies ends the try within seconds; the next one starts from Dask's graph on fresh
    workers, see ``try_twice``.
    """
    for name, able in (("oracle", (None, "ls", "lr")), ("learner", ("linear", "xgboost"))):
        value = getattr(setting, name)
        if value not in able:
            raise ConfigError(
                f"The {name} {value!r} needs all rows in one place; these are Dask arrays.",
                f"Choose {able[-2]} or {able[-1]}, or compute the arrays.",
            )
    arrays = (X, y, groups, sample_weight)
    return try_twice(
        lambda workers: _fit(setting, arrays, workers, progress, timeout),
        client,
        name=setting.name,
        arrays=arrays,
        timeout=timeout,
    )


def _fit(
    setting: ReductionSetting,
    arrays: tuple[Any, Any, Any, Any],
    client: Client,
    progress: Progress | None,
    timeout: float,
) -> tuple[np.ndarray, Solution, Report]:
    table = _place_rows(setting, arrays, client, timeout)
    problem: ParityProblem | BoundedLossProblem
    oracle: Oracle | RiskOracle
    try:
        if setting.constraint == "statistical_parity":
            problem, oracle = _build_parity(setting, table)
        else:
            problem, oracle = _build_bounded_loss(setting, table)
        return table.levels, *solve_reduction(problem, oracle, progress)
    finally:
        table.rows.release()


def _place_rows(
    setting: ReductionSetting, arrays: tuple[Any, Any, Any, Any], client: Client, timeout: float
) -> Table:
    """Make the partitions of Dask arrays, each where its rows are; see ``place_partitions``."""
    rows = place_partitions(
        partition.make_partition,
        arrays,
        (setting.label_range, setting.attribute),
        names=("y", "groups", "sample_weight"),
        client=client,
        timeout=timeout,
    )
    _, counts, codes, binary = zip(*sorted(rows.collect(partition.describe_rows)), strict=True)
    if setting.loss.sharpness and not all(binary):
        raise DataError(
            "Some labels lie between the two of the logistic loss.",
            "Choose the square loss, or labels 0 and 1.",
        )
    sizes = np.array(counts)
    if not sizes.sum():
        raise DataError("There is no row of positive weight.", "Give it rows to train on.")
    levels = np.unique(np.concatenate([np.asarray(code, dtype=np.int64) for code in codes]))
    rows = rows.replace(partition.arrange, levels, np.cumsum(sizes) - sizes)
    total = rows.sum(partition.sum_group_weights, levels.size)
    return Table(rows, levels, int(sizes.sum()), int(arrays[0].shape[1]), total)


def _build_parity(setting: ReductionSetting, table: Table) -> tuple[ParityProblem, Oracle]:
    n_groups, n_grid = table.levels.size, setting.n_grid
    weight, label = table.rows.sum(partition.sum_label_cells, n_groups, n_grid)
    filled = np.flatnonzero(weight)
    # One row for each group and half-step cell: the problem depends on labels through these alone.
    mean, group = label[filled] / weight[filled], filled // (2 * n_grid)
    terms = setting.find_terms(table.levels)
    plain = build_parity(mean, group, weight[filled], n_grid=n_grid, **terms)
    number = np.zeros(2 * n_grid, dtype=np.int64)
    number[filled % (2 * n_grid)] = plain.labels.code
    rows = table.rows.replace(partition.number_labels, number, plain.table.shape[0], n_grid)
    fields = {**vars(plain), "cell": np.arange(plain.n_cells)}
    problem = PartitionedParity(**fields, rows=rows, total=float(table.total.sum()))
    kind, sharpness = read_oracle(setting)
    if setting.learner == "linear" and kind == "ls":
        return problem, PartitionedLeastSquares(rows, problem.n_cells)
    return problem, _make_oracle(setting, table, rows, sharpness)


def _build_bounded_loss(
    setting: ReductionSetting, table: Table
) -> tuple[BoundedLossProblem, RiskOracle]:
    rows, total, loss = table.rows, table.total, setting.loss
    group = np.arange(total.size)
    terms = setting.find_terms(table.levels)
    if terms["tolerance"] is None:
        terms["tolerance"] = _choose_tolerance(table, loss)
    # The labels of these rows, one a group, are not used.
    plain = build_bounded_loss(np.zeros_like(total), group, total, **terms)
    problem = PartitionedBoundedLoss(**vars(plain), rows=rows, loss=loss, total=total)
    kind, sharpness = read_oracle(setting)
    if setting.learner == "linear" and kind == "ls":
        exact = loss.name == "square"
        return problem, PartitionedGroupSquare(rows, total.size, exact=exact)
    if sharpness and not loss.sharpness:
        # As in ``choose_risk_oracle``: the classifier's prediction is to be the label.
        rows = rows.replace(partition.weigh_labels, sharpness)
    oracle = _make_oracle(setting, table, rows, sharpness)
    return problem, WeightedOracle(oracle.fit, OWN, total, group)


def _make_oracle(
    setting: ReductionSetting, table: Table, rows: Placement, sharpness: float
) -> TargetOracle:
    if setting.learner == "xgboost":
        parameters = setting.find_tree_parameters()
        return PartitionedTrees(
            rows, table.n_features, table.total, sharpness=sharpness, **parameters
        )
    regressor = PartitionedLogisticRegressor(
        rows, table.n_samples, table.n_features, table.total, setting.penalty
    )
    return LogisticOracle(regressor, table.total, sharpness, setting.variant)


def _choose_tolerance(table: Table, loss: Loss) -> float:
    """Return what ``choose_tolerance`` returns for the same constants."""
    total = float(table.total.sum())
    mean = table.rows.sum(partition.sum_constant_losses, CONSTANTS, loss) / total
    best = int(np.argmin(mean))
    arguments = (float(CONSTANTS[best]), float(mean[best]), loss)
    return halve_error(float(table.rows.sum(partition.sum_deviations, *arguments)), total)
