"""BuDRO's transport against dense matrices, its cost against n, and a whole fit on Adult.

Run ``python -m benchmarks.budro [--rows N ...] [--sizes N ...] [--rounds T] [--threads K] [--fit T]
[--backend numpy|cupy]``. Three tables, each left out where its numbers are 0 or absent:

- ``--rows``: T rounds by our solvers and by peers that keep the n × n matrix C, vectorised, in
  float32, with the same rows, losses, batches, threads and starting prices. The peer of ``sgd`` is
  Algorithm 2 with the paper's constants for Adult; that of ``exact`` is the root of Algorithm 7,
  where our search for η asks for full dense passes. Objectives must agree to 1e-4, or the run
  stops.
- ``--sizes``: a round's cost against n, without a peer where C would not fit in ``DENSE_ENTRIES``:
  the first round, which makes the bounds, and the mean of the later ones.
- ``--fit``: BuDRO with the published preset for T rounds on Adult, split 0, by both solvers, beside
  the same fit at budget 0, which moves nothing and only boosts. Left out without XGBoost.

Timed: everything from the embedded rows to the weights of the last round. The rows are shaped like
Adult (39 columns: five numbers, four one-hot blocks), the losses those of margins that grow as in
the rounds of a fit after its first third. Memory is tracemalloc's peak, of a fit the resident one.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import resource
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from benchmarks.record import (
    MIB,
    Record,
    Timed,
    compare,
    measure_call,
    show_records,
    write_records,
)
from tasks.runtime.arrays import Backend, as_backend, to_numpy
from tasks.runtime.thread import limited_threads
from tasks.train.individual.budro.dual import Piece, minimise_dual
from tasks.train.individual.budro.geometry import build_geometry
from tasks.train.individual.budro.transport import Transport, solve_exact, solve_sgd

BUDGET = 0.4
STEPS, BATCH = 100, 200
DUAL_START, MOMENTUM, DUAL_RATE = 0.1, 0.9, 1e-4
LEVELS = (7, 7, 14, 6)
# Rounds of the fit that the losses are taken from the middle of, and its learning rate.
FIT_ROUNDS, LEARNING_RATE = 180, 0.005
DENSE_ENTRIES = 37_000**2
NO_PEER = "none: C does not fit"
STILL = "the fit at budget 0"


def make_rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return embedded rows (n, 39), labels (n,) and full-grown margins (n,), shaped like Adult."""
    generator = np.random.default_rng(seed)
    age = np.clip(np.round(generator.gamma(8, 5, size=n)), 17, 90)
    education = np.round(generator.normal(10, 2.5, size=n))
    gain = np.where(generator.random(n) < 0.08, np.round(generator.exponential(12, n)), 0)
    loss = np.where(generator.random(n) < 0.05, np.round(generator.normal(19, 3, n)), 0)
    hours = np.where(generator.random(n) < 0.5, 40, np.round(generator.normal(40, 14, n)))
    numbers = np.column_stack([age, education, gain, loss, hours])
    numbers = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    blocks = [numbers]
    for levels in LEVELS:
        share = generator.dirichlet(np.full(levels, 0.6))
        blocks.append(np.eye(levels)[generator.choice(levels, size=n, p=share)])
    z = np.hstack(blocks)
    margin = z @ generator.normal(scale=0.5, size=z.shape[1])
    margin -= np.quantile(margin, 0.6)
    label = (generator.random(n) < 1 / (1 + np.exp(-2 * margin + 1))).astype(np.int64)
    return z, label, margin


def grow_losses(z: np.ndarray, margin: np.ndarray, rounds: int) -> list[np.ndarray]:
    """Return the losses (n, 2) of rounds of a fit after its first third.

    A round adds to the margins what is due, and what a tree of 64 random leaves adds.
    """
    generator = np.random.default_rng(1)
    grown, losses = margin / 3, []
    for _ in range(rounds):
        axes = generator.choice(z.shape[1], size=6, replace=False)
        above = z[:, axes] > z[generator.integers(len(z), size=6), axes]
        leaf = above @ (1 << np.arange(6))
        grown = grown + margin / FIT_ROUNDS + LEARNING_RATE * generator.normal(size=64)[leaf]
        losses.append(np.stack([np.logaddexp(0, grown), np.logaddexp(0, -grown)], axis=1))
    return losses


