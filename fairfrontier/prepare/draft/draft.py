"""A table that nobody has described, as the loader will read it, and a dataset's YAML for it."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fairfrontier.prepare.config.section import MISSING_MARKERS, Source
from fairfrontier.prepare.draft.column import (
    DATE,
    IDENTIFIER,
    LARGE,
    MOST_LEVELS,
    NESTED,
    Column,
    count_ages,
    make_columns,
    shorten,
)
from fairfrontier.prepare.draft.config import DraftOptions
from fairfrontier.prepare.draft.guess import (
    AttributeDraft,
    LabelDraft,
    choose_label,
    choose_protected,
    find_dummies,
    find_giveaways,
    find_joint,
    find_unused,
)
from fairfrontier.prepare.table.column import (
    BRACKETS,
    OPEN,
    as_levels,
    find_spellings,
    fold_level,
    read_column,
    rewrite_named,
)
from fairfrontier.prepare.table.frame import FEATHER, decode, read_typed, to_arrow, write_parquet
from fairfrontier.prepare.table.reader import Form, list_files, reading, state_form
from fairfrontier.prepare.table.rows import join_dummies, read_table
from fairfrontier.prepare.table.text import WIDTH as MOST_COLUMNS
from fairfrontier.prepare.table.text import check_names, find_keys, find_marks, open_text
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import DataError, escape_controls

SUFFIXES = re.compile(
    r"(\.(csv|tsv|tab|txt|data|dat|parquet|feather|arrow|xlsx?|xlsm|ods))?(\.(gz|zip))?$", re.I
)


@dataclass(frozen=True, eq=False)
class RawTable:
    """A table as the loader will read it.

    ``keys`` are those of ``source`` in a dataset's YAML, without the path. ``parquet`` are the
    bytes of a file to write where the loader cannot read the original. ``name`` is the file's.
    ``numbered`` says that there is no header.
    """

    name: str
    frame: pd.DataFrame
    keys: dict[str, Any] = field(default_factory=dict)
    skip_rows: int = 0
    path: Path | None = None
    parquet: bytes | None = None
    numbered: bool = False


def read_raw(table: Path | Any, name: str | None = None) -> RawTable:
    """Read a file, or a frame of pandas, polars or Arrow, as the loader will.

    Raises
    ------
    ConfigError
        When there is no such file, or a library for its format is missing.
    DataError
        When it is not a table.
    """
    if not isinstance(table, Path):
        return _keep_arrow(to_arrow(table), name or "table", Path(name or "table"))
    named = SUFFIXES.sub("", table.name)
    list_files(table)
    if table.is_dir():
        return _read_parquet(table, named)
    with reading(table):
        with table.open("rb") as file:
            start = file.read(len(FEATHER[0]))
        if start.startswith(b"PAR1"):
            return _read_parquet(table, named)
        if (typed := read_typed(table)) is not None:
            size = table.stat().st_size if start.startswith(FEATHER) else None
            return _keep_arrow(typed, named, table, size)
        return _read_text(table, named)


def _read_parquet(path: Path, name: str) -> RawTable:
    source = Source(path=str(path), format="parquet")
    frame = read_table(source, path.parent, path.parent).frame
    return _read_amounts(RawTable(name, frame, {"format": "parquet"}, path=path))


def _read_amounts(raw: RawTable) -> RawTable:
    """Return a table of Parquet with amounts that are text as numbers, without marked cells."""
    found = find_marks(raw.frame.select_dtypes(include="str"), typed=True)
    if "units" not in found:
        found = {key: value for key, value in found.items() if key == "missing"}
    if not found:
        return raw
    keys = raw.keys | _add_markers(found)
    source = parse(Source, {"path": "t.parquet", **keys}, raw.name)
    read = raw.frame.apply(read_column, source=source)
    return replace(raw, frame=read, keys=keys)


def _add_markers(marks: dict[str, Any]) -> dict[str, Any]:
    found = marks.get("missing")
    return marks | ({"missing": [*MISSING_MARKERS, *found]} if found else {})


def _keep_arrow(table: Any, name: str, path: Path, size: int | None = None) -> RawTable:
    """Return a table, of a file of ``size`` bytes, that is written as Parquet."""
    check_names(table.column_names, path, MOST_COLUMNS)
    written = io.BytesIO()
    write_parquet(table, written, path, size)
    source = Source(path=str(path), format="parquet")
    frame = Form(path, source, typed=decode(table)).read()
    raw = RawTable(name, frame, {"format": "parquet"}, parquet=written.getvalue())
    return _read_amounts(raw)


def _read_text(path: Path, name: str) -> RawTable:
    with open_text(path) as (stream, _):
        keys, skipped, marks = find_keys(stream.read(), path)
    keys |= _add_markers(marks)
    source = parse(Source, {"path": str(path), **keys}, path)
    frame = state_form(path, source, skipped).read()
    if frame.empty:
        raise DataError(f"{path} holds no rows.", "Check that the file is complete.")
    numbered = keys.get("columns", ())[:1] == ["column1"]
    return RawTable(name, frame, keys, skipped, path, numbered=numbered)


WIDTH = 100


# Longer keys need a mark before them: YAML 1.1 expects none beyond 1,024 characters.
LONGEST_KEY = 1000


def write_value(value: Any) -> str:
    """Return a value in one line of YAML's flow style."""
    if isinstance(value, Mapping):
        pairs = ((write_value(key), write_value(item)) for key, item in value.items())
        marked = ((f"? {key}" if len(key) > LONGEST_KEY else key, item) for key, item in pairs)
        return "{" + ", ".join(f"{key}: {item}" for key, item in marked) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(write_value, value)) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    # Line breaks and what cannot be printed are written by their numbers.
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    text = yaml.safe_dump(
        [value], default_flow_style=True, default_style=style, allow_unicode=True, width=10**9
    )
    return text.strip()[1:-1]


