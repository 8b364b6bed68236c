from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.figure.paired_loss import pair_losses
from fairfrontier.runtime.store import canonical_json
from fairfrontier.train.fit.input import load_split
from fairfrontier.train.registry import create
from tests.figure.regressed import METHODS, ROOT, make_scene


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    methods = {name: METHODS[name] for name in ("squares", "seo")}
    return make_scene(tmp_path_factory.mktemp("pay"), methods, weighted=True)


def setting_of(scene, label):
    group = next(each.group for each in scene.plan if each.group.method == label)
    return label, canonical_json(group.members[0].setting)


def test_standard_errors_of_differences_row_by_row(scene):
    squares, seo = (setting_of(scene, label) for label in ("squares", "seo"))
    expected = []
    for each in scene.plan:
        if each.group.method != "squares":
            continue
        split = load_split(each.group, each.group.members[0], ROOT)
        train, test = split.train, split.test
        fitted = [
            create("linear_regression").fit(train.X, train.y, sample_weight=train.weight),
            create("seo").fit(train.X, train.y, groups=train.groups, sample_weight=train.weight),
        ]
        first, second = (np.abs(test.y - model.predict(test.X)) for model in fitted)
        mean = np.average(second - first, weights=test.weight)
        share = test.weight / test.weight.sum()
        expected.append(np.sqrt(np.sum((share * (second - first - mean)) ** 2)))
        assert np.ptp(test.weight) > 0
    found = pair_losses(scene, "mae", squares, [squares, seo])
    assert found[seo] == pytest.approx(np.mean(expected))
    assert found[squares] == 0.0
    assert pair_losses(scene, "mae", seo, [squares])[squares] == pytest.approx(found[seo])


def test_what_has_no_scores_has_no_error(scene):
    absent = ("nothing", "{}")
    squares = setting_of(scene, "squares")
    assert np.isnan(pair_losses(scene, "mae", squares, [absent])[absent])
    assert np.isnan(pair_losses(scene, "mae", absent, [squares])[squares])
