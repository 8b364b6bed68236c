"""The audit of decisions or scores by groups that are taken as they are, without noise."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.auditing.figure import draw_calibration, draw_impact
from fairfrontier.auditing.impact import (
    COMPARED,
    STATUSES,
    TOO_FEW,
    Categories,
    count_impact,
    cross_groups,
    find_median,
    pool_small,
    standardise,
)
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
from fairfrontier.metrics.statistic.interval import wilson
from fairfrontier.metrics.statistic.rate import Direction, divide
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.table.role import AuditRows
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.text_file import list_rows
from fairfrontier.study.drawing import Picture

READING, COMPARING = PASSES = ("reading decisions", "comparing groups")
BINS = 10
# Squares of larger scores, and sums of them, may be infinite.
HUGE = 1e100
# Measures of scores that need no probabilities, and those that need no labels.
RANKED, UNLABELLED = ("auc", "disparity"), ("disparity", "subgroup_bias_floor")
UNLABELLED_NUMBERS = ("disparity", "mean_prediction")
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
SHOWN_NUMBERS = ("absolute_loss", "square_loss", "disparity")


@dataclass(frozen=True, eq=False)
class PlainFindings(Findings):
    """What an audit without noise found.

    Attributes
    ----------
    n_samples : int
        Audited rows.
    median : float or None
        The median score; None without scores.
    impact : DataFrame
        `tabulate_impact` for every attribute, and their cross, after the columns measure
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

    page = Path(__file__).with_name("plain.html.j2")

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
                **{
                    status.replace(" ", "_"): int((categories["status"] == status).sum())
                    for status in STATUSES
                },
                "below_four_fifths": int(below.sum()),
                "limits": len(self.limits),
                **{
                    verdict.replace(" ", "_"): int((self.limits["verdict"] == verdict).sum())
                    for verdict in (EXCEEDED, NOT_ESTIMABLE)
                },
            },
            "limits": list_rows(self.limits),
            "impact": list_rows(impact),
            "scores": list_rows(self.scores),
            "measures": list_rows(self.measures.loc[~levels]),
        }

    def context(self) -> dict[str, Any]:
        """Return what the report shows by attribute, and the rates by category that it shows."""
        shown, suffix = (SHOWN_NUMBERS, "_max") if self.numeric else (SHOWN, "_difference")
        names = {f"{name}{end}": name for name in shown for end in ("", suffix)}
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


def check_plain(config: AuditConfig) -> Outline:
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
        known = list_groups(limited[name], found)
        attribute = group.partition("=")[0]
        if group and attribute not in known:
            raise ConfigError(
                f"--limit {key} names the groups {attribute!r}.", nearest(attribute, known)
            )
    return found


def list_limited(found: Outline) -> dict[str, Measure]:
    """Return the measures that can have a limit, by name."""
    views = (
        list_number_measures(labelled=found.labelled)
        if found.numeric
        else list_measures(decided=found.decided, labelled=found.labelled, scored=found.scored)
    )
    listed = {new: MEASURES.find(old) for names in views.values() for old, new in names.items()}
    listed |= list_individual(found.sets)
    listed |= list_certified(labelled=found.labelled) if found.metric else {}
    return {name: each for name, each in listed.items() if each.direction != "none"}


def list_groups(limited: Measure, found: Outline) -> Sequence[str]:
    """Return the attributes, counterfactual sets or budgets that a limit can name."""
    if limited.needs & CERTIFIED:
        return ["budget"]
    return found.sets if limited.name in list_individual(found.sets) else found.attributes


