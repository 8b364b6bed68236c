"""Bounds hold for all settings at once: on fresh rows the chosen one rarely breaks its own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairfrontier.choose.select import apply_policy
from fairfrontier.metrics.statistic.interval import bonferroni, newcombe, wilson
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.frontier import orient
from fairfrontier.study.query import bound_scores, compare, find_needed_rows, state_bound
from tests.metrics.made import make_part

STUDIES, SETTINGS = 500, 30
DIFFERENCE = "selection_rate_difference:sex"


def make_tables(**shares: tuple[np.ndarray, int]) -> dict[str, pd.DataFrame]:
    """Return value, low and high of rates by name, drawn from shares of so many rows."""
    rng = np.random.default_rng(0)
    tables: dict[str, dict[str, np.ndarray]] = {"value": {}, "low": {}, "high": {}}
    for name, (share, rows) in shares.items():
        value = rng.binomial(rows, share) / rows
        for table, column in zip(tables, (value, *wilson(value, np.float64(rows))), strict=True):
            tables[table][name] = column
    return {name: pd.DataFrame(table) for name, table in tables.items()}


def tabulate_levels(value: np.ndarray, rows: int) -> dict[str, pd.DataFrame]:
    """Return tables of selection rates of shape (n_settings, n_levels), each of so many rows."""
    tables = {}
    ends = (value, *wilson(value, np.float64(rows)))
    for name, share in zip(("value", "low", "high"), ends, strict=True):
        rates = {f"selection_rate:sex={level}": rate for level, rate in enumerate(share.T)}
        # Levels are found by their accuracy.
        more = {f"accuracy:sex={level}": 0.5 for level in range(value.shape[1])}
        tables[name] = pd.DataFrame(rates | {DIFFERENCE: 0.0}).assign(**more)
    return tables


def find_best_cut(score: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return the threshold of most right decisions, one for each row of scores."""
    order = np.argsort(-score, axis=1)
    gain = np.cumsum(2 * np.take_along_axis(label, order, 1) - 1, axis=1)
    best = np.take_along_axis(order, gain.argmax(axis=1)[:, None], 1)
    return np.take_along_axis(score, best, 1)[:, 0]


def count_violations(true: np.ndarray, score: np.ndarray, limit: float) -> tuple[float, float]:
    """Return the shares of studies whose choice violates the limit, and that choose at all.

    Of the settings whose score meets the limit that of the largest true value is chosen, as a
    choice does for accuracy that is bought with unfairness.
    """
    met = (score >= -limit).reshape(STUDIES, SETTINGS)
    worst = np.where(met, true.reshape(STUDIES, SETTINGS), 0.0).max(axis=1)
    return float((worst > limit).mean()), float(met.any(axis=1).mean())


def find_violations(score: np.ndarray, limit: float, settings: int = SETTINGS) -> float:
    """Return the share of studies with a setting that meets the limit, which none truly does."""
    return float((score >= limit).reshape(-1, settings).any(axis=1).mean())


