"""From a table to its frontier: ours against an XGBoost tuned plainly, with peers' rules behind it.

Run ``python -m benchmarks.first_frontier [--tables ...] [--first K] [--seeds N] [--peers ...]``
after ``make peers``; seeds are K to N - 1, each another split. What each contender reaches is kept
in data/results/benchmarks/first_frontier, so that a second run goes on where the first one ended;
``--record`` writes the summary of all that is there to
data/reference/runs/first_frontier.json.

- ``loans`` (5,000 rows) and ``bank`` (500,000) are made: numbers and categories with a sex and an
  origin that shift some of them; ``adult`` are the 45,222 complete rows of Adult.
- Everybody gets the same rows, encoded alike, two threads, balanced accuracy as the objective, and
  eight bounds on parity and equalized odds for each of two attributes. A fifth of the rows is for
  test; three tenths of the others are for validation.
- Peers' base model is the best of 40 random trials of XGBoost on the validation rows; their rules
  are fitted there, too. Their seconds are the trials and the fits of all rules, ours are those of
  ``Frontier(["gbdt"], trials=40).fit``, with all measures.
- The area is what rules that nothing beats on validation rows dominate on test rows, up to the gap
  of the tuned model and half: a mean over attributes and criteria. Gaps of randomised rules are
  expectations. Differences of area are paired by splits, with 95% intervals.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.frontier import RULES, THREADS, TRIALS, Peer, find_cut, tune
from benchmarks.scoreboard import BUDGETS, compare, find_undominated, measure, sum_volume
from fairfrontier import Frontier, load
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.thread import count_cores, limited_threads
from fairfrontier.runtime.writer import filling

OURS = "fairfrontier"
PLAIN = "xgboost"
OBJECTIVE = "balanced_accuracy"
GAPS = {"parity": "selection_rate_difference", "equalized_odds": "gap_max"}
MADE = {"loans": 5_000, "bank": 500_000}
TABLES = ("loans", "adult", "bank")


def make_people(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Return features, labels and sensitive features of made applicants."""
    draw = np.random.default_rng(seed)
    sex = draw.choice(["female", "male"], n, p=[0.4, 0.6])
    origin = draw.choice(["a", "b", "c", "d"], n, p=[0.55, 0.25, 0.12, 0.08])
    ahead = (sex == "male") * 0.5 + pd.Series(origin).map(
        {"a": 0.4, "b": 0.1, "c": -0.2, "d": -0.4}
    )
    skill = draw.normal(size=n)
    numbers = {
        "income": np.exp(0.5 * skill + 0.4 * ahead + draw.normal(0, 0.4, n)),
        "debt": np.exp(draw.normal(size=n) - 0.2 * skill),
        "years": np.clip(draw.gamma(2, 4, n) + 2 * skill, 0, 40),
        "age": draw.integers(18, 75, n).astype(float),
    }
    numbers |= {f"x{k}": draw.normal(size=n) + 0.3 * skill * (k % 3 == 0) for k in range(8)}
    job = draw.choice(list("klmnopq"), n)
    purpose = np.where(draw.random(n) < 0.5, "car", draw.choice(["home", "study", "other"], n))
    frame = pd.get_dummies(pd.DataFrame({**numbers, "job": job, "purpose": purpose}), dtype=float)
    merit = (
        1.2 * skill
        + 0.5 * ahead
        + 0.6 * np.sin(frame["years"] / 4)
        - 0.3 * np.log1p(frame["debt"])
        + 0.4 * (purpose == "study") * (frame["age"] < 30)
    )
    y = (merit + draw.logistic(size=n) > 0.6).to_numpy().astype(int)
    return frame, y, pd.DataFrame({"sex": sex, "origin": origin})


def read_table(table: str) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Return features, labels and sensitive features."""
    if table in MADE:
        return make_people(MADE[table], 0)
    split = load(table)
    parts = [part for _, part in split.parts()]
    X = np.concatenate([part.X for part in parts])
    codes = np.concatenate([part.groups for part in parts])
    groups = {
        name: np.array(levels)[codes[:, k]]
        for k, (name, levels) in enumerate(split.test.attributes.items())
    }
    y = np.concatenate([part.y for part in parts])
    return pd.DataFrame(X, columns=[*split.feature_names]), y, pd.DataFrame(groups)


def share_out(y: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return the positions of train, validation and test rows."""
    rest, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y)
    train, held_out = train_test_split(rest, test_size=0.3, random_state=seed, stratify=y[rest])
    return {"train": np.sort(train), "validation": np.sort(held_out), "test": np.sort(test)}


