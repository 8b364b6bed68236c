from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from fairfrontier.models.objective import RANKED, choose_cut, list_serving, read_costs, weigh_rows
from fairfrontier.models.registry import METHODS
from fairfrontier.runtime.errors import ConfigError

COSTS = {"costs": {"false_positive": 2.0, "false_negative": 7.0}}
OBJECTIVES = ("accuracy", "balanced_accuracy", "f1", "auc", COSTS)


def measure(objective, y, decision, weight):
    """Return an objective from its definition, more is better."""
    if objective == "accuracy":
        return accuracy_score(y, decision, sample_weight=weight)
    if objective == "f1":
        return f1_score(y, decision, sample_weight=weight, zero_division=0)
    if isinstance(objective, dict):
        cost = np.where(y == 1, 7.0 * (1 - decision), 2.0 * decision)
        return -np.average(cost, weights=weight)
    return balanced_accuracy_score(y, decision, sample_weight=weight)


rows = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0]), st.booleans(), st.integers(0, 3)),
    min_size=2,
    max_size=12,
)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@settings(max_examples=30, deadline=None)
@given(table=rows)
def test_no_cut_is_better(objective, table):
    score, y, weight = (np.array(column, dtype=float) for column in zip(*table, strict=True))
    cut = choose_cut(score, y, weight, objective)
    if not min(weight[y == 1].sum(), weight[y == 0].sum()) > 0:
        assert cut == 0.5
        return
    cuts = [*np.unique(score), 2.0]
    best = max(measure(objective, y, score >= other, weight) for other in cuts)
    assert measure(objective, y, score >= cut, weight) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_rows_of_weight_three_are_three_rows(objective):
    generator = np.random.default_rng(0)
    y, weight = generator.integers(0, 2, 50), generator.integers(0, 4, 50)
    score = np.round(generator.random(50) * 0.6 + 0.3 * y, 2)
    repeated = choose_cut(score.repeat(weight), y.repeat(weight), np.ones(weight.sum()), objective)
    assert choose_cut(score, y, weight.astype(float), objective) == repeated


def test_one_half_stays_where_it_is_among_the_best():
    score, y = np.array([0.2, 0.4, 0.6, 0.8]), np.array([0, 0, 1, 1])
    assert choose_cut(score, y, np.ones(4), "accuracy") == 0.5
    # Two cuts are as good, and the one nearer to one half is taken.
    assert choose_cut(score / 2, y, np.ones(4), "accuracy") == pytest.approx(0.25)


def test_adjacent_scores_are_told_apart():
    low = 0.25
    score = np.array([low, np.nextafter(low, 1.0)])
    cut = choose_cut(score, np.array([0, 1]), np.ones(2), "accuracy")
    assert (score >= cut).tolist() == [False, True]


def test_nobody_and_everybody_can_be_selected():
    score, y = np.array([1.0, 1.0, 1.0]), np.array([0, 0, 1])
    assert not (score >= choose_cut(score, y, np.ones(3), "accuracy")).any()
    score, y = np.array([0.0, 0.0, 0.0]), np.array([0, 1, 1])
    assert (score >= choose_cut(score, y, np.ones(3), "accuracy")).all()


def test_probabilities_are_cut_at_one_half_for_the_log_loss():
    score, y = np.array([0.1, 0.2, 0.3]), np.array([0, 1, 1])
    assert choose_cut(score, y, np.ones(3), "log_loss") == 0.5


@pytest.mark.parametrize("objective", ["accuracy", "balanced_accuracy", COSTS], ids=str)
def test_what_right_decisions_gain_orders_decisions_as_the_objective_does(objective):
    generator = np.random.default_rng(1)
    y, weight = generator.integers(0, 2, 20), generator.random(20)
    gain = weigh_rows(objective, y, weight)
    assert gain.sum() == pytest.approx(1)
    decisions = generator.integers(0, 2, (30, 20))
    sums = [gain[decision == y].sum() for decision in decisions]
    values = [measure(objective, y, decision, weight) for decision in decisions]
    np.testing.assert_array_equal(np.argsort(sums), np.argsort(values))


def test_class_weights_serve_the_objective():
    known = METHODS.all()
    assert list_serving("balanced_accuracy", known["gbdt"]) == {"scale_pos_weight": "balanced"}
    assert list_serving("balanced_accuracy", known["nn"]) == {"balanced": True}
    assert list_serving("accuracy", known["linear"]) == {"class_weight": None}
    budro = list_serving("f1", known["budro"])
    assert (budro["budget"], budro["early_stopping"]) == (None, 20)
    # A rule's budget is a share already.
    assert "budget" not in list_serving("f1", known["reject_option"])
    # Where the cut is chosen for the costs, rows count alike.
    assert list_serving(COSTS, known["gbdt"]) == {"scale_pos_weight": 1.0}
    assert list_serving(COSTS, known["fair_gbm"]) == {"scale_pos_weight": 3.5}


def test_rules_serve_what_they_can():
    rules = ("group_thresholds", "hardt", "reject_option", "reductions", "randomized_threshold")
    for objective, served in {"accuracy": "accuracy", "auc": "balanced_accuracy"}.items():
        for name in rules:
            assert list_serving(objective, METHODS.all()[name])["objective"] == served
    found = [list_serving("f1", METHODS.all()[name])["objective"] for name in rules]
    assert found == ["f1"] + 4 * ["balanced_accuracy"]
    assert list_serving("f1", METHODS.all()["shift_inference"])["objective"] == "f1"
    assert list_serving(COSTS, METHODS.all()["group_thresholds"])["objective"] == COSTS


@pytest.mark.parametrize(
    "objective",
    [
        "accurcy",
        {},
        {"costs": None},
        {"costs": {}},
        {"costs": {"false_positive": 1}},
        {"costs": {"false_positive": 1, "false_negative": 0}},
        {"costs": {"false_positive": 1, "false_negative": "5"}},
        {"costs": {"false_positive": True, "false_negative": 5}},
        {"costs": {"false_positive": 1, "false_negative": float("inf")}},
        {"costs": {"false_positive": 1, "false_negative": 2, "other": 1}},
        {"costs": {"false_positive": 1, "false_negative": 2}, "other": 1},
        3,
        None,
    ],
    ids=str,
)
def test_what_is_no_objective_is_refused(objective):
    with pytest.raises(ConfigError):
        read_costs(objective)


def test_costs_are_read():
    assert read_costs(COSTS) == (2.0, 7.0)
    assert [read_costs(name) for name in RANKED] == [None] * len(RANKED)
