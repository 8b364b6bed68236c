"""The audit of decisions or scores by groups that are known: impact ratios, measures and limits.

The definitions of rates, impact ratios and tests are those of New York City's rules on automated
employment decision tools (6 RCNY 5-300 ff., Local Law 144 of 2021) and of the Uniform Guidelines on
Employee Selection Procedures (29 CFR 1607.4(D)).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import fisher_exact, norm

from fairfrontier.auditing.figure import COMPARED, EXCLUDED, TOO_FEW, draw_calibration, draw_impact
from fairfrontier.auditing.option import AuditConfig
from fairfrontier.auditing.subject import (
    OF_VERSIONS,
    Findings,
    Outline,
    Progress,
    Subject,
    list_certified,
    list_individual,
    make_part,
    outline,
    read_subject,
)
from fairfrontier.metrics.measure.registry import CERTIFIED, MEASURES, Measure
from fairfrontier.metrics.statistic.interval import Z, effective_size, wilson
from fairfrontier.metrics.statistic.rate import Direction, divide
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import cross
from fairfrontier.prepare.table.role import UNKNOWN, AuditRows, name_cells
from fairfrontier.report.finding import name_pool
from fairfrontier.runtime.errors import ConfigError, DataError, nearest, repeated
from fairfrontier.runtime.text_file import list_rows
from fairfrontier.study.drawing import Picture

READING, COMPARING = PASSES = ("reading decisions", "comparing groups")
BINS = 10
# Squares of larger scores, and sums of them, may be infinite.
HUGE = 1e100
# Measures of scores that need no probabilities, and those that need no labels.
RANKED = ("auc", "disparity")
UNLABELLED = (
    *("disparity", "subgroup_bias_floor"),
    *("mean_prediction", "kolmogorov_smirnov", "wasserstein"),
)
# Precision and the share of negative rows among those decided 0 are rates with label and decision
# exchanged; the scoring rate is the selection rate of those above the median score.
EXCHANGED = {"tpr": "ppv", "tnr": "npv"}
ABOVE_MEDIAN = {"selection_rate": "scoring_rate"}
WITHIN, EXCEEDED, NOT_ESTIMABLE = "within", "exceeded", "not estimable"
# Above rounding, below any difference of shares of whole rows.
SLACK = 1e-12
# Rates by category that the report shows; all measures are in measures.csv.
SHOWN = ("accuracy", "tpr", "fpr", "ppv", "npv")
# Of predictions of numbers, whose measures of an attribute are those of its worst level.
SHOWN_NUMBERS = ("mae", "rmse", "mean_residual", "disparity")
# Castaneda v. Partida, 430 U.S. 482, 496 n. 17 (1977): "two or three standard deviations".
DEVIATIONS = 2.0
# With fewer persons in a category the normal approximation is poor.
SMALL_SAMPLE = 30
POWER = 0.8
STATUSES = (COMPARED, EXCLUDED, UNKNOWN, TOO_FEW)
# Beyond this many categories of one attribute hardly any could be compared.
LEVELS_AT_MOST = 1000


@dataclass(frozen=True, eq=False)
class KnownFindings(Findings):
    """What an audit of known groups found.

    Attributes
    ----------
    n_samples : int
        Audited rows.
    median : float or None
        The median score; None without scores.
    impact : DataFrame
        `tabulate_impact` for every attribute, and the cross of every two, after the columns measure
        (selection_rate or scoring_rate), attribute and level. Levels with fewer rows than the
        minimum are one, here and in ``scores``.
    scores : DataFrame
        Columns attribute, level, n, mean, deviation, difference, low, high: the scores' mean and
        standard deviation, and the `standardise`-d mean difference to the category with the highest
        mean. Empty without scores.
    measures : DataFrame
        As of `fairfrontier.metrics`. Those by level are of all rows, without levels with fewer
        rows than the minimum; aggregates over levels are of the categories that are compared.
    calibration : DataFrame
        Columns attribute, level, score_low, score_high, n, score, positive, low, high: the mean
        score and the share of positive labels, with its interval, by tenths of the scores. Empty
        without scores and labels.
    individual : DataFrame
        The rows of ``measures`` that are of counterfactual versions, by set: of models and bundles
        whose dataset has such sets.
    limits : DataFrame
        Columns limit, group, value, bound, verdict (within, exceeded or not estimable).
    numeric : bool
        Whether scores are predictions of a regression. Measures then are of numbers, as the study
        scales them.
    similar : DataFrame
        The rows of ``measures`` that are of similar rows under the metric that a bundle holds, by
        budget; see `fairfrontier.auditing.subject`.
    """

    page = Path(__file__).with_name("known_groups.html.j2")

    n_samples: int
    median: float | None
    impact: pd.DataFrame
    scores: pd.DataFrame
    measures: pd.DataFrame
    calibration: pd.DataFrame
    individual: pd.DataFrame
    limits: pd.DataFrame
    numeric: bool = False
    similar: pd.DataFrame = field(default_factory=pd.DataFrame)

    def tabulate(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name."""
        names = ("impact", "scores", "measures", "calibration")
        return {name: getattr(self, name) for name in names}

    def draw(self) -> dict[str, Picture]:
        """Return the pictures by name."""
        pictures = {"impact": draw_impact(self.impact)}
        if (self.calibration["attribute"] != "").any():
            pictures["calibration"] = draw_calibration(self.calibration)
        return pictures

    def summarise(self) -> dict[str, Any]:
        """Return what was audited and the results; None for what is not estimable."""
        config, impact = self.config, self.impact
        # The categories are the same for both rates.
        categories = impact.loc[impact["measure"] == impact["measure"].iloc[0]]
        below = categories["four_fifths"].fillna(False) & (categories["status"] == COMPARED)
        group = self.measures["group"]
        levels = group.str.contains("=", regex=False) & ~group.str.startswith("budget=")
        return {
            "subject": self.subject,
            "attributes": list(categories["attribute"].unique()),
            "median": self.median,
            "minimum": config.minimum,
            "exclude_below": config.exclude_below,
            "counts": {
                "rows": self.n_samples,
                "categories": len(categories),
                **_count_values(categories["status"], STATUSES),
                "below_four_fifths": int(below.sum()),
                "limits": len(self.limits),
                **_count_values(self.limits["verdict"], (EXCEEDED, NOT_ESTIMABLE)),
            },
            "limits": list_rows(self.limits),
            "impact": list_rows(impact),
            "scores": list_rows(self.scores),
            "measures": list_rows(self.measures.loc[~levels]),
        }

    def context(self) -> dict[str, Any]:
        """Return what the report shows by attribute, and the rates by category that it shows."""
        shown = SHOWN_NUMBERS if self.numeric else SHOWN
        names = {f"{name}{end}": name for name in shown for end in ("", "_difference")}
        rates: dict[str, dict[str, Any]] = {}
        for row in list_rows(self.measures[self.measures["measure"].isin(names)]):
            rates.setdefault(row["group"], {})[names[row["measure"]]] = row
        return {
            "rates": list(rates.items()),
            "numeric": self.numeric,
            "similar": list_rows(self.similar),
            "individual": list_rows(self.individual),
            "shown": [name for name in shown if (self.measures["measure"] == name).any()],
        }


