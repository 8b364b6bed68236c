"""The game of fair regression: settings and a posed problem go in, a solution comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.regression.bounded_loss import BoundedLossProblem, solve_bounded_loss
from fairfrontier.train.regression.loss import Loss
from fairfrontier.train.regression.oracle.oracle import Costs, Response, Variant
from fairfrontier.train.regression.parity import ParityProblem, solve_parity
from fairfrontier.train.regression.predictor import Predictor
from fairfrontier.train.regression.saddle import Progress, Schedule

Question = TypeVar("Question")


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

        Raises
        ------
        ConfigError
            For fewer budgets than groups.
        """
        budget: np.ndarray = np.asarray(self.budget, dtype=np.float64)
        if budget.ndim and budget.size <= int(levels.max()):
            raise ConfigError(
                f"There are {budget.size} budgets, and the groups have codes up to "
                f"{int(levels.max())}.",
                "Give one budget for each group, or one for all.",
            )
        return {
            "loss": self.loss,
            "budget": budget[levels] if budget.ndim else float(budget),
            "radius": self.radius,
            "tolerance": self.tolerance,
            "iterations": self.iterations,
            "inflation": self.inflation,
            "schedule": self.schedule,
        }


@dataclass(frozen=True, eq=False)
class ReductionSolution:
    """A mixture of predictors and what is known of it; attributes as those of `Reduction`."""

    predictors: Sequence[Predictor]
    probability: np.ndarray
    multiplier: np.ndarray
    levels: np.ndarray
    loss: float
    group_value: np.ndarray
    reachable: np.ndarray
    alone: np.ndarray
    gap: float
    exact: bool
    converged: bool
    iterations: int
    calls: int
    report: Mapping[str, float]


class TimedOracle:
    """An oracle whose calls are counted, and whose seconds add up.

    Attributes
    ----------
    exact : bool
        The oracle's.
    calls : int
    seconds : float
    """

    def __init__(self, oracle: Any) -> None:
        self._oracle = oracle
        self.exact: bool = oracle.exact
        self.calls, self.seconds = 0, 0.0

    def respond(self, costs: Costs) -> Response:
        """Return the oracle's answer to the costs of a parity problem."""
        return self._time(self._oracle.respond, costs)

    def minimise(self, factor: np.ndarray) -> Response:
        """Return the oracle's answer to factors of the groups."""
        return self._time(self._oracle.minimise, factor)

    def _time(self, call: Callable[[Question], Response], question: Question) -> Response:
        started = time.perf_counter()
        try:
            return call(question)
        finally:
            self.calls += 1
            self.seconds += time.perf_counter() - started


def solve_reduction(
    problem: ParityProblem | BoundedLossProblem,
    oracle: Any,
    levels: np.ndarray,
    progress: Progress | None = None,
) -> ReductionSolution:
    """Solve a problem by the game with an oracle.

    Parameters
    ----------
    problem : ParityProblem or BoundedLossProblem
    oracle : Oracle or RiskOracle
        As the problem needs it.
    levels : ndarray of int64, shape (n_groups,)
        Codes of the problem's groups.
    progress : callable, optional
        Called with (iterations done, iterations).
    """
    timed, none = TimedOracle(oracle), np.zeros(0)
    result: Any
    if isinstance(problem, ParityProblem):
        result = solve_parity(problem, timed, progress=progress)
        group_value, reachable, alone = np.abs(result.parity).max(axis=1), none, none
    else:
        result = solve_bounded_loss(problem, timed, progress=progress)
        group_value, reachable, alone = result.group_loss, result.reachable, result.alone
    report = {
        "oracle_calls": timed.calls,
        "oracle_seconds": timed.seconds,
        "iterations": result.iterations,
    }
    if np.isfinite(result.gap):
        report["gap"] = result.gap
    return ReductionSolution(
        predictors=result.predictors,
        probability=result.weight,
        multiplier=result.multiplier,
        levels=levels,
        loss=result.loss,
        group_value=group_value,
        reachable=reachable,
        alone=alone,
        gap=result.gap,
        exact=not result.relative,
        converged=result.converged,
        iterations=result.iterations,
        calls=result.calls,
        report=report,
    )
