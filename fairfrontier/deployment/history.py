"""What was counted of a bundle: periods by group, decision and label, in the order they came."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.deployment.bundle import OTHER, Bundle, count_column, read_ids
from fairfrontier.deployment.config import MonitorConfig
from fairfrontier.deployment.scoring import check_decided, find_columns, read_frames
from fairfrontier.metrics.statistic.drift import BATCHES, compare_counts
from fairfrontier.models.persistence import reading
from fairfrontier.prepare.table.frame import read_result
from fairfrontier.prepare.table.reader import read_names
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.seeds import derive_integer, uniforms
from fairfrontier.runtime.text_file import to_csv

# Sums over rows: of those decided, how many of them expected to be selected, and so on.
COUNTED = ("rows", "selected", "labelled", "positive", "true_positive", "false_positive")
KEYS = ("attribute", "group", "batch")
SCORE = "score"
# Columns of the decisions that are kept until their labels come.
ID, PROBABILITY, BATCH, LABEL = "id", "probability", "batch", "label"


class Tally:
    """Sums over rows by attribute, group and batch; memory does not depend on the rows.

    ``levels`` are the groups that the bundle's reference counts, by attribute; all rows are the
    group "".
    """

    def __init__(self, bundle: Bundle) -> None:
        counted = bundle.reference["groups"]
        self.levels = {"": ("",), **{name: tuple(groups) for name, groups in counted.items()}}
        self._attributes = bundle.encoder.attributes
        self._sums = {
            name: np.zeros((len(levels) * len(BATCHES), len(COUNTED)))
            for name, levels in self.levels.items()
        }

    def find(self, codes: np.ndarray) -> dict[str, np.ndarray]:
        """Return attribute -> the positions of rows in its groups, −1 where they are of none."""
        found = {"": np.zeros(len(codes), dtype=np.int64)}
        for position, attribute in enumerate(self._attributes):
            levels = self.levels[attribute.name]
            # Groups that were too small in the reference are one.
            other = levels.index(OTHER) if OTHER in levels else -1
            table = [levels.index(each) if each in levels else other for each in attribute.names]
            found[attribute.name] = np.array([*table, other])[codes[:, position]]
        return found

    def add(
        self,
        codes: Mapping[str, np.ndarray],
        batch: np.ndarray,
        probability: np.ndarray,
        label: np.ndarray,
        *,
        decided: bool,
    ) -> None:
        """Add rows; those ``decided`` before count only what their labels say.

        Labels are 0, 1, or NaN where unknown.
        """
        known = ~np.isnan(label)
        one = np.where(known, label, 0.0)
        new = np.full(len(label), float(not decided))
        values = (new, new * probability, known, one, one * probability)
        columns = (*values, np.where(known, 1.0 - one, 0.0) * probability)
        for name, sums in self._sums.items():
            inside = codes[name] >= 0
            cell = codes[name][inside] * len(BATCHES) + batch[inside]
            for column, weight in enumerate(columns):
                sums[:, column] += np.bincount(cell, weight[inside], len(sums))

    def tabulate(self) -> pd.DataFrame:
        """Return the sums with the columns of ``KEYS`` and ``COUNTED``."""
        tables = []
        for name, levels in self.levels.items():
            batch = np.tile(np.arange(len(BATCHES)), len(levels))
            cells = (name, np.repeat(levels, len(BATCHES)), batch, *self._sums[name].T)
            tables.append(pd.DataFrame(dict(zip((*KEYS, *COUNTED), cells, strict=True))))
        return pd.concat(tables, ignore_index=True).astype({"attribute": "str", "group": "str"})


@dataclass(frozen=True, eq=False)
class PeriodRows:
    """The rows of a period.

    Attributes
    ----------
    counts : DataFrame
        `Tally.tabulate`.
    drift : DataFrame
        Columns column, n, psi, psi_by_chance, ks, wasserstein; see `compare_counts`.
    refused : dict
        Reason -> rows that were not decided, which count nowhere else.
    unknown : dict
        Attribute -> rows of none of the groups that the study's table had.
    kept : DataFrame or None
        Columns id, probability, batch, label, and the position of the group for each attribute:
        what labels that come later are joined with. None without row ids.
    """

    counts: pd.DataFrame
    drift: pd.DataFrame
    refused: Mapping[str, int]
    unknown: Mapping[str, int]
    kept: pd.DataFrame | None


def count_period(
    bundle: Bundle,
    path: Path,
    row_id: str | None,
    report: Callable[[float], None],
    *,
    labelled: bool = False,
) -> PeriodRows:
    """Decide on the rows of a table and count them.

    Raises
    ------
    ConfigError
        When a column is missing, that of labels among them where ``labelled``.
    DataError
        When no row could be decided, none has a label where ``labelled``, or an id occurs twice.

    Notes
    -----
    The table is read in batches. What is kept of each row takes about 30 bytes beside its id.
    """
    tally, reference = Tally(bundle), bundle.reference
    used = find_columns(bundle, path, row_id, bundle.encoder.names, labelled=labelled)
    refused: Counter[str] = Counter()
    kept, ids = [], []
    unknown = np.zeros(len(bundle.encoder.names), dtype=np.int64)
    described = {SCORE: reference["score"], **reference["features"]}
    binned: dict[str, Any] = {}
    for frame in read_frames(bundle, path, used, report):
        rows = bundle.encode(frame)
        decided = bundle.judge_rows(frame, rows, row_id)
        accepted = (decided["refused"] == "").to_numpy()
        refused.update(decided["refused"][~accepted])
        label = np.full(accepted.sum(), np.nan)
        if bundle.encoder.config.label.column in frame:
            label = bundle.encoder.read_labels(frame[accepted], path)
        names, words = read_ids(frame, row_id)
        batch = draw_batches(words)[accepted]
        codes = tally.find(rows.groups[accepted])
        unknown += (rows.groups[accepted] < 0).sum(axis=0)
        probability = decided["probability"].to_numpy(dtype=np.float64)[accepted]
        tally.add(codes, batch, probability, label, decided=False)
        columns = rows.columns.loc[accepted].assign(**{SCORE: decided.loc[accepted, "score"]})
        for name, each in described.items():
            binned[name] = binned.get(name, 0) + count_column(columns[name], each)
        if row_id is not None:
            ids.append(pd.Series(names).astype("str"))
            values = {ID: decided.loc[accepted, "id"].astype("str"), PROBABILITY: probability}
            of_groups = {f"group:{name}": codes[name].astype(np.int32) for name in codes if name}
            kept.append(pd.DataFrame({**values, BATCH: batch, LABEL: label, **of_groups}))
    # Of a row that comes twice, no later label says which of the two it is of.
    every = pd.concat([pd.Series(dtype="str"), *ids])
    if every.duplicated().any():
        raise DataError(
            f"The row id {every[every.duplicated()].iloc[0]!r} occurs twice in {path}.",
            "Give every row an id of its own, or name another column of ids with --row-id.",
        )
    counts = tally.tabulate()
    everyone = counts.loc[counts["attribute"] == "", list(COUNTED)].sum()
    check_decided(everyone["rows"], refused, path)
    if labelled and not everyone["labelled"]:
        raise DataError(
            f"No row of {path} has a label in the column {bundle.encoder.config.label.column!r}.",
            "Leave out --labelled: labels may come later.",
        )
    drift = []
    for name, each in described.items():
        compared = compare_counts(np.array(each["counts"]), binned[name], each.get("edges"))
        row = {"column": name, "n": int(binned[name].sum()), **vars(compared)}
        if name == SCORE:
            # Predicted numbers are in units of the target.
            row["wasserstein"] *= bundle.encoder.config.label.units[1]
        drift.append(row)
    rest = pd.concat(kept, ignore_index=True) if kept else None
    of_none = dict(zip(bundle.encoder.names, unknown.tolist(), strict=True))
    return PeriodRows(counts, pd.DataFrame(drift), refused, of_none, rest)


def count_labels(
    bundle: Bundle,
    path: Path,
    row_id: str,
    kept: pd.DataFrame,
    period: str,
    report: Callable[[float], None],
) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Join the labels of a table with the decisions of an earlier period, by row id.

    Returns the counts of rows whose label was not known before, ``kept`` with the labels, and how
    many labels were ignored since their rows have one. Rows of other periods are ignored, too.

    Raises
    ------
    ConfigError
        When the table has no labels or ids.
    DataError
        When no row is of the period, an id occurs twice, or a label is none of the study's table.
    """
    ids = pd.Index(kept[ID])
    values = np.full(len(kept), np.nan)
    seen = np.zeros(len(kept), dtype=bool)
    used = _name_label_columns(bundle, path, row_id, period)
    for frame in read_frames(bundle, path, used, report):
        names, _ = read_ids(frame, row_id)
        position = ids.get_indexer(pd.Index(names).astype("str"))
        found = position >= 0
        repeated = pd.Index(position[found]).duplicated() | seen[position[found]]
        if repeated.any():
            name = names[found][repeated.argmax()]
            raise DataError(
                f"The row id {str(name)!r} occurs twice in {path}.", "Give it one label."
            )
        seen[position[found]] = True
        values[position[found]] = bundle.encoder.read_labels(frame[found], path)
    if not seen.any():
        raise DataError(
            f"No row of {path} has an id of the period {period}, which is recorded already.",
            "Name a new period with --period, or give the labels of this one by the same row ids.",
        )
    labelled = ~np.isnan(values)
    new = kept[LABEL].isna().to_numpy() & labelled
    tally = Tally(bundle)
    codes = {name: kept[f"group:{name}"].to_numpy()[new] for name in tally.levels if name}
    codes[""] = np.zeros(new.sum(), dtype=np.int64)
    batch, probability = kept[BATCH].to_numpy()[new], kept[PROBABILITY].to_numpy()[new]
    tally.add(codes, batch, probability, values[new], decided=True)
    kept = kept.assign(**{LABEL: np.where(new, values, kept[LABEL])})
    return tally.tabulate(), kept, int((labelled & ~new).sum())


