"""Training with noisy groups on Adult: one model, a grid of rates at once, exact against ascent.

Run ``python -m benchmarks.noisy [--rows N] [--iterations T] [--threads K ...] [--backend
numpy|cupy]``. The rows are those of ``adult-noisy`` (29,305 for training, a tenth of them in a
wrong group); both sides compute in float32, in the same process, with as many BLAS threads. Seconds
are those of a whole fit, with the sorting and merging of rows.

Three comparisons. One naive model against full-batch training as one would write it in NumPy, row
by row of the table and with a dense mask for every group; both must come to the same error, or the
run stops. The grid of rates of one approach (naive 12 settings, the others 36), trained at once,
against the same fits one after the other; ten steps of every pair in float64 must end at the same
scores but for rounding, or the run stops (in float32, and in the end, large steps make different
models of the rounding: see `bound_rounding`). The exact inner player against the paper's ascent:
each case names the largest violation of the robust constraints on the training rows, a true
maximum, of the model that exact play left and then of the one that ascent left.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from benchmarks.record import Record, Timed, compare, measure_call, show_records, write_records
from fairfrontier import load
from fairfrontier.models.neural.network import Adam
from fairfrontier.models.registry import create
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.thread import limited_threads

Result = TypeVar("Result")

BUDGET, SLACK = 0.05, 1.25
RATE, MULTIPLIER_RATE = 0.01, 0.5
GRID = {
    "learning_rate": (0.001, 0.01, 0.1),
    "multiplier_rate": (0.25, 0.5, 1.0, 2.0),
    "inner_rate": (0.001, 0.01, 0.1),
}
ROBUST = ("dro", "soft_assignment")
# Steps after which models trained at once and one by one are compared, and Adam's ε.
AGREED, EPSILON = 10, 1e-8


def measure_run(run: Callable[[int], Result], iterations: int, repeat: int = 1) -> Timed[Result]:
    """Time a run of so many iterations; its memory is that of a run of ten, which is as much."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = run(iterations)
        best = min(best, time.perf_counter() - start)
    short = measure_call(lambda: run(10), repeat=0)
    return Timed(best, short.peak_mib, result)


def make_model(approach: str, iterations: int, backend: str, **changes: Any) -> Any:
    """Return an unfitted model of the benchmark."""
    parameters = {
        "criterion": "equal_opportunity",
        "budget": BUDGET,
        "slack": SLACK,
        "learning_rate": RATE,
        "multiplier_rate": MULTIPLIER_RATE,
        "iterations": iterations,
        "backend": backend,
        **changes,
    }
    return create(f"noisy_{approach}", **parameters)


def fit_models(models: Sequence[Any], part: Part, *, at_once: bool) -> Sequence[Any]:
    """Fit the models on a part, in one batch or one after the other."""
    data = {"X": part.X, "y": part.y, "sensitive_features": part.groups}
    if "true_groups" in models[0].fit_takes:
        data["true_groups"] = part.true_groups
    batches = [models] if at_once else [[each] for each in models]
    with warnings.catch_warnings():
        # That the paper's levels need not hold is no news here.
        warnings.simplefilter("ignore")
        for batch in batches:
            type(batch[0]).fit_batch(batch, [data] * len(batch))
    return models


def fit_densely(part: Part, iterations: int) -> float:
    """Train the naive model as one would write it down, and return its last error."""
    X, y = part.X.astype(np.float32), part.y
    n, d = X.shape
    codes = part.groups[:, 0]
    positive = y == 1
    sign = np.where(positive, 1, -1).astype(np.float32)
    members = [positive & (codes == j) for j in range(int(codes.max()) + 1)]
    theta, bias = np.zeros((1, d, 1), np.float32), np.zeros((1, 1, 1), np.float32)
    multiplier = np.zeros(len(members))
    descent = Adam([theta, bias], np.float32(RATE))
    ascent = Adam([multiplier[None, None]], MULTIPLIER_RATE)
    for step in range(iterations):
        score = X @ theta[0, :, 0] + bias[0, 0, 0]
        rising = np.maximum(1 + score[positive], 0).mean()
        hinge = np.array([np.maximum(1 - score[rows], 0).mean() for rows in members])
        if step:
            raised = (
                multiplier + ascent.step([(hinge + rising - 1 - BUDGET - SLACK)[None, None]])[0]
            )
            multiplier = cap(raised[0, 0])
        slope = np.where(sign * score < 1, -sign, 0).astype(np.float32) / n
        slope += multiplier.sum() * positive * (score > -1) / positive.sum()
        for weight, rows in zip(multiplier, members, strict=True):
            slope -= weight * rows * (score < 1) / rows.sum()
        slope = slope.astype(np.float32)
        changes = descent.step([(X.T @ slope)[None, :, None], slope.sum()[None, None, None]])
        theta, bias = theta - changes[0], bias - changes[1]
    return float((((X @ theta[0, :, 0] + bias[0, 0, 0]) >= 0) != positive).mean())


