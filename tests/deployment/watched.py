"""A bundle of a made-up table, and new periods of rows like its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fairfrontier as ff
from fairfrontier.deployment.bundle import FORMAT, describe_rows, list_facts
from fairfrontier.deployment.bundle import make_bundle as make_kind
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder

DATASET = """\
dataset: credit-lines
source: {path: data/raw/credit-lines.csv}
label: {column: outcome, positive: repaid}
features: {numeric: [income], categorical: [region]}
groups: {origin: {column: origin}, sex: {column: sex}}
protected: [origin, sex]
counterfactuals: {region: {region: all}}
split: {kind: random, train: 0.4, test: 0.6}
"""


def make_rows(seed: int, n: int, lower: float = 0.0) -> pd.DataFrame:
    """Return rows with ids; ``lower`` is taken off the incomes of women."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["woman", "man"], n)
    origin = rng.choice(["here", "there", "elsewhere"], n, p=[0.7, 0.298, 0.002])
    income = rng.normal(3, 1, n) + 0.3 * (origin == "here")
    income -= lower * (sex == "woman")
    repaid = rng.uniform(size=n) < 1 / (1 + np.exp(-1.5 * (income - 3)))
    return pd.DataFrame(
        {
            "case": [f"{seed}-{i}" for i in range(n)],
            "income": income.round(4),
            "region": rng.choice(["north", "south"], n),
            "origin": origin,
            "sex": sex,
            "outcome": np.where(repaid, "repaid", "not"),
        }
    )


def make_bundle(home: Path, row_id: str | None = "case", seed: int = 0) -> Path:
    """Write a project and a bundle of a model of its table; return the bundle's folder."""
    (home / "conf/datasets").mkdir(parents=True)
    (home / "data/raw").mkdir(parents=True)
    (home / "conf/datasets/credit-lines.yaml").write_text(DATASET)
    make_rows(seed, 5000).to_csv(home / "data/raw/credit-lines.csv", index=False)
    table = fit_table(make_request("credit-lines", home=home))
    split = table.encode()
    model: Any = ff.create("linear").fit(split.train.X, split.train.y)
    manifest = {"format": FORMAT, "study": "credit-lines", "row_id": row_id, "minimum": 10}
    encoder = RowEncoder.of(table)
    bundle = make_kind(model, encoder, manifest)
    bundle.manifest = {**bundle.manifest, **list_facts(bundle)}
    test = table.raw.frame.loc[split.test.ids]
    labels = encoder.read_labels(test)
    rows = bundle.encode(test)
    decided = bundle.judge_rows(test, rows)
    bundle.reference = describe_rows(encoder, rows, decided, labels, 10)
    return bundle.write(home / "lines")