@dataclass(frozen=True, eq=False)
class Categories:
    """The categories of an attribute, or of a cross of attributes such as sex×race.

    ``codes``, int64 of shape (n,), are those of ``levels``; ``known`` and ``compared``, bool of
    shape (n_levels,), say which are known, and which take part in ratios and differences.
    """

    codes: np.ndarray
    levels: tuple[str, ...]
    known: np.ndarray
    compared: np.ndarray

    def find_few(self, minimum: int) -> np.ndarray:
        """Return which levels have fewer rows than the minimum, bool."""
        return np.asarray(np.bincount(self.codes, minlength=len(self.levels)) < minimum)


def _count_values(column: pd.Series, values: Sequence[str]) -> dict[str, int]:
    return {value.replace(" ", "_"): int((column == value).sum()) for value in values}


def check_known(config: AuditConfig) -> Outline:
    """Return what is audited; ConfigError for a column or the measure of a limit that is not there.

    No row is read.
    """
    found = outline(config)
    limited = list_limited(found)
    for key in config.limit:
        name, _, group = key.partition(":")
        if name not in limited:
            raise ConfigError(
                f"--limit names {name!r}, which this audit does not measure or which is neither "
                "better nor worse.",
                nearest(name, limited),
            )
        known, attribute = list_groups(limited[name], found), group.partition("=")[0]
        if group and attribute not in known:
            raise ConfigError(
                f"--limit {key} names the groups {attribute!r}.", nearest(attribute, known)
            )
    return found


def list_limited(found: Outline) -> dict[str, Measure]:
    """Return the measures that can have a limit, by name."""
    views = list_views(found)
    listed = {new: MEASURES.find(old) for names in views.values() for old, new in names.items()}
    listed |= list_individual(found.sets)
    listed |= list_certified(labelled=found.labelled) if found.metric else {}
    return {name: each for name, each in listed.items() if each.direction != "none"}


