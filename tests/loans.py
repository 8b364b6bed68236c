"""A study of a made-up table, run once: a plain model, a fair one, and a rule by group."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import fairfrontier as ff
from fairfrontier.choose.select import Study
from tests.project import make_project

DATASET = """\
dataset: loans
source: {path: data/raw/loans.csv}
label: {column: outcome, positive: repaid, favourable: repaid}
features:
  numeric: [income, age]
  categorical: [region, job]
groups:
  origin: {column: origin}
  old: {column: age, below: 50, names: [young, old]}
protected: [origin]
counterfactuals: {origin: {origin: all}}
rows: {keep: {age: {at_least: 20}}}
missing: {numeric: median, categorical: category}
split: {kind: random, train: 0.5, validation: 0.25, test: 0.25}
"""
STUDY = """\
study: loans
dataset: loans
methods:
  gbdt: {n_estimators: 10, max_depth: 3}
  linear: {}
  drawn:
    method: linear
    then: {method: randomized_threshold, attributes: [origin], width: 0.2, rate: 0.5}
seeds: 1
threads: 1
objective: accuracy
frontier: {fairness: [selection_rate_difference:origin]}
"""


@pytest.fixture(scope="session")
def loans(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Return the finished study."""
    home = make_project(tmp_path_factory.mktemp("loans"), STUDY, DATASET)
    return ff.run_study("loans", home=home)


@pytest.fixture
def raw(loans: Study) -> pd.DataFrame:
    """Return the table as a file has it."""
    return pd.read_csv(Path(loans.home) / "data/raw/loans.csv")
