import numpy as np
import pytest

from fairfrontier import create
from fairfrontier.models.neural.network import forward_dropped
from fairfrontier.runtime.errors import ConfigError, DataError
from papers.rival import adversarial_debiasing
from tests.models.tables import make_split

SMALL = {
    "hidden": 8,
    "learning_rate": 0.02,
    "batch_size": 100,
    "steps": 300,
    "record_every": 20,
    "criterion": "parity",
}
# A fast adversary, and rates that fall: else the gap swings past 0, to and fro.
CALM = {
    "learning_rate": 0.01,
    "adversary_learning_rate": 0.2,
    "strength": 1.0,
    "decay": 0.7,
    "decay_steps": 40,
}
PLAIN = {"hidden": 8, "learning_rate": 0.02, "batch_size": 100, "steps": 300}
MADE = make_split(1000)
PART = MADE.train


def fit(part=PART, **parameters):
    model = create("adversarial_debiasing", **{**SMALL, **parameters})
    return model.fit(part.X, part.y, sensitive_features=part.groups)


def gap(model, part=MADE.test):
    score = model.predict_proba(part.X)[:, 1]
    return abs(score[part.groups[:, 0] == 1].mean() - score[part.groups[:, 0] == 0].mean())


def accuracy(model, part=MADE.test):
    return (model.predict(part.X) == part.y).mean()


@pytest.mark.parametrize("projection", ["whole", "arrays"])
def test_scores_of_the_groups_come_together(projection):
    plain = create("nn", **PLAIN).fit(PART.X, PART.y)
    fair = fit(**CALM, projection=projection)
    assert gap(plain) > 0.15
    assert gap(fair) < 0.4 * gap(plain)
    assert accuracy(fair) > 0.6
    # A constant score would have no gap either.
    assert np.std(fair.predict_proba(MADE.test.X)[:, 1]) > 0.1


def test_equalized_odds_closes_the_gap_within_labels():
    plain = create("nn", **PLAIN).fit(PART.X, PART.y)
    fair = fit(**CALM, criterion="equalized_odds")
    part = MADE.test

    def within(model):
        return sum(gap(model, part.take(np.flatnonzero(part.y == label))) for label in (0, 1))

    assert within(fair) < 0.6 * within(plain)


