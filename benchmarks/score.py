"""Raw rows that a bundle decides on in a minute, from CSV and Parquet.

Run ``python -m benchmarks.score [--rows N] [--trees T]``. A study of boosted trees, and of exact
thresholds by group behind them, is run on 5,000 made-up rows of ten raw columns, four of them
text; its bundles decide on N further rows, written as CSV and as Parquet beforehand. What is timed
is all of `score`: reading, encoding, predicting, and writing the decisions.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import fairfrontier as ff

DATASET = """\
dataset: people
source: {path: people.csv}
label: {column: hired, positive: "1"}
features:
  numeric: [income, age, years, tests, debts, moves]
  categorical: [job, region, school]
groups: {sex: {column: sex}}
protected: [sex]
missing: {numeric: median, categorical: category}
split: {kind: random, train: 0.5, validation: 0.25, test: 0.25}
"""
STUDY = """\
study: people
dataset: people.yaml
methods:
  gbdt: {n_estimators: TREES, max_depth: 4}
  by_group: {method: gbdt, n_estimators: TREES, max_depth: 4, then: group_thresholds}
seeds: 1
objective: accuracy
frontier: {fairness: [selection_rate_difference:sex]}
"""


def make_table(rows: int, seed: int) -> pd.DataFrame:
    """Return rows with missing cells, numbers of two decimals, and levels of unequal frequency."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], rows)
    numbers = {
        name: np.round(rng.normal(10, 3, rows), 2)
        for name in ("income", "years", "tests", "debts", "moves")
    }
    merit = numbers["income"] + numbers["tests"] - numbers["debts"] + (sex == "M")
    table = pd.DataFrame(
        {
            **numbers,
            "age": rng.integers(18, 70, rows),
            "job": rng.choice([f"job {code}" for code in range(12)], rows),
            "region": rng.choice([f"region {code}" for code in range(30)], rows),
            "school": rng.choice(["none", "some", "all"], rows),
            "sex": sex,
            "hired": (merit + rng.normal(0, 3, rows) > 10).astype(int),
        }
    )
    table.loc[rng.random(rows) < 0.02, "income"] = np.nan
    table.loc[rng.random(rows) < 0.02, "job"] = None
    return table


def run(rows: int, trees: int) -> None:
    """Train, write the tables, and print rows a minute."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "conf").mkdir()
        make_table(5_000, 0).to_csv(home / "people.csv", index=False)
        (home / "people.yaml").write_text(DATASET)
        (home / "study.yaml").write_text(STUDY.replace("TREES", str(trees)))
        study = ff.run_study(home / "study.yaml", home=home)
        fresh = make_table(rows, 1)
        fresh.to_csv(home / "fresh.csv", index=False)
        fresh.to_parquet(home / "fresh.parquet")
        bundles = {
            "boosted trees": study.select(),
            "with a rule by group": study.select(
                subject_to={"selection_rate_difference:sex": 0.05}
            ),
        }
        for label, choice in bundles.items():
            bundle = ff.load_bundle(choice.export(home / label))
            for suffix in ("csv", "parquet"):
                out = home / "decisions.parquet"
                scored = ff.score(bundle, home / f"fresh.{suffix}", out)
                speed = 60 * scored.rows / scored.seconds
                print(f"{label}, {suffix}: {scored.seconds:.1f} s, {speed:,.0f} rows a minute")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--trees", type=int, default=100)
    options = parser.parse_args()
    run(options.rows, options.trees)
