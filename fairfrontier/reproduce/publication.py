"""Published numbers beside ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from fairfrontier.reproduce.curve import trace_curves
from fairfrontier.runtime.config import Model, fault, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.home import find_home
from fairfrontier.study.frontier import summarise

COLUMNS = (
    "table",
    "row",
    "measure",
    "published_mean",
    "published_spread",
    "spread_kind",
    "ours_mean",
    "ours_sd",
    "n_splits",
    "profile",
)


class PublishedRow(Model):
    """One row of a published table: means, and spreads where the paper gives them.

    Attributes
    ----------
    label : str
        As readers see it.
    method : str or None
        Our label of the method; the row's own name when None.
    at : mapping
        What our setting says besides, of a method that is run at several: ``{noise: 0.1}``.
    mean, spread : tuple of float
        The numbers, one a measure.
    remark : str
        What a reader has to know of them.
    """

    label: str
    method: str | None = None
    at: dict[str, Any] = Field(default_factory=dict)
    mean: tuple[float, ...]
    spread: tuple[float, ...] | None = None
    remark: str = ""


class Derived(Model):
    """A number of a paper that is made of our measures: the largest of factor · mean + shift.

    The means are those over the splits, so that it is the measure with the largest *mean* which is
    shown, with that measure's own spread.
    """

    largest_of: tuple[str, ...] = Field(min_length=1)
    factor: float = 1.0
    shift: float = 0.0


class PublishedTable(Model):
    """A published table.

    Attributes
    ----------
    title, dataset, where, verified : str
        What it shows, on which dataset, where it stands, and how the numbers were checked.
    spread_kind : {"sd", "se"}
        What the spreads are.
    n_splits : int
        Splits behind a published mean.
    measures : tuple of str
        ``measure`` or ``measure:group``, in our names, or names of ``derived``, in the order of
        the rows' numbers.
    derived : mapping of str to Derived
        What is made of our measures.
    along : str or None
        One of ``measures``, where the rows are points of curves: ours is read off the curve
        through our settings, see ``curve.Curve``, where this measure is as published.
    rows : mapping of str to PublishedRow
        By their names, which are our labels of methods where a row does not say another.
    """

    title: str
    dataset: str
    where: str
    verified: str
    spread_kind: Literal["sd", "se"]
    n_splits: int = Field(gt=0)
    measures: tuple[str, ...]
    derived: dict[str, Derived] = Field(default_factory=dict)
    along: str | None = None
    rows: dict[str, PublishedRow]

    @property
    def sources(self) -> tuple[str, ...]:
        """Our measures that the numbers are, or are made of."""
        return tuple(
            each
            for name in self.measures
            for each in (self.derived[name].largest_of if name in self.derived else (name,))
        )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        for name, row in self.rows.items():
            for numbers in (row.mean, row.spread):
                if numbers is not None and len(numbers) != len(self.measures):
                    raise fault(
                        f"the row {name} needs {len(self.measures)} numbers", "Give one a measure."
                    )
        if self.along is not None and (self.derived or self.along not in self.measures):
            raise fault("along is none of the measures", "Name one of them, and derive nothing.")
        return self


class Publication(Model):
    """A file of ``data/reference``: the tables of one paper."""

    publication: str
    source: str
    tables: dict[str, PublishedTable]


def read_publication(reproduces: str, home: Path | None = None) -> tuple[Publication, str]:
    """Read the publication behind ``FILE.TABLE``.

    Parameters
    ----------
    reproduces : str
        E.g. ``budro.table2``.
    home : Path, optional
        The project root.

    Returns
    -------
    publication : Publication
        The whole file.
    table : str
        The key of the table in it.

    Raises
    ------
    ConfigError
        When there is no such file or table, or the file is not complete.
    """
    name, _, table = reproduces.partition(".")
    path = find_yaml("publication", name, home or find_home())
    publication = parse(Publication, read_yaml(path), path)
    if table not in publication.tables:
        raise ConfigError(f"{path} has no table {table!r}.", nearest(table, publication.tables))
    return publication, table


def compare(
    points: pd.DataFrame,
    fits: pd.DataFrame,
    publication: Publication,
    table: str,
    profile: str,
    select_on: str = "train",
) -> pd.DataFrame:
    """Set a published table beside our means over the splits that were run.

    Parameters
    ----------
    points : DataFrame
        Columns of points.parquet; the part ``test`` is used.
    fits : DataFrame
        Our fits under the paper's protocol: columns method, setting, seed.
    publication : Publication
        What was published.
    table : str
        Which of its tables.
    profile : str
        How much was run.
    select_on : str
        The part that chooses the settings of curves.

    Returns
    -------
    DataFrame
        Columns ``COLUMNS``; one row per row of the table × measure, in the table's order, then our
        rows that it does not have. What one side lacks is NaN; ``n_splits`` counts ours. What is
        read off a curve has no standard deviation.
    """
    published = publication.tables[table]
    ours = summarise(points, fits, "test")
    settings = fits[["method", "setting"]].drop_duplicates()
    named = _name_rows([(str(m), str(s)) for m, s in settings.to_numpy()], published)
    ours["row"] = [named[each] for each in zip(ours["method"], ours["setting"], strict=True)]
    ours = ours.set_index(["row", "name"])
    extra = [each for each in dict.fromkeys(named.values()) if each not in published.rows]
    read = _read_curves(points, fits, published, select_on)
    records = []
    for row in (*published.rows, *extra):
        numbers = published.rows.get(row)
        for position, measure in enumerate(published.measures):
            found = read.get((row, measure)) or _find(
                ours, row, published.derived.get(measure, measure)
            )
            spread = numbers.spread[position] if numbers and numbers.spread else np.nan
            records.append(
                (
                    f"{publication.publication}.{table}",
                    row,
                    measure,
                    numbers.mean[position] if numbers else np.nan,
                    spread,
                    published.spread_kind,
                    *found,
                    profile,
                )
            )
    return pd.DataFrame.from_records(records, columns=list(COLUMNS))


def _read_curves(
    points: pd.DataFrame, fits: pd.DataFrame, published: PublishedTable, select_on: str
) -> dict[tuple[str, str], tuple[float, float, int]]:
    """Return what stands on our curves at the points of a published one, by row and measure."""
    found: dict[tuple[str, str], tuple[float, float, int]] = {}
    if published.along is None:
        return found
    place = published.measures.index(published.along)
    for measure in published.measures:
        if measure == published.along:
            continue
        curves = trace_curves(points, fits, measure, published.along, select_on)
        for name, row in published.rows.items():
            label, reach = row.method or name, row.mean[place]
            cost = curves[label].find_cost(reach) if label in curves else np.inf
            n_splits = fits.loc[fits["method"] == label, "seed"].nunique()
            missed = not np.isfinite(cost)
            found[name, measure] = (np.nan if missed else cost, np.nan, n_splits)
            found[name, published.along] = (np.nan if missed else reach, np.nan, n_splits)
    return found


def _name_rows(
    settings: Sequence[tuple[str, str]], published: PublishedTable
) -> dict[tuple[str, str], str]:
    """Return the name of the row of each (method, setting): the table's, or one of our own."""
    named: dict[tuple[str, str], str] = {}
    for name, row in published.rows.items():
        if published.along is not None:
            # Settings of a curve are no rows of their own.
            named |= {each: name for each in settings if each[0] == (row.method or name)}
            continue
        fitting = [
            (method, setting)
            for method, setting in settings
            if method == (row.method or name) and row.at.items() <= json.loads(setting).items()
        ]
        if len(fitting) > 1:
            raise ConfigError(
                f"The published row {name} is of one setting, and {fitting[0][0]} has "
                f"{len(fitting)} that fit it.",
                "Say which under `at:` in data/reference, or list fewer in the study.",
            )
        taken = [named[each] for each in fitting if each in named]
        if taken:
            raise ConfigError(
                f"The published rows {taken[0]} and {name} are of one setting of {fitting[0][0]}.",
                "Say what tells them apart under `at:` in data/reference.",
            )
        named |= dict.fromkeys(fitting, name)
    for method, setting in settings:
        if (method, setting) not in named:
            others = [json.loads(each) for name, each in settings if name == method]
            own = json.loads(setting)
            telling = [
                f"{key} = {value}"
                for key, value in own.items()
                if any(each.get(key) != value for each in others)
            ]
            named[method, setting] = ", ".join([method, *telling])
    return named


def _find(ours: pd.DataFrame, row: str, measure: str | Derived) -> tuple[float, float, int]:
    """Return the mean, standard deviation and number of splits of a measure of ours."""
    asked = Derived(largest_of=(measure,)) if isinstance(measure, str) else measure
    if not all((row, each) in ours.index for each in asked.largest_of):
        return np.nan, np.nan, 0
    found = ours.loc[[(row, each) for each in asked.largest_of]]
    values = asked.factor * found["value"].to_numpy(dtype=np.float64) + asked.shift
    # A level that could not be estimated hides which is the largest: NaN comes first.
    place = int(np.argmax(values))
    spread = abs(asked.factor) * float(found["sd"].to_numpy()[place])
    return float(values[place]), spread, int(found["n_seeds"].to_numpy()[place])
