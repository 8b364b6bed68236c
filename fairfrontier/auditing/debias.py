"""Thresholds by group for the scores of a table: read, fitted, and tried on fresh rows.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from fairfrontier.auditing.option import DebiasConfig
from fairfrontier.metrics.statistic.rate import average_known
from fairfrontier.models.objective import Objective, read_costs
from fairfrontier.models.thresholds.base import (
    TURN,
    count_saturated,
    find_backward,
    rank_points,
    read_scores,
    refuse_saturated,
)
from fairfrontier.models.thresholds.curve import BOUNDED, Curve, build_curves
from fairfrontier.models.thresholds.group_thresholds import find_pooling, measure_again, pool_curves
from fairfrontier.models.thresholds.programme import (
    GroupSolution,
    apply_rule,
    find_rates,
    measure_gap,
    pool_groups,
    solve_curves,
)
from fairfrontier.models.thresholds.ramp import solve_exact, weigh_rule
from fairfrontier.models.thresholds.randomized_threshold import (
    WIDTHS,
    choose,
    list_rates,
    trace_budgets,
)
from fairfrontier.models.thresholds.rule import (
    UNSEEN,
    DecisionRule,
    Knots,
    MixtureRule,
    ThresholdRule,
)
from fairfrontier.models.thresholds.rulebook import (
    Rulebook,
    make_rulebook,
    name_cell,
    read_rulebook,
)
from fairfrontier.models.thresholds.sample import Collector, Sample, ScoredRows
from fairfrontier.models.thresholds.threshold import ScoreHistogram, ThresholdProblem
from fairfrontier.prepare.table.column import sort_levels, tell_spellings
from fairfrontier.prepare.table.reader import check_stamps, stamp_table
from fairfrontier.prepare.table.role import ScoreBatch, ScoreColumns, ScoreTable, name_cells
from fairfrontier.runtime.cached import Stamp
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.seeds import derive_generator, derive_integer, uniforms

Array = Any
# Without labels there is nothing to choose a width by.
WIDTH = 0.1
# Bounds of which the curve of exact thresholds has a point.
TRACED = 25
FOLDS, REPEATS = 2, 5
# Decimals with which a bias is shown.
DIGITS = 3
# The rates that a criterion bounds, by their columns in BOUNDED, with the label that each is given.
RATES = {"rate": None, "true_positive_rate": 1, "false_positive_rate": 0}
CALIBRATION, VALIDATION = "calibration", "validation"
BEFORE, AFTER = "unmodified", "debiased"
READING, DECIDING = PASSES = ("reading scores", "deciding")
Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Debiasing:
    """A rule and how it was fitted.

    Attributes
    ----------
    config : DebiasConfig
        The options.
    columns : ScoreColumns
        The columns that are read.
    rulebook : Rulebook
        The rule.
    stamps : dict
        The files of the table as they were before they were read.
    alone : dict of str to DecisionRule
        By column of groups, the rule for the groups of that column alone, by code of the crossed
        groups. Empty with one column, or for an earlier rule.
    curve : DataFrame
        Columns budget, bias and ``measure``, or agreement without labels.
    fitted : dict
        Plain facts: solver, number of settings to choose from, bound of the parity error by bins;
        of exact thresholds the ``value`` of the objective, its upper bound ``dual_value``, and
        whether no rule of the kind is better (``converged``); how many groups are ``pooled``.
    expected : mapping
        What the rule is expected to do on fresh rows; see `cross_validate`. Empty for an earlier
        rule, and where scores are counted in bins.
    zeros : dict
        `ScoreTable.zeros`, once the rows were decided.
    """

    config: DebiasConfig
    columns: ScoreColumns
    rulebook: Rulebook
    stamps: dict[Path, Stamp]
    alone: dict[str, DecisionRule] = field(default_factory=dict)
    curve: pd.DataFrame = field(default_factory=pd.DataFrame)
    fitted: Mapping[str, Any] = field(default_factory=dict)
    expected: Mapping[str, Any] = field(default_factory=dict)
    zeros: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def labelled(self) -> bool:
        """Whether there are labels."""
        return self.config.labels is not None

    @property
    def criterion(self) -> str:
        """The criterion whose rates are compared: parity where others cannot be measured."""
        criterion = self.rulebook.target.criterion
        return criterion if self.labelled and criterion in BOUNDED else "parity"

    @property
    def rates(self) -> list[str]:
        """Names of the rates that the criterion bounds, as of `RATES`."""
        return [list(RATES)[column] for column in BOUNDED[self.criterion]]

    def attributes(self) -> dict[str, tuple[np.ndarray, tuple[str, ...]]]:
        """Return each column of groups, and their cross product ``sex×race``.

        Values are the level's code of every crossed group, and the levels.
        """
        cells, columns = self.rulebook.cells, self.columns.groups
        attributes = number_levels(cells, columns)
        if len(columns) > 1:
            crossed = "×".join(columns)
            attributes[crossed] = (np.arange(len(cells)), name_cells(cells, crossed))
        return attributes

    def rules(self) -> dict[str, DecisionRule]:
        """Return every rule that is measured, the unmodified one first."""
        size = len(self.rulebook.cells)
        before = ThresholdRule(0.0, np.zeros(size), np.ones(size))
        alone = {self.name_alone(column): rule for column, rule in self.alone.items()}
        return {BEFORE: before, **alone, AFTER: self.rulebook.decision_rule}

    def name_alone(self, column: str) -> str:
        """Return the name of the rule that equalises the levels of one column alone."""
        return f"{self.criterion.replace('_', ' ')} on {column} alone"


def fit_debiasing(config: DebiasConfig, progress: Progress | None = None) -> Debiasing:
    """Fit thresholds by group in one pass over a table, or read an earlier rule.

    min (γ/2) E h² − E[h f]   s.t.  |E[h | group k] − ρ| ≤ ε/2 for every group k,

    on the calibration rows; or the exact optimum of `solve_curves`. Where γ or ρ is not given and
    there are labels, each pair of the paper's grid is solved and the one with the highest expected
    accuracy on the validation rows is used; see `choose_best` for ties. Groups with few rows
    are pooled; see `fit_pooled` and `pool_curves`.

    Parameters
    ----------
    config : DebiasConfig
        Table, columns, constraint and solver.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.

    Returns
    -------
    Debiasing
        The rule, to be applied and measured by `write_debiasing`.

    Raises
    ------
    ConfigError
        When a file or column does not exist, or the rule cannot be read.
    DataError
        For a cell that cannot be used; when there are fewer than two groups, or one has no row of
        the fit, or none of a class whose rate is to be equal.

    Notes
    -----
    One pass, O(n) and a sort up to 2,000,000 rows; memory as `Collector`. Exact thresholds sort
    any number of rows in memory.

    References
    ----------
    I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning
    models. NeurIPS 2021, equation 6 and section 5.
    """
    table, rulebook = check_config(config)
    columns, stamps = table.columns, stamp_table(config.table)
    if rulebook is not None:
        return Debiasing(config, columns, rulebook, stamps)
    collector = Collector(
        "exact" if config.exact else config.solver, config.bins, str(config.table)
    )
    rows, saturated = 0, 0
    knots = _rank_table(table, config) if columns.scale == "points" else ()
    for batch in table.batches():
        signed = read_scores(batch.score, columns.scale, columns.scores, knots)
        # Without labels, the decisions of the unmodified classifier take their place.
        y = (signed >= 0.0).astype(np.float64) if batch.label is None else batch.label
        held_out = hold_out(batch.ids, config)
        collector.add(signed, batch.cell, batch.levels, y, batch.weight, held_out)
        rows += batch.n_samples
        saturated += count_saturated(batch.score, signed)
        if progress is not None:
            progress(READING, batch.share)
    if columns.scale == "margin" and 2 * saturated > rows:
        raise refuse_saturated(f"column {columns.scores!r} of {config.table}")
    sample = collector.finish()
    check_sample(sample, config)
    if config.labels is not None:
        check_direction(sample.calibration, f"{config.table}: scores in column {columns.scores!r}")
    fit = (fit_thresholds if config.exact else fit_ramps)(sample, config)
    cells, counts = sample.cells, sample.counts[0]
    if config.unseen == "pooled":
        cells, counts = (*cells, (UNSEEN,) * len(config.groups)), np.append(counts, 0)
    rulebook = make_rulebook(
        fit.rule,
        score=columns.scores,
        scale=columns.scale,
        knots=knots,
        columns=columns.groups,
        cells=cells,
        counts=counts,
        rates=fit.rates,
        unseen=config.unseen or "refuse",
        rate=fit.rate,
        budget=config.budget,
        criterion=config.criterion,
        seed=config.seed,
        ids=config.ids,
        file=table.path.name,
        sha256=table.digest(),
        rows=rows,
    )
    expected: dict[str, Any] = {}
    if isinstance(sample.calibration, ScoredRows):
        expected = cross_validate(
            sample.calibration, fit.refit, list_levels(sample, config), config
        )
    return Debiasing(config, columns, rulebook, stamps, fit.alone, fit.curve, fit.facts, expected)


def check_config(config: DebiasConfig) -> tuple[ScoreTable, Rulebook | None]:
    """Open the table, and the earlier rule if one is applied; no row is read."""
    rulebook = None if config.apply is None else read_rulebook(config.apply)
    if rulebook is not None and config.unseen is not None:
        rulebook = rulebook.decide_unseen(config.unseen)
    return ScoreTable(config.table, config.columns(rulebook)), rulebook


def hold_out(ids: np.ndarray, config: DebiasConfig) -> np.ndarray:
    """Return which rows are held out for validation, by row id and in any order, bool."""
    return uniforms(derive_integer("debias", "holdout", config.seed), ids) < config.holdout


def _rank_table(table: ScoreTable, config: DebiasConfig) -> Knots:
    """Return `rank_points` of the rows of the fit, which are kept in memory."""
    kept = [
        (batch.score[own], batch.weight[own], None if batch.label is None else batch.label[own])
        for batch in table.batches()
        if (own := ~hold_out(batch.ids, config) & (batch.weight > 0)).any()
    ]
    if not kept:
        raise DataError(
            f"{config.table}: no row that the rule is fitted on has weight.",
            "Give rows a positive weight, or hold out fewer with --holdout.",
        )
    score, weight = (np.concatenate([each[i] for each in kept]) for i in (0, 1))
    labels = None if config.labels is None else np.concatenate([each[2] for each in kept])
    return rank_points(score, labels, weight, config.rate)


def check_direction(rows: ScoredRows | ScoreHistogram, what: str) -> None:
    """Raise a DataError for scores that predict the opposite of the labels."""
    if isinstance(rows, ScoredRows):
        found = find_backward(rows.signed, np.asarray(rows.y), rows.weight)
    else:
        mass, positive = (np.asarray(each).sum(axis=0) for each in (rows.mass, rows.positive))
        bins, labels = np.tile(np.arange(mass.size), 2), np.repeat([0, 1], mass.size)
        found = find_backward(bins, labels, np.append(mass - positive, positive), rows.rows)
    if found:
        raise DataError(f"{what} {found}", TURN)


def check_sample(sample: Sample, config: DebiasConfig) -> None:
    """Raise DataError for fewer than two groups, or one without rows or weight in a part."""
    path = config.table
    for column, levels in zip(config.groups, zip(*sample.cells, strict=True), strict=True):
        tell_spellings(column, dict.fromkeys(levels))
    names = [name_cell(config.groups, cell) for cell in sample.cells]
    if len(names) < 2:
        raise DataError(
            f"{path}: all rows are of one group, {names[0]}.",
            "Name columns of groups that differ between rows.",
        )
    parts = ["that thresholds are fitted on", "that is held out"]
    for part, which in enumerate(parts if config.holdout > 0 else parts[:1]):
        empty = sample.weights[part] <= 0
        if empty.any():
            group = int(empty.argmax())
            has = int(sample.counts[:, group].sum())
            raise DataError(
                f"{path}: the group {names[group]} has {has} {'row' if has == 1 else 'rows'}, "
                f"but no row of positive weight in the part {which}.",
                "Merge small groups in the table, give their rows a positive weight, or fit on all "
                "rows with --holdout 0.",
            )


class Fit(NamedTuple):
    """A fitted rule, with its rates E[h | group], and ρ where rates are near one number.

    ``alone``, ``curve`` and ``facts`` are as in `Debiasing`, and ``refit`` fits a rule of the kind
    to other rows. A last row of ``rule`` and ``rates``, and of the rules in ``alone``, is for
    unseen groups, if they are pooled.
    """

    rule: DecisionRule
    rates: np.ndarray
    rate: float | None
    alone: dict[str, DecisionRule]
    curve: pd.DataFrame
    facts: dict[str, float | int | str]
    refit: Callable[[ScoredRows], DecisionRule]


def fit_ramps(sample: Sample, config: DebiasConfig) -> Fit:
    """Fit near-optimal thresholds with a ramp, which hold parity."""
    if config.width == 0 and not sample.exact:
        raise ConfigError(
            f"width is 0, and {config.table} has so many rows that scores are counted in bins.",
            "Give a positive width, or --solver exact where memory suffices.",
        )
    rows, budget, labels = sample.calibration, config.budget, config.labels
    problem, labelled = rows.problem(), (sample.validation or rows).labelled()
    base = _base_rate(rows.labelled() if labels else problem, config)
    widths, rates = (list(WIDTHS), list_rates(base)) if labels else ([WIDTH], [base])
    widths = widths if config.width is None else [config.width]
    rates = rates if config.rate is None else [config.rate]
    found, rate, _ = choose(
        problem, labelled, widths=widths, rates=rates, budget=budget, centre=base
    )
    width, counts, levels = found.rule.width, sample.counts[0], list_levels(sample, config)

    def pool(
        part: ScoredRows | ScoreHistogram, counts: np.ndarray, budget: float
    ) -> tuple[ThresholdRule, np.ndarray]:
        return fit_pooled(
            part, counts, list(levels.values()),
            width=width, rate=rate, budget=budget, below=config.pool_below,
        )  # fmt: skip

    whole = None
    if config.unseen == "pooled":
        whole = solve_exact(rows.problem(np.zeros_like(counts)), width, rate, budget)

    def spread(rule: ThresholdRule, code: np.ndarray) -> ThresholdRule:
        """Return the rule of crossed groups whose codes in it are given, and of unseen ones."""
        if whole is not None:
            ends = ((rule.threshold, whole.rule.threshold), (rule.coin, whole.rule.coin))
            rule, code = ThresholdRule(width, *map(np.concatenate, ends)), np.append(code, -1)
        return _spread(rule, code)

    rule, pooled = pool(rows, counts, budget)
    found_rates = weigh_rule(problem, rule) / [segment.total for segment in problem.segments]
    found_rates = found_rates if whole is None else np.append(found_rates, whole.rate)
    alone: dict[str, DecisionRule] = {
        column: spread(solve_exact(rows.problem(merged), width, rate, budget).rule, merged)
        for column, merged in levels.items()
        if len(levels) > 1
    }
    facts: dict[str, float | int | str] = {
        "solver": "exact" if sample.exact else "histogram",
        "settings": len(widths) * len(rates),
        "base_rate": base,
        "pooled": int((pooled > 0).sum()),
    }
    if not sample.exact:
        facts |= {"bins": config.bins, "parity_error_at_most": 1.0 / (config.bins * width)}
    traced = trace_budgets(
        problem, labelled, width, rate, fit=lambda slack: pool(rows, counts, slack)[0]
    )
    curve = pd.DataFrame(dict(zip(("budget", "bias", "accuracy"), traced, strict=True)))

    def refit(part: ScoredRows) -> ThresholdRule:
        return pool(part, np.bincount(part.code, minlength=counts.size), budget)[0]

    own = np.arange(counts.size)
    return Fit(spread(rule, own), found_rates, rate, alone, curve, facts, refit)


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


def _base_rate(problem: ThresholdProblem, config: DebiasConfig) -> float:
    """Return E[y], of codes 2 k + y; without labels E[(f + 1)/2], of codes k."""
    if config.labels:
        return sum(segment.total for segment in problem.segments[1::2]) / problem.total
    moment = sum(float(segment.moment[-1]) for segment in problem.segments)
    return (moment / problem.total + 1.0) / 2.0


def fit_thresholds(sample: Sample, config: DebiasConfig) -> Fit:
    """Fit exact thresholds for an objective under a criterion; without labels scores are labels."""
    rows = cast("ScoredRows", sample.calibration)
    fresh = cast("ScoredRows", sample.validation or rows)
    parts = (rows, fresh) if config.labels and config.objective == "f1" else ()
    if not all((part.weight * part.y).sum() > 0 for part in parts):
        raise DataError(
            f"{config.table}: no row that is fitted, or none that is held out, is labelled 1, and "
            "F1 is of such rows.",
            "Give another --objective, or fit on all rows with --holdout 0.",
        )
    objective: Any = config.served
    criterion, draws = config.criterion, not config.certain
    own, levels = np.arange(len(sample.cells)), list_levels(sample, config)

    def build(part: ScoredRows, code: np.ndarray) -> tuple[Curve, ...]:
        """Return the curves of groups with new codes; without labels scores are P(Y=1)."""
        y = cast("np.ndarray", part.y) if config.labels else (1.0 + part.signed) / 2.0
        return build_curves(part.signed, y, code[part.code], int(code.max()) + 1, part.weight)

    def solve(curves: Sequence[Curve], bound: float) -> GroupSolution:
        return solve_curves(
            curves, objective=objective, criterion=criterion, bound=bound,
            randomized=draws, no_harm=config.no_harm,
        )  # fmt: skip

    def pool(part: ScoredRows) -> tuple[Sequence[Curve], Sequence[Curve], np.ndarray]:
        """Return each group's curve, the one that is fitted, and how far that is pooled."""
        counts, curves = np.bincount(part.code, minlength=own.size), build(part, own)
        columns, below = list(levels.values()), config.pool_below
        return curves, *pool_curves(curves, partial(build, part), columns, counts, criterion, below)

    curves, shared, pooled = pool(rows)
    solution = solve(shared, config.budget)
    lacking = np.isnan(solution.rates[:, BOUNDED[criterion]]).any(axis=1)
    if lacking.any():
        raise DataError(
            f"{config.table}: all fitted rows of the group "
            f"{name_cell(config.groups, sample.cells[int(lacking.argmax())])} have one label.",
            "Merge small groups in the table, or fit on all rows with --holdout 0.",
        )
    whole = build(rows, 0 * own)[0] if config.unseen == "pooled" else None

    def spread(found: GroupSolution, code: np.ndarray) -> MixtureRule:
        """Return the rule of crossed groups whose codes in it are given, and of unseen ones."""
        rule = found.rule
        if whole is not None:
            rule = pool_groups(whole, found, objective, criterion, randomized=draws)
            code = np.append(code, -1)
        rule = rule.clip()
        return MixtureRule(rule.threshold[code], rule.share[code])

    alone: dict[str, DecisionRule] = {
        column: spread(solve(build(rows, codes), config.budget), codes)
        for column, codes in levels.items()
        if len(levels) > 1
    }
    rates = measure_again(solution, curves, criterion).rates[:, 0]
    if whole is not None:
        rates = np.append(rates, np.average(rates, weights=sample.counts[0]))
    facts: dict[str, float | int | str] = {
        "solver": "exact",
        "settings": 1,
        "value": solution.value,
        "dual_value": solution.dual_value,
        "converged": solution.converged,
        "pooled": int((pooled > 0).sum()),
    }
    bounds = np.linspace(0.0, solve(shared, 1.0).gap, TRACED).tolist()
    curve = _trace_bounds(fresh, bounds, [solve(shared, bound).rule for bound in bounds], config)

    def refit(part: ScoredRows) -> DecisionRule:
        # Every row of a fold is of a group that is known: none is pooled for the unseen.
        return solve(pool(part)[1], config.budget).rule.clip()

    return Fit(spread(solution, own), rates, None, alone, curve, facts, refit)


