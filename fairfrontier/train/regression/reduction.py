"""The game of fair regression: settings and a problem go in, a solution comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.regression.bounded_loss import BoundedLossProblem, solve_bounded_loss
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.oracle.oracle import Costs, Variant
from fairfrontier.train.regression.parity import ParityProblem, solve_parity
from fairfrontier.train.regression.predictor import Predictor
from fairfrontier.train.regression.problem import Solution
from fairfrontier.train.regression.saddle import Progress, Schedule

Report = dict[str, float]


@dataclass(frozen=True, eq=False)
class ReductionSetting:
    """What the problem and its oracle are built from: parameters of `Reduction`, see there.

    ``loss`` and ``label_range`` are resolved, and ``name`` is the method's, for messages.
    """

    name: str
    constraint: str
    loss: Loss
    oracle: str | None
    learner: str | Any
    budget: float | Sequence[float]
    attribute: int
    n_grid: int
    radius: float | None
    tolerance: float | None
    iterations: int
    inflation: float
    schedule: Schedule
    variant: Variant
    label_range: tuple[float, float]
    penalty: float
    n_estimators: int | None
    max_depth: int | None
    n_jobs: int
    random_state: int

    def find_terms(self, levels: np.ndarray) -> dict[str, Any]:
        """Return the keywords that both problems take, for groups with these codes.

        ConfigError for fewer budgets than groups.
        """
        budget: np.ndarray = np.asarray(self.budget, dtype=np.float64)
        if budget.ndim and budget.size <= int(levels.max()):
            raise ConfigError(
                f"There are {budget.size} budgets, and the groups have codes up to "
                f"{int(levels.max())}.",
                "Give one budget for each group, or one for all.",
            )
        names = ("loss", "radius", "tolerance", "iterations", "inflation", "schedule")
        shared = {name: getattr(self, name) for name in names}
        return {**shared, "budget": budget[levels] if budget.ndim else float(budget)}

    def find_tree_parameters(self) -> dict[str, Any]:
        """Return the keywords of ``TreeOracle`` besides the sharpness."""
        names = ("variant", "n_estimators", "max_depth", "n_jobs", "random_state")
        return {name: getattr(self, name) for name in names}


class TimedOracle:
    """An oracle whose ``calls`` are counted and whose ``seconds`` are summed."""

    def __init__(self, oracle: Any) -> None:
        self._oracle = oracle
        self.exact: bool = oracle.exact
        self.calls, self.seconds = 0, 0.0

    def respond(self, costs: Costs) -> Predictor:
        """Return the oracle's response to the costs of a parity problem."""
        return self._time(self._oracle.respond, costs)

    def minimise(self, factor: np.ndarray) -> Predictor:
        """Return the oracle's response to factors of the groups."""
        return self._time(self._oracle.minimise, factor)

    def _time(self, call: Callable[[Any], Predictor], argument: Any) -> Predictor:
        started = time.perf_counter()
        try:
            return call(argument)
        finally:
            self.calls += 1
            self.seconds += time.perf_counter() - started


def solve_reduction(
    problem: ParityProblem | BoundedLossProblem, oracle: Any, progress: Progress | None = None
) -> tuple[Solution, Report]:
    """Solve a problem by the game with its kind of oracle, and report on the calls and the gap."""
    timed = TimedOracle(oracle)
    if isinstance(problem, ParityProblem):
        solution = solve_parity(problem, timed, progress)
    else:
        solution = solve_bounded_loss(problem, timed, progress)
    report: Report = {
        "oracle_calls": timed.calls,
        "oracle_seconds": timed.seconds,
        "iterations": solution.iterations,
    }
    if np.isfinite(solution.gap):
        report["gap"] = solution.gap
    return solution, report