def run_ours(
    X: pd.DataFrame, y: np.ndarray, groups: pd.DataFrame, parts: dict[str, np.ndarray], seed: int
) -> dict[str, Any]:
    """Return objectives and gaps of our candidates by part, and the seconds of the fit."""
    begin = time.perf_counter()
    frontier = Frontier(
        ["gbdt"],
        objective=OBJECTIVE,
        criteria=list(GAPS),
        bounds=BUDGETS,
        trials=TRIALS,
        cv=parts,
        minimum=1,
        random_state=seed,
        n_jobs=THREADS,
    ).fit(X, y, sensitive_features=groups)
    seconds = time.perf_counter() - begin
    rows = frontier.results_
    wide = rows.assign(name=rows["measure"] + ":" + rows["group"]).pivot_table(
        "value", index=["method", "setting"], columns=["part", "name"], sort=False
    )
    return {
        "seconds": seconds,
        "rules": [
            {
                "attribute": attribute,
                "criterion": criterion,
                **{
                    f"{part}_{key}": wide[part][name].tolist()
                    for part in ("validation", "test")
                    for key, name in (
                        ("objective", f"{OBJECTIVE}:"),
                        ("gap", f"{measured}:{attribute}"),
                    )
                },
            }
            for attribute in groups
            for criterion, measured in GAPS.items()
        ],
    }


def tune_base(given: dict[str, np.ndarray], seed: int) -> tuple[dict[str, np.ndarray], float]:
    """Return the scores of the tuned model by part, and the seconds of its trials."""
    begin = time.perf_counter()
    model = tune(given, OBJECTIVE, seed)
    scores = {
        f"score_{part}_{OBJECTIVE}": model.predict_proba(given[f"X_{part}"])[:, 1].astype(float)
        for part in ("train", "calibration", "validation", "test")
    }
    return scores, time.perf_counter() - begin


def run_peer(
    peer: Peer | None, given: dict[str, np.ndarray], groups: pd.DataFrame, parts: dict[str, Any]
) -> dict[str, Any]:
    """Return what rules reach, by attribute and criterion; of the plain cut without a peer."""
    seconds, rules, failed = 0.0, [], []
    for attribute in groups:
        code = pd.factorize(groups[attribute], sort=True)[0]
        own = {f"group_{part}": code[at] for part, at in parts.items()}
        asked = given | own | {"group_calibration": own["group_validation"]}
        if peer is None:
            score = f"score_{{}}_{OBJECTIVE}"
            cut, _ = find_cut(asked[score.format("validation")], asked["y_validation"], OBJECTIVE)
            decided: dict[str, Any] = {
                part: np.tile(asked[score.format(part)] >= cut, (len(GAPS), 1, 1, 1))
                for part in ("validation", "test")
            }
        else:
            decided = peer.decide(asked)
            seconds += float(np.nansum(decided["seconds"]))
            failed += decided["failed"].tolist()
        for i, criterion in enumerate(GAPS):
            row: dict[str, Any] = {"attribute": attribute, "criterion": criterion}
            for part in ("validation", "test"):
                shown = np.asarray(decided[part][i, 0], dtype=float)
                # `measure` reads parity, opportunity and odds, and accuracy and balanced accuracy.
                whole = np.broadcast_to(shown, (3, 2, *shown.shape))
                found = measure(whole, asked[f"y_{part}"], asked[f"group_{part}"])
                at = {"parity": 0, "equalized_odds": 2}[criterion]
                row[f"{part}_objective"] = found["objective"][at, 1].tolist()
                row[f"{part}_gap"] = found["gap"][at, 1].tolist()
            rules.append(row)
    return {"seconds": seconds, "rules": rules, "failed": failed}