def _trace_bounds(
    rows: ScoredRows, bounds: Sequence[float], rules: Sequence[MixtureRule], config: DebiasConfig
) -> pd.DataFrame:
    """Return bias and objective of the rules of some bounds; without labels their accuracy."""
    y = cast("np.ndarray", rows.y)
    curves = build_curves(rows.signed, y, rows.code, rows.n_groups, rows.weight)
    totals = [
        sum(getattr(curve, side)[-1] for curve in curves) for side in ("positive", "negative")
    ]
    name, objective = (config.measure, config.served) if config.labels else ("accuracy",) * 2
    points = []
    for bound, rule in zip(bounds, rules, strict=True):
        chosen = apply_rule(curves, rule)
        gap = measure_gap(find_rates(curves, chosen), config.criterion)
        points.append((bound, gap, measure_objective(objective, *chosen.sum(axis=0), *totals)))
    return pd.DataFrame(points, columns=["budget", "bias", name])


def list_levels(sample: Sample, config: DebiasConfig) -> dict[str, np.ndarray]:
    """Return by column of groups the code of each group's level, int64."""
    numbered = number_levels(sample.cells, config.groups)
    return {column: codes for column, (codes, _) in numbered.items()}


def number_levels(
    cells: Sequence[Sequence[str]], columns: Sequence[str]
) -> dict[str, tuple[np.ndarray, tuple[str, ...]]]:
    """Return by column the code of each group's level, int64, and the sorted levels."""
    found = {}
    for column, own in zip(columns, zip(*cells, strict=True), strict=True):
        levels = sort_levels({*own})
        found[column] = np.array([levels.index(each) for each in own], dtype=np.int64), levels
    return found


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
    given = [list(RATES.values())[column] for column in BOUNDED[config.criterion]]
    rng = derive_generator("debias", "fold", config.seed)
    decided = {"before": (signed >= 0.0).astype(np.float64), "after": np.zeros(order.size)}
    squares: dict[tuple[str, str], list[np.ndarray]] = {}
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
                    squares.setdefault((attribute, when), []).append(np.stack(found))
        for when, h in decided.items():
            sides = (weight * y, weight * (1.0 - y))
            sums = (*((side * h).sum() for side in sides), *(side.sum() for side in sides))
            reached[when].append(float(measure_objective(config.served, *sums)))
    join = np.mean if config.criterion == "average_odds" else np.max
    expected: dict[str, Any] = {
        "folds": FOLDS,
        "repeats": REPEATS,
        "bias": [
            {"attribute": name}
            | {when: float(join(estimate_bias(squares[name, when]))) for when in decided}
            for name in attributes
        ],
    }
    if config.labels:
        expected[config.measure] = {when: float(np.mean(each)) for when, each in reached.items()}
    return expected


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


