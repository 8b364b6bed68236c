"""A study beside its paper: published numbers next to ours, and the claims that were checked."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fairfrontier.reproduce.curve import trace_curves
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.frontier import summarise
from fairfrontier.study.publication import Derived, Publication, PublishedTable

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
