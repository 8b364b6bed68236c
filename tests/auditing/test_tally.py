from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from fairfrontier.auditing.debias import describe_doubt
from fairfrontier.auditing.debiased import Tally
from fairfrontier.metrics.statistic.interval import wilson

PARTS = ("calibration", "validation")


def make_rows(n=900):
    rng = np.random.default_rng(3)
    return {
        "part": rng.integers(0, 2, n),
        "code": rng.integers(0, 3, n),
        "weight": rng.integers(1, 4, n).astype(float),
        "before": (rng.random(n) < 0.4).astype(float),
        "after": rng.random(n),
        "label": rng.integers(0, 2, n).astype(float),
    }


def add(tally, rows, inside=slice(None)):
    some = {name: values[inside] for name, values in rows.items()}
    h = {name: some[name] for name in ("before", "after")}
    tally.add(some["part"], some["code"], some["weight"], h, some["label"])


def test_shares_are_the_weighted_means_of_the_rows():
    rows = make_rows()
    tally = Tally(("before", "after"), PARTS, 3, 0)
    for start in range(0, 900, 170):
        add(tally, rows, slice(start, start + 170))
    merged = np.array([0, 1, 1])
    right = rows["label"] * rows["after"] + (1 - rows["label"]) * (1 - rows["after"])
    for parts, in_parts in (
        (("validation",), rows["part"] == 1),
        (PARTS, np.ones(900, dtype=bool)),
    ):
        for codes, code in ((None, rows["code"]), (merged, merged[rows["code"]])):
            for group in range(code.max() + 1):
                inside = in_parts & (code == group)
                assert tally.rows(parts, codes)[group] == inside.sum()
                changed = abs(rows["after"] - rows["before"])
                for (value, low, high), values in (
                    (tally.shares(parts, codes, "after"), rows["after"]),
                    (tally.shares(parts, codes, "before"), rows["before"]),
                    (tally.shares(parts, codes, "after", "accuracy"), right),
                    (tally.shares(parts, codes, "after", kind="changed"), changed),
                    (tally.shares(parts, codes, kind="label"), rows["label"]),
                ):
                    mean = np.average(values[inside], weights=rows["weight"][inside])
                    assert value[group] == pytest.approx(mean, abs=1e-12)
                    assert low[group] < mean < high[group]


def test_unweighted_decisions_have_wilsons_interval():
    rows = make_rows() | {"weight": np.ones(900)}
    tally = Tally(("before", "after"), PARTS, 3, 0)
    add(tally, rows)
    value, *ends = tally.shares(PARTS, rule="before")
    size = np.bincount(rows["code"]).astype(float)
    np.testing.assert_allclose(ends, wilson(value, size), atol=1e-12)
    # The mean of h is known better than that of the decisions it would draw.
    value, low, _ = tally.shares(PARTS, rule="after")
    assert (low > wilson(value, size)[0]).all()


def test_bias_is_the_largest_difference_of_groups_that_have_rows():
    rows = make_rows()
    tally = Tally(("before", "after"), PARTS, 5, 0)
    add(tally, rows)
    rates, *_ = tally.shares(PARTS, rule="after")
    assert np.isnan(rates[3:]).all()
    value, low, high = tally.bias("after", PARTS)
    assert value == pytest.approx(np.ptp(rates[:3]), abs=1e-12)
    assert low <= value <= high
    assert tally.bias("after", PARTS) == (value, low, high)


def test_the_interval_of_the_bias_is_that_of_a_bootstrap_of_rows():
    rows = make_rows() | {"weight": np.ones(900)}
    rows["before"] = (np.random.default_rng(0).random(900) < 0.2 + 0.2 * rows["code"]).astype(float)
    tally = Tally(("before", "after"), PARTS, 3, 0)
    add(tally, rows)
    _, *found = tally.bias("before", PARTS)
    rng = np.random.default_rng(1)
    draws = []
    for _ in range(2000):
        again = rng.integers(0, 900, 900)
        code, h = rows["code"][again], rows["before"][again]
        draws.append(np.ptp(np.bincount(code, h, 3) / np.bincount(code, minlength=3)))
    assert found == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.015)


def test_the_bias_of_a_criterion_is_of_the_rows_with_its_label():
    rows = make_rows()
    tally = Tally(("before", "after"), PARTS, 3, 0)
    add(tally, rows)
    gap = {}
    for label in (1, 0):
        code, weight, h = (
            rows[name][rows["label"] == label] for name in ("code", "weight", "after")
        )
        rate = np.bincount(code, weight * h) / np.bincount(code, weight)
        gap[label] = np.ptp(rate)
        found, *_ = tally.shares(PARTS, rule="after", rate="tpr" if label else "fpr")
        np.testing.assert_allclose(found, rate, atol=1e-12)
    expected = {"equal_opportunity": gap[1], "predictive_equality": gap[0]}
    expected |= {"equalized_odds": max(gap.values()), "average_odds": sum(gap.values()) / 2}
    for criterion, value in expected.items():
        found, low, high = tally.bias("after", PARTS, criterion=criterion)
        assert found == pytest.approx(value, abs=1e-12)
        assert low < value < high


def test_objectives_are_those_of_the_rows():
    rows = make_rows()
    tally = Tally(("before", "after"), PARTS, 3, 0)
    add(tally, rows)
    y, h, weight = (rows[name] for name in ("label", "before", "weight"))
    costs = {"costs": {"false_positive": 1.0, "false_negative": 4.0}}
    assert tally.expect("before", PARTS, costs)[0] == pytest.approx(
        np.average(np.where(y == 1, 4 * (1 - h), h), weights=weight)
    )
    for objective, score in {
        "accuracy": accuracy_score,
        "balanced_accuracy": balanced_accuracy_score,
        "f1": f1_score,
    }.items():
        value, low, high = tally.expect("before", PARTS, objective)
        assert value == pytest.approx(score(y, h, sample_weight=weight))
        assert low < value < high
        assert high - low == pytest.approx(0.07, abs=0.03)


def expect(**bias):
    """Return what cross-validation says, of attributes with their bias before and after."""
    return {
        "bias": [
            {"attribute": name, "before": before, "after": after}
            for name, (before, after) in bias.items()
        ]
    }


@pytest.mark.parametrize(
    "found",
    [
        {},
        expect(sex=(0.0, 0.0)),
        expect(sex=(0.2, 0.1), race=(0.1, 0.1)),
        # As they are shown both are .010, or one more in the last digit than it should be.
        expect(sex=(0.0102, 0.0104)),
        expect(sex=(0.0104, 0.0106)),
    ],
)
def test_a_rule_that_adds_no_bias_is_not_doubted(found):
    assert describe_doubt(found) == ""


def test_one_sentence_names_all_attributes_between_whose_levels_bias_is_added():
    found = expect(sex=(0.0, 0.0012), race=(0.3, 0.1), age=(0.01, 0.02))
    assert describe_doubt(found) == (
        "On fresh rows (cross-validated) the rule is expected to raise the bias between the levels "
        "of sex from 0.000 to 0.001, age from 0.010 to 0.020."
    )
