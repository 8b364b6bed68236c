"""Small tables of scores, and the optimum over all their cuts."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import linprog

from fairfrontier.models.thresholds.curve import BOUNDED, build_curves
from fairfrontier.models.thresholds.programme import measure_gap

# The rate that may not get worse under no_harm, and the direction in which it is better.
HARM = dict.fromkeys(BOUNDED, (1, 1.0)) | {"parity": (0, 1.0), "predictive_equality": (2, -1.0)}


def draw_table(seed, n=None, n_groups=None):
    """Scores, expected labels, codes and weights: ties, constants, empty and one-sided groups."""
    generator = np.random.default_rng(seed)
    n_groups = n_groups or int(generator.integers(1, 6))
    n = n or int(generator.integers(4, 14))
    score = generator.random(n)
    if seed % 2:
        score = np.round(score * 4) / 4
    if seed % 7 == 6:
        score[:] = 0.5
    code = generator.integers(n_groups, size=n)
    y = score if seed % 5 == 4 else (generator.random(n) < score).astype(float)
    weight = [None, None, generator.integers(0, 4, n).astype(float), generator.random(n)][seed % 4]
    return score, y, code, n_groups, weight


def draw_curves(seed, **sizes):
    score, y, code, n_groups, weight = draw_table(seed, **sizes)
    return build_curves(score, y, code, n_groups, weight)


def solve_programme(curves, gain, criterion, bound, base=None):
    """Return the optimum of the linear programme with all cuts of all groups as columns."""
    stops = np.cumsum([0, *(curve.positive.size for curve in curves)])
    size = stops[-1]
    cost, whole = np.zeros(size + 4), np.zeros((len(curves), size + 4))
    rows, limits = [], []
    for k, curve in enumerate(curves):
        span = slice(stops[k], stops[k + 1])
        cost[span], whole[k, span] = -gain.of(curve, slice(None)), 1.0
        rates = [curve.rate(column) for column in range(3)]
        for j, column in enumerate(BOUNDED[criterion]):
            for sign in (1.0, -1.0) if not np.isnan(rates[column]).any() else ():
                row = np.zeros(size + 4)
                row[span], row[size + j] = sign * rates[column], -sign
                row[size + 2 + j] = -(sign > 0)
                rows, limits = [*rows, row], [*limits, 0.0]
        column, better = HARM[criterion]
        if base is not None and not np.isnan(rates[column]).any():
            row = np.zeros(size + 4)
            row[span] = -better * rates[column]
            rows, limits = [*rows, row], [*limits, -better * rates[column][base[k]]]
    mean = criterion == "average_odds"
    row = np.zeros(size + 4)
    row[size + 2 :] = mean
    found = linprog(
        cost,
        np.array([*rows, row]),
        [*limits, 2 * bound],
        whole,
        np.ones(len(curves)),
        bounds=[(0, 1)] * size + [(-2, 2)] * 2 + [(0, 2 * bound if mean else bound)] * 2,
    )
    assert found.success
    return gain.constant - found.fun


def try_all(curves, gain, criterion, bound, base=None):
    """Return the best value of one cut for each group."""
    rates = [np.array([curve.rate(column) for column in range(3)]).T for curve in curves]
    worth = [gain.of(curve, slice(None)) for curve in curves]
    column, better = HARM[criterion]
    best = -np.inf
    for cuts in product(*(range(curve.positive.size) for curve in curves)):
        reached = np.array([each[cut] for each, cut in zip(rates, cuts, strict=True)])
        if measure_gap(reached, criterion) > bound + 1e-12:
            continue
        if base is not None:
            before = [each[cut, column] for each, cut in zip(rates, base, strict=True)]
            if (better * (reached[:, column] - before) < -1e-12).any():
                continue
        value = sum(each[cut] for each, cut in zip(worth, cuts, strict=True))
        best = max(best, gain.constant + value)
    return best
