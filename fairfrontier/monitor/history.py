"""What was counted so far: periods, and labels that came later, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.evaluate.statistic.drift import BATCHES
from fairfrontier.monitor.config import (
    LEAST_ALPHA,
    Limit,
    MonitorConfig,
    check_limits,
    check_period,
    read_limit,
)
from fairfrontier.monitor.count import BATCH, COUNTED, ID, KEYS, LABEL, PROBABILITY
from fairfrontier.prepare.table.frame import read_result
from fairfrontier.runtime.errors import ConfigError, StoreError

HISTORY, DRIFT, SUMMARY = "history.parquet", "drift.parquet", "monitor.json"
_KEPT = "rows@"
ENTRY = ("entry", "period", "digest", "refused")
TEXT = ("period", "digest")
UNKNOWN = "unknown"
DISTANCES = ("psi", "psi_by_chance", "ks", "wasserstein")
# How columns are written, those of the distances apart.
WHOLE = ("entry", "refused", "batch", UNKNOWN)
COUNT_TYPES = {
    **dict.fromkeys((*TEXT, "attribute", "group"), "str"),
    **dict.fromkeys(WHOLE, "int64"),
    **dict.fromkeys(COUNTED, "float64"),
}
DRIFT_TYPES = {
    "entry": "int64",
    "period": "str",
    "column": "str",
    "n": "int64",
    **dict.fromkeys(DISTANCES, "float64"),
}
ALPHA = 0.05
# What sums of probabilities may be off by rounding, as a share of the rows.
SLACK = 1e-6
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

    def list_limits(self) -> list[Limit]:
        """Return the limits."""
        return [read_limit(name, bound) for name, bound in self.limits.items()]

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
        facts = {"entry": number, "period": period, "digest": digest, "refused": refused}
        tables = []
        for old, new in ((self.counts, counts), (self.drift, drift)):
            told: dict[str, Any] = {name: facts[name] for name in old if name in facts}
            added = new.assign(**told).astype({name: "str" for name in told if name in TEXT})
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
        counts = self.counts.copy()
        # pandas keeps them in the file's metadata.
        facts = ("bundle", "alpha", "limits", "announced")
        counts.attrs.update({name: getattr(self, name) for name in facts})
        counts.to_parquet(folder / HISTORY, index=False)
        self.drift.to_parquet(folder / DRIFT, index=False)


def read_history(folder: Path, bundle: str, config: MonitorConfig, keys: pd.DataFrame) -> History:
    """Return the history in a folder, or an empty one; ``keys`` are the rows of each entry.

    Raises
    ------
    ConfigError
        When it is of another bundle, or has other limits or another alpha than those given.
    StoreError
        When it cannot be read, or is not where other files of one are.
    """
    if not _has_begun(folder):
        counts = pd.DataFrame(columns=[*ENTRY, *KEYS, UNKNOWN, *COUNTED])
        drift = pd.DataFrame(columns=list(DRIFT_TYPES))
        alpha = ALPHA if config.alpha is None else config.alpha
        return History(bundle, alpha, config.limit or {}, counts, drift)
    with explaining(folder):
        counts = _read(folder / HISTORY, COUNT_TYPES)
        drift = _read(folder / DRIFT, DRIFT_TYPES)
        facts = counts.attrs
        limits = {str(name): float(bound) for name, bound in facts["limits"].items()}
        check_limits(limits)
        announced = facts["announced"]
        if not isinstance(announced, list) or not all(isinstance(name, str) for name in announced):
            raise ValueError("what was announced is no list of names")
        history = History(
            str(facts["bundle"]), float(facts["alpha"]), limits, counts, drift, tuple(announced)
        )
        if not LEAST_ALPHA <= history.alpha < 1:
            raise ValueError(f"alpha is not between {LEAST_ALPHA:g} and 1")
    if history.bundle != bundle:
        raise ConfigError(
            f"The history in {folder} is of another bundle, or of another of its classes.",
            "Begin another one with --out, or name the bundle and the class that it is of.",
        )
    check_history(folder, history, keys)
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


def read_kept(path: Path, groups: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """Return a period's decisions, ``PeriodRows.kept``; ``groups`` are those of each attribute.

    StoreError where they cannot be read, or hold what no period leaves.
    """
    codes = {f"group:{name}": (-1, len(levels) - 1) for name, levels in groups.items() if name}
    types = {ID: "str", PROBABILITY: "float64", LABEL: "float64"}
    with explaining(path.parent):
        kept = _read(path, {**types, **dict.fromkeys((BATCH, *codes), "int64")})
        known = kept[ID].notna() & (kept[LABEL].isna() | kept[LABEL].isin((0, 1)))
        ranges = {PROBABILITY: (-SLACK, 1 + SLACK), BATCH: (0, len(BATCHES) - 1), **codes}
        for name, (least, most) in ranges.items():
            known &= kept[name].between(least, most)
        if not known.all():
            raise ValueError(f"{path.name} has a row that no period leaves")
    return kept


def _has_begun(folder: Path) -> bool:
    """Return whether a folder has any file of a history; a link that leads nowhere is one."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return any(name in (HISTORY, DRIFT, SUMMARY) or name.startswith(_KEPT) for name in names)


