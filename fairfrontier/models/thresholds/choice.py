"""The choice of a randomised threshold's width and rate from the paper's grid, and traces of ε."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd

from fairfrontier.models.objective import Objective
from fairfrontier.models.thresholds.curve import Objective as Served
from fairfrontier.models.thresholds.curve import weigh_objective
from fairfrontier.models.thresholds.ramp import (
    ACCURACY,
    Criterion,
    Lines,
    Rate,
    Solution,
    as_lines,
    draw_lines,
    judge_lines,
    propose_rates,
    solve,
    solve_exact,
)
from fairfrontier.models.thresholds.rule import RampRule, ThresholdRule
from fairfrontier.models.thresholds.threshold import ThresholdProblem

# The candidates' columns of rates.
NAMES: dict[Criterion, list[str]] = {
    "parity": ["rate"],
    "covariance": [],
    "equal_opportunity": ["rate"],
    "equalized_odds": ["tpr", "fpr"],
}

# γ ∈ {.01, .02, .05, .1, .2, …, 1} and ρ ∈ E[y] + {−.1, −.05, 0, .05, .1} (section 5).
WIDTHS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RATE_OFFSETS = (-0.1, -0.05, 0.0, 0.05, 0.1)
# Accuracies that agree to this precision are equal: rounding must not decide.
DECIMALS = 9


def list_rates(base_rate: float, offsets: Sequence[float] = RATE_OFFSETS) -> list[float]:
    """Return the distinct values of ``base_rate`` + ``offsets``, cut to [0, 1], ascending."""
    shifted = np.clip(base_rate + np.asarray(offsets, dtype=np.float64), 0.0, 1.0)
    return [float(rate) for rate in np.unique(shifted)]


def choose_best(
    widths: np.ndarray,
    rates: np.ndarray,
    accuracy: np.ndarray,
    centre: float,
    met: np.ndarray | None = None,
) -> int:
    """Return the position of the most accurate candidate; all arrays have shape (n_candidates,).

    Among accuracies equal to nine decimals it is the smallest width, which draws least, then the
    rate nearest to ``centre``, then the lowest rate. Candidates that meet their criterion, by
    ``met``, come before all others.
    """
    unmet = np.zeros(len(widths)) if met is None else ~met
    apart = np.round(np.abs(rates - centre), DECIMALS)
    keys = (rates, apart, widths, -np.round(accuracy, DECIMALS), unmet)
    return int(np.lexsort(keys)[0])


def choose(
    problem: ThresholdProblem,
    labelled: ThresholdProblem | None,
    criterion: Criterion = "parity",
    *,
    widths: Sequence[float],
    rates: Sequence[Any],
    budget: float,
    centre: float | None = None,
    objective: Objective = "accuracy",
    cut: float = 0.0,
    merged: np.ndarray | None = None,
) -> tuple[Solution, Any, pd.DataFrame]:
    """Solve every pair of a width and a rate, and return the best by an objective with its rate.

    All candidates come from one sort. ``labelled`` has the rows that judge, by codes 2 k + y; None
    where there is one pair only. The frame lists the candidates' width, rates, accuracy (else
    objective) and gap; it is empty without a choice. See `choose_best` for ties: ``centre`` is by
    default the first rate, of two the second. For covariance ``merged`` has the code of every cell
    in the problem, and the solution's rule and rates are by cell.
    """
    tried = [(width, rate) for width in widths for rate in rates]
    width, judged = np.array([pair[0] for pair in tried]), name_judged(objective)
    columns = np.array([0.0 if pair[1] is None else pair[1] for pair in tried], dtype=np.float64)
    columns = columns.reshape(len(tried), -1)
    table = {"width": width, **dict(zip(NAMES[criterion], columns.T, strict=False))}
    best, lines = 0, None
    if len(tried) > 1 and labelled is not None:
        drawn = draw_lines(problem, criterion, width, columns, budget, cut)
        by_cell = drawn if merged is None else [drawn[code] for code in merged.tolist()]
        table[judged], table["gap"] = judge_lines(
            labelled, by_cell, weigh_labels(objective, labelled)
        )
        met = np.max([line.relaxed for line in drawn], axis=0) <= ACCURACY
        nearest = float(columns[0, -1]) if centre is None else centre
        best = choose_best(width, columns[:, -1], table[judged], nearest, met)
        lines = [Lines(*(each[[best]] for each in line)) for line in drawn]
    else:
        table = {name: np.zeros(0) for name in (*table, judged, "gap")}
    own, rate = tried[best]
    solution = solve(problem, criterion, own, rate, budget, cut, lines=lines)
    if merged is not None:
        rule = solution.rule
        by_code = RampRule(rule.centre[merged], rule.level[merged], rule.slope[merged])
        solution = replace(solution, rule=by_code, rate=solution.rate[merged])
    return solution, rate, pd.DataFrame(table)


def cross_subgroups(cells: np.ndarray) -> np.ndarray:
    """Return 2 · subgroup + member of every cell.

    ``cells``, (n_cells, n_attributes), have the members of S as 1 in their first column, and the
    subgroups in the others.
    """
    subgroup = np.zeros(len(cells), dtype=np.int64)
    if cells.shape[1] > 1:
        subgroup = np.unique(cells[:, 1:], axis=0, return_inverse=True)[1].reshape(-1)
    return 2 * subgroup + (cells[:, 0] > 0)


def list_proposals(problem: ThresholdProblem, criterion: Criterion, cut: float) -> list[Rate]:
    """Return the rates of a criterion other than parity to choose from; see `propose_rates`."""
    if criterion == "covariance":
        return [None]
    proposed = propose_rates(problem, criterion, cut=cut).tolist()
    return [tuple(row) if isinstance(row, list) else row for row in proposed]


def name_judged(objective: Objective) -> str:
    """Return the candidates' column of what they are judged by."""
    return "accuracy" if objective == "accuracy" else "objective"