def list_groups(limited: Measure, found: Outline) -> Sequence[str]:
    """Return the attributes, counterfactual sets or budgets that a limit can name."""
    if limited.needs & CERTIFIED:
        return ["budget"]
    return found.sets if limited.name in list_individual(found.sets) else found.attributes


def list_views(found: Outline) -> dict[str, dict[str, str]]:
    """Return what is measured of which decisions and labels: view -> measure -> its name there."""
    task = "regression" if found.numeric else "binary"
    by_group: set[str] = {"group", "decision"}
    binary = [each for each in MEASURES.all().values() if "binary" in each.task]

    def name_family(rates: Mapping[str, str]) -> dict[str, str]:
        return {
            each.name: new + each.name.removeprefix(old)
            for old, new in rates.items()
            for each in binary
            if each.needs <= by_group and re.fullmatch(rf"{old}(_.*)?", each.name)
        }

    views: dict[str, dict[str, str]] = {}
    if found.decided:
        views["decision"] = name_family({"selection_rate": "selection_rate"})
    if found.decided and found.labelled:
        names = [each.name for each in binary if each.needs <= by_group]
        views["outcome"] = {name: name for name in names if name not in views["decision"]}
        views["exchanged"] = name_family(EXCHANGED)
    if found.scored:
        needs = {"score", "group"} | ({"decision"} if found.decided else set())
        views["score"] = {
            each.name: each.name
            for each in MEASURES.all().values()
            if task in each.task
            and each.needs <= needs
            and (found.numeric or "score" in each.needs)
            and (found.labelled or each.name in UNLABELLED)
        }
        views["median"] = name_family(ABOVE_MEDIAN)
    return views


def run_known_audit(config: AuditConfig, progress: Progress | None = None) -> KnownFindings:
    """Compare the groups of a table in what was decided, or in their scores.

    Parameters
    ----------
    config : AuditConfig
        Which table, and which limits.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.

    Returns
    -------
    KnownFindings
        Independent of the order of the table's rows.

    Raises
    ------
    ConfigError
        When a file or a column does not exist, or a limit is on what is not measured.
    DataError
        For a cell that cannot be used, and for more than ``LEVELS_AT_MOST`` crossed categories.

    Notes
    -----
    O(n log n), memory about 100 bytes a row.
    """
    report = progress or (lambda *_: None)
    found = check_known(config)
    subject = read_subject(config, found.groups, lambda share: report(READING, share))
    report(READING, 1.0)
    findings = compare_groups(subject, found, config)
    report(COMPARING, 1.0)
    return findings


def compare_groups(subject: Subject, found: Outline, config: AuditConfig) -> KnownFindings:
    """Return what holds of the rows; see `run_known_audit`."""
    rows, favoured = subject.rows, subject.rows.favour()
    chosen: dict[str, np.ndarray] = {}
    median = None
    if favoured.decision is not None:
        chosen["selection_rate"] = favoured.decision
    if favoured.score is not None:
        median = find_median(favoured.score, rows.weight)
        chosen["scoring_rate"] = (favoured.score > median).astype(np.float64)
    groups = cross_groups(rows)
    tables: dict[tuple[str, str], pd.DataFrame] = {}
    for attribute, each in groups.items():
        for measure, decision in chosen.items():
            impact = count_impact(each, decision, rows.weight, config)
            tables[measure, attribute] = pool_small(impact, impact["status"] == TOO_FEW)
            # The same for both rates.
            groups[attribute] = replace(each, compared=(impact["status"] == COMPARED).to_numpy())
    impact = pd.concat(
        {key: tables[key] for key in product(chosen, groups)}, names=["measure", "attribute", None]
    )
    measures = pd.concat(
        [
            *measure_groups(subject, found, groups, chosen, config),
            *(each for each in (subject.individual, subject.similar) if not each.empty),
        ],
        ignore_index=True,
    )
    limits = judge_limits(config, found, measures)
    # Counts alone, such as the positive rows of a level, would tell of its few rows.
    hidden, rated = list[str](), list[str]()
    for attribute, each in groups.items():
        for code in np.flatnonzero(each.find_few(config.minimum)):
            of_few = rated if each.compared[code] else hidden
            of_few.append(f"{attribute}={each.levels[code]}")
    group = measures["group"]
    shown = ~group.isin(hidden + rated) | (group.isin(rated) & measures["measure"].isin(chosen))
    return KnownFindings(
        config,
        subject.facts,
        rows.weight.size,
        median,
        impact.reset_index(["measure", "attribute"]).reset_index(drop=True),
        compare_scores(favoured, groups, config.minimum, subject.units),
        measures[shown].reset_index(drop=True),
        calibrate(rows, groups, config.minimum),
        subject.individual,
        limits,
        found.numeric,
        subject.similar,
    )


