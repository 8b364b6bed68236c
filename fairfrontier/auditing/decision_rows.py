"""The files of a debiasing: decisions, the rule, tables of groups, figures and a report in HTML."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.auditing.debiasing import (
    AFTER,
    BEFORE,
    CALIBRATION,
    DECIDING,
    VALIDATION,
    Debiasing,
    Progress,
    check_config,
    decide_rows,
    read_again,
)
from fairfrontier.auditing.figure import draw_curve, draw_groups, draw_rules
from fairfrontier.auditing.option import DebiasConfig
from fairfrontier.auditing.tally import GIVEN, RATES, Estimate, Tally, describe_doubt
from fairfrontier.models.thresholds.rule import MixtureRule, RampRule
from fairfrontier.models.thresholds.rulebook import Rulebook
from fairfrontier.prepare.table.role import name_cells
from fairfrontier.report.finding import Finding, RowFile, name_pool, write_finding
from fairfrontier.runtime.option import RESULTS
from fairfrontier.study.drawing import Picture

FILES = RESULTS["debias"]
PARTS = (CALIBRATION, VALIDATION)
ALL = "all"
FIGURE_BINS = 50
# With fewer rows the standard error of a rate of ½ exceeds 0.05.
SMALL = 100


def check_options(config: DebiasConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    check_config(config)
    # A rule may be applied in its own folder: it is written again unchanged.
    in_place = config.apply is not None and config.apply.name == "thresholds.json"
    rule = [] if config.apply is None or in_place else [config.apply]
    config.check_results([config.table, *rule], FILES)


def write_debiasing(
    debiasing: Debiasing, folder: Path, started: float, progress: Progress | None = None
) -> dict[str, Any]:
    """Decide on all rows in one pass, write the ``FILES``, and return the content of summary.json.

    Files curve.* are written only where a rule was fitted; ``progress`` is as in `fit_debiasing`.
    Memory is bounded by a batch. See `write_finding`.

    Raises
    ------
    DataError
        When the table has changed since the fit, or has a group that the rule does not know.
    StoreError
        When the folder cannot be written; then no file in it has changed.
    """

    def make(work: Path) -> Debiased:
        debiasing.rulebook.write(work / "thresholds.json")
        return decide_table(debiasing, work / "decisions.parquet", progress)

    return write_finding("debias", folder, make, started)


def decide_table(
    debiasing: Debiasing, decisions: Path, progress: Progress | None = None
) -> Debiased:
    """Write decisions.parquet, in the order of the table, and count what every rule does.

    Columns are id (the row number by default), group, probability (of deciding 1) and decision
    (drawn by seed and id).
    """
    book, rules = debiasing.rulebook, debiasing.rules()
    size = len(book.cells)
    names = pa.array(name_cells(book.cells, "×".join(debiasing.columns.groups)))
    tally = Tally(tuple(rules), PARTS, size, book.draw.seed)
    histogram = np.zeros((size, FIGURE_BINS))
    with RowFile(decisions) as file:
        for batch in read_again(debiasing):
            code, signed, part = decide_rows(debiasing, batch)
            probability = {name: rule.probability(signed, code) for name, rule in rules.items()}
            tally.add(part, code, batch.weight, probability, batch.label)
            bins = np.minimum((signed + 1.0) * (FIGURE_BINS / 2), FIGURE_BINS - 1).astype(np.int64)
            cells = np.bincount(code * FIGURE_BINS + bins, batch.weight, histogram.size)
            histogram += cells.reshape(histogram.shape)
            columns = {
                "id": batch.names,
                "group": pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), names),
                "probability": probability[AFTER],
                "decision": book.decide(probability[AFTER], batch.ids),
            }
            file.write(pa.table(columns))
            if progress is not None:
                progress(DECIDING, batch.share)
    used = [part for part in PARTS if tally.rows((part,)).sum() > 0]
    several = len(used) > 1
    parts = {ALL: PARTS, **({part: (part,) for part in used} if several else {})}
    shown = used[-1] if several else ALL
    return Debiased(debiasing.config, debiasing, tally, histogram, parts, shown)


@dataclass(frozen=True, eq=False)
class Debiased(Finding):
    """What the rules do to the rows of a table.

    ``parts`` maps what is reported on to parts of the tally: ``all``, and the two parts where both
    have rows. ``shown`` is what the report is about, fresh rows where there are any. The histogram
    is the weight in bins of equal width over f ∈ [−1, 1], shape (n_groups, FIGURE_BINS).
    """

    page = Path(__file__).with_name("debias.html.j2")

    debiasing: Debiasing
    tally: Tally
    histogram: np.ndarray
    parts: dict[str, tuple[str, ...]]
    shown: str

    def tabulate(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name."""
        return {"groups": self.groups, "curve": self.curve}

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Rows, rates and accuracy before and after, a row for each part, attribute and level.

        Columns part, attribute, level ("" for all rows), n, and value, ``_low`` and ``_high`` of
        rate_before, rate_after, changed and, where there are labels, base_rate, accuracy_before
        and accuracy_after; under a criterion on error rates true_positive_rate and
        false_positive_rate before and after, as it bounds them. Levels with fewer rows than the
        minimum are one level, and have no rates where they are too few together, or in a part.
        """
        tally, minimum = self.tally, self.config.minimum
        attributes = {"": (self._everyone, ("",)), **self.debiasing.attributes()}
        tables = []
        for (part, parts), (attribute, (codes, levels)) in product(
            self.parts.items(), attributes.items()
        ):
            if attribute:
                codes, levels = _pool(codes, levels, tally.rows(PARTS, codes) < minimum)
            shares = {
                f"{name}_{when}": tally.rates(rule, parts, codes, GIVEN[RATES.index(name)])
                for name in dict.fromkeys(("rate", *self.debiasing.rates))
                for when, rule in (("before", BEFORE), ("after", AFTER))
            }
            shares["changed"] = tally.changes(AFTER, parts, codes)
            if tally.labelled:
                shares["base_rate"] = tally.base_rates(parts, codes)
                shares["accuracy_before"] = tally.accuracies(BEFORE, parts, codes)
                shares["accuracy_after"] = tally.accuracies(AFTER, parts, codes)
            columns: dict[str, Any] = {"part": part, "attribute": attribute, "level": levels}
            columns["n"] = tally.rows(parts, codes)
            for name, rates in shares.items():
                columns |= {name: rates.value, f"{name}_low": rates.low, f"{name}_high": rates.high}
            table = pd.DataFrame(columns)
            if attribute:
                table.loc[table["n"] < minimum, table.columns[4:]] = np.nan
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Bias against accuracy for every ε, and the unmodified classifier in the last row.

        Columns rule, budget (NaN for the unmodified classifier), bias and the objective, such as
        accuracy, or changed (the share of decisions that differ from it) without labels. Empty for
        an earlier rule.
        """
        if self.debiasing.curve.empty:
            return self.debiasing.curve
        curve = self.debiasing.curve.assign(rule=AFTER)
        bias, value = self._find_point(BEFORE)
        if not self.debiasing.labelled:
            # The decisions of the unmodified classifier served as labels.
            curve["changed"] = 1.0 - curve.pop("accuracy")
        measure = self.config.measure
        last = {"rule": BEFORE, "budget": np.nan, "bias": bias.value, measure: value.value}
        curve = pd.concat([curve, pd.DataFrame([last])], ignore_index=True)
        return curve[["rule", "budget", "bias", measure]]

    def draw(self) -> dict[str, Picture]:
        """Return the pictures by name."""
        debiasing, groups, minimum = self.debiasing, self.groups, self.config.minimum
        book, rates = debiasing.rulebook, debiasing.rates
        rows = groups[(groups["part"] == self.shown) & (groups["attribute"] != "")]
        rows = rows[rows["n"] >= minimum]
        counts = self.tally.rows(PARTS)
        shown = np.flatnonzero(counts >= minimum)
        pictures = {}
        if not rows.empty:
            target = book.target.rate if book.target.criterion == "parity" else None
            titles = {rate: title_rate(rate) for rate in rates}
            pictures["groups"] = draw_groups(rows, titles, target)
        if shown.size:
            names = ["×".join(cell) for cell in book.cells]
            rule, scale = book.decision_rule, book.score.scale
            pictures["rules"] = draw_rules(self.histogram, names, counts, shown, rule, scale)
        if not self.curve.empty:
            pictures["curve"] = draw_curve(
                self.curve[self.curve["rule"] == AFTER],
                self._find_point(BEFORE),
                self._find_point(AFTER),
                self.config.measure,
                "×".join(debiasing.columns.groups),
                " or ".join(map(title_rate, rates)),
            )
        return pictures

    @cached_property
    def bias(self) -> list[dict[str, Any]]:
        """The bias between the levels of every attribute, by part and rule."""
        tally, criterion = self.tally, self.debiasing.criterion
        return [
            {"part": part, "attribute": attribute, "rule": rule}
            | asdict(tally.bias(rule, parts, codes, criterion))
            for part, parts in self.parts.items()
            for attribute, (codes, _) in self.debiasing.attributes().items()
            for rule in tally.rules
        ]

    @cached_property
    def overall(self) -> list[dict[str, Any]]:
        """The measures of all rows, by part and rule."""
        tally, rows = self.tally, list[dict[str, Any]]()
        for (part, parts), rule in product(self.parts.items(), tally.rules):
            estimates = {
                "rate": tally.rates(rule, parts, self._everyone).at(0),
                "changed": tally.changes(rule, parts, self._everyone).at(0),
            }
            if tally.labelled:
                estimates["accuracy"] = tally.accuracies(rule, parts, self._everyone).at(0)
                estimates[self.config.measure] = tally.expect(rule, parts, self.config.served)
            plain = {name: asdict(each) for name, each in estimates.items()}
            rows.append({"part": part, "rule": rule, **plain})
        return rows

    def summarise(self) -> dict[str, Any]:
        """Return what was done and the results, as plain values."""
        debiasing, tally, config = self.debiasing, self.tally, self.config
        book = debiasing.rulebook
        counts = tally.rows(self.parts[self.shown])
        return {
            "table": config.table.name,
            "applied": None if config.apply is None else book.input.model_dump(mode="json"),
            "rule": {
                "width": book.rule.width,
                "rate": book.target.rate,
                "budget": book.target.budget,
                "criterion": book.target.criterion,
                "unseen": book.groups.unseen,
                "seed": book.draw.seed,
                "scale": book.score.scale,
            },
            "fit": debiasing.fitted,
            "expected": dict(debiasing.expected),
            # Levels of labels that were counted as 0 beside others.
            "zeros": debiasing.zeros,
            "counts": {
                "rows": int(tally.rows(PARTS).sum()),
                **{part: int(tally.rows(parts).sum()) for part, parts in self.parts.items()},
                "groups": len(book.cells),
                "small_groups": int((counts < SMALL).sum()),
            },
            "reported_on": self.shown,
            "bias": self.bias,
            "overall": self.overall,
        }

    def context(self) -> dict[str, Any]:
        """Return what the report shows of the rule, and of the reported rows."""
        debiasing = self.debiasing
        shown = self.groups[self.groups["part"] == self.shown]
        bias: dict[str, dict[str, Any]] = {}
        for row in self.bias:
            if row["part"] == self.shown:
                bias.setdefault(row["attribute"], {})[row["rule"]] = row
        return {
            "columns": debiasing.columns,
            "book": debiasing.rulebook,
            "shown_fields": _name_fields(debiasing.rulebook),
            "labelled": debiasing.labelled,
            "rates": {name: title_rate(name) for name in debiasing.rates},
            "measure": self.config.measure,
            "alone": {column: debiasing.name_alone(column) for column in debiasing.alone},
            # Attribute -> rule -> bias on the reported rows.
            "bias": bias,
            "expected": {each["attribute"]: each for each in debiasing.expected.get("bias", ())},
            "doubt": describe_doubt(debiasing.expected),
            "overall": {row["rule"]: row for row in self.overall if row["part"] == self.shown},
            "groups": shown.to_dict("records"),
            "small": SMALL,
        }

    @property
    def _everyone(self) -> np.ndarray:
        """Codes by which all groups are one."""
        return np.zeros(self.tally.n_groups, dtype=np.int64)

    def _find_point(self, rule: str) -> tuple[Estimate, Estimate]:
        """Return the bias between all groups, and the objective or share of changes, of a rule."""
        parts, tally = self.parts[self.shown], self.tally
        bias = tally.bias(rule, parts, criterion=self.debiasing.criterion)
        if self.debiasing.labelled:
            return bias, tally.expect(rule, parts, self.config.served)
        return bias, tally.changes(rule, parts, self._everyone).at(0)


