"""A small study on a made-up table whose groups are noisy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fairfrontier.models.base import TrainingWarning
from fairfrontier.study.drawing import Scene
from tests.study.scene import run_study

ROOT = Path(__file__).resolve().parents[2]
LEVELS = ("a", "b", "c")
DATASET = {
    "dataset": "noised",
    "label": {"column": "paid", "positive": "yes", "names": ["no", "yes"]},
    "features": {"numeric": ["skill", "years"], "groups": ["school"]},
    "groups": {"school": {"column": "school", "levels": list(LEVELS)}},
    "perturb": {"noisy_groups": {"school": {"share": 0.2}}},
    "split": {"kind": "random", "train": 0.6, "test": 0.4},
}


def row(approach: str, **parameters: Any) -> dict[str, Any]:
    return {
        "method": f"noisy_{approach}",
        "criterion": "equalized_odds",
        "attribute": "school",
        **({} if approach == "unconstrained" else {"budget": 0.1}),
        "iterations": 15,
        "learning_rate": 0.1,
        "backend": "numpy",
        "noise": [0.1, 0.3],
        **parameters,
    }


METHODS: dict[str, dict[str, Any]] = {
    # Labels do not say what a row is.
    "plain": row("unconstrained", noise=[0.1]),
    "oracle": row("true_groups"),
    "direct": row("naive"),
    "ball": row("dro", inner="ascent"),
    "ball-exact": row("dro", inner="exact", budget=[0.1, 0.5]),
    "weights": row("soft_assignment", inner="ascent"),
    "weights-exact": row("soft_assignment", inner="exact", budget=[0.1, 0.5]),
}


def write_dataset(folder: Path, rows: int = 900) -> Path:
    """Write the table and its YAML, and return the latter's path."""
    rng = np.random.default_rng(0)
    school = rng.choice(LEVELS, rows, p=[0.5, 0.3, 0.2])
    skill, years = rng.normal(size=(2, rows))
    margin = 1.5 * skill + 0.5 * years + 0.8 * (school == "a") - 0.4
    paid = np.where(rng.random(rows) < 1 / (1 + np.exp(-margin)), "yes", "no")
    table = {"skill": skill, "years": years, "school": school, "paid": paid}
    pd.DataFrame(table).to_csv(folder / "noised.csv", index=False)
    path = folder / "noised.yaml"
    content = {**DATASET, "source": {"path": str(folder / "noised.csv"), "format": "csv"}}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def make_noised(
    folder: Path, methods: Mapping[str, Any] = METHODS, seeds: int = 2, name: str = "noised-study"
) -> Scene:
    """Run a study of the table, whose fits stay in ``folder`` for the next one."""
    dataset = folder / "noised.yaml"
    if not dataset.is_file():
        write_dataset(folder)
    study = {
        "study": name,
        "dataset": str(dataset),
        "methods": dict(methods),
        "seeds": seeds,
        "select_on": "train",
        "frontier": {"accuracy": "accuracy", "fairness": ["true_tpr_shortfall:school=a"]},
    }
    with warnings.catch_warnings():
        # Lemma 1's premise fails here, as on every table whose groups differ in size.
        warnings.filterwarnings("ignore", ".*need not bound the distance", TrainingWarning)
        return run_study(folder / f"{name}.yaml", study)