def decide_rows(
    debiasing: Debiasing, batch: ScoreBatch
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the group codes, the scores f ∈ [−1, 1] and the part codes of a batch's rows."""
    book = debiasing.rulebook
    try:
        code = book.encode(batch.cell, batch.levels, str(debiasing.config.table))
    except DataError as error:
        raise DataError(
            error.fault,
            "Name with --unseen a group of the rule whose threshold they get, fit a rule on rows "
            "of every group or with --unseen pooled, or merge small groups in the table.",
        ) from None
    kind = book.score
    signed = read_scores(batch.score, kind.scale, debiasing.columns.scores, kind.knots)
    # Of an earlier rule no row is known to have been used in the fit.
    fresh = debiasing.config.apply is not None
    part = np.ones(batch.n_samples) if fresh else hold_out(batch.ids, debiasing.config)
    return code, signed, part.astype(np.int64)


def read_again(debiasing: Debiasing) -> Iterator[ScoreBatch]:
    """Yield the rows of the table again; raise DataError if it has changed since the first time."""
    path = debiasing.config.table
    check_stamps(path, debiasing.stamps)
    table = ScoreTable(path, debiasing.columns)
    yield from table.batches()
    debiasing.zeros.update(table.zeros)
    check_stamps(path, debiasing.stamps)
