"""Which width and rate a randomised threshold takes of the paper's grid, and what ε changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.train.postprocess.conditional import solve_covariance, solve_opportunity
from fairfrontier.train.postprocess.criterion import Solution
from fairfrontier.train.postprocess.odds import propose_rates, solve_odds
from fairfrontier.train.postprocess.ramp import RampRule
from fairfrontier.train.postprocess.rule import ThresholdRule
from fairfrontier.train.postprocess.sample import ScoredRows
from fairfrontier.train.postprocess.threshold import (
    ThresholdProblem,
    expect_accuracy,
    solve_exact,
    solve_grid,
)

Conditional = Literal["covariance", "equal_opportunity", "equalized_odds"]
Rate = float | tuple[float, float] | None

# γ ∈ {.01, .02, .05, .1, .2, …, 1} and ρ ∈ E[y] + {−.1, −.05, 0, .05, .1} (section 5).
WIDTHS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RATE_OFFSETS = (-0.1, -0.05, 0.0, 0.05, 0.1)
# Accuracies that differ by less are equal: rounding must not decide.
DECIMALS = 9


@dataclass(frozen=True, eq=False)
class Choice:
    """A rule with its width and rate, and the candidates that it was chosen among.

    Attributes
    ----------
    rule : ThresholdRule or RampRule
        By cell.
    width : float
    rate : float, pair of float, or None
    facts : mapping
        Plain facts of the solution.
    candidates : DataFrame
        Columns width, the criterion's rates, accuracy and gap; empty where there was one only.
    """

    rule: ThresholdRule | RampRule
    width: float
    rate: Rate
    facts: Mapping[str, Any]
    candidates: pd.DataFrame


@dataclass(frozen=True, eq=False)
class ParityChoice(Choice):
    """A choice under parity.

    Attributes
    ----------
    reached : ndarray of float64, shape (n_groups,)
        E[h | cell] on the fitted rows.
    """

    rule: ThresholdRule
    rate: float
    reached: np.ndarray


def list_rates(base_rate: float, offsets: Sequence[float] = RATE_OFFSETS) -> list[float]:
    """Return ``base_rate`` + ``offsets`` cut to [0, 1], ascending, each once."""
    shifted = np.clip(base_rate + np.asarray(offsets, dtype=np.float64), 0.0, 1.0)
    return [float(each) for each in np.unique(shifted)]


def choose_best(
    widths: np.ndarray,
    rates: np.ndarray,
    accuracy: np.ndarray,
    centre: float,
    met: np.ndarray | None = None,
) -> int:
    """Return the position of the most accurate candidate.

    Parameters
    ----------
    widths, rates, accuracy : ndarray of float64, shape (n_candidates,)
        γ, ρ and expected accuracy.
    centre : float
        The rate to prefer: E[y] under parity.
    met : ndarray of bool, shape (n_candidates,), optional
        Whether a candidate meets its criterion; one that does goes before all that do not.

    Returns
    -------
    int
        Of accuracies equal to nine decimals the smallest width, which draws least, then the rate
        nearest to ``centre``, then the lowest rate.
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
) -> ParityChoice:
    """Solve every pair of a width and a rate, and choose the one that is right most often.

    Parameters
    ----------
    problem : ThresholdProblem
        The fitted rows.
    labelled : ThresholdProblem or None
        The rows whose labels judge, by codes 2 k + y; None where there is one pair only.
    widths, rates, budget
        As in `threshold.solve_grid`.
    centre : float
        See `choose_best`.
    """
    grid = solve_grid(problem, widths, rates, budget)
    width, rate = (each.reshape(-1) for each in np.meshgrid(widths, rates, indexing="ij"))
    place = 0
    table = {name: np.zeros(0) for name in ("width", "rate", "accuracy", "gap")}
    if len(width) > 1 and labelled is not None:
        accuracy, gap = (each.reshape(-1) for each in expect_accuracy(labelled, grid))
        table = {"width": width, "rate": rate, "accuracy": accuracy, "gap": gap}
        place = choose_best(width, rate, accuracy, centre)
    found = grid.pick(*divmod(place, len(rates)))
    facts = {
        "objective": found.objective,
        "duality_gap": found.gap,
        "binding": found.binding.tolist(),
        "converged": True,
    }
    chosen = float(width[place]), float(rate[place])
    return ParityChoice(found.rule, *chosen, facts, pd.DataFrame(table), found.rate)


