"""A group-wise threshold with a ramp, or with a coin at the threshold: what debiasing learns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, to_numpy
from fairfrontier.runtime.errors import ConfigError

Array = Any


@dataclass(frozen=True, eq=False)
class ThresholdRule:
    """A randomised rule h on scores f ∈ [−1, 1] of groups k.

    width γ > 0:  h = clip((f − t_k)/γ, 0, 1)                                   (1)
    width γ = 0:  h = 1{f > t_k} + coin_k 1{f = t_k}, its limit

    Attributes
    ----------
    width : float
        γ ≥ 0.
    threshold : ndarray of float64, shape (n_groups,)
        t_k = λ_k − μ_k.
    coin : ndarray of float64, shape (n_groups,)
        Probability of the decision 1 at f = t_k, of use at width 0 only; in [0, 1].

    References
    ----------
    I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning
    models. NeurIPS 2021, equation 1 and theorem 3.
    """

    width: float
    threshold: np.ndarray
    coin: np.ndarray

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.threshold.shape[0])

    def probability(self, signed_score: Array, code: Array) -> Array:
        """Return h, the exact probability of the decision 1.

        Parameters
        ----------
        signed_score : array of float, shape (n_samples,)
            f ∈ [−1, 1], an estimate of 2 P(Y=1|x) − 1.
        code : array of integers, shape (n_samples,)
            Group codes 0, …, n_groups − 1; others are a fault of the caller's.

        Returns
        -------
        float64 array, shape (n_samples,)
            On the backend of the scores. It depends on a row's score and group alone.

        Notes
        -----
        O(n).
        """
        xp = array_namespace(signed_score)
        score = xp.astype(signed_score, xp.float64)

        def place(values: np.ndarray) -> Array:
            return xp.take(xp.asarray(values, device=device(score)), code)

        if self.width > 0:
            return xp.clip((score - place(self.threshold)) / self.width, 0.0, 1.0)
        threshold = place(self.threshold)
        above = xp.astype(score > threshold, xp.float64)
        return xp.where(score == threshold, place(self.coin), above)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: width, thresholds and coins, by group code."""
        return {
            "width": float(self.width),
            "thresholds": to_numpy(self.threshold).tolist(),
            "coins": to_numpy(self.coin).tolist(),
        }

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> ThresholdRule:
        """Return the rule that ``to_json`` described.

        Raises
        ------
        ConfigError
            When a key is missing, a number is out of range, or the lists differ in length.
        """
        try:
            width = float(described["width"])
            threshold = np.asarray(described["thresholds"], dtype=np.float64)
            coin = np.asarray(described["coins"], dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                "A rule lacks one of width, thresholds and coins, or holds no numbers there.",
                "Give width as a number, thresholds and coins as lists of numbers.",
            ) from error
        held = math.isfinite(width) and width >= 0 and np.isfinite(threshold).all()
        fits = threshold.ndim == 1 and threshold.shape == coin.shape
        if not (held and fits and bool(np.all((coin >= 0) & (coin <= 1)))):
            raise ConfigError(
                "A rule has a negative width, a coin outside 0 to 1, or lists of unequal length.",
                "Give a width ≥ 0, and one finite threshold and one coin in [0, 1] for each group.",
            )
        return cls(width, threshold, coin)
