"""Texts of a study: encoded once, before anything is trained on them, and shown as they change."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.embedding.variant import list_changes
from fairfrontier.report.files import CHANGES
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.runtime.writer import filling
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.input import load_split
from tasks.prepare import encode_table, settle_texts

SHOWN = 200
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def settle_encoders(groups: Iterable[FitGroup], home: Path) -> None:
    """Decide which encoder the texts of each dataset get, before keys are made of it."""
    for dataset in dict.fromkeys(group.dataset for group in groups):
        if _has_texts(dataset, home):
            settle_texts(dataset, str(home))


def encode_texts(groups: Iterable[FitGroup], home: Path) -> None:
    """Encode the texts of every split that some fits need, so that no two of them do."""
    wanted = dict.fromkeys(
        (group.dataset, seed, group.rows, group.select_on, noise, str(home))
        for group in groups
        if _has_texts(group.dataset, home)
        for seed, noise in dict.fromkeys(each.data for each in group.members)
    )
    for each in wanted:
        encode_table(*each)


def write_changes(groups: Iterable[FitGroup], folder: Path, home: Path) -> None:
    """Leave a table of what counterfactual texts changed in the test part of the first split.

    ``changes.csv``: at most 200 words that were replaced, drawn at random of all, each with the
    row, the set, the version, and an excerpt before and after. A text that a spreadsheet would take
    for a formula begins with an apostrophe.
    """
    first = {each.dataset: each for each in reversed(list(groups))}
    group = next((each for name, each in first.items() if _has_texts(name, home)), None)
    if group is None or not folder.is_dir():
        return
    split = load_split(group, group.members[0], home)
    table = list_changes(split.test or split.train)
    if table.empty:
        return
    drawn = derive_generator("changes", split.dataset).permutation(len(table))[:SHOWN]
    table = guard_formulas(table.iloc[np.sort(drawn)])
    with filling(folder) as work:
        table.to_csv(work / CHANGES, index=False, quoting=csv.QUOTE_NONNUMERIC)


def guard_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which texts that begin as formulas do begin with an apostrophe."""
    texts = {name: table[name].astype(str) for name in table.select_dtypes(exclude="number")}
    return table.assign(
        **{
            name: text.mask(text.str.startswith(FORMULA), "'" + text)
            for name, text in texts.items()
        }
    )


def _has_texts(dataset: str, home: Path) -> bool:
    return read_dataset(find_yaml("dataset", dataset, home), home).features.text is not None