def draw_batches(words: np.ndarray) -> np.ndarray:
    """Return a batch for every row, drawn by the word of its id with the shares of ``BATCHES``."""
    drawn = uniforms(derive_integer("monitor", "batch"), words)
    return np.searchsorted(np.cumsum(BATCHES)[:-1], drawn, side="right")


def _name_label_columns(bundle: Bundle, path: Path, row_id: str, period: str) -> dict[str, str]:
    label = bundle.encoder.config.label.column
    names = read_names(path, bundle.encoder.config.source)
    for name, what in ((row_id, "row ids"), (label, "labels")):
        if name not in names:
            raise ConfigError(
                f"The period {period} is recorded already, and {path} has no column {name!r} of "
                f"{what} to add to it.",
                "Name a new period with --period, or give the labels of this one by row id.",
            )
    return {row_id: "row-id", label: "table"}


HISTORY, DRIFT, SUMMARY = "history.parquet", "drift.parquet", "monitor.json"
_KEPT = "rows@"
ENTRY = ("entry", "period", "digest", "refused")
UNKNOWN = "unknown"
COUNTS = [*ENTRY, *KEYS, UNKNOWN, *COUNTED]
DRIFTS = ["entry", "period", "column", "n", "psi", "psi_by_chance", "ks", "wasserstein"]
FACTS, DIGEST = ("bundle", "alpha", "limits", "announced"), "digest"
ALPHA = 0.05
MEND = "Restore it from a copy, or begin another history with --out."