def run_plain_audit(config: AuditConfig, progress: Progress | None = None) -> PlainFindings:
    """Compare the groups of a table in what was decided, or in their scores.

    Parameters
    ----------
    config : AuditConfig
        Which table, and which limits.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.

    Returns
    -------
    PlainFindings
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
    found = check_plain(config)
    subject = read_subject(config, found.groups, lambda share: report(READING, share))
    report(READING, 1.0)
    findings = compare_groups(subject, found, config)
    report(COMPARING, 1.0)
    return findings


def compare_groups(subject: Subject, found: Outline, config: AuditConfig) -> PlainFindings:
    """Return what holds of the rows; see `run_plain_audit`."""
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
            impact = count_impact(
                each.codes,
                decision,
                rows.weight,
                each.known,
                minimum=config.minimum,
                least=config.least,
                exclude_below=config.exclude_below,
            )
            impact.insert(0, "level", each.levels)
            tables[measure, attribute] = pool_small(impact, impact["status"] == TOO_FEW)
            # The same for both rates.
            groups[attribute] = replace(each, compared=(impact["status"] == COMPARED).to_numpy())
    impact = pd.concat(
        {key: tables[key] for key in product(chosen, groups)}, names=["measure", "attribute", None]
    )
    measures = (
        measure_groups(rows, groups, config.minimum, config.least)
        if subject.prediction is None
        else measure_numbers(
            subject.prediction, subject.targets, rows, groups, config.minimum, config.least
        )
    )
    more = [each for each in (subject.individual, subject.similar) if not each.empty]
    measures = pd.concat([measures, *more], ignore_index=True)
    limits = judge_limits(config, found, measures)
    # Counts alone, such as the positive rows of a level, would tell of its few rows.
    hidden, rated = list[str](), list[str]()
    for attribute, each in groups.items():
        for code in np.flatnonzero(each.find_few(config.minimum)):
            of_few = rated if each.compared[code] else hidden
            of_few.append(f"{attribute}={each.levels[code]}")
    group = measures["group"]
    shown = ~group.isin(hidden + rated) | (group.isin(rated) & measures["measure"].isin(chosen))
    return PlainFindings(
        config,
        subject.facts,
        rows.weight.size,
        median,
        impact.reset_index(["measure", "attribute"]).reset_index(drop=True),
        compare_scores(favoured, groups, config.minimum),
        measures[shown].reset_index(drop=True),
        calibrate(rows, groups, config.minimum),
        subject.individual,
        limits,
        found.numeric,
        subject.similar,
    )


def list_measures(*, decided: bool, labelled: bool, scored: bool) -> dict[str, dict[str, str]]:
    """Return what is measured of which decisions and labels: view -> measure -> its name there."""
    binary = [measure for measure in MEASURES.all().values() if "binary" in measure.task]
    by_group: set[str] = {"group", "decision"}

    def name_family(rates: Mapping[str, str]) -> dict[str, str]:
        return {
            each.name: new + each.name.removeprefix(old)
            for old, new in rates.items()
            for each in binary
            if each.needs <= by_group and re.fullmatch(rf"{old}(_.*)?", each.name)
        }

    views: dict[str, dict[str, str]] = {}
    if decided:
        views["decision"] = name_family({"selection_rate": "selection_rate"})
    if decided and labelled:
        names = [each.name for each in binary if each.needs <= by_group]
        views["outcome"] = {name: name for name in names if name not in views["decision"]}
        views["exchanged"] = name_family(EXCHANGED)
    if scored:
        needs = {"score", "group"} | ({"decision"} if decided else set())
        names = [each.name for each in binary if "score" in each.needs and each.needs <= needs]
        views["score"] = {name: name for name in names if labelled or name in UNLABELLED}
        views["median"] = name_family(ABOVE_MEDIAN)
    return views


def list_number_measures(*, labelled: bool) -> dict[str, dict[str, str]]:
    """Return what is measured of predictions of numbers, as `list_measures` does."""
    regression = [each for each in MEASURES.all().values() if "regression" in each.task]
    names = [each.name for each in regression if each.needs <= {"score", "group"}]
    kept = {name: name for name in names if labelled or name in UNLABELLED_NUMBERS}
    binary = list_measures(decided=False, labelled=False, scored=True)
    return {"number": kept, "median": binary["median"]}


def measure_numbers(
    prediction: Prediction,
    targets: np.ndarray | None,
    rows: AuditRows,
    groups: Mapping[str, Categories],
    minimum: int,
    least: int,
) -> pd.DataFrame:
    """Return measures of predictions of numbers, and of which of them are above the median."""
    views = list_number_measures(labelled=targets is not None)
    score = prediction.score
    above = Prediction(score, (score > find_median(score, rows.weight)).astype(np.float64))
    y = np.zeros(score.size) if targets is None else targets
    nothing = np.zeros(score.size, dtype=np.int64)
    tables = [
        _measure_view(prediction, y, views["number"], rows, groups, minimum, ()),
        _measure_view(above, nothing, views["median"], rows, groups, least),
    ]
    return pd.concat(tables, ignore_index=True)


def measure_groups(
    rows: AuditRows, groups: Mapping[str, Categories], minimum: int, least: int
) -> pd.DataFrame:
    """Return the measures of all rows, of every level, and of the levels that are compared."""
    views = list_measures(
        decided=rows.decision is not None,
        labelled=rows.y is not None,
        scored=rows.score is not None,
    )
    n = rows.weight.size
    decision = np.zeros(n) if rows.decision is None else rows.decision
    score = np.zeros(n) if rows.score is None else rows.score
    y = np.zeros(n, dtype=np.int64) if rows.y is None else rows.y
    given = dict.fromkeys(("decision", "outcome", "score"), (decision, y))
    favoured = rows.favour()
    if favoured.decision is not None:
        given["decision"] = (favoured.decision, y)
    if favoured.score is not None:
        above = favoured.score > find_median(favoured.score, rows.weight)
        given["median"] = (above.astype(np.float64), np.zeros_like(y))
        if score.min() < 0 or score.max() > 1:
            views["score"] = {name: name for name in RANKED if name in views["score"]}
    if "exchanged" in views:
        given["exchanged"] = (y.astype(np.float64), decision.astype(np.int64))
        if not np.isin(decision, (0, 1)).all():
            del views["exchanged"]
    tables = [
        _measure_view(
            Prediction(score, given[view][0]),
            given[view][1],
            names,
            rows,
            groups,
            # Categories that impact ratios compare have a rate, whatever their number of rows.
            least if view in ("decision", "median") else minimum,
        )
        for view, names in views.items()
    ]
    return pd.concat(tables, ignore_index=True)


def _measure_view(
    prediction: Prediction,
    y: np.ndarray,
    names: Mapping[str, str],
    rows: AuditRows,
    groups: Mapping[str, Categories],
    minimum: int,
    classes: tuple[str, ...] = ("0", "1"),
) -> pd.DataFrame:
    by_group = [name for name in names if "group" in MEASURES.find(name).needs]
    overall = [name for name in names if name not in by_group]
    everyone = make_part(y, rows.weight, classes=classes)
    tables = [tabulate(prediction, everyone, overall, minimum=minimum)]
    for attribute, each in groups.items():
        part = make_part(y, rows.weight, attribute, each.codes, each.levels, classes)
        table = tabulate(prediction, part, list(names), minimum=minimum)
        tables.append(table[table["group"].str.contains("=", regex=False)])
        kept = np.flatnonzero(each.compared[each.codes])
        levels = tuple(np.array(each.levels, dtype=object)[each.compared])
        if len(levels) > 1:
            codes = np.cumsum(each.compared)[each.codes[kept]] - 1
            part = make_part(y[kept], rows.weight[kept], attribute, codes, levels, classes)
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


def find_unit(score: np.ndarray) -> float:
    """Return a power of two by which scores are divided to be summed and squared; 1 for most."""
    largest = float(np.abs(score).max(initial=0.0))
    return 1.0 if largest < HUGE else float(2.0 ** (math.frexp(largest)[1] - 1))


def compare_scores(rows: AuditRows, groups: Mapping[str, Categories], minimum: int) -> pd.DataFrame:
    """Return means of the scores by level, and their standardised differences."""
    columns = ("attribute", "level", "n", "mean", "deviation", "difference", "low", "high")
    tables = [pd.DataFrame(columns=list(columns))]
    if rows.score is None:
        return tables[0]
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
        table["mean"], table["deviation"] = mean * unit, np.sqrt(variance) * unit
        table[["difference", "low", "high"]] = np.nan
        if each.compared.any():
            best = int(np.argmax(np.where(each.compared, mean, -np.inf)))
            difference = standardise(mean, variance, persons, best)
            for name, column in zip(("difference", "low", "high"), difference, strict=True):
                table[name] = column
            table.loc[best, ["low", "high"]] = np.nan
        tables.append(pool_small(table, few))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def calibrate(rows: AuditRows, groups: Mapping[str, Categories], minimum: int) -> pd.DataFrame:
    """Return the share of positive labels by tenths of the scores, of all rows and every level.

    Tenths in which a level has fewer rows than the minimum are left out. Weighted; Wilson's
    intervals take Kish's effective size.
    """
    columns = ("attribute", "level", "score_low", "score_high", "n", "score", "positive", "low")
    tables = [pd.DataFrame(columns=[*columns, "high"])]
    if rows.score is None or rows.y is None:
        return tables[0]
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
    return pd.concat(tables[1:], ignore_index=True)


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