def measure_groups(
    subject: Subject,
    found: Outline,
    groups: Mapping[str, Categories],
    chosen: Mapping[str, np.ndarray],
    config: AuditConfig,
) -> list[pd.DataFrame]:
    """Return the measures of all rows, of every level, and of the levels that are compared.

    ``chosen`` are the favourable decisions and the scores above the median, by the rate of them.
    """
    rows, views = subject.rows, list_views(found)
    nothing = np.zeros(rows.weight.size, dtype=np.int64)
    decision = nothing.astype(np.float64) if rows.decision is None else rows.decision
    score = nothing.astype(np.float64) if rows.score is None else rows.score
    y = nothing if rows.y is None else rows.y
    own = Prediction(score, decision)
    given = dict.fromkeys(views, (own, y))
    for view, rate, labels in (
        ("decision", "selection_rate", y),
        ("median", "scoring_rate", nothing),
    ):
        if view in views:
            given[view] = replace(own, decision=chosen[rate]), labels
    if "exchanged" in views:
        given["exchanged"] = replace(own, decision=y.astype(np.float64)), decision.astype(np.int64)
        if not np.isin(decision, (0, 1)).all():
            del views["exchanged"]
    if subject.prediction is not None:
        targets = nothing.astype(np.float64) if subject.targets is None else subject.targets
        given["score"] = subject.prediction, targets
    elif found.scored and (score.min() < 0 or score.max() > 1):
        views["score"] = {name: name for name in RANKED if name in views["score"]}
    return [
        _measure_view(
            *given[view],
            names,
            rows.weight,
            groups,
            # Categories that impact ratios compare have a rate, whatever their number of rows.
            config.least if view in ("decision", "median") else config.minimum,
            () if view == "score" and found.numeric else ("0", "1"),
            subject.units,
        )
        for view, names in views.items()
    ]


def _measure_view(
    prediction: Prediction,
    y: np.ndarray,
    names: Mapping[str, str],
    weight: np.ndarray,
    groups: Mapping[str, Categories],
    minimum: int,
    classes: tuple[str, ...],
    units: tuple[float, float],
) -> pd.DataFrame:
    by_group = [name for name in names if "group" in MEASURES.find(name).needs]
    overall = [name for name in names if name not in by_group]
    everyone = make_part(y, weight, classes=classes, units=units)
    tables = [tabulate(prediction, everyone, overall, minimum=minimum)]
    for attribute, each in groups.items():
        part = make_part(y, weight, attribute, each.codes, each.levels, classes, units)
        table = tabulate(prediction, part, list(names), minimum=minimum)
        tables.append(table[table["group"].str.contains("=", regex=False)])
        levels = tuple(np.array(each.levels, dtype=object)[each.compared])
        if len(levels) > 1:
            kept = np.flatnonzero(each.compared[each.codes])
            codes = np.cumsum(each.compared)[each.codes[kept]] - 1
            part = make_part(y[kept], weight[kept], attribute, codes, levels, classes, units)
            values = None if prediction.components is None else prediction.components[kept]
            taken = replace(
                prediction,
                score=prediction.score[kept],
                decision=prediction.decision[kept],
                components=values,
            )
            table = tabulate(taken, part, by_group, minimum=minimum)
            table = table[table["group"] == attribute]
            # Few rows of a label, or of all of them.
            left_out = table["left_out"] + int((~each.compared).sum())
            tables.append(table.assign(left_out=left_out))
    found = pd.concat(tables, ignore_index=True)
    return found.assign(measure=found["measure"].map(names))


def cross_groups(rows: AuditRows) -> dict[str, Categories]:
    """Return the categories of each attribute, and of the cross of every two."""
    if twice := repeated([*rows.attributes, *map("×".join, combinations(rows.attributes, 2))]):
        raise ConfigError(
            f"Every two groups are crossed, and two would be named {twice[0]!r}.",
            "Name fewer columns with --groups, or rename one.",
        )
    own = {
        name: (rows.codes[:, i], levels) for i, (name, levels) in enumerate(rows.attributes.items())
    }
    groups: dict[str, tuple[np.ndarray, tuple[tuple[str, ...], ...]]] = {
        name: (codes, tuple((level,) for level in levels)) for name, (codes, levels) in own.items()
    }
    groups |= {"×".join(names): cross([own[n] for n in names]) for names in combinations(own, 2)}
    for name, (_, levels) in groups.items():
        if len(levels) > LEVELS_AT_MOST:
            raise DataError(
                f"{name} has {len(levels)} categories, more than {LEVELS_AT_MOST}.",
                "Name fewer columns with --groups, or merge their levels first.",
            )
    return {
        name: Categories(
            codes,
            name_cells(levels, name),
            np.array([UNKNOWN not in parts for parts in levels]),
            np.zeros(len(levels), dtype=bool),
        )
        for name, (codes, levels) in groups.items()
    }