class Rounds:
    """The same rounds for everyone.

    Attributes
    ----------
    z : array of shape (n, 39)
    label : int64 ndarray of shape (n,)
    losses : list of arrays of shape (n, 2)
    samples : list of int64 ndarrays of shape (STEPS, BATCH)
    """

    def __init__(self, n: int, rounds: int, backend: Backend) -> None:
        z, self.label, margin = make_rows(n)
        generator = np.random.default_rng(0)
        self.samples = [generator.integers(n, size=(STEPS, BATCH)) for _ in range(rounds)]
        self.z = as_backend(z, backend, work=float("inf"))
        self.losses = [
            as_backend(each, backend, work=float("inf")) for each in grow_losses(z, margin, rounds)
        ]

    def run(self, solver: str, clock: list[float] | None = None) -> list[float]:
        """Return the objective of every round by our solver; note when each one ends."""
        geometry = build_geometry(self.z, self.label)
        found: Transport | None = None
        objectives = []
        for loss, sample in zip(self.losses, self.samples, strict=True):
            if solver == "exact":
                found = solve_exact(geometry, loss, BUDGET, start=found)
            else:
                found = solve_sgd(
                    geometry,
                    loss,
                    BUDGET,
                    sample=sample,
                    eta=DUAL_START,
                    momentum=MOMENTUM,
                    learning_rate=DUAL_RATE,
                    start=found,
                )
            to_numpy(found.weight)
            objectives.append(found.objective)
            if clock is not None:
                clock.append(time.perf_counter())
        return objectives

    def run_dense(self, solver: str) -> list[float]:
        """Return the objective of every round on dense matrices."""
        dense = Dense(self.z, self.label)
        if solver == "exact":
            return dense.run_exact(self.losses)
        return dense.run_sgd(self.losses, self.samples)


class Dense:
    """The paper's algorithms with all of C in memory."""

    def __init__(self, z: Any, label: np.ndarray) -> None:
        xp = array_namespace(z)
        self.xp, self.n, self.codes = xp, z.shape[0], xp.asarray(label)
        points = xp.astype(z, xp.float32)
        square = xp.sum(points * points, axis=1)
        # Columns are rows here (C is symmetric), so that a batch of them is contiguous.
        self.cost = points @ (-2.0 * points.T)
        self.cost += square[:, None]
        self.cost += square[None, :]

    def move(self, gain: Any, rows: Any, eta: float) -> tuple[Any, Any]:
        """Return what columns reach and pay at η."""
        xp = self.xp
        paid = self.cost[rows] if isinstance(rows, slice) else xp.take(self.cost, rows, axis=0)
        codes = self.codes[rows]
        value = xp.take(gain, codes, axis=0) - xp.asarray(eta, dtype=xp.float32) * paid
        best = xp.argmax(value, axis=1)
        return gain[codes, best], paid[xp.arange(paid.shape[0]), best]

    def move_all(self, gain: Any, eta: float) -> Piece:
        """Return the piece of all columns at η."""
        moved = [
            self.move(gain, slice(first, min(first + BATCH, self.n)), eta)
            for first in range(0, self.n, BATCH)
        ]
        reached, paid = (
            float(self.xp.mean(self.xp.astype(self.xp.concat(each), self.xp.float64)))
            for each in zip(*moved, strict=True)
        )
        return Piece(eta, reached, paid, BUDGET, None)

    def explore(self, gain: Any, eta: float, _held: object) -> Piece:
        """Return the piece at η, whatever was held before."""
        return self.move_all(gain, eta)

    def run_sgd(self, losses: Sequence[Any], samples: Sequence[np.ndarray]) -> list[float]:
        """Run Algorithm 2 in every round."""
        xp, objectives = self.xp, []
        for loss, sample in zip(losses, samples, strict=True):
            gain = xp.astype(loss, xp.float32).T
            eta, velocity = DUAL_START, 0.0
            for batch in sample:
                _, paid = self.move(gain, xp.asarray(batch), eta)
                velocity = MOMENTUM * velocity + BUDGET - float(xp.mean(paid))
                eta = max(0.0, eta - DUAL_RATE * velocity)
            objectives.append(self.move_all(gain, eta).gain)
        return objectives

    def run_exact(self, losses: Sequence[Any]) -> list[float]:
        """Find the root of Algorithm 7 in every round, from where the last one ended."""
        xp, objectives, eta = self.xp, [], None
        for loss in losses:
            gain = xp.astype(loss, xp.float32).T
            own = float(xp.mean(xp.astype(gain[self.codes, xp.arange(self.n)], xp.float64)))
            found = minimise_dual(
                functools.partial(self.explore, gain),
                self.move_all(gain, 0.0),
                Piece(0.0, own, 0.0, BUDGET, None),
                start=None if eta is None else (eta, None),
                floor=own,
            )
            eta = found.eta
            objectives.append(found.objective)
        return objectives


