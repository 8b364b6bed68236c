from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fairfrontier import create, learn, load
from fairfrontier.models.registry import load_model
from fairfrontier.runtime.errors import ConfigError
from papers.figure import last_move
from papers.figure.last_move import list_last_moves
from tests.models.individual.budro.problems import find_optimum

ROOT = Path(__file__).resolve().parents[3]
SETTING = {"max_depth": 3, "learning_rate": 0.1, "tolerance": 1e-6}


@pytest.fixture(scope="module")
def rows():
    split = load("neighbourhoods", home=ROOT)
    return split.train.X[:60], split.train.y[:60], learn("subspace", split, regress=[])


def train(rows, **changes):
    X, y, metric = rows
    return create("budro", **{**SETTING, "n_estimators": 6, **changes}).fit(X, y, metric=metric)


@pytest.mark.parametrize("budget", [0.0, 0.01, 0.3, 100.0])
def test_the_map_is_optimal_against_the_model_of_one_round_less(rows, budget):
    X, y, metric = rows
    found = list_last_moves(train(rows, budget=budget), *rows)
    loss = -np.log(train(rows, budget=budget, n_estimators=5).predict_proba(X))
    own = loss[np.arange(60), y]
    best = find_optimum(metric.embed(X), y, loss, budget)
    assert own.mean() + sum(each.carries for each in found) == pytest.approx(best, rel=1e-5)
    assert sum(each.mass * each.distance for each in found) <= budget + 1e-9
    distance = (X[:, 1][:, None] - X[:, 1]) ** 2
    left = np.full(60, 1 / 60)
    for each in found:
        assert each.gain == pytest.approx(loss[each.becomes, y[each.row]] - own[each.row], abs=1e-6)
        assert each.distance == pytest.approx(distance[each.row, each.becomes])
        left[each.row] -= each.mass
    assert left.min() > -1e-9
    carried = [each.carries for each in found]
    assert carried == sorted(carried, reverse=True)


def test_it_is_what_training_met_and_survives_storage(rows, tmp_path):
    model = train(rows, budget=0.05)
    found = list_last_moves(model, *rows)
    before = train(rows, budget=0.05, n_estimators=5).predict_proba(rows[0])
    own = -np.log(before[np.arange(60), rows[1]]).mean()
    assert own + sum(each.carries for each in found) == pytest.approx(
        model.history_["objective"][-1], rel=1e-5
    )
    assert sum(each.mass * each.distance for each in found) == pytest.approx(
        model.history_["cost"][-1], rel=1e-6
    )
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert list_last_moves(loaded, *rows) == found
    assert list_last_moves(loaded, *rows, np.full(60, 3.0)) == found


def test_case_weights_are_masses_and_columns_may_be_looked_at_in_parts(rows, monkeypatch):
    X, y, metric = rows
    weight = np.random.default_rng(0).integers(1, 5, 60).astype(float)
    told = {**SETTING, "budget": 0.05}
    model, before = (
        create("budro", **told, n_estimators=rounds).fit(X, y, metric=metric, sample_weight=weight)
        for rounds in (6, 5)
    )
    found = list_last_moves(model, *rows, weight)
    loss, mass = -np.log(before.predict_proba(X)), weight / weight.sum()
    best = find_optimum(metric.embed(X), y, loss, 0.05, mass=mass)
    assert loss[np.arange(60), y] @ mass + sum(each.carries for each in found) == pytest.approx(
        best, rel=1e-5
    )
    left = mass.copy()
    for each in found:
        left[each.row] -= each.mass
    assert left.min() > -1e-9
    monkeypatch.setattr(last_move, "BLOCK", 16)
    assert list_last_moves(model, *rows, weight) == found


def test_entropy_spreads_moves_and_masses_still_add_up(rows):
    found = list_last_moves(train(rows, budget=0.05, solver="sinkhorn", entropy_weight=0.05), *rows)
    assert len(found) > 60
    assert sum(each.mass for each in found) <= 1 + 1e-9
    assert sum(each.mass * each.distance for each in found) == pytest.approx(0.05, rel=1e-3)


def test_one_round_moved_nothing(rows):
    with pytest.raises(ConfigError):
        list_last_moves(train(rows, n_estimators=1), *rows)
