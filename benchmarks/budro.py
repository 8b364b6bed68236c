"""BuDRO's transport against dense matrices, its cost against n, and fits on Adult.

Run ``python -m benchmarks.budro [--rows N ...] [--dense N] [--rounds T] [--fit T]
[--threads K] [--backend numpy|cupy]``; about a minute of one core as it stands. A table is printed
as soon as it is there:

- ``--fit``: BuDRO with the published preset for T rounds on Adult, split 0, by both solvers, beside
  the same fit at budget 0, which moves nothing and only boosts. The published fit has 180 rounds;
  0 leaves it out, and so does a machine without XGBoost.
- ``--rows``: T rounds by our solvers and by peers that keep the n × n matrix C: the first round,
  which makes bounds here and C there, the mean of the later ones, and all together. Above
  ``--dense`` rows we run alone: C has 4 n² bytes. Peers compute in float32 on the same rows,
  losses, batches, threads and starting prices. That of ``sgd`` is Algorithm 2 with the paper's
  constants for Adult; that of ``exact`` is the root of Algorithm 7, where our search for η asks for
  full dense passes. Each is there twice: *as written*, R − ηC for batches of columns, and *tuned*,
  with columns sorted by label and blocks that stay in the cache. They share one C; each counts all
  of its making. Objectives must agree, to 1e-4 and for ``exact`` to its tolerance, or all stops.

The rows are shaped like Adult (39 columns: five numbers, four one-hot blocks), the losses those of
margins that grow as in the rounds of a fit after its first third. Timed: everything from the
embedded rows to the weights of the last round. Memory is tracemalloc's peak over two rounds more,
which are not timed; of a fit it is the largest resident memory of the process so far.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import resource
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from benchmarks.record import MIB, Record, Result, Timed, compare, show_records, write_records
from fairfrontier.models.individual.budro.geometry import build_geometry
from fairfrontier.models.individual.budro.search import Minimum, Piece, minimise_dual
from fairfrontier.models.individual.budro.transport import Transport, solve_exact
from fairfrontier.runtime.arrays import Backend, as_backend, to_numpy
from fairfrontier.runtime.thread import limited_threads
from papers.rival.budro_descent import solve_sgd

BUDGET = 0.4
STEPS, BATCH = 100, 200
DUAL_START, MOMENTUM, DUAL_RATE = 0.1, 0.9, 1e-4
LEVELS = (7, 7, 14, 6)
# Rounds of the fit that the losses are taken from the middle of, and its learning rate.
FIT_ROUNDS, LEARNING_RATE = 180, 0.005
NO_PEER = "none, for so many rows"
STILL = "the fit at budget 0"
AGREEMENT = {"sgd": 1e-4, "exact": 1e-3}
# Rounds that are played once more, traced: tracing slows what is timed.
TRACED = 2


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

    def run(self, solver: str, rounds: int | None = None) -> Run:
        """Play all rounds, or some, by our solver."""
        clock = [time.perf_counter()]
        geometry = build_geometry(self.z, self.label)
        found: Transport | None = None
        objectives = []
        for loss, sample in itertools.islice(zip(self.losses, self.samples, strict=True), rounds):
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
            clock.append(time.perf_counter())
        return Run(objectives, list(np.diff(clock)))


@dataclass(frozen=True)
class Run:
    """Rounds that were played.

    Attributes
    ----------
    objectives, seconds : list of float
        ⟨R, Π⟩ of each round, and what it took.
    """

    objectives: list[float]
    seconds: list[float]

    def parts(self) -> dict[str, float]:
        """Return the seconds of the first round, of a later one in the mean, and of all."""
        return {
            "first round": self.seconds[0],
            "later round": float(np.mean(self.seconds[1:])),
            f"{len(self.seconds)} rounds": float(np.sum(self.seconds)),
        }


class Dense:
    """The paper's algorithms with all of C in memory, as they are written."""

    name = "as written"

    def __init__(self, z: Any, label: np.ndarray) -> None:
        start = time.perf_counter()
        self.xp = xp = array_namespace(z)
        # Sorted by label, which only the tuned one makes use of.
        order = np.argsort(label, kind="stable")
        self.n, self.place, self.order = z.shape[0], np.argsort(order), xp.asarray(order)
        self.codes, self.host_codes = xp.asarray(label[order]), label[order]
        points = xp.astype(xp.take(z, self.order, axis=0), xp.float32)
        square = xp.sum(points * points, axis=1)
        # Columns are rows here (C is symmetric), so that a batch of them is contiguous.
        self.cost = points @ (-2.0 * points.T)
        self.cost += square[:, None]
        self.cost += square[None, :]
        float(self.cost[0, 0])
        self.making = time.perf_counter() - start

    def tune(self) -> Tuned:
        """Return the tuned peer with the same C."""
        tuned = Tuned.__new__(Tuned)
        tuned.__dict__.update(self.__dict__)
        return tuned

    def move(self, gain: Any, rows: np.ndarray, eta: float) -> tuple[Any, Any]:
        """Return what columns reach and pay at η; rows rise."""
        xp, found = self.xp, []
        for first in range(0, rows.size, BATCH):
            part = rows[first : first + BATCH]
            paid = self._take(part)
            codes = self.codes[xp.asarray(part)]
            value = xp.take(gain, codes, axis=0) - xp.asarray(eta, dtype=xp.float32) * paid
            best = xp.argmax(value, axis=1)
            found.append((gain[codes, best], paid[xp.arange(part.size), best]))
        reached, paid = (xp.concat(each) for each in zip(*found, strict=True))
        return reached, paid

    def _take(self, rows: np.ndarray) -> Any:
        if rows[-1] - rows[0] == rows.size - 1:
            return self.cost[int(rows[0]) : int(rows[-1]) + 1]
        return self.xp.take(self.cost, self.xp.asarray(rows), axis=0)

    def _order(self, loss: Any) -> Any:
        """Return losses of shape (n_labels, n) in the order of C."""
        xp = self.xp
        return xp.astype(xp.take(loss, self.order, axis=0), xp.float32).T + 0.0

    def explore(self, gain: Any, eta: float, _held: object) -> Piece:
        """Return the piece of all columns at η, whatever was held before."""
        xp = self.xp
        reached, paid = (
            float(xp.mean(xp.astype(each, xp.float64)))
            for each in self.move(gain, np.arange(self.n), eta)
        )
        return Piece(eta, reached, paid, BUDGET, None)

    def run(self, solver: str, losses: Sequence[Any], samples: Sequence[np.ndarray]) -> Run:
        """Play the rounds; the first one has made C."""
        objectives, seconds, eta = [], [], None
        for loss, sample in zip(losses, samples, strict=True):
            start = time.perf_counter()
            gain = self._order(loss)
            if solver == "sgd":
                objectives.append(self._descend(gain, np.sort(self.place[sample], axis=1)))
            else:
                found = self._find_root(gain, eta)
                eta = found.eta
                objectives.append(found.objective)
            seconds.append(time.perf_counter() - start)
        seconds[0] += self.making
        return Run(objectives, seconds)

    def _descend(self, gain: Any, sample: np.ndarray) -> float:
        """Run Algorithm 2."""
        eta, velocity = DUAL_START, 0.0
        for batch in sample:
            _, paid = self.move(gain, batch, eta)
            velocity = MOMENTUM * velocity + BUDGET - float(self.xp.mean(paid))
            eta = max(0.0, eta - DUAL_RATE * velocity)
        return self.explore(gain, eta, None).gain

    def _find_root(self, gain: Any, eta: float | None) -> Minimum:
        """Find the root of Algorithm 7 from where the last round ended."""
        xp = self.xp
        own = float(xp.mean(xp.astype(gain[self.codes, xp.arange(self.n)], xp.float64)))
        worst = xp.take(xp.argmax(gain, axis=1), self.codes)
        free = gain[self.codes, worst], self.cost[xp.arange(self.n), worst]
        most, far = (float(xp.mean(xp.astype(each, xp.float64))) for each in free)
        return minimise_dual(
            functools.partial(self.explore, gain),
            Piece(0.0, most, far, BUDGET, None),
            Piece(0.0, own, 0.0, BUDGET, None),
            start=None if eta is None else (eta, None),
            floor=own,
        )