def _read(path: Path, types: Mapping[str, str]) -> pd.DataFrame:
    """Return a table whose columns have the types with which they were written."""
    table = read_result(path)
    if {*types} != {*table.columns} or not table.columns.is_unique:
        raise ValueError(f"the columns of {path.name} are not {', '.join(types)}")
    for name, kind in types.items():
        # A cast would cut 1.5 to 1.
        if kind == "int64" and table[name].dtype.kind not in "iu":
            raise ValueError(f"{name} of {path.name} is no column of whole numbers")
    return table.astype(dict(types))


def check_history(folder: Path, history: History, keys: pd.DataFrame) -> None:
    """Raise StoreError for a history in a folder that counting rows and labels cannot leave."""
    with explaining(folder):
        _check_entries(history, keys)
        _check_sums(history)
        for period in history.periods:
            check_period(period)
        _check_drift(history)


def _check_entries(history: History, keys: pd.DataFrame) -> None:
    """Raise a ValueError unless every entry has a count ≥ 0 for each of ``keys``, in order."""
    counts = history.counts
    numbers = counts[[*WHOLE, *COUNTED]]
    # Beyond 2**53, adding one changes nothing.
    if not (((numbers >= 0) & (numbers < 2**53)).all(axis=None) and counts.notna().all(axis=None)):
        raise ValueError("something is missing, or a count is negative or too large")
    entry, place = np.divmod(np.arange(len(counts)), len(keys))
    expected = keys.iloc[place].assign(entry=entry).to_numpy()
    found = counts[[*keys, "entry"]].to_numpy()
    complete = len(counts) > 0 and len(counts) % len(keys) == 0
    # An entry of two periods would be two.
    if not (complete and np.array_equal(found, expected) and len(history.entries) == entry[-1] + 1):
        raise ValueError("an entry has other rows than the bundle's groups")


def _check_sums(history: History) -> None:
    """Raise a ValueError where a part is more than the whole that it is of."""
    counts = history.counts
    if (counts[["rows", "labelled", "positive"]] % 1 > 0).any(axis=None):
        raise ValueError("rows or labels are no whole number")
    # Labels may come in later entries than their rows.
    of_period = counts.groupby(["period", *KEYS], sort=False)[list(COUNTED)].sum()
    rows, selected, labelled, positive, hit, false = (of_period[name] for name in COUNTED)
    slack = SLACK * (1 + rows)
    parts = (
        *((selected, rows), (labelled, rows), (positive, labelled), (hit, positive)),
        *((false, labelled - positive), (hit + false, selected)),
    )
    if any((part > whole + slack).any() for part, whole in parts):
        raise ValueError("more rows are counted as selected or labelled than there are")
    sums = counts.groupby(["entry", *KEYS[::2]], sort=False)[list(COUNTED)].sum()
    everyone = sums.xs("", level="attribute").reindex(sums.droplevel("attribute").index)
    # Labels that come later are an entry without rows.
    most = everyone.to_numpy() + SLACK * (1 + everyone[["rows"]].to_numpy())
    if (sums.to_numpy() > most).any():
        raise ValueError("the groups of an attribute have more rows than there are")


def _check_drift(history: History) -> None:
    """Raise a ValueError unless every distance is of an entry, and none is negative."""
    drift = history.drift
    period = drift["entry"].map(history.counts.groupby("entry")["period"].first())
    if not (drift["period"] == period).all() or drift["column"].isna().any():
        raise ValueError(f"{DRIFT} is of other periods")
    if (drift[["n", *DISTANCES]] < 0).any(axis=None):
        raise ValueError(f"a distance in {DRIFT} is negative")


@contextmanager
def explaining(folder: Path) -> Iterator[None]:
    """Turn what goes wrong as a history is read into a StoreError."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise StoreError(f"The history in {folder} cannot be read: {reason}.", MEND) from None
