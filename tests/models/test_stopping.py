"""Early stopping keeps what is best on validation rows."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import log_loss

from fairfrontier import create, learn
from fairfrontier.models.stopping import Watch, watch
from fairfrontier.runtime.errors import ConfigError
from tests.models.tables import make_split

SPLIT = make_split(300)
TRAIN, METRIC = SPLIT.train, learn("subspace", SPLIT)
# Half of the labels are drawn, so that rounds soon fit nothing but noise.
NOISY = np.where(np.random.default_rng(0).random(150) < 0.5, 1 - TRAIN.y, TRAIN.y)
SMALL = {"hidden": 30, "learning_rate": 0.05, "batch_size": 50, "steps": 200, "record_every": 10}
ATTACK = {"subspace_steps": 2, "full_steps": 2, "subspace_rate": 1.0}
CASES = {
    "budro": {"n_estimators": 30, "learning_rate": 0.3, "max_depth": 6, "scale_pos_weight": 1.0},
    "fair_boosting": {"n_estimators": 25, "learning_rate": 2.0},
    "sensr": SMALL | ATTACK,
    "sensei": SMALL | ATTACK | {"strength": 0.1},
}


def fit(name, **parameters):
    model = create(name, **{**CASES[name], **parameters})
    return model.fit(TRAIN.X, NOISY, metric=METRIC, validation=SPLIT.test)


def make_watch(y, patience=2, weight=None):
    part = SimpleNamespace(X=np.zeros((len(y), 1)), y=np.asarray(y), weight=np.ones(len(y)))
    part.weight = part.weight if weight is None else np.asarray(weight)
    return Watch(part, np.array([0, 1]), patience)


def test_losses_are_those_of_the_labels():
    rng = np.random.default_rng(1)
    y, margin, weight = rng.integers(0, 2, 30), rng.normal(size=30), rng.random(30)
    watched = make_watch(y, weight=weight)
    watched.add(margin)
    watched.add(np.stack([np.ones(30), 1 + margin], axis=1))
    wanted = log_loss(y, 1 / (1 + np.exp(-margin)), sample_weight=weight)
    assert watched.losses == pytest.approx([wanted, wanted])


def test_it_is_over_after_as_many_rounds_as_the_patience():
    watched = make_watch([1])
    over = []
    for margin in (0.0, 2.0, 1.0, 3.0, 2.5, 2.9):
        watched.add(np.array([margin]))
        over.append(watched.is_over)
    assert over == [False] * 5 + [True]
    assert watched.best == 4


def test_rows_of_labels_that_were_not_trained_on_are_left_out():
    watched = make_watch([0, 2, 1])
    assert watched.y.tolist() == [0, 1]
    assert watched.X.shape == (3, 1)


def test_without_patience_or_rows_nothing_is_watched():
    model = SimpleNamespace(early_stopping=None, classes_=np.array([0, 1]))
    assert watch(model, SPLIT.test) is None
    model.early_stopping = 3
    assert watch(model, None) is None
    assert watch(model, SPLIT.test).patience == 3


@pytest.mark.parametrize("name", CASES)
def test_the_model_is_the_best_of_those_on_the_way(name):
    def measure(model):
        return log_loss(SPLIT.test.y, model.predict_proba(SPLIT.test.X)[:, 1], sample_weight=weight)

    # Nets have classes of equal weight.
    count = np.bincount(SPLIT.test.y)
    weight = (1 / count if "hidden" in CASES[name] else np.ones(2))[SPLIT.test.y]
    whole, stopped = fit(name), fit(name, early_stopping=5)
    unit = "steps" if "hidden" in CASES[name] else "n_estimators"
    every = 10 if unit == "steps" else 1
    shorter = [fit(name, **{unit: count * every}) for count in (1, 4)]
    assert measure(stopped) < measure(whole)
    assert all(measure(stopped) <= measure(model) + 1e-7 for model in shorter)
    if unit == "n_estimators":
        rounds = int(stopped.report_["rounds"])
        assert len(stopped.history_["eta"]) == rounds - (name == "budro")
        same = fit(name, n_estimators=rounds)
        X = SPLIT.test.X
        assert np.array_equal(stopped.predict_proba(X), same.predict_proba(X))


def test_models_of_a_batch_stop_each_for_itself():
    alone = [fit("sensei", early_stopping=patience) for patience in (2, 6)]
    models = [create("sensei", **CASES["sensei"], early_stopping=patience) for patience in (2, 6)]
    data = {"X": TRAIN.X, "y": NOISY, "metric": METRIC, "validation": SPLIT.test}
    type(models[0]).fit_batch(models, [data, data])
    steps = [model.history_["step"].size for model in models]
    assert steps == [model.history_["step"].size for model in alone]
    assert steps[0] < 20
    for model, single in zip(models, alone, strict=True):
        for mine, theirs in zip(model.network_.arrays, single.network_.arrays, strict=True):
            # float32 sums of the same numbers in another order.
            np.testing.assert_allclose(mine, theirs, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_no_patience_at_all_is_refused(name):
    with pytest.raises(ConfigError, match="1 or more, or null"):
        create(name, early_stopping=0).check()
