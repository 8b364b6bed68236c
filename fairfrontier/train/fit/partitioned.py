"""Fits on rows in partitions of methods whose own ``fit`` takes rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.cluster.logistic import fit_logistic
from fairfrontier.runtime.cluster.partition import (
    average_rows,
    hold,
    map_partitions,
    sum_partitions,
)
from fairfrontier.train.base import Estimator, training_weight
from fairfrontier.train.baseline.constant import Constant
from fairfrontier.train.baseline.fair_gbm import FairGBM
from fairfrontier.train.baseline.gbdt import GBDT
from fairfrontier.train.baseline.gbdt_regression import OBJECTIVES, GBDTRegression
from fairfrontier.train.baseline.linear import Linear
from fairfrontier.train.baseline.linear_post import Growing, Learnt, LinearPost, ask_trees, learn
from fairfrontier.train.baseline.linear_regression import (
    LinearRegression,
    gram,
    invert_gram,
    refuse_targets,
)
from fairfrontier.train.baseline.project import Project
from fairfrontier.train.baseline.reweigh import Reweigh, independence_weights
from fairfrontier.train.dask.boosting import boost_partitions, grow_plainly
from fairfrontier.train.group import take_attribute
from fairfrontier.train.persistence import State
from fairfrontier.train.postprocess.base import choose_columns
from fairfrontier.train.tree.boosting import BoostedTrees, positive_weight, read_tree_parameters
from fairfrontier.train.tree.collection import judge_partitions, play_partitions
from fairfrontier.train.tree.rate_game import build_cells

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, eq=False)
class Given:
    """What a fit is given: y, codes or targets, and weights of the split's training rows.

    ``shared`` keeps what models of one study row learn alike.
    """

    split: Split
    y: np.ndarray
    weight: np.ndarray
    metric: FairMetric | None
    client: Client | None
    shared: dict[Any, Learnt]


def _boost(model: BoostedTrees, given: Given) -> State:
    X, weight, arrays = hold(given.split.train.X), given.weight, {}
    if isinstance(model, Reweigh):
        group = take_attribute(given.split.train.groups, model.attribute)
        weight = weight * independence_weights(group, given.y, weight)
    if isinstance(model, Project):
        assert given.metric is not None  # noqa: S101
        arrays["sigma"] = given.metric.sigma
        X = X.map_blocks(np.matmul, given.metric.sigma, dtype=X.dtype)
    trees = _grow(model, _read_weighted(model, given.y, weight), X, given.y, weight, given.client)
    return State(arrays=arrays, boosters={"trees": trees})


def _boost_targets(model: GBDTRegression, given: Given) -> State:
    if model.loss == "logistic":
        refuse_targets(given.y, model.name)
    parameters = {**read_tree_parameters(model), "objective": OBJECTIVES[model.loss]}
    parameters["gamma"] = model.gamma
    X = hold(given.split.train.X)
    trees = _grow(model, parameters, X, given.y, given.weight, given.client)
    return State(boosters={"trees": trees})


def _boost_fairly(model: FairGBM, given: Given) -> State:
    train, judge = given.split.train, given.split.validation
    parts = [train] if judge is None else [train, judge]
    own, *others = model.number_groups(*(part.groups for part in parts))
    parameters = _read_weighted(model, given.y, given.weight)
    cells = build_cells(given.y, own, len(model.cells_), given.weight, model.criterion)
    played = play_partitions(
        parameters,
        hold(train.X),
        given.y,
        cells,
        rounds=model.n_estimators,
        step=model.multiplier_rate,
        bound=model.bound,
        client=given.client,
        name=model.name,
    )
    if judge is not None:
        labels = model.encode_labels(judge.y)
        weight = training_weight(judge.weight, len(labels))
        judging = build_cells(labels, others[0], len(model.cells_), weight, model.criterion)
        played = judge_partitions(played, parameters, hold(judge.X), labels, judging)
    model.keep_rounds(played, cells.share, judged=judge is not None)
    return model.get_state()


def _fit_linear_post(model: LinearPost, given: Given) -> State:
    table = (id(given.split), model.structure())
    if table not in given.shared:
        train = given.split.train
        columns = choose_columns(train.groups, model.attributes, model.name)
        growing = _grow_partitions(model, given.client)
        learnt = learn(model, growing, hold(train.X), given.y, columns, given.weight)
        given.shared[table] = learnt
    model.decide(given.shared[table])
    return model.get_state()


def _grow_partitions(model: LinearPost, client: Client | None) -> Growing:
    """Return how trees grow on a Dask array of rows."""

    def boost(rows: Any, codes: np.ndarray, weight: np.ndarray, **more: Any) -> xgboost.Booster:
        return _grow(model, read_tree_parameters(model) | more, rows, codes, weight, client)

    def ask(
        label: xgboost.Booster, group: xgboost.Booster, rows: Any, n_jobs: int
    ) -> tuple[np.ndarray, np.ndarray]:
        raw = [bytes(trees.save_raw("ubj")) for trees in (label, group)]
        own, others = zip(*map_partitions(_ask, rows, (), (*raw, n_jobs)), strict=True)
        return np.concatenate(own), np.concatenate(others, axis=1)

    return Growing(boost, ask, _extend)


def _ask(X: np.ndarray, label: bytes, group: bytes, n_jobs: int) -> tuple[np.ndarray, np.ndarray]:
    label_trees, group_trees = (xgboost.Booster(model_file=bytearray(r)) for r in (label, group))
    return ask_trees(label_trees, group_trees, X, n_jobs)


def _extend(X: Any, label: np.ndarray) -> Any:
    """Return rows with their class as the last feature."""
    import dask.array as da

    column = da.from_array(label[:, None].astype(X.dtype), (X.chunks[0], 1))
    return X.map_blocks(_join, column, chunks=(X.chunks[0], X.shape[1] + 1), dtype=X.dtype)


def _join(X: np.ndarray, column: np.ndarray) -> np.ndarray:
    return np.hstack([X, column])


def _read_weighted(model: BoostedTrees, y: np.ndarray, weight: np.ndarray) -> dict[str, Any]:
    scale = positive_weight(model.scale_pos_weight, y, weight)
    return {**read_tree_parameters(model), "scale_pos_weight": scale}


def _grow(
    model: BoostedTrees | GBDTRegression | LinearPost,
    parameters: Mapping[str, Any],
    X: Any,
    y: np.ndarray,
    weight: np.ndarray,
    client: Client | None,
) -> xgboost.Booster:
    grow = grow_plainly(parameters, model.n_estimators)
    trees, _ = boost_partitions(
        grow,
        X,
        y,
        weight,
        client=client,
        name=model.name,
        n_jobs=model.n_jobs,
        max_bin=model.max_bin,
    )
    return trees


def _fit_linear(model: Linear, given: Given) -> State:
    y, weight = given.y, given.weight
    if model.class_weight == "balanced":
        totals = np.bincount(y, weights=weight)
        weight = weight * (weight.sum() / (np.count_nonzero(totals) * totals))[y]
    fitted = fit_logistic(hold(given.split.train.X), y, weight, model.penalty)
    coefficient, intercept = fitted.coefficient, fitted.intercept
    if len(intercept) == 1:
        coefficient = np.vstack([np.zeros_like(coefficient), coefficient])
        intercept = np.concatenate([np.zeros(1), intercept])
    arrays = {"coefficient": coefficient, "intercept": intercept}
    return State(arrays=arrays, facts={"penalty": model.penalty})


def _fit_targets(model: LinearRegression, given: Given) -> State:
    X, y, weight = hold(given.split.train.X), given.y, given.weight
    if model.loss == "logistic":
        refuse_targets(y, model.name)
        fitted = fit_logistic(X, y, weight, model.penalty)
        coefficient, intercept = fitted.coefficient[0], float(fitted.intercept[0])
    else:
        total = weight.sum()
        mean = average_rows(X, weight)
        second, slope = sum_partitions(_add_products, X, (weight, y), (mean,))
        coefficient = invert_gram(second / total, model.penalty) @ slope / total
        intercept = float(np.average(y, weights=weight) - mean @ coefficient)
    return State(arrays={"coefficient": coefficient}, facts={"intercept": intercept})


def _add_products(
    X: np.ndarray, weight: np.ndarray, y: np.ndarray, mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    centred = X - mean
    return gram(centred, weight), centred.T @ (weight * y)


def _count(_: Constant, given: Given) -> State:
    share = np.bincount(given.y, weights=given.weight) / given.weight.sum()
    return State(arrays={"share": share})


# Methods -> what fits their state on rows in partitions.
FITS: Mapping[type[Estimator], Callable[..., State]] = {
    Constant: _count,
    FairGBM: _boost_fairly,
    GBDT: _boost,
    GBDTRegression: _boost_targets,
    Linear: _fit_linear,
    LinearPost: _fit_linear_post,
    LinearRegression: _fit_targets,
    Project: _boost,
    Reweigh: _boost,
}
