from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.store import Store, canonical_json
from fairfrontier.study.drawing import FIGURES, Scene
from papers.figure.strength import draw_strengths, list_agreements, refuse_sets, trace_strengths
from tests.study.synthetic import CENTRES, make_plan, make_points, make_study

ROOT = Path(__file__).resolve().parents[3]
FAIRNESS = ["consistency:spouse", "counterfactual_fairness:spouse", "gap_rms:sex"]
STRENGTHS = (20, 1, 5)


def rename(scene, names):
    """Return the scene with settings (canonical JSON) renamed, in its plan and in its points."""

    def change(member):
        told = canonical_json(member.setting)
        return replace(member, setting=json.loads(names.get(told, told)))

    groups = [
        replace(each.group, members=tuple(change(member) for member in each.group.members))
        for each in scene.plan
    ]
    plan = [replace(each, group=group) for each, group in zip(scene.plan, groups, strict=True)]
    setting = scene.points["setting"].replace(names)
    return replace(scene, plan=plan, points=scene.points.assign(setting=setting))


def make_scene(seeds=3, fairness=FAIRNESS, along="strength"):
    """Return a study whose row budro sweeps the strength, not in ascending order."""
    methods = {name: {"preset": "published"} for name in CENTRES}
    methods["budro"] = {"solver": "exact", "budget": [0.1, 0.2, 0.4]}
    study = make_study(frontier={"fairness": fairness}, seeds=seeds, methods=methods)
    plan = [each for each in make_plan(study) if "frontier" in each.blocks]
    points = make_points(plan)
    copied = points[points["measure"] == "consistency"].assign(measure="counterfactual_fairness")
    copied[["value", "low", "high"]] = 0.3 * (1 - copied[["value", "high", "low"]].to_numpy())
    points = pd.concat([points, copied], ignore_index=True)
    scene = Scene(study, plan, points, pd.DataFrame(), Store(ROOT / "nowhere"), ROOT)
    swept = sorted({each for each in points["setting"] if "budget" in each})
    names = [canonical_json({along: rho}) for rho in STRENGTHS]
    return rename(scene, dict(zip(swept, names, strict=True)))


@pytest.fixture(scope="module")
def scene() -> Scene:
    return make_scene()


def test_rows_that_sweep_are_followed_by_ascending_strength(scene):
    paths = trace_strengths(scene)
    assert [each.label for each in paths] == [*CENTRES, "budro"]
    *single, swept = paths
    assert all(each.strength.size == 0 and len(each.table) == 1 for each in single)
    np.testing.assert_array_equal(swept.strength, [1, 5, 20])
    for rho, (_, line) in zip(swept.strength, swept.table.iterrows(), strict=True):
        own = scene.points.query(
            "method == 'budro' and part == 'test' and measure == 'consistency' "
            "and group == 'spouse' and setting == @setting",
            local_dict={"setting": canonical_json({"strength": int(rho)})},
        )["value"]
        assert len(own) == 3
        assert line["value", "consistency:spouse"] == pytest.approx(own.mean())
        assert line["high", "consistency:spouse"] == pytest.approx(own.mean() + own.std())


def test_the_picture_has_a_panel_for_each_measure_of_a_set(scene):
    assert list_agreements(FAIRNESS) == tuple(FAIRNESS[:2])
    picture = draw_strengths(scene)
    assert picture.png == draw_strengths(scene).png
    wide = Image.open(io.BytesIO(picture.png)).width
    one = draw_strengths(make_scene(fairness=FAIRNESS[:1]))
    assert wide == pytest.approx(2 * Image.open(io.BytesIO(one.png)).width, rel=0.01)
    assert "CTF score" in picture.alt
    assert "at ρ = 1 to" in picture.alt
    assert "at ρ = 20, accuracy" in picture.alt
    assert "CTF score" not in one.alt


def test_what_was_not_measured_is_said_and_no_number(scene):
    points = scene.points.copy()
    ctf = points["measure"] == "counterfactual_fairness"
    points.loc[ctf & (points["method"] == "gbdt"), ["value", "low", "high"]] = np.nan
    first = ctf & (points["setting"] == canonical_json({"strength": 1}))
    points.loc[first, ["value", "low", "high"]] = np.nan
    told = draw_strengths(replace(scene, points=points)).alt
    assert "CTF score, spouse, gbdt: not measured" in told
    assert "nan" not in told
    (ctf_of_budro,) = (each for each in told.split("; ") if each.startswith("CTF score, spouse, b"))
    assert " at ρ = 5 to " in ctf_of_budro
    assert " at ρ = 20, " in ctf_of_budro


def test_studies_without_strengths_or_measures_of_sets_are_refused(scene):
    with pytest.raises(ConfigError, match="no row sweeps it"):
        draw_strengths(make_scene(along="weight"))
    with pytest.raises(ConfigError):
        draw_strengths(make_scene(fairness=["gap_rms:sex"]))
    with pytest.raises(DataError):
        draw_strengths(replace(scene, points=scene.points.iloc[:0]))


def test_two_settings_of_one_strength_are_refused(scene):
    other = canonical_json({"strength": 5})
    twins = rename(scene, {other: canonical_json({"steps": 9, "strength": 1})})
    with pytest.raises(ConfigError, match="one model for each strength, and the row 'budro'"):
        trace_strengths(twins)


def test_datasets_without_sets_have_no_such_figure():
    assert "strength_tradeoff" in FIGURES.all()
    assert refuse_sets(read_dataset(ROOT / "conf/datasets/synthetic.yaml")) is None
    law = read_dataset(ROOT / "conf/datasets/law.yaml")
    assert "has no classes" in str(refuse_sets(law))
