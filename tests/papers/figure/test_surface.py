from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier import learn
from fairfrontier.models.fit.fitting import fit
from fairfrontier.models.fit.group import KIND, load_split
from fairfrontier.models.fit.key import key
from fairfrontier.models.registry import load_model
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.store import Store
from fairfrontier.study.check import load_study
from fairfrontier.study.drawing import Scene
from fairfrontier.study.resolve import expand
from papers.figure.last_move import list_last_moves
from papers.figure.surface import ARROWS, GRID, Plane, draw_surfaces, find_tilt, refuse_features

ROOT = Path(__file__).resolve().parents[3]
PLANE = Plane.around(np.array([[-2.0, -1.0], [2.0, 3.0]]))


def survey(logit) -> np.ndarray:
    x, y = PLANE.points.T
    return (1 / (1 + np.exp(-logit(x, y)))).reshape(GRID, GRID)


@settings(max_examples=25)
@given(st.floats(-89, 89), st.floats(0.1, 30))
def test_the_tilt_of_a_straight_boundary(degrees, steepness):
    slope = math.tan(math.radians(degrees))
    found = find_tilt(
        PLANE, survey(lambda x, y: steepness * (y - 1 - slope * x) / (1 + abs(slope)))
    )
    assert found == pytest.approx(abs(degrees), abs=0.5)


def test_the_tilt_of_a_vertical_boundary_of_a_valley_and_of_none():
    assert find_tilt(PLANE, survey(lambda x, y: 2 * x)) == pytest.approx(90)
    # Two arms that fall and rise alike cancel: on the whole the boundary is horizontal.
    assert find_tilt(PLANE, survey(lambda x, y: y - 1 - np.abs(x))) == pytest.approx(0, abs=1)
    assert find_tilt(PLANE, survey(lambda x, y: 5 + 0 * x)) is None
    # A probability of exactly 0 or 1 has no logit.
    assert find_tilt(PLANE, (survey(lambda x, y: y - 1 - x) > 0.5) * 1.0) == pytest.approx(
        45, abs=1
    )


def test_the_grid_surrounds_the_rows():
    assert PLANE.x[0] < -2
    assert PLANE.x[-1] > 2
    assert PLANE.points.shape == (GRID**2, 2)
    np.testing.assert_allclose(PLANE.points[1] - PLANE.points[0], [PLANE.x[1] - PLANE.x[0], 0])


def test_only_two_numbers_and_two_classes_have_surfaces():
    def reason(name: str) -> str | None:
        return refuse_features(read_dataset(ROOT / "conf" / "datasets" / f"{name}.yaml"))

    assert reason("synthetic") is None
    assert "adult has others" in str(reason("adult"))
    assert "two classes" in str(reason("communities"))


STUDY = {
    "study": "small",
    "dataset": "synthetic",
    "metric": {"name": "subspace", "regress": []},
    "methods": {
        "linear": {},
        "sensei": {
            "hidden": 8, "steps": 20, "batch_size": 20, "subspace_steps": 2, "full_steps": 2,
            "learning_rate": 0.01, "strength": [10, 2, 0],
        },
        "tree": {"method": "gbdt", "n_estimators": [2, 4]},
        "fair": {"method": "budro", "n_estimators": 3, "budget": 0.05},
    },
    "frontier": {"fairness": ["consistency:side"]},
    "figures": ["surfaces"],
}  # fmt: skip


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    folder = tmp_path_factory.mktemp("surfaces")
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(STUDY, sort_keys=False))
    resolved = load_study(path, home=ROOT)
    study, plan = resolved.study, expand(resolved)
    store = Store(folder / "store")
    for each in plan:
        fit(each.group, store, ROOT)
    return Scene(study, plan, pd.DataFrame(), pd.DataFrame(), store, ROOT)


@pytest.fixture(scope="module")
def picture(scene):
    return draw_surfaces(scene)


def test_rows_are_sweeps_in_order_and_the_baseline_comes_first(picture):
    from matplotlib.image import imread

    words = picture.alt.partition("horizontal. ")[2]
    order = [
        "SenSeI: Logistic",
        "fair boundary",
        "ρ = 0 ",
        "ρ = 2 ",
        "ρ = 10 ",
        "tree: n_estimators = 2 ",
        "= 4 ",
    ]
    places = [words.index(each.replace("Logistic", "")) for each in order]
    assert places == sorted(places)
    assert words.count("boundary") == 7
    image = imread(io.BytesIO(picture.png))
    # Five panels and a bar wide, two high.
    assert image.shape[1] > 1.5 * image.shape[0]


def test_arrows_are_the_moves_of_the_last_round_that_add_most(scene, picture, monkeypatch):
    (group,) = (each.group for each in scene.plan if each.group.method == "fair")
    folder = scene.store.path(KIND, key(group, scene.store, ROOT))
    train = load_split(group, group.members[0], ROOT).train
    metric = learn("subspace", load_split(group, group.members[0], ROOT), regress=[])
    moved = list_last_moves(load_model(folder / "model-0"), train.X, train.y, metric)
    told = f"{min(ARROWS, len(moved))} of {len(moved)} moves of the last round"
    assert picture.alt.count("moves of the last round") == 1
    assert told in picture.alt
    drawn = []
    monkeypatch.setattr(
        "matplotlib.axes.Axes.annotate",
        lambda _, text, xy, xytext, **look: drawn.append((text, xytext, xy)),
    )
    draw_surfaces(scene)
    arrows = [("", tuple(train.X[m.row]), tuple(train.X[m.becomes])) for m in moved[:ARROWS]]
    assert drawn == arrows
    # Within a budget of .05 the worst case moves rows sideways far more than upwards.
    along, across = np.abs(np.diff([pair[1:] for pair in arrows], axis=1)).sum(axis=(0, 1))
    assert along > 3 * across


def test_the_same_scene_is_the_same_bytes(scene, picture):
    assert picture == draw_surfaces(scene)
    assert b"tEXt" not in picture.png


def test_without_a_model_there_is_nothing_to_draw(scene, tmp_path):
    empty = replace(scene, store=Store(tmp_path))
    with pytest.raises(StoreError):
        draw_surfaces(empty)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"figures": ["surface"]}, r"figures names.*'surface'.*Did you mean 'surfaces'"),
        (
            {"dataset": "german", "frontier": {"fairness": ["consistency:status"]}},
            r"asks for 'surfaces', but its panels have two numeric features",
        ),
    ],
)
def test_a_figure_that_cannot_be_is_refused_before_anything_runs(tmp_path, changes, message):
    path = tmp_path / "small.yaml"
    content = {**STUDY, "metric": {"name": "subspace"}, **changes}
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=message):
        load_study(path, home=ROOT)
