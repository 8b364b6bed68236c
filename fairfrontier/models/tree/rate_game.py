"""Boosting against multipliers on the gaps between the groups' rates: a game of two players."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import xgboost
from scipy.special import expit

from fairfrontier.models.tree.boosting import bin_rows
from fairfrontier.runtime.cluster.executor import Block, Rows, add_up

# The labels among which a criterion compares the groups' rates of decision 1; None for all rows.
EVENTS: Mapping[str, tuple[int | None, ...]] = MappingProxyType(
    {
        "parity": (None,),
        "equal_opportunity": (1,),
        "predictive_equality": (0,),
        "equalized_odds": (0, 1),
    }
)


@dataclass(frozen=True, eq=False)
class RateCells:
    """The cells of event and group whose rates are compared, and the rows in them.

    ``code``, int64 (n_samples,), is event · n_groups + group, and n_cells for rows in no event;
    ``weight``, (n_samples,), are case weights, ``total`` their sum, and ``share``, (n_events,
    n_groups), those of a cell's rows over it. Where other processes have further rows, the last
    two are of all rows, and ``add`` sums an array over the processes.
    """

    code: np.ndarray
    weight: np.ndarray
    share: np.ndarray
    total: float
    add: Callable[[np.ndarray], np.ndarray] = np.asarray

    def measure(self, decision: np.ndarray) -> np.ndarray:
        """Return the weighted mean of ``decision`` in each cell, NaN in one without weight."""
        return self.divide(self.add(self.count(decision)))

    def count(self, decision: np.ndarray) -> np.ndarray:
        """Return the weight of these rows with decision 1 in each cell, and in none, flat."""
        weight = self.weight * decision
        return np.bincount(self.code, weights=weight, minlength=self.share.size + 1)

    def divide(self, counted: np.ndarray) -> np.ndarray:
        """Return the rates that counts (..., n_cells + 1) make: (..., n_events, n_groups)."""
        shape = (*counted.shape[:-1], *self.share.shape)
        rate = np.full(shape, np.nan)
        reached = counted[..., :-1].reshape(shape) / self.total
        np.divide(reached, self.share, out=rate, where=np.broadcast_to(self.share > 0, shape))
        return rate

    def spread(self, value: np.ndarray) -> np.ndarray:
        """Return each row's value of a table of cells, 0 for rows in no event."""
        spread: np.ndarray = np.append(value.reshape(-1), 0.0)[self.code]
        return spread


def build_cells(
    y: np.ndarray, group: np.ndarray, n_groups: int, weight: np.ndarray, criterion: str
) -> RateCells:
    """Return the cells of a criterion for rows with labels 0 and 1 and groups 0, …, K − 1."""
    events = EVENTS[criterion]
    code = np.full(len(y), len(events) * n_groups, dtype=np.int64)
    for event, label in enumerate(events):
        rows = np.full(len(y), True) if label is None else y == label
        code[rows] = event * n_groups + group[rows]
    counted = np.bincount(code, weights=weight, minlength=len(events) * n_groups + 1)[:-1]
    total = weight.sum()
    return RateCells(code, weight, counted.reshape(len(events), n_groups) / total, total)


def find_gap(rate: np.ndarray) -> float:
    """Return the largest difference between two groups' rates in one event; NaN rates are none."""
    low, high = (np.where(np.isnan(rate), none, rate) for none in (np.inf, -np.inf))
    return max(0.0, float(np.max(high.max(axis=1) - low.min(axis=1))))


def ascend(
    price: np.ndarray, rate: np.ndarray, share: np.ndarray, step: float, bound: float
) -> np.ndarray:
    """Return the prices after a step of the ascent player at these rates.

    In each event u maximises, with Σ_c s_c u_c = 0 for the shares s,

        Σ_c s_c [u_c r_c − (ε/2) |u_c| − (u_c − u⁰_c)² / (2η)],

    so u_c = S(u⁰_c + η (r_c − ν), ηε/2) with S the soft threshold: the step of FairGBM's
    multipliers s_c u_c on max_c r_c − min_c r_c ≤ ε, in proportion to the cells' shares, so that a
    row's price does not depend on its group's size. O(K² n_events).
    """
    threshold = step * bound / 2.0
    raised = price + step * np.nan_to_num(rate)
    for event, (value, part) in enumerate(zip(raised, share, strict=True)):
        # The sum falls piecewise linearly in ν, between the points where a group's price is 0.
        nu = np.sort(np.append(value - threshold, value + threshold))
        total = _shrink(value - nu[:, None], threshold) @ part
        raised[event] = _shrink(value - np.interp(0.0, total[::-1], nu[::-1]), threshold)
    return np.where(share > 0, raised, 0.0)