class Tuned(Dense):
    """The same with R/η − C of one label at a time, in blocks that stay in the cache."""

    name = "tuned"

    def move(self, gain: Any, rows: np.ndarray, eta: float) -> tuple[Any, Any]:
        """Return what columns reach and pay at η; rows rise."""
        xp, found = self.xp, []
        width = 32 if isinstance(gain, np.ndarray) else BATCH
        cuts = np.searchsorted(self.host_codes[rows], np.arange(gain.shape[0] + 1))
        for label, (begin, end) in enumerate(itertools.pairwise(cuts)):
            scaled = gain[label, :] / eta
            for first in range(begin, end, width):
                part = rows[first : min(first + width, end)]
                paid = self._take(part)
                best = xp.argmax(scaled[None, :] - paid, axis=1)
                found.append((gain[label, :][best], paid[xp.arange(part.size), best]))
        reached, paid = (xp.concat(each) for each in zip(*found, strict=True))
        return reached, paid


def measure_rounds(
    n: int, rounds: int, backend: Backend, *, peers: bool = True
) -> dict[str, list[Record]]:
    """Return the records of both solvers against each peer, by its name, or of ours alone.

    Raises
    ------
    AssertionError
        When objectives differ.
    """
    given, tables = Rounds(n, rounds, backend), dict[str, list[Record]]()
    ours = {solver: given.run(solver) for solver in AGREEMENT}
    # Memory of a device is not traced.
    peaks = dict.fromkeys(AGREEMENT, float("nan"))
    if backend == "numpy":
        peaks = {each: trace(functools.partial(given.run, each, TRACED))[1] for each in AGREEMENT}
    if not peers:
        nothing = Timed(float("nan"), float("nan"), None)
        tables["alone"] = [
            compare(
                f"{solver}, {part}", n, Timed(spent, peaks[solver], None), NO_PEER, nothing, backend
            )
            for solver, run in ours.items()
            for part, spent in run.parts().items()
        ]
        return tables
    making = trace(functools.partial(Dense, given.z, given.label))[1]
    dense, some = Dense(given.z, given.label), given.losses[:TRACED]
    for peer in (dense, dense.tune()):
        records = tables["against dense matrices " + peer.name] = []
        for solver, run in ours.items():
            theirs = peer.run(solver, given.losses, given.samples)
            more = trace(functools.partial(peer.run, solver, some, given.samples[:TRACED]))[1]
            peak = max(making, dense.cost.nbytes / MIB + more)
            np.testing.assert_allclose(run.objectives, theirs.objectives, rtol=AGREEMENT[solver])
            for part, spent in run.parts().items():
                records.append(
                    compare(
                        f"{solver}, {part}",
                        n,
                        Timed(spent, peaks[solver], None),
                        f"dense {peer.name}",
                        Timed(theirs.parts()[part], peak, None),
                        backend,
                    )
                )
    return tables


