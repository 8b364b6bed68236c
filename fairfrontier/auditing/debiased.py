"""What rules do to the groups of a table: sums over its rows, and the files of a debiasing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.auditing.debias import (
    AFTER,
    BEFORE,
    CALIBRATION,
    DECIDING,
    RATES,
    VALIDATION,
    Debiasing,
    Progress,
    check_config,
    decide_rows,
    describe_doubt,
    fit_debiasing,
    measure_objective,
    read_again,
)
from fairfrontier.auditing.figure import Estimate, draw_curve, draw_groups, draw_rules
from fairfrontier.auditing.option import DebiasConfig
from fairfrontier.metrics.statistic.interval import (
    bound_difference,
    bound_mean_difference,
    percentile,
    wilson,
)
from fairfrontier.metrics.statistic.rate import (
    NAMES,
    Cells,
    Outcomes,
    RateTable,
    count_outcomes,
    resample_sums,
    tabulate_rates,
)
from fairfrontier.models.objective import Objective
from fairfrontier.models.thresholds.curve import BOUNDED
from fairfrontier.models.thresholds.rule import MixtureRule, RampRule
from fairfrontier.models.thresholds.rulebook import Rulebook
from fairfrontier.prepare.table.frame import as_file
from fairfrontier.prepare.table.role import name_cells
from fairfrontier.report.finding import Finding, RowFile, name_pool, write_finding
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.option import RESULTS
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.study.drawing import Picture

FILES = RESULTS["debias"]
PARTS = (CALIBRATION, VALIDATION)
ALL = "all"
FIGURE_BINS = 50
# With fewer rows the standard error of a rate of ½ exceeds 0.05.
SMALL = 100
REPLICATES = 2000
# The rates of debiasing as metrics names them.
MEASURED = dict(zip(RATES, ("selection_rate", "tpr", "fpr"), strict=True))
Kind = Literal["decided", "changed", "label"]


class Tally:
    """Sums of what rules decide, by part, group and label.

    h is a rule's probability of deciding 1, y a label; the expected accuracy is
    E[y h + (1 − y)(1 − h)]. Changes are |h − h₀|, with h₀ of the first rule. Parts are disjoint
    sets of rows. What is kept is `Outcomes`, so that memory does not depend on the rows; time is
    O(rules × rows). Sums of integers are exact, others depend on the batches in the last bits.
    """

    def __init__(
        self, rules: Sequence[str], parts: Sequence[str], n_groups: int, seed: int
    ) -> None:
        self.rules, self.parts, self.n_groups = tuple(rules), tuple(parts), n_groups
        self.labelled = False
        self._seed = seed
        self._sums: dict[tuple[Kind, str], Outcomes] = {}

    @property
    def everyone(self) -> np.ndarray:
        """Codes by which all groups are one."""
        return np.zeros(self.n_groups, dtype=np.int64)

    def add(
        self,
        part: np.ndarray,
        code: np.ndarray,
        weight: np.ndarray,
        probability: Mapping[str, np.ndarray],
        label: np.ndarray | None,
    ) -> None:
        """Add rows: int64 codes of parts and groups, h of every rule, labels 0 and 1 as float64."""
        cell = 2 * (part * self.n_groups + code)
        shares: dict[tuple[Kind, str], np.ndarray] = {}
        for rule in self.rules:
            shares["decided", rule] = probability[rule]
            shares["changed", rule] = np.abs(probability[rule] - probability[self.rules[0]])
        if label is not None:
            self.labelled = True
            cell, shares["label", ""] = cell + label.astype(np.int64), label
        size = 2 * len(self.parts) * self.n_groups
        for key, share in shares.items():
            new, old = count_outcomes(cell, share, weight, size), self._sums.get(key)
            if old is not None:
                new = Outcomes(old.count + new.count, old.mass + new.mass, old.square + new.square)
            self._sums[key] = new

    def cells(self, parts: Sequence[str], codes: np.ndarray | None, kind: Kind, rule: str) -> Cells:
        """Return the sums by group and label; groups with equal ``codes`` are merged."""
        codes = np.arange(self.n_groups) if codes is None else codes
        sums, size = self._sums[kind, rule], int(codes.max()) + 1

        def merge(table: np.ndarray) -> np.ndarray:
            table = table.reshape(len(self.parts), self.n_groups, 2, *table.shape[1:])
            merged = np.zeros((size, *table.shape[2:]), dtype=table.dtype)
            np.add.at(merged, codes, table[[self.parts.index(part) for part in parts]].sum(axis=0))
            return merged

        return Cells(merge(sums.count), merge(sums.mass), merge(sums.square), ("",) * size)

    def rows(self, parts: Sequence[str], codes: np.ndarray | None = None) -> np.ndarray:
        """Return the rows of each group, int64."""
        return np.asarray(self.cells(parts, codes, "decided", self.rules[0]).count.sum(axis=1))

    def shares(
        self,
        parts: Sequence[str],
        codes: np.ndarray | None = None,
        rule: str = "",
        rate: str = "selection_rate",
        kind: Kind = "decided",
    ) -> np.ndarray:
        """Return a rate of each group with its 95% interval, (3, n_groups); NaN without rows.

        Of ``changed`` the rate is the share of decisions that a rule changes, of ``label`` E[y].
        """
        table = tabulate_rates(self.cells(parts, codes, kind, rule), 1)
        return np.stack([table.value, table.low, table.high])[..., NAMES.index(rate)]

    def estimate(self, parts: Sequence[str], rule: str, **which: Any) -> Estimate:
        """Return one of the `shares` of all rows."""
        value, low, high = self.shares(parts, self.everyone, rule, **which)[:, 0].tolist()
        return value, low, high

    def bias(
        self,
        rule: str,
        parts: Sequence[str],
        codes: np.ndarray | None = None,
        criterion: str = "parity",
    ) -> Estimate:
        """Return max_k − min_k of the rate that a criterion bounds, over groups that have rows.

        Of two rates it is the larger difference, or their mean for ``average_odds``. For the
        interval see `bound_difference` and `bound_mean_difference`.
        """
        table: RateTable = tabulate_rates(self.cells(parts, codes, "decided", rule), 1)
        rates = [list(MEASURED.values())[column] for column in BOUNDED[criterion]]
        columns = [NAMES.index(rate) for rate in rates]
        value, size = table.value[:, columns], table.size[:, columns]
        if ((~np.isnan(value)).sum(axis=0) < 2).all():
            return 0.0, 0.0, 0.0
        gaps = np.nan_to_num(np.fmax.reduce(value) - np.fmin.reduce(value))
        if criterion == "average_odds":
            return float(gaps.mean()), *bound_mean_difference(value, size, largest=True)
        return float(gaps.max()), *bound_difference(value, partial(wilson, value, size))

    def expect(self, rule: str, parts: Sequence[str], objective: Objective) -> Estimate:
        """Return the expected value of an objective on all rows.

        Of accuracy the interval is Wilson's, else the percentile one of a bootstrap
        (`resample_sums`): a mean of two shares or a ratio of sums is not biased.
        """
        if objective == "accuracy":
            return self.estimate(parts, rule, rate="accuracy")
        cells = self.cells(parts, self.everyone, "decided", rule)

        def measure(mass: np.ndarray) -> Any:
            chosen, totals = mass[..., 1], mass.sum(axis=-1)
            sums = (chosen[..., 1], chosen[..., 0], totals[..., 1], totals[..., 0])
            return measure_objective(objective, *sums)

        rng = derive_generator("debias", "objective", self._seed)
        drawn = resample_sums(cells.mass[0], np.maximum(cells.square[0], 0.0), REPLICATES, rng)
        value = float(measure(cells.mass[0]))
        return value, *percentile(value, measure(drawn))


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


def debias(
    table: DebiasConfig | Path | str | Any, progress: Progress | None = None, **options: Any
) -> Debiased:
    """Fit thresholds by group to a table of scores, decide on its rows, and measure both.

    Parameters
    ----------
    table : DebiasConfig, path, or frame
        Which table; a path of one, or a frame of pandas, Polars or Arrow, with ``options``.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.
    **options
        The fields of `DebiasConfig`.

    Returns
    -------
    Debiased
        With the ``rulebook``, rates by group before and after (``groups``), and the ``curve`` of
        bounds; of a frame with the ``decisions`` on its rows.

    Raises
    ------
    ConfigError, DataError
        As in `fit_debiasing`.

    Notes
    -----
    Two passes; see `fit_debiasing`. A frame is written to a private temporary file.

    Examples
    --------
    >>> found = debias(loans, scores="score", labels="repaid", groups="sex")  # doctest: +SKIP
    >>> found.rulebook.write("thresholds.json")  # doctest: +SKIP
    """
    if isinstance(table, DebiasConfig):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "decisions.parquet"
            return decide_table(fit_debiasing(table, progress), path, progress)
    if isinstance(table, Path | str):
        return debias(parse(DebiasConfig, {"table": table, **options}, "ff.debias"), progress)
    config = parse(DebiasConfig, {"table": Path("table.parquet"), **options}, "ff.debias")
    with as_file(table) as path:
        fitted = fit_debiasing(config.model_copy(update={"table": path}), progress)
        found = decide_table(fitted, path.with_name("decisions.parquet"), progress)
        decisions = pd.read_parquet(path.with_name("decisions.parquet"))
    return replace(found, decisions=decisions)


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
    decisions: pd.DataFrame | None = None

    @property
    def rulebook(self) -> Rulebook:
        """The rule."""
        return self.debiasing.rulebook

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
        attributes = {"": (tally.everyone, ("",)), **self.debiasing.attributes()}
        rates = {name: MEASURED[name] for name in dict.fromkeys(("rate", *self.debiasing.rates))}
        rules = {"before": BEFORE, "after": AFTER}
        tables = []
        for (part, parts), (attribute, (codes, levels)) in product(
            self.parts.items(), attributes.items()
        ):
            if attribute:
                codes, levels = _pool(codes, levels, tally.rows(PARTS, codes) < minimum)
            share = partial(tally.shares, parts, codes)
            shares = {
                f"{name}_{when}": share(rule, rate)
                for name, rate in rates.items()
                for when, rule in rules.items()
            }
            shares["changed"] = share(AFTER, kind="changed")
            if tally.labelled:
                shares["base_rate"] = share(kind="label")
                shares |= {f"accuracy_{w}": share(rule, "accuracy") for w, rule in rules.items()}
            columns: dict[str, Any] = {"part": part, "attribute": attribute, "level": levels}
            columns["n"] = tally.rows(parts, codes)
            for name, ends in shares.items():
                names = (name, f"{name}_low", f"{name}_high")
                columns |= dict(zip(names, ends, strict=True))
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
        last = {"rule": BEFORE, "budget": np.nan, "bias": bias[0], measure: value[0]}
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
            | _name_ends(tally.bias(rule, parts, codes, criterion))
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
                "rate": tally.estimate(parts, rule),
                "changed": tally.estimate(parts, rule, kind="changed"),
            }
            if tally.labelled:
                estimates["accuracy"] = tally.estimate(parts, rule, rate="accuracy")
                estimates[self.config.measure] = tally.expect(rule, parts, self.config.served)
            plain = {name: _name_ends(each) for name, each in estimates.items()}
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

    def _find_point(self, rule: str) -> tuple[Estimate, Estimate]:
        """Return the bias between all groups, and the objective or share of changes, of a rule."""
        parts, tally = self.parts[self.shown], self.tally
        bias = tally.bias(rule, parts, criterion=self.debiasing.criterion)
        if self.debiasing.labelled:
            return bias, tally.expect(rule, parts, self.config.served)
        return bias, tally.estimate(parts, rule, kind="changed")


def _name_ends(estimate: Estimate) -> dict[str, float]:
    return dict(zip(("value", "low", "high"), estimate, strict=True))


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
