"""The study of a dataset alone against an XGBoost tuned plainly on the same rows.

Run ``python -m benchmarks.default [--tables ...] [--first K] [--seeds N]``. Every seed from K to
N - 1 is another split. What each contender reaches is kept in data/results/benchmarks/default, so
that a second run goes on where the first one ended; ``--record`` adds the comparison of all that is
kept there to the splits of data/reference/runs/default.csv, and writes the summary of all of them
into default.json, where a study of a table without any stays as it was.

- ``alone`` is the study of the dataset alone; ``metric`` is the same with the fair metric that a
  study of this repository gives the table, by which BuDRO and SenSeI join. The objective is that of
  such a study: the balanced accuracy; of regressions the root mean squared error.
- ``xgboost`` is the best of 40 random trials on the validation part, cut there where it is best.
- ``net`` is the net without fairness, of 20 searched trials.

The row of a study that is best on validation is compared with ``xgboost`` in the objective on test.
Individually fair rows are compared with the plain model of their kind, BuDRO's with ``xgboost`` and
SenSeI's with ``net``: of those whose objective on validation is within a standard error of the
plain model's, the most consistent one there; the best in the objective where there is none.
Measures of consistency are means over the counterfactual sets of the table. Differences are paired
by seeds, oriented so that more is better.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from xgboost import XGBClassifier, XGBRegressor

from benchmarks.frontier import THREADS, TRIALS, draw_trees, find_cut, take_study_parts, tune
from benchmarks.scoreboard import add_recorded, add_splits, compare, read_cells
from fairfrontier import evaluate, load, run_study
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.runtime.writer import filling
from fairfrontier.study.config import ACCURACY, DEFAULT_PROFILE, read_study
from fairfrontier.study.frontier import orient

# Dataset -> the study whose fair metric it is given.
TABLES = {
    "german": "german",
    "compas": "compas",
    "communities": None,
    "law-sample": None,
    "adult": "adult",
    "credit": None,
}
NET_TRIALS = 20
CONSISTENCY = ("consistency", "counterfactual_score_gap", "counterfactual_rank_gap")
# An individually fair method -> the contender that is its plain model.
PLAIN = {"budro": "xgboost", "sensei": "net"}
COMPARED = ["table", "study", "row", "against", "measure", "seeds", "ours", "theirs"]


def list_contenders(table: str) -> list[str]:
    """Return the contenders on a table, the studies first."""
    return ["alone", "xgboost"] if TABLES[table] is None else ["alone", "metric", "xgboost", "net"]


def write_study(table: str, seed: int, contender: str, home: Path) -> dict[str, Any]:
    """Return the study of a contender that is one."""
    asked: dict[str, Any] = {"dataset": table, "seeds": [seed]}
    if contender != "alone":
        metric = read_study(TABLES[table], DEFAULT_PROFILE, home)[0].metric
        asked["metric"] = metric
    if contender == "net":
        asked |= {"methods": {"nn": {}}, "search": {"trials": NET_TRIALS}}
    return asked


def tune_regression(rows: Mapping[str, np.ndarray], seed: int) -> XGBRegressor:
    """Return the best of random settings in the squared error on validation."""
    draw = np.random.default_rng(seed)
    trials = [XGBRegressor(**draw_trees(draw)) for _ in range(TRIALS)]
    losses = [
        np.mean(
            (
                model.fit(rows["X_train"], rows["y_train"]).predict(rows["X_validation"])
                - rows["y_validation"]
            )
            ** 2
        )
        for model in trials
    ]
    return trials[int(np.argmin(losses))]


def fit_xgboost(split: Split, seed: int) -> XGBClassifier | XGBRegressor:
    """Return XGBoost tuned on validation, with the cut that is best there."""
    rows = take_study_parts(split)
    if split.task == "regression":
        return tune_regression(rows, seed)
    model = tune(rows, ACCURACY, seed)
    score = model.predict_proba(rows["X_validation"])[:, 1]
    model.cut_ = find_cut(score, rows["y_validation"], ACCURACY)[0]
    return model


def describe(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of points, each with its measures on validation and test, oriented.

    ``objective_error`` is the standard error of the objective, from its 95% interval.
    """
    objective = "rmse" if "rmse" in set(points["measure"]) else ACCURACY
    points = points[
        ((points["measure"] == objective) & (points["group"] == ""))
        | points["measure"].isin(CONSISTENCY)
    ]
    described = []
    for (method, setting), row in points.groupby(["method", "setting"], sort=False):
        found: dict[str, Any] = {"method": method, "setting": setting}
        for part in ("validation", "test"):
            own = row[row["part"] == part]
            means = own.groupby("measure")[["value", "low", "high"]].mean()
            values = {
                "objective" if name == objective else str(name): float(
                    orient(str(name), np.array([value]))[0]
                )
                for name, value in means["value"].items()
            }
            width = means.loc[objective, "high"] - means.loc[objective, "low"]
            found[part] = values | {"objective_error": float(width) / 3.92}
        described.append(found)
    return described