@dataclass(frozen=True, eq=False)
class History:
    """What was counted of a bundle's rows.

    Attributes
    ----------
    bundle : str
        Digest of the bundle.
    alpha : float
        Probability of any false alarm.
    limits : dict
        Name -> bound.
    counts : DataFrame
        Columns entry, from 0; period; digest of the table; refused, rows of that table; attribute,
        group, batch; unknown, rows of that table in no group of the attribute that the study's
        table had; and the sums of ``COUNTED``. An entry is a period, or labels that came later.
    drift : DataFrame
        Columns entry, period, column, n, psi, psi_by_chance, ks, wasserstein.
    announced : tuple of str
        The checks whose alarm was an event, for good.
    """

    bundle: str
    alpha: float
    limits: dict[str, float]
    counts: pd.DataFrame
    drift: pd.DataFrame
    announced: tuple[str, ...] = ()

    @property
    def entries(self) -> pd.DataFrame:
        """Return a row for each entry, with the sums over all of its rows."""
        everyone = self.counts[self.counts["attribute"] == ""]
        return everyone.groupby(list(ENTRY), as_index=False)[list(COUNTED)].sum()

    @property
    def periods(self) -> list[str]:
        """The periods in the order in which they came."""
        return list(dict.fromkeys(self.counts["period"]))

    def count_unknown(self, period: str) -> dict[str, int]:
        """Return attribute -> rows of a period in no group that the study's table had."""
        own = self.counts[(self.counts["period"] == period) & (self.counts["attribute"] != "")]
        # Entries of labels that came later have none.
        most = own.groupby("attribute", sort=False)[UNKNOWN].max()
        return {str(name): int(rows) for name, rows in most.items()}

    def add(
        self,
        period: str,
        digest: str,
        refused: int,
        counts: pd.DataFrame,
        drift: pd.DataFrame,
        unknown: Mapping[str, int] | None = None,
    ) -> History:
        """Return the history with an entry more."""
        of_none = counts["attribute"].map({**(unknown or {})}).fillna(0).astype(np.int64)
        counts = counts.assign(**{UNKNOWN: of_none})
        number = 0 if self.counts.empty else int(self.counts["entry"].max()) + 1
        facts: dict[str, Any] = {"entry": number, "period": period, "digest": digest}
        tables = []
        for old, new in ((self.counts, counts), (self.drift, drift)):
            added = new.assign(**facts, refused=refused).astype({"period": "str", "digest": "str"})
            # Columns of an empty table have no types.
            grown = [each[list(old)] for each in (old, added) if not each.empty]
            tables.append(pd.concat(grown, ignore_index=True) if grown else old)
        return replace(self, counts=tables[0], drift=tables[1])

    def sum_batches(self, attribute: str) -> tuple[np.ndarray, list[str]]:
        """Return the sums of an attribute's groups, and the groups.

        The array has shape (n_entries, n_batches, n_groups, len(COUNTED)).
        """
        rows = self.counts[self.counts["attribute"] == attribute]
        groups = list(dict.fromkeys(rows["group"]))
        sums = rows.sort_values("entry", kind="stable")[list(COUNTED)].to_numpy()
        shape = (-1, len(groups), len(BATCHES), len(COUNTED))
        return sums.reshape(shape).swapaxes(1, 2), groups

    def write(self, folder: Path) -> None:
        """Write both tables into a folder."""
        write_table(self.counts, folder / HISTORY, {name: getattr(self, name) for name in FACTS})
        write_table(self.drift, folder / DRIFT)


