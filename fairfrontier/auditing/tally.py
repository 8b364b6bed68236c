"""What several decision rules do to groups: sums over batches of rows, and rates made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fairfrontier.auditing.option import DebiasConfig
from fairfrontier.metrics.statistic.interval import (
    bound_difference,
    bound_mean_difference,
    effective_size,
    invert_wilson,
    percentile,
    wilson,
)
from fairfrontier.metrics.statistic.rate import average_known, resample_sums
from fairfrontier.models.objective import Objective, read_costs
from fairfrontier.models.thresholds.curve import BOUNDED
from fairfrontier.models.thresholds.rule import DecisionRule
from fairfrontier.models.thresholds.sample import ScoredRows
from fairfrontier.runtime.seeds import derive_generator

Array = Any
REPLICATES = 2000
# The rates that a criterion bounds, by their columns in BOUNDED, and the label that each is given.
RATES = ("rate", "true_positive_rate", "false_positive_rate")
GIVEN = (None, 1, 0)


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
    """Sums of what rules decide, by part, group and label.

    h is a rule's probability of deciding 1, y a label; the expected accuracy is
    E[y h + (1 − y)(1 − h)]. Changes are relative to the first rule. Parts are disjoint sets of
    rows. For every quantity a ∈ [0, 1] the sums of w a, w² a and w² a² are kept, so that memory
    does not depend on the rows (of 1 itself Σ w, Σ w² and the rows); time is O(rules × rows). Sums
    of integers are exact, others depend on the batches in the last bits.
    """

    def __init__(
        self, rules: Sequence[str], parts: Sequence[str], n_groups: int, seed: int
    ) -> None:
        self.rules, self.parts, self.n_groups = tuple(rules), tuple(parts), n_groups
        self.labelled = False
        self._seed = seed
        self._size = len(self.parts) * n_groups * 2
        self._rows = np.zeros(self._size, dtype=np.int64)
        zero = np.zeros((3, self._size))
        self._unit = zero
        self._decision = dict.fromkeys(self.rules, zero)
        self._changed = dict(self._decision)

    def add(
        self,
        part: np.ndarray,
        code: np.ndarray,
        weight: np.ndarray,
        probability: Mapping[str, np.ndarray],
        label: np.ndarray | None,
    ) -> None:
        """Add rows: int64 codes of parts and groups, h of every rule, labels 0 and 1 as float64."""
        cell = 2 * (part * self.n_groups + code)
        if label is not None:
            self.labelled = True
            cell = cell + label.astype(np.int64)

        def total(value: np.ndarray) -> np.ndarray:
            mass = weight * value
            terms = (mass, mass * weight, mass * mass)
            return np.stack([np.bincount(cell, term, self._size) for term in terms])

        self._rows = self._rows + np.bincount(cell, minlength=self._size)
        unit = total(np.ones_like(weight))
        unit[2] = np.bincount(cell, minlength=self._size)
        self._unit = self._unit + unit
        start = probability[self.rules[0]]
        for rule in self.rules:
            h = probability[rule]
            self._decision[rule] = self._decision[rule] + total(h)
            self._changed[rule] = self._changed[rule] + total(np.abs(h - start))

    def rows(self, parts: Sequence[str], codes: np.ndarray | None = None) -> np.ndarray:
        """Return the rows of each group, int64; groups with equal ``codes`` are merged."""
        return self._merge(self._rows, parts, codes)

    def base_rates(self, parts: Sequence[str], codes: np.ndarray | None = None) -> Rates:
        """Return E[y | group]."""
        return _share(*(self._merge(self._unit, parts, codes, label) for label in (None, 1)))

    def rates(
        self,
        rule: str,
        parts: Sequence[str],
        codes: np.ndarray | None = None,
        label: int | None = None,
    ) -> Rates:
        """Return E[h | group] of a rule, or E[h | group, y = label]."""
        sums = (self._unit, self._decision[rule])
        return _share(*(self._merge(each, parts, codes, label) for each in sums))

    def accuracies(self, rule: str, parts: Sequence[str], codes: np.ndarray | None = None) -> Rates:
        """Return the expected accuracy of a rule in each group."""
        w, ww, _ = self._merge(self._unit, parts, codes, 0)
        wh, wwh, wwhh = self._merge(self._decision[rule], parts, codes, 0)
        right = np.stack([w - wh, ww - wwh, ww - 2 * wwh + wwhh])
        right += self._merge(self._decision[rule], parts, codes, 1)
        return _share(self._merge(self._unit, parts, codes), right)

    def changes(self, rule: str, parts: Sequence[str], codes: np.ndarray | None = None) -> Rates:
        """Return E|h − h₀| in each group, h₀ the first rule: the share of decisions that change."""
        sums = (self._unit, self._changed[rule])
        return _share(*(self._merge(each, parts, codes) for each in sums))

    def bias(
        self,
        rule: str,
        parts: Sequence[str],
        codes: np.ndarray | None = None,
        criterion: str = "parity",
    ) -> Estimate:
        """Return max_k − min_k of the rate that a criterion bounds, over groups that have rows.

        Of two rates it is the larger difference, or their mean for ``average_odds``. For the
        interval see `bound_difference` and `bound_mean_difference`.
        """
        rates = [self.rates(rule, parts, codes, GIVEN[column]) for column in BOUNDED[criterion]]
        value, low, high = (
            np.stack([getattr(each, end) for each in rates], axis=1)
            for end in ("value", "low", "high")
        )
        known = ~np.isnan(value)
        gaps = np.where(known, value, -np.inf).max(axis=0) - np.where(known, value, np.inf).min(0)
        gaps[~known.any(axis=0)] = 0.0
        if (known.sum(axis=0) < 2).all():
            return Estimate(0.0, 0.0, 0.0)
        size = invert_wilson(value, low, high)
        if criterion == "average_odds":
            return Estimate(float(gaps.mean()), *bound_mean_difference(value, size, largest=True))
        return Estimate(float(gaps.max()), *bound_difference(value, partial(wilson, value, size)))

    def expect(self, rule: str, parts: Sequence[str], objective: Objective) -> Estimate:
        """Return the expected value of an objective on all rows.

        Of accuracy the interval is Wilson's, else the percentile one of a bootstrap
        (`resample_sums`): a mean of two shares or a ratio of sums is not biased.
        """
        everyone = np.zeros(self.n_groups, dtype=np.int64)
        if objective == "accuracy":
            return self.accuracies(rule, parts, everyone).at(0)
        unit, decided = (
            np.hstack([self._merge(sums, parts, everyone, label) for label in (0, 1)])
            for sums in (self._unit, self._decision[rule])
        )
        drawn = _draw_sums(unit, decided, derive_generator("debias", "objective", self._seed))
        value = float(measure_objective(objective, decided[0, 1], decided[0, 0], *unit[0, ::-1]))
        chosen, totals = drawn[..., 1], drawn.sum(axis=-1)
        others = measure_objective(
            objective, chosen[:, 1], chosen[:, 0], totals[:, 1], totals[:, 0]
        )
        return Estimate(value, *percentile(value, others))

    def _merge(
        self,
        table: np.ndarray,
        parts: Sequence[str],
        codes: np.ndarray | None,
        label: int | None = None,
    ) -> np.ndarray:
        """Sum the last axis of a table over parts, labels, and groups with equal codes."""
        positions = [self.parts.index(part) for part in parts]
        shape = (*table.shape[:-1], len(self.parts), self.n_groups, 2)
        kept = slice(None) if label is None else slice(label, label + 1)
        by_part = table.reshape(shape)[..., kept].sum(axis=-1)
        summed: np.ndarray = by_part[..., positions, :].sum(axis=-2)
        if codes is None:
            return summed
        merged = np.zeros((*table.shape[:-1], int(codes.max()) + 1), dtype=table.dtype)
        np.add.at(merged.T, codes, summed.T)
        return merged


def measure_objective(
    objective: Objective, true: Array, false: Array, positive: Array, negative: Array
) -> Array:
    """Return an objective, or the mean cost of errors, from the weights chosen in each class.

    ``true`` and ``false`` are those of true and false positives, ``positive`` and ``negative``
    those of the classes. A balanced accuracy without one of the classes is the other's rate.
    """
    costs, missed, total = read_costs(objective), positive - true, positive + negative
    if costs is not None:
        return (costs[0] * false + costs[1] * missed) / total
    if objective == "accuracy":
        return (total - false - missed) / total
    with np.errstate(invalid="ignore"):
        if objective == "f1":
            return 2.0 * true / (true + false + positive)
        rates = np.divide([true, negative - false], [positive, negative])
    return np.nanmean(rates, axis=0)


def _share(unit: np.ndarray, sums: np.ndarray) -> Rates:
    """Return the shares of sums in those of the rows, both of shape (3, n_groups)."""
    w, ww, rows = unit
    wa, wwa, wwaa = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        value = wa / w
        variance = np.maximum(wwaa - 2 * value * wwa + value**2 * ww, 0.0) / w**2
        size = effective_size(value, variance, w**2 / ww, rows)
    return Rates(value, *wilson(value, np.nan_to_num(size)))


def _draw_sums(unit: np.ndarray, decided: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return bootstrap draws of Σ w (1 − h) and Σ w h by group, (REPLICATES, n_groups, 2)."""
    (w, ww, _), (wh, wwh, wwhh) = unit, decided
    mass = np.stack([w - wh, wh], axis=-1)
    both = wwh - wwhh
    square = np.stack([np.stack([ww - 2 * wwh + wwhh, both], -1), np.stack([both, wwhh], -1)], -2)
    return resample_sums(np.maximum(mass, 0.0), np.maximum(square, 0.0), REPLICATES, rng)


