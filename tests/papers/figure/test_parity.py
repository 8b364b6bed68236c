from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.prepare.config.dataset import read_dataset
from papers.figure.classifier import list_classifiers
from papers.figure.parity import draw_parity, measure_gaps, refuse_one_attribute
from tests.papers.debiased import ROOT


@pytest.fixture(scope="module")
def measured(debiased):
    return measure_gaps(debiased)


def test_levels_are_found_in_the_results(measured):
    pair, counts, (gaps,) = measured
    assert (pair.outer, pair.inner, pair.low, pair.high) == ("sex", "region", "woman", "man")
    assert pair.within == ("north", "south", "isles")
    np.testing.assert_allclose(counts[:, 1:].sum(axis=1), counts[:, 0])
    assert counts[:, 0].sum() == 750
    assert gaps.label == "plain"
    np.testing.assert_allclose(gaps.share.sum(axis=1), 1)


def test_gaps_are_differences_of_the_rows_decisions(debiased, measured):
    pair, _, (gaps,) = measured
    (plain,) = list_classifiers(debiased, "figure")
    rows = [
        plain.base,
        plain.find("randomized_threshold", ("sex",)),
        plain.find("randomized_threshold", ("sex", "region")),
    ]
    for stage, row in enumerate(rows):
        for place, level in enumerate((None, *pair.within)):
            found = []
            for stored in row.fits.values():
                part = stored.split(ROOT).test
                h = stored.predictions()["test"].decision
                region = part.attributes["region"]
                kept = True if level is None else part.group("region") == region.index(level)
                women, men = (h[(part.group("sex") == k) & kept] for k in (0, 1))
                # Shares of fewer than ten rows are not in the results.
                found += [men.mean() - women.mean()] if women.size >= 10 else []
            assert found
            assert gaps.value[stage, place] == pytest.approx(np.mean(found))
            assert gaps.below[stage, place] < gaps.value[stage, place] < gaps.above[stage, place]


def test_small_groups_have_wide_intervals_and_parity_inside_groups_needs_the_cross(measured):
    _, _, (gaps,) = measured
    width = gaps.above - gaps.below
    assert (width[:, 3] > 2 * width[:, 1]).all()
    before, alone, crossed = gaps.value
    assert before[0] > 0.1
    assert abs(alone[0]) < 0.06
    # Women of the south were never behind: parity on sex alone favours them.
    assert np.ptp(alone[1:3]) > 0.15
    assert np.abs(crossed[1:3]).max() < 0.08


def test_the_same_scene_is_the_same_bytes(debiased):
    picture = draw_parity(debiased)
    assert picture == draw_parity(debiased)
    assert "the share decided yes of man minus that of woman" in picture.alt


def test_one_attribute_has_no_other_to_look_inside():
    adult = read_dataset(ROOT / "conf" / "datasets" / "adult-all.yaml")
    assert refuse_one_attribute(adult) is None
    alone = adult.model_copy(update={"groups": {"sex": adult.groups["sex"]}})
    assert "crosses two attributes, and adult-all has 1" in str(refuse_one_attribute(alone))
    german = read_dataset(ROOT / "conf" / "datasets" / "german.yaml")
    assert "calibration part, and german has none" in str(refuse_one_attribute(german))