@pytest.mark.parametrize("levels", [2, 4])
def test_the_share_of_violations_on_fresh_rows_stays_below_five_percent(levels):
    rng = np.random.default_rng(1)
    limit = 0.1
    # A third of the settings is well within the bound, the others hardly exceed it.
    gap = np.where(rng.random(STUDIES * SETTINGS) < 0.35, 0.01, limit + 0.001)
    rates = {
        f"selection_rate:sex={level}": (0.3 + gap * (level == 0), 1500 // (1 + level))
        for level in range(levels)
    }
    tables = make_tables(**rates)
    for name, table in tables.items():
        table[DIFFERENCE] = table[list(rates)].max(axis=1) - table[list(rates)].min(axis=1)
        # Levels are found by their accuracy.
        tables[name] = table.assign(**{f"accuracy:sex={level}": 0.5 for level in range(levels)})
    held = bound_scores(DIFFERENCE, tables, bonferroni(0.05, SETTINGS))
    estimate = -tables["value"][DIFFERENCE].to_numpy()
    violated, chosen = count_violations(gap, held, limit)
    assert violated < 0.05
    # The bound is not bought by never choosing, and estimates alone do not keep it.
    assert chosen > 0.2
    assert count_violations(gap, estimate, limit)[0] > 0.9


@pytest.mark.parametrize("rows", [100, 3000])
def test_rare_errors_are_bounded_too(rows):
    limit = 0.05
    rate = np.full(STUDIES * SETTINGS, limit + 0.001)
    tables = make_tables(fpr=(rate, rows))
    held = bound_scores("fpr", tables, bonferroni(0.05, SETTINGS))
    assert count_violations(rate, held, limit)[0] < 0.05
    assert count_violations(rate, -tables["value"]["fpr"].to_numpy(), limit)[0] > 0.9


@pytest.mark.parametrize(("rows", "limit"), [(200, 0.967), (5000, 0.996)])
def test_consistency_near_one_keeps_its_bound(rows, limit):
    settings = 150
    name = "consistency:origin"
    tables = make_tables(**{name: (np.full(STUDIES * SETTINGS, limit - 1e-9), rows)})
    reach = bonferroni(0.05, settings)
    assert find_violations(bound_scores(name, tables, reach), limit, settings) < 0.05
    value, low = tables["value"][name], tables["low"][name]
    wider = (value + reach / 1.96 * (low - value)).to_numpy()
    assert find_violations(wider, limit, settings) > 0.1


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("tpr_difference:sex", ((0.06, 2000), (0.01, 100))),
        ("tpr_difference:sex", ((0.99, 100), (0.94, 1000))),
        ("tpr_ratio:sex", ((0.052, 300), (0.002, 300))),
        ("tpr_min:sex", ((0.95, 400), (0.9, 100))),
        ("fpr_max:sex", ((0.05, 100), (0.02, 400))),
        ("accuracy_max:sex", ((0.02, 100), (0.02, 100))),
        ("balanced_accuracy", ((0.99, 300), (0.96, 60))),
    ],
)
def test_what_is_made_of_skewed_shares_keeps_its_bound(name, shares):
    rate = name.partition("_")[0]
    names = [f"{rate}:sex={level}" for level in "FM"]
    if name == "balanced_accuracy":
        names = ["tpr", "tnr"]
    count = STUDIES * SETTINGS
    given = dict(zip(names, shares, strict=True))
    tables = make_tables(**{each: (np.full(count, p), n) for each, (p, n) in given.items()})
    if name == "balanced_accuracy":
        tables = {end: table.assign(fpr=1 - table["tnr"]) for end, table in tables.items()}
        low, high = (1 - tables[end]["tnr"] for end in ("high", "low"))
        tables["low"]["fpr"], tables["high"]["fpr"] = low, high
    more = {each: 0.5 for each in ("accuracy:sex=F", "accuracy:sex=M") if each not in names}
    tables = {end: table.assign(**more, **{name: 0.5}) for end, table in tables.items()}
    first, second = (p for p, _ in shares)
    made = {
        "difference": first - second,
        "ratio": second / first,
        "min": second,
        "max": first,
        "accuracy": (first + second) / 2,
    }
    limit = orient(name, np.array([made[name.partition(":")[0].rpartition("_")[2]]]))[0]
    held = bound_scores(name, tables, bonferroni(0.05, SETTINGS))
    assert find_violations(held, limit + 1e-9) < 0.05
    assert np.isfinite(held).all()


@pytest.mark.parametrize("levels", [2, 4])
def test_rules_fitted_on_the_rows_compared_keep_their_bounds(levels):
    rng = np.random.default_rng(2)
    rate, rows, draws = 0.3, 1000 // levels, 1000
    # Scores are uniform: a threshold selects one less itself of fresh rows.
    scores = rng.random((draws, levels, rows))
    fresh = 1 - np.quantile(scores, 1 - rate, axis=2)
    folds = np.arange(rows) % 5
    hits = sum(
        (
            scores[..., folds == k] > np.quantile(scores[..., folds != k], 1 - rate, 2)[..., None]
        ).sum(axis=2)
        for k in range(5)
    )
    tables = tabulate_levels(hits / rows, rows)
    true = np.ptp(fresh, axis=1)
    reach = bonferroni(0.05, 1)
    held = -bound_scores(DIFFERENCE, tables, reach, np.ones(draws, dtype=bool))
    assert (true > held).mean() < 0.05
    assert (true > -bound_scores(DIFFERENCE, tables, reach)).mean() > 0.05


