"""The categories of audited attributes, and of their cross."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairfrontier.prepare.table.audit_table import UNKNOWN, AuditRows
from fairfrontier.prepare.table.score_table import cross, name_cells
from fairfrontier.report.template import name_pool
from fairfrontier.runtime.errors import DataError

# Beyond this many categories of one attribute hardly any could be compared.
LEVELS_AT_MOST = 1000


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


def cross_groups(rows: AuditRows) -> dict[str, Categories]:
    """Return the categories of each attribute, and of the cross of all of them."""
    columns = [(rows.codes[:, i], levels) for i, levels in enumerate(rows.attributes.values())]
    groups: dict[str, tuple[np.ndarray, tuple[tuple[str, ...], ...]]] = {
        name: (codes, tuple((level,) for level in levels))
        for name, (codes, levels) in zip(rows.attributes, columns, strict=True)
    }
    if len(columns) > 1:
        groups["×".join(rows.attributes)] = cross(columns)
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