def write_table(table: pd.DataFrame, path: Path, facts: Mapping[str, Any] | None = None) -> None:
    """Write a table with facts beside it, and a digest of both, as Parquet."""
    # pandas keeps them in the file's metadata, as JSON.
    attrs = json.loads(json.dumps(facts or {}))
    written = table.copy()
    written.attrs = {**attrs, DIGEST: _digest(table, attrs)}
    written.to_parquet(path, index=False)


def _read_table(path: Path) -> pd.DataFrame:
    """Return a table with its facts; ValueError where it is not as `write_table` left it."""
    table = read_result(path)
    digest = table.attrs.pop(DIGEST, None)
    # Earlier versions kept none.
    if digest not in (None, _digest(table, table.attrs)):
        raise ValueError(f"{path.name} was altered")
    return table


def _digest(table: pd.DataFrame, facts: Mapping[Any, Any]) -> str:
    return sha256(to_csv(table) + json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_history(folder: Path, bundle: str, config: MonitorConfig) -> History:
    """Return the history in a folder, or an empty one.

    Raises
    ------
    ConfigError
        When it is of another bundle, or has other limits or another alpha than those given.
    StoreError
        When it cannot be read, or is not where other files of one are.
    """
    # A link that leads nowhere is a file of it, too.
    begun = (HISTORY, DRIFT, SUMMARY, _KEPT)
    if not folder.is_dir() or not any(path.name.startswith(begun) for path in folder.iterdir()):
        counts = pd.DataFrame(columns=COUNTS)
        drift = pd.DataFrame(columns=DRIFTS)
        alpha = ALPHA if config.alpha is None else config.alpha
        return History(bundle, alpha, config.limit or {}, counts, drift)
    with reading(folder, MEND, "history"):
        counts, drift = _read_table(folder / HISTORY), _read_table(folder / DRIFT)
        bundle_digest, alpha, limits, announced = (counts.attrs[name] for name in FACTS)
        history = History(bundle_digest, alpha, limits, counts, drift, tuple(announced))
    if history.bundle != bundle:
        raise ConfigError(
            f"The history in {folder} is of another bundle, or of another of its classes.",
            "Begin another one with --out, or name the bundle and the class that it is of.",
        )
    for name, given, kept in (
        ("limit", config.limit, history.limits),
        ("alpha", config.alpha, history.alpha),
    ):
        if given is not None and given != kept:
            raise ConfigError(
                f"--{name} is not that of the history in {folder}, by which false alarms are "
                "bounded.",
                f"Leave out --{name}, or begin another history with --out.",
            )
    return history


def name_kept(period: str) -> str:
    """Return the name of the file with a period's decisions, which labels are joined with."""
    return f"{_KEPT}{period}.parquet"


def list_kept(folder: Path) -> list[Path]:
    """Return the files of a history that hold its periods' decisions."""
    return sorted(folder.glob(name_kept("*")))


def read_kept(path: Path) -> pd.DataFrame:
    """Return a period's decisions, ``PeriodRows.kept``; StoreError where they cannot be read."""
    with reading(path.parent, MEND, "history"):
        return _read_table(path)
