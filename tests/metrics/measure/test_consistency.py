from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binomtest

from fairfrontier.metrics.measure.individual import vary, weigh_versions
from fairfrontier.metrics.statistic.interval import average
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import Variant
from fairfrontier.runtime.errors import ConfigError
from tests.metrics.made import MadeSet, make_part


def consistency(decisions, weight=None, classes=("no", "yes"), rows=None, n=None):
    """Return the row of one counterfactual set whose variants got these decisions."""
    decisions = np.asarray(decisions, dtype=float)
    n = decisions.shape[1] if n is None else n
    variants = tuple(Variant(str(v), np.zeros((n, 1)), np.zeros((n, 0))) for v in range(3))
    part = make_part(
        np.zeros(n, dtype=int),
        np.zeros((n, 0)),
        {},
        weight=weight,
        classes=classes,
        counterfactuals={"spouse": MadeSet(variants, rows)},
    )
    found = {"spouse": tuple((str(v), each) for v, each in enumerate(decisions))}
    prediction = Prediction(np.zeros(n), np.zeros(n), found)
    return tabulate(prediction, part, ["consistency"]).iloc[0]


def test_share_of_rows_with_one_decision():
    decisions = np.random.default_rng(0).random((3, 500)) < 0.9
    same = sum(len(set(row)) == 1 for row in decisions.T.tolist())
    row = consistency(decisions)
    assert row["group"] == "spouse"
    assert row["n"] == 500
    assert row["value"] == pytest.approx(same / 500)
    interval = binomtest(same, 500).proportion_ci(method="wilson")
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))


def test_random_decisions_share_their_draws():
    rng = np.random.default_rng(0)
    chance = rng.random((3, 40))
    row = consistency(chance)
    drawn = rng.random((20000, 1, 40)) < chance
    same = (drawn.all(axis=1) | ~drawn.any(axis=1)).mean()
    assert row["value"] == pytest.approx(same, abs=0.004)
    assert row["value"] == pytest.approx(np.mean(1 - np.ptp(chance, axis=0)))


def test_classes_agree_or_do_not():
    decisions = [[0, 1, 2, 2, 0], [0, 2, 2, 0, 0]]
    assert consistency(decisions, classes=("a", "b", "c"))["value"] == pytest.approx(3 / 5)


def test_weights_count():
    row = consistency([[0, 1, 1], [0, 1, 0]], weight=[1, 2, 5])
    assert row["value"] == pytest.approx(3 / 8)


def test_all_the_same_keeps_a_bound_below_one():
    row = consistency(np.ones((2, 30)))
    assert row["value"] == row["high"] == 1.0
    assert row["low"] == pytest.approx(binomtest(30, 30).proportion_ci(method="wilson").low)


def test_no_rows_is_not_estimable():
    row = consistency(np.ones((2, 0)))
    assert row["n"] == 0
    assert np.isnan(row["value"])


def test_rows_without_versions_do_not_count():
    rows = np.array([0, 2, 9])
    weight = np.arange(1.0, 13.0)
    row = consistency([[0, 1, 1], [0, 1, 0]], weight=weight, rows=rows, n=12)
    assert row["value"] == pytest.approx((1 + 3) / (1 + 3 + 10))
    assert row["n"] == 3


def measure(
    scores, rows=None, weight=None, n=60, classes=("no", "yes"), name="counterfactual_fairness",
    own=None,
):  # fmt: skip
    """Return the measure's row for a set whose rows with versions got these scores."""
    X = np.zeros((n, 1))
    variants = tuple(Variant(str(v), X, X[:, :0].astype(int)) for v in range(len(scores)))
    part = make_part(
        np.zeros(n, dtype=int), np.zeros((n, 0)), {}, weight=weight, classes=classes,
        counterfactuals={"term": MadeSet(variants, rows)},
    )  # fmt: skip
    own = X[:, 0] if own is None else own
    asked = Prediction(own, X[:, 0], counterfactual_scores={"term": tuple(scores)})
    return tabulate(asked, part, [name]).iloc[0]


def test_two_classes_give_the_standard_deviation_over_versions():
    scores = np.random.default_rng(0).random((5, 60))
    row = measure(scores)
    assert row["group"] == "term"
    assert row["value"] == pytest.approx(np.mean([np.std(each) for each in scores.T]))
    assert row["n"] == 60
    wanted = average(np.std(scores, axis=0), np.ones(60))[2:]
    assert row[["low", "high"]].tolist() == pytest.approx(wanted)


