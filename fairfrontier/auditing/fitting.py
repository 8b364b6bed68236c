"""Ramps of groups with few rows, pooled with those of the groups that they are part of.

A threshold that is fitted to few rows follows their accidents: on fresh rows such groups may end
up further apart than they were. The rate of group k is therefore shrunk to that by its parent's,

    ρ_k = (1 − B_k) E[h_own | k] + B_k E[h_parent | k],   B_k = v_k / (v_k + τ²),

where v_k = r(1 − r)/n_k is the chance variance of a rate r, and τ² the variance between groups that
is left beyond chance. The parent of a level is all rows; that of a crossed group adds what its
levels, pooled themselves, differ from all rows.

References
----------
B. Efron, C. Morris. Data analysis using Stein's estimator and its generalizations. JASA 70, 1975.
R. DerSimonian, N. Laird. Meta-analysis in clinical trials. Controlled Clinical Trials 7, 1986 (τ²).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from fairfrontier.auditing.option import DebiasConfig
from fairfrontier.auditing.tally import cross_validate, measure_objective
from fairfrontier.models.objective import Objective
from fairfrontier.models.thresholds.choice import WIDTHS, choose, list_rates, trace_budgets
from fairfrontier.models.thresholds.curve import BOUNDED, Curve, build_curves
from fairfrontier.models.thresholds.pooling import find_pooling, measure_again, pool_curves
from fairfrontier.models.thresholds.programme import (
    GroupSolution,
    apply_rule,
    find_rates,
    measure_gap,
    pool_groups,
    solve_curves,
)
from fairfrontier.models.thresholds.ramp import solve_exact, weigh_rule
from fairfrontier.models.thresholds.rule import DecisionRule, MixtureRule, ThresholdRule
from fairfrontier.models.thresholds.rulebook import name_cell
from fairfrontier.models.thresholds.sample import Sample, ScoredRows
from fairfrontier.models.thresholds.threshold import ScoreHistogram, ThresholdProblem
from fairfrontier.prepare.table.column import sort_levels
from fairfrontier.runtime.errors import ConfigError, DataError


def fit_pooled(
    rows: ScoredRows | ScoreHistogram,
    counts: np.ndarray,
    columns: Sequence[np.ndarray],
    *,
    width: float,
    rate: float,
    budget: float,
    below: int,
) -> tuple[ThresholdRule, np.ndarray]:
    """Fit a threshold for each group, pooling those with fewer rows than ``below``.

    ``counts`` are the rows of each group, and ``columns`` the code of each group's level in every
    attribute, all of shape (n_groups,). Returns the rule and B, float64, shape (n_groups,), which
    is 0 for groups that are fitted by themselves. One sort, and one for each attribute.
    """
    problem, single = rows.problem(), np.zeros(len(counts), dtype=np.int64)
    own = solve_exact(problem, width, rate, budget).rule
    if (counts >= below).all():
        return own, np.zeros(len(counts))
    top = solve_exact(rows.problem(single), width, rate, budget).rule
    parent, freedom = _spread(top, single), len(counts) - 1.0
    if len(columns) > 1:
        shift = np.zeros(len(counts))
        for codes in columns:
            part, size = rows.problem(codes), np.bincount(codes, counts)
            alone = solve_exact(part, width, rate, budget).rule
            above = _spread(top, np.zeros(len(size), dtype=np.int64))
            level, pooled = _shrink(part, alone, above, size, len(size) - 1.0, below)
            shift += (level.threshold - above.threshold)[codes]
            # What the levels were fitted to is no chance between the crossed groups.
            freedom -= float((1.0 - pooled).sum()) * (1.0 - 1.0 / len(size))
        # Thresholds that moved are no scores, at which a coin would be drawn.
        coin = np.where(shift == 0.0, parent.coin, 0.0)
        parent = ThresholdRule(width, parent.threshold + shift, coin)
    return _shrink(problem, own, parent, counts, max(freedom, 1.0), below)


def _shrink(
    problem: ThresholdProblem,
    own: ThresholdRule,
    parent: ThresholdRule,
    counts: np.ndarray,
    freedom: float,
    below: int,
) -> tuple[ThresholdRule, np.ndarray]:
    """Return the rule between a group's own and its parent's, and B of every group."""
    total = np.array([segment.total for segment in problem.segments])
    with np.errstate(invalid="ignore"):
        inherited, fitted = (weigh_rule(problem, rule) / total for rule in (parent, own))
    pooled = find_pooling(inherited, inherited - fitted, counts, freedom)
    pooled[counts >= below] = 0.0
    ends = ((parent.threshold, own.threshold), (parent.coin, own.coin))
    threshold, coin = (np.where(pooled == 1.0, *each) for each in ends)
    for group in np.flatnonzero((pooled > 0.0) & (pooled < 1.0)):
        target = (1.0 - pooled[group]) * fitted[group] + pooled[group] * inherited[group]
        segment = ThresholdProblem((problem.segments[group],))
        between = solve_exact(segment, own.width, float(np.clip(target, 0.0, 1.0))).rule
        threshold[group], coin[group] = between.threshold[0], between.coin[0]
    return ThresholdRule(own.width, threshold, coin), pooled


def _spread(rule: ThresholdRule, codes: np.ndarray) -> ThresholdRule:
    return ThresholdRule(rule.width, rule.threshold[codes], rule.coin[codes])


# Without labels there is nothing to choose a width by.
WIDTH = 0.1
# Bounds of which the curve of exact thresholds has a point.
TRACED = 25
Facts = dict[str, float | int | str]


class Fit(NamedTuple):
    """A fitted rule, with its rates E[h | group], and ρ where rates are near one number.

    ``alone``, ``curve``, ``facts`` and ``expected`` are as in `Debiasing`. A last row of ``rule``
    and ``rates``, and of the rules in ``alone``, is for unseen groups, if they are pooled.
    """

    rule: DecisionRule
    rates: np.ndarray
    rate: float | None
    alone: dict[str, DecisionRule]
    curve: pd.DataFrame
    facts: Facts
    expected: Mapping[str, Any] = MappingProxyType({})


def fit_ramps(sample: Sample, config: DebiasConfig) -> Fit:
    """Fit near-optimal thresholds with a ramp, which hold parity."""
    if config.width == 0 and not sample.exact:
        raise ConfigError(
            f"width is 0, and {config.table} has so many rows that scores are counted in bins.",
            "Give a positive width, or --solver exact where memory suffices.",
        )
    problem = sample.calibration.problem()
    labelled = (sample.validation or sample.calibration).labelled()
    base = _base_rate(sample.calibration.labelled() if config.labels else problem, config)
    widths, rates = list_grid(config, base)
    found, rate, _ = choose(
        problem, labelled, widths=widths, rates=rates, budget=config.budget, centre=base
    )
    width = found.rule.width
    levels = list_levels(sample, config)

    def pool(
        part: ScoredRows | ScoreHistogram, counts: np.ndarray, budget: float
    ) -> tuple[ThresholdRule, np.ndarray]:
        return fit_pooled(
            part, counts, list(levels.values()),
            width=width, rate=rate, budget=budget, below=config.pool_below,
        )  # fmt: skip

    counts = sample.counts[0]
    rule, pooled = pool(sample.calibration, counts, config.budget)
    rates_found = weigh_rule(problem, rule) / [segment.total for segment in problem.segments]
    if config.unseen == "pooled":
        whole = solve_exact(
            sample.calibration.problem(np.zeros(len(sample.cells), dtype=np.int64)),
            width, rate, config.budget,
        )  # fmt: skip
        rates_found = np.append(rates_found, whole.rate)
        rule = ThresholdRule(
            width,
            np.append(rule.threshold, whole.rule.threshold),
            np.append(rule.coin, whole.rule.coin),
        )
    alone: dict[str, DecisionRule] = {}
    for column, merged in levels.items() if len(levels) > 1 else ():
        single = sample.calibration.problem(merged)
        own = solve_exact(single, width, rate, config.budget).rule
        alone[column] = ThresholdRule(width, own.threshold[merged], own.coin[merged])
        if config.unseen == "pooled":
            # Rows of unseen groups are decided alike by every rule.
            threshold, coin = (values[-1:] for values in (rule.threshold, rule.coin))
            alone[column] = ThresholdRule(
                width,
                np.append(own.threshold[merged], threshold),
                np.append(own.coin[merged], coin),
            )
    facts: Facts = {
        "solver": "exact" if sample.exact else "histogram",
        "settings": len(widths) * len(rates),
        "base_rate": base,
        "pooled": int((pooled > 0).sum()),
    }
    if not sample.exact:
        facts |= {"bins": config.bins, "parity_error_at_most": 1.0 / (config.bins * width)}
    budget, bias, accuracy = trace_budgets(
        problem, labelled, width, rate, fit=lambda slack: pool(sample.calibration, counts, slack)[0]
    )
    curve = pd.DataFrame({"budget": budget, "bias": bias, "accuracy": accuracy})
    expected: dict[str, Any] = {}
    if isinstance(sample.calibration, ScoredRows):

        def fit(part: ScoredRows) -> ThresholdRule:
            return pool(part, np.bincount(part.code, minlength=counts.size), config.budget)[0]

        expected = cross_validate(sample.calibration, fit, levels, config)
    return Fit(rule, rates_found, rate, alone, curve, facts, expected)


def fit_thresholds(sample: Sample, config: DebiasConfig) -> Fit:
    """Fit exact thresholds for an objective under a criterion; without labels scores are labels."""
    rows = cast("ScoredRows", sample.calibration)
    judge = cast("ScoredRows", sample.validation or rows)
    parts = (rows, judge) if config.labels and config.objective == "f1" else ()
    if not all((part.weight * part.y).sum() > 0 for part in parts):
        raise DataError(
            f"{config.table}: no row that is fitted, or none that is held out, is labelled 1, and "
            "F1 is of such rows.",
            "Give another --objective, or fit on all rows with --holdout 0.",
        )
    objective: Any = config.served
    criterion, draws = config.criterion, not config.certain
    own, levels = np.arange(len(sample.cells)), list_levels(sample, config)

    def solve(curves: Sequence[Curve], bound: float) -> GroupSolution:
        return solve_curves(
            curves, objective=objective, criterion=criterion, bound=bound,
            randomized=draws, no_harm=config.no_harm,
        )  # fmt: skip

    def pool(part: ScoredRows) -> tuple[Sequence[Curve], Sequence[Curve], np.ndarray]:
        """Return each group's curve, the one that is fitted, and how far that is pooled."""
        counts = np.bincount(part.code, minlength=own.size)
        build = partial(_build_curves, part, labelled=config.labels is not None)
        curves = build(own)
        shared, pooled = pool_curves(
            curves, build, list(levels.values()), counts, criterion, config.pool_below
        )
        return curves, shared, pooled

    curves, shared, pooled = pool(rows)
    solution = solve(shared, config.budget)
    lacking = np.isnan(solution.rates[:, BOUNDED[criterion]]).any(axis=1)
    if lacking.any():
        raise DataError(
            f"{config.table}: all fitted rows of the group "
            f"{name_cell(config.groups, sample.cells[int(lacking.argmax())])} have one label.",
            "Merge small groups in the table, or fit on all rows with --holdout 0.",
        )
    build = partial(_build_curves, rows, labelled=config.labels is not None)
    whole = build(0 * own)[0] if config.unseen == "pooled" else None

    def draw_rule(found: GroupSolution, code: np.ndarray) -> MixtureRule:
        rule = found.rule
        if whole is not None:
            rule = pool_groups(whole, found, objective, criterion, randomized=draws)
            code = np.append(code, code.max() + 1)
        rule = rule.clip()
        return MixtureRule(rule.threshold[code], rule.share[code])

    alone: dict[str, DecisionRule] = {}
    for column, codes in levels.items() if len(levels) > 1 else ():
        alone[column] = draw_rule(solve(build(codes), config.budget), codes)
    rates = measure_again(solution, curves, criterion).rates[:, 0]
    if whole is not None:
        rates = np.append(rates, np.average(rates, weights=sample.counts[0]))
    facts: Facts = {"solver": "exact", "settings": 1}
    facts |= {"value": solution.value, "dual_value": solution.dual_value}
    facts |= {"converged": solution.converged}
    facts |= {"pooled": int((pooled > 0).sum())}
    bounds = np.linspace(0.0, solve(shared, 1.0).gap, TRACED).tolist()
    curve = _trace_bounds(judge, bounds, [solve(shared, bound).rule for bound in bounds], config)

    def fit(part: ScoredRows) -> DecisionRule:
        # Every row of a fold is of a group that is known: none is pooled for the unseen.
        return solve(pool(part)[1], config.budget).rule.clip()

    expected = cross_validate(rows, fit, levels, config)
    return Fit(draw_rule(solution, own), rates, None, alone, curve, facts, expected)


