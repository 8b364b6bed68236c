"""BuDRO's transport against a dense Algorithm 2, round by round as a fit runs it.

Run ``python -m benchmarks.transport [--rows N ...] [--rounds T] [--backend numpy|cupy]``. Both
sides get the same embedded rows (39 columns, like Adult: five numbers, four one-hot blocks),
the same losses of growing margins and the same batches, in the same process, with the same number
of BLAS threads and the same dtype (float32). Both take the stochastic steps of Algorithm 2 with
the paper's constants for Adult, so they reach the same η; the objectives must agree to 1e-4, or the
run stops. A third line times our exact solver, which meets the budget, on the same rounds.

Timed: everything from the embedded rows to the weights of the last round. The peer builds the n × n
matrix C once by one matrix product and then works on its columns, fully vectorised: it is the
paper's algorithm as one would write it in NumPy where memory is no concern. Ours builds no n × n
array.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from benchmarks.record import Record, compare, measure_call, show_records, write_records
from tasks.runtime.arrays import as_backend, to_numpy
from tasks.runtime.thread import limited_threads
from tasks.train.individual.budro.geometry import build_geometry
from tasks.train.individual.budro.transport import solve_exact, solve_sgd

BUDGET = 0.4
STEPS, BATCH = 100, 200
DUAL_START, MOMENTUM, DUAL_RATE = 0.1, 0.9, 1e-4
LEVELS = (7, 7, 14, 6)


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


def round_losses(margin: np.ndarray, rounds: int) -> list[np.ndarray]:
    """Return the losses (n, 2) of margins that grow to their full size over the rounds."""
    return [
        np.stack([np.logaddexp(0, share * margin), np.logaddexp(0, -share * margin)], axis=1)
        for share in np.linspace(0.2, 1.0, rounds)
    ]


def run_ours(
    z: Any, label: np.ndarray, losses: Sequence[Any], samples: Sequence[np.ndarray], solver: str
) -> list[float]:
    """Return the objective of every round by our solver."""
    geometry = build_geometry(z, label)
    found, objectives = None, []
    for loss, sample in zip(losses, samples, strict=True):
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
    return objectives


def run_dense(
    z: Any, label: np.ndarray, losses: Sequence[Any], samples: Sequence[np.ndarray]
) -> list[float]:
    """Return the objective of every round by Algorithm 2 on dense matrices."""
    xp = array_namespace(z)
    points = xp.astype(z, xp.float32)
    square = xp.sum(points * points, axis=1)
    # Columns are rows here (C is symmetric), so that a batch of them is contiguous.
    cost = points @ (-2.0 * points.T)
    cost += square[:, None]
    cost += square[None, :]
    n, objectives = z.shape[0], []
    codes = xp.asarray(label)
    for loss, sample in zip(losses, samples, strict=True):
        gain = xp.astype(loss, xp.float32).T
        eta, velocity = DUAL_START, 0.0
        for batch in sample:
            rows = xp.asarray(batch)
            paid = xp.take(cost, rows, axis=0)
            value = (
                xp.take(gain, xp.take(codes, rows), axis=0)
                - xp.asarray(eta, dtype=xp.float32) * paid
            )
            best = xp.argmax(value, axis=1)
            velocity = MOMENTUM * velocity + BUDGET - float(xp.mean(paid[xp.arange(BATCH), best]))
            eta = max(0.0, eta - DUAL_RATE * velocity)
        best = xp.concat(
            [
                xp.argmax(
                    xp.take(gain, codes[first : first + BATCH], axis=0)
                    - xp.asarray(eta, dtype=xp.float32) * cost[first : first + BATCH, :],
                    axis=1,
                )
                for first in range(0, n, BATCH)
            ]
        )
        objectives.append(float(xp.mean(gain[codes, best])))
    return objectives


def main() -> None:
    """Run the benchmark, print its table and write data/results/benchmarks/transport.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 6_000, 12_000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy")
    chosen = parser.parse_args()
    records: list[Record] = []
    with limited_threads(chosen.threads):
        for n in chosen.rows:
            records += measure(n, chosen.rounds, chosen.backend)
    show_records(f"BuDRO's transport, {chosen.rounds} rounds, {chosen.threads} thread(s)", records)
    print(write_records("transport", records))


def measure(n: int, rounds: int, backend: str) -> list[Record]:
    """Return the records for one number of rows."""
    z, label, margin = make_rows(n)
    generator = np.random.default_rng(0)
    samples = [generator.integers(n, size=(STEPS, BATCH)) for _ in range(rounds)]
    rows = as_backend(z, backend, work=float("inf"))
    losses = [as_backend(each, backend, work=float("inf")) for each in round_losses(margin, rounds)]
    sgd = measure_call(lambda: run_ours(rows, label, losses, samples, "sgd"), repeat=2)
    exact = measure_call(lambda: run_ours(rows, label, losses, samples, "exact"), repeat=2)
    dense = measure_call(lambda: run_dense(rows, label, losses, samples), repeat=2)
    np.testing.assert_allclose(sgd.result, dense.result, rtol=1e-4)
    peer = "dense Algorithm 2"
    return [
        compare("stochastic steps, same η", n, sgd, peer, dense, backend),
        compare("exact, budget met", n, exact, peer, dense, backend),
    ]


if __name__ == "__main__":
    main()
