"""A small study of post-processors, on a made-up table whose groups have unlike scores."""

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
    "dataset": "made",
    "source": {"path": "made.csv", "format": "csv"},
    "label": {"column": "hired", "positive": "yes", "names": ["no", "yes"]},
    "features": {"numeric": ["skill", "years"]},
    "groups": {
        "sex": {"column": "sex", "levels": ["woman", "man"]},
        "region": {"column": "region"},
        "sex×region": {"cross": ["sex", "region"]},
    },
    "split": {"kind": "random", "train": 0.3, "calibration": 0.25, "validation": 0.2, "test": 0.25},
}


def behind(method: str, attributes: Any = "sex", **parameters: Any) -> dict[str, Any]:
    return {"method": "linear", "then": {"method": method, "attributes": attributes, **parameters}}


METHODS: dict[str, dict[str, Any]] = {
    "plain": {"method": "linear"},
    "plain+threshold": behind("randomized_threshold"),
    "plain+both": behind("randomized_threshold", [["sex", "region"]]),
    "plain+hardt": behind("hardt"),
    "plain+reject": behind("reject_option"),
    "plain+shift": behind("shift_inference"),
}


def write_dataset(folder: Path, rows: int = 3000) -> Path:
    """Write the table and its YAML, and return the latter's path."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["woman", "man"], rows, p=[0.4, 0.6])
    region = rng.choice(["north", "south", "isles"], rows, p=[0.55, 0.41, 0.04])
    skill, years = rng.normal(size=(2, rows))
    # Women of the south are not behind its men.
    skill = skill + 1.2 * (sex == "man") * (region != "south")
    margin = 1.2 * skill + 0.5 * years - 1.2
    hired = np.where(rng.random(rows) < 1 / (1 + np.exp(-margin)), "yes", "no")
    table = {"skill": skill, "years": years, "sex": sex, "region": region, "hired": hired}
    pd.DataFrame(table).to_csv(folder / "made.csv", index=False)
    path = folder / "made.yaml"
    content = {**DATASET, "source": {"path": str(folder / "made.csv"), "format": "csv"}}
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    return path


def make_scene(
    folder: Path, methods: Mapping[str, Any] = METHODS, seeds: int = 2, name: str = "made-parity"
) -> Scene:
    """Run a study of the table, whose fits stay in ``folder`` for the next one."""
    dataset = folder / "made.yaml"
    if not dataset.is_file():
        write_dataset(folder)
    study = {
        "study": name,
        "dataset": str(dataset),
        "methods": dict(methods),
        "seeds": seeds,
        "objective": "own",
        "frontier": {"accuracy": "accuracy", "fairness": ["selection_rate_difference:sex"]},
    }
    return run_study(folder / f"{name}.yaml", study)
