"""The files of a debiasing: decisions, the rule, tables of groups, figures and a report in HTML."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairfrontier.debias.config import DebiasConfig
from fairfrontier.debias.debiasing import (
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
from fairfrontier.debias.figure import Bar, draw_curve, draw_groups, draw_rules
from fairfrontier.debias.tally import GIVEN, RATES, Estimate, Tally
from fairfrontier.debias.validation import describe_doubt
from fairfrontier.prepare.table.score_table import name_cells
from fairfrontier.report.summary import list_versions
from fairfrontier.report.template import embed, name_pool, open_template
from fairfrontier.runtime.option import RESULTS, check_again
from fairfrontier.runtime.text_file import to_csv, write_json
from fairfrontier.runtime.writer import filling
from fairfrontier.study.drawing import Picture
from fairfrontier.train.postprocess.rule import MixtureRule, RampRule
from fairfrontier.train.postprocess.rulebook import Rulebook

FILES = RESULTS["debias"]
TEMPLATE = Path(__file__).with_name("debias.html.j2")
PARTS = (CALIBRATION, VALIDATION)
ALL = "all"
FIGURE_BINS = 50
# With fewer rows the standard error of a rate of ½ exceeds 0.05.
SMALL = 100


@dataclass(frozen=True, eq=False)
class Findings:
    """What the rules do to the rows of a table.

    ``parts`` maps what is reported on to parts of the tally: ``all``, and the two parts where both
    have rows. ``shown`` is what the report is about, fresh rows where there are any. The histogram
    is the weight in bins of equal width over f ∈ [−1, 1], shape (n_groups, FIGURE_BINS).
    """

    tally: Tally
    histogram: np.ndarray
    parts: dict[str, tuple[str, ...]]
    shown: str


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

    Files curve.* are written only where a rule was fitted. ``started`` is when the work began, by
    ``time.monotonic``; ``progress`` is as in `fit_debiasing`. Memory is bounded by a batch. All
    files but summary.json depend only on the table and the configuration.

    Raises
    ------
    DataError
        When the table has changed since the fit, or has a group that the rule does not know.
    StoreError
        When the folder cannot be written; then no file in it has changed.
    """
    with filling(folder, FILES, check=check_again(folder, FILES, "debias")) as work:
        findings = decide_table(debiasing, work / "decisions.parquet", progress)
        groups = tabulate_groups(debiasing, findings)
        curve = tabulate_curve(debiasing, findings)
        pictures = draw_pictures(debiasing, findings, groups, curve)
        summary = summarise(debiasing, findings, folder.name)
        debiasing.rulebook.write(work / "thresholds.json")
        (work / "groups.csv").write_bytes(to_csv(groups))
        if not curve.empty:
            (work / "curve.csv").write_bytes(to_csv(curve))
        for name, picture in pictures.items():
            (work / f"{name}.png").write_bytes(picture.png)
        summary["seconds"] = round(time.monotonic() - started, 3)
        report = render_debiasing(debiasing, summary, groups, pictures)
        (work / "report.html").write_text(report, encoding="utf-8")
        write_json(summary, work / "summary.json")
    return summary


