"""Thresholds under bounds in words, against linear programmes and against all cuts."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from fairfrontier.models.thresholds.bound import RATES, read_bound
from fairfrontier.models.thresholds.bounded import Problem, solve_bounds
from fairfrontier.models.thresholds.curve import build_curves, weigh_objective
from fairfrontier.models.thresholds.programme import solve_curves
from fairfrontier.runtime.errors import ConfigError, UnattainableError

LEVELS = {"sex": np.array(["f", "m", "f", "m"]), "race": np.array(["a", "a", "b", "b"])}
LINEAR = [
    "selection_rate_difference:sex <= 0.05",
    "selection_rate_ratio:race >= 0.8",
    "tpr_min:race >= 0.6",
    "fpr_max:sex×race <= 0.3",
    "error_rate_difference:sex to overall <= 0.02",
    "tpr_ratio:sex to overall >= 0.9",
    "selection_rate_difference:sex | race <= 0.05",
    "selection_rate <= 0.2",
    "selected <= 25",
    "share:race=b >= 0.4",
    "selection_rate:sex=f >= 0.5",
    "gap_max:sex <= 0.03",
    "fdr_max:race <= 0.35",
    "npv_min:sex >= 0.6",
]
FRACTIONAL = [
    "ppv_difference:sex <= 0.02",
    "for_ratio:race >= 0.9",
    "ppv_difference:race to overall <= 0.02",
    "fdr_difference:sex | race <= 0.1",
]


def draw(seed, n=240, weighted=False):
    generator = np.random.default_rng(seed)
    code = generator.choice(4, n, p=[0.2, 0.3, 0.2, 0.3])
    score = np.round(generator.normal(size=n) + 0.4 * (code % 2) - 0.3 * (code // 2), 1)
    y = (generator.random(n) < 1 / (1 + np.exp(-1.5 * score + 0.2))).astype(float)
    return build_curves(score, y, code, 4, generator.random(n) if weighted else None)


def solve_all(curves, gain, bounds, fixed=()):
    """Return the optimum with all cuts of all cells as columns, and pairs of groups as rows.

    Rates that are fractional are held to ``fixed`` intervals.
    """
    stops = np.cumsum([0, *(each.positive.size for each in curves)])
    owner = np.repeat(np.arange(len(curves)), np.diff(stops))
    true, false = (
        np.concatenate([getattr(c, side) for c in curves]) for side in ("positive", "negative")
    )
    totals = np.array([(c.positive[-1], c.negative[-1]) for c in curves])
    # Sums over the cells of TP, FP, P and N as functions of the shares of the columns.
    sums = np.stack([true, false, totals[owner, 0], totals[owner, 1]])
    rows, limits = [], []

    def write(row, most):
        rows.append(row)
        limits.append(most)

    for text in bounds:
        bound = read_bound(text)
        sign = 1.0 if bound.sign == "<=" else -1.0
        for compared in bound.compare(LEVELS):
            whole = np.ones(4, bool)
            if bound.strata:
                whole = LEVELS["race"] == compared.stratum
            for name in bound.rates:
                numerator, denominator = RATES[name]
                groups = [mask[owner] for mask in compared.masks]
                if bound.form in ("selected", "share"):
                    limit = bound.limit if bound.form == "share" else 0.0
                    every = limit * (sums[0] + sums[1])
                    own = (sums[0] + sums[1]) * groups[0]
                    most = sign * bound.limit if bound.form == "selected" else 0.0
                    write(sign * (own - every), most)
                elif bound.form in ("rate", "min", "max"):
                    for group in groups:
                        write(sign * ((numerator - bound.limit * denominator) @ sums) * group, 0.0)
                else:
                    fraction = [
                        (numerator @ sums) * g / (denominator @ sums @ (g * _one(owner, curves)))
                        for g in groups
                    ]
                    if bound.overall:
                        g = whole[owner]
                        mean = (numerator @ sums) * g
                        mean = mean / (denominator @ sums @ (g * _one(owner, curves)))
                        pairs = [(f, mean) for f in fraction] + [(mean, f) for f in fraction]
                    else:
                        pairs = list(itertools.permutations(fraction, 2))
                    for one, two in pairs:
                        if bound.form == "difference":
                            write(one - two, bound.limit)
                        else:
                            write(bound.limit * one - two, 0.0)
    equal = (np.arange(len(curves))[:, None] == owner).astype(float)
    found = linprog(
        -(gain.positive * true - gain.negative * false),
        np.array(rows),
        limits,
        equal,
        np.ones(len(curves)),
    )
    return gain.constant - found.fun if found.success else None


def _one(owner, curves):
    """A share for each column that adds up to one in each cell: totals do not depend on it."""
    return 1.0 / np.bincount(owner)[owner]


def solve(curves, gain, bounds):
    read = [read_bound(text) for text in bounds]
    return Problem(curves, read, [LEVELS] * len(read)), read


PAIRS = [[each] for each in LINEAR] + [
    [LINEAR[k], LINEAR[(5 * k + 3) % len(LINEAR)]] for k in range(len(LINEAR))
]


@pytest.mark.parametrize("bounds", PAIRS, ids=" and ".join)
def test_linear_bounds_reach_the_linear_programme(bounds):
    for seed in range(4):
        curves = draw(seed, weighted=seed % 2 == 1)
        gain = weigh_objective(["accuracy", "balanced_accuracy"][seed // 2], *_totals(curves))
        problem, read = solve(curves, gain, bounds)
        expected = solve_all(curves, gain, bounds)
        if expected is None:
            with pytest.raises(UnattainableError):
                solve_bounds(curves, problem, gain)
            continue
        found = solve_bounds(curves, problem, gain)
        assert found.value == pytest.approx(expected, abs=1e-7)
        assert found.dual_value == pytest.approx(found.value, abs=1e-6)
        for bound, value in zip(read, problem.list_values(found.counts), strict=True):
            assert np.isnan(value) or bound.exceeds(value) <= 1e-7


@pytest.mark.parametrize("text", FRACTIONAL)
@pytest.mark.parametrize("seed", range(3))
def test_fractional_bounds_are_certified_and_not_below_a_grid_of_levels(text, seed):
    curves = draw(seed)
    gain = weigh_objective("balanced_accuracy", *_totals(curves))
    problem, (bound,) = solve(curves, gain, [text])
    found = solve_bounds(curves, problem, gain)
    value = bound.value(found.counts, LEVELS)
    assert np.isnan(value) or bound.exceeds(value) <= 1e-7
    assert found.value <= found.dual_value + 1e-9
    assert found.dual_value - found.value <= 1.1e-5
    if bound.strata or bound.overall:
        return
    rate, attribute = bound.rates[0], bound.attributes[0]
    best = -np.inf
    for v in np.linspace(0.0, 1.0, 60):
        ends = (v, v + bound.limit) if bound.form == "difference" else (bound.limit * v, v)
        texts = [f"{rate}_min:{attribute} >= {ends[0]}", f"{rate}_max:{attribute} <= {ends[1]}"]
        texts = [t for t, e in zip(texts, ends, strict=True) if 0 <= e <= 1]
        expected = solve_all(curves, gain, texts)
        best = best if expected is None else max(best, expected)
    assert found.dual_value >= best - 1e-7
    assert found.value >= best - 1.1e-5


def test_parity_and_odds_are_what_criteria_give():
    curves = draw(5)
    for text, criterion in (
        ("selection_rate_difference:sex×race <= 0.04", "parity"),
        ("gap_max:sex×race <= 0.04", "equalized_odds"),
    ):
        gain = weigh_objective("accuracy", *_totals(curves))
        problem, _ = solve(curves, gain, [text])
        expected = solve_curves(curves, criterion=criterion, bound=0.04).value
        assert solve_bounds(curves, problem, gain).value == pytest.approx(expected, abs=1e-9)


def find_best_cuts(curves, gain, problem):
    """Return the largest gain of all choices of one cut a cell that keep the bounds."""
    sizes = [range(curve.positive.size) for curve in curves]
    points = [np.column_stack([curve.positive, curve.negative]) for curve in curves]
    best = -np.inf
    for cuts in itertools.product(*sizes):
        counts = np.array([own[k] for own, k in zip(points, cuts, strict=True)])
        value = gain.constant + counts.sum(axis=0) @ (gain.positive, -gain.negative)
        if value > best and problem.find_excess(np.hstack([counts, problem.totals])) <= 1e-9:
            best = value
    return best


@pytest.mark.parametrize("k", range(len(LINEAR + FRACTIONAL)))
def test_one_cut_a_cell_is_the_best_of_all(k):
    rng, texts = np.random.default_rng(k), LINEAR + FRACTIONAL
    code, score = rng.integers(0, 4, 100), rng.integers(0, 5, 100) / 5
    y = rng.random(100) < 0.2 + 0.6 * score
    curves = build_curves(score, y, code, 4, rng.random(100) + 0.5 if k % 3 else None)
    bounds = [texts[k], *([texts[(7 * k + 3) % len(texts)]] if k % 2 else [])]
    bounds = [text.replace("25", "45") for text in bounds]
    problem, _ = solve(curves, None, bounds)
    gain = weigh_objective("accuracy", *problem.totals.sum(axis=0))
    wanted = find_best_cuts(curves, gain, problem)
    if wanted == -np.inf:
        with pytest.raises(UnattainableError):
            solve_bounds(curves, problem, gain, randomized=False)
    else:
        found = solve_bounds(curves, problem, gain, randomized=False)
        assert found.value == pytest.approx(wanted, abs=1e-12)
        assert problem.find_excess(found.counts) <= 1e-9
        assert all(draw.cuts.size == 1 for draw in found.draws)
        assert found.dual_value >= wanted - 1e-9


@pytest.mark.parametrize(
    ("criterion", "measure"),
    [("parity", "selection_rate_difference"), ("equalized_odds", "gap_max")],
)
@pytest.mark.parametrize("bound", [0.01, 0.05])
def test_one_cut_a_cell_is_that_of_criteria(criterion, measure, bound):
    curves = draw(7, 1_500)
    problem, _ = solve(curves, None, [f"{measure}:sex×race <= {bound}"])
    gain = weigh_objective("balanced_accuracy", *problem.totals.sum(axis=0))
    options = {"criterion": criterion, "objective": "balanced_accuracy", "bound": bound}
    exact = solve_curves(curves, randomized=False, **options)
    found = solve_bounds(curves, problem, gain, randomized=False)
    assert found.value <= exact.value + 1e-12
    assert found.value == pytest.approx(exact.value, abs=1e-4)


@pytest.mark.parametrize("randomized", [True, False])
@pytest.mark.parametrize("cap", ["ppv:sex=f <= 0.5", "tpr:sex=f <= 0.2"])
def test_a_cap_is_kept_by_scores_that_are_worse_than_chance(cap, randomized):
    # The best scores of the first group are of negatives, so that few true ones are among them.
    first = np.repeat([0.0, 1.0, 0.0], [20, 40, 40])
    y = np.concatenate([first, np.arange(100) % 2, *[np.arange(50) % 2] * 2])
    code = np.repeat([0, 1, 2, 3], [100, 100, 50, 50])
    curves = build_curves(np.linspace(1, 0, 300), y, code, 4)
    problem, _ = solve(curves, None, [cap, "selection_rate:sex=f >= 0.2"])
    gain = weigh_objective("accuracy", *problem.totals.sum(axis=0))
    found = solve_bounds(curves, problem, gain, randomized=randomized)
    assert problem.find_excess(found.counts) <= 1e-7


def test_bounds_that_contradict_each_other_are_named_with_what_would_do():
    curves = draw(1)
    gain = weigh_objective("accuracy", *_totals(curves))
    bounds = ["selection_rate <= 0.1", "selection_rate:sex=f >= 0.5", "tpr_max:race <= 0.99"]
    problem, _ = solve(curves, gain, bounds)
    with pytest.raises(UnattainableError) as caught:
        solve_bounds(curves, problem, gain)
    assert "selection_rate <= 0.1" in str(caught.value)
    assert "sex=f" in str(caught.value)
    assert "race" not in str(caught.value)


@pytest.mark.parametrize("text", [*LINEAR, *FRACTIONAL])
def test_a_bound_is_read_as_it_is_written(text):
    bound = read_bound(text)
    assert read_bound(str(bound)) == bound


@pytest.mark.parametrize(
    "text",
    [
        "auc_difference:sex <= 0.1",
        "selection_rate_difference <= 0.1",
        "selection_rate_difference:sex >= 0.1",
        "selection_rate_ratio:sex <= 0.8",
        "selection_rate:sex <= 0.1",
        "share:race >= 0.1",
        "tpr_min:race >= 1.5",
        "selection_rate_difference:sex | sex <= 0.1",
        "selection_rate_difference:sex",
        "selection_rate <= x",
        "selection_rate to overall <= 0.1",
        0.1,
    ],
)
def test_what_is_no_bound_is_refused(text):
    with pytest.raises(ConfigError):
        read_bound(text)


def _totals(curves):
    return [sum(float(getattr(c, side)[-1]) for c in curves) for side in ("positive", "negative")]
