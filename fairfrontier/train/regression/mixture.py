"""Estimators that draw one of several predictors: expectations, distributions, draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.train.base import Estimator, take_attribute
from fairfrontier.train.regression.grid import level_values, measure_disparity, round_down
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.predictor import Predictor, score_all

View = Literal["randomised", "mean", "unrounded"]

MISSED = "No mixture was found whose group losses keep the budget."


@dataclass(frozen=True, eq=False)
class Distribution:
    """What a randomised predictor says of each row.

    Attributes
    ----------
    value : ndarray of float64, shape (n_values,) or (n_samples, n_values)
        Predictions on the labels' range; one row for all where they are levels of the grid.
    probability : ndarray of float64, shape (n_samples, n_values)
        Their probabilities; they sum to 1 in every row.
    """

    value: np.ndarray
    probability: np.ndarray


class MixtureEstimator(Estimator):
    """Base of the methods that answer with predictor k with probability q_k.

    Attributes
    ----------
    predictors_ : tuple of Predictor
        Of values that mean predictions once clipped to [0, 1]; empty where there is none.
    probability_ : ndarray of float64, shape (n_predictors,)
        q.
    reachable_ : ndarray of float64, shape (n_groups,)
        Where there is none: budgets that could be met.
    """

    predictors_: tuple[Predictor, ...]
    probability_: np.ndarray
    reachable_: np.ndarray
    attribute: int
    n_grid: int
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

        Levels of the grid with their probabilities where predictions are rounded, else the value
        of every predictor with its own.
        """
        if not self._on_grid():
            value = self.predict_components(X)
            share = np.broadcast_to(self.probability_, value.shape)
            return Distribution(value, share)
        level = round_down(self._raw(X), self.n_grid)
        probability = np.zeros((len(level), self.n_grid + 1))
        rows = np.arange(len(level))
        for place, share in enumerate(self.probability_):
            probability[rows, level[:, place]] += share
        return Distribution(self._unscale(level_values(self.n_grid, probability)), probability)

    def sample(self, X: np.ndarray, ids: np.ndarray | None = None) -> np.ndarray:
        """Return drawn predictions, float64, shape (n_samples,).

        Parameters
        ----------
        X : ndarray of float64, shape (n_samples, n_features)
        ids : ndarray of int64, shape (n_samples,), optional
            Row ids, by which a row's predictor is drawn whatever the batch; the rows' places when
            None. Variants of a row with its id are answered by the same predictor.
        """
        component = self.predict_components(X)
        rows = np.arange(len(component)) if ids is None else np.asarray(ids)
        steps = np.cumsum(self.probability_)
        drawn = np.searchsorted(steps[:-1], uniforms(self.random_state, rows), side="right")
        found: np.ndarray = component[np.arange(len(component)), drawn]
        return found

    def disparity(
        self, X: np.ndarray, groups: np.ndarray, *, view: View = "randomised"
    ) -> np.ndarray:
        """Return sup_z |P[f ≥ z | A = a] − P[f ≥ z]| over all real z for each group of the rows.

        Parameters
        ----------
        X : ndarray of float64, shape (n_samples, n_features)
        groups : ndarray of int64, shape (n_samples, n_attributes)
        view : {"randomised", "mean", "unrounded"}
            What is drawn; its expectation, ``predict_mean``; what would be drawn without rounding
            to the grid, which no budget bounds.

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
        found: np.ndarray = measure_disparity(value, group, share, codes.size)
        return found

    @property
    def infeasible_(self) -> str | None:
        """Why there is no predictor, and which budgets can be met; None where there is one."""
        if self.predictors_:
            return None
        return f"{MISSED} {self._mend()}"

    def _mend(self) -> str:
        reached = ", ".join(f"{each:.4g}" for each in self.reachable_)
        return f"Budgets that can be met are {reached} for the groups in their order."

    def _predictors(self) -> tuple[Predictor, ...]:
        if not self.predictors_:
            raise DataError(MISSED, self._mend())
        return self.predictors_

    def _raw(self, X: np.ndarray) -> np.ndarray:
        rows = self.validate_rows(X)
        return score_all(self._predictors(), rows)

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
        """Return whether predictions are levels of the grid."""
        raise NotImplementedError

    def _range(self) -> tuple[float, float]:
        """Return the lowest and the highest label."""
        raise NotImplementedError

    def _loss(self) -> Loss:
        """Return the loss."""
        raise NotImplementedError
