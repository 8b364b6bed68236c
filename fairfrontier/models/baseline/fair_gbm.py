"""Boosting with bounded differences between groups' rates, whose decisions ask for no groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.base import training_weight
from fairfrontier.models.group import Attributes
from fairfrontier.models.persistence import State
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.base import choose_columns, number_cells
from fairfrontier.models.tree.boosting import BoostedTrees, read_weighted
from fairfrontier.models.tree.rate_game import (
    EVENTS,
    Game,
    Played,
    RateCells,
    build_cells,
    find_gap,
    judge,
    play,
)
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.cluster.executor import fit_rows, hold, is_collection, open_rows
from fairfrontier.runtime.seeds import derive_generator

if TYPE_CHECKING:
    from distributed import Client

# Rows of a cell from which its rate on held-out rows says something.
LEAST_ROWS = 10


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

    constrains_decisions: ClassVar[bool] = True
    group_parameters: ClassVar[tuple[str, ...]] = ("attributes",)
    paper: ClassVar[str] = "Cruz et al., FairGBM, ICLR 2023"

    cells_: np.ndarray = field(init=False)
    multiplier_: np.ndarray = field(init=False)
    report_: dict[str, Any] = field(init=False)

    criterion: Literal["parity", "equal_opportunity", "predictive_equality", "equalized_odds"] = (
        "equalized_odds"
    )
    bound: float = 0.05
    attributes: Attributes = None
    multiplier_rate: float = 1.0
    cross_fit_below: int = 20_000

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.require("criterion", self.criterion in EVENTS, " or ".join(EVENTS))
        self.require("bound", 0 <= self.bound <= 1, "a number from 0 to 1")
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
        judged = () if validation is None else (validation.groups,)
        own, *others = self.number_groups(sensitive_features, *judged)
        parameters = read_weighted(self, codes, weight)

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
                y, others[0], len(self.cells_), training_weight(part, len(y)), self.criterion
            )
            told = {"y": y, "weight": cells_there.weight, "code": cells_there.code}
            played = judge(played, open_rows(rows, **told), describe(cells_there))
        self.keep_rounds(played, cells.share, judged=validation is not None)
        return self

    def needs_all_rows(self, n_samples: int, n_features: int, n_classes: int) -> str | None:
        """Return why rows in blocks do not suit the parameters; see `Estimator`."""
        if n_samples < self.cross_fit_below:
            return (
                f"{self.name} cross-fits the rates of fewer than {self.cross_fit_below} rows in "
                "one process's memory: set cross_fit_below: 0 for the rates of training rows."
            )
        return super().needs_all_rows(n_samples, n_features, n_classes)

    def number_groups(self, *parts: np.ndarray) -> list[np.ndarray]:
        """Set ``cells_`` from the groups of all parts, and return each part's codes of them."""
        columns = [choose_columns(groups, self.attributes) for groups in parts]
        self.cells_, group = number_cells(np.concatenate(columns))
        return np.split(group, np.cumsum([len(each) for each in columns])[:-1])

    def keep_rounds(self, played: Played, share: np.ndarray, *, judged: bool) -> None:
        """Set what a game leaves: its trees, to the best round where other rows judged them."""
        last = played.choose_round(share) if judged else self.n_estimators - 1
        self.booster_ = played.booster[: last + 1]
        self.multiplier_ = share * played.price
        self.report_ = {
            "iterations": last + 1,
            "error": float(played.error[last]),
            "rate_gap": find_gap(played.rate[last]),
        }

    def get_state(self) -> State:
        """Return the trees, groups and multipliers."""
        arrays = {"cells": self.cells_, "multiplier": self.multiplier_}
        return replace(super().get_state(), arrays=arrays)

    def set_state(self, state: State) -> None:
        """Restore the trees, groups and multipliers."""
        super().set_state(state)
        self.cells_, self.multiplier_ = state.arrays["cells"], state.arrays["multiplier"]


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
