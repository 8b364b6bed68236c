from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.thresholds.base import score_part
from fairfrontier.runtime.errors import ConfigError, DataError
from papers.rival.reject_option import GRID, ROUNDING, RejectOption
from tests.models.tables import make_split


def make_rows(n=500, n_groups=2, levels=None, seed=0):
    """Scores, labels and groups whose rates differ; ``levels`` are the k of k-NN's scores."""
    generator = np.random.default_rng(seed)
    group = generator.integers(n_groups, size=n)
    score = 1.0 / (1.0 + np.exp(-generator.normal(size=n) - 0.8 * group + 0.5))
    if levels is not None:
        score = np.round(score * levels) / levels
    y = (generator.uniform(size=n) < score).astype(np.int64)
    return score, y, group[:, None]


def decide(score, code, favoured, theta):
    """Kamiran et al.'s definition, row by row, in exact decimals."""
    decisions = []
    for p, k in zip(score, code, strict=True):
        critical = round(max(p, 1 - p), 9) < round((1 + theta) / 2, 9)
        decisions.append(float(not favoured[k]) if critical else float(p >= 0.5))
    return np.array(decisions)


def choose_by_hand(score, y, code, weight, budget, balanced=False):
    """Return (θ, bias, objective) by trying everything, and the favoured groups."""
    codes = range(code.max() + 1)

    def rate(decision, rows):
        return np.average(decision[rows], weights=weight[rows])

    before = (score >= 0.5).astype(float)
    overall = np.average(before, weights=weight)
    favoured = [rate(before, code == k) > overall + 1e-9 for k in codes]
    tried = []
    for theta in (0.0, *GRID):
        decision = decide(score, code, favoured, theta)
        each = [rate(decision, code == k) for k in codes]
        right = (decision == y).astype(float)
        parts = [rate(right, y == label) for label in np.unique(y)]
        good = np.mean(parts) if balanced else np.average(right, weights=weight)
        tried.append((theta, max(each) - min(each), good))
    within = [each for each in tried if each[1] <= budget + 1e-9]
    if not within:
        least = min(each[1] for each in tried)
        within = [each for each in tried if each[1] <= least + 1e-9]
    best = max(each[2] for each in within)
    return next(each for each in within if each[2] >= best - 1e-9), favoured


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    n_groups=st.integers(1, 4),
    levels=st.sampled_from([None, 1, 2, 10, 20]),
    budget=st.sampled_from([0.0, 0.01, 0.1, 1.0]),
    balanced=st.booleans(),
    weighted=st.booleans(),
)
def test_the_grid_is_searched_exactly(seed, n_groups, levels, budget, balanced, weighted):
    score, y, groups = make_rows(60, n_groups, levels, seed)
    code = np.unique(groups, return_inverse=True)[1].reshape(-1)
    weight = np.random.default_rng(seed).integers(1, 4, 60) * 1.0 if weighted else np.ones(60)
    objective = "balanced_accuracy" if balanced else "accuracy"
    model = RejectOption(budget=budget, objective=objective)
    model.fit(score, y, sensitive_features=groups, sample_weight=weight)
    (theta, bias, good), favoured = choose_by_hand(score, y, code, weight, budget, balanced)
    assert model.theta_ == theta
    at = list(model.curve_.theta).index(theta)
    assert model.curve_.bias[at] == pytest.approx(bias, abs=1e-12)
    assert model.curve_.objective[at] == pytest.approx(good, abs=1e-12)
    assert model.met_ == (bias <= budget + 1e-9)
    assert model.favoured_.tolist() == favoured
    decided = model.predict_proba(score, sensitive_features=groups)[:, 1]
    assert np.array_equal(decided, decide(score, code, favoured, theta))


def test_bias_is_removed_where_scores_are_spread():
    score, y, groups = make_rows(4000)
    model = RejectOption().fit(score, y, sensitive_features=groups)
    decided = model.predict(score, sensitive_features=groups)
    gap = decided[groups[:, 0] == 0].mean() - decided[groups[:, 0] == 1].mean()
    assert model.met_
    assert abs(gap) <= 0.01
    before = score >= 0.5
    assert before[groups[:, 0] == 1].mean() - before[groups[:, 0] == 0].mean() > 0.2


@pytest.mark.parametrize("levels", [1, 3])
def test_piles_of_equal_scores_cannot_be_halved(levels):
    score, y, groups = make_rows(4000, levels=levels)
    model = RejectOption().fit(score, y, sensitive_features=groups)
    assert not model.met_
    assert model.curve_.bias.min() == pytest.approx(
        model.curve_.bias[model.curve_.theta == model.theta_][0]
    )
    assert model.curve_.bias.min() > 0.05
    if levels == 1:  # saturated: no region holds any score
        assert model.theta_ == 0.0
        assert np.ptp(model.curve_.bias) == 0.0