def _pool(
    codes: np.ndarray, levels: tuple[str, ...], small: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the codes and the names of levels, with the small ones as one."""
    if not small.any():
        return codes, levels
    names = [level for level, pooled in zip(levels, small, strict=True) if not pooled]
    numbers = np.where(small, len(names), np.cumsum(~small) - 1)
    return numbers[codes], (*names, name_pool(int(small.sum())))


def _name_fields(book: Rulebook) -> dict[str, str]:
    """Return the fields of the groups' rules that the report lists, and their titles."""
    if isinstance(book.decision_rule, MixtureRule):
        scale = f"{book.score.scale}: t"
        return {"thresholds": "t, on [−1, 1]", "shares": "Share of each t", "cuts": scale}
    if isinstance(book.decision_rule, RampRule):
        return {"centre": "Centre, on [−1, 1]", "level": "h there", "slope": "Slope"}
    fields = {"threshold": "t, on [−1, 1]", "zero_up_to": f"{book.score.scale}: decided 0 up to"}
    fields["one_from"] = "decided 1 from"
    return fields if book.rule.width > 0 else {**fields, "coin": "Coin at t"}


def title_rate(name: str) -> str:
    """Return one of `RATES` as it is shown."""
    return "share decided 1" if name == "rate" else name.replace("_", " ")
