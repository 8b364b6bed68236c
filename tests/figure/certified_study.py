"""A small study with a certificate, on a made-up table whose texts are markup."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from fairfrontier.study.drawing import Scene
from tests.study.scene import run_study

EVIL = "<script>alert('x')</script>"
DATASET = {
    "dataset": "evil",
    "label": {"column": "hired", "positive": "yes", "names": ["no<b>", "yes<b>"]},
    "features": {"numeric": ["skill", "<i>years"], "categorical": ["job"], "binary": {"sex": EVIL}},
    "groups": {"sex": {"column": "sex", "levels": ["woman", EVIL]}},
    "protected": ["sex"],
    "split": {"kind": "random", "train": 0.4, "calibration": 0.2, "validation": 0.2, "test": 0.2},
}
STUDY = {
    "study": "evil",
    "metric": {"name": "subspace", "regress": []},
    "methods": {
        "linear": {},
        "tree": {"method": "gbdt", "n_estimators": [3, 6]},
        "threshold": {"method": "linear", "then": {"method": "randomized_threshold"}},
    },
    "certificate": {"budgets": [0.0, 0.05, 0.5], "rows": 80, "worst_moves": "show"},
    "frontier": {
        "accuracy": "auc",
        "fairness": ["dif:budget=0.05", "adversarial_error_gap:budget=0.05"],
    },
    "figures": ["certificate"],
}


def make_certified(folder: Path) -> Scene:
    """Write the table, run the study, and return it."""
    rng = np.random.default_rng(0)
    n = 500
    sex = rng.choice(["woman", EVIL], n)
    skill, years = rng.normal(size=(2, n))
    job = rng.choice(["cook", "clerk"], n)
    margin = skill + 0.8 * (sex == EVIL) + 0.7 * (job == "cook") - 0.4
    hired = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * margin)), "yes", "no")
    table = {"skill": skill, "<i>years": years.round(2), "job": job, "sex": sex, "hired": hired}
    pd.DataFrame(table).to_csv(folder / "evil.csv", index=False)
    source = {"path": str(folder / "evil.csv"), "format": "csv"}
    dataset = write(folder / "evil.yaml", {**DATASET, "source": source})
    return run_study(folder / "study.yaml", {**STUDY, "dataset": str(dataset)})


def write(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return path
