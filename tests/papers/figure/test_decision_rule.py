from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.runtime.errors import ConfigError
from papers.figure.classifier import list_classifiers, score_part
from papers.figure.decision_rule import GRID, WIDTH, compare_rules, draw_rules
from tests.papers.debiased import METHODS, ROOT, make_scene


@pytest.fixture(scope="module")
def plain(debiased):
    (found,) = list_classifiers(debiased, "figure")
    return found


@pytest.fixture(scope="module")
def rules(debiased, plain):
    return compare_rules(debiased, plain)


def test_the_ramp_has_the_papers_width_and_rate(plain, rules):
    rows = score_part(plain.base.fits[0], "calibration", ("sex",), ROOT)
    for group, h in enumerate(rules.ramp):
        rising = GRID[(h > 0) & (h < 1)]
        assert np.ptp(rising) == pytest.approx(WIDTH, abs=0.003)
        # Looked up where the rows are, it decides E[y] of the group.
        decided = np.interp(rows.score[rows.code == group], GRID, h)
        assert decided.mean() == pytest.approx(rows.base_rate(), abs=0.002)


def test_the_rule_of_hardt_is_the_stored_one(plain, rules):
    stored = plain.find("hardt").fits[0]
    rows = score_part(plain.base.fits[0], "test", ("sex",), ROOT)
    decision = stored.predictions()["test"].decision
    for group, h in enumerate(rules.hardt):
        mine = rows.code == group
        place = np.rint((rows.score[mine] + 1) / (GRID[1] - GRID[0])).astype(int)
        # Rounding to the grid matters at its two jumps alone.
        assert np.mean(np.abs(h[place] - decision[mine]) > 1e-9) < 0.02
        assert rules.rate[0, group] == pytest.approx(decision[mine].mean())
        inside = (decision[mine] > 0) & (decision[mine] < 1)
        assert rules.drawn[0, group] == pytest.approx(inside.mean())


def test_bars_are_shares(rules):
    np.testing.assert_allclose(rules.share.sum(axis=1), 1)


def test_the_same_scene_is_the_same_bytes(debiased):
    picture = draw_rules(debiased)
    assert picture == draw_rules(debiased)
    assert "plain: woman" in picture.alt


def test_without_hardt_a_row_is_asked_for(debiased_folder):
    methods = {name: METHODS[name] for name in ("plain", "plain+threshold")}
    scene = make_scene(debiased_folder, methods, seeds=1, name="alone")
    with pytest.raises(ConfigError, match=r"then: \{method: hardt, attributes: sex\}"):
        draw_rules(scene)
