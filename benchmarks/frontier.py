"""The scoreboard: our frontiers against those of peers, on the same rows.

Run ``python -m benchmarks.frontier [--tracks ...] [--tables ...] [--seeds N]`` after ``make
peers``. The result of every (track, table, seed, contender) is kept in
data/results/benchmarks/frontier, so that a second run goes on where the first one ended;
``--record`` writes all that is there into data/reference/runs/scoreboard.json, with its figure.

- *thresholds*: groups are known when decisions are made. Everybody gets the same scores of one
  XGBoost (300 trees of depth 4, rate .1, all features), and fits on the calibration part.
- *training*: groups are known in training alone, and the protected columns are no features.
  Everybody fits on the training and calibration parts.

Splits are those of the datasets, whose rows outside the test part are shared out anew: six tenths
for training, two for calibration, two for validation. Regression targets are cut at the median of
the training rows. A contender gives one rule for every budget; `benchmarks.scoreboard` chooses
among them on validation. Rates are expectations over the draws of randomised rules. Seconds are
those of the fits for all budgets, on two threads, without the base model.
"""

from __future__ import annotations

import argparse
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
from xgboost import XGBClassifier

from benchmarks.peer.decide import PARTS, TREES, Given, Rule, decide_all, stack_training
from benchmarks.scoreboard import (
    BUDGETS,
    CRITERIA,
    OBJECTIVES,
    PLAIN,
    measure,
    measure_constant,
    record,
)
from fairfrontier import load
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.runtime.writer import filling
from fairfrontier.train.baseline.fair_gbm import FairGBM
from fairfrontier.train.postprocess.roc.group_thresholds import GroupThresholds

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
# Contender -> the environment under .peers that it runs in.
PEERS = {
    "thresholds": {"fairlearn": "fairlearn", "oxonfair": "fairlearn", "error-parity": "fairgbm"},
    "training": {
        "oxonfair-inferred": "fairlearn",
        "fairlearn-reductions": "fairlearn",
        "fairgbm": "fairgbm",
    },
}


@lru_cache(maxsize=2)
def prepare(dataset: str, seed: int, *, blind: bool) -> tuple[Split, dict[str, np.ndarray]]:
    """Return a split, and X, y, score and row numbers by part, ``blind`` to protected columns."""
    split = load(dataset, seed=seed)
    rest = [part for name, part in split.parts() if name != "test"]
    X, y = (np.concatenate([getattr(part, name) for part in rest]) for name in ("X", "y"))
    order = np.random.default_rng(seed).permutation(len(y))
    stops = np.cumsum([round(share * len(y)) for share in SHARES.values()])[:-1]
    rows: dict[str, np.ndarray] = {}
    for part, chosen in zip(SHARES, np.split(order, stops), strict=True):
        rows |= {f"X_{part}": X[chosen], f"y_{part}": y[chosen], f"row_{part}": chosen}
    rows |= {"X_test": split.test.X, "y_test": split.test.y}
    if split.task == "regression":
        median = np.median(rows["y_train"])
        rows |= {name: (rows[name] > median).astype(int) for name in rows if name[:2] == "y_"}
    if blind:
        hidden = [column for each in split.protected_columns.values() for column in each]
        rows |= {f"X_{part}": np.delete(rows[f"X_{part}"], hidden, axis=1) for part in PARTS}
    base = XGBClassifier(**TREES, n_jobs=THREADS).fit(rows["X_train"], rows["y_train"])
    for part in PARTS:
        rows[f"score_{part}"] = base.predict_proba(rows[f"X_{part}"])[:, 1].astype(float)
    return split, rows


def gather(table: Table, seed: int, *, blind: bool) -> dict[str, np.ndarray]:
    """Return what every contender is given."""
    split, rows = prepare(table.dataset, seed, blind=blind)
    rest = [part for name, part in split.parts() if name != "test"]
    columns = [list(rest[0].attributes).index(name) for name in table.attributes]
    known = np.concatenate([part.groups[:, columns] for part in rest])
    _, code = np.unique(
        np.concatenate([known, split.test.groups[:, columns]]), axis=0, return_inverse=True
    )
    given = {name: values for name, values in rows.items() if not name.startswith("row_")}
    given |= {f"group_{part}": code[rows[f"row_{part}"]] for part in SHARES}
    given |= {"group_test": code[len(known) :], "threads": np.array(THREADS)}
    asked = {"criteria": CRITERIA, "objectives": OBJECTIVES, "budgets": BUDGETS}
    return given | {name: np.array(values) for name, values in asked.items()}


