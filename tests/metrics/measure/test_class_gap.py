from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from fairfrontier.metrics.measure.group import compute_class_gap_abs, compute_class_gap_rms
from fairfrontier.metrics.statistic.rate import TNR, TPR, compute_gap_rms
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from tests.metrics.made import make_part

NAMES = ["gap_rms", "gap_abs", "gap_classes_left_out"]


def make(n=3000, k=6, levels=2, seed=0, *, weighted=False):
    rng = np.random.default_rng(seed)
    # Later classes are rarer, the last one so rare that not every level has ten rows.
    y = rng.choice(k, n, p=(share := 0.35 ** np.arange(k)) / share.sum())
    gender = rng.integers(0, levels, n)
    wrong = rng.random(n) < 0.1 + 0.1 * gender * (y % 2)
    decision = np.where(wrong, (y + 1) % k, y).astype(float)
    weight = rng.uniform(0.5, 2, n) if weighted else np.ones(n)
    part = make_part(
        y, gender[:, None], {"gender": tuple(map(str, range(levels)))},
        weight=weight, classes=tuple(map(str, range(k))),
    )  # fmt: skip
    return part, Prediction(np.eye(k)[decision.astype(int)], decision)


def brute(part, decision, minimum):
    """Return the gaps of the kept classes, one list for each class."""
    gender = part.group("gender")
    gaps = []
    for k in range(len(part.classes)):
        recalls = []
        for level in range(len(part.attributes["gender"])):
            rows = (part.y == k) & (gender == level)
            if rows.sum() >= minimum:
                recalls.append(np.average(decision[rows] == k, weights=part.weight[rows]))
        if len(recalls) > 1:
            gaps.append([abs(a - b) for a, b in combinations(recalls, 2)])
    return gaps


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_gaps_over_classes_are_those_of_brute_force(levels, weighted):
    part, asked = make(levels=levels, weighted=weighted)
    rows = tabulate(asked, part, NAMES, minimum=10).set_index("measure")
    gaps = brute(part, asked.decision, 10)
    assert 1 <= len(part.classes) - len(gaps) <= 3
    rms = np.sqrt(np.mean([np.mean(np.square(each)) for each in gaps]))
    assert rows.loc["gap_rms", "value"] == pytest.approx(rms)
    absolute = np.mean([np.mean(each) for each in gaps])
    assert rows.loc["gap_abs", "value"] == pytest.approx(absolute)
    assert rows.loc["gap_classes_left_out", "value"] == len(part.classes) - len(gaps)
    assert (rows["group"] == "gender").all()
    for name in NAMES[:2]:
        row = rows.loc[name]
        assert row["low"] < row["value"] < row["high"]
        assert row["n"] <= part.n_samples


def brute_largest(part, decision, pairs, minimum=10):
    """Return max |P(ŷ = k | Y = j, a) − P(ŷ = k | Y = j, b)| over pairs (j, k); None is any j."""
    gaps = []
    for j, k in pairs:
        shares = []
        for level in range(len(part.attributes["gender"])):
            rows = (part.group("gender") == level) & (True if j is None else part.y == j)
            if rows.sum() >= minimum:
                shares.append(np.average(decision[rows] == k, weights=part.weight[rows]))
        gaps += [np.ptp(shares)] if len(shares) > 1 else []
    return max(gaps)


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_largest_gaps_of_several_classes_are_those_of_brute_force(levels, weighted):
    part, asked = make(levels=levels, weighted=weighted)
    classes = range(len(part.classes))
    compared = {
        "selection_rate_difference": [(None, k) for k in classes],
        "gap_max": [(k, k) for k in classes],
        "equalized_odds_difference": list(product(classes, classes)),
    }
    rows = tabulate(asked, part, list(compared), minimum=10).set_index("measure")
    for name, pairs in compared.items():
        row = rows.loc[name]
        assert row["value"] == pytest.approx(brute_largest(part, asked.decision, pairs))
        assert row["low"] <= row["value"] <= row["high"]
        assert row["group"] == "gender"
    assert rows.loc["selection_rate_difference", "n"] == part.n_samples
    assert rows.loc["equalized_odds_difference", "n"] == rows.loc["gap_max", "n"]