FOLDS, REPEATS = 2, 5
# Decimals with which a bias is shown.
DIGITS = 3


def cross_validate(
    rows: ScoredRows,
    fit: Callable[[ScoredRows], DecisionRule],
    columns: Mapping[str, np.ndarray],
    config: DebiasConfig,
) -> dict[str, Any]:
    """Return bias and objective before and after, of rules that ``fit`` makes of the other folds.

    ``columns`` has the code of every group's level, by column of groups. ``bias`` is a list of
    attribute, before and after, see `estimate_bias`; of two rates it is the larger, or their mean
    for ``average_odds``. With labels the objective stands under its name. Ten fits of half of the
    rows.
    """
    crossed = {"×".join(columns): np.arange(rows.n_groups)}
    attributes = {**columns, **crossed} if len(columns) > 1 else dict(columns)
    # Sorted first, so that the order of the table changes nothing.
    order = np.lexsort([rows.weight, np.asarray(rows.y), rows.signed, rows.code])
    signed, code, weight, y = (
        np.asarray(each)[order] for each in (rows.signed, rows.code, rows.weight, rows.y)
    )
    given = [GIVEN[column] for column in BOUNDED[config.criterion]]
    rng = derive_generator("debias", "fold", config.seed)
    decided = {"before": (signed >= 0.0).astype(np.float64), "after": np.zeros(order.size)}
    squares: dict[str, dict[str, list[np.ndarray]]] = {
        attribute: {when: [] for when in decided} for attribute in attributes
    }
    reached: dict[str, list[float]] = {when: [] for when in decided}
    for _ in range(REPEATS):
        fold = rng.permutation(order.size) % FOLDS
        for number in range(FOLDS):
            own, fresh = fold != number, fold == number
            judged = [fresh if label is None else fresh & (y == label) for label in given]
            rule = fit(ScoredRows(signed[own], code[own], weight[own], y[own], rows.n_groups))
            decided["after"][fresh] = rule.probability(signed[fresh], code[fresh])
            for attribute, levels in attributes.items():
                size = int(levels.max()) + 1
                for when, h in decided.items():
                    found = [
                        _square_differences(h[some], levels[code[some]], weight[some], size)
                        for some in judged
                    ]
                    squares[attribute][when].append(np.stack(found))
        for when, h in decided.items():
            reached[when].append(_find_objective(h, y, weight, config.served))
    join = np.mean if config.criterion == "average_odds" else np.max
    expected: dict[str, Any] = {
        "folds": FOLDS,
        "repeats": REPEATS,
        "bias": [
            {
                "attribute": attribute,
                **{when: float(join(estimate_bias(each))) for when, each in own.items()},
            }
            for attribute, own in squares.items()
        ],
    }
    if config.labels:
        expected[config.measure] = {when: float(np.mean(each)) for when, each in reached.items()}
    return expected


