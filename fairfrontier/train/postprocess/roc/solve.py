"""Exact thresholds by group on labels: the optimum for an objective under a bound on rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.train.postprocess.roc.curve import (
    BOUNDED,
    Criterion,
    Curve,
    Gain,
    Objective,
    build_curves,
    weigh_objective,
)
from fairfrontier.train.postprocess.roc.odds import solve_odds
from fairfrontier.train.postprocess.roc.rate import (
    Draw,
    Optimum,
    draw_within,
    find_base,
    solve_rate,
)
from fairfrontier.train.postprocess.rule import MixtureRule

# Dinkelbach's steps converge superlinearly, in about five.
MOST_STEPS = 50
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class GroupSolution:
    """The optimum, with its certificate.

    Attributes
    ----------
    rule : MixtureRule
        By group, on the scale of the scores; thresholds are infinite where all or none are chosen.
    value : float
        The objective on the fitted rows, in expectation.
    dual_value : float
        Upper bound on the objective of every randomised rule within the bound.
    rates : ndarray of float64, shape (n_groups, 3)
        Selection rate, true and false positive rate; NaN where they are 0/0.
    gap : float
        Largest difference of the bounded rates between groups, or the mean of two such differences.
    converged : bool
        Whether no rule of the kind asked for is better, up to rounding.
    """

    rule: MixtureRule
    value: float
    dual_value: float
    rates: np.ndarray
    gap: float
    converged: bool

    @property
    def duality_gap(self) -> float:
        """0 up to rounding with draws; without, at most what they would add."""
        return self.dual_value - self.value


def solve_groups(
    score: np.ndarray,
    y: np.ndarray,
    code: np.ndarray,
    n_groups: int,
    *,
    weight: np.ndarray | None = None,
    objective: Objective = "accuracy",
    criterion: Criterion = "parity",
    bound: float = 0.0,
    randomized: bool = True,
    no_harm: bool = False,
) -> GroupSolution:
    """Find the best thresholds by group whose rates differ by at most a bound.

    Arguments are those of `build_curves`, which sorts, and `solve_curves`, which solves.
    """
    curves = build_curves(score, y, code, n_groups, weight)
    return solve_curves(
        curves,
        objective=objective,
        criterion=criterion,
        bound=bound,
        randomized=randomized,
        no_harm=no_harm,
    )


def solve_curves(
    curves: Sequence[Curve],
    *,
    objective: Objective = "accuracy",
    criterion: Criterion = "parity",
    bound: float = 0.0,
    randomized: bool = True,
    no_harm: bool = False,
) -> GroupSolution:
    """Solve on ROC curves, which serve any number of bounds, criteria and objectives.

        max objective   s.t.  max_k rate_k − min_k rate_k ≤ bound

    over all draws among the thresholds of each group, or one threshold each.

    Parameters
    ----------
    objective : {"accuracy", "balanced_accuracy", "f1"} or {"costs": {...}}
        Costs are ``false_positive`` and ``false_negative`` ≥ 0, per row, and counted with a minus.
        F1 = 2 TP/(TP + FP + P) is maximised by Dinkelbach's steps: each is the linear objective
        2 TP − θ (TP + FP + P) with θ the F1 of the step before.
    criterion : {"parity", "equal_opportunity", "predictive_equality", "equalized_odds",
        "average_odds"}
        What differs by at most the bound: E[h], E[h | y=1], E[h | y=0], both of the latter, or the
        mean of their two differences.
    bound : float
        ≥ 0; with 0 rates are equal, from 1 on nothing is bounded.
    randomized : bool
        Whether two thresholds may be drawn from (up to three for odds).
    no_harm : bool
        No group's rate gets worse than under the best thresholds without a bound: its selection
        rate, or its true positive rate for opportunity and odds, does not
        fall; its false positive rate for ``predictive_equality`` does not rise.

    References
    ----------
    W. Dinkelbach. On nonlinear fractional programming. Management Science 13, 1967. Others as in
    `rate` and `odds`.
    """
    positive = sum(float(curve.positive[-1]) for curve in curves)
    negative = sum(float(curve.negative[-1]) for curve in curves)
    if positive + negative == 0:
        raise ValueError("no row has weight")

    def solve(gain: Gain, base: list[int] | None) -> Optimum:
        if len(BOUNDED[criterion]) > 1:
            mean = criterion == "average_odds"
            return solve_odds(curves, gain, bound, mean=mean, base=base, randomized=randomized)
        return solve_rate(curves, gain, criterion, bound, base=base, randomized=randomized)

    def draw_base(gain: Gain, _: list[int] | None) -> Optimum:
        cuts = find_base(curves, gain)
        return Optimum([Draw(np.array([cut]), np.ones(1)) for cut in cuts], 0.0, 0.0, proven=True)

    def optimise(step: Any, base: list[int] | None) -> Optimum:
        if objective != "f1":
            optimum: Optimum = step(weigh_objective(objective, positive, negative), base)
            return optimum
        theta = 0.0
        for _ in range(MOST_STEPS):
            found = step(weigh_objective(objective, positive, negative, theta), base)
            chosen = _measure(curves, found.draws)
            true, false = chosen.sum(axis=0)
            f1 = 2.0 * true / (true + false + positive) if positive > 0 else 0.0
            if f1 - theta <= ROUNDING:
                break
            theta = f1
        # 2 TP − θ (TP + FP + P) ≤ D for all rules, so that F1 ≤ θ + D/P.
        excess = max(found.dual_value, 0.0) / positive if positive > 0 else 0.0
        return Optimum(found.draws, f1, theta + excess, found.proven)

    base = [int(draw.cuts[0]) for draw in optimise(draw_base, None).draws] if no_harm else None
    optimum = optimise(solve, base)
    rates = find_rates(curves, _measure(curves, optimum.draws))
    return GroupSolution(
        rule=_draw_rule(curves, optimum.draws),
        value=optimum.value,
        dual_value=optimum.dual_value,
        rates=rates,
        gap=measure_gap(rates, criterion),
        converged=optimum.proven,
    )


def pool_groups(
    whole: Curve,
    solution: GroupSolution,
    objective: Objective,
    criterion: Criterion,
    *,
    randomized: bool = True,
) -> MixtureRule:
    """Return the rule with one more row, for groups that were not seen.

    It is best for all rows together, whose curve is ``whole``, among those with a rate (under odds
    a true positive rate) from the lowest to the highest of the groups.
    """
    name: Criterion = criterion if len(BOUNDED[criterion]) == 1 else "equal_opportunity"
    reached = solution.rates[:, BOUNDED[name][0]]
    totals = (float(whole.positive[-1]), float(whole.negative[-1]))
    gain = weigh_objective(objective, *totals, theta=solution.value)
    draw = draw_within(
        whole, gain, name, float(reached.min()), float(reached.max()), randomized=randomized
    )
    return _draw_rule([whole], [draw], solution.rule)


def apply_rule(curves: Sequence[Curve], rule: MixtureRule) -> np.ndarray:
    """Return the positives and negatives of each group that a rule chooses, (n_groups, 2)."""
    cuts = [curve.find_cuts(own) for curve, own in zip(curves, rule.threshold, strict=True)]
    return _measure(curves, [Draw(*pair) for pair in zip(cuts, rule.share, strict=True)])


def find_rates(curves: Sequence[Curve], chosen: np.ndarray) -> np.ndarray:
    """Return selection rate, true and false positive rate by group, (n_groups, 3), NaN for 0/0.

    ``chosen`` has the chosen positives and negatives, (n_groups, 2).
    """
    totals = np.array([(curve.positive[-1], curve.negative[-1]) for curve in curves])
    part, mass = (np.column_stack([each.sum(axis=1), each]) for each in (chosen, totals))
    rates: np.ndarray = np.divide(part, mass, out=np.full_like(mass, np.nan), where=mass > 0)
    return rates


def measure_gap(rates: np.ndarray, criterion: Criterion) -> float:
    """Return the difference of ``rates``, (n_groups, 3), that a criterion bounds; not of NaN."""
    columns = (rates[~np.isnan(rates[:, j]), j] for j in BOUNDED[criterion])
    gaps = [np.ptp(rate) if rate.size else 0.0 for rate in columns]
    return float(np.mean(gaps) if criterion == "average_odds" else np.max(gaps))


def _measure(curves: Sequence[Curve], draws: Sequence[Draw]) -> np.ndarray:
    """Return the chosen positives and negatives of each group, (n_groups, 2)."""
    return np.array(
        [
            (draw.shares @ curve.positive[draw.cuts], draw.shares @ curve.negative[draw.cuts])
            for curve, draw in zip(curves, draws, strict=True)
        ]
    )


def _draw_rule(
    curves: Sequence[Curve], draws: Sequence[Draw], before: MixtureRule | None = None
) -> MixtureRule:
    """Return draws as thresholds and shares, below the rows of a rule; unused ones have share 0."""
    rows = [] if before is None else list(zip(before.threshold, before.share, strict=True))
    for curve, draw in zip(curves, draws, strict=True):
        rows.append((np.array([curve.threshold(int(cut)) for cut in draw.cuts]), draw.shares))
    size = max(share.size for _, share in rows)
    threshold = np.array([np.pad(each, (0, size - each.size), "edge") for each, _ in rows])
    return MixtureRule(
        threshold, np.array([np.pad(each, (0, size - each.size)) for _, each in rows])
    )
