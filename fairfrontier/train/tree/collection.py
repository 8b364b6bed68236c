"""The game of `fair_gbm` on rows in partitions, whose counts add up over workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xgboost

from fairfrontier.runtime.cluster.partition import sum_partitions
from fairfrontier.train.dask.boosting import Boosting, boost_partitions
from fairfrontier.train.tree.rate_game import GameRows, Played, RateCells, play, weigh_errors

if TYPE_CHECKING:
    from distributed import Client

SCALE = "scale_pos_weight"


def play_partitions(
    parameters: Mapping[str, Any],
    X: Any,
    y: np.ndarray,
    cells: RateCells,
    *,
    rounds: int,
    step: float,
    bound: float,
    client: Client | None,
    name: str,
) -> Played:
    """Play `rate_game.play` on a Dask array X, without folds and with the training rows as judges.

    Every worker has its rows, as in `boost_partitions`, and adds three short arrays to the others'
    in each round: bits of prices and rates depend on the workers' number.

    Parameters
    ----------
    parameters : mapping
        XGBoost's native ones, with ``scale_pos_weight`` and ``nthread``.
    X : dask array, shape (n_samples, n_features)
    y : ndarray of int64, shape (n_samples,)
        Codes 0 and 1.
    cells : RateCells
        Cells and case weights of all rows.
    rounds, step, bound
        As of `rate_game.play`.
    client, name
        As of `boost_partitions`, which says what is raised.
    """
    # The workers have codes and weights of their own rows.
    none = replace(cells, code=np.empty(0, np.int64), weight=np.empty(0))
    grow = partial(_play, dict(parameters), none, rounds=rounds, step=step, bound=bound)
    booster, (price, error, rate) = boost_partitions(
        grow,
        X,
        y,
        cells.weight,
        cells.code,
        client=client,
        name=name,
        n_jobs=parameters["nthread"],
        max_bin=parameters["max_bin"],
    )
    return Played(booster, price, error, rate)


def _play(
    parameters: Mapping[str, Any], cells: RateCells, given: Boosting, **keywords: Any
) -> tuple[xgboost.Booster, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    assert given.code is not None  # noqa: S101
    own = replace(cells, code=given.code, weight=given.weight, add=given.add)
    costs = weigh_errors(given.y, given.weight, parameters[SCALE])
    rows = GameRows(given.data, given.y, costs, own)
    played = play(parameters, rows, rows, (), **keywords)
    return played.booster, (played.price, played.error, played.rate)


def judge_partitions(
    played: Played, parameters: Mapping[str, Any], X: Any, y: np.ndarray, cells: RateCells
) -> Played:
    """Return the game as rows of another Dask array judge it: their errors and rates, by round.

    ``y`` and ``cells`` are those of the rows of X, shapes as in `play_partitions`. One pass over
    the rows, one tree after the other, as in `play`.
    """
    raw = played.booster.save_raw("ubj")
    none = replace(cells, code=np.empty(0, np.int64), weight=np.empty(0))
    lost, counted = sum_partitions(
        _judge, X, (y, cells.weight, cells.code), (raw, dict(parameters), none)
    )
    return replace(played, error=lost / cells.total, rate=cells.divide(counted))


def _judge(
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    code: np.ndarray,
    raw: bytearray,
    parameters: Mapping[str, Any],
    cells: RateCells,
) -> tuple[np.ndarray, np.ndarray]:
    booster = xgboost.Booster({"nthread": parameters["nthread"]}, model_file=raw)
    own = replace(cells, code=code, weight=weight)
    costs = weigh_errors(y, weight, parameters[SCALE])
    data = xgboost.DMatrix(X, nthread=parameters["nthread"])
    lost, counted = [], []
    for number in range(booster.num_boosted_rounds()):
        margin = booster.predict(data, output_margin=True, iteration_range=(number, number + 1))
        data.set_base_margin(margin)
        lost.append(costs @ ((margin >= 0) != y))
        counted.append(own.count(margin >= 0))
    return np.array(lost), np.array(counted)
