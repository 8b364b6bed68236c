"""SenSeI's training step against inFairness, and a sweep at once against one by one.

Run ``python -m benchmarks.sensei [--peer PYTHON] [--rows N] [--models M] [--attack-steps T]
[--threads K] [--repeat K] [--backend numpy|cupy]``, where PYTHON belongs to an environment with
inFairness 0.2.3 and torch (2.13 here); without it only the sweep is measured.

One step is: attack a minibatch of 1,000 rows (41 features, a net of 100 hidden units, 2 classes)
in 100 steps of Adam, then the gradient of loss and penalty, then a step of Adam. Both sides get the
same net, rows and Σ, compute in float32 and use the same number of threads, and must find the same
attacked rows from the same start at a fixed λ (but for 1% of the entries, see `check_equal`), or
the benchmark fails.

inFairness attacks all features in all 100 steps; ours is measured on that very work, and on what
SenSeI was published with: 50 steps along the free directions, then 50 in all features, which the
peer has not. What remains of the ratio to a multiple is bounded by the products that both need:
they are timed alone. A batch of 30 models is given per model. The peer's memory is the rise of its
process's resident peak during the steps; ours is what NumPy allocates.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import Record, Timed, compare, measure_call, show_records, write_records
from fairfrontier.models.individual.attack import (
    AttackSetting,
    LogitDistance,
    ascend,
    attack,
    penalised_gradient,
)
from fairfrontier.models.neural.network import Adam, Network, blocks, draw_network, forward
from fairfrontier.runtime.arrays import array_namespace, as_backend, to_numpy
from fairfrontier.runtime.thread import limited_threads

PROGRAM = Path(__file__).with_name("peer") / "sensei.py"
FEATURES, HIDDEN, CLASSES, FREE = 41, 100, 2, 3
BUDGET, STRENGTH, DUAL, NOISE, SUBSPACE_RATE, FULL_RATE = 0.01, 5.0, 0.02, 0.1, 10.0, 1e-3


class Problem:
    """Nets, rows and metric of some models, on a backend.

    Parameters
    ----------
    models, rows : int
    backend : {"numpy", "cupy"}
    split : tuple of int
        Attack steps along the free directions and in all features.
    """

    def __init__(self, models: int, rows: int, backend: str, split: tuple[int, int]) -> None:
        generator = np.random.default_rng(0)

        def move(values: Any) -> Any:
            return as_backend(np.ascontiguousarray(values, dtype=np.float32), backend)

        sizes = (FEATURES, HIDDEN, CLASSES)
        drawn = [draw_network(sizes, generator) for _ in range(models)]
        self.network = Network.of([move(np.concatenate(each)) for each in zip(*drawn, strict=True)])
        directions = np.linalg.qr(generator.normal(size=(FEATURES, FREE)))[0].T
        sigma = np.eye(FEATURES) - directions.T @ directions
        self.y = generator.integers(CLASSES, size=(models, rows))
        self.x = move(generator.normal(size=(models, rows, FEATURES)))
        self.target = move(np.eye(CLASSES)[self.y])
        self.one = move(np.ones((models, 1, 1)))
        self.setting = AttackSetting(
            directions=move(np.stack([directions] * models)),
            sigma=move(np.stack([sigma] * models)),
            subspace_steps=split[0],
            full_steps=split[1],
            subspace_rate=SUBSPACE_RATE * self.one,
            discard_batch=False,
        )
        self.noise = move(generator.uniform(-NOISE, NOISE, size=(models, rows, FREE)))
        self.optimiser = Adam(self.network.arrays, 1e-4)

    def step(self) -> float:
        """Make one step of SenSeI's training and return the first model's loss."""
        base = forward(self.network, self.x).logits
        found = attack(
            self.network,
            self.x,
            LogitDistance(base, self.one),
            self.setting,
            noise=self.noise,
            dual=DUAL * self.one,
            full_rate=FULL_RATE * self.one,
        )
        gradient, loss, _ = penalised_gradient(
            self.network, self.x, found.x, self.target, None, STRENGTH * self.one
        )
        steps = self.optimiser.step(gradient.arrays)
        self.network = Network.of(
            [each - step for each, step in zip(self.network.arrays, steps, strict=True)]
        )
        # Reading a number waits for a device to be done.
        return float(loss[0])


def ask_peer(
    python: Path, problem: Problem, attack_steps: int, threads: int, repeat: int, device: str
) -> Timed[np.ndarray]:
    """Return the peer's best step of several, with the rows that its attack found."""
    (first, second), (bias, last) = problem.network.weight, problem.network.bias
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(
            source,
            x=to_numpy(problem.x)[0],
            y=problem.y[0],
            sigma=to_numpy(problem.setting.sigma)[0],
            weight_0=to_numpy(first)[0],
            weight_1=to_numpy(second)[0],
            bias_0=to_numpy(bias)[0],
            bias_1=to_numpy(last)[0],
            start=FULL_RATE,
            dual=DUAL,
            rate=FULL_RATE,
            strength=STRENGTH,
            budget=BUDGET,
            attack_steps=attack_steps,
            threads=threads,
            repeat=repeat,
            device=device,
        )
        subprocess.run([str(python), str(PROGRAM), str(source), str(target)], check=True)
        with np.load(target, allow_pickle=False) as found:
            return Timed(float(found["seconds"].min()), float(found["peak_mib"]), found["found"])


