"""Randomised rules by group: a threshold with a ramp or a coin, a clipped line, and mixtures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace, to_numpy

Array = Any

# What scores are; points are read by their order, from knots of a score and f.
Scale = Literal["probability", "margin", "signed", "points"]
Knots = Sequence[tuple[float, float]]
# The level of every column that stands for groups without a threshold of their own.
UNSEEN = "(unseen)"
# Outside of the scores' scale: chooses none, or all.
NONE, ALL = 2.0, -2.0


@dataclass(frozen=True, eq=False)
class ThresholdRule:
    """A randomised rule h on scores f ∈ [−1, 1] of groups k.

    width γ > 0:  h = clip((f − t_k)/γ, 0, 1)                                   (1)
    width γ = 0:  h = 1{f > t_k} + coin_k 1{f = t_k}, its limit

    ``threshold`` is t = λ − μ and ``coin`` lies in [0, 1], both float64 of shape (n_groups,).

    References
    ----------
    I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning
    models. NeurIPS 2021, equation 1 and theorem 3.
    """

    width: float
    threshold: np.ndarray
    coin: np.ndarray

    def probability(self, signed_score: Array, code: Array) -> Array:
        """Return h, the exact probability of decision 1, float64, shape (n_samples,).

        ``signed_score`` is f ∈ [−1, 1] and ``code`` the group, which is not checked. O(n).
        """
        xp = array_namespace(signed_score)
        score = xp.astype(signed_score, xp.float64)
        by_row = _by_row(score, code)
        if self.width > 0:
            return xp.clip((score - by_row(self.threshold)) / self.width, 0.0, 1.0)
        threshold = by_row(self.threshold)
        above = xp.astype(score > threshold, xp.float64)
        return xp.where(score == threshold, by_row(self.coin), above)

    def list_thresholds(self, code: int) -> Iterator[dict[str, Any]]:
        """Yield where h of a group is 0 and where 1, and its coin."""
        low, coin = float(self.threshold[code]), float(self.coin[code])
        step = self.width == 0
        yield {"zero_up_to": low, "one_from": low + self.width, "coin": coin if step else math.nan}

    def to_json(self) -> dict[str, Any]:
        """Return plain values: width, thresholds and coins, by group code."""
        return {
            "width": float(self.width),
            "thresholds": to_numpy(self.threshold).tolist(),
            "coins": to_numpy(self.coin).tolist(),
        }

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> ThresholdRule:
        """Return the rule that ``to_json`` described; ValueError for an invalid description."""
        return cls(float(described["width"]), *_read(described, "thresholds", "coins"))


@dataclass(frozen=True, eq=False)
class RampRule:
    """A randomised rule h = clip(level_k + slope_k (f − centre_k), 0, 1), by group k.

    An infinite slope makes a threshold with a coin: h = 1{f > centre_k} + level_k 1{f = centre_k}.
    All fields are float64 of shape (n_groups,). Steep lines are exact at their centre, which is a
    score that occurs. A `ThresholdRule` has slopes 1/γ, centres t_k and levels 0.
    """

    centre: np.ndarray
    level: np.ndarray
    slope: np.ndarray

    def probability(self, signed_score: Array, code: Array) -> Array:
        """Return h as `ThresholdRule.probability` does."""
        xp = array_namespace(signed_score)
        score = xp.astype(signed_score, xp.float64)
        by_row = _by_row(score, code)
        steep = np.isinf(self.slope)
        offset, level = score - by_row(self.centre), by_row(self.level)
        line = xp.clip(level + by_row(np.where(steep, 0.0, self.slope)) * offset, 0.0, 1.0)
        if not steep.any():
            return line
        above = xp.astype(offset > 0, xp.float64)
        return xp.where(by_row(steep), xp.where(offset == 0, level, above), line)

    def list_thresholds(self, code: int) -> Iterator[dict[str, Any]]:
        """Yield where h of a group is 0 and where 1, and its coin, where there is a step."""
        slope, level = float(self.slope[code]), float(self.level[code])
        ends = [float(self.centre[code]) + _divide(y - level, slope) for y in (0.0, 1.0)]
        step = not 0 < slope < math.inf
        yield {**dict(zip(("zero_up_to", "one_from"), ends, strict=True)),
               "coin": level if step else math.nan}  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return plain values by group code; None is an infinite slope."""
        return {
            "centres": self.centre.tolist(),
            "levels": self.level.tolist(),
            "slopes": [slope if math.isfinite(slope) else None for slope in self.slope.tolist()],
        }

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> RampRule:
        """Return the rule that ``to_json`` described; ValueError for an invalid description."""
        centre, level, slope = _read(described, "centres", "levels", "slopes")
        return cls(centre, level, np.where(np.isnan(slope), np.inf, slope))