def trace(call: Callable[[], Result]) -> tuple[Result, float]:
    """Return a call's result and its peak memory in MiB; tracing a few large arrays is cheap."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def read_peak() -> float:
    """Return the largest resident memory of the process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_fit(rounds: int, threads: int) -> list[Record]:
    """Return whole fits on Adult with the published preset against such fits without transport."""
    from fairfrontier import create, learn, load
    from fairfrontier.runtime.home import find_home
    from fairfrontier.study.config import MethodFile

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
    parser.add_argument("--rows", type=int, nargs="*", default=[6_000, 12_000, 32_000])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--dense", type=int, default=12_000)
    parser.add_argument("--fit", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy")
    chosen = parser.parse_args()
    if chosen.rounds < 2:
        parser.error("--rounds is 2 or more: a first round and a later one")
    written: list[Record] = []

    def show(title: str, records: list[Record]) -> None:
        show_records(f"{title}, {chosen.threads} thread(s)", records)
        written.extend(records)

    with limited_threads(chosen.threads):
        if chosen.fit and importlib.util.find_spec("xgboost"):
            show("BuDRO on Adult", measure_fit(chosen.fit, chosen.threads))
        elif chosen.fit:
            print("XGBoost is not here: fits on Adult are left out.", flush=True)
        for n in sorted(chosen.rows):
            tables = measure_rounds(n, chosen.rounds, chosen.backend, peers=n <= chosen.dense)
            for name, records in tables.items():
                show(f"BuDRO's transport {name}", records)
    print(write_records("budro", written))


if __name__ == "__main__":
    main()
