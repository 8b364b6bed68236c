"""Randomised thresholds: against fairlearn, at ten million scores, streamed, and against SGD.

Run ``python -m benchmarks.postprocess [--rows N ...] [--large N] [--repeat K]
[--backend numpy|cupy]``; K calls are timed, and the best counts. The scores are
calibrated draws without ties, for two groups of unequal size and rate. Nothing here runs in more
than one thread. What is measured:

- *chosen and fitted*, against fairlearn's ThresholdOptimizer for demographic parity with a model
  that was fitted before (it hands through its one column), grid size 1,000, accuracy as objective.
  Ours is the whole of ``RandomizedThreshold.fit`` with its choice among 65 pairs of a width and a
  rate; both choose by accuracy on the rows that they are fitted on. Both must leave a gap between
  the groups below 1e-3 in expectation, on those rows, or the run stops.
- *sorted and solved*: sort, running sums and one solution; with the grid of 65; and the estimator's
  fit as above. The peer is NumPy's sort of the same scores alone, the floor of an exact solver.
- *streamed* in batches of a million into a histogram and solved; the peer is the exact solver. The
  scores are made batch by batch before and stay in memory, which counts for neither side.
- *peers*, at a bound of .02 on three criteria: our best thresholds on labels against fairlearn,
  error-parity and OxonFair in the environments of ``make peers``, without which they are left out.
  A case says which accuracy and gap both reach on the fitted rows. For two groups: OxonFair takes
  more memory than there is for ten of 100,000 rows each.
- *every rule by group*, for ten groups: the whole of ``fit``, of ``GroupThresholds`` (drawn, and
  one threshold a group) and of ``RandomizedThreshold`` with its choice among its candidates, under
  every criterion (covariance: two groups in each of five subgroups); the peer is NumPy's sort of
  the same scores.
- *exact against descent*: the paper's projected SGD and its authors' schedule, as often as the rows
  given say. The case tells by how much their dual objective (equation 4) exceeds the minimum.

With ``--backend cupy`` the peers that need more than NumPy are left out, and what runs on the
device is measured against ours on NumPy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peer.decide import PARTS
from benchmarks.record import Record, Timed, compare, measure_call, show_records, write_records
from fairfrontier.models.thresholds.ramp import Solution, draw_lines, solve_exact
from fairfrontier.models.thresholds.threshold import BINS, ScoreHistogram, build_problem
from fairfrontier.runtime.arrays import as_backend
from fairfrontier.runtime.home import find_home
from papers.rival.threshold_descent import DescentResult, solve_authors, solve_sgd

WIDTH, RATE, BUDGET = 0.1, 0.4, 0.0
BOUND = 0.02
WIDTHS = (0.01, 0.02, 0.05, *(tenth / 10 for tenth in range(1, 11)))
RATES = (0.3, 0.35, 0.4, 0.45, 0.5)
BATCH = 1_000_000


def make_scores(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return P(Y=1|x), group codes and labels that are drawn from the scores."""
    generator = np.random.default_rng(seed)
    code = (generator.random(n) < 0.35).astype(np.int64)
    score = generator.beta(2.0, 3.0 + code)
    return score, code, (generator.random(n) < score).astype(np.int64)


def solve(signed: Any, code: Any) -> Solution:
    """Sort and solve for one width and rate."""
    return solve_exact(build_problem(signed, code, 2), WIDTH, RATE, BUDGET)


def stream(signed: Any, code: Any) -> Solution:
    """Count batch by batch, and solve."""
    histogram = ScoreHistogram(2, BINS)
    for start in range(0, signed.shape[0], BATCH):
        histogram = histogram.add(signed[start : start + BATCH], code[start : start + BATCH])
    return solve_exact(histogram.problem(), WIDTH, RATE, BUDGET)


