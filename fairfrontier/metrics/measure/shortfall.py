"""How far each group falls behind all rows, by the observed groups and by the true ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import Z, newcombe
from fairfrontier.metrics.statistic.rate import (
    DENOMINATOR,
    NAMES,
    Cells,
    count_cells,
    read_codes,
    tabulate_rates,
)
from fairfrontier.models.noisy.assignment import bound_rates
from fairfrontier.models.noisy.noise import bound_rate_of_cells, bound_rate_over_ball
from fairfrontier.models.noisy.rate import RATE_CELLS, sum_cells
from fairfrontier.models.noisy.rate import count_cells as count_rate_cells

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
        noisy = read_codes(part, attribute, size).astype(np.int64)
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
    for rate, (name, what) in SHORT.items():
        measure(
            f"{name}_{over}",
            what=f"the most that the true group's {what} that of all rows, over {where}",
            needs=("decision", "group", "true_group"),
            direction="lower",
            reference=WANG,
        )(partial(measure_worst_case, rate=rate, over=over))
