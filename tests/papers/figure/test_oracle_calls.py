from __future__ import annotations

import json

import numpy as np
import pytest

from fairfrontier.models.fit.group import KIND
from fairfrontier.models.fit.key import key
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.config.section import Label
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.drawing import FIGURES
from papers.figure.oracle_calls import draw_calls, list_calls
from tests.papers.regressed import METHODS, ROOT, make_scene


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    grid = {**METHODS["fair"], "grid_size": 4, "budget": [0.05, 0.5]}
    descent = {"method": "fair_classification", "attribute": "sex", "max_iter": 2}
    methods = {"seo": METHODS["seo"], "grid": grid, "descent": descent}
    return make_scene(tmp_path_factory.mktemp("pay"), methods)


def test_calls_are_those_that_fits_report(scene):
    grid, descent = list_calls(scene.plan, scene.store, scene.home)
    assert (grid.label, descent.label) == ("grid", "descent")
    assert grid.budget.tolist() == [0.05, 0.5]
    assert grid.calls.tolist() == [4, 4]
    reports = [
        json.loads((scene.store.path(KIND, key(each.group, scene.store, ROOT)) / "fit.json")
                   .read_text())["reports"][0]
        for each in scene.plan
        if each.group.method == "descent"
    ]  # fmt: skip
    assert np.isnan(descent.budget).tolist() == [True]
    assert descent.calls.tolist() == [np.mean([each["oracle_calls"] for each in reports])]
    took = [each["oracle_seconds"] / each["oracle_calls"] for each in reports]
    assert descent.seconds == pytest.approx(np.median(took))


def test_the_same_scene_is_the_same_picture(scene):
    picture = draw_calls(scene)
    assert picture == draw_calls(scene)
    assert picture.png.startswith(b"\x89PNG")
    assert "grid 4, " in picture.alt


def test_what_it_does_not_show(scene, tmp_path):
    with pytest.raises(ConfigError, match="no row reports any"):
        draw_calls(make_scene(tmp_path, {"seo": METHODS["seo"]}, "seo"))
    needs, supports = FIGURES.find("oracle_calls").needs, FIGURES.find("oracle_calls").supports
    with pytest.raises(ConfigError, match="no row reports any"):
        needs(make_scene(tmp_path, {"seo": METHODS["seo"]}, "seo").study)
    law = read_dataset(ROOT / "conf" / "datasets" / "law.yaml")
    assert supports(law) is None
    grades = law.model_copy(update={"label": Label(column="UGPA", task="multiclass")})
    assert (
        supports(grades) == "reductions are for two classes or a number, and law has more classes"
    )