def compare_solvers(n: int, rounds: int, backend: Backend) -> list[Record]:
    """Return the records of both solvers against their dense peers."""
    given, records = Rounds(n, rounds, backend), []
    for solver, peer in (("sgd", "dense Algorithm 2"), ("exact", "dense Algorithm 7")):
        ours = measure_call(functools.partial(given.run, solver), repeat=1)
        theirs = measure_call(functools.partial(given.run_dense, solver), repeat=1)
        np.testing.assert_allclose(ours.result, theirs.result, rtol=1e-4)
        records.append(compare(f"{solver}, {rounds} rounds", n, ours, peer, theirs, backend))
    return records


def measure_sizes(n: int, rounds: int, backend: Backend) -> list[Record]:
    """Return what the first round and a later one cost, by both solvers."""
    given, records = Rounds(n, rounds, backend), []
    for solver in ("sgd", "exact"):
        clock: list[float] = []

        start = time.perf_counter()
        ours = measure_peak(functools.partial(given.run, solver, clock))
        peer, theirs = NO_PEER, Timed(float("nan"), float("nan"), None)
        if n * n <= DENSE_ENTRIES:
            dense = measure_peak(functools.partial(given.run_dense, solver))
            peer = "dense matrices, mean round"
            theirs = Timed(dense.seconds / rounds, dense.peak_mib, None)
        for case, seconds in (
            ("first round", clock[0] - start),
            ("later round", (clock[-1] - clock[0]) / (rounds - 1)),
        ):
            one = Timed(seconds, ours.peak_mib, None)
            records.append(compare(f"{solver}, {case}", n, one, peer, theirs, backend))
    return records


def measure_peak(call: Callable[[], object]) -> Timed[None]:
    """Time one call while its memory is traced, which costs a few large arrays little."""
    tracemalloc.start()
    try:
        start = time.perf_counter()
        call()
        return Timed(time.perf_counter() - start, tracemalloc.get_traced_memory()[1] / MIB, None)
    finally:
        tracemalloc.stop()


def read_peak() -> float:
    """Return the largest resident memory of the process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_fit(rounds: int, threads: int) -> list[Record]:
    """Return whole fits on Adult with the published preset against such fits without transport."""
    from tasks.evaluate.method_file import MethodFile
    from tasks.metric import learn
    from tasks.prepare import load
    from tasks.runtime.home import find_home
    from tasks.train import create

    split = load("adult", seed=0)
    metric = learn("subspace", split, regress=["sex"])
    preset = MethodFile.read("budro", find_home()).preset("published", ["adult"], "budro")
    preset |= {"n_estimators": rounds, "n_jobs": threads}

    def fit(**settings: Any) -> Timed[None]:
        model = create("budro", **(preset | settings))
        start = time.perf_counter()
        model.fit(split.train.X, split.train.y, metric=metric)
        return Timed(time.perf_counter() - start, read_peak(), None)

    still = fit(solver="exact", budget=0.0)
    return [
        compare(f"{solver}, {rounds} rounds", len(split.train.y), fit(solver=solver), STILL, still)
        for solver in ("sgd", "exact")
    ]


def main() -> None:
    """Run the benchmark, print its tables and write data/results/benchmarks/budro.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[12_000, 36_000])
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 30_000, 100_000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--fit", type=int, default=FIT_ROUNDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy")
    chosen = parser.parse_args()
    if chosen.rounds < 2:
        parser.error("--rounds is 2 or more: a first round and a later one")
    written: list[Record] = []

    def show(title: str, records: list[Record]) -> None:
        if records:
            show_records(f"{title}, {chosen.threads} thread(s)", records)
        written.extend(records)

    with limited_threads(chosen.threads):
        given = chosen.rounds, chosen.backend
        sizes = [each for n in sorted(chosen.sizes) for each in measure_sizes(n, *given)]
        show("A round of BuDRO's transport against n", sizes)
        solvers = [each for n in chosen.rows for each in compare_solvers(n, *given)]
        show("BuDRO's transport against dense matrices", solvers)
        if chosen.fit and importlib.util.find_spec("xgboost"):
            show("BuDRO on Adult", measure_fit(chosen.fit, chosen.threads))
    print(write_records("budro", written))


if __name__ == "__main__":
    main()