def _build_curves(rows: ScoredRows, code: np.ndarray, *, labelled: bool) -> tuple[Curve, ...]:
    """Return the curves of groups with new codes; without labels scores are P(Y=1)."""
    y = cast("np.ndarray", rows.y) if labelled else (1.0 + rows.signed) / 2.0
    return build_curves(rows.signed, y, code[rows.code], int(code.max()) + 1, rows.weight)


def _trace_bounds(
    rows: ScoredRows, bounds: Sequence[float], rules: Sequence[MixtureRule], config: DebiasConfig
) -> pd.DataFrame:
    """Return bias and objective of the rules of some bounds; without labels their accuracy."""
    curves = build_curves(
        rows.signed, cast("np.ndarray", rows.y), rows.code, rows.n_groups, rows.weight
    )
    totals = [
        sum(getattr(curve, side)[-1] for curve in curves) for side in ("positive", "negative")
    ]
    objective: Objective = config.served if config.labels else "accuracy"
    points = []
    for bound, rule in zip(bounds, rules, strict=True):
        chosen = apply_rule(curves, rule)
        gap = measure_gap(find_rates(curves, chosen), config.criterion)
        points.append((bound, gap, measure_objective(objective, *chosen.sum(axis=0), *totals)))
    name = config.measure if config.labels else "accuracy"
    return pd.DataFrame(points, columns=["budget", "bias", name])


