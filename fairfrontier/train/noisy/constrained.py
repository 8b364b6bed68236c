"""The constraints of a classifier that was trained on noisy groups, on any rows."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.base import Classifier, take_attribute, unit_weight
from fairfrontier.train.noisy.ambiguity import bound_rate_of_cells
from fairfrontier.train.noisy.assignment import bound_rates
from fairfrontier.train.noisy.cell import RATE_CELLS, count_cells
from fairfrontier.train.noisy.noise import NoiseModel
from fairfrontier.train.noisy.rate import Rate, find_rates
from fairfrontier.train.noisy.training_table import ROBUST


class Constrained(Classifier):
    """Base of `NoisyGroups`: what its approach asks of decisions, evaluated on any rows.

    Reads the parameters ``approach``, ``criterion``, ``budget``, ``attribute`` and ``inner``, and
    the fitted ``probability_``, ``level_``, ``joint_`` and ``carried_``; see there.
    """

    approach: str
    criterion: str
    budget: float
    attribute: int
    inner: Literal["ascent", "exact", "joint"]
    probability_: np.ndarray
    level_: np.ndarray
    joint_: np.ndarray
    carried_: np.ndarray

    def decide(self, X: np.ndarray) -> np.ndarray:
        """Return the decisions of every classifier, float64, shape (n_samples, n_classifiers)."""
        raise NotImplementedError

    def constraints(
        self,
        X: np.ndarray,
        y: np.ndarray,
        groups: np.ndarray,
        *,
        true_groups: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
        inner: Literal["ascent", "exact"] | None = None,
    ) -> np.ndarray:
        """Return the constraints of the approach on any rows, with indicators.

        Parameters
        ----------
        X, y, groups, true_groups, sample_weight
            As in ``fit``.
        inner : {"ascent", "exact"}, optional
            How the worst case is told. ``exact``: the true maximum over the ball or over W(θ), on
            these rows. ``ascent``: under the masses that the adversary had given each noisy group,
            decision and label when the iterate was chosen. By default as in training.

        Returns
        -------
        ndarray of float64, shape (R, m)
            By rate and group, in units of the rate; ≤ 0 where satisfied, NaN where a group has no
            row of the event. Under ``unconstrained`` there are none: shape (0, m). Of a stochastic
            classifier the expectation of its classifiers' constraints.
        """
        return np.asarray(self._constraints(X, y, groups, true_groups, sample_weight, inner))

    def violation(
        self,
        X: np.ndarray,
        y: np.ndarray,
        groups: np.ndarray,
        *,
        true_groups: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
        inner: Literal["ascent", "exact"] | None = None,
    ) -> float:
        """Return the largest of the ``constraints``: ≤ 0 where all are satisfied.

        −∞ under ``unconstrained``, which has none; NaN where no group has a row of any event.
        """
        found = self._constraints(X, y, groups, true_groups, sample_weight, inner)
        if found.size == 0:
            return -np.inf
        return float(np.nan if np.isnan(found).all() else np.nanmax(found))

    def _constraints(
        self,
        X: np.ndarray,
        y: np.ndarray,
        groups: np.ndarray,
        true_groups: np.ndarray | None,
        sample_weight: np.ndarray | None,
        inner: str | None,
    ) -> np.ndarray:
        if inner == "ascent" and self.approach in ROBUST and self._method() == "exact":
            raise ConfigError(
                f"The parameter 'inner' of constraints is 'ascent', and this {self.name} was not "
                "trained by ascent.",
                "Leave it out, or ask for 'exact'.",
            )
        codes = groups if self.approach != "true_groups" or true_groups is None else true_groups
        codes = take_attribute(codes, self.attribute)
        rates = find_rates(self.criterion)
        hard = self.approach in ("unconstrained", "true_groups", "naive")
        known = self.carried_.shape[-2]
        if codes.size and codes.max() >= known:
            raise DataError(
                f"There is a group with the code {codes.max()}, and training had {known} groups.",
                "Ask about the groups that the model was trained with.",
            )
        if self.approach == "unconstrained":
            return np.zeros((0, known))
        weight = unit_weight(sample_weight, len(y))
        cells = count_cells(self.decide(X).T, np.asarray(y), codes, known, weight)
        means = [self._rate_constraints(cells, each, hard, inner) for each in rates]
        found = np.stack(means, axis=1)
        return np.asarray(np.einsum("k,krj->rj", self.probability_, found))

    def _rate_constraints(
        self, cells: np.ndarray, rate: Rate, hard: bool, inner: str | None
    ) -> np.ndarray:
        """Return a rate's constraints of every classifier, shape (n_classifiers, m)."""
        among, wrong = _cell_flags(rate)
        with np.errstate(invalid="ignore", divide="ignore"):
            overall = (cells * wrong).sum(axis=(1, 2)) / (cells * among).sum(axis=(1, 2))
            if hard:
                bad = (cells * wrong).sum(axis=2) / (cells * among).sum(axis=2)
            elif (inner or self._method()) == "ascent":
                place = [each.name for each in find_rates(self.criterion)].index(rate.name)
                mass = self.carried_[place] * cells[:, None]
                bad = (mass * wrong).sum(axis=(2, 3)) / (mass * among).sum(axis=(2, 3))
            else:
                kind = RATE_CELLS[rate.cells]
                if self.approach == "dro":
                    low, high = bound_rate_of_cells(cells, self.level_, kind, self._centre())
                else:
                    low, high = bound_rates(cells, self._posterior(), kind)
                bad = 1 - low if rate.floor else high
        return np.asarray(bad - overall[:, None] - self.budget)

    def _method(self) -> Literal["ascent", "exact"]:
        """Return how the worst case was told in training."""
        return "ascent" if self.inner == "ascent" and not self.randomized else "exact"

    def _posterior(self) -> np.ndarray:
        return np.asarray((self.joint_ / self.joint_.sum(axis=0)).T)

    def _centre(self) -> tuple[int, ...] | None:
        if self.joint_.size == 0:
            return None
        m, seen = self.joint_.shape
        names = tuple(str(each) for each in range(m)), tuple(str(each) for each in range(seen))
        return NoiseModel(self.joint_, *names).centre


def _cell_flags(rate: Rate) -> tuple[np.ndarray, np.ndarray]:
    """Return which cells c = 2ŷ + y are of a rate's event, and which of them are bad."""
    sign = np.asarray([rate.sign[c % 2] for c in range(4)])
    decision = np.asarray([1 if c // 2 else -1 for c in range(4)])
    return (sign != 0).astype(np.float64), (sign == decision).astype(np.float64)