@dataclass(frozen=True, eq=False)
class MixtureRule:
    """One of m thresholds is drawn for every row: h = Σ_j share_kj 1{f > threshold_kj}.

    Both fields are float64 of shape (n_groups, m); the shares of a group add up to 1. With m = 1
    nothing is random. A share s below 0 stands for 1{f ≤ threshold} with −s, and a threshold of all
    has that as much more.
    """

    threshold: np.ndarray
    share: np.ndarray

    def probability(self, signed_score: Array, code: Array) -> Array:
        """Return h as `ThresholdRule.probability` does."""
        xp = array_namespace(signed_score)
        score = xp.astype(signed_score, xp.float64)
        by_row = _by_row(score, code)
        chance = xp.zeros_like(score)
        for threshold, share in zip(self.threshold.T, self.share.T, strict=True):
            passed = score > by_row(np.ascontiguousarray(threshold))
            chance = xp.where(passed, chance + by_row(np.ascontiguousarray(share)), chance)
        # Shares add up to 1 up to rounding only.
        return xp.clip(chance, 0.0, 1.0)

    def list_thresholds(self, code: int) -> Iterator[dict[str, Any]]:
        """Yield the thresholds of a group that are drawn, and whether 1 is decided above them."""
        pairs = list(zip(self.threshold[code].tolist(), self.share[code].tolist(), strict=True))
        spare, above = -sum(min(share, 0.0) for _, share in pairs), not self.turned
        for threshold, share in pairs:
            taken = min(share, spare) if threshold <= ALL and share > 0 else 0.0
            spare -= taken
            if abs(share) > taken:
                side = {} if above else {"above": share > 0}
                yield {"threshold": threshold, "share": abs(share) - taken, **side}

    @property
    def turned(self) -> bool:
        """Whether some decisions are 1 up to a threshold."""
        return bool((self.share < 0).any())

    def clip(self) -> MixtureRule:
        """Return the same rule with finite thresholds: JSON has no infinity."""
        return MixtureRule(np.clip(self.threshold, ALL, NONE), self.share)

    def to_json(self) -> dict[str, Any]:
        """Return plain values by group code."""
        return {"thresholds": self.threshold.tolist(), "shares": self.share.tolist()}

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> MixtureRule:
        """Return the rule that ``to_json`` described; ValueError for an invalid description."""
        return cls(*_read(described, "thresholds", "shares"))


DecisionRule = ThresholdRule | MixtureRule | RampRule


@dataclass(frozen=True, eq=False)
class FittedRule:
    """A rule, and what is known of the rows that it was fitted on.

    ``facts`` are the number of ``rows`` of each group and its ``rates`` E[h | group] on them; None
    where they were not kept. The criterion's rates are to differ by at most ``budget`` there;
    where ``rate`` is given, every group's is to lie within budget/2 of it.
    """

    rule: DecisionRule
    facts: Mapping[str, Any] | None
    budget: float
    criterion: str = "parity"
    rate: float | tuple[float, float] | None = None


def rescale(signed: float, scale: Scale, knots: Knots = ()) -> float | None:
    """Return a point of [−1, 1] on the scale of the scores; None outside."""
    if not -1.0 <= signed <= 1.0:
        return None
    if scale == "probability":
        return (signed + 1.0) / 2.0
    if scale == "points":
        score, f = np.array(knots).T
        return float(np.interp(signed, f, score)) if f[0] <= signed <= f[-1] else None
    if scale == "margin":
        return None if abs(signed) == 1.0 else 2.0 * math.atanh(signed)
    return signed


def conjugate(excess: Array, width: float) -> Array:
    """Return ξ_γ(w) = ∫ clip(v/γ, 0, 1) dv up to w: a parabola on the ramp, then a line (3)."""
    xp = array_namespace(excess)
    ramp = xp.clip(excess, 0.0, width)
    line = xp.maximum(excess - width, xp.zeros_like(excess))
    return ramp * ramp / (2.0 * width) + line if width > 0 else line


def measure_rates(h: np.ndarray, code: np.ndarray, weight: np.ndarray, n_groups: int) -> np.ndarray:
    """Return E[h | group], (n_groups,), of rows (n_samples,) in groups that all have weight."""
    chosen, total = (np.bincount(code, mass, n_groups) for mass in (weight * h, weight))
    return np.asarray(chosen / total)


def _divide(value: float, slope: float) -> float:
    if slope == 0:
        return math.copysign(math.inf, value)
    return value / slope


def _read(described: Mapping[str, Any], *names: str) -> list[np.ndarray]:
    """Return lists by group code as float64, NaN for None; ValueError for unequal lengths."""
    columns = [np.array(described[name], dtype=np.float64) for name in names]
    if len({column.shape for column in columns}) > 1:
        raise ValueError(f"{', '.join(names)} differ in length")
    return columns


def _by_row(score: Array, code: Array) -> Callable[[np.ndarray], Array]:
    """Return a function that spreads values by group over the rows, on the scores' backend."""
    xp = array_namespace(score)
    return lambda values: xp.take(xp.asarray(values, device=device(score)), code)
