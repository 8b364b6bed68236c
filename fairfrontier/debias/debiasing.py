"""Debiasing any model's scores: thresholds by group from a table, then decisions and an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from fairfrontier.debias.config import DebiasConfig
from fairfrontier.debias.pooling import fit_pooled
from fairfrontier.debias.tally import RATES, measure_objective
from fairfrontier.debias.validation import cross_validate
from fairfrontier.prepare.table.column import sort_levels
from fairfrontier.prepare.table.score_table import ScoreBatch, ScoreColumns, ScoreTable
from fairfrontier.prepare.table.stream import check_stamps, stamp_table
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.recall import Stamp
from fairfrontier.runtime.seeds import derive_integer, uniforms
from fairfrontier.train.objective import COST_MEASURE
from fairfrontier.train.postprocess.base import read_scores
from fairfrontier.train.postprocess.choice import WIDTHS, choose_parity, list_rates, trace_budgets
from fairfrontier.train.postprocess.histogram import ScoreHistogram
from fairfrontier.train.postprocess.roc.curve import BOUNDED, Curve, build_curves
from fairfrontier.train.postprocess.roc.group_thresholds import ALL, NONE
from fairfrontier.train.postprocess.roc.pooling import measure_again, pool_curves
from fairfrontier.train.postprocess.roc.solve import (
    GroupSolution,
    apply_rule,
    find_rates,
    measure_gap,
    pool_groups,
    solve_curves,
)
from fairfrontier.train.postprocess.rule import MixtureRule, ThresholdRule
from fairfrontier.train.postprocess.rulebook import (
    UNSEEN,
    DecisionRule,
    Rulebook,
    make_rulebook,
    name_cell,
    read_rulebook,
)
from fairfrontier.train.postprocess.sample import Collector, Sample, ScoredRows
from fairfrontier.train.postprocess.threshold import ThresholdProblem, solve_exact, weigh_rule

# Without labels there is nothing to choose a width by.
WIDTH = 0.1
CALIBRATION, VALIDATION = "calibration", "validation"
BEFORE, AFTER = "unmodified", "debiased"

READING, DECIDING = PASSES = ("reading scores", "deciding")
Progress = Callable[[str, float], None]
Facts = dict[str, float | int | str]
# Bounds of which the curve of exact thresholds has a point.
TRACED = 25


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
    alone : dict of str to DecisionRule
        By column of groups, the rule for the groups of that column alone, by code of the crossed
        groups. Empty with one column, or for an earlier rule.
    curve : DataFrame
        Columns budget, bias and ``measure``, or agreement without labels.
    fitted : dict
        Plain facts: solver, number of settings to choose from, bound of the parity error by bins;
        of exact thresholds the ``value`` of the objective and its upper bound ``dual_value``; how
        many groups are ``pooled``.
    expected : mapping
        What the rule is expected to do on fresh rows; see `cross_validate`. Empty for an earlier
        rule, exact thresholds, and where scores are counted in bins.
    stamps : dict
        The files of the table as they were before they were read.
    """

    config: DebiasConfig
    columns: ScoreColumns
    rulebook: Rulebook
    alone: dict[str, DecisionRule]
    curve: pd.DataFrame
    fitted: Facts
    expected: Mapping[str, Any]
    stamps: dict[Path, Stamp]

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
        return [RATES[column] for column in BOUNDED[self.criterion]]

    @property
    def measure(self) -> str:
        """What is lost by equal rates: a name of an objective, or ``changed`` without labels."""
        if not self.labelled:
            return "changed"
        served = self.config.served
        return served if isinstance(served, str) else COST_MEASURE

    def attributes(self) -> dict[str, tuple[np.ndarray, tuple[str, ...]]]:
        """Return each column of groups, and their cross product ``sex×race``.

        Values are the level's code of every crossed group, and the levels.
        """
        cells, columns = self.rulebook.cells, self.columns.groups
        attributes = {name: merge_codes(cells, i) for i, name in enumerate(columns)}
        if len(columns) > 1:
            crossed = tuple("×".join(cell) for cell in cells)
            attributes["×".join(columns)] = (np.arange(len(cells)), crossed)
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
        return Debiasing(config, columns, rulebook, {}, pd.DataFrame(), {}, {}, stamps)
    solver = "exact" if config.exact else config.solver
    collector = Collector(solver, config.bins, str(config.table))
    rows = 0
    for batch in table.batches():
        signed = read_scores(batch.score, columns.scale, columns.scores)
        # Without labels, the decisions of the unmodified classifier take their place.
        y = (signed >= 0.0).astype(np.float64) if batch.label is None else batch.label
        held_out = hold_out(batch.ids, config)
        collector.add(signed, batch.cell, batch.levels, y, batch.weight, held_out)
        rows += batch.n_samples
        if progress is not None:
            progress(READING, batch.share)
    sample = collector.finish()
    check_sample(sample, config)
    return _solve(sample, config, table, rows, stamps)