def decide_table(
    debiasing: Debiasing, decisions: Path, progress: Progress | None = None
) -> Findings:
    """Write decisions.parquet, in the order of the table, and count what every rule does.

    Columns are id (the row number by default), group, probability (of deciding 1) and decision
    (drawn by seed and id).
    """
    book, rules = debiasing.rulebook, debiasing.rules()
    size = len(book.cells)
    names = pa.array(name_cells(book.cells, "×".join(debiasing.columns.groups)))
    tally = Tally(tuple(rules), PARTS, size, book.draw.seed)
    histogram = np.zeros((size, FIGURE_BINS))
    writer: pq.ParquetWriter | None = None
    try:
        for batch in read_again(debiasing):
            code, signed, part = decide_rows(debiasing, batch)
            probability = {name: rule.probability(signed, code) for name, rule in rules.items()}
            tally.add(part, code, batch.weight, probability, batch.label)
            bins = np.minimum((signed + 1.0) * (FIGURE_BINS / 2), FIGURE_BINS - 1).astype(np.int64)
            cells = np.bincount(code * FIGURE_BINS + bins, batch.weight, histogram.size)
            histogram += cells.reshape(histogram.shape)
            table = pa.table(
                {
                    "id": batch.names,
                    "group": pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), names),
                    "probability": probability[AFTER],
                    "decision": book.decide(probability[AFTER], batch.ids),
                }
            )
            if writer is None:
                writer = pq.ParquetWriter(decisions, table.schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
            if progress is not None:
                progress(DECIDING, batch.share)
    finally:
        if writer is not None:
            writer.close()
    used = [part for part in PARTS if tally.rows((part,)).sum() > 0]
    several = len(used) > 1
    parts = {part: (part,) for part in used} if several else {}
    return Findings(tally, histogram, {ALL: PARTS, **parts}, used[-1] if several else ALL)


def tabulate_groups(debiasing: Debiasing, findings: Findings) -> pd.DataFrame:
    """Return rows, rates and accuracy before and after, a row for each part, attribute and level.

    Columns part, attribute, level ("" for all rows), n, and value, ``_low`` and ``_high`` of
    rate_before, rate_after, changed and, where there are labels, base_rate, accuracy_before
    and accuracy_after; under a criterion on error rates true_positive_rate and false_positive_rate
    before and after, as it bounds them. Levels with fewer rows than the minimum are one level, and
    have no rates where they are too few together, or in a part.
    """
    tally, minimum = findings.tally, debiasing.config.minimum
    everyone = {"": (np.zeros(tally.n_groups, dtype=np.int64), ("",))}
    tables = []
    for part, parts in findings.parts.items():
        for attribute, (codes, levels) in {**everyone, **debiasing.attributes()}.items():
            if attribute:
                codes, levels = _pool(codes, levels, tally.rows(PARTS, codes) < minimum)
            shares = {}
            for name in dict.fromkeys(("rate", *debiasing.rates)):
                given = GIVEN[RATES.index(name)]
                for when, rule in (("before", BEFORE), ("after", AFTER)):
                    shares[f"{name}_{when}"] = tally.rates(rule, parts, codes, given)
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


def _pool(
    codes: np.ndarray, levels: tuple[str, ...], small: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the codes and the names of levels, with the small ones as one."""
    if not small.any():
        return codes, levels
    names = [level for level, pooled in zip(levels, small, strict=True) if not pooled]
    numbers = np.where(small, len(names), np.cumsum(~small) - 1)
    return numbers[codes], (*names, name_pool(int(small.sum())))


def tabulate_curve(debiasing: Debiasing, findings: Findings) -> pd.DataFrame:
    """Return bias against accuracy for every ε, and the unmodified classifier in the last row.

    Columns rule, budget (NaN for the unmodified classifier), bias and the objective, such as
    accuracy, or changed (the share of decisions that differ from it) without labels. Empty for an
    earlier rule.
    """
    if debiasing.curve.empty:
        return debiasing.curve
    curve = debiasing.curve.assign(rule=AFTER)
    bias, value = _find_point(debiasing, findings, BEFORE)
    if not debiasing.labelled:
        # The decisions of the unmodified classifier served as labels.
        curve["changed"] = 1.0 - curve.pop("accuracy")
    measure = debiasing.config.measure
    last = {"rule": BEFORE, "budget": np.nan, "bias": bias.value, measure: value.value}
    curve = pd.concat([curve, pd.DataFrame([last])], ignore_index=True)
    return curve[["rule", "budget", "bias", measure]]


def draw_pictures(
    debiasing: Debiasing, findings: Findings, groups: pd.DataFrame, curve: pd.DataFrame
) -> dict[str, Picture]:
    """Return the figures by name."""
    book, rates = debiasing.rulebook, debiasing.rates
    rows = groups.loc[(groups["part"] == findings.shown) & (groups["attribute"] != "")]
    bars = [
        Bar(
            row["attribute"] if len(rates) == 1 else f"{row['attribute']}, {title_rate(rate)}",
            row["level"],
            row["n"],
            _estimate(row, f"{rate}_before"),
            _estimate(row, f"{rate}_after"),
        )
        for rate in rates
        for row in rows.loc[rows["n"] >= debiasing.config.minimum].to_dict("records")
    ]
    names = ["×".join(cell) for cell in book.cells]
    counts, scale = findings.tally.rows(PARTS), book.score.scale
    shown = np.flatnonzero(counts >= debiasing.config.minimum)
    pictures = {}
    if bars:
        target = book.target.rate if book.target.criterion == "parity" else None
        title = title_rate(rates[0]) if len(rates) == 1 else "rates of error and success"
        pictures["groups"] = draw_groups(bars, target, title)
    if shown.size:
        rule = book.decision_rule
        pictures["rules"] = draw_rules(findings.histogram, names, counts, shown, rule, scale)
    if not curve.empty:
        pictures["curve"] = draw_curve(
            curve.loc[curve["rule"] == AFTER],
            _find_point(debiasing, findings, BEFORE),
            _find_point(debiasing, findings, AFTER),
            debiasing.config.measure,
            "×".join(debiasing.columns.groups),
            " or ".join(map(title_rate, rates)),
        )
    return pictures


def summarise(debiasing: Debiasing, findings: Findings, name: str) -> dict[str, Any]:
    """Return what was done and the results, as plain values."""
    book, tally = debiasing.rulebook, findings.tally
    everyone = np.zeros(len(book.cells), dtype=np.int64)
    bias = [
        {"part": part, "attribute": attribute, "rule": rule}
        | asdict(tally.bias(rule, parts, codes, debiasing.criterion))
        for part, parts in findings.parts.items()
        for attribute, (codes, _) in debiasing.attributes().items()
        for rule in tally.rules
    ]
    overall: list[dict[str, Any]] = []
    for part, parts in findings.parts.items():
        for rule in tally.rules:
            shares = {
                "rate": tally.rates(rule, parts, everyone),
                "changed": tally.changes(rule, parts, everyone),
            }
            if tally.labelled:
                shares["accuracy"] = tally.accuracies(rule, parts, everyone)
            estimates = {name: asdict(rates.at(0)) for name, rates in shares.items()}
            if tally.labelled:
                objective = tally.expect(rule, parts, debiasing.config.served)
                estimates[debiasing.config.measure] = asdict(objective)
            overall.append({"part": part, "rule": rule, **estimates})
    counts = tally.rows(findings.parts[findings.shown])
    return {
        "name": name,
        "table": debiasing.config.table.name,
        "applied": None if debiasing.config.apply is None else book.input.model_dump(mode="json"),
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
            **{part: int(tally.rows(parts).sum()) for part, parts in findings.parts.items()},
            "groups": len(book.cells),
            "small_groups": int((counts < SMALL).sum()),
        },
        "reported_on": findings.shown,
        "bias": bias,
        "overall": overall,
        "versions": list_versions(),
    }


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


def _find_point(debiasing: Debiasing, findings: Findings, rule: str) -> tuple[Estimate, Estimate]:
    """Return the bias between all groups, and the objective or share of changes, of a rule."""
    parts, tally = findings.parts[findings.shown], findings.tally
    bias = tally.bias(rule, parts, criterion=debiasing.criterion)
    if debiasing.labelled:
        return bias, tally.expect(rule, parts, debiasing.config.served)
    return bias, tally.changes(rule, parts, np.zeros(tally.n_groups, dtype=np.int64)).at(0)


def _estimate(row: Mapping[Any, Any], name: str) -> Estimate:
    return Estimate(*(row[f"{name}{end}"] for end in ("", "_low", "_high")))


def render_debiasing(
    debiasing: Debiasing,
    summary: Mapping[str, Any],
    groups: pd.DataFrame,
    pictures: Mapping[str, Picture],
) -> str:
    """Return the report as HTML, in which all text from data or configuration is escaped."""
    part = summary["reported_on"]
    shown = groups.loc[groups["part"] == part]
    # Attribute -> rule -> bias on the reported rows.
    bias: dict[str, dict[str, Any]] = {}
    for row in summary["bias"]:
        if row["part"] == part:
            bias.setdefault(row["attribute"], {})[row["rule"]] = row
    crossed = bias["×".join(debiasing.columns.groups)]
    # What bias parity on one column alone leaves between the groups of all columns.
    lesson = [
        {
            "rule": debiasing.name_alone(column),
            "own": bias[column][debiasing.name_alone(column)]["value"],
            "left": crossed[debiasing.name_alone(column)]["value"],
            "before": crossed[BEFORE]["value"],
            "after": crossed[AFTER]["value"],
        }
        for column in debiasing.alone
    ]
    return open_template(TEMPLATE).render(
        summary=summary,
        config=debiasing.config,
        columns=debiasing.columns,
        book=debiasing.rulebook,
        shown_fields=_name_fields(debiasing.rulebook),
        labelled=debiasing.labelled,
        rates={name: title_rate(name) for name in debiasing.rates},
        shown_rates=[
            f"{rate}_{when}"
            for rate in debiasing.rates
            if rate != "rate"
            for when in ("before", "after")
        ],
        measure=debiasing.config.measure,
        pictures={name: embed(picture) for name, picture in pictures.items()},
        rules=[BEFORE, *map(debiasing.name_alone, debiasing.alone), AFTER],
        bias=bias,
        expected={each["attribute"]: each for each in debiasing.expected.get("bias", ())},
        doubt=describe_doubt(debiasing.expected),
        lesson=lesson,
        overall={row["rule"]: row for row in summary["overall"] if row["part"] == part},
        groups=[
            {"attribute": attribute, "rows": table.to_dict("records")}
            for attribute, table in shown.groupby("attribute", sort=False)
        ],
        small=SMALL,
    )
