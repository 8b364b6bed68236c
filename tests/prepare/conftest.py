"""What tests of tables share: a project with a table of its own, and a server of files."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pytest
import yaml

from fairfrontier.prepare import loader
from fairfrontier.prepare.config.dataset import Swap, Terms, check_columns, read_dataset
from fairfrontier.prepare.source.fetch import find_source
from fairfrontier.prepare.table.rows import keep_rows
from fairfrontier.prepare.text.corpus import read_corpus
from fairfrontier.runtime.config import parse, read_yaml
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.home import find_home
from tests.prepare.source.server import Server, serve

Vocabulary = TypeVar("Vocabulary", Terms, Swap)
HOME = find_home(Path(__file__))

HOUSING = {
    "dataset": "housing",
    "source": {"path": "people.csv", "missing": ["?"]},
    "label": {"column": "verdict", "positive": "granted", "favourable": "granted"},
    "features": {"numeric": ["income", "age"], "categorical": ["city"], "binary": {"owner": True}},
    "groups": {
        "origin": {"column": "origin"},
        "age": {"column": "age", "below": 30, "names": ["young", "older"]},
        "origin×age": {"cross": ["origin", "age"]},
    },
    "protected": ["origin", "age"],
    "counterfactuals": {
        "city": {"city": "all"},
        "who": {"origin": ["north", "south"], "age": [20, 60]},
    },
    "missing": {"numeric": "median", "categorical": "category", "columns": {"age": "drop"}},
    "split": {"kind": "random", "train": 0.6, "calibration": 0.2, "test": "rest"},
}


def fingerprint(dataset: str | Path, *, home: Path, **arguments: Any) -> str:
    """Return the fingerprint of a request, computed again on every call."""
    made = loader._fingerprint.__wrapped__
    return str(made(loader.SplitRequest(str(dataset), **arguments), home))


def make_people(n: int = 400) -> pd.DataFrame:
    """Make the table; 1 row in 10 lacks its income, 1 in 15 its city, three their age."""
    draw = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "income": draw.gamma(2.0, 1000.0, n).round(2),
            "age": draw.integers(18, 80, n).astype(float),
            "city": draw.choice(["Ulm", "Bonn", "Köln"], n),
            "owner": draw.choice([True, False], n),
            "origin": draw.choice(["south", "north", "west"], n, p=[0.5, 0.3, 0.2]),
            "verdict": draw.choice(["pending", "granted", "refused"], n),
            "points": draw.integers(0, 50, n),
            "weight": draw.uniform(0.5, 2.0, n).round(3),
        }
    )
    frame["city"] = frame["city"].astype(object)
    frame.loc[::10, "income"] = np.nan
    frame.loc[::15, "city"] = None
    frame.loc[[7, 90, 311], "age"] = np.nan
    return frame


@pytest.fixture
def people() -> pd.DataFrame:
    return make_people()


@pytest.fixture
def project(tmp_path: Path, people: pd.DataFrame) -> Callable[..., Path]:
    """Write a project and return a function that writes its YAML with some sections replaced."""
    folder = tmp_path / "conf" / "datasets"
    folder.mkdir(parents=True)

    def write(
        frame: pd.DataFrame | None = None, drop: tuple[str, ...] = (), **sections: Any
    ) -> Path:
        table = people if frame is None else frame
        table.to_csv(tmp_path / "people.csv", index=False, na_rep="?")
        data = {**copy.deepcopy(HOUSING), **sections}
        for key in drop:
            del data[key]
        path = folder / "housing.yaml"
        path.write_text(yaml.safe_dump(data, allow_unicode=True, sort_keys=False), encoding="utf-8")
        return path

    return write


@pytest.fixture
def server() -> Iterator[Server]:
    """Run a server of files on loopback."""
    with serve() as running:
        yield running


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let downloads try again at once, and go through no proxy."""
    monkeypatch.setattr("fairfrontier.prepare.source.download.PAUSE_SECONDS", 0)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def read_vocabulary(kind: type[Vocabulary], name: str | Path, home: Path = HOME) -> Vocabulary:
    path = find_yaml("vocabulary", name, home)
    return parse(kind, read_yaml(path), path)


@pytest.fixture(scope="session")
def identity() -> Terms:
    return read_vocabulary(Terms, "identity")


@pytest.fixture(scope="session")
def gender() -> Swap:
    return read_vocabulary(Swap, "gender")


def count_rows(home: Path, name: str) -> int | None:
    """Return how many rows a dataset of a project keeps; None where its table is not here."""
    path = home / "conf" / "datasets" / f"{name}.yaml"
    config = read_dataset(path, home)
    source = find_source(config.source, path, home)
    if source is None:
        return None
    config = config.model_copy(update={"source": source})
    frame = read_corpus(config, home, path).frame
    check_columns(config, frame.columns, path)
    return len(keep_rows(frame, config, path))