def pool_small(table: pd.DataFrame, few: np.ndarray | pd.Series) -> pd.DataFrame:
    """Return a table of an attribute's levels with those of few rows, which have no rate, as one.

    Rows of no known level are counted apart all the same.
    """
    small = few & (table["level"] != UNKNOWN)
    if not small.any():
        return table
    one = table[small].tail(1).assign(level=name_pool(int(small.sum())))
    for name in {"n", "share"} & {*table.columns}:
        one[name] = table.loc[small, name].sum()
    return pd.concat([table[~small], one], ignore_index=True)


def find_unit(score: np.ndarray) -> float:
    """Return a power of two by which scores are divided to be summed and squared; 1 for most."""
    largest = float(np.abs(score).max(initial=0.0))
    return 1.0 if largest < HUGE else float(2.0 ** (math.frexp(largest)[1] - 1))


def compare_scores(
    rows: AuditRows,
    groups: Mapping[str, Categories],
    minimum: int,
    units: tuple[float, float] = (0.0, 1.0),
) -> pd.DataFrame:
    """Return means of the scores by level, in ``units`` of `Part`, and standardised differences."""
    columns = ("attribute", "level", "n", "mean", "deviation", "difference", "low", "high")
    if rows.score is None:
        return pd.DataFrame(columns=list(columns))
    tables = []
    unit = find_unit(rows.score)
    score = rows.score / unit
    for attribute, each in groups.items():
        size, few = len(each.levels), each.find_few(minimum) & ~each.compared
        n = np.bincount(each.codes, minlength=size)
        mass = np.bincount(each.codes, rows.weight, size)
        persons = divide(mass**2, np.bincount(each.codes, rows.weight**2, size))
        mean = divide(np.bincount(each.codes, rows.weight * score, size), mass)
        spread = rows.weight * (score - mean[each.codes]) ** 2
        mean[few] = np.nan
        variance = divide(np.bincount(each.codes, spread, size), mass)
        variance *= divide(persons, np.where(persons > 1 + 1e-9, persons - 1, 0.0))
        variance[few] = np.nan
        table = pd.DataFrame({"attribute": attribute, "level": each.levels, "n": n})
        table["mean"] = units[0] + units[1] * (mean * unit)
        table["deviation"] = units[1] * (np.sqrt(variance) * unit)
        table[["difference", "low", "high"]] = np.nan
        if each.compared.any():
            best = int(np.argmax(np.where(each.compared, mean, -np.inf)))
            difference = standardise(mean, variance, persons, best)
            for name, column in zip(("difference", "low", "high"), difference, strict=True):
                table[name] = column
            table.loc[best, ["low", "high"]] = np.nan
        tables.append(pool_small(table, few))
    return pd.concat(tables, ignore_index=True)


def calibrate(rows: AuditRows, groups: Mapping[str, Categories], minimum: int) -> pd.DataFrame:
    """Return the share of positive labels by tenths of the scores, of all rows and every level.

    Tenths in which a level has fewer rows than the minimum are left out. Weighted; Wilson's
    intervals take Kish's effective size.
    """
    columns = ("attribute", "level", "score_low", "score_high", "n", "score", "positive", "low")
    if rows.score is None or rows.y is None:
        return pd.DataFrame(columns=[*columns, "high"])
    tables = []
    unit = find_unit(rows.score)
    scaled = rows.score / unit
    edges = np.unique(np.quantile(scaled, np.linspace(0, 1, BINS + 1)))
    tenth = np.clip(np.searchsorted(edges, scaled, side="left") - 1, 0, None)
    bins = max(edges.size - 1, 1)
    everyone = Categories(np.zeros_like(tenth), ("",), np.ones(1, bool), np.ones(1, bool))
    for attribute, each in {"": everyone, **groups}.items():
        size = bins * len(each.levels)
        cell = each.codes * bins + tenth
        n = np.bincount(cell, minlength=size)
        total, squares, score, positive = (
            np.bincount(cell, weight, size)
            for weight in (rows.weight, rows.weight**2, rows.weight * scaled, rows.weight * rows.y)
        )
        share = np.where(n >= minimum, divide(positive, total), np.nan)
        low, high = wilson(share, divide(total**2, squares))
        table = {
            "attribute": attribute,
            "level": np.repeat(np.array(each.levels, dtype=object), bins),
            "score_low": np.tile(edges[:bins] * unit, len(each.levels)),
            "score_high": np.tile(edges[-bins:] * unit, len(each.levels)),
            "n": n,
            "score": np.where(n >= minimum, divide(score, total) * unit, np.nan),
            "positive": share,
            "low": low,
            "high": high,
        }
        tables.append(pd.DataFrame(table)[(n >= minimum) | (attribute == "")])
    return pd.concat(tables, ignore_index=True)


