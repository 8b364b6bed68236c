"""Published numbers next to ours."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.frontier import summarise
from papers.curve import trace_curves
from papers.publication import Derived, Publication, PublishedTable

PUBLISHED = ("published_mean", "published_spread", "spread_kind")
OURS = ("ours_mean", "ours_sd", "n_splits")
COLUMNS = ("table", "row", "measure", *PUBLISHED, *OURS, "profile")


def compare(
    points: pd.DataFrame,
    fits: pd.DataFrame,
    publication: Publication,
    table: str,
    profile: str,
    select_on: str = "train",
) -> pd.DataFrame:
    """Compare a published table with our means over splits on the test part.

    ``fits`` are ours under the paper's protocol (columns method, setting, seed); ``select_on`` is
    the part that chooses the settings of curves.

    Returns
    -------
    DataFrame
        Columns ``COLUMNS``; one row per row of the table × measure, in the table's order, then our
        rows that it lacks. Missing numbers are NaN; ``n_splits`` counts our splits. A number read
        off a curve has no standard deviation.
    """
    published = publication.tables[table]
    ours = summarise(points, fits, "test")
    settings = fits[["method", "setting"]].drop_duplicates()
    named = _name_rows([(str(m), str(s)) for m, s in settings.to_numpy()], published)
    ours["row"] = [named[key] for key in zip(ours["method"], ours["setting"], strict=True)]
    ours = ours.set_index(["row", "name"])
    extra = [name for name in dict.fromkeys(named.values()) if name not in published.rows]
    on_curves = _read_curves(points, fits, published, select_on)
    records = []
    for row in (*published.rows, *extra):
        numbers = published.rows.get(row)
        for i, measure in enumerate(published.measures):
            mine = on_curves.get((row, measure)) or _find(
                ours, row, published.derived.get(measure, measure)
            )
            mean = numbers.mean[i] if numbers else np.nan
            spread = numbers.spread[i] if numbers and numbers.spread else None
            name = (f"{publication.publication}.{table}", row, measure)
            records.append((*name, mean, spread, published.spread_kind, *mine, profile))
    compared = pd.DataFrame.from_records(records, columns=list(COLUMNS))
    return compared.astype({"published_spread": np.float64})


def _read_curves(
    points: pd.DataFrame, fits: pd.DataFrame, published: PublishedTable, select_on: str
) -> dict[tuple[str, str], tuple[float, float, int]]:
    """Return the numbers of our curves at the points of a published one, by row and measure."""
    numbers: dict[tuple[str, str], tuple[float, float, int]] = {}
    if published.along is None:
        return numbers
    column = published.measures.index(published.along)
    for measure in published.measures:
        if measure == published.along:
            continue
        curves = trace_curves(points, fits, measure, published.along, select_on)
        for name, row in published.rows.items():
            label, harm = row.method or name, row.mean[column]
            cost = curves[label].find_cost(harm) if label in curves else np.inf
            n_splits = fits.loc[fits["method"] == label, "seed"].nunique()
            missed = not np.isfinite(cost)
            numbers[name, measure] = (np.nan if missed else cost, np.nan, n_splits)
            numbers[name, published.along] = (np.nan if missed else harm, np.nan, n_splits)
    return numbers


def _name_rows(
    settings: Sequence[tuple[str, str]], published: PublishedTable
) -> dict[tuple[str, str], str]:
    """Return the name of the row of each (method, setting): the table's, or one of our own."""
    named: dict[tuple[str, str], str] = {}
    for name, row in published.rows.items():
        if published.along is not None:
            # All settings of a curve have its name.
            named |= {key: name for key in settings if key[0] == (row.method or name)}
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
                "Name one under `at:` in data/reference, or list fewer in the study.",
            )
        taken = [named[key] for key in fitting if key in named]
        if taken:
            raise ConfigError(
                f"The published rows {taken[0]} and {name} are of one setting of {fitting[0][0]}.",
                "Distinguish them under `at:` in data/reference.",
            )
        named |= dict.fromkeys(fitting, name)
    for method, setting in settings:
        if (method, setting) not in named:
            others = [json.loads(other) for name, other in settings if name == method]
            differing = [
                f"{key} = {value}"
                for key, value in json.loads(setting).items()
                if any(other.get(key) != value for other in others)
            ]
            named[method, setting] = ", ".join([method, *differing])
    return named


def _find(ours: pd.DataFrame, row: str, measure: str | Derived) -> tuple[float, float, int]:
    """Return the mean, standard deviation and number of splits of one of our measures."""
    derived = Derived(largest_of=(measure,)) if isinstance(measure, str) else measure
    keys = [(row, name) for name in derived.largest_of]
    if not all(key in ours.index for key in keys):
        return np.nan, np.nan, 0
    rows = ours.loc[keys]
    values = derived.factor * rows["value"].to_numpy(dtype=np.float64) + derived.shift
    # argmax takes the first NaN: without an estimate of each level, the largest is unknown.
    largest = int(np.argmax(values))
    spread = abs(derived.factor) * float(rows["sd"].to_numpy()[largest])
    return float(values[largest]), spread, int(rows["n_seeds"].to_numpy()[largest])