def choose_conditional(
    rows: ScoredRows,
    fresh: ScoredRows,
    cells: np.ndarray,
    criterion: Conditional,
    *,
    widths: Sequence[float],
    rate: Rate,
    budget: float,
) -> Choice:
    """Solve every candidate of another criterion on ``rows``, and choose the best on ``fresh``.

    Parameters
    ----------
    rows, fresh : ScoredRows
        The fitted rows, and those whose labels judge where there is more than one candidate.
    cells : ndarray of int64, shape (n_cells, n_attributes)
        For covariance the first column is 1 for members of S, and the others make the subgroups.
    criterion : {"covariance", "equal_opportunity", "equalized_odds"}
    widths : sequence of float
        Candidates.
    rate : float, pair of float, or None
        None takes those of `odds.propose_rates` as candidates, except under covariance.
    budget : float

    Notes
    -----
    One solution for each candidate. The first of the proposed rates is the one to prefer.
    """
    rates: list[Rate] = [rate]
    if rate is None and criterion != "covariance":
        proposed = propose_rates(
            rows.signed, rows.code, rows.n_groups, criterion=criterion, weight=rows.weight
        )
        rates = [tuple(each) if isinstance(each, list) else each for each in proposed.tolist()]
    tried = [(width, each) for width in widths for each in rates]
    solutions = [_solve(rows, cells, criterion, *each, budget) for each in tried]
    rules = [_spread(each.rule, cells, criterion) for each in solutions]
    width = np.array([each for each, _ in tried])
    names = {"covariance": [], "equal_opportunity": ["rate"], "equalized_odds": ["tpr", "fpr"]}
    columns = np.array([each for _, each in tried], dtype=np.float64).reshape(len(tried), -1)
    table = {"width": width, **dict(zip(names[criterion], columns.T, strict=False))}
    table |= {"accuracy": np.zeros(len(tried)), "gap": np.zeros(len(tried))}
    place = 0
    if len(tried) > 1 and fresh.y is not None:
        judged = np.array([judge_rule(each, fresh) for each in rules])
        table["accuracy"], table["gap"] = judged.T
        first = np.nan_to_num(columns[:, -1])
        met = np.array([each.converged for each in solutions])
        place = choose_best(width, first, table["accuracy"], float(first[0]), met)
    else:
        table = {name: each[:0] for name, each in table.items()}
    found = solutions[place]
    facts = {
        "objective": found.objective,
        "duality_gap": found.gap,
        "reached": found.reached.tolist(),
        "violation": found.violation.tolist(),
        "converged": found.converged,
    }
    return Choice(rules[place], float(width[place]), tried[place][1], facts, pd.DataFrame(table))


def trace_budgets(
    problem: ThresholdProblem,
    labelled: ThresholdProblem,
    width: float,
    rate: float,
    n_points: int = 25,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return bias and expected accuracy as ε grows from 0 until it binds no group.

    Parameters
    ----------
    problem : ThresholdProblem
        Rows that thresholds are fitted on.
    labelled : ThresholdProblem
        Rows that they are measured on, by codes 2 k + y.
    width, rate : float
        γ and ρ, the same for every ε.
    n_points : int
        Values of ε, evenly spread.

    Returns
    -------
    budget, bias, accuracy : ndarray of float64, shape (n_points,)
        On the rows of ``problem`` the bias is never above ε, and never falls.
    """
    # At ε = 2 every |E[h | k] − ρ| ≤ ε/2, so that all thresholds are 0.
    free = solve_exact(problem, width, rate, 2.0)
    budgets = np.linspace(0.0, 2.0 * float(np.nanmax(np.abs(free.rate - rate))), n_points)
    grids = [solve_grid(problem, [width], [rate], budget) for budget in budgets.tolist()]
    points = np.array([expect_accuracy(labelled, grid) for grid in grids])
    accuracy, bias = points.reshape(n_points, 2).T
    return budgets, bias, accuracy


def judge_rule(rule: ThresholdRule | RampRule, rows: ScoredRows) -> tuple[float, float]:
    """Return the exact expected accuracy of a rule, and max − min of E[h | cell]; O(n)."""
    if rows.y is None:
        raise ValueError("rows without labels judge no rule")
    h = rule.probability(rows.signed, rows.code)
    right = np.where(rows.y == 1, h, 1.0 - h)
    rates = measure_rates(h, rows)
    return float(np.average(right, weights=rows.weight)), float(np.ptp(rates))


def measure_rates(h: np.ndarray, rows: ScoredRows) -> np.ndarray:
    """Return E[h | cell], float64, shape (n_groups,), of cells that all have weight."""
    chosen, total = (
        np.bincount(rows.code, weight, rows.n_groups) for weight in (rows.weight * h, rows.weight)
    )
    return np.asarray(chosen / total)


def _solve(
    rows: ScoredRows,
    cells: np.ndarray,
    criterion: Conditional,
    width: float,
    rate: Any,
    budget: float,
) -> Solution:
    options: dict[str, Any] = {"width": width, "budget": budget, "weight": rows.weight}
    if criterion == "covariance":
        _, member, subgroup = _place_cells(cells)
        return solve_covariance(
            rows.signed, member[rows.code], subgroup[rows.code], int(subgroup.max()) + 1, **options
        )
    groups = (rows.signed, rows.code, rows.n_groups)
    if criterion == "equal_opportunity":
        return solve_opportunity(*groups, rate=rate, **options)
    return solve_odds(*groups, rates=rate, **options)


def _spread(rule: RampRule, cells: np.ndarray, criterion: Conditional) -> RampRule:
    """Return a rule by cell from one by 2 · subgroup + member."""
    if criterion != "covariance":
        return rule
    place, _, _ = _place_cells(cells)
    return RampRule(rule.centre[place], rule.level[place], rule.slope[place])


def _place_cells(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 2 · subgroup + member, membership and subgroup of each cell."""
    member = cells[:, 0] > 0
    if cells.shape[1] == 1:
        subgroup = np.zeros(len(cells), dtype=np.int64)
    else:
        subgroup = np.unique(cells[:, 1:], axis=0, return_inverse=True)[1].reshape(-1)
    return 2 * subgroup + member, member, subgroup
