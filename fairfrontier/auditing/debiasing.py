"""Scores of a table as f ∈ [−1, 1]: points by their ranks, and which end of them is which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.auditing.fitting import Facts, fit_ramps, fit_thresholds, merge_codes
from fairfrontier.auditing.option import DebiasConfig
from fairfrontier.auditing.tally import RATES
from fairfrontier.models.thresholds.base import (
    TURN,
    Knots,
    count_saturated,
    find_backward,
    read_scores,
    refuse_saturated,
)
from fairfrontier.models.thresholds.curve import BOUNDED
from fairfrontier.models.thresholds.rule import DecisionRule, ThresholdRule
from fairfrontier.models.thresholds.rulebook import (
    SIGNED,
    UNSEEN,
    Rulebook,
    ScoreSection,
    make_rulebook,
    name_cell,
    read_rulebook,
)
from fairfrontier.models.thresholds.sample import Collector, Sample, ScoredRows
from fairfrontier.models.thresholds.threshold import ScoreHistogram
from fairfrontier.prepare.table.column import tell_spellings
from fairfrontier.prepare.table.reader import check_stamps, stamp_table
from fairfrontier.prepare.table.role import ScoreBatch, ScoreColumns, ScoreTable, name_cells
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.recall import Stamp
from fairfrontier.runtime.seeds import derive_integer, uniforms

# Between two the ranks of scores are on a line.
KNOTS = 257


def describe_scores(table: ScoreTable, config: DebiasConfig) -> ScoreSection:
    """Return what scores are; points are ranked, for which those of the fit are kept in memory."""
    columns = table.columns
    knots: Knots = ()
    if columns.scale == "points":
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
        labels = None if columns.labels is None else np.concatenate([each[2] for each in kept])
        knots = rank_points(score, labels, weight, config.rate)
    signed = SIGNED[columns.scale]
    return ScoreSection(
        column=columns.scores, scale=columns.scale, signed=signed, knots=tuple(knots)
    )


def rank_points(
    score: np.ndarray, y: np.ndarray | None, weight: np.ndarray, rate: float | None = None
) -> Knots:
    """Return knots by which scores of any scale are f ∈ [−1, 1], from their ranks.

    f is 0 at the cut by which decisions agree most with the labels ``y``, or where the share
    ``rate`` of the rows is decided 1 without labels, and beside it in proportion to the share of
    rows between, down to −1 and up to 1. Arrays have shape (n,), and weights are > 0. O(n log n).
    """
    order = np.argsort(score, kind="stable")
    levels, first = np.unique(score[order], return_index=True)
    if levels.size < 2:
        raise DataError(
            f"All scores are {levels[0]:g}.", "Name a column of scores that differ between rows."
        )
    mass = np.add.reduceat(weight[order], first)
    share = (np.cumsum(mass) - mass / 2) / mass.sum()
    if y is not None:
        # What is gained by deciding a level 1, from the highest on.
        gain = np.add.reduceat((weight * (2.0 * y - 1.0))[order], first)
        cut = levels.size - 1 - int(np.cumsum(gain[::-1]).argmax())
    else:
        cut = min(int(np.searchsorted(share, 1.0 - float(rate or 0.0))), levels.size - 1)
    low, high = share[[0, -1]]
    below, above = max(share[cut] - low, 1e-9), max(high - share[cut], 1e-9)
    f = (share - share[cut]) / np.where(share < share[cut], below, above)
    kept = np.unique(np.searchsorted(share, np.linspace(low, high, KNOTS)).clip(0, levels.size - 1))
    kept = np.union1d(kept, cut)
    return tuple(zip(levels[kept].tolist(), f[kept].tolist(), strict=True))


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


def hold_out(ids: np.ndarray, config: DebiasConfig) -> np.ndarray:
    """Return which rows are held out for validation, by row id and in any order, bool."""
    return uniforms(derive_integer("debias", "holdout", config.seed), ids) < config.holdout


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
    stamps : dict
        The files of the table as they were before they were read.
    zeros : dict
        `ScoreTable.zeros`, once the rows were decided.
    """

    config: DebiasConfig
    columns: ScoreColumns
    rulebook: Rulebook
    alone: dict[str, DecisionRule]
    curve: pd.DataFrame
    fitted: Facts
    expected: Mapping[str, Any]
    stamps: dict[Path, Stamp]
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
        return [RATES[column] for column in BOUNDED[self.criterion]]

    def attributes(self) -> dict[str, tuple[np.ndarray, tuple[str, ...]]]:
        """Return each column of groups, and their cross product ``sex×race``.

        Values are the level's code of every crossed group, and the levels.
        """
        cells, columns = self.rulebook.cells, self.columns.groups
        attributes = {name: merge_codes(cells, i) for i, name in enumerate(columns)}
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
        return Debiasing(config, columns, rulebook, {}, pd.DataFrame(), {}, {}, stamps)
    solver = "exact" if config.exact else config.solver
    collector = Collector(solver, config.bins, str(config.table))
    rows, saturated, section = 0, 0, describe_scores(table, config)
    for batch in table.batches():
        signed = read_scores(batch.score, section.scale, section.column, section.knots)
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
    return _solve(sample, config, table, rows, stamps, section)


def check_config(config: DebiasConfig) -> tuple[ScoreTable, Rulebook | None]:
    """Open the table, and the earlier rule if one is applied; no row is read."""
    rulebook = None if config.apply is None else read_rulebook(config.apply)
    if rulebook is not None and config.unseen is not None:
        rulebook = rulebook.decide_unseen(config.unseen)
    return ScoreTable(config.table, config.columns(rulebook)), rulebook


def _solve(
    sample: Sample,
    config: DebiasConfig,
    table: ScoreTable,
    rows: int,
    stamps: dict[Path, Stamp],
    section: ScoreSection,
) -> Debiasing:
    fit = fit_thresholds(sample, config) if config.exact else fit_ramps(sample, config)
    cells, counts = sample.cells, sample.counts[0]
    if config.unseen == "pooled":
        cells, counts = (*cells, (UNSEEN,) * len(config.groups)), np.append(counts, 0)
    columns = table.columns
    rulebook = make_rulebook(
        fit.rule,
        score=columns.scores,
        scale=columns.scale,
        knots=section.knots,
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
    table = ScoreTable(path, debiasing.columns)
    yield from table.batches()
    debiasing.zeros.update(table.zeros)
    check_stamps(path, debiasing.stamps)
