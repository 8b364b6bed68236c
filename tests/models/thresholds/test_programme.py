import numpy as np
import pytest

from fairfrontier.models.thresholds import hull, programme
from fairfrontier.models.thresholds.curve import BOUNDED, build_curves, weigh_objective
from fairfrontier.models.thresholds.programme import (
    Problem,
    find_largest,
    measure_gap,
    solve,
    solve_curves,
)
from tests.models.thresholds.tables import draw_curves, draw_table, solve_programme, try_all

OBJECTIVES = (
    "accuracy",
    "balanced_accuracy",
    {"costs": {"false_positive": 1.0, "false_negative": 5.0}},
)
BOUNDS = (0.0, 0.05, 0.2, 0.5, 1.0)

every_criterion = pytest.mark.parametrize("criterion", BOUNDED)


def solve_groups(score, y, code, n_groups, weight=None, **options):
    return solve_curves(build_curves(score, y, code, n_groups, weight), **options)


def problems(seeds, **sizes):
    """Yield curves, objective, gain, bound and the options of no_harm."""
    for seed in seeds:
        curves = draw_curves(seed, **sizes)
        totals = [sum(each) for each in zip(*((c.positive[-1], c.negative[-1]) for c in curves),
                                            strict=True)]  # fmt: skip
        objective = OBJECTIVES[seed % 3]
        gain = weigh_objective(objective, *totals)
        best = [int(c.hull[gain.of(c, c.hull).argmax()]) for c in curves]
        base = best if seed % 2 else None
        options = {"objective": objective, "no_harm": base is not None}
        yield curves, gain, base, {**options, "bound": BOUNDS[seed % 5]}


@every_criterion
def test_draws_reach_the_linear_programme(criterion):
    for curves, gain, base, options in problems(range(40)):
        found = solve_curves(curves, criterion=criterion, **options)
        bound = options["bound"]
        best = solve_programme(curves, gain, criterion, bound, base)
        assert found.value == pytest.approx(best, abs=1e-8)
        assert found.duality_gap == pytest.approx(0.0, abs=1e-9)
        assert found.converged
        assert found.gap <= bound + 1e-9


@every_criterion
def test_single_cuts_reach_brute_force(criterion):
    for curves, gain, base, options in problems(range(24), n=8, n_groups=3):
        found = solve_curves(curves, criterion=criterion, randomized=False, **options)
        best = try_all(curves, gain, criterion, options["bound"], base)
        assert found.value <= best + 1e-12
        assert found.gap <= options["bound"] + 1e-12
        assert found.rule.share.shape[1] == 1
        assert found.converged
        assert found.value == pytest.approx(best, abs=1e-12)
        assert found.dual_value >= best - 1e-9


@pytest.mark.parametrize("randomized", [True, False])
@every_criterion
def test_the_rule_has_the_rates_and_the_value(criterion, randomized):
    for seed in range(10):
        score, y, code, n_groups, weight = draw_table(seed, n=80)
        found = solve_groups(score, y, code, n_groups, weight=weight, criterion=criterion,
                             bound=0.1, randomized=randomized)  # fmt: skip
        h = found.rule.probability(score, code)
        weight = np.ones(80) if weight is None else weight
        right = np.average(h * y + (1 - h) * (1 - y), weights=weight)
        assert right == pytest.approx(found.value)
        rates = np.full((n_groups, 3), np.nan)
        for k in range(n_groups):
            for j, share in enumerate((np.ones(80), y, 1 - y)):
                mass = weight * share * (code == k)
                if mass.sum() > 0:
                    rates[k, j] = mass @ h / mass.sum()
        np.testing.assert_allclose(rates, found.rates, atol=1e-12)
        assert measure_gap(rates, criterion) == pytest.approx(found.gap)


@pytest.mark.parametrize("criterion", ["parity", "equal_opportunity"])
def test_single_cuts_of_one_rate_are_the_best_of_any_number(criterion, monkeypatch):
    generator = np.random.default_rng(0)
    code = generator.integers(3, size=600)
    score = generator.beta(2 + code, 3)
    y = generator.random(600) < score
    options = {"criterion": criterion, "bound": 0.03, "randomized": False}
    exact = solve_groups(score, y, code, 3, **options)
    for name in ("ALL", "SOME", "CUTS", "FEWER"):
        monkeypatch.setattr(programme, name, 16)
    found = solve_groups(score, y, code, 3, **options)
    assert found.value == exact.value
    assert found.converged
    drawn = solve_groups(score, y, code, 3, criterion=criterion, bound=0.03)
    assert found.dual_value == pytest.approx(drawn.value)
    assert found.value < drawn.value < found.value + 0.02


@pytest.mark.parametrize("no_harm", [False, True])
@pytest.mark.parametrize("criterion", ["equalized_odds", "average_odds"])
def test_single_cuts_of_many_windows(criterion, no_harm, monkeypatch):
    """Whether some windows are tried first, or some cuts, what is found is as good as all."""
    options = {"criterion": criterion, "randomized": False, "no_harm": no_harm}
    for seed, bound in enumerate((0.0, 0.02, 0.05)):
        generator = np.random.default_rng(seed)
        code = generator.integers(3, size=900)
        score = generator.beta(2 + code, 3)
        curves = build_curves(score, generator.random(900) < score, code, 3)
        with monkeypatch.context() as patch:
            patch.setattr(programme, "ALL", 1 << 30)
            whole = solve_curves(curves, bound=bound, **options)
        assert whole.converged
        with monkeypatch.context() as patch:
            patch.setattr(programme, "ALL", 256)
            patch.setattr(programme, "SOME", 256)
            some = solve_curves(curves, bound=bound, **options)
            patch.setattr(programme, "CUTS", 256)
            patch.setattr(programme, "FEWER", 64)
            fewer = solve_curves(curves, bound=bound, **options)
        for found in (some, fewer):
            assert found.gap <= bound + 1e-12
            assert whole.value - 0.005 <= found.value <= whole.value + 1e-12
            assert found.dual_value == whole.dual_value


