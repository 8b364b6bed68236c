import numpy as np
import pytest

from fairfrontier import create, learn
from fairfrontier.models.base import TrainingWarning
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.similarity.fair_metric import FairMetric
from tests.models.tables import make_split

SMALL = {
    "hidden": 8,
    "learning_rate": 0.02,
    "batch_size": 60,
    "steps": 60,
    "subspace_steps": 5,
    "subspace_rate": 1.0,
    "full_steps": 5,
    "full_rate": 0.02,
    "record_every": 10,
}
PLAIN = ("hidden", "learning_rate", "batch_size", "steps", "record_every")
MADE = make_split(400)
METRIC = learn("subspace", MADE)
VARIANTS = pytest.mark.parametrize("variant", ["paper", "authors"])


def fit(part=MADE.train, metric=METRIC, **parameters):
    return create("sensei", **{**SMALL, **parameters}).fit(part.X, part.y, metric=metric)


def answer(model, part=MADE.test):
    return model.predict_proba(part.X)


@VARIANTS
def test_strength_zero_is_plain_training(variant):
    plain = create("nn", **{key: SMALL[key] for key in PLAIN}, random_state=2)
    plain.fit(MADE.train.X, MADE.train.y)
    fair = fit(strength=0.0, variant=variant, random_state=2)
    # A failed attack skips a step in the authors' variant; with no objective none fails here.
    for left, right in zip(fair.network_.arrays, plain.network_.arrays, strict=True):
        assert np.array_equal(left, right)


@VARIANTS
def test_strength_buys_invariance(variant):
    def spread(strength):
        model = fit(strength=strength, variant=variant, steps=300, budget=0.05)
        moved = MADE.test.X + 2.0 * METRIC.directions[0]
        return np.abs(answer(model) - model.predict_proba(moved)).mean()

    assert spread(20.0) < 0.5 * spread(0.0)


def test_the_price_makes_the_cost_meet_the_budget():
    # With the net held still, λ is all that moves: it stands still where mean d_X = ε.
    settings = {"learning_rate": 0.0, "steps": 700, "record_every": 1, "full_steps": 15}
    model = fit(budget=0.01, strength=5.0, dual_learning_rate=4.0, **settings)
    later = slice(300, None)
    assert model.history_["cost"][later].mean() == pytest.approx(0.01, rel=0.1)
    assert model.history_["dual"][later].mean() > 0
    assert model.history_["dual"][later].std() < model.history_["dual"][later].mean()


def test_the_authors_price_rises_with_the_cost_and_is_cut():
    with pytest.warns(TrainingWarning, match="cap"):
        model = fit(variant="authors", budget=1e-4, learning_rate=0.0, dual_cap=3.0)
    assert model.history_["dual"][-1] == 3.0
    assert fit(variant="authors", budget=1e4).history_["dual"][-1] == 1e-5


@VARIANTS
def test_a_batch_gives_the_models_of_single_fits(variant):
    other = make_split(300, seed=1)
    cases = [
        (MADE.train, METRIC, {"strength": 0.0, "random_state": 1}),
        (MADE.train, METRIC, {"strength": 5.0, "random_state": 2, "budget": 0.1}),
        (other.train, learn("subspace", other), {"strength": 20.0, "full_rate": 0.05}),
        # A metric with fewer directions than the others.
        (other.train, learn("subspace", other, regress=[]), {"subspace_rate": 3.0}),
    ]
    shared = {"variant": variant, "dtype": "float64"}
    models = [create("sensei", **{**SMALL, **shared, **each}) for *_, each in cases]
    data = [{"X": part.X, "y": part.y, "metric": metric} for part, metric, _ in cases]
    type(models[0]).fit_batch(models, data)
    for model, (part, metric, parameters) in zip(models, cases, strict=True):
        alone = fit(part, metric, **shared, **parameters)
        assert answer(model, part) == pytest.approx(answer(alone, part), abs=1e-8)
        for key, each in alone.history_.items():
            assert model.history_[key] == pytest.approx(each, rel=1e-6, abs=1e-8), key


def test_a_failed_attack_skips_the_step_and_slows_down():
    # A rate so large that the full attack always overshoots.
    price = {"dual_start": 1e4, "dual_floor": 1e4, "dual_cap": 1e4}
    settings = {"variant": "authors", "full_rate": 50.0, "budget": 0.0, **price}
    part = MADE.train
    model = create("sensei", **{**SMALL, **settings, "steps": 10})
    model.fit(part.X, part.y, metric=METRIC)
    assert (model.history_["full_gain"] < 0).all()
    untouched = fit(learning_rate=0.0, steps=1)
    for left, right in zip(model.network_.arrays, untouched.network_.arrays, strict=True):
        assert np.array_equal(left, right)


def test_attacks_that_never_gain_are_warned_of():
    with pytest.warns(TrainingWarning, match="start_noise 0"):
        fit(start_noise=0.0)


def test_history_says_what_happened():
    history = fit(strength=5.0).history_
    assert set(history) == {
        "step",
        "loss",
        "regularizer",
        "dual",
        "cost",
        "subspace_gain",
        "full_gain",
    }
    assert history["step"].tolist() == [10, 20, 30, 40, 50, 60]
    assert (history["regularizer"] > 0).all()
    assert (history["subspace_gain"] > 0).any()


def test_a_metric_without_directions():
    metric = FairMetric(np.eye(5), np.eye(5), np.zeros((0, 5)))
    model = fit(metric=metric, strength=5.0)
    assert (model.history_["full_gain"] > 0).any()
    assert (model.history_["subspace_gain"] == 0).all()


def test_several_classes():
    X = MADE.train.X
    y = np.digitize(X[:, 1] + X[:, 2], [0.0, 1.0])
    model = create("sensei", **SMALL).fit(X, y, metric=METRIC)
    probability = model.predict_proba(X)
    assert probability.shape == (200, 3)
    assert (model.predict(X) == y).mean() > 0.5


def test_the_full_rate_is_a_tenth_of_the_budget():
    given = fit(budget=0.2, full_rate=0.02)
    assert np.array_equal(answer(fit(budget=0.2, full_rate=None)), answer(given))


@pytest.mark.parametrize(
    "parameters",
    [
        {"strength": -1.0},
        {"budget": float("inf")},
        {"variant": "x"},
        {"subspace_steps": -1},
        {"full_rate": -0.1},
        {"dual_floor": 11.0},
        {"failure_decay": 0.0},
        {"dual_learning_rate": float("nan")},
    ],
)
def test_what_cannot_be_is_said(parameters):
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        fit(**parameters)
