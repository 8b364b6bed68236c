"""What a device is worth: whole fits on CuPy beside the same on NumPy.

Run ``python -m benchmarks.device [--threads K] [--repeat K]`` on a machine with CuPy and a device;
elsewhere it says so and measures nothing. Fits are those of methods that compute on a device, on
small and on large tables shaped like Adult (`benchmarks.budro.make_rows`), each after one that
warms it. They show from which size ``backend: auto`` is to take the device
(`fairfrontier.runtime.arrays.WORK_THAT_PAYS`). Nets are trained one at a time here; a study trains
its settings and seeds together, which favours the device (`benchmarks.sensei`).
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
from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.runtime.arrays import device_present
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.train.registry import create


@dataclass(frozen=True)
class Case:
    """A fit: method, rows, and what it is fitted with."""

    method: str
    n: int
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The method and what makes the fit long."""
        shown = ", ".join(f"{key} {value}" for key, value in self.parameters.items())
        return f"{self.method}, {shown}"

    def fit(self, backend: str) -> None:
        """Fit on a backend."""
        z, label, _ = make_rows(self.n)
        own = np.eye(z.shape[1])
        # The first column may be moved freely.
        metric = FairMetric(np.diag(1.0 - own[0]), own[:, 1:], own[:1])
        given = {"groups": (z[:, :1] > 0).astype(np.int64), "metric": metric}
        model = create(self.method, backend=backend, **self.parameters)
        model.fit(z, label, **{key: given[key] for key in model.fit_needs})


def list_cases() -> Iterator[Case]:
    """Yield what is measured."""
    if importlib.util.find_spec("xgboost"):
        for n in (500, 2_000, 8_000, 20_000):
            yield Case("budro", n, {"n_estimators": 12, "n_jobs": 1})
    for n, steps in ((1_000, 10), (1_000, 100), (30_000, 1_000)):
        yield Case("nn", n, {"hidden": 50, "steps": steps})
        yield Case("sensei", n, {"hidden": 50, "steps": steps // 5, "full_rate": 0.01})
    for n, iterations in ((1_000, 100), (30_000, 100), (30_000, 1_000)):
        yield Case("noisy_naive", n, {"iterations": iterations})


def measure(case: Case, repeat: int) -> Record:
    """Return the record of a case."""
    seconds = {}
    for backend in ("numpy", "cupy"):
        case.fit(backend)
        spent = []
        for _ in range(repeat):
            start = time.perf_counter()
            case.fit(backend)
            spent.append(time.perf_counter() - start)
        seconds[backend] = Timed(min(spent), float("nan"), None)
    return compare(case.name, case.n, seconds["cupy"], "NumPy", seconds["numpy"], "cupy")


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
            records.append(measure(case, chosen.repeat))
            print(f"{case.name}, {case.n:,} rows", flush=True)
    show_records(f"Fits, {chosen.threads} thread(s)", records)
    print(write_records("device", records))


if __name__ == "__main__":
    main()
