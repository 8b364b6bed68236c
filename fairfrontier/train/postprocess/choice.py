"""The choice of a randomised threshold's width and rate from the paper's grid, and traces of ε."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np
import pandas as pd

from fairfrontier.train.objective import Objective
from fairfrontier.train.postprocess.conditional import (
    draw_covariance,
    draw_opportunity,
    solve_covariance,
    solve_opportunity,
)
from fairfrontier.train.postprocess.criterion import ACCURACY, Solution
from fairfrontier.train.postprocess.curve import Objective as Served
from fairfrontier.train.postprocess.curve import weigh_objective
from fairfrontier.train.postprocess.line import Line, Lines, judge_lines
from fairfrontier.train.postprocess.odds import draw_odds, propose_for, solve_odds
from fairfrontier.train.postprocess.rule import RampRule, ThresholdRule, measure_rates
from fairfrontier.train.postprocess.sample import ScoredRows
from fairfrontier.train.postprocess.threshold import (
    ThresholdProblem,
    Thresholds,
    expect_accuracy,
    solve_exact,
    solve_grid,
    weigh_rule,
)

Conditional = Literal["covariance", "equal_opportunity", "equalized_odds"]
Rate = float | tuple[float, float] | None

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


def choose_parity(
    problem: ThresholdProblem,
    labelled: ThresholdProblem | None,
    *,
    widths: Sequence[float],
    rates: Sequence[float],
    budget: float,
    centre: float,
    objective: Objective = "accuracy",
    cut: float = 0.0,
) -> tuple[Thresholds, float, pd.DataFrame]:
    """Solve every pair of a width and a rate, and return the best by an objective with its rate.

    ``labelled`` has the rows that judge, by codes 2 k + y; None where there is one pair only. The
    frame lists the candidates' width, rate, accuracy (else objective) and gap; it is empty without
    a choice. See `choose_best` for ``centre`` and ties, and `solve_grid` for ``cut``.
    """
    grid = solve_grid(problem, widths, rates, budget, cut)
    width, rate = (axis.reshape(-1) for axis in np.meshgrid(widths, rates, indexing="ij"))
    best, judged = 0, name_judged(objective)
    table = {name: np.zeros(0) for name in ("width", "rate", judged, "gap")}
    if len(width) > 1 and labelled is not None:
        found = expect_accuracy(labelled, grid, weigh_labels(objective, labelled))
        value, gap = (values.reshape(-1) for values in found)
        table = {"width": width, "rate": rate, judged: value, "gap": gap}
        best = choose_best(width, rate, value, centre)
    return grid.pick(*divmod(best, len(rates))), float(rate[best]), pd.DataFrame(table)


def choose_conditional(
    rows: ScoredRows,
    fresh: ScoredRows,
    cells: np.ndarray,
    criterion: Conditional,
    *,
    widths: Sequence[float],
    rate: Rate,
    budget: float,
    objective: Objective = "accuracy",
    cut: float = 0.0,
) -> tuple[Solution, float, Rate, pd.DataFrame]:
    """Solve every candidate of another criterion on ``rows``, and choose the best on ``fresh``.

    ``cells``, (n_cells, n_attributes), has for covariance the members of S as 1 in its first column
    and the subgroups in the others. Without a ``rate`` those of `odds.propose_rates` are the
    candidates, except under covariance; the first is preferred among equals. Returns the solution
    with its rule by cell, width, rate and the candidates as `choose_parity` does. All candidates
    with widths above 0 come from one sort.
    """
    rows, judged = rows.drop_weightless(), name_judged(objective)
    merged = _cross_subgroups(cells) if criterion == "covariance" else None
    problem, rates = rows.problem(merged), [rate]
    if rate is None and criterion != "covariance":
        proposed = propose_for(problem, criterion, cut=cut)
        rates = [tuple(row) if isinstance(row, list) else row for row in proposed.tolist()]
    tried = [(width, rate) for width in widths for rate in rates]
    width = np.array([pair[0] for pair in tried])
    names = {"covariance": [], "equal_opportunity": ["rate"], "equalized_odds": ["tpr", "fpr"]}
    columns = np.array([pair[1] for pair in tried], dtype=np.float64).reshape(len(tried), -1)
    table = {"width": width, **dict(zip(names[criterion], columns.T, strict=False))}
    table |= {judged: np.zeros(len(tried)), "gap": np.zeros(len(tried))}
    best, lines = 0, None
    if len(tried) > 1 and fresh.y is not None:
        met = np.ones(len(tried), dtype=bool)
        ramp, labelled = width > 0, fresh.labelled()
        gain = weigh_labels(objective, labelled)
        if ramp.any():
            drawn = _draw_lines(problem, criterion, width[ramp], columns[ramp], budget, cut)
            by_cell = drawn if merged is None else [drawn[code] for code in merged.tolist()]
            table[judged][ramp], table["gap"][ramp] = judge_lines(labelled, by_cell, gain)
            met[ramp] = np.max([line.relaxed for line in drawn], axis=0) <= ACCURACY
        for i in np.flatnonzero(~ramp).tolist():
            rule = _solve(rows, problem, merged, criterion, *tried[i], budget, cut).rule
            table[judged][i], table["gap"][i] = judge_rule(rule, fresh, gain)
        first = np.nan_to_num(columns[:, -1])
        best = choose_best(width, first, table[judged], float(first[0]), met)
        if ramp[best]:
            lines = [each.pick(int(ramp[:best].sum())) for each in drawn]
    else:
        table = {name: column[:0] for name, column in table.items()}
    solution = _solve(rows, problem, merged, criterion, *tried[best], budget, cut, lines)
    return solution, float(width[best]), tried[best][1], pd.DataFrame(table)


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
    """Return what `expect_accuracy` does, of one rule."""
    pair = ThresholdRule(rule.width, np.repeat(rule.threshold, 2), np.repeat(rule.coin, 2))
    chosen = weigh_rule(labelled, pair).reshape(-1, 2)
    total = np.array([segment.total for segment in labelled.segments]).reshape(-1, 2)
    right = float((chosen[:, 1] + total[:, 0] - chosen[:, 0]).sum()) / labelled.total
    present = total.sum(axis=1) > 0
    return right, float(np.ptp(chosen[present].sum(axis=1) / total[present].sum(axis=1)))


def judge_rule(
    rule: ThresholdRule | RampRule, rows: ScoredRows, gain: tuple[float, float] = (1.0, 1.0)
) -> tuple[float, float]:
    """Return what `expect_accuracy` does, of a rule whose cells all have weight; O(n)."""
    if rows.y is None:
        raise ValueError("rows without labels cannot judge a rule")
    h = rule.probability(rows.signed, rows.code)
    right = np.where(rows.y == 1, h, 1.0 - h)
    rates = measure_rates(h, rows.code, rows.weight, rows.n_groups)
    counted = rows.weight * np.asarray(gain)[rows.y]
    return float(np.average(right, weights=counted)), float(np.ptp(rates))


def _draw_lines(
    problem: ThresholdProblem,
    criterion: Conditional,
    widths: np.ndarray,
    rates: np.ndarray,
    budget: float,
    cut: float,
) -> list[Lines]:
    """Return the optimal lines by code of the problem, of candidates of widths > 0, (G,)."""
    if criterion == "equal_opportunity":
        return draw_opportunity(problem, widths, rates[:, 0], budget, cut)
    if criterion == "equalized_odds":
        return draw_odds(problem, widths, rates, budget, cut)
    return draw_covariance(problem, widths, budget, cut)


def _cross_subgroups(cells: np.ndarray) -> np.ndarray:
    """Return 2 · subgroup + member of every cell."""
    subgroup = np.zeros(len(cells), dtype=np.int64)
    if cells.shape[1] > 1:
        subgroup = np.unique(cells[:, 1:], axis=0, return_inverse=True)[1].reshape(-1)
    return 2 * subgroup + (cells[:, 0] > 0)


def _solve(
    rows: ScoredRows,
    problem: ThresholdProblem,
    merged: np.ndarray | None,
    criterion: Conditional,
    width: float,
    rate: Any,
    budget: float,
    cut: float,
    lines: Sequence[Line] | None = None,
) -> Solution:
    """Return the solution of one candidate, its rule by cell; ``lines`` are those already drawn."""
    options: dict[str, Any] = {"width": width, "budget": budget, "weight": rows.weight}
    options |= {"problem": problem, "lines": lines, "cut": cut}
    groups = (rows.signed, rows.code, rows.n_groups)
    if criterion == "equal_opportunity":
        return solve_opportunity(*groups, rate=rate, **options)
    if merged is None:
        return solve_odds(*groups, rates=rate, **options)
    code = merged[rows.code]
    solution = solve_covariance(
        rows.signed, code % 2 > 0, code // 2, len(problem.segments) // 2, **options
    )
    rule = solution.rule
    by_cell = RampRule(rule.centre[merged], rule.level[merged], rule.slope[merged])
    return replace(solution, rule=by_cell, rate=solution.rate[merged])