def sum_area(result: dict[str, Any], plain: dict[str, Any]) -> float:
    """Return the mean area over attributes and criteria."""
    areas = []
    for own, free in zip(result["rules"], plain["rules"], strict=True):
        seen, true = (
            np.array([own[f"{part}_objective"], own[f"{part}_gap"]], dtype=float)
            for part in ("validation", "test")
        )
        made = ~np.isnan([*seen, *true]).any(axis=0)
        seen, true = seen[:, made], true[:, made]
        best = find_undominated(*seen)
        # Half a right decision of each class is what a constant reaches.
        areas.append(sum_volume(*true[:, best], (0.5, free["test_gap"][0])))
    return float(np.mean(areas))


def run(tables: list[str], seeds: range, peers: list[str], folder: Path, home: Path) -> None:
    """Let all contenders work where their results are not kept yet."""
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(Peer(name, home / ".peers" / RULES[name] / "bin" / "python"))
            for name in peers
        }
        for table in tables:
            X, y, groups = read_table(table)
            for seed in seeds:
                place = folder / table
                paths = {name: place / f"{seed}-{name}.json" for name in (OURS, PLAIN, *started)}
                if all(path.is_file() for path in paths.values()):
                    continue
                parts = share_out(y, seed)
                with filling(place, what="results", mend="Choose another folder.") as work:
                    if not paths[OURS].is_file():
                        result = run_ours(X, y, groups, parts, seed)
                        (work / paths[OURS].name).write_text(json.dumps(result))
                        print(f"{table}, {seed}, {OURS}: {result['seconds']:.1f} s", flush=True)
                named = parts | {"calibration": parts["validation"]}
                given = {f"X_{part}": X.to_numpy()[at] for part, at in named.items()}
                given |= {f"y_{part}": y[at] for part, at in named.items()}
                with limited_threads(THREADS):
                    scores, tuning = tune_base(given, seed)
                given |= scores | {
                    "criteria": np.array(list(GAPS)),
                    "objectives": np.array([OBJECTIVE]),
                    "budgets": np.array(BUDGETS),
                    "threads": np.array(THREADS),
                }
                for name, peer in {PLAIN: None, **started}.items():
                    if paths[name].is_file():
                        continue
                    result = run_peer(peer, given, groups, parts)
                    result["seconds"] += tuning
                    with filling(place, what="results", mend="Choose another folder.") as work:
                        (work / paths[name].name).write_text(json.dumps(result))
                    print(f"{table}, {seed}, {name}: {result['seconds']:.1f} s", flush=True)


def summarise(folder: Path) -> pd.DataFrame:
    """Return seconds and areas by table and contender, and ours less each peer's."""
    rows = []
    for table in TABLES:
        kept: dict[str, dict[int, dict[str, Any]]] = {}
        for path in sorted((folder / table).glob("*-*.json")):
            seed, _, name = path.stem.partition("-")
            kept.setdefault(name, {})[int(seed)] = json.loads(path.read_text())
        areas = {
            name: pd.Series(
                {s: sum_area(each, kept[PLAIN][s]) for s, each in own.items() if s in kept[PLAIN]}
            )
            for name, own in kept.items()
        }
        fastest = min(
            (np.mean([each["seconds"] for each in own.values()]), name)
            for name, own in {**kept, "": {0: {"seconds": np.inf}}}.items()
            if name not in (OURS, PLAIN)
        )[0]
        for name, own in kept.items():
            seconds = float(np.mean([each["seconds"] for each in own.values()]))
            row = {"table": table, "contender": name, "splits": len(own), "seconds": seconds}
            row |= {"to_fastest_peer": seconds / fastest, "area": float(areas[name].mean())}
            if name != OURS and OURS in areas:
                row |= compare(areas[OURS], areas[name])
            rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    """Run what is not kept, and show what is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=["loans", "adult"])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--peers", nargs="*", choices=list(RULES), default=list(RULES))
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    home = find_home()
    folder = home / "data" / "results" / "benchmarks" / "first_frontier"
    run(chosen.tables, range(chosen.first, chosen.seeds), chosen.peers, folder, home)
    summary = summarise(folder)
    print(summary.round(4).to_string(index=False))
    if chosen.record:
        cells = json.loads(summary.round(5).to_json(orient="records"))
        facts = {
            "cores": count_cores(),
            "python": platform.python_version(),
            "versions": {name: version(name) for name in ("xgboost-cpu", "scikit-learn")},
            "cells": cells,
        }
        reference = home / "data" / "reference" / "runs"
        with filling(reference, what="kept run", mend="Mend its permissions.") as work:
            (work / "first_frontier.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