def judge_limits(config: AuditConfig, found: Outline, measures: pd.DataFrame) -> pd.DataFrame:
    """Return for every limit the value that it is on, and whether that is within it.

    A limit without a group is on all rows, on every attribute and their cross, or on every
    counterfactual set.
    """
    judged: list[tuple[str, str, float, float, str]] = []
    limited = list_limited(found)
    for key, bound in config.limit.items():
        name, _, group = key.partition(":")
        values = measures.loc[measures["measure"] == name].set_index("group")["value"]
        levels = [each for each in values.index if "=" in each]
        by_group = bool(limited[name].needs & {"group", *OF_VERSIONS, *CERTIFIED})
        if "=" in group and group not in levels:
            raise ConfigError(f"--limit {key} names no category.", nearest(group, levels))
        if by_group and not group and len(levels) == len(values) > 0:
            raise ConfigError(f"{name} is by category.", f"Name one: --limit {name}:{levels[0]}=…")
        wanted = list_groups(limited[name], found) if by_group else [""]
        for each in [group] if group else wanted:
            value = float(values.get(each, np.nan))
            judged.append((key, each, value, bound, judge(value, bound, limited[name].direction)))
    return pd.DataFrame(judged, columns=["limit", "group", "value", "bound", "verdict"])


def judge(value: float, bound: float, direction: Direction) -> str:
    """Return whether a value is within its limit: a least value where higher is better."""
    if np.isnan(value):
        return NOT_ESTIMABLE
    beyond = bound - value if direction == "higher" else abs(value) - bound
    return EXCEEDED if beyond > SLACK else WITHIN


