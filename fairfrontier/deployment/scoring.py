"""A bundle's decisions on a table that may be larger than memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fairfrontier.deployment.bundle import (
    REFUSED,
    WAITING,
    Bundle,
    ClassifierBundle,
    give_places,
    load_bundle,
    read_ids,
    view_binary,
)
from fairfrontier.models.thresholds.places import Amounts, find_bounded
from fairfrontier.prepare.table.frame import as_file
from fairfrontier.prepare.table.reader import (
    Block,
    check_stamps,
    check_table,
    read_names,
    read_rows,
    stamp_table,
)
from fairfrontier.report.finding import RowFile
from fairfrontier.runtime.errors import ConfigError, DataError, nearest, refuse_unknown
from fairfrontier.runtime.option import SCORED, check_again, check_apart
from fairfrontier.runtime.writer import check_folder, filling

# The most rows of a batch, and, so that one of many features takes no more, numbers made of them.
BATCH_ROWS, BATCH_NUMBERS = 1 << 16, 1 << 25
PASSES = ("deciding",)
SUFFIXES = (".parquet", ".pq", "")
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Scored:
    """What was decided on a table.

    Attributes
    ----------
    path : Path
        The file of decisions.
    rows : int
        Rows in all.
    decided : mapping of str to int
        Decision -> rows; empty for a regression.
    refused : mapping of str to int
        Reason -> rows.
    unseen : mapping of str to int
        Column -> rows decided with a level of it that training had not.
    row_id : str or None
        The column that names rows; None where the number of the row does, from 0.
    randomized : bool
        Whether decisions were drawn, by row id.
    seconds : float
        What it took.
    places : DataFrame
        By group with a floor or ceiling: ``rows``, ``places``, and both as numbers of places.
    """

    path: Path
    rows: int
    decided: Mapping[str, int]
    refused: Mapping[str, int]
    unseen: Mapping[str, int]
    row_id: str | None
    randomized: bool
    seconds: float
    places: pd.DataFrame


def score(
    bundle: Bundle | str | Path,
    table: Any,
    out: str | Path = "decisions.parquet",
    *,
    row_id: str | None = None,
    keep: Sequence[str] = (),
    drop_refused: bool = False,
    places: int | None = None,
    floor: Amounts | None = None,
    ceiling: Amounts | None = None,
    progress: Progress | None = None,
) -> Scored:
    """Decide on the rows of a table that may be larger than memory.

    Parameters
    ----------
    bundle : Bundle, str or Path
        What decides, or its folder.
    table : str, Path or frame
        Raw rows: a Parquet file, a folder of them, or CSV with a header, plain or gzip, written
        as the source of the bundle's dataset says; or a frame of pandas, Polars or Arrow.
    out : str or Path
        The file of decisions, Parquet: the columns of `Bundle.decide`, in the order of the rows. It
        is replaced when all rows are decided.
    row_id : str, optional
        The column of row ids, in place of the bundle's. Without either, rows are named by their
        number, from 0: then random decisions change when rows change places.
    keep : sequence of str
        Columns of the table that are copied beside the decisions, as groups and labels for an
        audit.
    drop_refused : bool
        Leave refused rows out of the file; they are counted all the same.
    places, floor, ceiling : optional
        How many places there are, and the least and most of groups, as in `Bundle.decide`.
    progress : callable, optional
        Called with the name of the pass and the share of the table that is read.

    Returns
    -------
    Scored

    Raises
    ------
    ConfigError
        When the table lacks a column, one to keep is called as one of decisions is, or the file
        would replace or join the table or the bundle, replace results of another command, or have
        the suffix of another format.
    DataError
        When the table is damaged or changes while it is read, or an id is no whole number or text.
    StoreError
        When the bundle was altered, or the file cannot be written.

    Notes
    -----
    O(n) calls of the model; memory is that of a batch of rows. With ``places`` it is that of all
    decisions, of the columns to keep and of the groups: who gets one depends on all rows.
    """
    asked: dict[str, Any] = {"places": places, "floor": floor, "ceiling": ceiling}
    if not isinstance(table, str | Path):
        with as_file(table) as path:
            return score(
                bundle,
                path,
                out,
                row_id=row_id,
                keep=keep,
                drop_refused=drop_refused,
                progress=progress,
                **asked,
            )
    started = time.monotonic()
    table, out = Path(table), Path(out).absolute()
    if not isinstance(bundle, Bundle):
        bundle = load_bundle(bundle)
    row_id = row_id or bundle.row_id
    bounded = find_bounded(bundle.encoder.names, **asked)
    bundle = bundle if places is None else view_binary(bundle)
    made = bundle.columns if places is None else (*bundle.columns, WAITING)
    used = check_score(bundle, table, out, row_id, keep, bounded, made)
    stamps = stamp_table(table)
    counted, refused, unseen, rows = Counter[str](), Counter[str](), Counter[str](), 0
    check = check_again(out.parent, [out.name], "score")
    held: list[tuple[pd.DataFrame, Any, np.ndarray, np.ndarray]] = []
    by_group = pd.DataFrame()
    filled = filling(out.parent, what="decisions", check=check)
    with filled as work, RowFile(work / out.name, SCORED) as file:

        def write(decided: pd.DataFrame, raw: pa.Table) -> None:
            if isinstance(bundle, ClassifierBundle):
                counts = decided[bundle.answer].value_counts()
                counted.update({str(name): int(count) for name, count in counts.items()})
            written = pa.Table.from_pandas(decided, preserve_index=False)
            for name in keep:
                # As it is in the table: of whole numbers beside missing cells pandas makes floats.
                written = written.append_column(name, raw.column(name))
            file.write(written.filter(pc.field(REFUSED) == "") if drop_refused else written)

        for batch in _read_batches(bundle, table, used):
            frame = batch.frame
            encoded = bundle.encode(frame)
            decided = bundle.judge_rows(frame, encoded, row_id)
            rows += len(decided)
            unseen.update(encoded.count_unseen())
            refused.update(decided.loc[decided[REFUSED] != "", REFUSED])
            if places is None:
                write(decided, batch.raw)
            else:
                words = read_ids(frame, row_id)[1]
                held.append((decided, batch.raw.select([*keep]), words, encoded.groups))
            if progress is not None:
                progress(PASSES[0], batch.share)
        if places is not None:
            batches, raws, named, groups = zip(*held, strict=True)
            whole, words, codes = pd.concat(batches), np.concatenate(named), np.concatenate(groups)
            whole, found = give_places(bundle, whole, words, codes, **asked)
            by_group, start = found.groups, 0
            for raw in raws:
                write(whole.iloc[start : start + raw.num_rows], raw)
                start += raw.num_rows
        check_stamps(table, stamps)
    seconds = round(time.monotonic() - started, 3)
    by_decision, by_reason, by_column = (
        dict(each.most_common()) for each in (counted, refused, unseen)
    )
    randomized = bundle.randomized and places is None
    return Scored(
        out, rows, by_decision, by_reason, by_column, row_id, randomized, seconds, by_group
    )


def check_score(
    bundle: Bundle,
    table: Path,
    out: Path,
    row_id: str | None,
    keep: Sequence[str] = (),
    groups: Collection[str] = (),
    made: Collection[str] = (),
) -> dict[str, str]:
    """Return the columns that are read, with what names them.

    ``groups`` are attributes beside those of the rule, and ``made`` columns of the decisions.
    A FairfrontierError says what is known to be wrong before a row is read.
    """
    named = {} if row_id is None else {row_id: "row-id"}
    named |= dict.fromkeys(keep, "keep")
    for name in keep:
        if name in {*bundle.columns, *made} or list(keep).count(name) > 1:
            raise ConfigError(
                f"The file of decisions would have two columns {name!r} (--keep).",
                "Rename it in the table, or leave it out.",
            )
    headers = read_headers(bundle, table, named, groups)
    present = {name for _, names in headers for name in names}
    check_apart([out], [table], "score")
    check_folder(out.parent)
    if out.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"Decisions are written as Parquet, and {out.name} ends in {out.suffix} (--out).",
            f"Name the file {out.with_suffix(SUFFIXES[0]).name}.",
        )
    needed = [*bundle.needed_groups, *groups]
    used = dict.fromkeys(bundle.encoder.list_read(present, needed), "bundle")
    return {**named, **used}


def read_headers(
    bundle: Bundle, path: Path, named: Mapping[str, str], groups: Collection[str] = ()
) -> Iterator[tuple[Path, Sequence[str]]]:
    """Yield the files of a table with their columns; ConfigError where one is missing.

    Those that are ``named`` are, with the options that name them, and those that decisions need.
    """
    source = bundle.encoder.config.source
    for file in check_table(path, named, source):
        names = read_names(file, source)
        bundle.encoder.check_columns(names, [*bundle.needed_groups, *groups], file)
        yield file, names


def find_columns(
    bundle: Bundle,
    path: Path,
    row_id: str | None,
    groups: Collection[str],
    *,
    labelled: bool = False,
) -> dict[str, str]:
    """Return the columns that are read to compare attributes; ConfigError where one is missing.

    That of labels is among them where the table has it, which it must where ``labelled``.
    """
    encoder = bundle.encoder
    label, grouped = encoder.config.label.column, encoder.find_columns(groups)
    present: set[str] = set()
    for file, names in read_headers(bundle, path, {} if row_id is None else {row_id: "row-id"}):
        by_groups = ", by which groups are told apart"
        refuse_unknown(grouped, names, f"{file} has no column", by_groups)
        if labelled and label not in names:
            raise ConfigError(
                f"{file} has no column {label!r}, in which labels are.",
                f"{nearest(label, names)} Or leave out --labelled: labels may come later.",
            )
        # What only some files have is missed when they are read.
        present |= {*names}
    read = encoder.list_read(present, [*bundle.needed_groups, *groups])
    used = dict.fromkeys([*read, *([label] if label in present else [])], "table")
    return used if row_id is None else {**used, row_id: "row-id"}


def read_frames(
    bundle: Bundle,
    path: Path,
    columns: Mapping[str, str],
    report: Callable[[float], None],
    answers: int = 0,
) -> Iterator[pd.DataFrame]:
    """Yield the named columns of a table as frames, indexed by the number of the row.

    Text is written as the source of the bundle's dataset says. ``answers`` are the numbers that the
    caller makes of a row, beyond one for each class.
    """
    for batch in _read_batches(bundle, path, columns, answers):
        yield batch.frame
        report(batch.share)


def _read_batches(
    bundle: Bundle, path: Path, columns: Mapping[str, str], answers: int = 0
) -> Iterator[Block]:
    numbers = len(bundle.encoder.encoder.feature_names) + len(bundle.encoder.classes) + answers
    rows = min(BATCH_ROWS, max(1, BATCH_NUMBERS // numbers))
    return read_rows(path, columns, rows, bundle.encoder.config.source)


def check_decided(count: int, refused: Counter[str], path: Path) -> None:
    """Raise a DataError where all rows of a table were refused."""
    if not count:
        raise DataError(
            f"No row of {path} can be decided: {refused.most_common(1)[0][0]}.",
            "Give rows like those that the model was made for.",
        )
