"""Boosting with bounded differences between groups' rates, whose decisions ask for no groups.

It is a game of two players, of boosting against multipliers on the gaps between the groups' rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import xgboost
from scipy.special import expit

from fairfrontier.models.base import training_weight
from fairfrontier.models.group import (
    EVENTS,
    Attributes,
    Criterion,
    check_bound,
    choose_columns,
    number_cells,
)
from fairfrontier.models.registry import method
from fairfrontier.models.tree.boosting import (
    BoostedTrees,
    bin_rows,
    positive_weight,
    tree_parameters,
)
from fairfrontier.prepare.split import Part, Task
from fairfrontier.runtime.cluster.executor import (
    Block,
    Rows,
    add_up,
    fit_rows,
    hold,
    is_collection,
    open_rows,
)
from fairfrontier.runtime.seeds import derive_generator

if TYPE_CHECKING:
    from distributed import Client

# Rows of a cell from which its rate on held-out rows says something.
LEAST_ROWS = 10


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
class GameResult:
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


def play(rows: Rows, game: Game) -> GameResult:
    """Boost while prices follow the rates; errors and rates are those of the same rows.

    ``rows`` have the columns ``y``, codes 0 and 1, ``weight`` and ``code``, as of `RateCells`. A
    round moves the prices by the true rates of the present decisions f ≥ 0, then adds a tree for
    the loss and the priced proxies of the rates. The first tree is plain, since no price has
    moved: XGBoost estimates the intercept with it. With folds the decisions that move the prices
    are those of further boosters on rows that these have not seen, at the same prices. Workers add
    three short arrays to the others' in each round: bits depend on their number.
    """
    played: GameResult = rows.together(_play, game)[0]
    return played


def _play(blocks: Iterable[Block], game: Game) -> GameResult:
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
    return GameResult(booster, price, np.array(errors), np.array(rates))


def _hold_out(block: Block, held_out: np.ndarray, game: Game) -> tuple[GameRows, xgboost.DMatrix]:
    """Return the other rows of a block, and the table of those that are held out."""
    kept = np.delete(np.arange(len(block)), held_out)
    y, weight, code = (block[name][kept] for name in ("y", "weight", "code"))
    threads = game.parameters["nthread"]
    data = xgboost.DMatrix(block.X[kept], y, weight=weight, nthread=threads)
    cells = game.read_cells(code, weight)
    unseen = xgboost.DMatrix(block.X[held_out], nthread=threads)
    return GameRows.of(data, y, cells, game.parameters), unseen


def judge(played: GameResult, rows: Rows, game: Game) -> GameResult:
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


@method("fair_gbm")
@dataclass(kw_only=True, eq=False, repr=False)
class FairGBM(BoostedTrees):
    """Gradient boosting under a bound on the differences between the groups' rates.

    min_f  E[ℓ(f(X), Y)]   subject to   max_k r_ek(f) − min_k r_ek(f) ≤ ε  for each event e,
    r_ek(f) = P(f(X) ≥ 0 | A = k, e),

    where ℓ is the logistic loss and e the rows of one label, or all rows. Two players take turns:
    one adds a tree for ℓ + Σ λ r̃, where r̃ is the mean of log(1 + eᶠ) if the multiplier λ_ek is
    positive and of −log(1 + e⁻ᶠ) if it is negative; the other moves λ by the true rates of the
    present decisions. Trees that memorise a small table meet any bound on its rows, so that there
    the rates are cross-fitted: two further sequences of trees, each for half of the rows and the
    same λ, decide on the other half. Groups are used in training alone.

    Parameters
    ----------
    criterion : {"parity", "equal_opportunity", "predictive_equality", "equalized_odds"}
        Which rows make the events: all; those of class 1 (true positive rates); those of class 0
        (false positive rates); each class for itself.
    bound : float
        ε, from 0 to 1: largest difference between two groups, of training rows, held out or not.
    attributes : int, list of int or None
        Columns of ``sensitive_features`` whose cross product makes the groups; None crosses all. A
        study's YAML may name them.
    multiplier_rate : float
        Step η of the multipliers, as the price of a row: λ over its cell's share of the rows moves
        by η times the cell's distance from the other groups' rates in each round.
    cross_fit_below : int
        Tables with fewer rows have cross-fitted rates, if each group has 10 rows in every event; 0
        for rates of the rows that are trained on.
    **parameters
        Those of `BoostedTrees`; ``random_state`` also draws the halves.

    Attributes
    ----------
    cells_ : ndarray of int64, shape (n_groups, n_attributes)
        The combinations of codes that make the groups, in ascending order.
    multiplier_ : ndarray of float64, shape (n_events, n_groups)
        λ after the last round, in units of the mean loss; those of an event add up to 0.
    report_ : dict
        ``iterations``, the rounds that are kept; ``error`` and ``rate_gap``, their share of errors
        (times ``scale_pos_weight`` in class 1) and largest difference of rates on the validation
        rows, or without any on the training rows. Not saved.

    Notes
    -----
    O(n d) per level and round as in `GBDT`, three times that with cross-fitted rates, and O(n) for
    the multipliers. With ``validation`` the trees end at the round whose decisions have the least
    Lagrangian there, error + Σ λ r, at the last multipliers; without they are all kept. The bound
    is met up to the last steps, on training rows, held out by halves where rates are cross-fitted;
    that it holds on others is not guaranteed. Groups without a row in an event are not bounded
    there.

    Three things are ours. The paper has one proxy for a rate, which is concave where its multiplier
    is negative; two make the problem of each round convex. And its multipliers belong to pairs of
    a group and the worst one, which changes; here each group has one, of either sign. And it knows
    the rates of training rows alone; rates of other rows are those of Cotter et al., cross-fitted.

    References
    ----------
    A. Cruz, C. Belém, S. Jesus, J. Bravo, P. Saleiro, P. Bizarro. FairGBM: gradient boosting with
    fairness constraints. ICLR 2023, Algorithm 1. A. Cotter et al. Training well-generalizing
    classifiers for fairness metrics and other data-dependent constraints. ICML 2019.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary"})
    constrains_decisions: ClassVar[bool] = True
    state_arrays: ClassVar[tuple[str, ...]] = ("cells", "multiplier")
    group_parameters: ClassVar[tuple[str, ...]] = ("attributes",)
    paper: ClassVar[str] = "Cruz et al., FairGBM, ICLR 2023"

    cells_: np.ndarray = field(init=False)
    multiplier_: np.ndarray = field(init=False)
    report_: dict[str, Any] = field(init=False)

    criterion: Criterion = "equalized_odds"
    bound: float = 0.05
    attributes: Attributes = None
    multiplier_rate: float = 1.0
    cross_fit_below: int = 20_000

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        check_bound(self)
        rate = self.multiplier_rate
        self.require("multiplier_rate", 0 < rate < np.inf, "a finite number above 0")
        below = self.cross_fit_below
        self.require("cross_fit_below", below >= 0, "a whole number from 0")

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        client: Client | None = None,
    ) -> Self:
        """Boost ``n_estimators`` trees on rows X with labels y of two classes, and their groups.

        Parameters
        ----------
        X : array, frame or Dask array, shape (n_samples, n_features)
        y : array, shape (n_samples,)
        sensitive_features : ndarray of int64, shape (n_samples, n_attributes)
        sample_weight : ndarray of float64, shape (n_samples,), optional
            Case weights, in the loss and in the rates.
        validation : Part, optional
            Rows that say at which round to end.
        client : distributed.Client, optional
            For the workers that hold the rows of a Dask array.

        Raises
        ------
        ConfigError
            For invalid parameters, and for ``attributes`` that are no columns of
            ``sensitive_features``.
        InputError
            For tables that are not numbers, weights of 0 alone, and other than two classes.
        """
        self.check()
        X, codes, weight, sensitive_features = self.read_training(
            X, y, sample_weight, sensitive_features, client
        )
        parts = [sensitive_features, *([] if validation is None else [validation.groups])]
        columns = [choose_columns(groups, self.attributes) for groups in parts]
        self.cells_, group = number_cells(np.concatenate(columns))
        own, others = np.split(group, [len(columns[0])])
        factor = positive_weight(self.scale_pos_weight, codes, weight)
        parameters = tree_parameters(self, scale_pos_weight=factor)

        def describe(cells: RateCells, folds: Sequence[np.ndarray] = ()) -> Game:
            step, bound = self.multiplier_rate, self.bound
            rounds = self.n_estimators
            return Game(parameters, cells.share, cells.total, rounds, step, bound, folds)

        cells = build_cells(codes, own, len(self.cells_), weight, self.criterion)
        folds: Sequence[np.ndarray] = ()
        if len(codes) < self.cross_fit_below:
            folds = split_halves(own, codes, cells, self.random_state)
        played = fit_rows(
            partial(play, game=describe(cells, folds)),
            X,
            client=client,
            name=self.name,
            dtype=np.float32,
            y=codes,
            weight=weight,
            code=cells.code,
        )
        if validation is not None:
            X = validation.X
            rows = hold(X) if is_collection(X) else self.validate_rows(X)
            y, part = self.encode_labels(validation.y), validation.weight
            cells_there = build_cells(
                y, others, len(self.cells_), training_weight(part, len(y)), self.criterion
            )
            told = {"y": y, "weight": cells_there.weight, "code": cells_there.code}
            played = judge(played, open_rows(rows, **told), describe(cells_there))
        last = self.n_estimators - 1 if validation is None else played.choose_round(cells.share)
        self.booster_ = played.booster[: last + 1]
        self.multiplier_ = cells.share * played.price
        self.report_ = {
            "iterations": last + 1,
            "error": float(played.error[last]),
            "rate_gap": find_gap(played.rate[last]),
        }
        return self

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:
        """Return why rows in blocks do not suit the parameters; see `Estimator`."""
        if n_samples < self.cross_fit_below:
            return (
                f"{self.name} cross-fits the rates of fewer than {self.cross_fit_below} rows in "
                "one process's memory: set cross_fit_below: 0 for the rates of training rows."
            )
        return super().needs_all_rows(n_samples, n_features, n_classes)


def split_halves(
    group: np.ndarray, y: np.ndarray, cells: RateCells, seed: int
) -> tuple[np.ndarray, ...]:
    """Return the positions of two halves, drawn within groups and labels; none of small cells."""
    rows = np.bincount(cells.code[cells.weight > 0], minlength=cells.share.size + 1)[:-1]
    if (rows[cells.share.reshape(-1) > 0] < LEAST_ROWS).any():
        return ()
    drawn = derive_generator("fair_gbm", "fold", seed).random(len(y))
    order = np.lexsort([drawn, y, group])
    return order[::2], order[1::2]