def _shrink(value: np.ndarray, threshold: float) -> np.ndarray:
    shrunk: np.ndarray = np.sign(value) * np.maximum(np.abs(value) - threshold, 0.0)
    return shrunk


def differentiate(
    margin: np.ndarray, y: np.ndarray, weight: np.ndarray, price: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return first and second derivatives of w ℓ(f, y) + u⁺ log(1 + eᶠ) + u⁻ log(1 + e⁻ᶠ).

    ``price``, u, is a row's price of the decision 1; u log(1 + eᶠ) alone, and likewise of the
    decision 0, is the cross-entropy that stands for 1{f ≥ 0} in the rates.
    """
    p = expit(margin)
    gradient = weight * (p - y) + price * np.where(price > 0, p, 1.0 - p)
    # That of p (1 − p) in XGBoost's logistic loss.
    return gradient, (weight + np.abs(price)) * np.maximum(p * (1.0 - p), 1e-16)


@dataclass(frozen=True, eq=False)
class GameRows:
    """Rows of the game: their table, labels 0 and 1, weights in the loss, and cells."""

    data: xgboost.DMatrix
    y: np.ndarray
    weight: np.ndarray
    cells: RateCells

    @classmethod
    def of(
        cls, data: xgboost.DMatrix, y: np.ndarray, cells: RateCells, parameters: Mapping[str, Any]
    ) -> Self:
        """Return rows whose errors in class 1 weigh ``scale_pos_weight`` times as much."""
        scale = parameters["scale_pos_weight"]
        return cls(data, y, np.asarray(cells.weight * np.where(y == 1, scale, 1.0)), cells)


@dataclass(frozen=True, eq=False)
class Game:
    """What `play` is told of its cells and its two players.

    ``parameters`` are XGBoost's native ones, with ``scale_pos_weight`` and ``nthread``; ``share``
    and ``total`` are those of `RateCells`, of all rows. ``folds`` are positions of rows that are
    held out in turn, every row once, where all rows are in one block; else there are none.
    """

    parameters: Mapping[str, Any]
    share: np.ndarray
    total: float
    rounds: int
    step: float
    bound: float
    folds: Sequence[np.ndarray] = ()

    def read_cells(self, code: np.ndarray, weight: np.ndarray) -> RateCells:
        """Return the cells of some of the rows, whose codes and weights these are."""
        return RateCells(code, weight, self.share, self.total, add_up)


@dataclass(frozen=True, eq=False)
class Played:
    """The trees, the last prices, and each round's share of errors and rates on some rows.

    Shapes (n_events, n_groups), (n_rounds,) and (n_rounds, n_events, n_groups).
    """

    booster: xgboost.Booster
    price: np.ndarray
    error: np.ndarray
    rate: np.ndarray

    def choose_round(self, share: np.ndarray) -> int:
        """Return the round of the least Lagrangian, error + Σ s u r, at the last prices."""
        paid = (share * self.price * np.nan_to_num(self.rate)).sum(axis=(1, 2))
        return int(np.argmin(self.error + paid))


def play(rows: Rows, game: Game) -> Played:
    """Boost while prices follow the rates; errors and rates are those of the same rows.

    ``rows`` have the columns ``y``, codes 0 and 1, ``weight`` and ``code``, as of `RateCells`. A
    round moves the prices by the true rates of the present decisions f ≥ 0, then adds a tree for
    the loss and the priced proxies of the rates. The first tree is plain, since no price has
    moved: XGBoost estimates the intercept with it. With folds the decisions that move the prices
    are those of further boosters on rows that these have not seen, at the same prices. Workers add
    three short arrays to the others' in each round: bits depend on their number.
    """
    played: Played = rows.together(_play, game)[0]
    return played


def _play(blocks: Iterable[Block], game: Game) -> Played:
    parameters = dict(game.parameters)
    data = bin_rows(blocks, parameters)
    read = ("y", "weight", "code")
    columns = [[block[name] for name in read] for block in blocks]
    y, weight, code = (np.concatenate(each) for each in zip(*columns, strict=True))
    train = GameRows.of(data, y, game.read_cells(code, weight), parameters)
    folds = [_hold_out(next(iter(blocks)), held_out, game) for held_out in game.folds]
    booster = xgboost.Booster(parameters, [data])
    learners = [(booster, train)]
    others = [xgboost.Booster(parameters, [rows.data, unseen]) for rows, unseen in folds]
    learners += [(other, rows) for other, (rows, _) in zip(others, folds, strict=True)]
    for learner, rows in learners:
        learner.update(rows.data, 0)
    cells, price, errors, rates = train.cells, np.zeros_like(game.share), [], []
    for number in range(1, game.rounds + 1):
        decision = _predict(booster, data) >= 0
        lost = np.array([train.weight @ (decision != y)])
        errors.append(cells.add(lost)[0] / game.total)
        rates.append(cells.measure(decision))
        if number < game.rounds:
            seen = decision.copy()
            for other, held_out, (_, unseen) in zip(others, game.folds, folds, strict=True):
                seen[held_out] = _predict(other, unseen) >= 0
            rate = cells.measure(seen) if folds else rates[-1]
            price = ascend(price, rate, game.share, game.step, game.bound)
            for learner, rows in learners:
                margin = _predict(learner, rows.data)
                priced = rows.cells.weight * rows.cells.spread(price)
                gradient, curvature = differentiate(margin, rows.y, rows.weight, priced)
                learner.boost(rows.data, number, grad=gradient, hess=curvature)
    return Played(booster, price, np.array(errors), np.array(rates))


def _hold_out(block: Block, held_out: np.ndarray, game: Game) -> tuple[GameRows, xgboost.DMatrix]:
    """Return the other rows of a block, and the table of those that are held out."""
    kept = np.delete(np.arange(len(block)), held_out)
    y, weight, code = (block[name][kept] for name in ("y", "weight", "code"))
    threads = game.parameters["nthread"]
    data = xgboost.DMatrix(block.X[kept], y, weight=weight, nthread=threads)
    cells = game.read_cells(code, weight)
    unseen = xgboost.DMatrix(block.X[held_out], nthread=threads)
    return GameRows.of(data, y, cells, game.parameters), unseen


def judge(played: Played, rows: Rows, game: Game) -> Played:
    """Return the game as other rows judge it, with the columns of `play`: their errors and rates.

    One pass over the rows, one tree after the other. ``share`` and ``total`` of the game are those
    of these rows.
    """
    lost, counted = rows.sum(_judge, bytes(played.booster.save_raw("ubj")), game)
    cells = game.read_cells(np.empty(0, np.int64), np.empty(0))
    return replace(played, error=lost / game.total, rate=cells.divide(counted))


def _judge(block: Block, raw: bytes, game: Game) -> tuple[np.ndarray, np.ndarray]:
    threads = game.parameters["nthread"]
    booster = xgboost.Booster({"nthread": threads}, model_file=bytearray(raw))
    data = xgboost.DMatrix(block.X, nthread=threads)
    cells = game.read_cells(block["code"], block["weight"])
    rows = GameRows.of(data, block["y"], cells, game.parameters)
    lost, counted = [], []
    for number in range(booster.num_boosted_rounds()):
        margin = booster.predict(data, output_margin=True, iteration_range=(number, number + 1))
        data.set_base_margin(margin)
        lost.append(rows.weight @ ((margin >= 0) != rows.y))
        counted.append(cells.count(margin >= 0))
    return np.array(lost), np.array(counted)


def _predict(booster: xgboost.Booster, data: xgboost.DMatrix) -> np.ndarray:
    """Return margins, which XGBoost keeps from round to round for the rows that it was made for."""
    margin: np.ndarray = booster.predict(data, output_margin=True, training=True)
    return margin
