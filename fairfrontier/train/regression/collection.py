"""Fair regression of Dask arrays: the game is played here, the rows stay with the workers."""

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
from fairfrontier.train.regression.oracle.oracle import Oracle, RiskOracle, WeightedOracle
from fairfrontier.train.regression.oracle_choice import read_oracle
from fairfrontier.train.regression.parity import ParityProblem, build_parity
from fairfrontier.train.regression.partition_oracle import (
    OWN,
    PartitionedBoundedLoss,
    PartitionedGroupSquare,
    PartitionedLeastSquares,
    PartitionedLogistic,
    PartitionedLogisticRegressor,
    PartitionedParity,
    PartitionedTrees,
)
from fairfrontier.train.regression.reduction import (
    ReductionSetting,
    ReductionSolution,
    solve_reduction,
)

if TYPE_CHECKING:
    from distributed import Client

    from fairfrontier.train.regression.saddle import Progress


@dataclass(frozen=True, eq=False)
class Table:
    """Rows on workers, and what is known of them here.

    Attributes
    ----------
    rows : Placement
        Partitions with dense group codes.
    levels : ndarray of int64, shape (n_groups,)
        What the codes stand for.
    n_samples, n_features : int
    total : ndarray of float64, shape (n_groups,)
        Σ w of each group.
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
) -> ReductionSolution:
    """Return the solution for Dask arrays, with the result of a fit in one process to rounding.

    Parameters
    ----------
    setting : ReductionSetting
    X, y, groups, sample_weight
        As ``place_rows``.
    client : distributed.Client
    progress : callable, optional
    timeout : float
        Seconds that one request to the workers may take.

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
    _require_sums(setting)
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
) -> ReductionSolution:
    table = place_rows(
        *arrays,
        client=client,
        label_range=setting.label_range,
        attribute=setting.attribute,
        logistic=bool(setting.loss.sharpness),
        timeout=timeout,
    )
    try:
        problem: ParityProblem | BoundedLossProblem
        oracle: Oracle | RiskOracle
        if setting.constraint == "statistical_parity":
            problem, oracle = build_partitioned_parity(setting, table)
        else:
            problem, oracle = build_partitioned_bounded_loss(setting, table)
        return solve_reduction(problem, oracle, table.levels, progress)
    finally:
        table.rows.release()


def place_rows(
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    *,
    client: Client,
    label_range: tuple[float, float],
    attribute: int,
    logistic: bool = False,
    timeout: float = TIMEOUT,
) -> Table:
    """Make the partitions of Dask arrays, each where its rows are.

    Parameters
    ----------
    X : dask array of float, shape (n_samples, n_features)
        A persisted one stays where it is; the partitions of another one are dealt to the workers
        in their order, as evenly as can be.
    y, groups, sample_weight : dask arrays or ndarrays, shape (n_samples, ...)
        Cut as X is.
    client : distributed.Client
    label_range : pair of float
    attribute : int
        Column of the attribute in ``groups``.
    logistic : bool
        Whether labels must be 0 or 1.
    timeout : float
        Seconds that one request may take.

    Raises
    ------
    DataError
        For labels that cannot be, arrays of different lengths, and when there is no row.
    """
    rows = place_partitions(
        partition.make_partition,
        (X, y, groups, sample_weight),
        (label_range, attribute),
        names=("y", "groups", "sample_weight"),
        client=client,
        timeout=timeout,
    )
    facts = sorted(rows.collect(partition.describe_rows))
    if not all(fact[3] for fact in facts) and logistic:
        raise DataError(
            "The logistic loss is given labels between its two.",
            "Choose the square loss, or labels 0 and 1.",
        )
    sizes = np.array([fact[1] for fact in facts])
    if not sizes.sum():
        raise DataError("There is no row of positive weight.", "Give it rows to train on.")
    levels = np.unique(np.concatenate([np.asarray(fact[2], dtype=np.int64) for fact in facts]))
    rows = rows.replace(partition.arrange, levels, np.cumsum(sizes) - sizes)
    total = rows.sum(partition.sum_group_weights, levels.size)
    return Table(rows, levels, int(sizes.sum()), int(X.shape[1]), total)


