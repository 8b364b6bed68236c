"""Small tables of scores for the tests of debiasing."""

from __future__ import annotations

import numpy as np
import pandas as pd


def make_scores(n: int = 4000, seed: int = 0) -> pd.DataFrame:
    """Return calibrated scores of four groups that differ, their labels, and ids in no order."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["Female", "Male"], n, p=[0.4, 0.6])
    race = rng.choice(["A", "B"], n, p=[0.7, 0.3])
    margin = rng.normal(-0.3, 1.4, n) + 0.8 * (sex == "Male") - 0.7 * (race == "B")
    score = 1.0 / (1.0 + np.exp(-margin))
    return pd.DataFrame(
        {
            "id": rng.permutation(n) + 1000,
            "s": score,
            "sex": sex,
            "race": race,
            "y": (rng.random(n) < score).astype(np.int64),
        }
    )