def test_a_first_step_has_the_size_of_the_rate():
    # Adam's first step has the size of the rate, whatever the gradient's.
    settings = {"steps": 1, "batch_size": 400, "learning_rate": 1e-3, "dtype": "float64"}
    moved = fit(**settings, strength=2.0, record_every=1)
    rested = fit(**{**settings, "learning_rate": 0.0}, strength=2.0, record_every=1)
    assert moved.history_["adversary_loss"] == pytest.approx(rested.history_["adversary_loss"])
    changes = [
        after - before
        for after, before in zip(moved.network_.arrays, rested.network_.arrays, strict=True)
    ]
    sizes = np.abs(np.concatenate([each.ravel() for each in changes]))
    assert np.all((sizes < 1.01e-3) & ((sizes > 0.9e-3) | (sizes < 1e-9)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_gives_the_models_of_single_fits(dtype):
    other = make_split(300, seed=1).train
    three = np.stack([other.groups[:, 0], np.arange(150) % 3], axis=1)
    cases = [
        (PART, PART.groups, {"strength": 0.0}),
        (other, three, {"strength": 3.0, "random_state": 4}),
        # Three groups beside two: the adversary of the others must not see the third.
        (other, three, {"attribute": 1, "adversary_learning_rate": 0.1}),
    ]
    shared = {"dtype": dtype, "dropout": 0.3, "decay": 0.5, "decay_steps": 10, "steps": 30}
    models = [
        create("adversarial_debiasing", **{**SMALL, **shared, **each}) for _, _, each in cases
    ]
    data = [{"X": part.X, "y": part.y, "sensitive_features": groups} for part, groups, _ in cases]
    type(models[0]).fit_batch(models, data)
    tolerance = 1e-4 if dtype == "float32" else 1e-10
    for model, (part, groups, each) in zip(models, cases, strict=True):
        alone = create("adversarial_debiasing", **{**SMALL, **shared, **each})
        alone.fit(part.X, part.y, sensitive_features=groups)
        found, wanted = model.predict_proba(part.X), alone.predict_proba(part.X)
        assert found == pytest.approx(wanted, abs=tolerance)
        for key in ("loss", "adversary_loss"):
            assert model.history_[key] == pytest.approx(alone.history_[key], rel=tolerance)


def test_an_adversary_that_cannot_learn_says_log_2_of_two_equal_groups():
    # Independent groups: nothing to find, whatever the score.
    groups = np.random.default_rng(3).integers(2, size=(500, 1))
    model = create("adversarial_debiasing", **{**SMALL, "batch_size": 500, "replacement": False})
    model.fit(PART.X, PART.y, sensitive_features=groups)
    assert model.history_["adversary_loss"][-5:] == pytest.approx(np.log(2), abs=0.02)


def test_rates_that_fall_stop_the_net():
    settings = {"steps": 60, "dtype": "float64", "batch_size": 60}
    once = fit(**{**settings, "steps": 30})
    stopped = fit(**settings, decay=1e-12, decay_steps=30)
    plain = fit(**settings)
    assert stopped.predict_proba(PART.X) == pytest.approx(once.predict_proba(PART.X), abs=1e-9)
    assert np.abs(plain.predict_proba(PART.X) - once.predict_proba(PART.X)).max() > 1e-3


WHOLE = {"batch_size": len(PART.y), "replacement": False, "balanced": False, "record_every": 1}


def test_rates_that_fall_stop_the_adversary():
    history = fit(**WHOLE, steps=40, decay=1e-12, decay_steps=20, dtype="float64").history_
    # Every minibatch is the whole table.
    still, moving = np.ptp(history["adversary_loss"][21:]), np.ptp(history["adversary_loss"][:20])
    assert still < 1e-9
    assert moving > 1e-4


def test_units_that_are_kept_stand_for_those_that_are_left_out(monkeypatch):
    seen = []

    def watch(nets, x, masks):
        seen.extend(masks)
        return forward_dropped(nets, x, masks)

    monkeypatch.setattr(adversarial_debiasing, "forward_dropped", watch)
    fit(steps=40, dropout=0.2)
    drawn = np.stack(seen)
    assert np.unique(drawn) == pytest.approx([0, 1.25])
    assert drawn.mean() == pytest.approx(1, abs=0.02)
    assert not np.array_equal(drawn[0], drawn[1])


def test_dropped_units_change_the_training_and_not_the_answers():
    dropped, plain = fit(dropout=0.5, steps=50), fit(steps=50)
    assert not np.allclose(dropped.predict_proba(PART.X), plain.predict_proba(PART.X), atol=1e-3)
    assert np.array_equal(dropped.predict_proba(PART.X), dropped.predict_proba(PART.X))
    again = fit(dropout=0.5, steps=50)
    assert np.array_equal(dropped.predict_proba(PART.X), again.predict_proba(PART.X))


@pytest.mark.parametrize(
    "parameters",
    [
        {"strength": -1.0},
        {"strength": float("nan")},
        {"criterion": "odds"},
        {"projection": "none"},
        {"adversary_learning_rate": -0.1},
        {"decay": 0.0},
        {"decay": 1.1},
        {"decay_steps": 0},
        {"dropout": 1.0},
        {"attribute": 1},
        {"attribute": -2},
    ],
)
def test_what_cannot_be_is_said(parameters):
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        fit(**parameters)


def test_rows_without_a_group_are_refused():
    model = create("adversarial_debiasing", **SMALL)
    with pytest.raises(DataError, match="has the code -1"):
        model.fit(PART.X, PART.y, sensitive_features=PART.groups - 1)


@pytest.mark.gpu
def test_a_device_trains_the_same_net():
    pytest.importorskip("cupy")
    here, there = (
        fit(dtype="float64", steps=30, dropout=0.2, backend=each) for each in ("numpy", "cupy")
    )
    assert there.predict_proba(PART.X) == pytest.approx(here.predict_proba(PART.X), abs=1e-8)
