"""A study whose rows stay in files: rows like Adult's, prepared, learnt and measured by workers.

Run ``python -m benchmarks.scale [--rows N] [--workers W ...] [--memory 3GiB] [--budro T] [--sensei]
[--check] [--folder F] [--record]``. Rows are drawn with a seed from those of Adult, numbers moved a
little, and written as Parquet of 50,000 rows a row group, to FOLDER, which is kept with the
measures of every run, or to a temporary one.
A study then learns the subspace, boosts 50 trees, fits a logistic regression and thresholds behind
the trees, with ``--budro`` also T rounds of BuDRO by 5,000 sources, and with ``--sensei`` one epoch
of SenSeI, and ends with its frontier and report; no worker may exceed ``--memory``, beyond which
Dask kills it. Seconds are those of the whole run on fresh workers and an empty store, once for
every number of workers, the peer being the first of them; the memory is the resident peak of the
worst worker, and of this process, which has labels, groups and scores. What a run of
the same code left in FOLDER is read.

``--check`` runs the first 100,000 rows in memory, too, and in partitions. First without what only
approximates: all rows are sources of BuDRO, ``project`` has a bin for every value, and SenSeI
computes in double precision. It stops where a measure differs by more than 1e-9. Then as all rows
are run: differences are shown, and the frontiers in partitions and, where there are more rows, of
all of them are compared with the 95% intervals in memory. These are of given models: how far other
training rows move a frontier, one of 100,000 other rows in memory shows.

``--record`` adds the runs, and what the check found, to data/reference/runs/scale.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

import fairfrontier
from benchmarks.record import Record, show_records, write_records
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.runner import STAGES
from fairfrontier.runtime.cluster.open import open_cluster
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.writer import filling
from fairfrontier.study.config import RunOptions
from fairfrontier.study.run import RunContext, ThreadRunner, run_stages, start_study

GROUP, FILE = 50_000, 1_000_000
# Rows that are also run in memory.
SAMPLE = 100_000
# As long as text is: codes of the few values of these columns would be 5 bytes a row.
PLAIN: dict[str, Any] = {"use_dictionary": False, "compression": "NONE"}
# By how much measures may differ where nothing is approximate.
TOLERANCE = 1e-9
# The parts, in which rows keep their order, with their shares, and the rows of a minibatch.
PARTS, BATCH = {"train": 0.64, "validation": 0.16, "test": 0.2}, 1000
# Numbers of Adult -> how far one is moved, its bounds, and what it is a multiple of: XGBoost bins
# 256 values of a feature exactly, on any rows.
MOVED = {
    "age": (3, 17, 90, 1),
    "education-num": (1, 1, 16, 1),
    "capital-gain": (600, 0, 99_600, 600),
    "capital-loss": (40, 0, 4_340, 20),
    "hours-per-week": (4, 1, 99, 1),
    "fnlwgt": (5_000, 12_285, 1_490_400, 1),
}
STUDY: dict[str, Any] = {
    "study": "scale",
    "dataset": "scale",
    "metric": {"name": "subspace", "solver": "newton"},
    "methods": {
        "gbdt": {"n_estimators": 50, "max_depth": 4},
        "linear": {},
        "project": {"n_estimators": 50, "max_depth": 4},
        "thresholds": {
            "method": "gbdt",
            "n_estimators": 50,
            "max_depth": 4,
            "then": {"method": "group_thresholds", "attributes": "sex", "bound": 0.02},
        },
    },
    "seeds": 1,
    "threads": 1,
    "objective": "balanced_accuracy",
    "frontier": {"fairness": ["consistency:spouse", "tpr_difference:sex"]},
}
# The measures of the frontier -> of what they are.
FRONTIER = {
    STUDY["objective"]: "",
    **dict(each.split(":") for each in STUDY["frontier"]["fairness"]),
}
# What tells a model from others, but for its setting, in which an epoch depends on the rows.
KEYS = ["method", "seed", "part", "measure", "group"]


@dataclass(frozen=True)
class Measured:
    """A run: its seconds by stage and by fit, and its points.

    The peaks are those of the worst worker and of this process.
    """

    seconds: dict[str, float]
    fits: dict[str, float]
    worker_mib: float
    own_mib: float
    points: pd.DataFrame

    @property
    def total(self) -> float:
        """Seconds of the whole run."""
        return self.seconds["total"]

    def describe(self) -> dict[str, Any]:
        """Return all but the points."""
        return {key: value for key, value in vars(self).items() if key != "points"}

    def write(self, path: Path) -> None:
        """Write points as ``path``.parquet, and all else as ``path``.json."""
        self.points.to_parquet(path.with_suffix(".parquet"))
        path.with_suffix(".json").write_text(json.dumps(self.describe()), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Measured:
        """Return what `write` wrote."""
        rest = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return cls(points=pd.read_parquet(path.with_suffix(".parquet")), **rest)


def draw_rows(table: pd.DataFrame, n: int, generator: np.random.Generator) -> pd.DataFrame:
    """Return n rows of a table, drawn with replacement, with numbers moved a little."""
    drawn = table.iloc[generator.integers(len(table), size=n)].reset_index(drop=True)
    for name, (width, low, high, unit) in MOVED.items():
        value = drawn[name].to_numpy(dtype=np.float64)
        # Most people have no gains and losses.
        moved = value + (value > 0) * generator.integers(-width, width + 1, size=n)
        drawn[name] = (np.rint(moved / unit) * unit).clip(low, high)
    return drawn.assign(part=generator.choice(list(PARTS), size=n, p=list(PARTS.values())))


def write_rows(folder: Path, n: int, seed: int = 0) -> int:
    """Write n rows as Parquet, each row group from a generator of its own; return the bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    home = find_home()
    adult = fit_table(make_request("adult", home=home))
    table = adult.raw.frame.loc[adult.frame.index].astype(dict.fromkeys(MOVED, np.float64))
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, n, FILE):
        path, writer = folder / f"{first // FILE:05d}.parquet", None
        for start in range(first, min(first + FILE, n), GROUP):
            generator = np.random.default_rng([seed, start // GROUP])
            rows = draw_rows(table, min(GROUP, n - start), generator)
            group = pa.Table.from_pandas(rows, preserve_index=False)
            writer = writer or pq.ParquetWriter(path, group.schema, **PLAIN)
            writer.write_table(group)
        if writer is not None:
            writer.close()
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


def list_methods(rows: int, budro: int, sensei: bool) -> dict[str, Any]:
    """Return the methods of the study, with so many rounds of BuDRO and an epoch of SenSeI."""
    methods = dict(STUDY["methods"])
    if budro:
        methods["budro"] = {"solver": "exact", "sources": 5000, "n_estimators": budro}
    if sensei:
        steps = max(1, round(rows * PARTS["train"] / BATCH))
        methods["sensei"] = {"steps": steps, "batch_size": BATCH}
    return methods


def make_exact(methods: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return the methods of so many rows without what depends on the partitions."""
    exact = {
        "budro": {"sources": None},
        "project": {"max_bin": rows},
        "sensei": {"dtype": "float64"},
    }
    return {name: {**setting, **exact.get(name, {})} for name, setting in methods.items()}


def make_project(home: Path, rows: Path, memory: str, methods: Mapping[str, Any]) -> None:
    """Write the dataset and the study of rows in a folder."""
    adult = read_dataset(find_yaml("dataset", "adult", find_home()))
    shape = adult.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for key in ("notes", "rows", "description"):
        shape.pop(key, None)
    shape |= {
        "dataset": "scale",
        "source": {"path": str(rows), "format": "parquet"},
        "memory": memory,
        "split": {"kind": "column", "column": "part", **{part: part for part in PARTS}},
    }
    for kind, content in (("datasets", shape), ("studies", {**STUDY, "methods": methods})):
        folder = home / "conf" / kind
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(content, sort_keys=False)
        (folder / "scale.yaml").write_text(text, encoding="utf-8")


def run(home: Path, workers: int | None, limit: str) -> Measured:
    """Run the study on so many workers, or in this process, and measure it."""
    cluster = "inline"
    if workers is not None:
        kind = {"kind": "local", "workers": workers, "threads": 1, "memory": limit}
        path = home / f"{workers}.yaml"
        path.write_text(yaml.safe_dump(kind), encoding="utf-8")
        cluster = str(path)
    seconds: dict[str, float] = {}
    fits: dict[str, float] = {}

    def timed(name: str, stage: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return stage(*arguments)
        finally:
            spent = time.perf_counter() - start
            seconds[name] = seconds.get(name, 0.0) + spent
            if name == "fit":
                fits[arguments[1].method] = spent

    # Of what this process held before.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    study = start_study(RunOptions(study="scale", conf=home, cluster=cluster))
    with open_cluster(study.cluster) as client:
        stages = {name: partial(timed, name, stage) for name, stage in STAGES.items()}
        with ThreadRunner(RunContext(study.store, home, client), stages) as runner:
            facts = run_stages(study, runner)
        worst = max(client.run(_find_peak).values()) if client is not None else float("nan")
    seconds["total"] = time.perf_counter() - start
    points = pd.read_parquet(Path(facts["folder"]) / "points.parquet")
    if facts["skipped"]:
        raise SystemExit(f"Left out: {facts['skipped']}")
    return Measured(seconds, fits, worst, _find_peak(), points)


def find_differences(lazy: pd.DataFrame, inside: pd.DataFrame) -> dict[str, float]:
    """Return the largest difference of each method's measures."""
    both = lazy.merge(inside, on=KEYS, suffixes=("", "_inside"), validate="one_to_one")
    unknown = both["value"].isna() != both["value_inside"].isna()
    if not len(both) == len(lazy) == len(inside) or unknown.any():
        raise SystemExit("The two runs have different measures.")
    gap = (both["value"] - both["value_inside"]).abs()
    return {str(name): float(worst) for name, worst in gap.groupby(both["method"]).max().items()}


def compare_frontier(points: pd.DataFrame, inside: pd.DataFrame) -> pd.DataFrame:
    """Return the frontier's measures on test of both, and whether the first is in the interval."""
    both = points.merge(inside, on=KEYS, suffixes=("", "_inside"), validate="one_to_one")
    both = both[(both["part"] == "test") & (both["measure"].map(FRONTIER) == both["group"])]
    within = both["value"].between(both["low_inside"], both["high_inside"])
    columns = ["method", "measure", "value", "value_inside", "low_inside", "high_inside"]
    return both[columns].assign(within=within)


def _find_peak() -> float:
    """Return the resident peak of this process, in MiB; Linux alone tells it."""
    # What getrusage tells is at least the peak of the process that started this one.
    with suppress(OSError):
        (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        return int(peak) / 1024
    return float("nan")


def measure(
    folder: Path,
    rows: int,
    workers: int | None,
    limit: str,
    methods: Mapping[str, Any],
    seed: int = 0,
) -> Measured:
    """Return a run on the first so many rows of a seed, or what is left of it.

    Without workers it is one in memory.
    """
    # Results of other code are none of this one's.
    told = json.dumps([STUDY, methods, limit, hash_code()])
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    place = folder / f"run-{rows}-{seed}-{workers or 'memory'}-{digest}"
    if place.with_suffix(".json").is_file():
        return Measured.read(place)
    source = folder / f"rows-{rows}-{seed}"
    start = time.perf_counter()
    size = write_rows(source, rows, seed)
    print(f"{rows:,} rows, {size / 2**20:,.0f} MiB, written in {time.perf_counter() - start:.0f} s")
    with tempfile.TemporaryDirectory(prefix="scale-", dir=folder) as home:
        make_project(Path(home), source, "dask" if workers else "auto", methods)
        done = run(Path(home), workers, limit)
    done.write(place)
    return done


def check(
    folder: Path, whole: Measured, rows: int, workers: int, limit: str, methods: Mapping[str, Any]
) -> dict[str, Any]:
    """Compare partitions with memory on the first rows, and frontiers with the one in memory.

    Returns the largest differences by method, ``exact`` ones of `make_exact`, and the rows of
    `compare_frontier` by run.
    """
    sample = min(rows, SAMPLE)
    exact = make_exact(methods, sample)
    pair = [measure(folder, sample, count, limit, exact).points for count in (workers, None)]
    same = find_differences(*pair)
    show_differences("nothing approximate", same)
    if max(same.values()) > TOLERANCE:
        raise SystemExit(f"Measures differ by more than {TOLERANCE} from those in memory.")
    inside = measure(folder, sample, None, limit, methods)
    lazy = whole if sample == rows else measure(folder, sample, workers, limit, methods)
    gaps = find_differences(lazy.points, inside.points)
    show_differences(f"{sample:,} rows, in memory {inside.total:.0f} s", gaps)
    others = measure(folder, sample, None, limit, methods, seed=1)
    runs = {"in partitions": lazy, "other rows in memory": others}
    if sample < rows:
        runs[f"all {rows:,} rows"] = whole
    compared = pd.concat(
        [compare_frontier(run.points, inside.points).assign(run=name) for name, run in runs.items()]
    )
    print(compared.round(4).to_string(index=False))
    for name, within in compared.groupby("run", sort=False)["within"]:
        print(f"{name}: {within.sum()} of {len(within)} within the intervals in memory")
    return {
        "sample": sample,
        "exact": same,
        "differences": gaps,
        "frontier": compared.to_dict("records"),
    }


def show_differences(title: str, gaps: Mapping[str, float]) -> None:
    """Print the largest difference of each method's measures."""
    print(f"{title}; largest differences:", ", ".join(f"{n} {gap:.1g}" for n, gap in gaps.items()))


def hash_code() -> str:
    """Return the sha256 of all code of the library and of this file."""
    files = [*sorted(Path(fairfrontier.__file__).parent.rglob("*.py")), Path(__file__)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def make_records(rows: int, runs: Mapping[int, Measured]) -> list[Record]:
    """Return the records of runs by their number of workers, of which the first is the peer."""
    first, peer = next(iter(runs.items()))
    return [
        Record(
            case=f"study in partitions, {count} worker" + "s" * (count > 1),
            n=rows,
            ours_seconds=done.total,
            peer=f"{first} worker(s)",
            peer_seconds=peer.total,
            ratio=peer.total / done.total,
            ours_peak_mib=done.worker_mib,
            peer_peak_mib=peer.worker_mib,
            backend="numpy",
        )
        for count, done in runs.items()
    ]


def keep(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write the kept runs, in which these take the place of those of as many rows and workers."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    kept = {(line["rows"], line["workers"]): line for line in (*before, *lines)}
    text = json.dumps([kept[key] for key in sorted(kept)], indent=1) + "\n"
    with filling(path.parent, what="the run", mend="Mend its permissions.") as work:
        (work / path.name).write_text(text, encoding="utf-8")


def main() -> None:
    """Run the benchmark, print its table and write data/results/benchmarks/scale.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--memory", default="3GiB")
    parser.add_argument("--budro", type=int, default=0)
    parser.add_argument("--sensei", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as scratch:
        folder = (chosen.folder or Path(scratch)).resolve()
        methods = list_methods(chosen.rows, chosen.budro, chosen.sensei)
        runs, found = {}, {}
        for count in chosen.workers:
            done = measure(folder, chosen.rows, count, chosen.memory, methods)
            stages, fits = (
                ", ".join(f"{name} {value:.0f} s" for name, value in spent.items())
                for spent in (done.seconds, done.fits)
            )
            print(
                f"{count} worker(s): {stages}; of the fits {fits}; worst worker "
                f"{done.worker_mib:,.0f} MiB of {chosen.memory}, "
                f"this process {done.own_mib:,.0f} MiB"
            )
            runs[count] = done
        if chosen.check:
            count, done = next(iter(runs.items()))
            found[count] = check(folder, done, chosen.rows, count, chosen.memory, methods)
    if chosen.record:
        asked = {"rows": chosen.rows, "memory": chosen.memory, "methods": [*methods]}
        lines = [
            {**asked, "workers": count, **done.describe()}
            | ({"check": found[count]} if count in found else {})
            for count, done in runs.items()
        ]
        keep(find_home() / "data" / "reference" / "runs" / "scale.json", lines)
    records = make_records(chosen.rows, runs)
    show_records("scale", records)
    print(write_records("scale", records))


if __name__ == "__main__":
    main()
