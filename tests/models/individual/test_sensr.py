import numpy as np
import pytest

from fairfrontier import create, learn
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
MADE = make_split(400)
METRIC = learn("subspace", MADE)
VARIANTS = pytest.mark.parametrize("variant", ["paper", "authors"])


def fit(**parameters):
    model = create("sensr", **{**SMALL, **parameters})
    return model.fit(MADE.train.X, MADE.train.y, metric=METRIC)


def answer(model, X=MADE.test.X):
    return model.predict_proba(X)


def spread(model):
    """Return how much a move along a free direction changes the answer."""
    return np.abs(answer(model) - answer(model, MADE.test.X + 2 * METRIC.directions[0])).mean()


@VARIANTS
def test_the_net_grows_blind_to_free_directions_even_without_a_budget(variant):
    plain = {key: SMALL[key] for key in ("hidden", "learning_rate", "batch_size")}
    free = create("nn", **plain, steps=300).fit(MADE.train.X, MADE.train.y)
    robust = fit(budget=0.0, steps=300, variant=variant)
    assert spread(robust) < 0.4 * spread(free)


def test_without_attacks_it_is_plain_training():
    settings = {key: SMALL[key] for key in ("hidden", "learning_rate", "batch_size", "steps")}
    plain = create("nn", **settings, replacement=False).fit(MADE.train.X, MADE.train.y)
    robust = fit(subspace_steps=0, full_steps=0)
    for left, right in zip(robust.network_.arrays, plain.network_.arrays, strict=True):
        assert np.array_equal(left, right)


def test_the_price_makes_the_cost_meet_the_budget():
    settings = {"learning_rate": 0.0, "steps": 700, "record_every": 1, "full_steps": 10}
    model = fit(budget=0.05, dual_learning_rate=0.4, **settings)
    later = slice(300, None)
    assert model.history_["cost"][later].mean() == pytest.approx(0.05, rel=0.1)
    assert model.history_["dual"][later].mean() > 0


def test_the_loss_is_that_of_the_attacked_rows():
    robust, still = fit(), fit(subspace_steps=0, full_steps=0)
    assert robust.history_["loss"][0] > still.history_["loss"][0]


def test_weights_and_several_classes():
    X = MADE.train.X
    y = np.digitize(X[:, 1] + X[:, 2], [0.0, 1.0])
    weight = np.where(X[:, 2] > 0, 5.0, 0.2)
    model = create("sensr", **SMALL).fit(X, y, metric=METRIC, sample_weight=weight)
    other = create("sensr", **SMALL).fit(X, y, metric=METRIC)
    assert model.predict_proba(X).shape == (200, 3)
    assert np.abs(model.predict_proba(X) - other.predict_proba(X)).max() > 1e-3
