"""A small project that the repository has never seen: a table, its YAML, and a study of it."""

from __future__ import annotations

import gc
import io
import logging
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairfrontier.cli.command import main

ROOT = Path(__file__).resolve().parents[1]

DATASET = """\
dataset: loans
source: {path: data/raw/loans.csv}
label: {column: outcome, positive: repaid, favourable: repaid}
features:
  numeric: [income, age]
  categorical: [region, job]
groups:
  origin: {column: origin}
protected: [origin]
counterfactuals:
  origin: {origin: all}
missing: {numeric: median, categorical: category}
split: {kind: random, train: 0.6, test: 0.4}
"""

STUDY = """\
study: loans
dataset: loans
metric: {name: subspace, regress: [origin]}
methods:
  gbdt: {n_estimators: 10, max_depth: [2, 3]}
  linear: {}
  reweigh: {attribute: origin, n_estimators: 10}
seeds: 2
threads: 1
frontier: {accuracy: balanced_accuracy, fairness: [gap_rms:origin]}
profiles:
  short: {seeds: 1}
"""

# A study that reproduces a table, and the table.
PAPER = """\
study: paper
dataset: loans
methods: {gbdt: {n_estimators: 5}}
seeds: 1
frontier: {fairness: [gap_rms:origin]}
published:
  reproduces: toy.table1
  methods: {gbdt: {n_estimators: 5}}
  seeds: 2
profiles:
  paper: {published: {seeds: 3}}
"""
PUBLICATION = """\
publication: toy
source: Nobody. Nothing. Nowhere.
tables:
  table1:
    title: Loans
    dataset: loans
    where: Table 1
    verified: Made up.
    spread_kind: sd
    n_splits: 2
    measures: [balanced_accuracy, "gap_rms:origin"]
    rows:
      gbdt: {label: GBDT, mean: [.8, .1], spread: [.01, .02]}
      other: {label: Other, mean: [.7, .2]}
"""


def make_table(n: int = 900) -> pd.DataFrame:
    """Return mixed types, missing values, a three-level attribute and unordered labels."""
    rng = np.random.default_rng(7)
    origin = rng.choice(["north", "south", "island"], n, p=[0.5, 0.3, 0.2])
    income = rng.normal(30 + 6 * (origin == "north"), 8)
    job = rng.choice(["clerk", "smith", "baker"], n)
    merit = (income - 32) / 8 + 0.6 * (job == "smith") + rng.normal(0, 0.7, n)
    table = pd.DataFrame(
        {
            "income": np.round(income, 2),
            "age": rng.integers(18, 80, n),
            "region": rng.choice(["a", "b"], n),
            "job": job,
            "origin": origin,
            "outcome": np.where(merit > 0, "repaid", "late"),
        }
    )
    table.loc[rng.choice(n, 15, replace=False), "income"] = np.nan
    table.loc[rng.choice(n, 15, replace=False), "job"] = None
    return table


def make_project(home: Path, study: str = STUDY, dataset: str = DATASET) -> Path:
    """Write the project and return its root."""
    for folder in ("conf/datasets", "conf/studies", "data/raw", "data/reference"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / "conf" / "datasets" / "loans.yaml").write_text(dataset)
    (home / "conf" / "studies" / "loans.yaml").write_text(study)
    (home / "conf" / "studies" / "paper.yaml").write_text(PAPER)
    (home / "data" / "reference" / "toy.yaml").write_text(PUBLICATION)
    make_table().to_csv(home / "data" / "raw" / "loans.csv", index=False)
    return home


def command(*arguments: str, module: str = "fairfrontier") -> list[str]:
    """Return the command line that runs fairfrontier, or the flows."""
    return [sys.executable, "-m", module, *arguments]


def environment(home: Path, **changes: str) -> dict[str, str]:
    """Return the environment of a user of that project, without Prefect's test settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**kept, "FAIRFRONTIER_HOME": str(home), "PYTHONPATH": str(ROOT), **changes}


def call(
    home: Path, *arguments: str, module: str = "fairfrontier", **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run fairfrontier, or the flows, to its end."""
    return subprocess.run(
        command(*arguments, module=module),
        env=environment(home, **changes),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def call_here(home: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run fairfrontier as `call` does, in this process: another would import for seconds."""
    out, err, code, thresholds = io.StringIO(), io.StringIO(), None, gc.get_threshold()
    # Of flows that ran in this process before.
    clear_handlers()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(home)
        for name, value in {"FAIRFRONTIER_HOME": str(home), **changes}.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["fairfrontier", *arguments])
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            # What a command leaves to the end of its process.
            gc.set_threshold(*thresholds)
            logging.captureWarnings(False)
            clear_handlers()
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def clear_handlers() -> None:
    """Take away what writes our messages, and warnings."""
    for name in ("fairfrontier", "py.warnings"):
        logging.getLogger(name).handlers.clear()
