"""Group measures: every rate × every aggregation over the levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any, Literal

import numpy as np

from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import (
    Z,
    bound_difference,
    bound_extreme,
    bound_length,
    bound_mean_difference,
    bound_ratio,
    bound_root_mean_square,
    draw_noise,
    effective_size,
    estimate_variance,
    newcombe,
    normal,
    wilson,
)
from fairfrontier.metrics.statistic.rate import (
    AGGREGATIONS,
    DENOMINATOR,
    NAMES,
    RATES,
    TNR,
    TPR,
    Cells,
    Outcomes,
    average_known,
    count_cells,
    count_outcomes,
    divide,
    divide_right,
    find_memberships,
    tabulate_rates,
)
from fairfrontier.models.noisy.assignment import bound_rates
from fairfrontier.models.noisy.noise import bound_rate_of_cells, bound_rate_over_ball
from fairfrontier.models.noisy.rate import RATE_CELLS, sum_cells
from fairfrontier.models.noisy.rate import count_cells as count_rate_cells
from fairfrontier.models.prediction import task_of
from fairfrontier.runtime.seeds import uniforms

# Gaps between groups in the true positive rate of each of several classes.

ROMANOV = "Romanov et al., What's in a name? Reducing bias in bios without access to protected "
ROMANOV += "attributes, 2019; Yurochkin and Sun, SenSeI, 2021"


def compute_class_gap_rms(recall: np.ndarray) -> np.ndarray:
    """Return GapRMS = sqrt(mean over classes and pairs of levels of (TPR_ak − TPR_bk)²).

    ``recall``, shape (..., n_levels, n_classes), has TPR_ak = P(ŷ = k | Y = k, a); NaN where not
    estimable. Classes with two levels or more count alike, whatever their number of levels; NaN
    where there is none.
    """
    return np.asarray(np.sqrt(_average_pairs(recall, _square)))


def compute_class_gap_abs(recall: np.ndarray) -> np.ndarray:
    """Return GapABS = mean over classes and pairs of levels of |TPR_ak − TPR_bk|; as GapRMS."""
    return _average_pairs(recall, _spread)


def _average_pairs(recall: np.ndarray, pairs: Callable[..., np.ndarray]) -> np.ndarray:
    """Return the mean over the classes of the mean over pairs of levels."""
    # Ascending, NaN last, and from the smallest: equal rates then have a gap of exactly 0.
    rates = np.sort(recall, axis=-2)
    rates = np.nan_to_num(rates - rates[..., :1, :], nan=0.0)
    m = (~np.isnan(recall)).sum(axis=-2)
    gap = pairs(rates, np.maximum(m, 2))
    return average_known(np.where(m > 1, gap, np.nan), -1)


def _square(rates: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Return the mean of d² over pairs of m rates: twice their sample variance, in O(m)."""
    total, squares = rates.sum(axis=-2), (rates**2).sum(axis=-2)
    return np.asarray(np.maximum(squares - total**2 / m, 0.0) * 2 / (m - 1))


