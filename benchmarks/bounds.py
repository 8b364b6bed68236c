"""Bounds in words on given scores: what each costs, and what OxonFair reaches where it can say it.

Run ``python -m benchmarks.bounds [--tables ...] [--seeds N] [--record]`` after ``make peers``.
Scores are those of XGBoost (300 trees of depth 4) on train rows, the same for everybody; a fifth of
the rows is for test, three tenths of the others are the rows that thresholds are fitted on. The
objective is balanced accuracy, and everybody has one cut a group. A cell has means over the splits
of the objective on the fitted rows and on test, of what the bound's measure is there, and of
seconds; ``cost`` is the test objective below that of the best cut without a bound, ``ahead`` ours
less OxonFair's on test with a 95% interval over the splits, and ``ahead_fitted`` on the fitted
rows, of the splits where both keep the bound there. ``--record`` writes
data/reference/runs/bounds.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from contextlib import nullcontext
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import balanced_accuracy_score
from xgboost import XGBClassifier

from benchmarks.first_frontier import read_table, share_out
from benchmarks.frontier import RULES, THREADS, Peer, find_cut
from benchmarks.scoreboard import compare
from fairfrontier import GroupThresholds
from fairfrontier.models.thresholds.bound import Bound, read_bounds
from fairfrontier.runtime.errors import UnattainableError
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.thread import count_cores, limited_threads
from fairfrontier.runtime.writer import filling

OBJECTIVE = "balanced_accuracy"
TABLES = ("adult", "compas", "german", "credit", "loans")
# With OxonFair's form, rate and value where it can say the same of one attribute.
BOUNDS: dict[str, tuple[str, float] | None] = {
    "selection_rate_difference:{a} <= 0.05": ("max_diff pos_pred_rate", 0.05),
    "selection_rate_ratio:{a} >= 0.8": ("min_ratio pos_pred_rate", 0.8),
    "tpr_difference:{a} <= 0.05": ("max_diff true_pos_rate", 0.05),
    "gap_max:{a} <= 0.05": ("equalized_odds", 0.05),
    "tpr_min:{a} >= 0.7": ("min true_pos_rate", 0.7),
    "fpr_max:{a} <= 0.2": ("max false_pos_rate", 0.2),
    "ppv_difference:{a} <= 0.03": ("max_diff precision", 0.03),
    "fdr_max:{a} <= 0.4": ("min precision", 0.6),
    "error_rate_difference:{a} to overall <= 0.02": None,
    "selection_rate_difference:{a} | {b} <= 0.05": None,
    "selection_rate_ratio:{a} >= 0.8 and selection_rate <= 0.2": None,
}
OURS, PEER, FREE = "fairfrontier", "oxonfair", "no bound"
PARTS = ("validation", "test")


def measure(
    bounds: tuple[Bound, ...], y: np.ndarray, decision: np.ndarray, groups: pd.DataFrame
) -> tuple[float, bool]:
    """Return what the first bound's measure is of decisions, and whether all bounds are kept."""
    cells, code = np.unique(groups.to_numpy(dtype=str), axis=0, return_inverse=True)
    columns = [y * decision, (1 - y) * decision, y, 1 - y]
    counts = np.column_stack([np.bincount(code, each, len(cells)) for each in columns])
    levels = dict(zip(groups.columns, cells.T, strict=True))
    values = [each.value(counts, levels) for each in bounds]
    kept = all(each.exceeds(v) <= 1e-9 for each, v in zip(bounds, values, strict=True))
    return values[0], kept


