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


class Tally:
    """Sums of what rules decide, by part and group.

    h is a rule's probability of deciding 1, y a label; the expected accuracy is
    E[y h + (1 − y)(1 − h)]. Changes are relative to the first rule. Parts are disjoint sets of
    rows. For every quantity a ∈ [0, 1] the sums of w a, w² a and w² a² are kept, so that memory
    does not depend on the rows; time is O(rules × rows). Sums of integers are exact, others depend
    on the batches in the last bits.
    """

    def __init__(
        self, rules: Sequence[str], parts: Sequence[str], n_groups: int, seed: int
    ) -> None:
        self.rules, self.parts, self.n_groups = tuple(rules), tuple(parts), n_groups
        self.labelled = False
        self._seed = seed
        self._size = len(self.parts) * n_groups
        self._rows = np.zeros(self._size, dtype=np.int64)
        zero = np.zeros((3, self._size))
        self._unit = self._label = zero
        self._decision = dict.fromkeys(self.rules, zero)
        self._right, self._changed = dict(self._decision), dict(self._decision)

    def add(
        self,
        part: np.ndarray,
        code: np.ndarray,
        weight: np.ndarray,
        probability: Mapping[str, np.ndarray],
        label: np.ndarray | None,
    ) -> None:
        """Add rows: int64 codes of parts and groups, h of every rule, labels 0 and 1 as float64."""
        cell = part * self.n_groups + code

        def total(value: np.ndarray) -> np.ndarray:
            mass = weight * value
            terms = (mass, mass * weight, mass * mass)
            return np.stack([np.bincount(cell, term, self._size) for term in terms])

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
        """Return the rows of each group, int64; groups with equal ``codes`` are merged."""
        return self._merge(self._rows, parts, codes)

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

        The interval is the percentile interval of a bootstrap, see `resample_sums`. A largest
        difference is never below 0, so that the interval hardly ever reaches 0: see `percentile`.
        """
        unit = self._merge(self._unit, parts, codes)
        decided = self._merge(self._decision[rule], parts, codes)[:, unit[0] > 0]
        w, ww, _ = unit[:, unit[0] > 0]
        wh, wwh, wwhh = decided
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

    def _share(self, sums: np.ndarray, parts: Sequence[str], codes: np.ndarray | None) -> Rates:
        w, ww, _ = self._merge(self._unit, parts, codes)
        wa, wwa, wwaa = self._merge(sums, parts, codes)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = wa / w
            variance = np.maximum(wwaa - 2 * value * wwa + value**2 * ww, 0.0) / w**2
            size = effective_size(value, variance, w**2 / ww)
        return Rates(value, *wilson(value, np.nan_to_num(size)))

    def _merge(
        self, table: np.ndarray, parts: Sequence[str], codes: np.ndarray | None
    ) -> np.ndarray:
        """Sum the last axis of a table over parts, and over groups with equal codes."""
        positions = [self.parts.index(part) for part in parts]
        shape = (*table.shape[:-1], len(self.parts), self.n_groups)
        summed: np.ndarray = table.reshape(shape)[..., positions, :].sum(axis=-2)
        if codes is None:
            return summed
        merged = np.zeros((*table.shape[:-1], int(codes.max()) + 1), dtype=table.dtype)
        np.add.at(merged.T, codes, summed.T)
        return merged