def write_list(key: str, items: Iterable[str], indent: int = 0) -> list[str]:
    """Return the lines of a key with a list, broken between items."""
    lines = [" " * indent + f"{key}: ["]
    hanging = len(lines[0])
    for place, item in enumerate(map(write_value, items)):
        if place:
            lines[-1] += ","
            if len(lines[-1]) + len(item) + 2 > WIDTH:
                lines.append(" " * hanging)
            else:
                lines[-1] += " "
        lines[-1] += item
    lines[-1] += "]"
    return lines


def write_comment(text: str, indent: int = 0) -> list[str]:
    """Return the lines of a comment, whatever the text holds."""
    start = " " * indent + "# "
    return textwrap.wrap(
        escape_controls(text),
        WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def write_remark(line: str, text: str) -> list[str]:
    """Return a line with a comment behind it, or above it where both are too long."""
    remark = write_comment(text)
    if len(remark) == 1 and len(line) + len(remark[0]) + 2 <= WIDTH:
        return [f"{line}  {remark[0]}"]
    return [*write_comment(text, len(line) - len(line.lstrip())), line]


# Rows without which four parts say nothing, and rows of a class from which on it is stratified.
LEAST_ROWS, STRATIFIED = 50, 20
# Of what is left out, with no level that could be compared.
USELESS = (IDENTIFIER, NESTED, LARGE)
UNITS = {BRACKETS: "brackets and marks", OPEN: "open ends, as 90+"}
SHARES = {"train": 0.5, "calibration": 0.15, "validation": 0.15, "test": 0.2}
# Where these leave a part too few rows to compare two groups, rules are fitted by folds of the
# validation rows, and a rate may take fewer rows.
FOLDED = {"train": 0.4, "validation": 0.3, "test": 0.3}
MINIMUM, LEAST = 10, 5


@dataclass(frozen=True)
class DatasetDraft:
    """What was found in a table.

    ``left_out`` maps columns to reasons; ``split`` is that section of the YAML; ``minimum`` are the
    rows that a rate takes; ``rare`` is the share of the rarer class of a binary label, else None;
    ``text`` is a column of sentences that is left out.
    """

    name: str
    raw: RawTable
    label: LabelDraft
    attributes: list[AttributeDraft]
    numeric: list[str]
    categorical: list[str]
    left_out: dict[str, str]
    missing_label: int
    split: dict[str, Any]
    minimum: int
    rare: float | None
    text: str | None
    warnings: list[str]

    @property
    def smallest(self) -> float:
        """The share of the rows in the smallest part."""
        return min(float(self.split[name]) for name in SHARES if name in self.split)


def draft_dataset(raw: RawTable, options: DraftOptions) -> DatasetDraft:
    """Guess a table's label, protected attributes, features and what to leave out.

    O(n log n) for a column; the table is in memory.

    Raises
    ------
    ConfigError
        When no column, or more than one, looks like the label, or no column is protected.
    DataError
        When there are too few rows or columns, or a named column is of no use.
    """
    if len(raw.frame.columns) < 2:
        shown = [f"one column, {str(name)!r}" for name in raw.frame.columns] or ["no column"]
        raise DataError(
            f"{raw.name} has {shown[0]}.",
            "A study needs a label and a column to learn from; check the separator.",
        )
    raw, columns, read = _read_notation(raw)
    label = choose_label(columns, options)
    frame = raw.frame[raw.frame[label.column].notna()]
    if len(frame) < LEAST_ROWS:
        raise DataError(
            f"{raw.name} has {len(frame)} rows with a label ({label.column!r}).",
            f"At least {LEAST_ROWS} are needed to train, choose and test.",
        )
    columns = columns if len(frame) == len(raw.frame) else make_columns(frame)
    attributes = choose_protected(columns, label.column, options.protected)
    taken = {attribute.name for attribute in attributes}
    attributes = [
        replace(each, name="age")
        if each.column in raw.keys.get("ages", {}) and "age" not in taken
        else each
        for each in attributes
    ]
    if not attributes:
        raise DataError(
            f"No column of {raw.name} looks protected, such as sex, race or age.",
            "Name those by which people are to be treated alike with --protected.",
        )
    kept = _keep_rows(frame, attributes)
    columns = columns if len(kept) == len(frame) else make_columns(kept)
    frame = kept
    target = _find_target(columns[label.column], label, options)
    left_out = {
        name: reason
        for name, column in columns.items()
        if name != label.column and (reason := column.fault)
    }
    usable = {name: columns[name] for name in columns if name not in {label.column, *left_out}}
    giveaways = find_giveaways(usable.values(), label, target)
    if len(giveaways) < len(usable):
        left_out |= {
            name: f"it tells the label nearly alone ({surely:.3f})"
            for name, surely in giveaways.items()
        }
    features = [name for name in usable if name not in left_out]
    if not features:
        raise DataError(
            f"No column of {raw.name} is left to learn from beside the label {label.column!r}.",
            "Add columns that are known when the decision is made.",
        )
    joint = find_joint((usable[n] for n in features if n not in giveaways), label, target)
    bands = {attribute.column for attribute in attributes if attribute.numeric}
    levels = {attribute.column for attribute in attributes} - bands
    numeric = [n for n in features if n not in levels and usable[n].numbers is not None]
    classes = target.value_counts() if label.task != "regression" else pd.Series(dtype=int)
    missing = len(raw.frame) - int(raw.frame[label.column].notna().sum())
    stratified = label.task != "regression" and classes.min() >= STRATIFIED
    second, narrow = min((sorted(each.sizes.values())[-2], each.name) for each in attributes)
    shares = SHARES if second * min(SHARES.values()) >= MINIMUM else FOLDED
    minimum = MINIMUM if second * min(shares.values()) >= MINIMUM else LEAST
    split: dict[str, Any] = {"kind": "stratified" if stratified else "random", **shares}
    if minimum == LEAST and not (len(classes) and classes.min() < second):
        split = {"kind": "per_group", "group": narrow, **shares}
    draft = DatasetDraft(
        name=options.name or slugify(raw.name),
        raw=raw,
        label=label,
        attributes=attributes,
        numeric=numeric,
        categorical=[name for name in features if name not in numeric],
        left_out={name: left_out[name] for name in columns if name in left_out},
        missing_label=missing,
        split=split,
        minimum=minimum,
        rare=float(classes.min() / len(target)) if len(classes) == 2 else None,
        text=next((name for name in left_out if columns[name].is_text), None),
        warnings=[],
    )
    draft.warnings.extend(read)
    if not options.protected:
        draft.warnings.extend(find_unused(columns, label.column, attributes))
    if joint is not None:
        surely, names = joint
        most = f", {shorten(names)} above all" if names else ""
        draft.warnings.append(
            f"the features tell the label nearly surely together ({surely:.3f}){most}: leave out "
            "what is known only after the decision"
        )
    draft.warnings.extend(_warn(draft, frame, target, giveaways))
    return draft


def _read_notation(raw: RawTable) -> tuple[RawTable, dict[str, Column], list[str]]:
    """Return a table with ages for dates of birth and levels in one spelling, and what is said."""
    columns = make_columns(raw.frame)
    ages, said = count_ages(columns)
    spellings = {}
    for name, column in columns.items():
        if name in ages or column.numbers is not None or column.fault in (*USELESS, DATE):
            continue
        common = [str(level) for level in column.counts.index]
        if (same := find_spellings(common)) and len({*map(fold_level, common)}) <= MOST_LEVELS:
            alike = "; ".join(" = ".join(levels) for levels in list(same.values())[:3])
            said.append(
                f"{name} has levels that differ by case or blanks alone, and are read as one: "
                f"{alike} (source.spellings)"
            )
            spellings[name] = list(same)
    if units := raw.keys.get("units"):
        written = ", ".join(f"{name} ({UNITS.get(unit, unit)})" for name, unit in units.items())
        said.insert(0, f"read as numbers: {written}; see source.units")
    dummies = find_dummies(columns)
    for name, made in dummies.items():
        said.append(f"{shorten(made)} are read as one attribute, {name} (source.dummies)")
    changes = {"ages": ages, "spellings": spellings, "dummies": dummies}
    keys = {**raw.keys, **{key: value for key, value in changes.items() if value}}
    source = parse(Source, {"path": "table", **keys}, raw.name)
    for name in (*ages, *spellings):
        columns[name] = Column(name, rewrite_named(as_levels(raw.frame[name]), source))
    frame = raw.frame.assign(**{name: columns[name].cells for name in (*ages, *spellings)})
    if dummies:
        frame = join_dummies(frame, source, raw.name)
        # The label remains the last column.
        order = [*dummies, *raw.frame.columns.difference([*chain(*dummies.values())], sort=False)]
        frame = frame[order]
        columns = {name: columns.get(name) or Column(name, frame[name]) for name in order}
    return replace(raw, frame=frame, keys=keys), columns, said


def slugify(name: str) -> str:
    """Return a name that files and results can have."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:60] or "table"


def _keep_rows(frame: pd.DataFrame, attributes: list[AttributeDraft]) -> pd.DataFrame:
    for attribute in attributes:
        if attribute.keep:
            frame = frame[as_levels(frame[attribute.column]).isin(attribute.keep)]
        elif attribute.present:
            frame = frame[frame[attribute.column].notna()]
    return frame


def _find_target(column: Column, label: LabelDraft, options: DraftOptions) -> pd.Series:
    """Return the label of every row: its number, its class, or whether it is 1."""
    if label.task == "regression" and column.numbers is not None:
        return column.numbers
    if options.above is not None and column.numbers is not None:
        return column.numbers > options.above
    levels = as_levels(column.cells)
    positive = label.keys.get("positive")
    if positive is None:
        return levels
    return levels.isin(positive if isinstance(positive, list) else [positive])


def _warn(
    draft: DatasetDraft, frame: pd.DataFrame, target: pd.Series, giveaways: Mapping[str, float]
) -> Iterator[str]:
    """Yield what somebody has to look at before the numbers mean anything."""
    if draft.raw.numbered:
        yield "the first row holds data, so that columns have numbers: name them in source.columns"
    if draft.label.doubt:
        yield f"{draft.label.column} is taken for the label {draft.label.doubt}"
    for name, surely in giveaways.items():
        what = "left out" if name in draft.left_out else "kept, as there is little else"
        yield (
            f"{name} tells the label nearly alone ({surely:.3f}), as what is recorded after a "
            f"decision does: it is {what}"
        )
    if draft.missing_label:
        yield f"{draft.missing_label:,} rows without a label are left out"
    compared = [name for name in frame.columns if draft.left_out.get(name) not in USELESS]
    if double := int(frame[compared].duplicated().sum()):
        yield (
            f"{double:,} of {len(frame):,} rows repeat others: if they are the same persons, a "
            "model is tested on whom it has seen"
        )
    if draft.label.task != "regression":
        counts = target.value_counts()
        if counts.min() < STRATIFIED:
            yield f"a class of {draft.label.column} has {counts.min()} rows, which is too few"
    for attribute in draft.attributes:
        yield from attribute.warn(draft.smallest, draft.minimum)
    known = (
        IDENTIFIER,
        DATE,
        *(reason for name, reason in draft.left_out.items() if name in giveaways),
    )
    reasons: dict[str, list[str]] = {}
    for name, reason in draft.left_out.items():
        if reason not in known:
            reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"{shorten(names)} {'is' if len(names) == 1 else 'are'} left out: {reason}"


def write_dataset(draft: DatasetDraft, location: str) -> str:
    """Return the YAML of a dataset whose table is at ``location``."""
    label = draft.label
    source = {"path": location, **draft.raw.keys}
    if draft.raw.skip_rows:
        source["path"] = {"path": location, "skip_rows": draft.raw.skip_rows}
    lines = [
        *write_comment("Drafted by `fairfrontier init`: correct what it could not know."),
        *chain(*(write_comment(f"Look at: {warning}.") for warning in draft.warnings)),
        f"dataset: {write_value(draft.name)}",
        "source:",
    ]
    for key, value in source.items():
        if isinstance(value, list):
            lines += write_list(key, value, 2)
        else:
            lines.append(f"  {key}: {write_value(value)}")
    keys = {"column": label.column, **label.keys}
    lines += write_remark(f"label: {write_value(keys)}", label.comment)
    lines.append("features:")
    lines += write_list("numeric", draft.numeric, 2) if draft.numeric else []
    lines += write_list("categorical", draft.categorical, 2) if draft.categorical else []
    if draft.left_out:
        lines += write_comment("Left out:", 2)
        for name, why in draft.left_out.items():
            lines += write_comment(f"- {name}: {why}", 2)
    if draft.text is not None:
        lines += write_comment(f"{draft.text} is free text: to learn from it, take the # off:", 2)
        lines += ["#  text: {encoder: auto}", f"#text: {write_value({'column': draft.text})}"]
    lines += _write_attributes(draft)
    lines += _write_rows(draft)
    lines += write_remark(
        "missing: {numeric: median, categorical: category}",
        "a level of its own, or the median of the training rows",
    )
    remark = "rules are fitted on calibration, chosen on validation, reported on test"
    if "calibration" not in draft.split:
        remark = "few rows: rules are fitted and chosen on validation, by folds; reported on test"
    lines += write_remark(f"split: {write_value(draft.split)}", remark)
    return "\n".join(lines) + "\n"


def _write_attributes(draft: DatasetDraft) -> Iterator[str]:
    yield from write_comment(
        "Who is compared, with rows; they are features too until you take them out."
    )
    yield "groups:"
    for attribute in draft.attributes:
        sizes = ", ".join(f"{level}: {rows:,}" for level, rows in attribute.sizes.items())
        line = f"  {write_value(attribute.name)}: {write_value(attribute.group)}"
        yield from write_remark(line, "; ".join(filter(None, (sizes, attribute.comment))))
    if len(draft.attributes) > 1:
        first, second = (attribute.name for attribute in draft.attributes[:2])
        both = {f"{first}×{second}": {"cross": [first, second]}}
        yield f"#  {write_value(both)[1:-1]}"
    names = [attribute.name for attribute in draft.attributes]
    yield from write_remark(f"protected: {write_value(names)}", "what a fair metric ignores")
    sets = [attribute for attribute in draft.attributes if attribute.variants]
    if sets:
        yield from write_comment("Versions of a person that are to be treated alike.")
        yield "counterfactuals:"
    for attribute in sets:
        versions = {attribute.column: attribute.variants}
        yield f"  {write_value(attribute.name)}: {write_value(versions)}"


def _write_rows(draft: DatasetDraft) -> Iterator[str]:
    """Yield which rows are kept."""
    absent = [attribute.column for attribute in draft.attributes if attribute.present]
    if draft.missing_label:
        absent.insert(0, draft.label.column)
    keep = {a.column: {"in": a.keep} for a in draft.attributes if a.keep}
    if absent or keep:
        yield "rows:"
        if absent:
            yield f"  drop_missing: {write_value(absent)}"
        if keep:
            yield f"  keep: {write_value(keep)}"