def tabulate_impact(
    n: np.ndarray,
    selected: np.ndarray,
    known: np.ndarray,
    *,
    minimum: int = 10,
    least: int = 1,
    exclude_below: float = 0.02,
    weight: np.ndarray | None = None,
    size: np.ndarray | None = None,
) -> pd.DataFrame:
    """Compare every category with the one that has the highest rate.

    The rate of a category is selected / n, or selected / weight, and its impact ratio that rate
    over the highest one among the categories that are compared: those that are known, and have at
    least the share ``exclude_below`` of all persons. A rate with the lowest or highest score is the
    same with "selected" read as "scored above the median of the sample".

    Parameters
    ----------
    n : ndarray of int64, shape (n_categories,)
        Persons.
    selected : ndarray of float64, shape (n_categories,)
        Persons who were selected; the expected number under a randomised rule. Where persons have
        weights, their sum.
    known : ndarray of bool, shape (n_categories,)
        False for persons whose category is unknown, who are counted apart.
    minimum, least : int
        With fewer persons than the minimum a category that is left out or unknown has no rate, and
        with fewer than the least no category has one.
    exclude_below : float
        Categories of a smaller share are left out of the ratios; their rate is given all the same.
    weight, size : ndarray of float64, shape (n_categories,), optional
        Sums of case weights, scaled to those of n, and how many unweighted persons would give
        the rate the same variance; without them each person counts as one.

    Returns
    -------
    DataFrame
        A row for each category; NaN, and NA of flags, where not estimable:

        - n, selected, share (of all persons), status (one of `STATUSES`);
        - rate, low, high: with Wilson's 95% interval;
        - ratio, ratio_low, ratio_high: the impact ratio with its 95% interval (Katz et al.). Of
          excluded and unknown categories too, but no flag or limit rests on these;
        - four_fifths: whether the rate is below four fifths of the highest; to_four_fifths: how
          many more selected persons would have met it;
        - deviations: difference of the two rates in standard deviations, from the pooled rate;
          p_value: two-sided, of the normal approximation; two_deviations: whether the rate is that
          far below; small_sample: fewer than 30 persons in either; fisher_p: of Fisher's exact
          test, two-sided;
        - shortfall: selected persons fewer than if both categories had their pooled rate;
        - detectable: the smallest difference below the highest rate that the test of two standard
          deviations would show in 80% of samples of these sizes.

    Notes
    -----
    Tests are of whole persons: under a randomised rule, and with case weights, they are not
    estimable. Intervals and tests take the category of the highest rate as given in advance.
    O(n_categories), times the logarithm of n for Fisher's test.

    References
    ----------
    6 RCNY 5-301. 29 CFR 1607.4(D). Castaneda v. Partida, 430 U.S. 482, 496 n. 17 (1977). Katz,
    Baptista, Azen and Pike, "Obtaining confidence intervals for the risk ratio in cohort studies",
    1978. Fleiss, Levin and Paik, "Statistical methods for rates and proportions", 2003, chapter 4.

    Examples
    --------
    >>> table = tabulate_impact(np.array([80, 40]), np.array([48.0, 12.0]), np.array([True, True]))
    >>> table["ratio"].tolist()
    [1.0, 0.5]
    """
    mass = n.astype(np.float64) if weight is None else weight
    persons = mass if size is None else size
    share = divide(mass, np.full(n.size, mass.sum()))
    out = share < exclude_below
    # 6 RCNY 5-301 leaves out no category for its few persons alone.
    few = (n < np.where(known & ~out, least, minimum)) | (mass <= 0)
    status = np.select([~known, few, out], [UNKNOWN, TOO_FEW, EXCLUDED], COMPARED)
    selected = np.where(few, np.nan, selected)
    rate = np.where(few, np.nan, divide(selected, mass))
    low, high = wilson(rate, persons)
    table = pd.DataFrame(
        {
            "n": n,
            "selected": selected,
            "share": share,
            "status": status.astype(str),
            "rate": rate,
            "low": low,
            "high": high,
        }
    )
    compared = np.flatnonzero(status == COMPARED)
    # Of equal rates the one with the most persons.
    order = sorted(compared, key=lambda i: (-rate[i], -n[i]))
    compare = _compare if weight is None else _compare_weighted
    cells = list(zip(selected.tolist(), mass.tolist(), persons.tolist(), n.tolist(), strict=True))
    rows = [
        compare(cells[i], cells[order[0]]) if order and not few[i] else UNCOMPARED
        for i in range(n.size)
    ]
    if order:
        rows[order[0]] |= dict.fromkeys(("ratio_low", "ratio_high", "detectable"), np.nan)
    comparison = pd.DataFrame(rows, columns=list(UNCOMPARED))
    # With a third value, for what is not estimable.
    return table.join(comparison.astype(dict.fromkeys(FLAGS, "boolean")))


FLAGS = ("four_fifths", "two_deviations", "small_sample")
UNCOMPARED = {
    "ratio": np.nan,
    "ratio_low": np.nan,
    "ratio_high": np.nan,
    "four_fifths": None,
    "to_four_fifths": np.nan,
    "deviations": np.nan,
    "p_value": np.nan,
    "two_deviations": None,
    "small_sample": None,
    "fisher_p": np.nan,
    "shortfall": np.nan,
    "detectable": np.nan,
}


def count_impact(
    groups: Categories, decision: np.ndarray, weight: np.ndarray, config: AuditConfig
) -> pd.DataFrame:
    """Return `tabulate_impact` of rows' decisions by level, weighted where their weights differ.

    ``decision`` are the probabilities of being selected. O(n).
    """
    codes, size = groups.codes, groups.known.size
    compare = partial(
        tabulate_impact,
        known=groups.known,
        minimum=config.minimum,
        least=config.least,
        exclude_below=config.exclude_below,
    )
    n = np.bincount(codes, minlength=size)
    if np.ptp(weight) == 0:
        table = compare(n, np.bincount(codes, decision, size))
    else:
        weight = weight * (weight.size / weight.sum())
        mass, squares, selected = (
            np.bincount(codes, term, size) for term in (weight, weight**2, weight * decision)
        )
        rate = divide(selected, mass)
        spread = np.bincount(codes, (weight * (decision - rate[codes])) ** 2, size)
        persons = effective_size(rate, divide(spread, mass**2), divide(mass**2, squares), n)
        table = compare(n, selected, weight=mass, size=persons)
    table.insert(0, "level", groups.levels)
    return table


# Selected, all, and effective persons of a category, and its rows.
Cell = tuple[float, float, float, int]
Row = dict[str, float | bool | None]


