"""What several decision rules do to groups: sums over batches of rows, and rates made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairfrontier.evaluate.statistic.interval import effective_size, percentile, wilson
from fairfrontier.evaluate.statistic.resampling import resample_sums
from fairfrontier.runtime.seeds import derive_generator

REPLICATES = 2000


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Rates:
    """Shares by group with their 95% intervals, float64, shape (n_groups,); NaN without rows."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def at(self, group: int) -> Estimate:
        """Return one group's share."""
        return Estimate(float(self.value[group]), float(self.low[group]), float(self.high[group]))


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the rows of each group, for one quantity a ∈ [0, 1] of each row.

    Attributes
    ----------
    first, second, third : ndarray of float64, shape (..., n_groups)
        Sums of w a, w² a and w² a².
    """

    first: np.ndarray
    second: np.ndarray
    third: np.ndarray

    @classmethod
    def over(cls, value: np.ndarray, code: np.ndarray, weight: np.ndarray, size: int) -> Sums:
        """Return the sums of a batch."""
        mass = weight * value
        return cls(
            np.bincount(code, mass, size),
            np.bincount(code, mass * weight, size),
            np.bincount(code, mass * mass, size),
        )

    def __add__(self, other: Sums) -> Sums:
        """Return the sums over both."""
        return Sums(self.first + other.first, self.second + other.second, self.third + other.third)


class Tally:
    """Sums of what rules decide, by part and group.

    h is a rule's probability of deciding 1, y a label; the expected accuracy is
    E[y h + (1 − y)(1 − h)].

    Parameters
    ----------
    rules : sequence of str
        Their names; the first one is what changes are counted from.
    parts : sequence of str
        Names of disjoint sets of rows.
    n_groups : int
    seed : int
        Of the bootstrap.

    Notes
    -----
    O(rules × rows) time; memory does not depend on the rows. Sums of whole numbers are exact,
    others depend on the batches in the last bits.
    """

    def __init__(
        self, rules: Sequence[str], parts: Sequence[str], n_groups: int, seed: int
    ) -> None:
        self.rules, self.parts, self.n_groups = tuple(rules), tuple(parts), n_groups
        self._seed = seed
        self._size = len(self.parts) * n_groups
        zero = np.zeros(self._size)
        nothing = Sums(zero, zero, zero)
        self._rows = np.zeros(self._size, dtype=np.int64)
        self._unit = nothing
        self._label = nothing
        self._decision = dict.fromkeys(self.rules, nothing)
        self._right = dict.fromkeys(self.rules, nothing)
        self._changed = dict.fromkeys(self.rules, nothing)
        self.labelled = False

    def add(
        self,
        part: np.ndarray,
        code: np.ndarray,
        weight: np.ndarray,
        probability: Mapping[str, np.ndarray],
        label: np.ndarray | None,
    ) -> None:
        """Add rows.

        Parameters
        ----------
        part, code : ndarray of int64, shape (n,)
            Part and group codes.
        weight : ndarray of float64, shape (n,)
        probability : mapping of str to ndarray of float64, shape (n,)
            h of every rule.
        label : ndarray of float64, shape (n,), or None
            0 or 1.
        """
        cell = part * self.n_groups + code

        def total(value: np.ndarray) -> Sums:
            return Sums.over(value, cell, weight, self._size)

        self._rows = self._rows + np.bincount(cell, minlength=self._size)
        self._unit = self._unit + total(np.ones_like(weight))
        start = probability[self.rules[0]]
        for rule in self.rules:
            h = probability[rule]
            self._decision[rule] = self._decision[rule] + total(h)
            self._changed[rule] = self._changed[rule] + total(np.abs(h - start))
            if label is not None:
                right = label * h + (1.0 - label) * (1.0 - h)
                self._right[rule] = self._right[rule] + total(right)
        if label is not None:
            self.labelled = True
            self._label = self._label + total(label)

    def rows(self, parts: Sequence[str], codes: np.ndarray | None = None) -> np.ndarray:
        """Return the rows of each group, int64; ``codes`` merge groups."""
        return self._gather(self._rows, parts, codes)

    def base_rates(self, parts: Sequence[str], codes: np.ndarray | None = None) -> Rates:
        """Return E[y | group]."""
        return self._share(self._label, parts, codes)

    def rates(self, rule: str, parts: Sequence[str], codes: np.ndarray | None = None) -> Rates:
        """Return E[h | group] of a rule."""
        return self._share(self._decision[rule], parts, codes)

    def accuracies(self, rule: str, parts: Sequence[str], codes: np.ndarray | None = None) -> Rates:
        """Return the expected accuracy of a rule in each group."""
        return self._share(self._right[rule], parts, codes)

    def changes(self, rule: str, parts: Sequence[str], codes: np.ndarray | None = None) -> Rates:
        """Return E|h − h₀| in each group, h₀ the first rule: the share of decisions that change."""
        return self._share(self._changed[rule], parts, codes)

    def bias(self, rule: str, parts: Sequence[str], codes: np.ndarray | None = None) -> Estimate:
        """Return max_k E[h | k] − min_k E[h | k] over the groups that have rows.

        Notes
        -----
        The interval is the percentile interval of a bootstrap, see `resample_sums`. A largest
        difference is never below 0, so that the interval hardly ever reaches 0: see `percentile`.
        """
        unit = self._merged(self._unit, parts, codes)
        held = self._merged(self._decision[rule], parts, codes)
        there = unit.first > 0
        n = [unit.first, unit.second, held.first, held.second, held.third]
        w, ww, wh, wwh, wwhh = (each[there] for each in n)
        mass = np.stack([w - wh, wh], axis=-1)
        both = wwh - wwhh
        square = np.stack(
            [np.stack([ww - 2 * wwh + wwhh, both], -1), np.stack([both, wwhh], -1)], -2
        )
        rng = derive_generator("debias", "bias", self._seed)
        drawn = resample_sums(np.maximum(mass, 0.0), np.maximum(square, 0.0), REPLICATES, rng)
        total = drawn.sum(axis=-1)
        shares = np.divide(drawn[..., 1], total, out=np.full_like(total, np.nan), where=total > 0)
        value = float(np.ptp(wh / w))
        return Estimate(value, *percentile(value, np.ptp(shares, axis=-1)))

    def _share(self, sums: Sums, parts: Sequence[str], codes: np.ndarray | None) -> Rates:
        unit, held = self._merged(self._unit, parts, codes), self._merged(sums, parts, codes)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = held.first / unit.first
            spread = held.third - 2 * value * held.second + value**2 * unit.second
            variance = np.maximum(spread, 0.0) / unit.first**2
            size = effective_size(value, variance, unit.first**2 / unit.second)
        return Rates(value, *wilson(value, np.nan_to_num(size)))

    def _merged(self, sums: Sums, parts: Sequence[str], codes: np.ndarray | None) -> Sums:
        tables = (sums.first, sums.second, sums.third)
        return Sums(*(self._gather(each, parts, codes) for each in tables))

    def _gather(
        self, table: np.ndarray, parts: Sequence[str], codes: np.ndarray | None
    ) -> np.ndarray:
        """Sum a table over parts, and over groups that get one code."""
        places = [self.parts.index(part) for part in parts]
        held = table.reshape(len(self.parts), self.n_groups)[places].sum(axis=0)
        return held if codes is None else _merge(held, codes, int(codes.max()) + 1)


def _merge(table: np.ndarray, codes: np.ndarray, size: int) -> np.ndarray:
    merged = np.zeros(size, dtype=table.dtype)
    np.add.at(merged, codes, table)
    return merged
