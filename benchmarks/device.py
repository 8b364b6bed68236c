"""What a device is worth: whole fits on CuPy beside the same on NumPy, and what ``auto`` chooses.

Run ``python -m benchmarks.device [--threads K] [--repeat K]`` on a machine with CuPy and a device;
elsewhere it says so and measures nothing. Fits are those of methods that compute on a device, on
small and on large tables shaped like Adult (`benchmarks.budro.make_rows`), each after one that
warms it. They show from which size ``backend: auto`` is to take the device
(`fairfrontier.runtime.arrays.WORK_THAT_PAYS`), and a second record of each fit says how ``auto``
fares beside the faster of the two. A study trains the settings and seeds of nets together, as the
cases of several models do.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.budro import make_rows
from benchmarks.record import Record, Timed, compare, show_records, write_records
from fairfrontier.models.registry import create
from fairfrontier.runtime.arrays import device_present
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.similarity.fair_metric import FairMetric


@dataclass(frozen=True)
class Case:
    """A fit: method, rows, what it is fitted with, and of how many models at once."""

    method: str
    n: int
    parameters: Mapping[str, Any]
    models: int = 1

    @property
    def name(self) -> str:
        """The method and what makes the fit long."""
        shown = ", ".join(f"{key} {value}" for key, value in self.parameters.items())
        together = f", {self.models} models" if self.models > 1 else ""
        return f"{self.method}, {shown}{together}"

    def fit(self, backend: str) -> None:
        """Fit on a backend."""
        z, label, _ = make_rows(self.n)
        own = np.eye(z.shape[1])
        # The first column may be moved freely.
        metric = FairMetric(np.diag(1.0 - own[0]), own[:, 1:], own[:1])
        given = {"sensitive_features": (z[:, :1] > 0).astype(np.int64), "metric": metric}
        models = [
            create(self.method, backend=backend, random_state=seed, **self.parameters)
            for seed in range(self.models)
        ]
        data = {"X": z, "y": label} | {key: given[key] for key in models[0].fit_needs}
        type(models[0]).fit_batch(models, [data] * self.models)


def list_cases() -> Iterator[Case]:
    """Yield what is measured."""
    if importlib.util.find_spec("xgboost"):
        for n in (500, 2_000, 8_000, 20_000):
            yield Case("budro", n, {"n_estimators": 12, "n_jobs": 1})
    for n, steps in ((1_000, 10), (1_000, 100), (30_000, 1_000)):
        yield Case("nn", n, {"hidden": 50, "steps": steps})
        yield Case("sensei", n, {"hidden": 50, "steps": steps // 5, "full_rate": 0.01})
    for batch_size in (4_000, 16_000):
        for method in ("nn", "sensei"):
            yield Case(method, 30_000, {"hidden": 50, "steps": 100, "batch_size": batch_size})
    for method in ("nn", "sensei"):
        yield Case(method, 30_000, {"hidden": 50, "steps": 100}, models=30)
    for n, iterations in ((1_000, 100), (30_000, 100), (30_000, 1_000)):
        yield Case("noisy_naive", n, {"iterations": iterations})


def measure(case: Case, repeat: int) -> list[Record]:
    """Return the records of a case: CuPy beside NumPy, and ``auto`` beside the faster of them."""
    timed = {}
    for backend in ("numpy", "cupy", "auto"):
        case.fit(backend)
        spent = []
        for _ in range(repeat):
            start = time.perf_counter()
            case.fit(backend)
            spent.append(time.perf_counter() - start)
        timed[backend] = Timed(min(spent), float("nan"), None)
    faster = min(timed["numpy"], timed["cupy"], key=lambda each: each.seconds)
    return [
        compare(case.name, case.n, timed["cupy"], "NumPy", timed["numpy"], "cupy"),
        compare(case.name, case.n, timed["auto"], "the faster of both", faster, "auto"),
    ]


def main() -> None:
    """Run the benchmark, print its table and write data/results/benchmarks/device.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1)
    chosen = parser.parse_args()
    if not device_present():
        print("CuPy or a device is missing here: nothing to measure.")
        return
    records: list[Record] = []
    with limited_threads(chosen.threads):
        for case in list_cases():
            records.extend(found := measure(case, chosen.repeat))
            told = ", ".join(f"{each.backend} {each.ours_seconds:.3f} s" for each in found)
            print(f"{case.name}, {case.n:,} rows: {told}", flush=True)
    show_records(f"Fits, {chosen.threads} thread(s)", records)
    print(write_records("device", records))


if __name__ == "__main__":
    main()
