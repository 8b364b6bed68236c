"""The scoreboard: our frontiers against those of peers, on the same rows.

Run ``python -m benchmarks.frontier [--tracks ...] [--tables ...] [--first K] [--seeds N]`` after
``make peers``; seeds are K to N - 1. The result of every (track, table, seed, contender) is kept in
data/results/benchmarks/frontier, so that a second run goes on where the first one ended;
``--record`` adds all that is there to the splits of data/reference/runs/scoreboard.csv, and writes
the summary of all of them into scoreboard.json, with its figure.

- *thresholds*: groups are known when decisions are made. Everybody gets the same scores of one
  XGBoost (300 trees of depth 4, rate .1, all features), and fits on the calibration part.
- *training*: groups are known in training alone, and the protected columns are no features.
  Everybody fits on the training and calibration parts. Ours are group-fair boosting, thresholds
  on inferred labels and groups, and the base model, all of whose rules are candidates.
- *tuned*: what a user gets in minutes, groups being known. Ours is the study of a dataset alone,
  all of whose settings are candidates. Peers fit on the validation part, as its rules do, behind an
  XGBoost that 40 random trials tuned for the objective there; the trials are in their seconds.
  Without the tables of regression and without crossed groups, for which such a study has no rules.

Splits are those of the datasets. For the first two tracks, rows outside the test part are shared
out anew: six tenths for training, two for calibration, two for validation. Regression targets are
cut at the median of the training rows. A contender gives one rule for every budget;
`benchmarks.scoreboard` chooses among them on validation, and among mixtures: of a rule with a
constant decision on the second track, of any two rules on the third. Rates are expectations over
the draws of randomised rules. Seconds are those of the fits for all budgets, on two threads.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from xgboost import XGBClassifier

from benchmarks.peer.decide import PARTS, TREES, Given, Rule, decide_all, stack_training
from benchmarks.reproduce import make_project
from benchmarks.scoreboard import (
    BUDGETS,
    CRITERIA,
    OBJECTIVES,
    PLAIN,
    measure,
    measure_constant,
    record,
)
from fairfrontier import load, run_study
from fairfrontier.models.baseline.fair_gbm import FairGBM
from fairfrontier.models.baseline.linear_post import LinearPost
from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.runtime.writer import filling

PROGRAM = Path(__file__).with_name("peer") / "decide.py"
THREADS = 2
# Of the rows outside the test part.
SHARES = {"train": 0.6, "calibration": 0.2, "validation": 0.2}


@dataclass(frozen=True)
class Table:
    """A dataset and the attributes whose cross product makes the groups."""

    dataset: str
    attributes: tuple[str, ...]


TABLES = {
    "german": Table("german", ("age",)),
    "communities": Table("communities", ("majority",)),
    "compas": Table("compas", ("race",)),
    "law": Table("law", ("race",)),
    "credit": Table("credit", ("education",)),
    "adult-sex": Table("adult", ("sex",)),
    "adult-race": Table("adult", ("race",)),
    "adult-sex-race": Table("adult", ("sex", "race")),
}
# By track, contender -> the environment under .peers that it runs in.
RULES = {"fairlearn": "fairlearn", "oxonfair": "fairlearn", "error-parity": "fairgbm"}
PEERS = {
    "thresholds": RULES,
    "tuned": RULES,
    "training": {
        "oxonfair-inferred": "fairlearn",
        "fairlearn-reductions": "fairlearn",
        "fairgbm": "fairgbm",
    },
}


TUNED = ("german", "compas", "credit", "adult-sex", "adult-race")
TRIALS = 40
# A criterion's gap among the measures of a study.
GAPS = {
    "parity": ["selection_rate_difference"],
    "equal_opportunity": ["tpr_difference"],
    "equalized_odds": ["tpr_difference", "fpr_difference"],
}


def share_out(split: Split, seed: int) -> dict[str, np.ndarray]:
    """Return X, y and row numbers of all parts; those of test are after all others."""
    rest = [part for name, part in split.parts() if name != "test"]
    X, y = (np.concatenate([getattr(part, name) for part in rest]) for name in ("X", "y"))
    order = np.random.default_rng(seed).permutation(len(y))
    stops = np.cumsum([round(share * len(y)) for share in SHARES.values()])[:-1]
    rows: dict[str, np.ndarray] = {}
    for part, chosen in zip(SHARES, np.split(order, stops), strict=True):
        rows |= {f"X_{part}": X[chosen], f"y_{part}": y[chosen], f"row_{part}": chosen}
    last = np.arange(len(y), len(y) + split.test.n_samples)
    rows |= {"X_test": split.test.X, "y_test": split.test.y, "row_test": last}
    if split.task == "regression":
        median = np.median(rows["y_train"])
        rows |= {name: (rows[name] > median).astype(int) for name in rows if name[:2] == "y_"}
    return rows


def take_study_parts(split: Split) -> dict[str, np.ndarray]:
    """Return X, y and row numbers as a study has them; rules are fitted on validation rows."""
    rows, stop = {}, 0
    for name, part in split.parts():
        numbers = np.arange(stop, stop := stop + part.n_samples)
        rows |= {f"X_{name}": part.X, f"y_{name}": part.y, f"row_{name}": numbers}
    return rows | {f"{each}_calibration": rows[f"{each}_validation"] for each in ("X", "y", "row")}


def draw_trees(draw: np.random.Generator) -> dict[str, Any]:
    """Return a random setting of XGBoost."""
    return {
        "n_estimators": int(np.exp(draw.uniform(np.log(50), np.log(800)))),
        "max_depth": int(draw.integers(2, 9)),
        "learning_rate": np.exp(draw.uniform(np.log(0.02), np.log(0.3))),
        "reg_lambda": np.exp(draw.uniform(np.log(0.1), np.log(100))),
        "min_child_weight": np.exp(draw.uniform(np.log(0.5), np.log(50))),
        "n_jobs": THREADS,
    }


def tune(rows: Given, objective: str, seed: int) -> XGBClassifier:
    """Return the best of random settings for the objective, at its best cut, on validation."""
    draw = np.random.default_rng(seed)
    best, best_value = None, -np.inf
    for _ in range(TRIALS):
        model = XGBClassifier(**draw_trees(draw)).fit(rows["X_train"], rows["y_train"])
        value = find_cut(
            model.predict_proba(rows["X_validation"])[:, 1], rows["y_validation"], objective
        )[1]
        if value > best_value:
            best, best_value = model, value
    return best


@lru_cache(maxsize=2)
def prepare(dataset: str, seed: int, track: str) -> tuple[Split, dict[str, np.ndarray]]:
    """Return a split, and X, y, row numbers and, by objective, scores by part."""
    split = load(dataset, seed=seed, select_on="validation" if track == "tuned" else None)
    rows = take_study_parts(split) if track == "tuned" else share_out(split, seed)
    if track == "training":
        hidden = [column for each in split.protected_columns.values() for column in each]
        rows |= {f"X_{part}": np.delete(rows[f"X_{part}"], hidden, axis=1) for part in PARTS}
    if track != "tuned":
        base = XGBClassifier(**TREES, n_jobs=THREADS).fit(rows["X_train"], rows["y_train"])
    for objective in OBJECTIVES:
        start = time.perf_counter()
        if track == "tuned":
            base = tune(rows, objective, seed)
        rows[f"tuning_{objective}"] = np.array(time.perf_counter() - start)
        for part in PARTS:
            score = base.predict_proba(rows[f"X_{part}"])[:, 1].astype(float)
            rows[f"score_{part}_{objective}"] = score
    return split, rows


def gather(table: Table, seed: int, track: str) -> dict[str, np.ndarray]:
    """Return what every contender is given; scores for each objective."""
    split, rows = prepare(table.dataset, seed, track)
    names = list(split.test.attributes)
    columns = [names.index(name) for name in table.attributes]
    known = np.concatenate([part.groups[:, columns] for _, part in split.parts()])
    _, code = np.unique(known, axis=0, return_inverse=True)
    given = rows | {f"group_{part}": code[rows[f"row_{part}"]] for part in PARTS}
    return given | {
        "threads": np.array(THREADS),
        "criteria": np.array(CRITERIA),
        "objectives": np.array(OBJECTIVES),
        "budgets": np.array(BUDGETS),
    }


def fit_thresholds(
    given: Given, criterion: str, objective: str, labels: Any = "observed"
) -> Iterator[Rule]:
    """Yield our exact thresholds by group."""

    def decide(model: GroupThresholds, part: str) -> np.ndarray:
        groups = given[f"group_{part}"][:, None]
        return model.predict_proba(given[f"score_{part}"][:, None], sensitive_features=groups)[:, 1]

    for budget in given["budgets"].tolist():
        model = GroupThresholds(
            objective=objective, criterion=criterion, bound=budget, labels=labels
        )
        model.fit(
            given["score_calibration"][:, None],
            given["y_calibration"],
            sensitive_features=given["group_calibration"][:, None],
        )
        yield partial(decide, model)


def find_cut(score: np.ndarray, y: np.ndarray, objective: str) -> tuple[float, float]:
    """Return the lowest score to choose for an objective, and the objective up to a constant."""
    order = np.argsort(-score, kind="stable")
    true, false = np.cumsum(y[order]), np.cumsum(1 - y[order])
    costs = (1.0, 1.0) if objective == "accuracy" else (1 / true[-1], 1 / false[-1])
    last = np.append(score[order][1:] != score[order][:-1], True)
    gain = np.where(last, costs[0] * true - costs[1] * false, -np.inf)
    return float(score[order][gain.argmax()]), float(gain.max())


def fit_plain(given: Given, _criterion: str, objective: str) -> Iterator[Rule]:
    """Yield the base model, cut where it is best on validation whatever the groups."""
    cut, _ = find_cut(given["score_validation"], given["y_validation"], objective)
    for _ in given["budgets"]:
        yield lambda part: (given[f"score_{part}"] >= cut).astype(float)


def fit_fair_gbm(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield our group-fair boosting."""
    X, y, group = stack_training(given)
    weight: Any = "balanced" if objective == "balanced_accuracy" else 1.0

    def decide(model: FairGBM, part: str) -> np.ndarray:
        return model.predict(given[f"X_{part}"]).astype(float)

    for budget in given["budgets"].tolist():
        settings = {"criterion": criterion, "bound": budget, "scale_pos_weight": weight}
        model = FairGBM(**TREES, **settings, n_jobs=THREADS).fit(
            X, y, sensitive_features=group[:, None]
        )
        yield partial(decide, model)