def weigh_labels(objective: Objective, labelled: ThresholdProblem) -> tuple[float, float]:
    """Return how often the objective counts rows labelled 0 and 1, once the label that counts more.

    The share of right decisions among rows that are so counted is the accuracy, the balanced
    accuracy, or the share of the costs of all errors that is saved.
    """
    negative, positive = (
        sum(segment.total for segment in labelled.segments[label::2]) for label in (0, 1)
    )
    gain = weigh_objective(cast("Served", objective), positive, negative)
    most = max(gain.positive, gain.negative)
    return gain.negative / most, gain.positive / most


def trace_budgets(
    problem: ThresholdProblem,
    labelled: ThresholdProblem,
    width: float,
    rate: float,
    n_points: int = 25,
    fit: Callable[[float], ThresholdRule] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ε, bias and expected accuracy, (n_points,), as ε grows from 0 until it never binds.

    Thresholds of one width and rate are fitted on ``problem``, by ``fit`` of ε if it is given, and
    measured on ``labelled``, by codes 2 k + y. On the fitted rows the bias is at most ε and never
    decreases.
    """
    # At ε = 2 every |E[h | k] − ρ| ≤ ε/2, so that all thresholds are 0.
    free = solve_exact(problem, width, rate, 2.0)
    budgets = np.linspace(0.0, 2.0 * float(np.nanmax(np.abs(free.rate - rate))), n_points)
    points = []
    for budget in budgets.tolist():
        rule = fit(budget) if fit else solve_exact(problem, width, rate, budget).rule
        points.append(judge_thresholds(labelled, rule))
    accuracy, bias = np.array(points).T
    return budgets, bias, accuracy


def judge_thresholds(labelled: ThresholdProblem, rule: ThresholdRule) -> tuple[float, float]:
    """Return what `judge_lines` does, of one rule."""
    right, gap = judge_lines(labelled, as_lines(rule))
    return float(right[0]), float(gap[0])
