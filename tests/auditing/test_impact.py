from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from fairfrontier.auditing.known_groups import (
    COMPARED,
    EXCLUDED,
    TOO_FEW,
    UNKNOWN,
    count_deviations,
    find_detectable,
    standardise,
    tabulate_impact,
)


def tabulate(n, selected, known=None, **options):
    known = np.ones(len(n), dtype=bool) if known is None else np.array(known)
    return tabulate_impact(np.array(n), np.array(selected, dtype=float), known, **options)


def test_the_example_of_scores_of_the_rules_of_new_york_city():
    """6 RCNY 5-301(d), the example of "culture fit": rates in percent and impact ratios."""
    for sizes, above, rates, ratios in (
        # Men, women.
        ([92, 76], [50, 34], [54.3, 44.7], [1.0, 0.82]),
        # Hispanic; White, Black, Native Hawaiian or Pacific Islander, and Asian, not Hispanic.
        (
            [28, 40, 32, 8, 24],
            [18, 15, 16, 5, 10],
            [64.2, 37.5, 50.0, 62.5, 41.7],
            [1.0, 0.58, 0.78, 0.97, 0.65],
        ),
    ):
        table = tabulate(sizes, above, minimum=1)
        # Of the published rates one is cut, 64.286, and one rounded, 41.667.
        np.testing.assert_allclose(100 * table["rate"], rates, atol=0.1)
        assert table["ratio"].round(2).tolist() == ratios


def test_the_example_of_selections_of_the_rules_of_new_york_city():
    # 6 RCNY 5-301(b): men, then women; from memory, as copies at hand lack the table.
    table = tabulate([1390, 1181], [667, 555])
    assert table["rate"].round(2).tolist() == [0.48, 0.47]
    assert table["ratio"].round(3).tolist() == [1.0, 0.979]
    assert table["four_fifths"].tolist() == [False, False]


def test_the_example_of_the_uniform_guidelines():
    # Questions and answers, no. 12: of 80 and 40 applicants 48 and 12 are hired.
    table = tabulate([80, 40], [48, 12])
    assert table["rate"].tolist() == [0.6, 0.3]
    assert table["ratio"].tolist() == [1.0, 0.5]
    assert table["four_fifths"].tolist() == [False, True]
    # By hand: half of all are hired, 20 of 40, 8 more than 12; 0.48 · 40 = 19.2 is met by 20.
    assert table["shortfall"][1] == 20 - 12
    assert table["to_four_fifths"][1] == 8
    assert table["deviations"][1] == pytest.approx(-0.3 / math.sqrt(0.25 * (1 / 80 + 1 / 40)))
    assert table["two_deviations"].tolist() == [False, True]


def test_small_and_unknown_categories_are_counted_and_not_compared():
    table = tabulate([500, 470, 15, 10, 5], [100, 47, 15, 9, 5], [True] * 3 + [False, True])
    assert table["status"].tolist() == [COMPARED, COMPARED, EXCLUDED, UNKNOWN, TOO_FEW]
    # Neither the excluded nor the unknown category, of the highest rates, is the one compared with.
    assert table["ratio"][:4].tolist() == [1.0, 0.5, 5.0, 4.5]
    assert table["n"].tolist() == [500, 470, 15, 10, 5]
    assert table["share"].sum() == 1
    unknown = table.loc[4].drop(["n", "share", "status"])
    assert unknown.isna().all()
    everyone = tabulate([500, 470, 15], [100, 47, 15], exclude_below=0.0)
    assert everyone["ratio"].tolist() == pytest.approx([0.2, 0.1, 1.0])
    few = tabulate([9, 9], [9, 1], least=10)
    assert few["ratio"].isna().all()
    assert few["four_fifths"].isna().all()


def test_four_fifths_is_exact():
    # 3/5 over 3/4 is 0.8, which quotients of floats miss.
    table = tabulate([4, 5], [3, 3], minimum=1)
    assert table["ratio"][1] < 0.8
    assert not table["four_fifths"][1]
    assert table["to_four_fifths"][1] == 0
    assert tabulate([4, 5], [3, 2], minimum=1)["to_four_fifths"][1] == 1


def test_nobody_selected_is_no_parity():
    table = tabulate([50, 50], [0, 0])
    assert table["ratio"].isna().all()
    assert table["four_fifths"].isna().all()
    assert table["deviations"].tolist() == [0.0, 0.0]
    assert table["fisher_p"].tolist() == [1.0, 1.0]


def test_fishers_test_counts_tables():
    # P(x ≤ 1 of 10 or as unlikely) with 10 of 20 selected, hypergeometric by hand.
    table = tabulate([10, 10], [9, 1])
    ways = [math.comb(10, k) * math.comb(10, 10 - k) for k in range(11)]
    expected = sum(way for way in ways if way <= ways[1]) / sum(ways)
    assert table["fisher_p"][1] == pytest.approx(expected)
    assert table["small_sample"].tolist() == [True, True]


def test_expected_numbers_have_rates_and_no_tests():
    table = tabulate([100, 100], [50.5, 20.25])
    assert table["ratio"][1] == pytest.approx(20.25 / 50.5)
    assert table["four_fifths"][1]
    assert table[["deviations", "p_value", "fisher_p", "to_four_fifths"]].loc[1].isna().all()


def test_the_ratio_has_the_interval_of_its_logarithm():
    table = tabulate([400, 300], [320, 120])
    half = norm.ppf(0.975) * math.sqrt(1 / 120 - 1 / 300 + 1 / 320 - 1 / 400)
    assert table["ratio_low"][1] == pytest.approx(0.5 * math.exp(-half))
    assert table["ratio_high"][1] == pytest.approx(0.5 * math.exp(half))
    assert math.isnan(table["ratio_low"][0])


@pytest.mark.parametrize(("n", "best", "rate"), [(200, 800, 0.5), (60, 300, 0.9), (400, 100, 0.2)])
def test_the_detectable_difference_is_found_in_four_fifths_of_samples(n, best, rate):
    difference = find_detectable(n, best, rate)
    rng = np.random.default_rng(1)
    draws = 4000
    x, y = rng.binomial(n, rate - difference, draws), rng.binomial(best, rate, draws)
    found = np.mean([count_deviations(a, n, b, best) <= -2 for a, b in zip(x, y, strict=True)])
    # The normal approximation is off by a few per cent in samples as small as these.
    assert 0.75 < found < 0.86
    assert find_detectable(4 * n, 4 * best, rate) == pytest.approx(difference / 2, rel=0.15)


def test_too_few_persons_can_show_nothing():
    assert math.isnan(find_detectable(3, 3, 0.5))
    assert 0 < find_detectable(50, 50, 1.0) < 0.5


def test_standardised_differences():
    d, low, high = standardise(
        np.array([1.0, 0.0]), np.array([4.0, 4.0]), np.array([100, 50]), best=0
    )
    assert d.tolist() == [0.0, -0.5]
    half = norm.ppf(0.975) * math.sqrt(1 / 50 + 1 / 100 + 0.25 / 300)
    assert (low[1], high[1]) == pytest.approx((-0.5 - half, -0.5 + half))
    constant, *_ = standardise(np.ones(2), np.zeros(2), np.array([10, 10]), best=0)
    assert np.isnan(constant).all()
