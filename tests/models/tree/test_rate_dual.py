from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from fairfrontier.models.tree.rate_dual import RateProblem, solve_rates


def draw_problem(bound, seed=0, n=300):
    """Three groups in one event and two in another, each with its rates."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.5, 2.0, n)
    weight /= weight.sum()
    lean = rng.dirichlet(np.ones(5), n)
    gain = lean @ [0.9, -0.2, -0.7, 0.6, -0.5] + 0.3 * rng.normal(size=n)
    return RateProblem(gain, lean / (weight @ lean), np.array([0, 0, 0, 1, 1]), weight, bound)


def solve_program(problem):
    """Return the best expected gain within the bound, by a linear programme over all rules."""
    reached = problem.weight[:, None] * problem.share
    pairs = [(i, j) for i in range(5) for j in range(5)
             if i != j and problem.event[i] == problem.event[j]]  # fmt: skip
    rows = np.array([reached[:, i] - reached[:, j] for i, j in pairs])
    found = linprog(-problem.weight * problem.gain, A_ub=rows, b_ub=[problem.bound] * len(rows),
                    bounds=(0, 1))  # fmt: skip
    return -found.fun


@pytest.mark.parametrize("bound", [0.0, 0.03, 0.1, 1.0])
def test_the_dual_is_the_best_gain_of_all_rules(bound):
    problem = draw_problem(bound)
    found = solve_rates(problem)
    best = solve_program(problem)
    assert best - 1e-9 <= found.value <= best + found.gap + 1e-9
    assert found.gap <= 1e-5
    for event in (0, 1):
        assert abs(found.price[problem.event == event].sum()) < 1e-9
    # Thresholds at these prices reach it, but for the one or two rows on which they lie.
    chosen = problem.weight * (problem.gain > problem.share @ found.price)
    assert chosen @ problem.gain == pytest.approx(best, abs=0.02)
    rates = chosen @ problem.share
    gaps = [np.ptp(rates[problem.event == event]) for event in (0, 1)]
    assert max(gaps) <= bound + 0.05


def test_no_price_where_no_bound_binds():
    assert not solve_rates(draw_problem(1.0)).price.any()
