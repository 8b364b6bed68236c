from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from fairfrontier.metrics.statistic.rate import count_cells
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.runtime.errors import ConfigError
from tests.metrics.made import make_part

NAMES = ["accuracy_spread", "balanced_accuracy_spread", "memberships_left_out"]
FAMILIES = ("muslim", "black", "gay", "rare", "blind")


def make(n=2000, k=2, seed=0, *, weighted=False):
    """Return comments that mention some of five families; blind is never in class 0."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    member = rng.random((n, 5)) < [0.2, 0.15, 0.3, 0.001, 0.1]
    member[y == 0, 4] = False
    wrong = rng.random(n) < 0.1 + 0.2 * member[:, 0] + 0.1 * member[:, 1] * y
    decision = np.where(wrong, (y + 1) % k, y).astype(float)
    sex = rng.integers(0, 2, n)
    # One family is coded the other way round: the level's name says who belongs.
    codes = np.column_stack([member[:, 0], ~member[:, 1], member[:, 2:], sex]).astype(int)
    attributes = dict.fromkeys(FAMILIES, ("no", "yes")) | {"sex": ("f", "m")}
    attributes["black"] = ("yes", "no")
    part = make_part(
        y, codes, attributes, weight=rng.uniform(0.5, 2, n) if weighted else None,
        classes=tuple(map(str, range(k))),
    )  # fmt: skip
    score = decision if k == 2 else np.eye(k)[decision.astype(int)]
    return part, Prediction(score, decision), member


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_spreads_are_those_of_brute_force(k, weighted):
    part, asked, member = make(k=k, weighted=weighted)
    rows = tabulate(asked, part, NAMES).set_index("measure")
    assert member[:, 3].sum() < 10

    def rate(function, column):
        chosen = member[:, column]
        return function(part.y[chosen], asked.decision[chosen], sample_weight=part.weight[chosen])

    plain = np.std([rate(accuracy_score, column) for column in (0, 1, 2, 4)])
    balanced = np.std([rate(balanced_accuracy_score, column) for column in (0, 1, 2)])
    assert rows.loc["accuracy_spread", "value"] == pytest.approx(plain)
    assert rows.loc["balanced_accuracy_spread", "value"] == pytest.approx(balanced)
    assert rows.loc["memberships_left_out", "value"] == 2
    assert rows.loc["accuracy_spread", "n"] == member[:, [0, 1, 2, 4]].any(axis=1).sum()
    assert rows.loc["balanced_accuracy_spread", "n"] == member[:, :3].any(axis=1).sum()
    for name in NAMES[:2]:
        assert rows.loc[name, "low"] < rows.loc[name, "value"] < rows.loc[name, "high"]


def test_random_decisions_count_as_their_expectation():
    part, _, member = make()
    h = np.random.default_rng(5).random(part.n_samples)
    row = tabulate(Prediction(h, h), part, NAMES[:1]).iloc[0]
    right = np.where(part.y == 1, h, 1 - h)
    wanted = np.std([right[member[:, column]].mean() for column in (0, 1, 2, 4)])
    assert row["value"] == pytest.approx(wanted)


def test_overlapping_rows_are_drawn_together():
    part, asked, member = make(400)
    row = tabulate(asked, part, NAMES[:1]).iloc[0]
    right = asked.decision == part.y
    rng = np.random.default_rng(1)
    draws = rng.integers(0, 400, (4000, 400))
    families = [c for c in range(5) if member[:, c].sum() >= 10]
    brute = [np.std([right[rows][member[rows, c]].mean() for c in families]) for rows in draws]
    # As wide as the spread of rows drawn anew, and lower: that one is biased upwards twice.
    low, high = np.quantile(brute, [0.025, 0.975])
    assert row["high"] - row["low"] == pytest.approx(high - low, rel=0.5)
    assert row["low"] < low


def test_one_family_has_no_spread():
    part, asked, _ = make()
    few = make_part(part.y, part.groups[:, [0, 5]], {"muslim": ("no", "yes"), "sex": ("f", "m")})
    with pytest.raises(ConfigError):
        tabulate(asked, few, NAMES[:1])
    two = make_part(
        part.y, part.groups[:, [0, 3]], {"muslim": ("no", "yes"), "rare": ("no", "yes")}
    )
    rows = tabulate(asked, two, NAMES).set_index("measure")["value"]
    assert rows[NAMES[:2]].isna().all()
    assert rows["memberships_left_out"] == 1


def test_a_family_without_rows_has_no_accuracy_whatever_the_minimum():
    part, asked, member = make()
    codes = np.column_stack([member[:, [0, 2]], np.zeros(part.n_samples)]).astype(int)
    three = make_part(part.y, codes, dict.fromkeys(("muslim", "gay", "nobody"), ("no", "yes")))
    rows = tabulate(asked, three, NAMES, minimum=0).set_index("measure")["value"]
    right = asked.decision == part.y
    wanted = np.std([right[member[:, column]].mean() for column in (0, 2)])
    assert rows["accuracy_spread"] == pytest.approx(wanted)
    assert rows["memberships_left_out"] == 1


def test_rows_without_weight_are_no_rows_of_a_family():
    part, asked, member = make()
    weight = np.where(member[:, 0] | (member[:, 2] & (part.y == 1)), 0.0, 1.0)
    rows = tabulate(asked, replace(part, weight=weight), NAMES).set_index("measure")["value"]
    right = asked.decision == part.y

    def rate(column, labels=(0, 1)):
        return np.mean(
            [np.average(right[own], weights=weight[own]) for k in labels
             if (own := member[:, column] & np.isin(part.y, k)).any()]
        )  # fmt: skip

    # The first family has no weight, the third and the fifth lack a class.
    assert rows["memberships_left_out"] == 4
    assert np.isnan(rows["balanced_accuracy_spread"])
    wanted = np.std([rate(column, ([0, 1],)) for column in (1, 2, 4)])
    assert rows["accuracy_spread"] == pytest.approx(wanted)


def test_memberships_make_no_pairs():
    part, asked, _ = make()
    pairs = [name for name in count_cells(asked, part) if "×" in name]
    assert sorted(pairs) == sorted(f"{name}×sex" for name in FAMILIES)