def _compare_weighted(own: Cell, other: Cell) -> Row:
    """Return the columns of a category against the best one that need no whole persons."""
    (x, n, size, rows), (best, n_best, size_best, rows_best) = own, other
    row: Row = dict(UNCOMPARED)
    row["shortfall"] = n * (x + best) / (n + n_best) - x
    row["small_sample"] = min(rows, rows_best) < SMALL_SAMPLE
    if best > 0:
        rate, highest = x / n, best / n_best
        row["ratio"] = rate / highest
        # Weighted sums are rounded.
        row["four_fifths"] = bool(5 * rate < 4 * highest * (1 - 1e-12))
        if x > 0:
            variance = (1 / rate - 1) / size + (1 / highest - 1) / size_best
            half = Z * np.sqrt(max(variance, 0.0))
            row["ratio_low"], row["ratio_high"] = row["ratio"] * np.exp([-half, half])
    return row


def _compare(own: Cell, other: Cell) -> Row:
    """Return the columns of a category, of whose n persons x are selected, against the best one."""
    row = _compare_weighted(own, other)
    (x, *_, n), (best, *_, n_best) = own, other
    row["detectable"] = find_detectable(n, n_best, best / n_best)
    if best > 0:
        # Products of whole numbers are exact, quotients are not.
        row["four_fifths"] = bool(5 * x * n_best < 4 * best * n)
    if x.is_integer() and best.is_integer():
        x, best = int(x), int(best)
        row["to_four_fifths"] = float(max(-(-4 * best * n // (5 * n_best)) - x, 0))
        deviations = count_deviations(x, n, best, n_best)
        row["deviations"] = deviations
        row["p_value"] = float(2 * norm.sf(abs(deviations)))
        row["two_deviations"] = bool(deviations <= -DEVIATIONS)
        row["fisher_p"] = float(fisher_exact([[x, n - x], [best, n_best - best]]).pvalue)
    return row


def count_deviations(x: int, n: int, other: int, n_other: int) -> float:
    """Return (x/n − other/n_other)/sqrt(p(1 − p)(1/n + 1/n_other)), p pooled; 0 where p is 0 or 1.

    Without a correction for continuity.
    """
    pooled = (x + other) / (n + n_other)
    variance = pooled * (1 - pooled) * (1 / n + 1 / n_other)
    return float((x / n - other / n_other) / np.sqrt(variance)) if variance > 0 else 0.0


def find_detectable(n: int, n_best: int, best: float) -> float:
    """Return the least d for which a rate best − d is found to be lower in 80% of samples.

    By the test of two standard deviations: d = 2·sqrt(p(1 − p)(1/n + 1/n_best)) + z·sqrt(q(1 − q)/n
    + best(1 − best)/n_best), with q = best − d, p the pooled rate and P(N(0, 1) ≤ z) = 0.8. NaN
    where not even q = 0 would be found.
    """

    def excess(d: float) -> float:
        q = best - d
        pooled = (n * q + n_best * best) / (n + n_best)
        null = pooled * (1 - pooled) * (1 / n + 1 / n_best)
        own = q * (1 - q) / n + best * (1 - best) / n_best
        return float(d - DEVIATIONS * np.sqrt(max(null, 0)) - ndtri(POWER) * np.sqrt(max(own, 0)))

    if not excess(best) > 0:
        return np.nan
    # At d = 0 the excess may be 0 itself.
    return float(brentq(excess, 1e-9 * best, best))


def standardise(
    mean: np.ndarray, variance: np.ndarray, n: np.ndarray, best: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return standardised mean differences to the category ``best``, with 95% intervals.

    d = (mean − mean_best)/s, with s² = ((n − 1)·variance + (n_best − 1)·variance_best)/(n + n_best
    − 2); its standard error is sqrt(1/n + 1/n_best + d²/(2(n + n_best))). NaN where s is 0 or
    infinite. ``n`` are effective persons where they have weights.

    References
    ----------
    Cohen, "Statistical power analysis for the behavioral sciences", 1988. Hedges and Olkin,
    "Statistical methods for meta-analysis", 1985, section 5.
    """
    # One person has no variance, and counts for none.
    variance = np.where(n > 1, variance, 0.0)
    degrees = np.maximum(n + n[best] - 2, 1)
    pooled = ((n - 1) * variance + (n[best] - 1) * variance[best]) / degrees
    difference = mean - mean[best]
    d = divide(difference, np.sqrt(np.where(np.isfinite(pooled), pooled, np.nan)))
    half = Z * np.sqrt(1 / np.maximum(n, 1) + 1 / n[best] + d**2 / (2 * (n + n[best])))
    return d, d - half, d + half


def find_median(score: np.ndarray, weight: np.ndarray) -> float:
    """Return the median score: where weights differ the least with half of the weight up to it."""
    if np.ptp(weight) == 0:
        return float(np.median(score))
    return float(np.quantile(score, 0.5, weights=weight, method="inverted_cdf"))
