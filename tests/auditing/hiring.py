"""Made-up applicants with scores, decisions and later success."""

from __future__ import annotations

import numpy as np
import pandas as pd

RACES = ["Asian", "Black", "Hispanic", "Native Hawaiian", "White"]


def make_applicants(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    """Return applicants of whom fewer women are hired; some are of unknown sex."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["female", "male", ""], n, p=[0.45, 0.52, 0.03])
    race = rng.choice(RACES, n, p=[0.2, 0.2, 0.2, 0.01, 0.39])
    success = (rng.random(n) < 0.5).astype(int)
    score = np.clip(0.35 + 0.25 * success + 0.1 * (sex == "male") + rng.normal(0, 0.18, n), 0, 1)
    return pd.DataFrame(
        {
            "sex": pd.Series(sex).replace("", None),
            "race": race,
            "score": score.round(4),
            "hired": (score >= 0.6).astype(int),
            "success": success,
        }
    )