def list_grid(config: DebiasConfig, base: float) -> tuple[list[float], list[float]]:
    """Return the widths and rates to choose from."""
    widths, rates = (list(WIDTHS), list_rates(base)) if config.labels else ([WIDTH], [base])
    widths = widths if config.width is None else [config.width]
    return widths, rates if config.rate is None else [config.rate]


def list_levels(sample: Sample, config: DebiasConfig) -> dict[str, np.ndarray]:
    """Return by column of groups the code of each group's level, int64."""
    return {column: merge_codes(sample.cells, i)[0] for i, column in enumerate(config.groups)}


def merge_codes(
    cells: tuple[tuple[str, ...], ...], column: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the code of each group's level in one column, int64, and the sorted levels."""
    levels = sort_levels({cell[column] for cell in cells})
    return np.array([levels.index(cell[column]) for cell in cells], dtype=np.int64), levels


def _base_rate(problem: ThresholdProblem, config: DebiasConfig) -> float:
    """Return E[y], of codes 2 k + y; without labels E[(f + 1)/2], of codes k."""
    if config.labels:
        return sum(segment.total for segment in problem.segments[1::2]) / problem.total
    moment = sum(float(segment.moment[-1]) for segment in problem.segments)
    return (moment / problem.total + 1.0) / 2.0