def cap(multiplier: np.ndarray) -> np.ndarray:
    """Project onto {λ ≥ 0, Σ λ ≤ 1}, by a sort."""
    inside: np.ndarray = np.maximum(multiplier, 0)
    if inside.sum() <= 1:
        return inside
    ordered = np.sort(multiplier)[::-1]
    level = ((np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)).max()
    lowered: np.ndarray = multiplier - level
    return lowered.clip(min=0)


def compare_single(part: Part, iterations: int, backend: str) -> list[Record]:
    """Return the record of one naive model against the dense one."""

    def run(steps: int) -> Any:
        models = [make_model("naive", steps, backend, best="last")]
        return fit_models(models, part, at_once=True)[0]

    ours = measure_run(run, iterations, repeat=2)
    peer = measure_run(lambda steps: fit_densely(part, steps), iterations, repeat=2)
    np.testing.assert_allclose(ours.result.error_, peer.result, atol=2e-3)
    return [compare("one naive model", part.n_samples, ours, "a plain loop", peer, backend)]


def bound_rounding(X: np.ndarray, rate: float, steps: int) -> float:
    """Return by how much rounding may part the scores of two float64 runs from the same start.

    A gradient is a mean over n rows of hinge slopes times x, of which loss and multipliers
    (Σ λ ≤ 1, two hinges each) have three at most: in whatever order it is summed it is right to
    δ = 3 n u max|x|. The step of Adam, α g / (|g| + ε), has slope α/ε at g = 0, so T steps may
    part a coefficient by T α δ / ε and a score by that times ‖x‖₁. In float32 δ is above ε: where
    a gradient vanishes its sign is rounding, a step is ±α, and nothing follows.
    """
    error = 3 * len(X) * np.finfo(np.float64).eps / 2 * float(np.abs(X).max())
    longest = 1.0 + float(np.abs(X).sum(axis=1).max())
    return steps * rate * error / EPSILON * longest


def compare_grid(part: Part, approach: str, iterations: int, backend: str) -> list[Record]:
    """Return the record of a grid of rates at once against one after the other."""
    # The naive approach has no inner player.
    names = list(GRID) if approach in ROBUST else list(GRID)[:2]
    settings = [
        dict(zip(names, each, strict=True))
        for each in itertools.product(*(GRID[name] for name in names))
    ]

    inner = {"inner": "ascent"} if approach in ROBUST else {}

    def fit(steps: int, *, at_once: bool, dtype: str = "float32") -> Sequence[Any]:
        models = [
            make_model(approach, steps, backend, best="last", dtype=dtype, **inner, **each)
            for each in settings
        ]
        return fit_models(models, part, at_once=at_once)

    ours = measure_run(lambda steps: fit(steps, at_once=True), iterations)
    peer = measure_run(lambda steps: fit(steps, at_once=False), iterations)
    pairs = (fit(AGREED, at_once=at_once, dtype="float64") for at_once in (True, False))
    for one, two, each in zip(*pairs, settings, strict=True):
        # The sigmoid's slope is 1/4 at most.
        np.testing.assert_allclose(
            one.predict_proba(part.X),
            two.predict_proba(part.X),
            rtol=0,
            atol=bound_rounding(part.X, each["learning_rate"], AGREED) / 4,
        )
    case = f"{approach}, {len(settings)} rates at once"
    return [compare(case, part.n_samples, ours, "one by one", peer, backend)]


def compare_inner(part: Part, approach: str, iterations: int, backend: str) -> list[Record]:
    """Return the record of the exact inner player against the paper's ascent."""

    def run(inner: str) -> Timed[tuple[Any, Any]]:
        def fit(steps: int) -> Any:
            models = [make_model(approach, steps, backend, inner=inner)]
            return fit_models(models, part, at_once=True)[0]

        return measure_run(fit, iterations, repeat=2)

    timed = {inner: run(inner) for inner in ("exact", "ascent")}
    told = [
        each.result.violation(part.X, part.y, part.groups, inner="exact") for each in timed.values()
    ]
    case = f"{approach}, exact ({told[0]:+.3f}, ascent {told[1]:+.3f})"
    return [compare(case, part.n_samples, timed["exact"], "ascent", timed["ascent"], backend)]


def main() -> None:
    """Run the benchmark, print its table and write data/results/benchmarks/noisy.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--iterations", type=int, default=750)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy")
    chosen = parser.parse_args()
    part = load("adult-noisy", seed=0, rows=chosen.rows).train
    options = (chosen.iterations, chosen.backend)
    records: list[Record] = []
    for threads in chosen.threads:
        with limited_threads(threads):
            found = compare_single(part, *options)
            for approach in ROBUST:
                found += compare_inner(part, approach, *options)
            for approach in ("naive", *ROBUST):
                found += compare_grid(part, approach, *options)
        show_records(
            f"noisy groups, {chosen.iterations} iterations, float32, {threads} thread(s)", found
        )
        records += [replace(each, case=f"{each.case}, {threads} thread(s)") for each in found]
    print(write_records("noisy", records))


if __name__ == "__main__":
    main()
