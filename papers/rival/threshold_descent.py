"""Near-optimal debiasing by stochastic descent: the paper's algorithm and its authors' schedule.

    min_{λ,μ≥0} F = E[(ε/2)(λ_s + μ_s) + ρ (λ_s − μ_s) + ξ_γ(f − (λ_s − μ_s))]             (4)

s is the group of a row with score f ∈ [−1, 1], and ξ_γ'(w) = clip(w/γ, 0, 1). With
h = clip((f − (λ_s − μ_s))/γ, 0, 1), the row's gradient is ε/2 + ρ − h in λ_s, ε/2 − ρ + h in μ_s
and 0 in the multipliers of other groups (2). `ramp.solve_exact` finds the same minimum from
one sort; these solvers are for comparison with the published results.

References
----------
I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning models.
NeurIPS 2021, equations 2 to 4, algorithm 1, proposition 1; their code (google-research,
ml_debiaser/randomized_threshold.py) for the schedule.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from array_api_compat import device

from fairfrontier.models.group import Attributes
from fairfrontier.models.objective import Objective
from fairfrontier.models.registry import method
from fairfrontier.models.thresholds.randomized_threshold import (
    RATE_OFFSETS,
    WIDTHS,
    RandomizedThreshold,
)
from fairfrontier.models.thresholds.rule import Scale, ThresholdRule, conjugate
from fairfrontier.models.thresholds.sample import ScoredRows
from fairfrontier.models.thresholds.threshold import BINS, Segment, build_problem
from fairfrontier.runtime.arrays import array_namespace, segment_sum, to_numpy

Array = Any
Descent = Literal["sgd", "authors"]

# The number of passes in the paper's figure 2b, within bounds that keep a descent short.
PASSES = 25
FEWEST_STEPS, MOST_STEPS = 100_000, 1_000_000
# Rows drawn at a time.
BLOCK = 1 << 16
# Up to this ε/2 the authors drop μ and let λ take either sign.
SMALLEST_HALF_BUDGET = 1e-3


@dataclass(frozen=True, eq=False)
class DescentResult:
    """Where a descent ended.

    ``upper`` and ``lower`` are λ and μ, the multipliers of E[h | k] ≤ ρ + ε/2 and of
    E[h | k] ≥ ρ − ε/2, averaged over the steps; the rule has thresholds λ − μ. ``objective`` is F
    of (4) there, over the given rows; its minimum is −``dual_value`` of the exact solution.
    ``trace``, (n_points, n_groups), is the average of λ − μ over the first ``trace_steps`` steps,
    which are evenly spread and end with ``steps``.
    """

    upper: np.ndarray
    lower: np.ndarray
    rule: ThresholdRule
    objective: float
    steps: int
    trace_steps: np.ndarray
    trace: np.ndarray


def evaluate_dual(
    score: Array,
    code: Array,
    upper: np.ndarray,
    lower: np.ndarray,
    *,
    width: float,
    rate: float,
    budget: float,
    weight: Array | None = None,
) -> float:
    """Return F of (4) at multipliers λ (``upper``) and μ (``lower``) of shape (n_groups,); O(n)."""
    xp = array_namespace(score)
    n_groups = len(upper)
    score = xp.astype(score, xp.float64)
    mass = xp.ones_like(score) if weight is None else xp.astype(weight, xp.float64)
    threshold = xp.asarray(np.asarray(upper) - np.asarray(lower), device=device(score))
    excess = score - xp.take(threshold, code)
    total = float(xp.sum(mass))
    share = to_numpy(segment_sum(mass, code, n_groups)) / total
    linear = share @ (budget / 2 * (upper + lower) + rate * (upper - lower))
    return float(linear) + float(xp.sum(mass * conjugate(excess, width))) / total


def solve_sgd(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    width: float,
    rate: float,
    budget: float,
    weight: Array | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    batch_size: int = 1,
    random_state: int = 0,
    trace: int = 0,
) -> DescentResult:
    """Minimise (4) by the paper's projected SGD, from λ = μ = 0, averaging over all steps.

        λ_s ← max(0, λ_s − α (ε/2 + ρ − h)),   μ_s ← max(0, μ_s − α (ε/2 − ρ + h))            (2)

    ``score``, ``code`` and ``n_groups`` are as in `threshold.build_problem`; ``width`` is above 0.
    Rows are drawn with replacement, in proportion to ``weight``. ``steps`` is T: by default 25
    passes over the rows, but at least 100,000 and at most 1,000,000. ``learning_rate`` is α, by
    default the paper's 0.1 √(K/T). A step takes the mean gradient of ``batch_size`` rows, 1 in
    algorithm 1. ``trace`` is the number of points at which the average of λ − μ is recorded.
    ValueError is raised where γ is not above 0, or there is no row to draw.

    Within 1/2 (1 + ρ + ε)² α + (‖λ*‖² + ‖μ*‖²)/(2 T α) of the minimum in expectation (proposition
    1), so O(√(K/T)): T counts rows of all groups, and a group with few of them moves little.

    A step changes the multipliers of one group only, so the steps between two records are made
    group by group over plain numbers on the host, whatever the backend of the scores: the same
    iterates as row by row. 0.2 s for a million steps; memory O(n) for the copy on the host.
    """
    _check(width, score, weight)
    scores, codes = to_numpy(score).astype(np.float64), to_numpy(code)
    if steps is None:
        passes = math.ceil(PASSES * scores.size / batch_size)
        steps = min(max(passes, FEWEST_STEPS), MOST_STEPS)
    alpha = 0.1 * math.sqrt(n_groups / steps) if learning_rate is None else learning_rate
    walk = _Walk(n_groups, width, rate, budget, alpha)
    draw = _draw_rows(None if weight is None else to_numpy(weight), scores.size, random_state)
    marks = {round(steps * (point + 1) / trace) for point in range(trace)} - {0}
    recorded = []
    for start, stop in _cut(steps, max(1, BLOCK // batch_size), marks):
        rows_drawn = draw((stop - start) * batch_size)
        if batch_size == 1:
            walk.follow(scores[rows_drawn], codes[rows_drawn])
        else:
            shape = (stop - start, batch_size)
            walk.follow_batches(scores[rows_drawn].reshape(shape), codes[rows_drawn].reshape(shape))
        if stop in marks:
            recorded.append(walk.upper_sum / stop - walk.lower_sum / stop)
    return _conclude(
        score, code, weight, walk.upper_sum / steps, walk.lower_sum / steps, steps,
        sorted(marks), recorded, width=width, rate=rate, budget=budget,
    )  # fmt: skip


class _Walk:
    """λ and μ during a descent, and the sums of their values after each step."""

    def __init__(
        self, n_groups: int, width: float, rate: float, budget: float, alpha: float
    ) -> None:
        self.upper, self.lower = np.zeros(n_groups), np.zeros(n_groups)
        self.upper_sum, self.lower_sum = np.zeros(n_groups), np.zeros(n_groups)
        self.width, self.alpha = width, alpha
        self.rise, self.fall = budget / 2 + rate, budget / 2 - rate

    def follow(self, score: np.ndarray, code: np.ndarray) -> None:
        """Take one step for each row."""
        for group in range(self.upper.size):
            rows = np.flatnonzero(code == group)
            uppers, lowers = self._walk_group(group, score[rows].tolist())
            # A value lasts until the group's next row.
            lasts = np.diff(np.concatenate([[0], rows, [score.size]]))
            self.upper_sum[group] += lasts @ uppers
            self.lower_sum[group] += lasts @ lowers
            self.upper[group], self.lower[group] = uppers[-1], lowers[-1]

    def _walk_group(self, group: int, scores: list[float]) -> tuple[np.ndarray, np.ndarray]:
        """Return λ and μ of a group before its rows and after each of them."""
        upper, lower = float(self.upper[group]), float(self.lower[group])
        alpha, slope, rise, fall = self.alpha, 1.0 / self.width, self.rise, self.fall
        uppers, lowers = [upper], [lower]
        for f in scores:
            h = (f - upper + lower) * slope
            h = 0.0 if h < 0.0 else min(h, 1.0)
            upper -= alpha * (rise - h)
            lower -= alpha * (fall + h)
            if upper < 0.0:
                upper = 0.0
            if lower < 0.0:
                lower = 0.0
            uppers.append(upper)
            lowers.append(lower)
        return np.asarray(uppers), np.asarray(lowers)

    def follow_batches(self, score: np.ndarray, code: np.ndarray) -> None:
        """Take one step for each row of the matrices, along the mean gradient of its entries."""
        n_groups, size = self.upper.size, score.shape[1]
        for f, s in zip(score, code, strict=True):
            h = np.clip((f - (self.upper - self.lower)[s]) / self.width, 0.0, 1.0)
            share = np.bincount(s, minlength=n_groups) / size
            chosen = np.bincount(s, h, n_groups) / size
            upper = self.upper - self.alpha * (share * self.rise - chosen)
            lower = self.lower - self.alpha * (share * self.fall + chosen)
            self.upper, self.lower = np.maximum(upper, 0.0), np.maximum(lower, 0.0)
            self.upper_sum += self.upper
            self.lower_sum += self.lower


def _draw_rows(
    weight: np.ndarray | None, n_samples: int, random_state: int
) -> Callable[[int], np.ndarray]:
    """Return a function that draws positions of rows with replacement, in proportion to weight.

    The draws do not depend on how they are split over calls.
    """
    edges = None if weight is None else np.cumsum(weight, dtype=np.float64)
    generator = np.random.default_rng(random_state)

    def draw(size: int) -> np.ndarray:
        uniform = generator.random(size)
        if edges is None:
            return (uniform * n_samples).astype(np.int64)
        return np.asarray(np.searchsorted(edges, uniform * edges[-1], side="right"))

    return draw


def _cut(steps: int, block: int, marks: set[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of steps that end at every mark, and after ``block`` steps at most."""
    yield from itertools.pairwise(sorted({*range(0, steps, block), *marks, steps}))


