"""A small study of regressions, on a made-up table whose groups have unlike targets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fairfrontier.study.drawing import Scene
from tests.study.scene import run_study

ROOT = Path(__file__).resolve().parents[2]
DATASET = {
    "dataset": "pay",
    "source": {"path": "pay.csv", "format": "csv"},
    "label": {"column": "above", "task": "regression", "positive": "yes"},
    "features": {"numeric": ["skill", "years"]},
    "groups": {"sex": {"column": "sex", "levels": ["woman", "man"]}},
    "split": {"kind": "per_group", "group": "sex", "train": 0.5, "test": 0.5},
}
METHODS: dict[str, dict[str, Any]] = {
    "squares": {"method": "linear_regression"},
    "logistic": {"method": "linear_regression", "loss": "logistic"},
    "seo": {"method": "seo", "attribute": "sex"},
    "fair": {
        "method": "fair_classification",
        "attribute": "sex",
        "solver": "grid_search",
        "grid_size": 8,
        "budget": [0.02, 0.08, 0.15, 1.0],
    },
}
FRONTIER = {"accuracy": "logistic_loss", "fairness": ["disparity:sex"]}


def write_dataset(folder: Path, rows: int = 700, *, weighted: bool = False) -> Path:
    """Write the table and its YAML, and return the latter's path."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["woman", "man"], rows, p=[0.4, 0.6])
    skill, years = rng.normal(size=(2, rows))
    skill = skill + 0.8 * (sex == "man")
    above = np.where(skill + 0.5 * years + rng.normal(size=rows) > 0.5, "yes", "no")
    table = {"skill": skill, "years": years, "sex": sex, "above": above}
    table["weight"] = rng.uniform(0.5, 2, rows)
    pd.DataFrame(table).to_csv(folder / "pay.csv", index=False)
    path = folder / "pay.yaml"
    content = {**DATASET, "source": {"path": str(folder / "pay.csv"), "format": "csv"}}
    if weighted:
        content["weight"] = "weight"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def make_scene(
    folder: Path,
    methods: Mapping[str, Any] = METHODS,
    name: str = "pay",
    *,
    weighted: bool = False,
    **changes: Any,
) -> Scene:
    """Run a study of the table, whose fits stay in ``folder`` for the next one."""
    dataset = folder / "pay.yaml"
    if not dataset.is_file():
        write_dataset(folder, weighted=weighted)
    study = {
        "study": name,
        "dataset": str(dataset),
        "methods": dict(methods),
        "seeds": 2,
        "select_on": "train",
        "frontier": FRONTIER,
        **changes,
    }
    return run_study(folder / f"study-{name}.yaml", study)
