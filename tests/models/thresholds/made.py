"""Small debiasing problems, and the definitions written out row by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from fairfrontier.models.thresholds.ramp import propose_rates as propose_for
from fairfrontier.models.thresholds.ramp import solve
from fairfrontier.models.thresholds.threshold import build_problem
from fairfrontier.prepare.split import Part


@dataclass(frozen=True, eq=False)
class Rows:
    """Scores, group codes and weights, with a width, a rate and a budget."""

    score: np.ndarray
    code: np.ndarray
    weight: np.ndarray
    n_groups: int
    width: float
    rate: float
    budget: float


def make_rows(seed: int, n: int = 12, n_groups: int = 2, width: float | None = None) -> Rows:
    """Draw a problem: ties, saturated and constant scores, whole and broken weights, all budgets.

    Every group has a row.
    """
    generator = np.random.default_rng(seed)
    score = generator.uniform(-1, 1, n)
    kind = seed % 4
    if kind == 1:
        score = np.round(score * 3) / 3
    elif kind == 2:
        score = np.clip(2 * score, -1, 1)
    elif kind == 3:
        score = np.full(n, generator.choice([-1.0, -0.25, 0.0, 1.0]))
        score[: n // 3] = generator.uniform(-1, 1, n // 3)
    code = np.concatenate([np.arange(n_groups), generator.integers(n_groups, size=n - n_groups)])
    weights = (np.ones(n), generator.integers(1, 4, n).astype(float), generator.exponential(size=n))
    widths = (0.0, 0.01, 0.1, 0.5, 1.0, 3.0)
    return Rows(
        score=score,
        code=code,
        weight=weights[seed % 3],
        n_groups=n_groups,
        width=float(generator.choice(widths)) if width is None else width,
        rate=float(generator.choice([0.0, 0.05, 0.3, 0.5, generator.random(), 1.0])),
        budget=float(generator.choice([0.0, 0.0, 0.1, 0.4, 1.5])),
    )


def ramp(score: np.ndarray, threshold: np.ndarray | float, width: float) -> np.ndarray:
    """Return h of equation 1 for a positive width."""
    return np.clip((score - threshold) / width, 0.0, 1.0)


def objective(rows: Rows, h: np.ndarray) -> float:
    """Return Σ w [(γ/2) h² − h f] / Σ w."""
    return float(np.average(rows.width / 2 * h**2 - h * rows.score, weights=rows.weight))


def group_rates(rows: Rows, h: np.ndarray) -> np.ndarray:
    """Return E[h | group k]."""
    held = [rows.code == k for k in range(rows.n_groups)]
    return np.array([np.average(h[each], weights=rows.weight[each]) for each in held])


def make_part(seed: int = 0, n: int = 3000, name: str = "train") -> Part:
    """Draw probabilities that are calibrated, and lean on sex and race."""
    generator = np.random.default_rng(seed)
    groups = np.column_stack([generator.integers(2, size=n), generator.integers(3, size=n)])
    score = generator.beta(2 + groups[:, 0], 4 - 0.5 * groups[:, 1])
    return Part(
        dataset="made",
        name=name,
        ids=generator.permutation(10 * n)[:n].astype(np.int64),
        X=score[:, None],
        y=(generator.random(n) < score).astype(np.int64),
        groups=groups.astype(np.int64),
        protected=groups.astype(np.float64),
        weight=np.ones(n),
        attributes={"sex": ("Female", "Male"), "race": ("A", "B", "C")},
        classes=("no", "yes"),
    )


def build(score, code, n_groups, weight=None):
    """Sort the rows of weight > 0."""
    if weight is not None:
        score, code, weight = (each[weight > 0] for each in (score, code, weight))
    return build_problem(score, code, n_groups, weight)


def cross(member, subgroup):
    """Return 2 · subgroup + member."""
    xp = array_namespace(subgroup)
    return 2 * subgroup + xp.astype(member, subgroup.dtype)


def solve_covariance(score, member, subgroup, n_subgroups, *, width, budget, weight=None, cut=0.0):
    """Solve under a bound on the covariance."""
    problem = build(score, cross(member, subgroup), 2 * n_subgroups, weight)
    return solve(problem, "covariance", width, None, budget, cut)


def solve_opportunity(score, code, n_groups, *, width, rate, budget, weight=None, cut=0.0):
    """Solve under equal opportunity."""
    problem = build(score, code, n_groups, weight)
    return solve(problem, "equal_opportunity", width, rate, budget, cut)


def solve_odds(score, code, n_groups, *, width, rates, budget, weight=None, cut=0.0):
    """Solve under equalised odds."""
    problem = build(score, code, n_groups, weight)
    return solve(problem, "equalized_odds", width, tuple(rates), budget, cut)


def propose_rates(score, code, n_groups, *, criterion, weight=None, **options):
    """Propose rates of rows."""
    return propose_for(build(score, code, n_groups, weight), criterion, **options)
