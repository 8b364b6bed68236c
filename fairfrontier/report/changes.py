"""A table of the words that counterfactual texts replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.embedding.variant import list_changes
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.input import load_split

SHOWN = 200


def list_text_changes(groups: Sequence[FitGroup], home: Path) -> pd.DataFrame | None:
    """Return what counterfactual texts changed in the test part of a study's first split.

    At most 200 replaced words, a random sample, each with the row, the set, the version, and an
    excerpt before and after; None for datasets without texts.
    """
    if not groups:
        return None
    group = groups[0]
    if read_dataset(find_yaml("dataset", group.dataset, home), home).features.text is None:
        return None
    split = load_split(group, group.members[0], home)
    table = list_changes(split.test or split.train)
    if table.empty:
        return None
    drawn = derive_generator("changes", split.dataset).permutation(len(table))[:SHOWN]
    return table.iloc[np.sort(drawn)]