@pytest.mark.parametrize("criterion", ["equalized_odds", "average_odds"])
def test_all_windows_are_brute_force(criterion):
    """Some 60 cuts a group, of which pairs are tried by hand."""
    for seed in range(4):
        generator = np.random.default_rng(seed)
        code = generator.integers(2, size=120)
        score = generator.beta(2 + code, 3)
        curves = build_curves(score, generator.random(120) < score, code, 2)
        totals = [sum(each) for each in zip(*((c.positive[-1], c.negative[-1]) for c in curves),
                                            strict=True)]  # fmt: skip
        gain = weigh_objective("accuracy", *totals)
        found = solve_curves(curves, criterion=criterion, bound=0.04, randomized=False)
        best = try_all(curves, gain, criterion, 0.04, None)
        assert found.converged
        assert found.value == pytest.approx(best, abs=1e-12)


def test_expected_labels_have_a_hull_with_every_score():
    generator = np.random.default_rng(1)
    score, code = generator.random(3000), generator.integers(2, size=3000)
    curves = build_curves(score, score, code, 2)
    assert curves[0].hull.size == curves[0].score.size + 1
    for criterion in BOUNDED:
        found = solve_curves(curves, criterion=criterion, bound=0.01)
        assert found.duality_gap == pytest.approx(0.0, abs=1e-9)
        assert found.converged


def test_f1_is_the_best_of_all_mixtures():
    score, y, code, _, _ = draw_table(0, n=30, n_groups=2)
    for criterion in BOUNDED:
        found = solve_groups(score, y, code, 2, objective="f1", criterion=criterion, bound=0.1)
        assert found.duality_gap == pytest.approx(0.0, abs=1e-9)
        true, chosen = found.rule.probability(score, code) @ np.column_stack([y, np.ones(30)])
        assert found.value == pytest.approx(2 * true / (chosen + y.sum()))
    alone = solve_groups(score, y, code, 2, objective="f1", bound=1.0, randomized=False)
    cuts = np.append(-1, score)
    pairs = (np.where(code, first, second) for first in cuts for second in cuts)
    single = [2 * y[score > cut].sum() / ((score > cut).sum() + y.sum()) for cut in pairs]
    assert alone.value == pytest.approx(max(single))


@every_criterion
def test_no_groups_rate_gets_worse(criterion):
    score, y, code, n_groups, _ = draw_table(8, n=200, n_groups=4)
    free = solve_groups(score, y, code, n_groups, criterion=criterion, bound=2.0)
    column, sign = {"parity": (0, 1), "predictive_equality": (2, -1)}.get(criterion, (1, 1))
    worse = []
    for no_harm in (False, True):
        found = solve_groups(score, y, code, n_groups, criterion=criterion, no_harm=no_harm)
        worse.append((sign * (found.rates - free.rates)[:, column]).min())
    assert worse[0] < -0.01
    assert worse[1] >= -1e-12


@every_criterion
def test_scores_may_be_transformed(criterion):
    score, y, code, n_groups, weight = draw_table(2, n=120)
    one = solve_groups(score, y, code, n_groups, weight=weight, criterion=criterion, bound=0.1)
    other = solve_groups(np.exp(9 * score), y, code, n_groups, weight=weight, criterion=criterion,
                         bound=0.1)  # fmt: skip
    assert other.value == one.value
    np.testing.assert_array_equal(
        one.rule.probability(score, code), other.rule.probability(np.exp(9 * score), code)
    )


def test_rows_without_weight_are_no_problem_to_solve():
    with pytest.raises(ValueError, match="weight"):
        solve_groups(np.ones(2), np.ones(2), np.zeros(2, int), 1, weight=np.zeros(2))


def make_curves(n=4000):
    generator = np.random.default_rng(2)
    code = generator.integers(3, size=n)
    score = generator.beta(2 + code, 3)
    return build_curves(score, score, code, 3)


def solve_odds(curves, bound, *, randomized=True):
    totals = [sum(getattr(c, side)[-1] for c in curves) for side in ("positive", "negative")]
    gain = weigh_objective("accuracy", *totals)
    return solve(Problem(curves, gain, (2, 1), bound, randomized=randomized))


def test_few_rounds_leave_a_gap_that_is_stated(monkeypatch):
    curves = make_curves()
    best = solve_odds(curves, 0.02)
    assert best.proven
    monkeypatch.setattr(hull, "COLUMNS", 200)
    assert solve_odds(curves, 0.02).value == pytest.approx(best.value, abs=1e-9)
    monkeypatch.setattr(hull, "COLUMNS", 24)
    monkeypatch.setattr(hull, "ROUNDS", 1)
    found = solve_odds(curves, 0.02)
    assert not found.proven
    assert found.value < best.value < found.dual_value


def test_one_cut_per_group_is_proven_the_best_of_many_rows():
    curves = make_curves(100_000)
    found = solve_odds(curves, 0.05, randomized=False)
    assert found.proven
    assert 0 <= solve_odds(curves, 0.05).value - found.value < 1e-3


def test_largest_of_ranges():
    generator = np.random.default_rng(0)
    values = generator.normal(size=70)
    first = generator.integers(5, 60, 40)
    last = first + generator.integers(1, 10, 40)
    wanted = [values[i:j].max() for i, j in zip(first, last, strict=True)]
    np.testing.assert_array_equal(find_largest(values, first, last), wanted)