def solve_authors(
    score: Array,
    code: Array,
    n_groups: int,
    *,
    width: float,
    rate: float,
    budget: float,
    weight: Array | None = None,
    batch_size: int = 256,
    steps: int = 10_000,
    refine: int = 1_000,
    random_state: int = 0,
) -> DescentResult:
    """Minimise (4) by the schedule of the authors' code.

    Each group separately: ``steps`` steps at rate γ √(batch/steps) along the mean gradient of a
    batch of its rows, averaged from the first step on; then ``refine`` steps of rate γ/2 from that
    average, along the gradient over all of its rows. Where ε/2 ≤ 0.001 there is no μ, and λ may
    take either sign. Parameters as in `solve_sgd`; there is no trace. ValueError is raised where γ
    is not above 0, or a group has no row to draw.

    For 0 < ε ≤ 0.002 this does not solve (4): without μ it steers every group to ρ + ε/2. Nor does
    ``refine`` bound the distance to the minimum; compare ``objective``.

    The groups' steps are made side by side, and the full gradients come from one sort and running
    sums, which changes rounding only: O(n log n + steps · K · batch + refine · K · log n).
    """
    _check(width, score, weight)
    problem = build_problem(score, code, n_groups, weight)
    if empty := [k for k, segment in enumerate(problem.segments) if not segment.total > 0]:
        raise ValueError(f"no row to draw in the groups {empty}")
    half = budget / 2
    signed = half <= SMALLEST_HALF_BUDGET
    floor = -math.inf if signed else 0.0
    host = [segment.on_host() for segment in problem.segments]
    generator = np.random.default_rng(random_state)
    upper, lower = np.zeros(n_groups), np.zeros(n_groups)
    upper_sum, lower_sum = np.zeros(n_groups), np.zeros(n_groups)

    def step(upper: np.ndarray, lower: np.ndarray, h: np.ndarray, alpha: float) -> Any:
        moved = np.maximum(upper - alpha * (half + rate - h), floor)
        return moved, lower if signed else np.maximum(lower - alpha * (half - rate + h), 0.0)

    alpha = width * math.sqrt(batch_size / max(steps, 1))
    block = max(1, BLOCK // (batch_size * n_groups))
    for start, stop in _cut(steps, block, set()):
        uniform = generator.random((n_groups, stop - start, batch_size))
        drawn = [
            rows.score[np.searchsorted(rows.mass, u * rows.mass[-1], side="right") - 1]
            for rows, u in zip(host, uniform, strict=True)
        ]
        for f in np.stack(drawn, axis=1):
            t = (upper - lower)[:, None]
            h = (np.clip(f, t, t + width) - t).mean(axis=1) / width
            upper, lower = step(upper, lower, h, alpha)
            upper_sum += upper
            lower_sum += lower
    upper, lower = upper_sum / max(steps, 1), lower_sum / max(steps, 1)
    for _ in range(refine):
        h = np.array([_mean(rows, t, width) for rows, t in zip(host, upper - lower, strict=True)])
        upper, lower = step(upper, lower, h, width / 2)
    return _conclude(
        score, code, weight, upper, lower, steps + refine,
        [], [], width=width, rate=rate, budget=budget,
    )  # fmt: skip


def _mean(segment: Segment, t: float, width: float) -> float:
    """Return E[clip((f − t)/γ, 0, 1)] over all rows of a group, from running sums on the host."""
    mass, moment = segment.mass, segment.moment
    lower, upper = np.searchsorted(segment.score, [t, t + width])
    ramp = moment[upper] - moment[lower] - t * (mass[upper] - mass[lower])
    return float((ramp / width + mass[-1] - mass[upper]) / mass[-1])


def _check(width: float, score: Array, weight: Array | None) -> None:
    if not width > 0:
        raise ValueError(f"descent needs a width above 0, not {width}")
    xp = array_namespace(score)
    if not score.shape[0] or (weight is not None and not float(xp.sum(weight)) > 0):
        raise ValueError("no row to draw")


def _conclude(
    score: Array,
    code: Array,
    weight: Array | None,
    upper: np.ndarray,
    lower: np.ndarray,
    steps: int,
    trace_steps: list[int],
    trace: list[np.ndarray],
    **setting: float,
) -> DescentResult:
    return DescentResult(
        upper=upper,
        lower=lower,
        rule=ThresholdRule(setting["width"], upper - lower, np.zeros(upper.size)),
        objective=evaluate_dual(score, code, upper, lower, weight=weight, **setting),
        steps=steps,
        trace_steps=np.asarray(trace_steps, dtype=np.int64),
        trace=np.asarray(trace, dtype=np.float64).reshape(-1, upper.size),
    )


@method("threshold_descent")
class ThresholdDescent(RandomizedThreshold):
    """Randomised thresholds under parity as the paper finds them, for a width above 0.

    Width and rate are chosen by exact solutions, as in `RandomizedThreshold`, whose parameters it
    has but ``criterion``, ``within``, ``solver``, ``bins`` and ``calibrate``.

    Parameters
    ----------
    descent : {"sgd", "authors"}
        The paper's projected SGD, or its authors' schedule.
    steps, batch_size, learning_rate : int, int and float, or None
        Of ``sgd``; the first two of ``authors`` too. None takes the published values.

    Attributes
    ----------
    result_ : dict
        The ``dual_objective``, F of (4), ``steps``, ``rates`` and ``rows``.

    References
    ----------
    I. Alabdulmohsin, M. Lucic. A near-optimal algorithm for debiasing trained machine learning
    models. NeurIPS 2021, algorithm 1.
    """

    # Rows are drawn.
    weights_are_counts: ClassVar[bool] = False
    group_parameters: ClassVar[tuple[str, ...]] = ("attributes",)
    retired: ClassVar[frozenset[str]] = frozenset()
    example: ClassVar[Mapping[str, Any]] = {**RandomizedThreshold.example, "steps": 1000}

    def __init__(
        self,
        *,
        attributes: Attributes = None,
        objective: Objective = "accuracy",
        budget: float = 0.0,
        width: float | None = None,
        rate: float | None = None,
        width_grid: Sequence[float] = WIDTHS,
        rate_offsets: Sequence[float] = RATE_OFFSETS,
        descent: Descent = "sgd",
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        scale: Scale = "probability",
        random_state: int = 0,
    ) -> None:
        self.attributes = attributes
        self.objective = objective
        self.budget = budget
        self.width = width
        self.rate = rate
        self.width_grid = width_grid
        self.rate_offsets = rate_offsets
        self.descent = descent
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.scale = scale
        self.random_state = random_state

    # What the exact solutions take that this has no choice of.
    criterion = "parity"
    solver = "exact"
    within = calibrate = None
    bins = BINS

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.require("descent", self.descent in get_args(Descent), "sgd or authors")
        self.require("width", self.width != 0, "a number from 1e-6, or null")
        self.require("width_grid", 0 not in self.width_grid, "numbers from 1e-6")
        for name in ("steps", "batch_size"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            self.require(name, value is None or whole, "a whole number from 1, or null")
        speed = self.learning_rate
        valid = speed is None or (self.descent == "sgd" and 0 < speed < math.inf)
        self.require("learning_rate", valid, "a number above 0 with the descent sgd, or null")

    def _choose(self, rows: ScoredRows, fresh: ScoredRows, cut: float) -> dict[str, Any]:
        super()._choose(rows, fresh, cut)
        options = {name: getattr(self, name) for name in ("steps", "batch_size", "learning_rate")}
        solve: Any = solve_sgd if self.descent == "sgd" else solve_authors
        found: DescentResult = solve(
            rows.signed - cut,
            rows.code,
            rows.n_groups,
            width=self.width_,
            rate=self.rate_,
            budget=self.budget,
            weight=rows.weight,
            random_state=self.random_state,
            **{name: value for name, value in options.items() if value is not None},
        )
        self.rule_ = replace(found.rule, threshold=found.rule.threshold + cut)
        return {"dual_objective": found.objective, "steps": found.steps}