def test_a_class_without_rows_leaves_the_largest_gaps_of_two_classes():
    part, asked = make(k=2, levels=3)
    several = replace(part, classes=(*part.classes, "never"))
    names = ["selection_rate_difference", "gap_max"]
    two, three = (
        tabulate(Prediction(score, asked.decision), each, names, minimum=10).set_index("measure")
        for score, each in ((asked.score[:, 1], part), (np.eye(3)[part.y], several))
    )
    odds = tabulate(asked, several, ["equalized_odds_difference"], minimum=10)
    columns = ["value", "n"]
    two = two[two["group"] == "gender"]
    np.testing.assert_allclose(three[columns], two[columns])
    assert odds["value"].item() == pytest.approx(two.loc["gap_max", "value"])


def test_no_largest_gap_of_levels_without_rows_enough():
    part, asked = make(n=40)
    rows = tabulate(asked, part, ["gap_max", "equalized_odds_difference"], minimum=1000)
    assert rows[["value", "low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize("compute", [compute_class_gap_rms, compute_class_gap_abs])
def test_equal_rates_have_no_gap_at_all(compute):
    rate = np.random.default_rng(0).random((200, 1, 4))
    recall = np.repeat(rate, 3, axis=1)
    recall[::2, 1, :2] = np.nan
    assert (compute(recall) == 0).all()


@pytest.mark.parametrize("minimum", [0, 1])
def test_classes_without_rows_or_weight_are_left_out_and_counted(minimum):
    part, asked = make(k=4)
    gender = part.group("gender")
    # Of class 1 no level has weight, of class 3 there is one level alone.
    part = replace(part, weight=np.where(part.y == 1, 0.0, 1.0))
    chosen = np.flatnonzero((part.y != 3) | (gender == 0))
    part = part.take(chosen)
    asked = Prediction(asked.score[chosen], asked.decision[chosen])
    rows = tabulate(asked, part, NAMES, minimum=minimum).set_index("measure")
    assert rows.loc["gap_classes_left_out", "value"] == 2
    gaps = [gap for k in (0, 2) for gap in brute_class(part, asked.decision, k)]
    assert rows.loc["gap_abs", "value"] == pytest.approx(np.mean(gaps))
    assert rows.loc["gap_abs", "n"] == np.isin(part.y, (0, 2)).sum()


def brute_class(part, decision, k):
    rates = [(decision == k)[(part.y == k) & (part.group("gender") == a)].mean() for a in (0, 1)]
    return [abs(rates[0] - rates[1])]


def test_the_rows_are_those_that_take_part():
    part, asked = make()
    count = np.bincount(part.y * 2 + part.group("gender")).reshape(-1, 2)
    kept = (count >= 10).all(axis=1)
    assert 0 < kept.sum() < len(kept)
    row = tabulate(asked, part, ["gap_abs"], minimum=10).iloc[0]
    assert row["n"] == count[kept].sum()


def test_two_classes_give_the_gaps_of_two_classes():
    rates = np.random.default_rng(0).random((7, 3, 6))
    both = rates[..., [TNR, TPR]]
    assert compute_class_gap_rms(both) == pytest.approx(compute_gap_rms(rates))


def test_equal_rates_leave_no_gap_and_one_level_none_to_measure():
    recall = np.full((2, 5), 0.7)
    assert compute_class_gap_rms(recall) == compute_class_gap_abs(recall) == 0
    assert np.isnan(compute_class_gap_abs(recall[:1]))
    recall[0, :] = np.nan
    assert np.isnan(compute_class_gap_rms(recall))


def test_no_class_with_rows_enough_is_not_estimable():
    part, asked = make(n=40)
    rows = tabulate(asked, part, NAMES, minimum=1000).set_index("measure")["value"]
    assert np.isnan(rows["gap_rms"])
    assert np.isnan(rows["gap_abs"])
    assert rows["gap_classes_left_out"] == 6