def run_split(
    table: tuple[pd.DataFrame, np.ndarray, pd.DataFrame], seed: int, peer: Peer | None
) -> list[dict[str, Any]]:
    """Return what every contender reaches under every bound."""
    X, y, groups = table
    a, b = groups.columns[0], groups.columns[-1]
    parts = share_out(y, seed)
    with limited_threads(THREADS):
        model = XGBClassifier(n_estimators=300, max_depth=4, learning_rate=0.1, n_jobs=THREADS)
        model.fit(X.iloc[parts["train"]], y[parts["train"]])
        score = model.predict_proba(X)[:, 1].astype(float)
    rows = []

    def keep(contender: str, text: str, decided: dict[str, np.ndarray], **facts: Any) -> None:
        row: dict[str, Any] = {"contender": contender, "bound": text, "seed": seed, **facts}
        for part, decision in decided.items():
            at = parts[part]
            value, kept = measure(read_bounds(text), y[at], decision, groups.iloc[at])
            row |= {part: balanced_accuracy_score(y[at], decision)}
            row |= {f"{part}_value": value, f"{part}_kept": kept}
        rows.append(row)

    held = parts["validation"]
    cut, _ = find_cut(score[held], y[held], OBJECTIVE)
    for pattern, theirs in BOUNDS.items():
        if "{b}" in pattern and a == b:
            continue
        text = pattern.format(a=a, b=b)
        keep(FREE, text, {part: (score[parts[part]] >= cut).astype(float) for part in PARTS})
        begin = time.perf_counter()
        try:
            rule = GroupThresholds(bounds=[*map(str, read_bounds(text))], objective=OBJECTIVE)
            rule.set_params(randomized=False, unseen="pooled")
            rule.fit(score[held], y[held], sensitive_features=groups.iloc[held])
        except UnattainableError as error:
            print(f"  {text}: {error}", flush=True)
            continue
        facts = {
            "seconds": time.perf_counter() - begin,
            "above": rule.result_["dual_value"] - rule.result_["value"],
        }
        decided = {
            part: rule.predict(score[at], sensitive_features=groups.iloc[at]).astype(float)
            for part, at in parts.items()
            if part in PARTS
        }
        keep(OURS, text, decided, **facts)
        if peer is None or theirs is None:
            continue
        code = pd.factorize(groups[a], sort=True)[0]
        named = parts | {"calibration": held}
        given: dict[str, Any] = {f"X_{part}": np.zeros((len(at), 1)) for part, at in named.items()}
        given |= {f"y_{part}": y[at] for part, at in named.items()}
        given |= {f"group_{part}": code[at] for part, at in named.items()}
        given |= {f"score_{part}_{OBJECTIVE}": score[at] for part, at in named.items()}
        given |= {
            "criteria": np.array([theirs[0]]),
            "objectives": np.array([OBJECTIVE]),
            "budgets": np.array([theirs[1]]),
            "threads": np.array(THREADS),
        }
        answer = peer.decide(given)
        if answer["failed"].size:
            print(f"  {PEER}, {text}: {answer['failed'][0]}", flush=True)
            continue
        decided = {part: answer[part][0, 0, 0].astype(float) for part in PARTS}
        keep(PEER, text, decided, seconds=float(answer["seconds"][0, 0]))
    return rows


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each table, bound and contender: means over the splits."""
    listed = []
    for (table, bound), own in rows.groupby(["table", "bound"], sort=False):
        by = {name: each.set_index("seed") for name, each in own.groupby("contender", sort=False)}
        for name, each in by.items():
            row = {"table": table, "bound": bound, "contender": name, "splits": len(each)}
            numbers = ["validation", "test", "validation_value", "test_value", "seconds", "above"]
            row |= each[numbers].mean().to_dict()
            row |= each[["validation_kept", "test_kept"]].astype(float).mean().to_dict()
            if name != FREE:
                row["cost"] = float((by[FREE]["test"] - each["test"]).mean())
            if name == PEER and OURS in by:
                row |= compare(by[OURS]["test"], each["test"])
                both = each["validation_kept"] & by[OURS]["validation_kept"].reindex(each.index)
                ahead = (by[OURS]["validation"] - each["validation"])[both]
                row["ahead_fitted"] = float(ahead.min()) if len(ahead) else np.nan
            listed.append(row)
    return pd.DataFrame(listed)


def main() -> None:
    """Run all tables, and show what is reached."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--alone", action="store_true", help="without the peer")
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    home, rows = find_home(), []
    python = home / ".peers" / RULES[PEER] / "bin" / "python"
    with nullcontext() if chosen.alone else Peer(PEER, python) as peer:
        for name in chosen.tables:
            table = read_table(name)
            for seed in range(chosen.seeds):
                begin = time.perf_counter()
                rows += [{"table": name, **row} for row in run_split(table, seed, peer)]
                print(f"{name}, {seed}: {time.perf_counter() - begin:.1f} s", flush=True)
    summary = summarise(pd.DataFrame(rows))
    print(summary.round(4).to_string(index=False))
    if chosen.record:
        facts = {
            "cores": count_cores(),
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("xgboost-cpu", "scikit-learn")},
            "cells": json.loads(summary.round(5).to_json(orient="records")),
        }
        reference = home / "data" / "reference" / "runs"
        with filling(reference, what="kept run", mend="Mend its permissions.") as work:
            (work / "bounds.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