def test_scores_at_the_edge_stay_outside_in_spite_of_rounding():
    # 2·0.6 − 1 is less than 0.2 by rounding, and 2·0.7 − 1 less than 0.4.
    score = np.array([0.4, 0.6, 0.3, 0.7])
    groups = np.array([[0], [1], [0], [1]])
    model = RejectOption(thetas=[0.2, 0.4], budget=1.0)
    model.fit(np.array([0.9, 0.1]), np.array([1, 0]), sensitive_features=np.array([[1], [0]]))
    for theta, expected in {0.2: [0, 1, 0, 1], 0.4: [1, 0, 0, 1]}.items():
        model.theta_ = theta
        assert model.predict(score, sensitive_features=groups).tolist() == expected


EDGES = [0.0, 1e-9, 2e-9, 0.01, 0.2, 0.5, 1.0]


@settings(max_examples=60)
@given(
    theta=st.one_of(st.sampled_from(EDGES), st.floats(0.0, 1.0)),
    scores=st.lists(st.floats(-1.0, 1.0), max_size=20),
)
def test_one_threshold_for_each_group_decides_alike_on_all_numbers(theta, scores):
    model = RejectOption()
    model.theta_, model.favoured_ = theta, np.array([False, True])
    edge = theta - ROUNDING
    edges = np.array([0.0, -0.0, edge, -edge, theta, -theta, 1.0, -1.0])
    near = [np.nextafter(edges, end) for end in (-2.0, 2.0)]
    signed = np.clip(np.concatenate([edges, *near, scores]), -1.0, 1.0)
    rule = model.mixture()
    assert rule.threshold.shape == (2, 1)
    for k in range(2):
        code = np.full(len(signed), k)
        decided = model.probability(signed, code)
        np.testing.assert_array_equal(rule.probability(signed, code), decided)
        by_hand = [1.0 - k if abs(f) < edge else float(f >= 0) for f in signed.tolist()]
        assert decided.tolist() == by_hand


def test_validation_decides_where_it_is_given():
    score, y, groups = make_rows(800)
    other, labels, codes = make_rows(800, seed=9)
    part = make_split(1600).train
    validation = score_part(replace(part, y=labels, groups=1 - codes), other)
    model = RejectOption().fit(score, y, sensitive_features=groups, validation=validation)
    alone = RejectOption().fit(other, labels, sensitive_features=1 - codes)
    assert model.theta_ == alone.theta_
    assert model.favoured_.tolist() == alone.favoured_.tolist() == [True, False]
    assert RejectOption().fit(score, y, sensitive_features=groups).favoured_.tolist() == [
        False,
        True,
    ]


def test_a_group_that_validation_lacks_is_named():
    score, y, groups = make_rows(300, n_groups=3)
    part = make_split(300).train
    validation = score_part(replace(part, groups=groups[:150] % 2), score[:150])
    with pytest.raises(DataError, match=r"No validation row .* \[2\]"):
        RejectOption().fit(score, y, sensitive_features=groups, validation=validation)
    with pytest.raises(DataError, match=r"without a row of the group \[2\]"):
        RejectOption().fit(
            score[:150],
            y[:150],
            sensitive_features=groups[:150] % 2,
            validation=score_part(replace(part, groups=groups[:150]), score[:150]),
        )


def test_it_comes_back_with_its_curve(tmp_path):
    score, y, groups = make_rows(300)
    model = RejectOption(thetas=[0.3, 0.1]).fit(score, y, sensitive_features=groups)
    back = RejectOption.load(model.save(tmp_path / "model"))
    assert (back.theta_, back.met_) == (model.theta_, model.met_)
    assert back.result_ == model.result_
    assert back.curve_.theta.tolist() == [0.0, 0.1, 0.3]
    assert np.array_equal(back.curve_.bias, model.curve_.bias)
    assert np.array_equal(
        back.predict_proba(score, sensitive_features=groups),
        model.predict_proba(score, sensitive_features=groups),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("budget", -0.1), ("objective", "f1"), ("thetas", [0.0, 0.5]), ("thetas", [1.2])],
)
def test_parameters_that_cannot_be(name, value):
    score, y, groups = make_rows(60)
    with pytest.raises(ConfigError, match=name):
        RejectOption(**{name: value}).fit(score, y, sensitive_features=groups)
