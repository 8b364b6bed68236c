"""One small table for each kind of label, read through the mechanism that users' tables take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from fairfrontier.prepare.loader import load
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.cluster.executor import computing_on

LABELS = {
    "binary": {"column": "passed", "positive": "yes"},
    "multiclass": {"column": "grade", "task": "multiclass"},
    "regression": {"column": "mark", "task": "regression", "range": [0, 1], "clip": True},
}


def make_table(n_samples: int = 300, seed: int = 0) -> pd.DataFrame:
    """Draw pupils whose marks follow their hours, and somewhat their sex and region."""
    generator = np.random.default_rng(seed)
    sex = generator.choice(["f", "m"], n_samples, p=[0.4, 0.6])
    region = generator.choice(["north", "south", "west"], n_samples, p=[0.5, 0.3, 0.2])
    hours = generator.gamma(3.0, 2.0, n_samples) + 1.0 * (sex == "m")
    mark = 0.08 * hours + 0.1 * (region == "north") + generator.normal(0, 0.12, n_samples)
    return pd.DataFrame(
        {
            "hours": hours.round(3),
            "age": generator.integers(12, 19, n_samples),
            "school": generator.choice(["a", "b", "c"], n_samples),
            "sex": sex,
            "region": region,
            "passed": np.where(mark > 0.55, "yes", "no"),
            "grade": np.digitize(mark, [0.45, 0.65]),
            "mark": mark.clip(0, 1).round(4),
        }
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, root: Path) -> dict[str, Split]:
    """Return a split for each task: train, calibration, validation and test."""
    folder = tmp_path_factory.mktemp("tiny")
    make_table().to_csv(folder / "pupils.csv", index=False)
    splits = {}
    for task, label in LABELS.items():
        described = {
            "dataset": f"pupils-{task}",
            "source": {"path": "pupils.csv"},
            "label": label,
            "features": {"numeric": ["hours", "age"], "categorical": ["school", "sex", "region"]},
            "groups": {"sex": {"column": "sex"}, "region": {"column": "region"}},
            "protected": ["sex"],
            "counterfactuals": {"sex": {"sex": "all"}},
            "split": {
                "kind": "random",
                "train": 0.5,
                "calibration": 0.15,
                "validation": 0.15,
                "test": 0.2,
            },
        }
        path = folder / f"{task}.yaml"
        path.write_text(yaml.safe_dump(described))
        splits[task] = load(path, home=root)
    return splits


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Return the client of two workers in threads, which also compute Dask's collections."""
    from distributed import Client

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    cluster = Client(processes=False, set_as_default=False, n_workers=2, **options)
    with cluster as client, computing_on(client):
        yield client
