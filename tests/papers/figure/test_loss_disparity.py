from __future__ import annotations

import json

import numpy as np
import pytest

from fairfrontier.models.fit.group import load_split
from fairfrontier.models.registry import create
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.config.section import Label
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.drawing import FIGURES
from papers.curve import find_envelope
from papers.figure.loss_disparity import check_measures, draw_losses, pair_losses, trace_losses
from tests.papers.regressed import METHODS, ROOT, make_scene


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pay")


@pytest.fixture(scope="module")
def scene(folder):
    return make_scene(folder)


@pytest.fixture(scope="module")
def found(scene):
    return trace_losses(scene)


def mean(scene, method, part, measure, column="value", group=""):
    points = scene.points
    rows = points[(points.method == method) & (points.part == part) & (points.measure == measure)]
    return rows[rows.group == group].groupby("setting")[column].mean()


def test_baselines_are_rows_of_one_setting_and_the_best_is_at_zero(scene, found):
    assert [each.label for each in found.baselines] == ["squares", "logistic", "seo"]
    losses = {
        name: mean(scene, name, "test", "logistic_loss").item()
        for name in ("squares", "logistic", "seo")
    }
    assert found.best == min(losses, key=losses.get)
    assert found.least == pytest.approx(losses[found.best])
    for each in found.baselines:
        assert each.loss["value"].item() == pytest.approx(losses[each.label] - found.least)
        reach = (each.loss["high"] - each.loss["value"]).item()
        assert reach == pytest.approx((each.loss["value"] - each.loss["low"]).item())
        assert reach == pytest.approx(0, abs=1e-12) if each.label == found.best else reach > 1e-4
        if each.label == "squares":
            # Two good models err on the same rows: their difference is surer than either loss.
            own = mean(scene, "squares", "test", "logistic_loss", "high") - losses["squares"]
            assert reach < own.item() / 2
        disparity = mean(scene, each.label, "test", "disparity", group="sex")
        assert each.disparity["value"].item() == pytest.approx(disparity.item())


def test_bands_of_the_root_are_those_of_the_square(folder):
    frontier = {"accuracy": "rmse", "fairness": ["disparity:sex"]}
    two = {name: METHODS[name] for name in ("squares", "seo")}
    scene = make_scene(folder, two, "root", frontier=frontier)
    shown = trace_losses(scene)
    (setting,) = shown.baselines[1].settings
    (start,) = shown.baselines[0].settings
    base, other = ("squares", start), ("seo", setting)
    assert shown.best == "squares"
    error = pair_losses(scene, "rmse", base, [other])[other]
    value = shown.baselines[1].loss["value"].item() + shown.least
    assert shown.baselines[1].loss["high"].item() == pytest.approx(
        np.sqrt(value**2 + 1.959964 * error) - shown.least
    )


def test_curves_are_chosen_on_train_and_shown_on_test(scene, found):
    (curve,) = found.curves
    assert curve.label == "fair"
    loss = mean(scene, "fair", "train", "logistic_loss")
    disparity = mean(scene, "fair", "train", "disparity", group="sex")[loss.index]
    corners = find_envelope(loss.to_numpy(), disparity.to_numpy())
    assert 1 < len(curve.settings) <= 4
    assert set(curve.settings) == set(loss.index[corners])
    np.testing.assert_allclose(curve.chosen_loss, loss[list(curve.settings)])
    np.testing.assert_allclose(curve.chosen_disparity, disparity[list(curve.settings)])
    assert (np.diff(curve.chosen_disparity) > 0).all()
    test = mean(scene, "fair", "test", "logistic_loss")[list(curve.settings)]
    np.testing.assert_allclose(curve.loss["value"], test - found.least)
    budgets = [json.loads(each)["budget"] for each in curve.settings]
    assert budgets == sorted(budgets)


def test_the_same_scene_is_the_same_picture(scene, found):
    picture = draw_losses(scene)
    assert picture == draw_losses(scene)
    assert picture.png.startswith(b"\x89PNG")
    assert f"{found.least:.4f}, that of {found.best}" in picture.alt
    assert "fair from" in picture.alt


def test_what_it_does_not_show(folder):
    curve = {"fair": {**METHODS["fair"], "budget": [0.05, 1.0]}}
    scene = make_scene(folder, curve, "curve")
    with pytest.raises(ConfigError, match="no row of one setting"):
        draw_losses(scene)
    own = scene.study.frontier
    for change, sentence in (
        ({"accuracy": "r2"}, "a loss of rows, and frontier.accuracy is 'r2'.*rmse"),
        # Of two classes a study may ask for it.
        ({"fairness": ("tpr_ratio:sex",)}, "of which less is better, and the first of .* is 'tpr"),
    ):
        study = scene.study.model_copy(update={"frontier": own.model_copy(update=change)})
        with pytest.raises(ConfigError, match=f"(?s){sentence}"):
            check_measures(study)
    supports = FIGURES.find("loss_disparity").supports
    law = read_dataset(ROOT / "conf" / "datasets" / "law.yaml")
    assert supports(law) is None
    grades = law.model_copy(update={"label": Label(column="UGPA", task="multiclass")})
    assert supports(grades) == "it shows predictions that are numbers, and law has several classes"


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    methods = {name: METHODS[name] for name in ("squares", "seo")}
    return make_scene(tmp_path_factory.mktemp("pay"), methods, weighted=True)


def setting_of(weighted, label):
    group = next(each.group for each in weighted.plan if each.group.method == label)
    return label, canonical_json(group.members[0].setting)


def test_standard_errors_of_differences_row_by_row(weighted):
    squares, seo = (setting_of(weighted, label) for label in ("squares", "seo"))
    expected = []
    for each in weighted.plan:
        if each.group.method != "squares":
            continue
        split = load_split(each.group, each.group.members[0], ROOT)
        train, test = split.train, split.test
        fitted = [
            create("linear_regression").fit(train.X, train.y, sample_weight=train.weight),
            create("seo").fit(
                train.X, train.y, sensitive_features=train.groups, sample_weight=train.weight
            ),
        ]
        first, second = (np.abs(test.y - model.predict(test.X)) for model in fitted)
        mean = np.average(second - first, weights=test.weight)
        share = test.weight / test.weight.sum()
        expected.append(np.sqrt(np.sum((share * (second - first - mean)) ** 2)))
        assert np.ptp(test.weight) > 0
    found = pair_losses(weighted, "mae", squares, [squares, seo])
    assert found[seo] == pytest.approx(np.mean(expected))
    assert found[squares] == 0.0
    assert pair_losses(weighted, "mae", seo, [squares])[squares] == pytest.approx(found[seo])


def test_what_has_no_scores_has_no_error(weighted):
    absent = ("nothing", "{}")
    squares = setting_of(weighted, "squares")
    assert np.isnan(pair_losses(weighted, "mae", squares, [absent])[absent])
    assert np.isnan(pair_losses(weighted, "mae", absent, [squares])[squares])