def test_bounds_of_thresholds_that_vary_more_are_broken_unless_they_have_rows_of_their_own():
    rng = np.random.default_rng(3)
    rows, draws = 1000, 500
    level = np.arange(rows) % 2
    # Labels depend so little on scores that the best threshold may be anywhere.
    score, fresh = rng.random((2, draws, rows)) ** (4**level)
    label = rng.random((draws, rows)) < 0.45 + 0.1 * score
    cut = find_best_cut(score, label)
    true = cut**0.25 - cut
    folds = np.arange(rows) // 2 % 5
    cuts = np.stack([find_best_cut(score[:, folds != k], label[:, folds != k]) for k in range(5)])
    decided = {True: score > cuts[folds].T, False: fresh > cut[:, None]}
    broken = {}
    for fitted, decision in decided.items():
        value = np.stack([decision[:, level == each].mean(axis=1) for each in (0, 1)], axis=1)
        tables = tabulate_levels(value, rows // 2)
        held = -bound_scores(DIFFERENCE, tables, bonferroni(0.05, 1), np.full(draws, fitted))
        broken[fitted] = (true > held).mean()
    assert broken[True] > 0.05 > broken[False]


def test_bounds_are_newcombes_where_shares_are_nearly_normal():
    levels = {"tpr:sex=M": (np.array([0.6]), 30_000), "tpr:sex=F": (np.array([0.4]), 20_000)}
    tables = make_tables(**levels)
    wanted = newcombe(*(table[[*levels]].to_numpy()[0] for table in tables.values()))[1]
    name = "tpr_difference:sex"
    more = {name: 0.0, "accuracy:sex=F": 0.5, "accuracy:sex=M": 0.5}
    tables = {end: table.assign(**more) for end, table in tables.items()}
    # A row more or less, and a thirteenth of a quarter turn.
    assert bound_scores(name, tables, bonferroni(0.025, 1)) == pytest.approx(-wanted, abs=1e-4)


def test_symmetric_intervals_are_widened_in_proportion_and_skewed_ones_by_more():
    tables = {
        end: pd.DataFrame({"log_loss": [value, value]})
        for end, value in (("value", 0.5), ("low", 0.4), ("high", 0.6))
    }
    tables["high"].loc[1, "log_loss"] = 0.65
    reach = bonferroni(0.05, 10)
    assert reach == pytest.approx(2.575829, abs=1e-6)
    symmetric, skewed = bound_scores("log_loss", tables, reach)
    assert symmetric == pytest.approx(-0.5 - 0.1 * reach / 1.959964, abs=1e-6)
    assert skewed < -0.5 - 0.15 * reach / 1.959964


@pytest.mark.parametrize("name", ["auc", "f1", "log_loss"])
def test_bounds_of_measures_that_are_no_rates_hold_on_few_rows(name):
    rng = np.random.default_rng(5)
    draws, n = 100, 300

    def draw(rows):
        y = (rng.random(rows) < 0.2).astype(np.int64)
        score = 1 / (1 + np.exp(4 - 4 * y - 2 * rng.standard_normal(rows)))
        part = make_part(y, np.zeros((rows, 0)), {})
        return tabulate(Prediction(score, (score > 0.5).astype(float)), part, [name]).iloc[0]

    true = draw(300_000)["value"]
    rows = pd.DataFrame([draw(n) for _ in range(draws)])
    tables = {end: pd.DataFrame({name: rows[end].to_numpy()}) for end in ("value", "low", "high")}
    true = orient(name, np.array([true]))[0]
    # 5 and less than 1 of the draws are promised.
    assert (bound_scores(name, tables, bonferroni(0.05, 1)) > true).sum() <= 8
    assert (bound_scores(name, tables, bonferroni(0.0025, 1)) > true).sum() <= 1


@pytest.mark.parametrize("name", ["log_loss", "logistic_loss_nats"])
def test_bounds_of_losses_hold_where_large_ones_are_rarely_drawn(name):
    rng = np.random.default_rng(5)

    def draw(rows):
        # Positive rows are as rare as they are said to be.
        score = np.where(rng.random(rows) < 0.5, 0.008, 0.01)
        y = (rng.random(rows) < score).astype(np.int64)
        part = make_part(y, np.zeros((rows, 0)), {})
        return tabulate(Prediction(score, (score > 0.5).astype(float)), part, [name]).iloc[0]

    true = draw(300_000)["value"]
    rows = pd.DataFrame([draw(200) for _ in range(150)])
    tables = {end: pd.DataFrame({name: rows[end].to_numpy()}) for end in ("value", "low", "high")}
    # 7.5 of the draws are promised.
    assert (bound_scores(name, tables, bonferroni(0.05, 1)) > -true).sum() <= 11


def test_the_rows_needed_are_those_at_which_the_interval_is_as_wide_as_the_slack():
    scores = {"fpr": np.array([-0.06, -0.02, -0.04])}
    held = {"fpr": np.array([-0.07, -0.11, -0.06])}
    assert find_needed_rows(scores, held, {"fpr": -0.05}) == (2, pytest.approx(4.0))
    assert find_needed_rows(scores, held, {"fpr": -0.01}) is None


def test_a_difference_whose_levels_have_no_intervals_is_not_certified():
    tables = tabulate_levels(np.full((2, 2), 0.3), 5000)
    for end in ("low", "high"):
        tables[end].loc[1, ["selection_rate:sex=0", "selection_rate:sex=1"]] = np.nan
    settings = pd.MultiIndex.from_tuples([("a", "{}"), ("b", "{}")], names=["method", "setting"])
    means = pd.concat(
        {end: table.set_axis(settings).stack() for end, table in tables.items()},  # noqa: PD013
        axis=1,
    )
    means = means.rename_axis([*settings.names, "name"]).reset_index().assign(n=10_000)
    asked = {DIFFERENCE: state_bound(DIFFERENCE, 0.1)}
    compared = compare(means, "validation", [DIFFERENCE], asked, 0.95)
    assert (compared.find_excess() > 0).tolist() == [False, True]


def dominated(scores: np.ndarray, i: int) -> bool:
    """Return whether another point is as good in all, and better in one."""
    return any((other >= scores[i]).all() and (other > scores[i]).any() for other in scores)


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_policies_choose_what_all_points_compared_give(seed, width):
    rng = np.random.default_rng(seed)
    direction = np.abs(rng.normal(size=(30, width)))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    scores = np.round(direction * rng.uniform(0.7, 1, (30, 1)), 2)
    front = [i for i in range(30) if not dominated(scores, i)]
    assert len(front) > 3
    low = scores[front].min(axis=0)
    high = scores[front].max(axis=0)
    scaled = (scores - low) / (high - low)

    # The distance to the plane through the ideal points of each score alone.
    def distance(i: int) -> float:
        return (scaled[i].sum() - 1) / np.sqrt(width)

    assert apply_policy("knee", scores) == max(front, key=distance)
    ideal = min(front, key=lambda i: np.linalg.norm(1 - scaled[i]))
    assert apply_policy("closest-to-ideal", scores) == ideal
    for tolerance in (0.0, 0.1, 1.0):
        near = [i for i in front if scores[i, 0] >= scores[:, 0].max() - tolerance - 1e-12]
        wanted = max(near, key=lambda i: scaled[i, 1:].mean())
        assert apply_policy(f"least-disparity-within={tolerance}", scores) == wanted
    if width == 2:
        near = np.flatnonzero(scores[:, 0] >= scores[:, 0].max() - 0.1 - 1e-12)
        chosen = apply_policy("least-disparity-within=0.1", scores)
        assert scores[chosen, 1] == scores[near, 1].max()


def test_a_frontier_of_one_point_is_that_point():
    scores = np.array([[0.5, 0.5], [0.9, 0.9], [0.9, 0.1]])
    for policy in ("knee", "closest-to-ideal", "least-disparity-within=0.01"):
        assert apply_policy(policy, scores) == 1


@pytest.mark.parametrize("policy", ["elbow", "least-disparity-within", "least-disparity-within=.."])
def test_another_policy_is_refused(policy):
    with pytest.raises(ConfigError):
        apply_policy(policy, np.zeros((2, 2)))


def test_one_score_alone_is_its_best():
    assert apply_policy("least-disparity-within=0.1", np.array([[1.0], [2.0]])) == 1