def fit_linear_post(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield our thresholds on inferred labels and groups, whose trees all budgets share."""
    X, y, group = stack_training(given)
    settings = {"criterion": criterion, "objective": objective, "n_jobs": THREADS}
    models = [LinearPost(**TREES, **settings, bound=bound) for bound in given["budgets"].tolist()]
    LinearPost.fit_batch(
        models, [{"X": X, "y": y, "sensitive_features": group[:, None]}] * len(models)
    )

    def decide(model: LinearPost, part: str) -> np.ndarray:
        return model.predict(given[f"X_{part}"]).astype(float)

    for model in models:
        yield partial(decide, model)


# Ours by track, and the base model.
OURS: dict[str, dict[str, Callable[[Given, str, str], Iterator[Rule]]]] = {
    "thresholds": {
        PLAIN: fit_plain,
        "group_thresholds": fit_thresholds,
        "smoothed_thresholds": partial(fit_thresholds, labels="smoothed"),
    },
    "training": {PLAIN: fit_plain, "fair_gbm": fit_fair_gbm, "linear_post": fit_linear_post},
    "tuned": {PLAIN: fit_plain},
}


class Peer:
    """A peer in its environment, which waits for tables until it is closed."""

    def __init__(self, name: str, python: Path | str) -> None:
        if not Path(python).exists():
            raise SystemExit(f"There is no {python}. Run: make peers")
        self.name = name
        self.process = subprocess.Popen(
            [str(python), str(PROGRAM), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *fault: Any) -> None:
        self.process.__exit__(*fault)

    def decide(self, given: Given) -> dict[str, np.ndarray]:
        """Return what the peer decides."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
            np.savez(source, **given)
            self.process.stdin.write(f"{source} {target}\n")
            self.process.stdin.flush()
            if not self.process.stdout.readline():
                raise SystemExit(f"{self.name} ended with code {self.process.wait()}.")
            with np.load(target, allow_pickle=False) as found:
                return dict(found)


def describe(given: Given, decided: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return what a contender reaches: objectives and gaps by criterion, objective and budget."""
    tuning = [given[f"tuning_{objective}"] for objective in OBJECTIVES]
    seconds = decided["seconds"] + tuning
    result = {"failed": decided["failed"].tolist(), "seconds": clear(seconds)}
    likely = int(given["y_validation"].mean() > 0.5)
    for part in ("validation", "test"):
        result[f"{part}_constant"] = measure_constant(given[f"y_{part}"], likely)
        found = measure(decided[part], given[f"y_{part}"], given[f"group_{part}"])
        result |= {f"{part}_{name}": clear(values) for name, values in found.items()}
    return result


def clear(values: np.ndarray) -> list[Any]:
    """Return nested lists with None for NaN."""
    return np.where(np.isnan(values), None, values.round(7)).tolist()


@lru_cache(maxsize=len(OBJECTIVES))
def run_default(dataset: str, seed: int, objective: str) -> tuple[pd.DataFrame, float]:
    """Return the points of our study of a dataset alone, and its seconds where nothing is kept."""
    # The gaps of peers have no minimum of rows either.
    asked = {"dataset": dataset, "objective": objective, "seeds": [seed], "minimum": 1}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_project(home, find_home())
        path = home / f"scoreboard-{dataset}-{seed}-{objective}.yaml"
        path.write_text(json.dumps(asked))
        study = run_study(path, home=home)
        return study.points, study.facts["seconds"]


def search(table: Table, seed: int, given: Given) -> dict[str, Any]:
    """Return what our study of a dataset alone reaches, by `describe`'s keys."""
    result: dict[str, Any] = {"failed": [], "seconds": [[] for _ in CRITERIA]}
    likely = int(given["y_validation"].mean() > 0.5)
    for part in ("validation", "test"):
        result[f"{part}_constant"] = measure_constant(given[f"y_{part}"], likely)
        result |= {f"{part}_{name}": [[] for _ in CRITERIA] for name in ("objective", "gap")}
    for objective in OBJECTIVES:
        points, seconds = run_default(table.dataset, seed, objective)
        points = points[points["group"].isin(["", *table.attributes])]
        reached = points.pivot_table(
            "value", index=["method", "setting"], columns=["part", "measure"], sort=False
        )
        for i, measures in enumerate(GAPS.values()):
            result["seconds"][i].append(seconds)
            for part in ("validation", "test"):
                gap = reached[part].reindex(columns=measures).max(axis=1, skipna=False)
                result[f"{part}_objective"][i].append(clear(reached[part][objective].to_numpy()))
                result[f"{part}_gap"][i].append(clear(gap.to_numpy()))
    return result


def run(track: str, tables: Sequence[str], seeds: Sequence[int], folder: Path, peers: Path) -> None:
    """Let all contenders of a track decide where their results are not kept yet."""
    with ExitStack() as stack, limited_threads(THREADS):
        contenders: dict[str, Callable[[Given], dict[str, np.ndarray]]] = {
            name: partial(decide_all, fit=fit) for name, fit in OURS[track].items()
        }
        for name, environment in PEERS[track].items():
            peer = stack.enter_context(Peer(name, peers / environment / "bin" / "python"))
            contenders[name] = peer.decide
        names = [*contenders, "study"] if track == "tuned" else list(contenders)
        # Tables of one dataset share its models.
        for seed, table in itertools.product(seeds, tables):
            for name in names:
                path = folder / track / table / f"{seed}-{name}.json"
                if path.exists():
                    continue
                given = gather(TABLES[table], seed, track)
                start = time.perf_counter()
                if name in contenders:
                    result = describe(given, contenders[name](given))
                else:
                    result = search(TABLES[table], seed, given)
                with filling(path.parent, what="results", mend="Choose another folder.") as work:
                    (work / path.name).write_text(json.dumps(result, allow_nan=False) + "\n")
                spent = time.perf_counter() - start
                print(f"{track}, {table}, seed {seed}, {name}: {spent:.1f} s", flush=True)


def main() -> None:
    """Run the tracks, and record what is kept where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tracks", nargs="*", choices=list(OURS), default=list(OURS))
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    home = find_home()
    folder = home / "data" / "results" / "benchmarks" / "frontier"
    for track in chosen.tracks:
        tables = [name for name in chosen.tables if track != "tuned" or name in TUNED]
        run(track, tables, range(chosen.first, chosen.seeds), folder, home / ".peers")
    if chosen.record:
        print(record(folder, home))


if __name__ == "__main__":
    main()
