from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from fairfrontier import learn
from fairfrontier.models.individual.budro.estimator import BuDRO
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.models.tables import make_split

INFINITE = float("inf")


def fit(split, **parameters):
    metric = learn("subspace", split)
    settings = {"n_estimators": 25, "max_depth": 4, "learning_rate": 0.3, **parameters}
    return BuDRO(**settings).fit(split.train.X, split.train.y, metric=metric)


def test_budget_buys_consistency():
    split = make_split(600)
    greedy, fair = fit(split, budget=0.0), fit(split, budget=0.5)
    shift = [
        np.abs(
            model.predict_proba(split.test.X)[:, 1]
            - model.predict_proba(split.test.X * [0, 1, 1, 1, 1])[:, 1]
        ).mean()
        for model in (greedy, fair)
    ]
    assert shift[1] <= shift[0]
    assert fair.history_["cost"][1:] == pytest.approx(np.full(23, 0.5), abs=1e-6)
    assert np.all(fair.history_["gap"] <= 1e-3 * fair.history_["objective"] + 1e-9)


def test_adversarial_loss_falls_over_the_rounds():
    history = fit(make_split(400), budget=0.1, learning_rate=0.1).history_
    assert history["objective"][-1] < history["objective"][0]


def test_sources_bound_the_optimum_and_all_of_them_are_the_exact_solver():
    split = make_split(400)
    settings = {"budget": 0.1, "n_estimators": 6, "variant": "authors"}
    exact, whole, some = (fit(split, sources=m, **settings) for m in (None, 400, 64))
    assert whole.booster_.save_raw() == exact.booster_.save_raw()
    low, gap = some.history_["objective"], some.history_["gap"]
    # The first transport has the same losses.
    assert low[0] <= exact.history_["objective"][0] <= low[0] + gap[0] + 1e-9
    assert np.all(gap > 0)
    assert some.history_["cost"] == pytest.approx(exact.history_["cost"], abs=1e-6)


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_the_first_round_of_each_variant(variant):
    split = make_split(200)
    model = fit(split, variant=variant, n_estimators=1)
    distinct = np.unique(model.predict_proba(split.train.X)[:, 1]).size
    assert (distinct == 1) == (variant == "paper")


def test_sgd_runs_and_repeats_itself():
    split = make_split(200)
    settings = {"solver": "sgd", "n_estimators": 6, "steps": 5, "batch_size": 20}
    first, again = fit(split, **settings), fit(split, **settings)
    other = fit(split, **settings, random_state=1)
    assert np.array_equal(first.history_["eta"], again.history_["eta"])
    assert not np.array_equal(first.history_["eta"], other.history_["eta"])


@pytest.mark.parametrize("solver", ["sinkhorn", "sinkhorn_sgd"])
def test_every_solver_trains_a_model(solver):
    # A first round on the rows themselves: after a constant one all maps tie, and solvers differ.
    settings = {"budget": 0.3, "tolerance": 1e-6, "variant": "authors", "n_estimators": 4}
    split = make_split(160)
    exact = fit(split, **settings)
    settings |= {"solver": solver, "entropy_weight": 1e-4}
    if solver == "sinkhorn_sgd":
        settings |= {"steps": 30, "batch_size": 80, "dual_learning_rate": 0.05}
    model = fit(split, **settings)
    ours, theirs = model.history_["objective"], exact.history_["objective"]
    if solver == "sinkhorn_sgd":
        bound = ours[0] + model.history_["gap"][0]
        assert theirs[0] - 1e-6 <= bound <= 1.1 * theirs[0]
    else:
        assert ours[:2] == pytest.approx(theirs[:2], rel=2e-3)
        assert model.history_["cost"] == pytest.approx(np.full(3, 0.3), abs=1e-6)
        assert np.all(model.history_["gap"] < 2e-3)


def split_in_three(n=300):
    """The task of two classes, with a third one where the second feature is large."""
    split = make_split(n)

    def part(old):
        y = old.y + ((old.y == 1) & (old.X[:, 2] > 0.5))
        return replace(old, y=y.astype(np.int64), classes=("no", "perhaps", "yes"))

    return split.replace(task="multiclass", train=part(split.train), test=part(split.test))


def test_three_classes_are_learnt_within_the_budget():
    split = split_in_three()
    model = fit(split, budget=0.1, learning_rate=0.1, scale_pos_weight=1.0)
    probability = model.predict_proba(split.test.X)
    assert probability.shape == (150, 3)
    assert probability.sum(axis=1) == pytest.approx(np.ones(150))
    assert np.mean(model.predict(split.test.X) == split.test.y) > 0.5
    assert model.history_["cost"][1:] == pytest.approx(np.full(23, 0.1), abs=1e-6)
    assert model.history_["objective"][-1] < model.history_["objective"][0]


