"""What a bundle's scores are made of: SHAP values by column, and their means by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.choose.bundle import Bundle, ClassifierBundle, RegressorBundle, load_bundle
from fairfrontier.choose.config import ExplainConfig
from fairfrontier.choose.judgement import OneClass
from fairfrontier.choose.scoring import read_frames
from fairfrontier.choose.shapley import attribute_score
from fairfrontier.choose.view import view_binary
from fairfrontier.figure.explanation import draw_explanation
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.splitting.encoder import GROUP_PREFIX
from fairfrontier.prepare.table.frame import to_pandas
from fairfrontier.prepare.table.reader import check_stamps, check_table, read_names, stamp_table
from fairfrontier.report.finding import name_pool
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.option import RESULTS, check_again
from fairfrontier.runtime.seeds import derive_integer, uniforms
from fairfrontier.runtime.text_file import to_csv
from fairfrontier.runtime.writer import filling
from fairfrontier.study.drawing import Picture

FILES = RESULTS["explain"]
PASSES = ("reading", "explaining")
Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Explanation:
    """What columns add to the scores of rows: score = ``base`` + the sum of a row's ``values``.

    Attributes
    ----------
    values : DataFrame of float64
        A row for every row that is not refused, by its index, and a column for every raw column
        that the model decides by.
    base : float
        The score that all rows start from.
    unit : str
        Of scores and values: log-odds, probability (of several classes that of one, by name), or
        units of the label; see `fairfrontier.choose.shapley.attribute_score`.
    groups : DataFrame of categories
        The level of every attribute, missing where a row is of no known group.
    unseen : dict of str to int
        Column -> how many rows have a level of it that training had not: it adds as if it were
        none.
    """

    values: pd.DataFrame
    base: float
    unit: str
    groups: pd.DataFrame
    unseen: Mapping[str, int]

    def tabulate(self, minimum: int = 10) -> pd.DataFrame:
        """Return the means over all rows and over every group.

        Columns attribute and level (empty for all rows), n, column (those of the largest values
        first), ``mean_abs``, that of absolute values, and ``mean``. In a group the means add up to
        its mean score less the base. Levels of fewer than ``minimum`` rows are one; rows that are
        still fewer have no means.
        """
        order = self.values.abs().mean().sort_values(ascending=False, kind="stable").index
        tables = []
        for attribute, level, mask in self._list_groups(minimum):
            values = self.values.loc[mask, order]
            means = pd.DataFrame({"mean_abs": values.abs().mean(), "mean": values.mean()})
            if len(values) < minimum:
                means[:] = np.nan
            means = means.rename_axis("column").reset_index()
            means.insert(0, "n", len(values))
            means.insert(0, "level", level)
            means.insert(0, "attribute", attribute)
            tables.append(means)
        return pd.concat(tables, ignore_index=True)

    def _list_groups(self, minimum: int) -> Iterator[tuple[str, str, np.ndarray]]:
        """Yield attribute, level and mask: all rows, then the levels, the small ones as one."""
        yield "", "", np.ones(len(self.values), dtype=bool)
        for attribute, levels in self.groups.items():
            sizes = levels.value_counts(sort=False)
            for level in sizes.index[sizes >= minimum]:
                yield str(attribute), str(level), (levels == level).to_numpy()
            small = sizes.index[(sizes > 0) & (sizes < minimum)]
            if len(small):
                yield str(attribute), name_pool(len(small)), levels.isin(small).to_numpy()


def explain(bundle: Bundle | str | Path, frame: Any, accepted: str | None = None) -> Explanation:
    """Explain the scores of a bundle on raw rows by SHAP values of the raw columns.

    Parameters
    ----------
    bundle : Bundle, str or Path
        What decides, or its folder.
    frame : DataFrame or object with ``__arrow_c_stream__``
        Raw columns, as `Bundle.decide` takes them. The rows are also what values are relative to.
    accepted : str, optional
        Of several classes the one whose probability is explained; that of the bundle by default.

    Returns
    -------
    Explanation

    Raises
    ------
    ConfigError
        When a column is missing, or there is no such class.
    DataError
        When every row is refused.
    StoreError
        When the bundle was altered.

    Notes
    -----
    See `fairfrontier.choose.shapley.attribute_score` for the definition, the cost and the sources.
    Values say what the model computes, not what causes the outcome. A rule behind the model, such
    as a cut for each group, is no part of the score.
    """
    bundle, frame = _load(bundle, accepted), to_pandas(frame)
    rows = bundle.encode(frame)
    kept = rows.refusals.accepted
    if not kept.any():
        reason = rows.refusals.reasons[0] if len(frame) else "there is none"
        raise DataError(f"No row can be explained: {reason}.", "Give rows that the bundle decides.")
    index = frame.index[kept]
    spans = find_spans(bundle.encoder)
    found = attribute_score(bundle.model, rows.X[kept], list(spans.values()))
    values, base, unit = found.values, found.base, found.unit
    if isinstance(bundle.model, OneClass):
        unit = f"{unit} of {bundle.class_names[1]}"
    if isinstance(bundle, RegressorBundle):
        # Differences have no offset.
        values = bundle.encoder.unscale(values) - bundle.encoder.unscale(np.zeros(1))
        base = float(bundle.encoder.unscale(np.array(base)))
    groups = {
        attribute.name: pd.Categorical.from_codes(codes, pd.Index(attribute.names))
        for attribute, codes in zip(bundle.encoder.attributes, rows.groups[kept].T, strict=True)
    }
    return Explanation(
        values=pd.DataFrame(values, index, list(spans)),
        base=base,
        unit=unit,
        groups=pd.DataFrame(groups, index),
        unseen=rows.count_unseen(),
    )


def _load(bundle: Bundle | str | Path, accepted: str | None) -> Bundle:
    """Return what is explained: of several classes one, as one of two."""
    bundle = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    # Scores of a regression are numbers as they are.
    several = isinstance(bundle, ClassifierBundle) and bundle.several
    if accepted is not None and not several:
        raise ConfigError(
            "--accepted names one of several classes, and the bundle has none.", "Leave it out."
        )
    return view_binary(bundle, accepted) if several else bundle


def find_spans(encoder: RowEncoder) -> dict[str, tuple[slice, ...]]:
    """Return raw column -> its features; the columns of a crossing are one, as "sex × race"."""
    blocks = dict.fromkeys(block.column for block in encoder.encoder.blocks)
    spans: dict[str, tuple[slice, ...]] = {}
    for source, found in encoder.encoder.spans(blocks).items():
        name = source
        if source.startswith(GROUP_PREFIX):
            name = " × ".join(encoder.find_columns([source.removeprefix(GROUP_PREFIX)]))
        spans[name] = (*spans.get(name, ()), *found)
    return spans


def check_options(config: ExplainConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    find_used(_load(config.bundle, config.accepted), config.table)
    config.check_results([config.table], FILES)


def find_used(bundle: Bundle, table: Path) -> dict[str, str]:
    """Return the columns of a table that are read: those of features, and of groups if there."""
    present: set[str] = set()
    source = bundle.encoder.config.source
    for file in check_table(table, {}, source):
        names = read_names(file, source)
        bundle.encoder.check_columns(names, bundle.needed_groups, file)
        present = present & {*names} if present else {*names}
    attributes = [attribute.name for attribute in bundle.encoder.attributes]
    return dict.fromkeys(bundle.encoder.list_read(present, attributes), "bundle")


def explain_table(config: ExplainConfig, progress: Progress | None = None) -> Explanation:
    """Explain rows of a table that may be larger than memory; they are drawn by their numbers."""
    report = progress or (lambda *_: None)
    bundle = _load(config.bundle, config.accepted)
    stamps, used = stamp_table(config.table), find_used(bundle, config.table)
    drawn = pd.DataFrame()
    for frame in read_frames(bundle, config.table, used, lambda share: report(PASSES[0], share)):
        drawn = draw_rows(pd.concat([drawn, frame]), config.rows)
    check_stamps(config.table, stamps)
    explanation = explain(bundle, drawn)
    report(PASSES[1], 1.0)
    return explanation


def draw_rows(frame: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Return at most so many rows, drawn by their index of whole numbers, in their order."""
    chance = uniforms(derive_integer("explain"), frame.index.to_numpy())
    return frame.iloc[np.sort(np.argsort(chance, kind="stable")[:rows])]


def write_explanation(explanation: Explanation, config: ExplainConfig) -> pd.DataFrame:
    """Write the ``FILES`` into the folder of the options, and return the table of explain.csv."""
    table = explanation.tabulate(config.minimum)
    check = check_again(config.folder, FILES, config.command)
    with filling(config.folder, FILES, check=check) as work:
        fill(work, explanation, table, draw_explanation(table, explanation.unit))
    return table


def fill(folder: Path, explanation: Explanation, table: pd.DataFrame, picture: Picture) -> None:
    """Write the table and the figure of an explanation into a folder."""
    written = table.assign(base=explanation.base, unit=explanation.unit)
    (folder / "explain.csv").write_bytes(to_csv(written))
    (folder / "explain.png").write_bytes(picture.png)
