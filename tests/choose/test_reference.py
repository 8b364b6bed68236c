"""What a bundle keeps of the rows that it was reported on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.choose.reference import describe_rows
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.row import EncodedRows, Refusals

CONFIG = {
    "dataset": "loans",
    "source": {"path": "loans.csv"},
    "label": {"column": "repaid"},
    "features": {"numeric": ["income"]},
    "split": {"kind": "random", "train": 0.5, "test": 0.5},
}


def test_a_level_that_is_named_other_is_counted_with_the_small_ones():
    codes = np.repeat([0, 1, 2, -1], [20, 30, 3, 2])
    n = codes.size
    encoder: Any = SimpleNamespace(
        config=DatasetConfig.model_validate(CONFIG),
        attributes=[SimpleNamespace(name="race", names=("white", "other", "small"))],
        described=(),
    )
    rows = EncodedRows(np.zeros((n, 0)), codes[:, None], pd.DataFrame(index=range(n)), Refusals(n))
    decided = pd.DataFrame({"score": 0.5, "probability": 1.0, "refused": [""] * n})
    described = describe_rows(encoder, rows, decided, np.ones(n), minimum=10)
    counted = {level: each["rows"] for level, each in described["groups"]["race"].items()}
    assert counted == {"white": 20, "other": 35}