def fit_ours(score: np.ndarray, code: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return E[h | group] of our rule, chosen and fitted."""
    from fairfrontier.models.thresholds.randomized_threshold import RandomizedThreshold

    model = RandomizedThreshold().fit(score, y, sensitive_features=code[:, None])
    return np.asarray(model.result_["rates"])


def fit_theirs(score: np.ndarray, code: np.ndarray, y: np.ndarray) -> Any:
    """Return fairlearn's optimiser, fitted."""
    from fairlearn.postprocessing import ThresholdOptimizer
    from sklearn.base import BaseEstimator

    class Passage(BaseEstimator):
        """A fitted model whose prediction is the one column it is given."""

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def fit(self, X: np.ndarray, y: np.ndarray) -> Passage:  # noqa: ARG002
            return self

        def predict(self, X: np.ndarray) -> np.ndarray:
            return np.asarray(X)[:, 0]

    optimiser = ThresholdOptimizer(
        estimator=Passage(), constraints="demographic_parity", prefit=True, predict_method="predict"
    )
    return optimiser.fit(score[:, None], y, sensitive_features=code)


def check_parity(name: str, rates: np.ndarray) -> None:
    """Raise AssertionError where the groups' rates differ by 1e-3 or more."""
    if not np.ptp(rates) < 1e-3:
        raise AssertionError(f"{name} leaves the rates {rates}")


def measure_against_fairlearn(n: int, repeat: int = 3, peer_repeat: int = 1) -> list[Record]:
    """Return the record of a choice and a fit, once both have reached parity."""
    import fairlearn

    rows = make_scores(n)
    score, code, _ = rows
    ours = measure_call(lambda: fit_ours(*rows), repeat)
    theirs = measure_call(lambda: fit_theirs(*rows), peer_repeat)
    check_parity("ours", ours.result)
    chosen = theirs.result._pmf_predict(score[:, None], sensitive_features=code)[:, 1]
    check_parity("fairlearn", np.bincount(code, chosen) / np.bincount(code))
    peer = f"fairlearn {fairlearn.__version__} ThresholdOptimizer"
    return [compare("chosen and fitted", n, ours, peer, theirs)]


def measure_large(n: int, backend: str, repeat: int = 3) -> list[Record]:
    """Return the records of sorting and streaming."""
    score, code, y = make_scores(n)
    signed = 2.0 * score - 1.0
    local = (signed, code)
    rows = tuple(as_backend(each, backend, work=float("inf")) for each in local)

    def sweep(signed: Any, code: Any) -> Any:
        width, rate = (axis.ravel() for axis in np.meshgrid(WIDTHS, RATES))
        problem = build_problem(signed, code, 2)
        return draw_lines(problem, "parity", width, rate[:, None], BUDGET)

    cases: dict[str, Callable[[Any, Any], Any]] = {
        "sorted and solved": solve,
        "sorted, 65 pairs solved": sweep,
        "streamed in batches": stream,
    }
    ours = {case: measure_call(lambda run=run: run(*rows), repeat) for case, run in cases.items()}
    exact, binned = ours["sorted and solved"], ours["streamed in batches"]
    # Rates on the scores themselves, against half a bin over the width.
    h = binned.result.rule.probability(*local)
    if np.abs(np.bincount(code, h) / np.bincount(code) - RATE).max() > 2.0**-16 / WIDTH:
        raise AssertionError("the histogram misses its bound")
    if not abs(exact.result.gap) < 1e-9:
        raise AssertionError(f"the exact solution leaves a gap of {exact.result.gap}")
    if backend == "cupy":
        peers = {case: measure_call(lambda run=run: run(*local), 1) for case, run in cases.items()}
        return [
            compare(case, n, each, "ours on NumPy", peers[case], backend)
            for case, each in ours.items()
        ]
    floor = measure_call(lambda: np.sort(signed), repeat)
    ours["chosen and fitted"] = measure_call(lambda: fit_ours(score, code, y), repeat)
    peers = dict.fromkeys(ours, ("np.sort", floor))
    peers["streamed in batches"] = ("ours, exact", exact)
    return [compare(case, n, each, *peers[case], backend) for case, each in ours.items()]


def judge(h: np.ndarray, code: np.ndarray, y: np.ndarray, criterion: Any) -> str:
    """Return the accuracy of a rule, and the gap that a criterion bounds, in expectation."""
    from fairfrontier.models.thresholds.programme import measure_gap

    cell = 2 * code + y
    chosen, mass = (np.bincount(cell, each).reshape(-1, 2) for each in (h, np.ones(len(h))))
    rates = (np.column_stack([each.sum(axis=1), each[:, 1], each[:, 0]]) for each in (chosen, mass))
    gap = measure_gap(np.divide(*rates), criterion)
    return f"{np.where(y == 1, h, 1.0 - h).mean():.4f} at {gap:.4f}"


def measure_against_peers(n: int, environments: Path, repeat: int = 3) -> list[Record]:
    """Return the records of three criteria against each peer in its environment."""
    from benchmarks.frontier import CRITERIA, RULES, Peer
    from fairfrontier.models.thresholds.group_thresholds import GroupThresholds

    score, code, y = make_scores(n)
    columns = {"X": score[:, None], "score": score, "y": y, "group": code}
    # Everybody is judged on the rows of the fit; of the other parts one row has to be there.
    given = {
        f"{name}_{part}{'_accuracy' * (name == 'score')}": column[: n if part in PARTS[1:3] else 1]
        for part in PARTS
        for name, column in columns.items()
    }
    given |= {"threads": np.array(1), "budgets": np.array([BOUND])}
    given |= {"criteria": np.array(CRITERIA), "objectives": np.array(["accuracy"])}
    ours = {}
    for criterion in CRITERIA:
        model = GroupThresholds(criterion=criterion, bound=BOUND)
        timed = measure_call(
            lambda m=model: m.fit(score, y, sensitive_features=code[:, None]), repeat
        )
        h = model.predict_proba(score, sensitive_features=code[:, None])[:, 1]
        ours[criterion] = (timed, f"{criterion}: {judge(h, code, y, criterion)}")
    records = []
    for name, environment in RULES.items():
        with Peer(name, environments / environment / "bin" / "python") as peer:
            decided = peer.decide(given)
        for i, (criterion, (timed, case)) in enumerate(ours.items()):
            theirs = Timed(float(decided["seconds"][i, 0]), float("nan"), None)
            reached = judge(decided["validation"][i, 0, 0].astype(np.float64), code, y, criterion)
            records.append(compare(case, n, timed, f"{name}: {reached}", theirs))
    return records


def measure_rules(n: int, repeat: int = 3) -> list[Record]:
    """Return the records of every rule for ten groups."""
    from fairfrontier.models.thresholds.curve import BOUNDED
    from fairfrontier.models.thresholds.group_thresholds import GroupThresholds
    from fairfrontier.models.thresholds.randomized_threshold import RandomizedThreshold

    generator = np.random.default_rng(0)
    code = generator.integers(10, size=n)
    score = generator.beta(2.0 + code / 10, 3.0)
    y = (generator.random(n) < score).astype(np.int64)
    groups = np.column_stack([code, code % 2, code // 2])
    models: dict[str, Any] = {}
    for criterion in BOUNDED:
        options = {"criterion": criterion, "bound": 0.02, "attributes": 0}
        models[f"best on labels, {criterion}"] = GroupThresholds(**options)
        models[f"one a group, {criterion}"] = GroupThresholds(**options, randomized=False)
    for criterion in ("parity", "equal_opportunity", "equalized_odds"):
        models[f"near-optimal, {criterion}"] = RandomizedThreshold(
            criterion=criterion, attributes=0
        )
    # Two groups in each of five subgroups.
    models["near-optimal, covariance"] = RandomizedThreshold(
        criterion="covariance", attributes=1, within=2
    )
    floor = measure_call(lambda: np.sort(score), repeat)
    records = []
    for case, model in models.items():
        ours = measure_call(
            lambda model=model: model.fit(score, y, sensitive_features=groups), repeat
        )
        if isinstance(model, GroupThresholds) and not ours.result.result_["gap"] <= 0.02 + 1e-9:
            raise AssertionError(f"{case} leaves a gap of {ours.result.result_['gap']}")
        records.append(compare(case, n, ours, "np.sort", floor))
    return records


def measure_descent(n: int, backend: str, repeat: int = 3) -> list[Record]:
    """Return the records of the exact solution against both descents."""
    score, code, _ = make_scores(n)
    rows = tuple(as_backend(each, backend, work=float("inf")) for each in (2 * score - 1, code))
    exact = measure_call(lambda: solve(*rows), repeat)
    options: dict[str, float] = {"width": WIDTH, "rate": RATE, "budget": BUDGET}
    descents: dict[str, Callable[..., DescentResult]] = {
        "projected SGD": solve_sgd,
        "authors' schedule": solve_authors,
    }
    records = []
    for name, descend in descents.items():
        theirs: Timed[DescentResult] = measure_call(
            lambda descend=descend: descend(*rows, 2, **options), 1
        )
        excess = theirs.result.objective + exact.result.dual_value
        if excess < -1e-9:
            raise AssertionError(f"{name} is below the exact minimum by {-excess}")
        case = f"exact ({name}: {max(excess, 0.0):.0e} above)"
        records.append(compare(case, n, exact, name, theirs, backend))
    return records


def main() -> None:
    """Run the benchmark, print its table and write data/results/benchmarks/postprocess.json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--large", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--backend", choices=("numpy", "cupy"), default="numpy")
    chosen = parser.parse_args()
    records: list[Record] = []
    environments = find_home() / ".peers"
    with limit_threads(chosen.backend):
        records += measure_large(chosen.large, chosen.backend, chosen.repeat)
        for n in chosen.rows:
            records += measure_descent(n, chosen.backend, chosen.repeat)
            if chosen.backend == "numpy":
                records += measure_against_fairlearn(n, chosen.repeat)
                records += measure_rules(n, chosen.repeat)
                if environments.exists():
                    records += measure_against_peers(n, environments, chosen.repeat)
    show_records("Randomised thresholds, 1 thread", records)
    print(write_records("postprocess", records))


def limit_threads(backend: str) -> AbstractContextManager[None]:
    """Return one thread for BLAS and OpenMP, where the libraries that it takes are there."""
    if backend == "cupy":
        return nullcontext()
    from fairfrontier.runtime.thread import limited_threads

    return limited_threads(1)


if __name__ == "__main__":
    main()
