from __future__ import annotations

import json

import numpy as np
import pytest

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.train.postprocess.ramp import RampRule, host_share, integrate
from fairfrontier.train.postprocess.rule import ThresholdRule
from fairfrontier.train.postprocess.threshold import build_problem
from tests.runtime.test_arrays import namespaces

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


def test_json_there_and_back():
    described = json.loads(json.dumps(RULE.to_json(), allow_nan=False))
    again = RampRule.from_json(described)
    for name in ("centre", "level", "slope"):
        np.testing.assert_array_equal(getattr(again, name), getattr(RULE, name))
    assert again.n_groups == 3
    with pytest.raises(ValueError, match="differ in length"):
        RampRule.from_json({**described, "levels": [0.0]})


@pytest.mark.parametrize("slope", [3.0, -3.0, 0.0, 1e6, -0.2])
@pytest.mark.parametrize("level", [-0.4, 0.0, 0.3, 1.0, 1.7])
def test_moments_are_sums_over_rows(level, slope):
    generator = np.random.default_rng(3)
    score = np.round(generator.uniform(-1, 1, 60), 1)
    weight = generator.integers(0, 3, 60).astype(float)
    (segment,) = build_problem(score, np.zeros(60, dtype=np.int64), 1, weight).segments
    seen = integrate(host_share(segment), level, slope)
    line = level + slope * score
    h, share = np.clip(line, 0, 1), weight / weight.sum()
    on = (line > 0) & (line < 1)
    # Rows at an end of the ramp may count as on it.
    ends = np.isclose(line, 0, atol=1e-9) | np.isclose(line, 1, atol=1e-9)
    assert seen.chosen == pytest.approx(share @ h, abs=1e-9)
    assert seen.pull == pytest.approx(share @ (score * h), abs=1e-9)
    assert share @ (on & ~ends) - 1e-12 <= seen.mass <= share @ (on | ends) + 1e-12
    if not ends.any():
        assert seen.moment == pytest.approx(share @ (score * on))
        assert seen.square == pytest.approx(share @ (score**2 * on))