def test_a_factor_on_class_1_is_refused_beyond_two_classes():
    split = split_in_three(100)
    with pytest.raises(ConfigError, match="3 classes"):
        fit(split, scale_pos_weight=2.0)
    assert "balanced or 1" in BuDRO(scale_pos_weight=2.0).supports(split)
    assert BuDRO(scale_pos_weight=1.0).supports(split) is None


def test_progress_is_told_every_round():
    split = make_split(80)
    for rounds in (1, 4):
        calls = []
        BuDRO(n_estimators=rounds, max_depth=2).fit(
            split.train.X,
            split.train.y,
            metric=learn("subspace", split),
            progress=lambda *step, calls=calls: calls.append(step),
        )
        assert calls == [(done, rounds) for done in range(1, rounds + 1)]


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"budget": -0.1}, "budget"),
        ({"budget": float("nan")}, "budget"),
        ({"solver": "x"}, "solver"),
        ({"entropy_weight": 0.0}, "entropy_weight"),
        ({"column_share": 0.0}, "column_share"),
        ({"variant": "x"}, "variant"),
        ({"entropy_weight": INFINITE}, "entropy_weight"),
        ({"learning_rate": INFINITE}, "learning_rate"),
        ({"tolerance": INFINITE}, "tolerance"),
        ({"sources": 0}, "sources"),
        ({"sources": 10, "solver": "sgd"}, "sources"),
        ({"reg_lambda": INFINITE}, "reg_lambda"),
        ({"dual_start": INFINITE}, "dual_start"),
        ({"dual_start": float("nan")}, "dual_start"),
        ({"dual_learning_rate": 0.0}, "dual_learning_rate"),
        ({"dual_learning_rate": float("nan")}, "dual_learning_rate"),
        ({"dual_learning_rate": INFINITE}, "dual_learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": -0.1}, "momentum"),
        ({"momentum": float("nan")}, "momentum"),
        ({"min_child_rows": float("nan")}, "min_child_rows"),
        ({"min_child_rows": -1.0}, "min_child_rows"),
        ({"min_child_rows": INFINITE}, "min_child_rows"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_what_cannot_be_is_said(parameters, word):
    with pytest.raises(ConfigError, match=word):
        fit(make_split(60), **parameters)


@pytest.mark.parametrize("solver", ["exact", "sgd", "sinkhorn", "sinkhorn_sgd"])
def test_rows_of_weight_0_are_left_out(solver):
    split = make_split(160)
    X, y, metric = split.train.X, split.train.y, learn("subspace", split)
    weight = np.where(np.arange(80) % 4, 1.0 + np.arange(80) % 3, 0.0)
    kept = weight > 0
    model = BuDRO(n_estimators=5, max_depth=3, solver=solver, steps=5, batch_size=20)
    whole = clone(model).fit(X, y, metric=metric, sample_weight=weight)
    model.fit(X[kept], y[kept], metric=metric, sample_weight=weight[kept])
    assert np.array_equal(whole.predict_proba(X), model.predict_proba(X))
    assert all(np.isfinite(each).all() for each in whole.history_.values())
    for name, wanted in model.history_.items():
        assert np.array_equal(whole.history_[name], wanted)


def test_rows_that_cannot_be_are_refused():
    split = make_split(60)
    X, y, metric = split.train.X, split.train.y, learn("subspace", split)
    for labels, weight, message in (
        (0.9 * y, None, "continuous"),
        (np.where(y, np.nan, 0.0), None, "NaN"),
        (0 * y, None, "one class"),
        (y[1:], None, "inconsistent numbers of samples"),
        (y, np.ones(29), "weights of shape"),
        (y, np.zeros(30), "weights are zero"),
    ):
        with pytest.raises(DataError, match=message):
            BuDRO(n_estimators=2).fit(X, labels, metric=metric, sample_weight=weight)
    with pytest.raises(DataError, match="0 sample"):
        BuDRO(n_estimators=2).fit(X[:0], y[:0], metric=metric)
    X = np.where(np.arange(30)[:, None] == 4, np.nan, X)
    with pytest.raises(DataError):
        BuDRO(n_estimators=2).fit(X, y, metric=metric)


@pytest.mark.parametrize("kind", [bool, float, np.uint8])
def test_codes_of_any_type_of_numbers_are_codes(kind):
    split = make_split(60)
    X, y, metric = split.train.X, split.train.y, learn("subspace", split)
    models = [
        BuDRO(n_estimators=3, max_depth=2).fit(X, each, metric=metric)
        for each in (y, y.astype(kind))
    ]
    assert np.array_equal(models[0].predict_proba(X), models[1].predict_proba(X))