def build_partitioned_parity(
    setting: ReductionSetting, table: Table
) -> tuple[ParityProblem, Oracle]:
    """Return the parity problem of rows on workers, and its oracle.

    Parameters
    ----------
    setting : ReductionSetting
    table : Table
    """
    n_groups, n_grid = table.levels.size, setting.n_grid
    weight, label = table.rows.sum(partition.sum_label_cells, n_groups, n_grid)
    held = np.flatnonzero(weight)
    # One row for each group and half-step cell: whatever is known of labels is known of these.
    mean, group, cell = label[held] / weight[held], held // (2 * n_grid), held % (2 * n_grid)
    problem = build_parity(
        mean, group, weight[held], n_grid=n_grid, **setting.find_terms(table.levels)
    )
    number = np.zeros(2 * n_grid, dtype=np.int64)
    number[cell] = problem.labels.code
    n_labels = problem.table.shape[0]
    rows = table.rows.replace(partition.number_labels, number, n_labels, n_grid)
    whole = float(table.total.sum())
    problem = PartitionedParity(**vars(problem), rows=rows, whole=whole)
    kind, sharpness = read_oracle(setting)
    if setting.learner == "xgboost":
        return problem, _make_trees(setting, table, rows, sharpness)
    if kind == "ls":
        return problem, PartitionedLeastSquares(rows, problem.n_cells)
    return problem, _make_logistic(setting, table, rows, sharpness)


def build_partitioned_bounded_loss(
    setting: ReductionSetting, table: Table
) -> tuple[BoundedLossProblem, RiskOracle]:
    """Return the problem of bounded group loss of rows on workers, and its oracle.

    Parameters
    ----------
    setting, table
        As ``build_partitioned_parity``.
    """
    rows, total, loss = table.rows, table.total, setting.loss
    group = np.arange(total.size)
    terms = setting.find_terms(table.levels)
    if terms["tolerance"] is None:
        terms["tolerance"] = 0.5 * _find_standard_error(table, loss)
    # The labels of these rows, one a group, are asked for by nobody.
    plain = build_bounded_loss(np.zeros_like(total), group, total, **terms)
    problem = PartitionedBoundedLoss(**vars(plain), rows=rows, loss=loss, total=total)
    kind, sharpness = read_oracle(setting)
    if setting.learner == "linear" and kind == "ls":
        exact = loss.name == "square"
        return problem, PartitionedGroupSquare(rows, total.size, exact=exact)
    if sharpness and not loss.sharpness:
        # As in ``choose_risk_oracle``: the classifier's probability is to stand for the label.
        rows = rows.replace(partition.weigh_labels, sharpness)
    make = _make_trees if setting.learner == "xgboost" else _make_logistic
    learner = make(setting, table, rows, sharpness)
    return problem, WeightedOracle(learner.fit, OWN, total, group, exact=False)


def _require_sums(setting: ReductionSetting) -> None:
    """Refuse what needs all rows in one place.

    Raises
    ------
    ConfigError
        For the oracles ``cs`` and ``envelope``, and learners other than ``linear`` and ``xgboost``.
    """
    if setting.oracle in ("cs", "envelope"):
        raise ConfigError(
            f"The oracle {setting.oracle!r} needs all rows in one place; these are Dask arrays.",
            "Choose ls or lr, or compute the arrays.",
        )
    if setting.learner not in ("linear", "xgboost"):
        raise ConfigError(
            f"The learner {setting.learner!r} needs all rows in one place; these are Dask arrays.",
            "Choose linear or xgboost, or compute the arrays.",
        )


def _make_trees(
    setting: ReductionSetting, table: Table, rows: Placement, sharpness: float
) -> PartitionedTrees:
    return PartitionedTrees(
        rows,
        table.n_features,
        table.total,
        sharpness=sharpness,
        variant=setting.variant,
        n_estimators=setting.n_estimators,
        max_depth=setting.max_depth,
        n_jobs=setting.n_jobs,
        random_state=setting.random_state,
    )


def _make_logistic(
    setting: ReductionSetting, table: Table, rows: Placement, sharpness: float
) -> PartitionedLogistic:
    regressor = PartitionedLogisticRegressor(
        rows, table.n_samples, table.n_features, table.total, setting.penalty
    )
    return PartitionedLogistic(regressor, sharpness, setting.variant)


def _find_standard_error(table: Table, loss: Loss) -> float:
    """Return the standard error that ``parity.standard_error`` finds among the same constants."""
    constants, whole = np.linspace(0.0, 1.0, CONSTANTS), float(table.total.sum())
    mean = table.rows.sum(partition.sum_constant_losses, constants, loss) / whole
    best = int(np.argmin(mean))
    told = (float(constants[best]), float(mean[best]), loss)
    variance = float(table.rows.sum(partition.sum_deviations, *told)) / whole
    return max(float(np.sqrt(variance / whole)), 1e-9)
