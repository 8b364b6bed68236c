"""Estimators that draw one of several predictors: expectations, distributions, draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.train.base import Estimator
from fairfrontier.train.group import take_attribute
from fairfrontier.train.regression.grid import level_values, measure_disparity, round_down
from fairfrontier.train.regression.predictor import Predictor, score_all

View = Literal["randomised", "mean", "unrounded"]

MISSED = "No mixture was found whose group losses are within the budget."


@dataclass(frozen=True, eq=False)
class Distribution:
    """The distribution of each row's prediction under a randomised predictor.

    ``value``, on the labels' range, has shape (n_values,) where predictions are levels of the grid,
    else (n_samples, n_values); ``probability``, shape (n_samples, n_values), sums to 1 in every
    row.
    """

    value: np.ndarray
    probability: np.ndarray


class MixtureEstimator(Estimator):
    """Base of the methods that predict by predictor k with probability q_k.

    Attributes
    ----------
    predictors_ : tuple of Predictor
        Their values, clipped to [0, 1], are predictions; empty where there is none.
    probability_ : ndarray of float64, shape (n_predictors,)
        q.
    reachable_ : ndarray of float64, shape (n_groups,)
        Budgets that could be met.
    """

    predictors_: tuple[Predictor, ...]
    probability_: np.ndarray
    reachable_: np.ndarray
    multiplier_: np.ndarray
    levels_: np.ndarray
    loss_: float
    group_value_: np.ndarray
    alone_: np.ndarray
    report_: dict[str, float]
    gap_: float
    exact_: bool
    converged_: bool
    iterations_: int
    calls_: int
    constraint: str
    attribute: int
    n_grid: int
    rounded: bool
    label_range: Sequence[float] | None
    random_state: int

    def predict_components(self, X: np.ndarray) -> np.ndarray:
        """Return the prediction of every predictor, on the labels' range, shape (n_samples, K).

        Raises
        ------
        DataError
            When bounded group loss was infeasible, so that there is no predictor.
        """
        return self._unscale(self._components(X))

    def predict_mean(self, X: np.ndarray) -> np.ndarray:
        """Return the exact expected prediction, float64, shape (n_samples,)."""
        mean: np.ndarray = self.predict_components(X) @ self.probability_
        return mean

    def predict_distribution(self, X: np.ndarray) -> Distribution:
        """Return the exact distribution of each row's prediction.

        Its values are levels of the grid where predictions are rounded, else those of the
        predictors.
        """
        if not self._on_grid():
            value = self.predict_components(X)
            share = np.broadcast_to(self.probability_, value.shape)
            return Distribution(value, share)
        level = round_down(self._raw(X), self.n_grid)
        probability = np.zeros((len(level), self.n_grid + 1))
        rows = np.arange(len(level))
        for k, share in enumerate(self.probability_):
            probability[rows, level[:, k]] += share
        return Distribution(self._unscale(level_values(self.n_grid, probability)), probability)

    def sample(self, X: np.ndarray, ids: np.ndarray | None = None) -> np.ndarray:
        """Return drawn predictions, float64, shape (n_samples,).

        Parameters
        ----------
        X : ndarray of float64, shape (n_samples, n_features)
        ids : ndarray of int64, shape (n_samples,), optional
            Row ids, by which a row's predictor is drawn whatever the batch; positions of the rows
            when None. Variants of a row that share its id share its predictor.
        """
        component = self.predict_components(X)
        rows = np.arange(len(component)) if ids is None else to_numpy(ids)
        steps = np.cumsum(self.probability_)
        drawn = np.searchsorted(steps[:-1], uniforms(self.random_state, rows), side="right")
        prediction: np.ndarray = component[np.arange(len(component)), drawn]
        return prediction

    def disparity(
        self, X: np.ndarray, groups: np.ndarray, *, view: View = "randomised"
    ) -> np.ndarray:
        """Return sup_z |P[f ≥ z | A = a] − P[f ≥ z]| over all real z for each group of the rows.

        Parameters
        ----------
        X : ndarray of float64, shape (n_samples, n_features)
        groups : ndarray of int64, shape (n_samples, n_attributes)
        view : {"randomised", "mean", "unrounded"}
            f is the draw; its expectation, ``predict_mean``; or the draw without rounding to the
            grid, which no budget bounds.

        Returns
        -------
        ndarray of float64, shape (n_groups,)
            In the order of the codes that occur.
        """
        codes, group = np.unique(take_attribute(groups, self.attribute), return_inverse=True)
        if view == "mean":
            value, share = self.predict_mean(X), np.ones(len(X))
        else:
            value = self._components(X) if view == "randomised" else self._raw(X)
            share = np.broadcast_to(self.probability_, value.shape)
        disparity: np.ndarray = measure_disparity(value, group, share, codes.size)
        return disparity

    @property
    def infeasible_(self) -> str | None:
        """Why there is no predictor, and which budgets can be met; None where there is one."""
        if self.predictors_:
            return None
        return f"{MISSED} {self._mend()}"

    def _mend(self) -> str:
        reachable = ", ".join(f"{budget:.4g}" for budget in self.reachable_)
        return f"Budgets that can be met are {reachable} for the groups in their order."

    def _raw(self, X: np.ndarray) -> np.ndarray:
        rows = self.validate_rows(X)
        if not self.predictors_:
            raise DataError(MISSED, self._mend())
        return score_all(self.predictors_, rows)

    def _components(self, X: np.ndarray) -> np.ndarray:
        """Return predictions in [0, 1], on the grid where they are rounded."""
        value = self._raw(X)
        if not self._on_grid():
            return value
        rounded: np.ndarray = level_values(self.n_grid, value)[round_down(value, self.n_grid)]
        return rounded

    def _unscale(self, value: np.ndarray) -> np.ndarray:
        low, high = self._range()
        return value if (low, high) == (0.0, 1.0) else low + (high - low) * value

    def _on_grid(self) -> bool:
        return self.rounded and self.constraint == "statistical_parity"

    def _range(self) -> tuple[float, float]:
        """Return the lowest and the highest label."""
        if self.label_range is None:
            return 0.0, 1.0
        return float(self.label_range[0]), float(self.label_range[1])