def check_config(config: DebiasConfig) -> tuple[ScoreTable, Rulebook | None]:
    """Open the table, and the earlier rule if one is applied; no row is read."""
    rulebook = None if config.apply is None else read_rulebook(config.apply)
    if rulebook is not None and config.unseen is not None:
        rulebook = rulebook.decide_unseen(config.unseen)
    return ScoreTable(config.table, config.columns(rulebook)), rulebook


def _solve(
    sample: Sample, config: DebiasConfig, table: ScoreTable, rows: int, stamps: dict[Path, Stamp]
) -> Debiasing:
    fit = _fit_thresholds(sample, config) if config.exact else _fit_ramps(sample, config)
    cells, counts = sample.cells, sample.counts[0]
    if config.unseen == "pooled":
        cells, counts = (*cells, (UNSEEN,) * len(config.groups)), np.append(counts, 0)
    columns = table.columns
    rulebook = make_rulebook(
        fit.rule,
        score=columns.scores,
        scale=columns.scale,
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
    return Debiasing(
        config, columns, rulebook, fit.alone, fit.curve, fit.facts, fit.expected, stamps
    )


def _fit_ramps(sample: Sample, config: DebiasConfig) -> Fit:
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
    found, rate, _ = choose_parity(
        problem, labelled, widths=widths, rates=rates, budget=config.budget, centre=base
    )
    width = found.rule.width
    levels = [merge_codes(sample.cells, i)[0] for i in range(len(config.groups))]

    def pool(
        part: ScoredRows | ScoreHistogram, counts: np.ndarray, budget: float
    ) -> tuple[ThresholdRule, np.ndarray]:
        return fit_pooled(
            part, counts, levels, width=width, rate=rate, budget=budget, below=config.pool_below
        )

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
    for i, column in enumerate(config.groups if len(config.groups) > 1 else ()):
        merged, _ = merge_codes(sample.cells, i)
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
        attributes = dict(zip(config.groups, levels, strict=True))
        expected = cross_validate(
            sample.calibration,
            lambda part: pool(part, np.bincount(part.code, minlength=counts.size), config.budget)[
                0
            ],
            attributes | {"×".join(config.groups): np.arange(counts.size)},
            labelled=config.labels is not None,
            seed=config.seed,
        )
    return Fit(rule, rates_found, rate, alone, curve, facts, expected)


def _fit_thresholds(sample: Sample, config: DebiasConfig) -> Fit:
    """Fit exact thresholds for an objective under a criterion; without labels scores are labels."""
    rows = cast("ScoredRows", sample.calibration)
    judge = cast("ScoredRows", sample.validation or rows)
    y = cast("np.ndarray", rows.y) if config.labels else (1.0 + rows.signed) / 2.0
    objective: Any = config.served
    criterion, draws = config.criterion, not config.certain

    def build(code: np.ndarray) -> tuple[Curve, ...]:
        """Return the curves of groups with new codes."""
        return build_curves(rows.signed, y, code[rows.code], int(code.max()) + 1, rows.weight)

    def solve(curves: Sequence[Curve], bound: float) -> GroupSolution:
        return solve_curves(
            curves, objective=objective, criterion=criterion, bound=bound,
            randomized=draws, no_harm=config.no_harm,
        )  # fmt: skip

    own, counts = np.arange(len(sample.cells)), sample.counts[0]
    levels = {column: merge_codes(sample.cells, i)[0] for i, column in enumerate(config.groups)}
    curves = build(own)
    shared, pooled = pool_curves(
        curves, build, list(levels.values()), counts, criterion, config.pool_below
    )
    solution = solve(shared, config.budget)
    lacking = np.isnan(solution.rates[:, BOUNDED[criterion]]).any(axis=1)
    if lacking.any():
        raise DataError(
            f"{config.table}: all fitted rows of the group "
            f"{name_cell(config.groups, sample.cells[int(lacking.argmax())])} have one label.",
            "Merge small groups in the table, or fit on all rows with --holdout 0.",
        )
    whole = build(0 * own)[0] if config.unseen == "pooled" else None

    def draw_rule(found: GroupSolution, code: np.ndarray) -> MixtureRule:
        rule = found.rule
        if whole is not None:
            rule = pool_groups(whole, found, objective, criterion, randomized=draws)
            code = np.append(code, code.max() + 1)
        return MixtureRule(np.clip(rule.threshold, ALL, NONE)[code], rule.share[code])

    alone: dict[str, DecisionRule] = {}
    for column, codes in levels.items() if len(levels) > 1 else ():
        alone[column] = draw_rule(solve(build(codes), config.budget), codes)
    rates = measure_again(solution, curves, criterion).rates[:, 0]
    if whole is not None:
        rates = np.append(rates, np.average(rates, weights=counts))
    judged = build_curves(
        judge.signed, cast("np.ndarray", judge.y), judge.code, own.size, judge.weight
    )
    totals = [
        sum(getattr(curve, side)[-1] for curve in judged) for side in ("positive", "negative")
    ]
    measured = objective if config.labels else "accuracy"
    points = []
    for bound in np.linspace(0.0, solve(shared, 1.0).gap, TRACED).tolist():
        chosen = apply_rule(judged, solve(shared, bound).rule)
        gap = measure_gap(find_rates(judged, chosen), criterion)
        points.append((bound, gap, measure_objective(measured, *chosen.sum(axis=0), *totals)))
    name = measured if isinstance(measured, str) else COST_MEASURE
    facts: Facts = {"solver": "exact", "settings": 1}
    facts |= {"value": solution.value, "dual_value": solution.dual_value}
    facts |= {"pooled": int((pooled > 0).sum())}
    curve = pd.DataFrame(points, columns=["budget", "bias", name])
    return Fit(draw_rule(solution, own), rates, None, alone, curve, facts)


def list_grid(config: DebiasConfig, base: float) -> tuple[list[float], list[float]]:
    """Return the widths and rates to choose from."""
    widths, rates = (list(WIDTHS), list_rates(base)) if config.labels else ([WIDTH], [base])
    widths = widths if config.width is None else [config.width]
    return widths, rates if config.rate is None else [config.rate]


def hold_out(ids: np.ndarray, config: DebiasConfig) -> np.ndarray:
    """Return which rows are held out for validation, by row id and in any order, bool."""
    return uniforms(derive_integer("debias", "holdout", config.seed), ids) < config.holdout


def check_sample(sample: Sample, config: DebiasConfig) -> None:
    """Raise DataError for fewer than two groups, or one without rows or weight in a part."""
    path = config.table
    names = [name_cell(config.groups, cell) for cell in sample.cells]
    if len(names) < 2:
        raise DataError(
            f"{path}: all rows are of one group, {names[0]}.",
            "Name columns of groups that differ between rows.",
        )
    parts = ["that thresholds are fitted on", "that is held out"]
    for part, which in enumerate(parts if config.holdout > 0 else parts[:1]):
        for what, counted in (("row", sample.counts), ("weight", sample.weights)):
            empty = counted[part] <= 0
            if empty.any():
                group = int(empty.argmax())
                has = int(sample.counts[:, group].sum())
                raise DataError(
                    f"{path}: the group {names[group]} has {has} {'row' if has == 1 else 'rows'}, "
                    f"but no {what} in the part {which}.",
                    "Merge small groups in the table, or fit on all rows with --holdout 0."
                    if what == "row"
                    else "Give rows of every group a positive weight.",
                )


def merge_codes(
    cells: tuple[tuple[str, ...], ...], column: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the code of each group's level in one column, int64, and the sorted levels."""
    levels = sort_levels({cell[column] for cell in cells})
    return np.array([levels.index(cell[column]) for cell in cells], dtype=np.int64), levels


def decide_rows(
    debiasing: Debiasing, batch: ScoreBatch
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the group codes, the scores f ∈ [−1, 1] and the part codes of a batch's rows."""
    columns, book = debiasing.columns, debiasing.rulebook
    code = book.encode(batch.cell, batch.levels, str(debiasing.config.table))
    signed = read_scores(batch.score, columns.scale, columns.scores)
    if debiasing.config.apply is not None:
        # No row is known to have been used in the fit.
        part = np.ones(batch.n_samples, dtype=np.int64)
    else:
        part = hold_out(batch.ids, debiasing.config).astype(np.int64)
    return code, signed, part


def read_again(debiasing: Debiasing) -> Iterator[ScoreBatch]:
    """Yield the rows of the table again; raise DataError if it has changed since the first time."""
    path = debiasing.config.table
    check_stamps(path, debiasing.stamps)
    yield from ScoreTable(path, debiasing.columns).batches()
    check_stamps(path, debiasing.stamps)


def _base_rate(problem: ThresholdProblem, config: DebiasConfig) -> float:
    """Return E[y], of codes 2 k + y; without labels E[(f + 1)/2], of codes k."""
    if config.labels:
        return sum(segment.total for segment in problem.segments[1::2]) / problem.total
    moment = sum(float(segment.moment[-1]) for segment in problem.segments)
    return (moment / problem.total + 1.0) / 2.0