def fit_thresholds(given: Given, criterion: str, objective: str) -> Iterator[Rule]:
    """Yield our exact thresholds by group."""

    def decide(model: GroupThresholds, part: str) -> np.ndarray:
        groups = given[f"group_{part}"][:, None]
        return model.predict_proba(given[f"score_{part}"][:, None], groups=groups)[:, 1]

    for budget in given["budgets"].tolist():
        model = GroupThresholds(objective=objective, criterion=criterion, bound=budget)
        model.fit(
            given["score_calibration"][:, None],
            given["y_calibration"],
            groups=given["group_calibration"][:, None],
        )
        yield partial(decide, model)


def fit_plain(given: Given, _criterion: str, objective: str) -> Iterator[Rule]:
    """Yield the base model, cut where it is best on validation whatever the groups."""
    score, y = given["score_validation"], given["y_validation"]
    order = np.argsort(-score, kind="stable")
    true, false = np.cumsum(y[order]), np.cumsum(1 - y[order])
    costs = (1.0, 1.0) if objective == "accuracy" else (1 / true[-1], 1 / false[-1])
    last = np.append(score[order][1:] != score[order][:-1], True)
    best = np.argmax(np.where(last, costs[0] * true - costs[1] * false, -np.inf))
    cut = score[order][best]
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
        model = FairGBM(**TREES, **settings, n_jobs=THREADS).fit(X, y, groups=group[:, None])
        yield partial(decide, model)


# Ours by track, and the base model.
OURS: dict[str, dict[str, Callable[[Given, str, str], Iterator[Rule]]]] = {
    "thresholds": {PLAIN: fit_plain, "group_thresholds": fit_thresholds},
    "training": {PLAIN: fit_plain, "fair_gbm": fit_fair_gbm},
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


def keep(path: Path, given: Given, decided: Mapping[str, np.ndarray]) -> None:
    """Write what a contender reached: objectives and gaps by criterion, objective and budget."""
    result: dict[str, Any] = {"failed": decided["failed"].tolist()}
    result["seconds"] = np.where(np.isnan(decided["seconds"]), None, decided["seconds"]).tolist()
    likely = int(given["y_validation"].mean() > 0.5)
    for part in ("validation", "test"):
        result[f"{part}_constant"] = measure_constant(given[f"y_{part}"], likely)
        found = measure(decided[part], given[f"y_{part}"], given[f"group_{part}"])
        for name, values in found.items():
            result[f"{part}_{name}"] = np.where(np.isnan(values), None, values.round(7)).tolist()
    with filling(path.parent, what="results", mend="Choose another folder.") as work:
        (work / path.name).write_text(json.dumps(result, allow_nan=False) + "\n")


def run(track: str, tables: Sequence[str], seeds: Sequence[int], folder: Path, peers: Path) -> None:
    """Let all contenders of a track decide where their results are not kept yet."""
    with ExitStack() as stack, limited_threads(THREADS):
        contenders: dict[str, Callable[[Given], dict[str, np.ndarray]]] = {
            name: partial(decide_all, fit=fit) for name, fit in OURS[track].items()
        }
        for name, environment in PEERS[track].items():
            peer = stack.enter_context(Peer(name, peers / environment / "bin" / "python"))
            contenders[name] = peer.decide
        # Tables of one dataset share its models.
        for seed in seeds:
            for table in tables:
                missing = {
                    name: path
                    for name in contenders
                    if not (path := folder / track / table / f"{seed}-{name}.json").exists()
                }
                if not missing:
                    continue
                given = gather(TABLES[table], seed, blind=track == "training")
                for name, path in missing.items():
                    start = time.perf_counter()
                    keep(path, given, contenders[name](given))
                    spent = time.perf_counter() - start
                    print(f"{track}, {table}, seed {seed}, {name}: {spent:.1f} s", flush=True)


def main() -> None:
    """Run the tracks, and record what is kept where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tracks", nargs="*", choices=list(OURS), default=list(OURS))
    parser.add_argument("--tables", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    home = find_home()
    folder = home / "data" / "results" / "benchmarks" / "frontier"
    for track in chosen.tracks:
        run(track, chosen.tables, range(chosen.seeds), folder, home / ".peers")
    if chosen.record:
        print(record(folder, home))


if __name__ == "__main__":
    main()
