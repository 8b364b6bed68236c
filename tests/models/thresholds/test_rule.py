from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.models.thresholds.rule import MixtureRule, RampRule, ThresholdRule
from fairfrontier.runtime.arrays import to_numpy
from tests.namespaces import namespaces

SCORE = np.array([-1.0, -0.2, 0.1, 0.1, 0.3, 1.0])
CODE = np.array([0, 1, 1, 0, 0, 1])


@pytest.mark.parametrize("namespace", namespaces())
def test_ramp_row_by_row(namespace):
    xp = namespace()
    rule = ThresholdRule(0.5, np.array([-0.1, 0.2]), np.zeros(2))
    found = rule.probability(xp.asarray(SCORE), xp.asarray(CODE))
    assert found.dtype == xp.float64
    assert to_numpy(found) == pytest.approx([0, 0, 0, 0.4, 0.8, 1])


@pytest.mark.parametrize("namespace", namespaces())
def test_coin_is_tossed_at_the_threshold_alone(namespace):
    xp = namespace()
    rule = ThresholdRule(0.0, np.array([0.3, 0.1]), np.array([0.25, 0.5]))
    found = rule.probability(xp.asarray(SCORE), xp.asarray(CODE))
    assert to_numpy(found).tolist() == [0, 0, 0.5, 0, 0.25, 1]


@given(width=st.floats(0.01, 2), threshold=st.floats(-3, 1), low=st.floats(-1, 1))
@settings(max_examples=50)
def test_a_higher_score_is_never_worse(width, threshold, low):
    rule = ThresholdRule(width, np.array([threshold]), np.zeros(1))
    found = rule.probability(np.linspace(low, 1, 7), np.zeros(7, dtype=int))
    assert (np.diff(found) >= 0).all()
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("width", [0.0, 0.1])
def test_json_gives_the_same_rule_back(width):
    rule = ThresholdRule(width, np.array([0.1 + 0.2, -1 / 3]), np.array([0.0, 0.7]))
    described = json.loads(json.dumps(rule.to_json()))
    assert set(described) == {"width", "thresholds", "coins"}
    again = ThresholdRule.from_json(described)
    code = np.array([0, 1] * 3)
    assert again.probability(SCORE, code).tobytes() == rule.probability(SCORE, code).tobytes()


def test_a_broken_description_is_refused():
    with pytest.raises(ValueError, match="differ in length"):
        ThresholdRule.from_json({"width": 0.1, "thresholds": [0.1], "coins": [0, 0]})


RULE = RampRule(
    centre=np.array([0.25, 0.0, -0.5]),
    level=np.array([0.5, 0.3, 0.2]),
    slope=np.array([2.0, np.inf, -1.0]),
)


@pytest.mark.parametrize("namespace", namespaces())
def test_a_line_is_clipped_and_a_step_has_a_coin(namespace):
    xp = namespace()
    score = xp.asarray([0.25, 0.4, 1.0, -1.0, -0.1, 0.0, 0.1, -0.5, 0.5, -1.0])
    code = xp.asarray([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    h = to_numpy(RULE.probability(score, code))
    np.testing.assert_allclose(h, [0.5, 0.8, 1, 0, 0, 0.3, 1, 0.2, 0, 0.7], atol=1e-15)


def test_thresholds_are_a_special_case():
    generator = np.random.default_rng(0)
    score, code = generator.uniform(-1, 1, 200), generator.integers(0, 2, 200)
    threshold = np.array([-0.2, 0.1])
    rule = RampRule(threshold, np.zeros(2), np.full(2, 4.0))
    other = ThresholdRule(0.25, threshold, np.zeros(2))
    np.testing.assert_allclose(
        rule.probability(score, code), other.probability(score, code), atol=1e-15
    )


def test_infinite_thresholds_become_those_beyond_all_scores():
    rule = MixtureRule(np.array([[-np.inf, 0.1], [np.inf, 0.3]]), np.full((2, 2), 0.5))
    finite = rule.clip()
    assert finite.threshold.tolist() == [[-2.0, 0.1], [2.0, 0.3]]
    found = finite.probability(SCORE, CODE)
    assert found.tolist() == rule.probability(SCORE, CODE).tolist() == [0.5, 0, 0, 0.5, 1, 0.5]


def test_ramps_come_back_from_json():
    described = json.loads(json.dumps(RULE.to_json(), allow_nan=False))
    again = RampRule.from_json(described)
    for name in ("centre", "level", "slope"):
        np.testing.assert_array_equal(getattr(again, name), getattr(RULE, name))
    with pytest.raises(ValueError, match="differ in length"):
        RampRule.from_json({**described, "levels": [0.0]})
