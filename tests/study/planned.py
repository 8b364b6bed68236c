"""A small study whose methods train nothing: what is read and unfolded of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fairfrontier.models.base import Estimator
from fairfrontier.models.registry import METHODS
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.check import load_study
from fairfrontier.study.resolve import Planned, expand

DATASET = {
    "dataset": "toy",
    "source": {"path": "toy.csv"},
    "label": {"column": "risk", "positive": "bad"},
    "features": {"numeric": ["age"]},
    "groups": {"sex": {"column": "sex"}, "race": {"column": "race"}},
    "protected": ["sex"],
    "counterfactuals": {"spouse": {"relationship": "all"}},
    "split": {"kind": "random", "train": 0.8, "test": "rest"},
}
STUDY = {
    "study": "toy",
    "dataset": "toy",
    "metric": {"name": "subspace"},
    "methods": {
        "boosting": {"preset": "published"},
        "fair": {"preset": "published", "solver": "exact", "budget": [0.1, 0.2]},
    },
    "rows": 100,
    "seeds": 2,
    "objective": "own",
    "frontier": {"fairness": ["consistency:spouse", "gap_rms:sex"]},
    "published": {
        "reproduces": "paper.table1",
        "methods": {"boosting": {"preset": "published"}, "fair": {"preset": "published"}},
        "seeds": 1,
    },
    "claims": [
        {
            "id": "fairer",
            "sentence": "Fair is fairer.",
            "compare": {
                "left": "fair",
                "right": "boosting",
                "measure": "consistency:spouse",
                "relation": ">",
            },
        }
    ],
    "profiles": {"paper": {"published": {"seeds": [3, 5]}, "threads": 2}},
}


class Boosting(Estimator):
    def __init__(self, depth: int = 3, layers: list[int] | None = None) -> None:
        self.depth = depth
        self.layers = layers


class Fair(Estimator):
    def __init__(self, budget: float = 0.1, solver: str = "sgd", depth: int = 3) -> None:
        self.budget = budget
        self.solver = solver
        self.depth = depth

    def fit(self, X: Any, y: Any, *, metric: Any) -> None:
        raise NotImplementedError


class Rule(PostProcessor):
    name = "rule"

    def __init__(
        self,
        attributes: str | None = None,
        budget: float = 0.0,
        scale: str = "probability",
        random_state: int = 0,
    ) -> None:
        self.attributes = attributes
        self.budget = budget
        self.scale = scale
        self.random_state = random_state


def make_home(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a project with the study, its dataset and the files of its methods."""
    METHODS.all()  # what registers from now on would be lost
    known = {"boosting": Boosting, "fair": Fair, "rule": Rule}
    monkeypatch.setattr(METHODS, "_entries", known)
    for folder in ("studies", "datasets", "methods"):
        (root / "conf" / folder).mkdir(parents=True)
    write(root / "conf/datasets/toy.yaml", DATASET)
    write(
        root / "conf/methods/fair.yaml",
        {
            "method": "fair",
            "presets": {"published": {"toy": {"budget": 0.4, "depth": 14}}},
            "grids": {"paper": {"budget": [0.1, 0.3], "depth": [6, 8, 10]}},
        },
    )
    write(
        root / "conf/methods/boosting.yaml",
        {"method": "boosting", "presets": {"published": {"any": {"depth": 5}}}},
    )
    write(root / "conf/studies/toy.yaml", STUDY)
    return root


def write(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def change(home: Path, *keys: str, value: object) -> Path:
    """Write the study with one key changed; None takes it out."""
    content = yaml.safe_load(yaml.safe_dump(STUDY))
    place = content
    for key in keys[:-1]:
        place = place[int(key) if isinstance(place, list) else key]
    if value is None:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return write(home / "conf/studies/toy.yaml", content)


def plan(home: Path, profile: str = "default") -> dict[tuple[str, str, int], Planned]:
    return {
        (each.group.method, canonical_json(member.setting), member.seed): each
        for each in expand(load_study("toy", profile, home))
        for member in each.group.members
    }
