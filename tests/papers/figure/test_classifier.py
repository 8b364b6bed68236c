from __future__ import annotations

import json

import numpy as np
import pytest

from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.runtime.errors import ConfigError
from papers.figure.classifier import (
    cross_groups,
    list_classifiers,
    refuse_dataset,
    require_row,
    score_part,
)
from tests.metrics.made import make_part
from tests.papers.debiased import METHODS, ROOT, behind, make_scene


def test_rows_of_the_same_models_are_one_classifier(debiased_folder):
    # Labels do not matter, and neither does the order: the models do.
    methods = {
        "other+threshold": {**behind("randomized_threshold"), "penalty": 1.0},
        **METHODS,
        "other": {"method": "linear", "penalty": 1.0},
        "alone": {"method": "linear", "penalty": 0.1},
    }
    scene = make_scene(debiased_folder, methods, seeds=1, name="several")
    plain, other = list_classifiers(scene, "figure")
    assert plain.label == "plain"
    assert [row.label for row in plain.processed] == list(METHODS)[1:]
    assert (other.label, [row.label for row in other.processed]) == ("other", ["other+threshold"])


def test_rows_are_found_by_method_and_attributes(debiased):
    (plain,) = list_classifiers(debiased, "figure")
    assert plain.find("randomized_threshold").label == "plain+threshold"
    # The order of crossed attributes does not matter.
    found = plain.find("randomized_threshold", ("region", "sex"))
    assert (found.label, found.attributes) == ("plain+both", ("sex", "region"))
    assert plain.find("hardt", ("region",)) is None
    assert list(plain.base.fits) == [0, 1]
    setting = json.loads(plain.find("hardt").setting)
    assert setting["then"] == "hardt"


def test_a_crossed_attribute_is_the_cross_of_its_parts_and_other_criteria_are_left_out(
    debiased_folder,
):
    methods = {
        "plain": METHODS["plain"],
        "opportunity": behind("randomized_threshold", criterion="equal_opportunity"),
        "crossed": behind("randomized_threshold", "sex×region"),
    }
    scene = make_scene(debiased_folder, methods, seeds=1, name="crossed")
    (plain,) = list_classifiers(scene, "figure")
    assert plain.find("randomized_threshold").label == "crossed"
    assert plain.find("randomized_threshold", ("sex", "region")).label == "crossed"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["plain", "plain+hardt"], "randomised thresholds, and no row has them.*Add a row"),
        (["plain+threshold"], "classifier of 'plain\\+threshold'.*without `then`"),
    ],
)
def test_a_missing_row_is_named(debiased_folder, rows, message):
    methods = {name: METHODS[name] for name in rows}
    scene = make_scene(debiased_folder, methods, seeds=1, name="missing")
    with pytest.raises(ConfigError, match=message):
        list_classifiers(scene, "figure")


def test_a_required_row_is_named(debiased):
    (plain,) = list_classifiers(debiased, "figure")
    with pytest.raises(
        ConfigError, match=r"then: \{method: hardt, attributes: \[\[sex, region\]\]"
    ):
        require_row(plain, "figure", "hardt", ("sex", "region"))


def test_parts_are_read_as_the_post_processor_saw_them(debiased):
    (plain,) = list_classifiers(debiased, "figure")
    stored = plain.base.fits[1]
    part = stored.split(ROOT).calibration
    rows = score_part(stored, "calibration", ("sex", "region"), ROOT)
    np.testing.assert_array_equal(rows.y, part.y)
    probability = stored.model().predict_proba(part.X)[:, 1]
    np.testing.assert_allclose(rows.score, 2 * probability - 1, atol=1e-12)
    assert rows.base_rate() == pytest.approx(part.y.mean())
    assert len(rows.problem().segments) == 6
    labelled = rows.labelled()
    assert [segment.total for segment in labelled.segments[1::2]] == [
        np.count_nonzero(part.y[rows.code == group]) for group in range(6)
    ]


def test_groups_are_crossed_in_the_order_given():
    part = make_part([0, 1, 1], [[0, 2], [1, 0], [1, 1]], {"a": ("x", "y"), "b": ("p", "q", "r")})
    code, levels = cross_groups(part, ("b", "a"))
    assert [levels[each] for each in code] == ["r×x", "p×y", "q×y"]
    assert len(levels) == 6


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("adult-all", None),
        ("communities", "two classes"),
        ("adult", "calibration part, and adult has none"),
    ],
)
def test_datasets_say_why_they_have_no_such_figure(name, reason):
    found = refuse_dataset(read_dataset(ROOT / "conf" / "datasets" / f"{name}.yaml"))
    assert found is None if reason is None else reason in found