def run_contender(table: str, seed: int, contender: str, cluster: str) -> list[dict[str, Any]]:
    """Return what every row of a contender reaches."""
    home = find_home()
    if contender == "xgboost":
        split = load(table, seed=seed, select_on="validation")
        model = fit_xgboost(split, seed)
        parts = {name: part for name, part in split.parts() if name in ("validation", "test")}
        points = pd.concat(
            [evaluate(model, part).assign(part=name) for name, part in parts.items()]
        )
        return describe(points.assign(method="xgboost", setting=""))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"default-{table}-{seed}-{contender}.yaml"
        path.write_text(json.dumps(write_study(table, seed, contender, home)))
        return describe(run_study(path, home=home, cluster=cluster).points)


def choose_best(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the row with the best objective on validation."""
    return max(rows, key=lambda row: row["validation"]["objective"])


def choose_consistent(
    rows: Sequence[Mapping[str, Any]], plain: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the most consistent row on validation at the objective of a plain model."""
    least = plain["validation"]["objective"] - plain["validation"]["objective_error"]
    equal = [row for row in rows if row["validation"]["objective"] >= least]
    return max(equal or [choose_best(rows)], key=lambda row: row["validation"]["consistency"])


def judge(kept: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield what is compared on one split: the test values of a study's row and of its peer."""
    for study in [name for name in ("alone", "metric") if name in kept]:
        chosen = [("best", "xgboost", choose_best(kept[study]), ("objective",))]
        for method, peer in PLAIN.items():
            own = [row for row in kept[study] if row["method"].split(" ")[0] == method]
            if own and peer in kept:
                row = choose_consistent(own, choose_best(kept[peer]))
                chosen.append((method, peer, row, ("objective", *CONSISTENCY)))
        for label, peer, row, measures in chosen:
            against = choose_best(kept[peer])
            for measure in measures:
                yield {
                    "study": study,
                    "row": label,
                    "against": peer,
                    "measure": measure,
                    "ours": row["test"][measure],
                    "theirs": against["test"][measure],
                }


def read_results(folder: Path) -> pd.DataFrame:
    """Return what is compared on all splits whose results are kept."""
    rows = []
    for table in TABLES:
        for path in sorted((folder / table).glob("*-xgboost.json")):
            seed = path.name.partition("-")[0]
            kept = {
                each.stem.partition("-")[2]: json.loads(each.read_text())
                for each in (folder / table).glob(f"{seed}-*.json")
            }
            rows += [{"table": table, "seed": int(seed)} | row for row in judge(kept)]
    return pd.DataFrame(rows, columns=[*COMPARED[:5], "seed", "ours", "theirs"])


def summarise(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the means over the seeds by table and comparison, and their paired differences."""
    summary = []
    for cell, values in judged.groupby(COMPARED[:5], sort=False):
        means = {"seeds": len(values), **values[["ours", "theirs"]].mean()}
        difference = compare(values["ours"], values["theirs"])
        summary.append(dict(zip(COMPARED, cell, strict=False)) | means | difference)
    return pd.DataFrame(summary, columns=[*COMPARED, "difference", "low", "high", "p"])


def run(tables: Sequence[str], seeds: Sequence[int], folder: Path, cluster: str) -> None:
    """Let the contenders run whose results are not kept yet."""
    for table, seed in itertools.product(tables, seeds):
        for contender in list_contenders(table):
            path = folder / table / f"{seed}-{contender}.json"
            if path.exists():
                continue
            with limited_threads(THREADS):
                rows = run_contender(table, seed, contender, cluster)
            with filling(path.parent, what="results", mend="Choose another folder.") as work:
                (work / path.name).write_text(json.dumps(rows, allow_nan=False) + "\n")
            print(f"{table}, seed {seed}, {contender}", flush=True)


def record(judged: pd.DataFrame, home: Path) -> pd.DataFrame:
    """Write the kept run, to whose splits those of a comparison are added, and return it.

    A study of a table without splits stays as it was recorded.
    """
    path = home / "data" / "reference" / "runs" / "default.json"
    splits = path.with_suffix(".csv")
    before = json.loads(path.read_text()) if path.is_file() else {}
    judged = add_splits(judged, splits, ["table", "study", "seed"])
    summary = summarise(judged)
    summary = add_recorded(summary, read_cells(before, [*summary]), ["table", "study"])
    about = {
        "run": "python -m benchmarks.default",
        "machine": platform.machine(),
        "versions": {name: version(name) for name in ("fairfrontier", "numpy", "xgboost-cpu")},
        "columns": list(summary),
    }
    lines = [json.dumps(row) for row in json.loads(summary.round(5).to_json(orient="values"))]
    head = json.dumps(about, indent=1)[:-2]
    text = f'{head},\n "cells": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    with filling(path.parent, what="the run") as work:
        (work / path.name).write_text(text)
        judged.round(5).to_csv(work / splits.name, index=False)
    return summary


def main() -> None:
    """Run the contenders and print how they compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cluster", default="auto")
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    home = find_home()
    folder = home / "data" / "results" / "benchmarks" / "default"
    run(chosen.tables, range(chosen.first, chosen.seeds), folder, chosen.cluster)
    judged = read_results(folder)
    summary = record(judged, home) if chosen.record else summarise(judged)
    print(summary.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