def find_ours(problem: Problem, attack_steps: int) -> np.ndarray:
    """Return the rows that our attack finds where the peer's starts, at its price."""
    base = forward(problem.network, problem.x).logits
    xp = array_namespace(base)
    found = ascend(
        problem.network,
        problem.x,
        # The peer's distance of logits is a sum over the classes, ours a mean.
        LogitDistance(base, CLASSES * problem.one),
        start=xp.zeros_like(problem.x) + FULL_RATE,
        moves=None,
        penalty=problem.setting.penalty(2.0 * DUAL * problem.one),
        steps=attack_steps,
        rate=FULL_RATE * problem.one,
    )
    return to_numpy(problem.x + found.coefficient)[0]


def check_equal(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Raise AssertionError unless both found the same rows, but for 1% of the entries.

    Adam's first steps follow the sign of the gradient, and in float32 the sign of a gradient near
    zero, or the side of a ReLU's kink, is a matter of rounding.
    """
    apart = np.mean(np.abs(ours - theirs) > 1e-3)
    if apart > 0.01:
        raise AssertionError(f"{apart:.2%} of the entries differ")


def measure_limits(
    problem: Problem, attack_steps: int, peer: str, theirs: Timed[Any], repeat: int
) -> list[Record]:
    """Return records of what no attack of these steps on NumPy can do without.

    Matrix products alone, in blocks as `ascend` has them; then with one pass over an array for
    each operation by element: 4 of an activation and its gate, 1 back through it, 3 of the
    penalty, and 10 of Adam's step.
    """
    network, x, sigma = problem.network, problem.x, problem.setting.sigma
    (first, second), back = network.weight, network.back
    parts = [x[models, rows, :] for models, rows in blocks(x, x.shape[1], network.widest)]

    def multiply(passes: Callable[[Any, int], None]) -> None:
        for part in parts:
            for _ in range(attack_steps):
                hidden = part @ first
                passes(hidden, 4)
                slope = (hidden @ second) @ back[1]
                passes(slope, 1)
                gradient = slope @ back[0]
                passes(part @ sigma, 3)
                passes(gradient, 10)

    def scale(array: Any, count: int) -> None:
        for _ in range(count):
            array *= 1.0

    name, n = f"of {attack_steps} attack steps", int(x.shape[1])
    products = measure_call(lambda: multiply(lambda *_: None), repeat)
    passes = measure_call(lambda: multiply(scale), repeat)
    return [
        compare(f"products alone, {name}", n, products, peer, theirs),
        compare(f"and passes by element, {name}", n, passes, peer, theirs),
    ]


def measure_against_peer(
    python: Path, rows: int, models: int, attack_steps: int, backend: str, threads: int, repeat: int
) -> list[Record]:
    """Return the records of one step, alone and in a batch, against inFairness."""
    half = attack_steps // 2
    whole, mixed = (0, attack_steps), (half, attack_steps - half)
    problem = Problem(1, rows, backend, whole)
    device = "cpu" if backend == "numpy" else "cuda"
    theirs = ask_peer(python, problem, attack_steps, threads, repeat, device)
    check_equal(find_ours(problem, attack_steps), theirs.result)
    peer = "inFairness 0.2.3"
    records = []
    for name, split in (("the same attack", whole), ("free directions first", mixed)):
        alone = measure_call(Problem(1, rows, backend, split).step, repeat)
        together = measure_call(Problem(models, rows, backend, split).step, max(2, repeat // 4))
        each = Timed(together.seconds / models, together.peak_mib / models, together.result)
        records.append(compare(f"{name}, one model", rows, alone, peer, theirs, backend))
        records.append(compare(f"{name}, a model of {models}", rows, each, peer, theirs, backend))
    if backend == "numpy":
        records += measure_limits(problem, attack_steps, peer, theirs, repeat)
    return records


def measure_sweep(
    rows: int, models: int, attack_steps: int, backend: str, repeat: int
) -> list[Record]:
    """Return the record of a step of all models at once against one by one."""
    half = attack_steps // 2
    split = (half, attack_steps - half)
    at_once = Problem(models, rows, backend, split)
    singles = [Problem(1, rows, backend, split) for _ in range(models)]

    def one_by_one() -> None:
        for each in singles:
            each.step()

    ours, theirs = measure_call(at_once.step, repeat), measure_call(one_by_one, repeat)
    case = f"{models} models, {rows} rows each"
    return [compare(case, rows, ours, "single steps", theirs, backend)]


def main() -> None:
    """Run the benchmark, print its table and write data/results/benchmarks/sensei.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer", type=Path, help="Python of an environment with inFairness")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--attack-steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy")
    chosen = parser.parse_args()
    sweep = partial(measure_sweep, models=chosen.models, attack_steps=chosen.attack_steps)
    records: list[Record] = []
    with limited_threads(chosen.threads):
        if chosen.peer is None:
            print("Without --peer PYTHON of an environment with inFairness, only the sweep.")
        else:
            records += measure_against_peer(
                chosen.peer,
                chosen.rows,
                chosen.models,
                chosen.attack_steps,
                chosen.backend,
                chosen.threads,
                chosen.repeat,
            )
        for rows in (chosen.rows, max(2, chosen.rows // 20)):
            records += sweep(rows, backend=chosen.backend, repeat=max(2, chosen.repeat // 4))
    show_records(f"A step of SenSeI, {chosen.threads} thread(s)", records)
    print(write_records("sensei", records))


if __name__ == "__main__":
    main()
