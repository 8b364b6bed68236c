"""Bounds hold for all settings at once: on fresh rows the chosen one rarely breaks its own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from fairfrontier.choose.comparison import (
    bound_above,
    bound_below,
    bound_scores,
    find_needed_rows,
    find_reach,
    find_size,
)
from fairfrontier.evaluate.statistic.interval import newcombe, wilson
from fairfrontier.study.frontier import orient

STUDIES, SETTINGS = 500, 30


def make_tables(**shares: tuple[np.ndarray, int]) -> dict[str, pd.DataFrame]:
    """Return value, low and high of rates by name, drawn from shares of so many rows."""
    rng = np.random.default_rng(0)
    tables: dict[str, dict[str, np.ndarray]] = {"value": {}, "low": {}, "high": {}}
    for name, (share, rows) in shares.items():
        value = rng.binomial(rows, share) / rows
        for table, column in zip(tables, (value, *wilson(value, np.float64(rows))), strict=True):
            tables[table][name] = column
    return {name: pd.DataFrame(table) for name, table in tables.items()}


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
        table["selection_rate_difference:sex"] = table[list(rates)].max(axis=1) - table[
            list(rates)
        ].min(axis=1)
        # Levels are found by their accuracy.
        tables[name] = table.assign(**{f"accuracy:sex={level}": 0.5 for level in range(levels)})
    name = "selection_rate_difference:sex"
    held = bound_scores(name, tables, find_reach(0.95, SETTINGS))
    estimate = -tables["value"][name].to_numpy()
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
    held = bound_scores("fpr", tables, find_reach(0.95, SETTINGS))
    assert count_violations(rate, held, limit)[0] < 0.05
    assert count_violations(rate, -tables["value"]["fpr"].to_numpy(), limit)[0] > 0.9


@pytest.mark.parametrize(("rows", "limit"), [(200, 0.967), (5000, 0.996)])
def test_consistency_near_one_keeps_its_bound(rows, limit):
    settings = 150
    name = "consistency:origin"
    tables = make_tables(**{name: (np.full(STUDIES * SETTINGS, limit - 1e-9), rows)})
    reach = find_reach(0.95, settings)
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
    held = bound_scores(name, tables, find_reach(0.95, SETTINGS))
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
    value, name = hits / rows, "selection_rate_difference:sex"
    tables = {}
    for end, share in zip(
        ("value", "low", "high"), (value, *wilson(value, np.float64(rows))), strict=True
    ):
        rates = {f"selection_rate:sex={level}": share[:, level] for level in range(levels)}
        more = {f"accuracy:sex={level}": 0.5 for level in range(levels)}
        tables[end] = pd.DataFrame(rates | {name: 0.0}).assign(**more)
    true = np.ptp(fresh, axis=1)
    reach = find_reach(0.95, 1)
    held = -bound_scores(name, tables, reach, np.ones(draws, dtype=bool))
    assert (true > held).mean() < 0.05
    assert (true > -bound_scores(name, tables, reach)).mean() > 0.05


def test_bounds_are_exact_for_shares_and_newcombes_where_these_are_nearly_normal():
    value, size = np.array([0.0, 0.1, 0.7, 1.0]), np.float64(60)
    told = find_size(value, *wilson(value, size))
    np.testing.assert_allclose(told, size, rtol=1e-9)
    hits = np.rint(value * size)
    low, high = bound_below(value, told, 3.0), bound_above(value, told, 3.0)
    error = (1 - 0.9973002039367398) / 2
    np.testing.assert_allclose(binom.sf(hits[1:] - 1, size, low[1:]), error, rtol=1e-6)
    np.testing.assert_allclose(binom.cdf(hits[:-1], size, high[:-1]), error, rtol=1e-6)
    assert (low[0], high[-1]) == (0, 1)
    levels = {"tpr:sex=M": (np.array([0.6]), 30_000), "tpr:sex=F": (np.array([0.4]), 20_000)}
    tables = make_tables(**levels)
    wanted = newcombe(*(table[[*levels]].to_numpy()[0] for table in tables.values()))[1]
    name = "tpr_difference:sex"
    more = {name: 0.0, "accuracy:sex=F": 0.5, "accuracy:sex=M": 0.5}
    tables = {end: table.assign(**more) for end, table in tables.items()}
    # A row more or less, and a thirteenth of a quarter turn.
    assert bound_scores(name, tables, find_reach(0.975, 1)) == pytest.approx(-wanted, abs=1e-4)


def test_other_intervals_are_widened_in_proportion():
    tables = {
        end: pd.DataFrame({"auc": [value]})
        for end, value in (("value", 0.8), ("low", 0.7), ("high", 0.86))
    }
    reach = find_reach(0.95, 10)
    assert reach == pytest.approx(2.575829, abs=1e-6)
    assert bound_scores("auc", tables, reach) == pytest.approx(
        0.8 - 0.1 * reach / 1.959964, abs=1e-6
    )


def test_the_rows_needed_are_those_at_which_the_interval_is_as_wide_as_the_slack():
    scores = {"fpr": np.array([-0.06, -0.02, -0.04])}
    held = {"fpr": np.array([-0.07, -0.11, -0.06])}
    assert find_needed_rows(scores, held, {"fpr": -0.05}) == (2, pytest.approx(4.0))
    assert find_needed_rows(scores, held, {"fpr": -0.01}) is None