def _find_objective(
    h: np.ndarray, y: np.ndarray, weight: np.ndarray, objective: Objective
) -> float:
    """Return the expected objective of decisions."""
    positive, negative = weight * y, weight * (1.0 - y)
    sums = ((positive * h).sum(), (negative * h).sum(), positive.sum(), negative.sum())
    return float(measure_objective(objective, *sums))


def _square_differences(
    h: np.ndarray, code: np.ndarray, weight: np.ndarray, size: int
) -> np.ndarray:
    """Return unbiased squares of the differences between E[h | level], (n_levels, n_levels).

    Chance adds the variances of both rates to a square, and they are taken off again. NaN for
    levels with fewer than two rows.
    """
    count, total = np.bincount(code, minlength=size), np.bincount(code, weight, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.bincount(code, weight * h, size) / total
        spread = np.bincount(code, (weight * (h - rate[code])) ** 2, size) / total**2
        variance = np.where(count > 1, spread * count / (count - 1.0), np.nan)
    return np.asarray((rate[:, None] - rate) ** 2 - variance[:, None] - variance)


def estimate_bias(squares: list[np.ndarray]) -> np.ndarray:
    """Return for each rate the root of the largest mean square difference over the folds, or 0.

    The aggregate of all folds would not do: a rule that is too low for one half is too high for
    the other, and both errors cancel.
    """
    mean = average_known(np.stack(squares), axis=0)
    return np.asarray(np.sqrt(np.fmax.reduce(mean.reshape(len(mean), -1), axis=1, initial=0.0)))


def describe_doubt(expected: Mapping[str, Any]) -> str:
    """Return a sentence on the attributes between whose levels the rule adds bias, or nothing.

    Less than rounding of what is shown does not count.
    """
    worse = [
        f"{bias['attribute']} from {bias['before']:.{DIGITS}f} to {bias['after']:.{DIGITS}f}"
        for bias in expected.get("bias", ())
        if bias["after"] - bias["before"] > 10.0**-DIGITS
    ]
    if not worse:
        return ""
    return (
        "On fresh rows (cross-validated) the rule is expected to raise the bias between the levels "
        f"of {', '.join(worse)}."
    )