@pytest.mark.parametrize("m", [2, 4])
def test_classes_give_the_squared_distance_over_pairs_of_versions(m):
    rng = np.random.default_rng(1)
    scores = rng.dirichlet(np.ones(28), (m, 60))
    wanted = np.mean(
        [[np.sum((a - b) ** 2) for a, b in combinations(each, 2)] for each in scores.swapaxes(0, 1)]
    )
    found = measure(scores, classes=tuple(map(str, range(28))))
    assert found["value"] == pytest.approx(wanted)


def test_scores_of_rows_without_versions_do_not_count():
    rng = np.random.default_rng(2)
    having = np.sort(rng.choice(60, 9, replace=False))
    weight = rng.uniform(0.5, 2, 60)
    scores = rng.random((3, 9))
    row = measure(scores, having, weight)
    wanted = np.average(np.std(scores, axis=0), weights=weight[having])
    assert row["value"] == pytest.approx(wanted)
    assert row["n"] == 9


def test_versions_that_agree_vary_by_nothing_at_all():
    score = np.random.default_rng(3).random(60)
    assert (vary([score] * 7) == 0).all()
    assert (vary([np.column_stack([score, 1 - score])] * 3) == 0).all()
    assert (vary([score]) == 0).all()
    row = measure([score] * 7)
    assert (row["value"], row["low"], row["high"]) == (0, 0, 0)


def test_no_rows_are_not_estimable():
    row = measure([np.empty(0)] * 2, np.empty(0, dtype=np.int64))
    assert np.isnan(row["value"])
    assert row["n"] == 0


def test_sets_that_keep_no_scores_have_no_such_measure():
    X = np.zeros((4, 1))
    flip = MadeSet((Variant("a", X, X[:, :0].astype(int)),))
    part = make_part(np.zeros(4, dtype=int), np.zeros((4, 0)), {}, counterfactuals={"flip": flip})
    asked = Prediction(X[:, 0], X[:, 0], {"flip": (("a", X[:, 0]),)})
    assert "counterfactual_fairness" not in set(tabulate(asked, part)["measure"])
    with pytest.raises(ConfigError):
        tabulate(asked, part, ["counterfactual_fairness"])


def test_weights_of_the_rows_with_versions():
    sets = {"all": MadeSet(()), "some": MadeSet((), np.array([1, 3]))}
    part = make_part(
        np.zeros(4, dtype=int), np.zeros((4, 0)), {}, weight=np.array([1, 2, 3, 4]),
        counterfactuals=sets,
    )  # fmt: skip
    assert weigh_versions(part, "all").tolist() == [1, 2, 3, 4]
    assert weigh_versions(part, "some").tolist() == [2, 4]


def test_gap_is_the_largest_difference_over_versions():
    scores = np.random.default_rng(5).random((4, 60))
    gap = np.sort(scores.max(axis=0) - scores.min(axis=0))
    mean = measure(scores, name="counterfactual_score_gap")
    assert mean["value"] == pytest.approx(gap.mean())
    assert mean["high"] == pytest.approx(average(gap, np.ones(60))[3])
    tail = measure(scores, name="counterfactual_score_gap_95")
    # The 57th of 60 rows in ascending order: 95% of them exactly.
    assert tail["value"] == gap[56]
    low, high = binomtest(57, 60).proportion_ci(method="wilson")
    ends = [gap[int(np.ceil(60 * end)) - 1] for end in (low, high)]
    assert [tail["low"], tail["high"]] == ends


def test_gap_of_several_classes_is_that_of_the_class_that_moves_most():
    scores = np.random.default_rng(6).dirichlet(np.ones(3), (2, 60))
    row = measure(scores, name="counterfactual_score_gap", classes=("a", "b", "c"))
    assert row["value"] == pytest.approx(np.abs(scores[0] - scores[1]).max(axis=1).mean())


def test_gap_in_rank_does_not_depend_on_the_scale_of_scores():
    rng = np.random.default_rng(7)
    own, weight = rng.random(60).astype(np.float32), rng.integers(1, 5, 60).astype(float)
    scores = [own[rng.permutation(60)].astype(np.float64) for _ in range(3)]

    def find_rank(s):
        return (weight[own < s].sum() + weight[own <= s].sum()) / (2 * weight.sum())

    ranks = np.array([[find_rank(s) for s in version] for version in scores])
    gap = np.average(np.ptp(ranks, axis=0), weights=weight)
    # Scores of versions are kept with 32 bits.
    for change in (lambda s: s, lambda s: (s / 8 + 0.5).astype(np.float32).astype(np.float64)):
        row = measure(
            [change(version) for version in scores], own=change(own.astype(np.float64)),
            weight=weight, name="counterfactual_rank_gap",
        )  # fmt: skip
        assert row["value"] == pytest.approx(gap)