def _spread(rates: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Return the mean of |d| over pairs of m ascending rates x_i: Σ (2i − m + 1) x_i over pairs."""
    factor = 2.0 * np.arange(rates.shape[-2])[:, None] - m[..., None, :] + 1
    return np.asarray((factor * rates).sum(axis=-2) * 2 / (m * (m - 1)))


def find_largest_gap(share: np.ndarray) -> float:
    """Return the largest difference between two levels, of shares (n_levels, n_shares)."""
    gap = np.fmax.reduce(share, axis=0) - np.fmin.reduce(share, axis=0)
    return float(np.fmax.reduce(gap[(~np.isnan(share)).sum(axis=0) > 1], initial=np.nan))


def bound_largest_gap(share: np.ndarray, size: np.ndarray) -> tuple[float, float]:
    """Return the interval of `find_largest_gap`; NaN where there is none."""
    share = np.where((~np.isnan(share)).sum(axis=0) > 1, share, np.nan)
    if np.isnan(share).all():
        return np.nan, np.nan
    return bound_difference(share, partial(wilson, share, size))


@dataclass(frozen=True, eq=False)
class _Shares:
    """Rows of an attribute by level and event, and in each whether something is so.

    Each row is counted ``repeats`` times.
    """

    outcomes: Outcomes
    estimable: np.ndarray
    repeats: int = 1

    @property
    def kept(self) -> np.ndarray:
        """Events with enough rows of at least two levels, bool (n_events,)."""
        return np.asarray(self.estimable.sum(axis=0) > 1)

    def compute(self) -> tuple[np.ndarray, np.ndarray]:
        """Return shares by level and event, and the rows that they count as (`effective_size`)."""
        rate = divide_right(self.outcomes.mass)
        offset, mass = np.stack([-rate, 1.0 - rate], axis=-1), self.outcomes.mass.sum(axis=-1)
        square = self.outcomes.square
        variance = divide(np.einsum("cd,ce,cde->c", offset, offset, square), mass**2)
        kish = divide(mass**2, square.sum(axis=(1, 2)))
        size = effective_size(rate, variance, kish, self.outcomes.count)
        kept = self.estimable.ravel()
        rate, size = (np.where(kept, each, np.nan) for each in (rate, size))
        return rate.reshape(self.estimable.shape), size.reshape(self.estimable.shape)


def _read_cells(audit: Audit, attribute: str, *, by_label: bool = True) -> tuple[np.ndarray, int]:
    """Return each row's level, or its level and class, as one code, and their number."""
    n_levels, n_classes = len(audit.part.attributes[attribute]), len(audit.part.classes)
    code = audit.part.group(attribute)
    return (code * n_classes + audit.part.y, n_levels * n_classes) if by_label else (code, n_levels)


def _count_right(audit: Audit, attribute: str) -> _Shares:
    """Count the rows of every level and class, and those that are decided right."""
    code, size = _read_cells(audit, attribute)
    outcomes = count_outcomes(code, audit.right, audit.weight, size)
    return _Shares(outcomes, _find_estimable(outcomes, audit, attribute))


def _count_decided(audit: Audit, attribute: str, *, by_label: bool) -> _Shares:
    """Count the rows of every level, or level and class, by the class that is decided."""
    code, size = _read_cells(audit, attribute, by_label=by_label)
    decision, classes = audit.prediction.decision, range(len(audit.part.classes))
    each = [count_outcomes(code, decision == k, audit.weight, size) for k in classes]
    count, mass, square = (
        np.stack([getattr(own, name) for own in each], axis=1).reshape(-1, *shape)
        for name, shape in (("count", ()), ("mass", (2,)), ("square", (2, 2)))
    )
    outcomes = Outcomes(count, mass, square)
    return _Shares(outcomes, _find_estimable(outcomes, audit, attribute), len(classes))


def _find_estimable(outcomes: Outcomes, audit: Audit, attribute: str) -> np.ndarray:
    enough = (outcomes.count >= max(audit.minimum, 1)) & (outcomes.mass.sum(axis=1) > 0)
    return np.asarray(enough.reshape(len(audit.part.attributes[attribute]), -1))


def measure_class_gaps(
    audit: Audit,
    combine: Callable[[np.ndarray], np.ndarray | float],
    bound: Callable[[np.ndarray, np.ndarray], tuple[float, float]] = bound_root_mean_square,
    count: Callable[[Audit, str], _Shares] = _count_right,
) -> Iterator[MeasureRow]:
    """Yield a gap for every attribute, with its interval.

    A level with fewer than ``minimum`` rows of a class has no rate of it, and a class of which
    fewer than two levels have one is left out; ``gap_classes_left_out`` counts these. ``n`` counts
    the rows of the rates that take part. O(n).
    """
    for attribute in audit.part.attributes:
        shares = count(audit, attribute)
        rate, size = shares.compute()
        taking_part = shares.estimable & shares.kept
        n = int(shares.outcomes.count[taking_part.ravel()].sum()) // shares.repeats
        some = shares.outcomes.count.reshape(rate.shape).any(axis=1)
        left_out = int((some & ~taking_part.any(axis=1)).sum())
        yield MeasureRow(attribute, float(combine(rate)), n, *bound(rate, size), left_out)


@measure(
    "equalized_odds_difference",
    what="largest difference between two levels in the share of a class that is decided another",
    needs=("decision", "group"),
    task=("multiclass",),
    direction="lower",
    reference="Xian and Zhao, A unified post-processing framework for group fairness, 2024",
)
def measure_odds_difference(audit: Audit) -> Iterator[MeasureRow]:
    """Yield max_jk max_ab |P(ŷ = k | Y = j, a) − P(ŷ = k | Y = j, b)| for every attribute.

    Of two classes it is ``gap_max``. O(n K) for K classes.
    """
    count = partial(_count_decided, by_label=True)
    return measure_class_gaps(audit, find_largest_gap, bound_largest_gap, count)


@measure(
    "gap_abs",
    what="mean over the classes of the absolute differences between levels in true positive rate",
    needs=("decision", "group"),
    task=("multiclass",),
    direction="lower",
    reference=ROMANOV,
)
def measure_gap_abs(audit: Audit) -> Iterator[MeasureRow]:
    """Yield GapABS for every attribute; see `compute_class_gap_abs`."""
    bound = partial(bound_mean_difference, largest=False)
    return measure_class_gaps(audit, compute_class_gap_abs, bound)


@measure(
    "gap_classes_left_out",
    what="number of classes with too few rows of a level to have a gap in true positive rate",
    needs=("group",),
    task=("multiclass",),
    reference=ROMANOV,
)
def count_classes_left_out(audit: Audit) -> Iterator[MeasureRow]:
    """Yield, for every attribute, how many classes ``gap_rms`` and ``gap_abs`` leave out."""
    for attribute in audit.part.attributes:
        left_out = int((~_count_right(audit, attribute).kept).sum())
        yield MeasureRow(attribute, float(left_out), audit.part.n_samples)


BUDRO = "Vargo, Zhang, Yurochkin and Sun, Individually fair gradient boosting, 2021, section 5"
HARDT = "Hardt, Price and Srebro, Equality of opportunity in supervised learning, 2016"
FELDMAN = "Feldman et al., Certifying and removing disparate impact, 2015 (the four-fifths rule)"


def measure_levels(audit: Audit, position: int) -> Iterator[MeasureRow]:
    """Yield one rate for the whole part and for every level of every attribute and pair."""
    for attribute, cells in audit.cells.items():
        table = audit.rates[attribute]
        numbers = (array[:, position] for array in (table.value, table.n, table.low, table.high))
        for level, value, n, low, high in zip(cells.levels, *numbers, strict=True):
            group = f"{attribute}={level}" if attribute else ""
            yield MeasureRow(group, float(value), int(n), float(low), float(high))


def measure_aggregate(audit: Audit, position: int, aggregation: str) -> Iterator[MeasureRow]:
    """Yield one aggregate of one rate for every attribute and pair.

    A signed gap is for attributes with two levels and has Newcombe's interval; the others' hold for
    any number of levels, see `bound_difference`, `bound_ratio` and `bound_extreme`. Of several
    classes the difference of selection rates is max_k max_ab |P(ŷ = k | a) − P(ŷ = k | b)|.
    """
    if task_of(audit.part) == "multiclass" and NAMES[position] == "selection_rate":
        count = partial(_count_decided, by_label=False)
        yield from measure_class_gaps(audit, find_largest_gap, bound_largest_gap, count)
        return
    for attribute, aggregates in audit.aggregates.items():
        if aggregation == "gap" and len(audit.part.attributes.get(attribute, ())) != 2:
            continue
        table, value = audit.rates[attribute], float(aggregates[aggregation][position])
        shares, size = table.value[:, [position]], table.size[:, [position]]
        limits = partial(wilson, shares, size)
        if np.isnan(value):
            low, high = np.nan, np.nan
        elif aggregation == "gap":
            ends = (array[:, position] for array in (table.value, table.low, table.high))
            low, high = newcombe(*ends)
        elif aggregation in BOUNDS:
            low, high = BOUNDS[aggregation](shares, limits)
        else:
            low, high = bound_extreme(limits, shares.shape, largest=aggregation == "max")
        n, left_out = int(table.n[:, position].sum()), count_left_out(audit, attribute, [position])
        yield MeasureRow(attribute, value, n, low, high, left_out)


def count_left_out(audit: Audit, attribute: str, positions: Sequence[int]) -> int:
    """Return how many levels have rows, and too few to be compared in one of the rates."""
    scarce = np.isnan(audit.rates[attribute].value[:, positions]).any(axis=1)
    return int((scarce & (audit.cells[attribute].count.sum(axis=1) > 0)).sum())


BOUNDS = {"difference": bound_difference, "ratio": bound_ratio}


@measure(
    "gap_max",
    what="largest difference between two levels in the true rate of a class",
    needs=("decision", "group"),
    task=("binary", "multiclass"),
    direction="lower",
    reference=BUDRO,
)
def measure_gap_max(audit: Audit) -> Iterator[MeasureRow]:
    """Yield GapMax for every attribute and pair; see `compute_gap_max`.

    With more than two classes for every attribute: max_k max_ab |TPR_ak − TPR_bk|.
    """
    if task_of(audit.part) == "multiclass":
        return measure_class_gaps(audit, find_largest_gap, bound_largest_gap)
    return _measure_both(audit, "gap_max", bound_largest_gap)


@measure(
    "gap_rms",
    what="root mean square of the differences between levels in the true rates of the classes",
    needs=("decision", "group"),
    task=("binary", "multiclass"),
    direction="lower",
    reference=BUDRO,
)
def measure_gap_rms(audit: Audit) -> Iterator[MeasureRow]:
    """Yield GapRMS for every attribute and pair; see `compute_gap_rms`.

    With more than two classes for every attribute; see `compute_class_gap_rms`.
    """
    if task_of(audit.part) == "multiclass":
        return measure_class_gaps(audit, compute_class_gap_rms)
    return _measure_both(audit, "gap_rms", bound_root_mean_square)


def _measure_both(
    audit: Audit, name: str, bound: Callable[[np.ndarray, np.ndarray], tuple[float, float]]
) -> Iterator[MeasureRow]:
    """Yield an aggregate of both rates P(ŷ=y | Y=y) with its interval."""
    for attribute, aggregates in audit.aggregates.items():
        value, table = float(aggregates[name]), audit.rates[attribute]
        both = [each[:, [TNR, TPR]] for each in (table.value, table.size)]
        interval = (np.nan, np.nan) if np.isnan(value) else bound(*both)
        n, left_out = (
            int(table.n[:, [TNR, TPR]].sum()),
            count_left_out(audit, attribute, [TNR, TPR]),
        )
        yield MeasureRow(attribute, value, n, *interval, left_out)


# What is measured of several classes, too.
SEVERAL = {"selection_rate_difference", *(f"accuracy_{each.name}" for each in AGGREGATIONS)}
for position, base in enumerate(RATES):
    measure(
        base.name,
        what=f"{base.what}, overall and by level",
        task=("binary", "multiclass") if base.name == "accuracy" else ("binary",),
        direction=base.direction,
        reference=HARDT if base.name == "tpr" else "",
    )(partial(measure_levels, position=position))
    for each in AGGREGATIONS:
        measure(
            f"{base.name}_{each.name}",
            what=f"{base.what}: {each.what}",
            needs=("decision", "group"),
            task=("binary", "multiclass") if f"{base.name}_{each.name}" in SEVERAL else ("binary",),
            direction=each.direction or base.direction,
            reference=FELDMAN if each.name == "ratio" else "",
        )(partial(measure_aggregate, position=position, aggregation=each.name))


# Accuracy parity over memberships: how far apart the accuracies of overlapping groups are.

SENSEI = "Yurochkin and Sun, SenSeI, 2021, appendix C; Zafar et al., Fairness beyond disparate "
SENSEI += "treatment and disparate impact, 2017"
MEMBERS: Any = {
    "needs": ("decision", "group", "membership"),
    "task": ("binary", "multiclass"),
    "reference": SENSEI,
}


@dataclass(frozen=True, eq=False)
class _Members:
    """The rows of every membership, counted once by the memberships that they have and by class.

    ``belongs`` has shape (n_memberships, n_cells), ``label`` (n_cells,); ``known`` are the
    memberships with enough rows, ``complete`` those that also have rows of every class.
    """

    outcomes: Outcomes
    belongs: np.ndarray
    label: np.ndarray
    known: np.ndarray
    complete: np.ndarray

    def measure(self, memberships: np.ndarray, *, balanced: bool) -> MeasureRow:
        """Return a spread with its interval, and how many rows have one of the memberships.

        It is that of accuracy, or of the mean rate of the classes. Errors of memberships that
        share rows are correlated.
        """
        belongs = self.belongs[memberships]
        n = int(self.outcomes.count[belongs.any(axis=0)].sum())
        if len(belongs) < 2:
            return MeasureRow("", np.nan, n)
        classes = [self.label == k for k in np.unique(self.label)] if balanced else [True]
        rate, covariance = np.zeros(len(belongs)), np.zeros((len(belongs), len(belongs)))
        size = np.inf
        for own in classes:
            among = belongs & own
            mass = among @ self.outcomes.mass
            share, total = divide_right(mass), mass.sum(axis=1)
            offset = np.stack([-share, 1.0 - share], axis=1)
            both = np.einsum("ac,bc,cde->abde", among, among, self.outcomes.square)
            own_covariance = np.einsum("ad,be,abde->ab", offset, offset, both)
            own_covariance /= total[:, None] * total
            rows = total**2 / np.einsum("aade->a", both)
            variance = np.diag(own_covariance)
            size_of = effective_size(share, variance, rows, among @ self.outcomes.count)
            least = estimate_variance(share, size_of)
            own_covariance += np.diag(np.maximum(least - variance, 0.0))
            rate += share / len(classes)
            covariance += own_covariance / len(classes) ** 2
            size = min(size, float(rows.min()))
        value, vector = np.linalg.eigh(covariance)
        noise = draw_noise(np.sqrt(np.maximum(value, 0.0))) @ vector.T
        point = (rate - rate.mean()) / np.sqrt(len(rate))
        noise = (noise - noise.mean(axis=1, keepdims=True)) / np.sqrt(len(rate))
        return MeasureRow("", float(np.std(rate)), n, *bound_length(point, noise, size))


def _count_members(audit: Audit) -> _Members:
    part = audit.part
    member = np.stack(
        [
            part.group(name) == list(part.attributes[name]).index("yes")
            for name in find_memberships(part.attributes)
        ]
    )
    table = np.vstack([member, part.y]).astype(np.int64)
    cells, code = np.unique(table, axis=1, return_inverse=True)
    weight = np.asarray(part.weight)
    outcomes = count_outcomes(code.ravel(), audit.right, weight, cells.shape[1])
    belongs, label = cells[:-1].astype(bool), cells[-1]
    # Rows without weight have no accuracy.
    weighs = outcomes.mass.sum(axis=1) > 0
    known = (belongs @ outcomes.count >= max(audit.minimum, 1)) & (belongs & weighs).any(axis=1)
    having = np.stack([(belongs & weighs & (label == k)).any(axis=1) for k in np.unique(label)])
    return _Members(outcomes, belongs, label, known, known & having.all(axis=0))


@measure(
    "accuracy_spread",
    what="standard deviation of the accuracy over the attributes with the levels yes and no",
    direction="lower",
    **MEMBERS,
)
def measure_accuracy_spread(audit: Audit) -> Iterator[MeasureRow]:
    """Yield sd_a P(ŷ = Y | a = yes) over the memberships a of the part.

    A membership is an attribute with the levels yes and no, as texts have for every family of
    terms that they may mention; a row may belong to several of them. The standard deviation is
    NumPy's, over m memberships and not m − 1. Memberships with fewer than ``minimum`` rows are
    left out; fewer than two: not estimable.

    Notes
    -----
    O(n m log n + cells · m²); there are as many cells as combinations of memberships and label that
    occur.
    """
    members = _count_members(audit)
    yield members.measure(members.known, balanced=False)


@measure(
    "balanced_accuracy_spread",
    what="standard deviation of balanced accuracy over the attributes with the levels yes and no",
    direction="lower",
    **MEMBERS,
)
def measure_balanced_accuracy_spread(audit: Audit) -> Iterator[MeasureRow]:
    """Yield sd_a mean_k P(ŷ = k | Y = k, a = yes); see `measure_accuracy_spread`.

    Memberships without a row of one of the classes are left out too; ``memberships_left_out``
    counts them.
    """
    members = _count_members(audit)
    yield members.measure(members.complete, balanced=True)


@measure(
    "memberships_left_out",
    what="number of attributes with the levels yes and no that have too few rows, or lack a class",
    needs=("group", "membership"),
    task=("binary", "multiclass"),
    reference=SENSEI,
)
def count_memberships_left_out(audit: Audit) -> Iterator[MeasureRow]:
    """Yield how many memberships ``balanced_accuracy_spread`` leaves out."""
    left_out = int((~_count_members(audit).complete).sum())
    yield MeasureRow("", float(left_out), audit.part.n_samples)


# Gaps between the two levels of one attribute inside every level of another.

SELECTION = NAMES.index("selection_rate")


@measure(
    "selection_rate_gap_inside",
    what="share of favourable decisions: first level minus second, inside a level of another "
    "attribute",
    needs=("decision", "group"),
    direction="zero",
    reference="Alabdulmohsin and Lucic, A near-optimal algorithm for debiasing trained machine "
    "learning models, 2021, figure 1",
)
def measure_gap_inside(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the signed gap for every attribute of two levels inside every level of every other.

    The group reads ``sex inside race=Black``. The interval is Newcombe's, of two independent
    shares. Where one of the two cells has no row, there is no gap.
    """
    attributes = {name: levels for name, levels in audit.part.attributes.items() if "×" not in name}
    for first, other in permutations(attributes, 2):
        if len(attributes[first]) != 2:
            continue
        turned = f"{first}×{other}" not in audit.cells
        crossed = f"{other}×{first}" if turned else f"{first}×{other}"
        if crossed not in audit.cells:
            continue
        known = {level: code for code, level in enumerate(audit.cells[crossed].levels)}
        table = audit.rates[crossed]
        for level in attributes[other]:
            names = [f"{level}×{own}" if turned else f"{own}×{level}" for own in attributes[first]]
            if not set(names) <= set(known):
                continue
            rows = [known[name] for name in names]
            value, low, high, n = (
                numbers[rows, SELECTION]
                for numbers in (table.value, table.low, table.high, table.n)
            )
            yield MeasureRow(
                f"{first} inside {other}={level}",
                float(value[0] - value[1]),
                int(n.sum()),
                *newcombe(value, low, high),
            )


# How far each group falls behind all rows, by the observed groups and by the true ones.

WANG = (
    "Wang, Guo, Narasimhan, Cotter, Gupta and Jordan, Robust optimization for fairness with "
    "noisy protected groups, 2020, section 7"
)


def measure_distance(audit: Audit, rate: str, sign: float, true: bool) -> Iterator[MeasureRow]:
    """Yield sign · (the rate of all rows − the rate of the level) for every level.

    With s the level's share of the rate's denominator, rate(all) − rate(level) is (1 − s) times
    the difference between the other rows and the level, and its interval is Newcombe's of that
    difference, times 1 − s, widened by the normal error of s. A level with too few rows, or with
    all of them, is not estimable.
    """
    cells = audit.cells
    if true and audit.part.true_groups is not None:
        cells = count_cells(audit.prediction, replace(audit.part, groups=audit.part.true_groups))
    position = NAMES.index(rate)
    for attribute, table in cells.items():
        if not attribute:
            continue
        own = tabulate_rates(table, audit.minimum)
        others = tabulate_rates(_leave_out(table), audit.minimum)
        mass = np.einsum("kyd,y->k", table.mass, DENOMINATOR[position])
        squares = np.einsum("kyde,y->k", table.square, DENOMINATOR[position])
        total = max(float(mass.sum()), 1e-300)
        part = mass / total
        error = np.sqrt((1 - part) ** 2 * squares + part**2 * (squares.sum() - squares)) / total
        for code, level in enumerate(table.levels):
            share = sign * (1.0 - part[code])
            at = (code, position)
            value, *ends = (
                np.array([getattr(rates, name)[at] for rates in (others, own)])
                for name in ("value", "low", "high")
            )
            gap = float(value[0] - value[1])
            difference, more = float(share * gap), Z * gap * error[code]
            reach = [np.hypot(share * (end - gap), more) for end in newcombe(value, *ends)]
            low, high = reach if sign > 0 else reach[::-1]
            interval = [difference - low, difference + high]
            group = f"{attribute}={level}"
            yield MeasureRow(group, difference, int(own.n[at]), min(interval), max(interval))


def _leave_out(cells: Cells) -> Cells:
    """Return, in the place of each level, all rows but its own."""
    return replace(
        cells,
        count=cells.count.sum(axis=0) - cells.count,
        mass=cells.mass.sum(axis=0) - cells.mass,
        square=cells.square.sum(axis=0) - cells.square,
    )


for kind, true in (("level", False), ("true group", True)):
    prefix, noisy = ("true_", ", where groups are noisy") if true else ("", "")
    for name, what, rate, sign in (
        ("tpr_shortfall", f"true positive rate of all rows less that of the {kind}", "tpr", 1.0),
        ("fpr_excess", f"false positive rate of the {kind} less that of all rows", "fpr", -1.0),
    ):
        measure(
            f"{prefix}{name}",
            what=f"{what}{noisy}",
            needs=("decision", "true_group" if true else "group"),
            direction="lower",
            reference=WANG,
        )(partial(measure_distance, rate=rate, sign=sign, true=true))


# How far a true group may fall behind under the worst case that the noise of groups allows.


def measure_worst_case(
    audit: Audit, rate: Literal["tpr", "fpr"], over: Literal["assignment", "ball"]
) -> Iterator[MeasureRow]:
    """Yield the largest shortfall TPR − TPR_j, or excess FPR_j − FPR, of every true group j.

        max_w TPR − TPR_j(w)   or   max_p̃ TPR − TPR_j(p̃)

    with w the soft assignments w(j | ŷ, y, k) that agree with P(G=j | Ĝ=k), or p̃ the distributions
    within total variation γ_j = P(Ĝ≠j | G=j) of the rows of Ĝ = j. These are true maxima on the
    rows at hand, whose own table of G and Ĝ gives the noise. The margin α is not subtracted.

    There is a row for every level of every attribute; n counts the true group's rows in the rate's
    denominator, and with fewer than the audit's minimum the value is NaN. There are no intervals:
    the maximum over sampled rows is no mean, and its noise is sampled too.

    Notes
    -----
    O(n) for the cells of whole decisions, O(1) from there on. Randomised decisions count in cells
    by expectation for W, so that the coin may depend on the true group; in a ball a row keeps its
    own probability, at a few passes over the rows. Where γ_j does not bound the total variation,
    as lemma 1's premise P(G=j) = P(Ĝ=j) fails, the true shortfall may exceed the ball's.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020, equations 3 and 7.
    """
    part, kind = audit.part, RATE_CELLS[rate]
    decision, weight = np.asarray(audit.prediction.decision), np.asarray(part.weight)
    label = np.asarray(part.y).astype(np.int64)
    among = label == (1 if rate == "tpr" else 0)
    assert part.true_groups is not None  # noqa: S101 - the measure needs them
    for column, (attribute, levels) in enumerate(part.attributes.items()):
        size = len(levels)
        noisy = part.group(attribute).astype(np.int64)
        true = np.asarray(part.true_groups)[:, column].astype(np.int64)
        joint = np.bincount(true * size + noisy, weight, size * size).reshape(size, size)
        cells = np.asarray(count_rate_cells(decision, label, noisy, size, weight))
        total = cells.sum(axis=0)
        mass = float(sum_cells(total, kind.among))
        if mass > 0:
            overall = float(sum_cells(total, kind.good)) / mass
            if over == "assignment":
                noisy_mass = joint.sum(axis=0)
                # A noisy group without rows does not count.
                posterior = (joint / np.where(noisy_mass > 0, noisy_mass, 1.0)).T
                low, high = map(np.asarray, bound_rates(cells, posterior, kind))
            else:
                low, high = _bound_balls(decision, among, noisy, weight, cells, joint, rate)
            value = overall - low if rate == "tpr" else high - overall
        else:
            value = np.full(size, np.nan)
        counts = np.bincount(true[among], minlength=size)
        for level, bound, n in zip(levels, value, counts, strict=True):
            shown = float(bound) if n >= audit.minimum else np.nan
            yield MeasureRow(f"{attribute}={level}", shown, int(n))


def _bound_balls(
    decision: np.ndarray,
    among: np.ndarray,
    noisy: np.ndarray,
    weight: np.ndarray,
    cells: np.ndarray,
    joint: np.ndarray,
    rate: str,
) -> tuple[np.ndarray, np.ndarray]:
    true_mass = joint.sum(axis=1)
    level = 1.0 - np.diag(joint) / np.where(true_mass > 0, true_mass, 1.0)
    low, high = np.full((2, level.size), np.nan)
    # A ball needs rows of the noisy group at its centre, and a level needs rows of the true one.
    present = joint.sum(axis=0) > 0
    known = np.flatnonzero(present & (true_mass > 0))
    if known.size == 0:
        return low, high
    if ((decision == 0) | (decision == 1)).all():
        position = np.cumsum(present) - 1
        bounds = bound_rate_of_cells(
            cells[present], level[known], RATE_CELLS[rate], position[known].tolist()
        )
    else:
        bounds = bound_rate_over_ball(
            decision, among, noisy, level[known], weight=weight, centre=known.tolist()
        )
    low[known], high[known] = bounds
    return low, high


SHORT: Mapping[Literal["tpr", "fpr"], tuple[str, str]] = {
    "tpr": ("tpr_shortfall", "true positive rate may lie below"),
    "fpr": ("fpr_excess", "false positive rate may lie above"),
}
WORST: Mapping[Literal["assignment", "ball"], str] = {
    "assignment": "all soft assignments that agree with the noise of the groups",
    "ball": "the total variation ball of P(Ĝ≠j | G=j) around the noisy group",
}
for over, where in WORST.items():
    for short, (name, what) in SHORT.items():
        measure(
            f"{name}_{over}",
            what=f"the most that the true group's {what} that of all rows, over {where}",
            needs=("decision", "group", "true_group"),
            direction="lower",
            reference=WANG,
        )(partial(measure_worst_case, rate=short, over=over))


# What debiasing by post-processing cannot do.

# Cross-fitting of a function of the score: bins of equal mass, and folds of rows.
BINS = 20
FOLDS = 10
FOLD_SEED = 0

PAPER = (
    "Alabdulmohsin and Lucic, A near-optimal algorithm for debiasing trained machine learning "
    "models, 2021"
)


def cross_bins(score: np.ndarray, weight: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return bin · FOLDS + fold of each row, int64.

    Bins have about equal weight and equal scores share one; folds are drawn by row id. Neither
    depends on the order of rows, or on whether a row occurs twice or has weight 2.
    """
    distinct, rank = np.unique(score, return_inverse=True)
    mass = np.bincount(rank, weight, distinct.size)
    middle = (np.cumsum(mass) - mass / 2) / max(mass.sum(), 1e-300)
    bins = np.minimum((BINS * middle).astype(np.int64), BINS - 1)
    folds = (FOLDS * uniforms(FOLD_SEED, ids)).astype(np.int64)
    return np.asarray(bins[rank] * FOLDS + folds)


def cross_signs(sums: np.ndarray) -> np.ndarray:
    """Return for each bin and fold, arrays (BINS, FOLDS), the sign of the other folds' sum."""
    return np.asarray(np.sign(sums.sum(axis=1, keepdims=True) - sums))


@measure(
    "subgroup_bias_floor",
    what="covariance of decision and level that some split of the rows into two must show",
    needs=("score", "decision", "group"),
    reference=f"{PAPER}, proposition 2",
)
def measure_subgroup_bias_floor(audit: Audit) -> Iterator[MeasureRow]:
    """Yield ½ E|γ(s) − γ̄| · min(E ŷ, 1 − E ŷ) for every level of every attribute.

    γ(s) = P(level | score s): how well the score, which is all that a post-processor sees,
    separates the level from the other rows. As long as it does, some subgroup treats the level
    unequally, however well parity holds overall; 0 means that no such bound is shown.

    Notes
    -----
    E|γ(s) − γ̄| is the largest mean of σ(s) (1_level − γ̄) over all σ with values ±1. Here σ is
    constant on 20 bins of the score and learned on the other of 10 folds of the rows, which are
    drawn by row id. The value is therefore in expectation *below* the bound of the score, and that
    one below the bound of x. (The plug-in mean of |bin shares − γ̄| is above it by noise, even
    where the score is independent of the level.) A value below 0, by noise, is given as 0.

    The interval is normal, for σ as learned. Random decisions count by their expectation: the
    proposition then holds with the draw as a part of x. A level with fewer rows than the audit's
    minimum is not estimable. O(n log n), and O(n) for each attribute.
    """
    part, h, weight = audit.part, audit.prediction.decision, audit.weight
    cell = cross_bins(audit.prediction.score, weight, part.ids)
    total = float(weight.sum())
    rate = float(weight @ h) / total if total > 0 else math.nan
    scale, lean = (rate, 1.0) if rate <= 0.5 else (1.0 - rate, -1.0)
    for attribute, levels in part.attributes.items():
        codes = part.group(attribute)
        index = cell * len(levels) + codes
        shape = (BINS, FOLDS, len(levels))
        values = (weight, *(weight**2 * h**power for power in range(3)))
        mass, *squares = (np.bincount(index, v, math.prod(shape)).reshape(shape) for v in values)
        count = np.bincount(codes, minlength=len(levels))
        for code, level in enumerate(levels):
            group, n = f"{attribute}={level}", part.n_samples
            if count[code] < audit.minimum or not total > 0:
                yield MeasureRow(group, math.nan, n)
                continue
            share = float(mass[..., code].sum()) / total
            excess = mass[..., code] - share * mass.sum(axis=-1)
            sigma = cross_signs(excess)
            spread = max(0.0, float(np.sum(sigma * excess)) / total)
            # A row adds ½ [scale (σ (1_level − γ̄) − spread) + spread · lean (h − rate)].
            inside = np.arange(len(levels)) == code
            fixed = scale * (sigma[..., None] * (inside - share) - spread) - spread * lean * rate
            slope = spread * lean
            variance = np.sum(
                fixed**2 * squares[0] + 2 * fixed * slope * squares[1] + slope**2 * squares[2]
            )
            value = 0.5 * spread * scale
            low, high = normal(value, 0.5 * math.sqrt(max(float(variance), 0.0)) / total)
            yield MeasureRow(group, value, n, max(low, 0.0), high)
