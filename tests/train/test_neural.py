import numpy as np
import pytest

from tasks.runtime.errors import ConfigError, DataError
from tasks.train import create
from tests.train.tables import make_split

SMALL = {"hidden": 6, "learning_rate": 0.01, "batch_size": 30, "steps": 40, "record_every": 10}


def fit(part, **parameters):
    model = create("nn", **{**SMALL, **parameters})
    return model.fit(part.X, part.y)


def answer(model, part):
    return model.predict_proba(part.X)


def test_it_learns():
    split = make_split(600)
    model = fit(split.train, steps=300)
    assert (model.predict(split.test.X) == split.test.y).mean() > 0.7
    assert model.history_["loss"][-1] < 0.8 * model.history_["loss"][0]
    assert model.history_["step"].tolist() == list(range(10, 301, 10))


def test_several_classes_and_layers():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 2))
    y = np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])
    model = create("nn", **{**SMALL, "hidden": [12, 8], "steps": 300}).fit(X, y)
    assert model.predict_proba(X).shape == (400, 3)
    assert (model.predict(X) == y).mean() > 0.85
    assert [each.shape[1:] for each in model.network_.weight] == [(2, 12), (12, 8), (8, 3)]


def test_the_seed_decides():
    part = make_split().train
    first = answer(fit(part, random_state=1), part)
    assert np.array_equal(first, answer(fit(part, random_state=1), part))
    assert not np.allclose(first, answer(fit(part, random_state=2), part))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_gives_the_models_of_single_fits(dtype):
    parts = [make_split(200).train, make_split(160, seed=1).train, make_split(200).train]
    changes = [
        {"random_state": 3},
        {"random_state": 4, "learning_rate": 0.1},
        {"random_state": 4, "learning_rate": 0.02},
    ]
    models = [create("nn", **{**SMALL, "dtype": dtype, **change}) for change in changes]
    data = [{"X": part.X, "y": part.y} for part in parts]
    type(models[0]).fit_batch(models, data)
    tolerance = 1e-4 if dtype == "float32" else 1e-10
    for model, part, change in zip(models, parts, changes, strict=True):
        alone = fit(part, dtype=dtype, **change)
        assert answer(model, part) == pytest.approx(answer(alone, part), abs=tolerance)
        assert model.history_["loss"] == pytest.approx(alone.history_["loss"], rel=tolerance)
    assert not np.allclose(answer(models[0], parts[0]), answer(models[2], parts[0]), atol=1e-3)


def test_models_of_other_structure_do_not_share_a_batch():
    part = make_split(80).train
    models = [create("nn", **SMALL), create("nn", **{**SMALL, "hidden": [6, 6]})]
    assert models[0].structure() != models[1].structure()
    assert models[0].structure() == create("nn", **SMALL, random_state=9).structure()
    assert create("nn", hidden=5).structure() == create("nn", hidden=[5]).structure()
    hash(models[1].structure())
    with pytest.raises(ConfigError, match="hidden"):
        type(models[0]).fit_batch(models, [{"X": part.X, "y": part.y}] * 2)


def test_tables_of_other_shape_do_not_share_a_batch():
    part = make_split(80).train
    models = [create("nn", **SMALL), create("nn", **SMALL)]
    data = [{"X": part.X, "y": part.y}, {"X": part.X[:, 1:], "y": part.y}]
    with pytest.raises(DataError, match=r"\(4, 2\)"):
        type(models[0]).fit_batch(models, data)


def test_case_weights_move_the_loss_within_a_class():
    split = make_split(400)
    part = split.train
    plain = answer(fit(part, steps=200), part)
    assert np.array_equal(
        create("nn", **SMALL).fit(part.X, part.y, sample_weight=np.full(200, 7.0)).network_.bias[0],
        fit(part).network_.bias[0],
    )
    heavy = np.where(part.X[:, 2] > 0, 10.0, 0.1)
    model = create("nn", **{**SMALL, "steps": 200})
    weighted = answer(model.fit(part.X, part.y, sample_weight=heavy), part)
    assert np.abs(weighted - plain).max() > 0.05

    def error(probability):
        loss = -np.log(probability[np.arange(200), part.y])
        return sum(np.average(loss[part.y == k], weights=heavy[part.y == k]) for k in (0, 1))

    assert error(weighted) < error(plain)


def test_progress_is_told():
    part, told = make_split(80).train, []
    create("nn", **SMALL).fit(part.X, part.y, progress=lambda *step: told.append(step))
    assert told == [(10, 40), (20, 40), (30, 40), (40, 40)]


def test_saved_and_loaded(tmp_path):
    part = make_split(80).train
    model = fit(part, hidden=[4, 3])
    loaded = type(model).load(model.save(tmp_path / "model"))
    assert np.array_equal(answer(loaded, part), answer(model, part))
    assert loaded.history_["loss"].tolist() == model.history_["loss"].tolist()


@pytest.mark.gpu
def test_a_device_trains_the_same_net():
    pytest.importorskip("cupy")
    part = make_split(200).train
    here, there = (fit(part, dtype="float64", backend=backend) for backend in ("numpy", "cupy"))
    assert answer(there, part) == pytest.approx(answer(here, part), abs=1e-8)


@pytest.mark.parametrize(
    "parameters",
    [
        {"hidden": 0},
        {"hidden": [4, 0]},
        {"hidden": 2.5},
        {"learning_rate": -1.0},
        {"learning_rate": float("nan")},
        {"batch_size": 1},
        {"steps": 0},
        {"record_every": 0},
        {"dtype": "float16"},
        {"backend": "torch"},
    ],
)
def test_what_cannot_be_is_said(parameters):
    with pytest.raises(ConfigError, match=next(iter(parameters))):
        fit(make_split(60).train, **parameters)


def test_without_balance_probabilities_have_the_base_rate():
    split = make_split(n=2000)
    rare = np.flatnonzero((split.train.y == 0) | (np.arange(1000) % 5 == 0))
    part = split.train.take(rare)
    settings = {"hidden": 8, "learning_rate": 0.01, "steps": 600, "batch_size": 100}
    plain = create("nn", balanced=False, **settings).fit(part.X, part.y)
    level = create("nn", **settings).fit(part.X, part.y)
    rate = part.y.mean()
    assert rate < 0.2
    assert abs(plain.predict_proba(part.X)[:, 1].mean() - rate) < 0.04
    assert level.predict_proba(part.X)[:, 1].mean() > rate + 0.1


def test_without_balance_weights_count_over_all_rows():
    split = make_split(n=2000)
    part = split.train
    weight = np.where(part.y == 1, 9.0, 1.0)
    settings = {"hidden": 8, "learning_rate": 0.01, "steps": 600, "batch_size": 100}
    model = create("nn", balanced=False, **settings)
    model.fit(part.X, part.y, sample_weight=weight)
    expected = weight[part.y == 1].sum() / weight.sum()
    assert abs(np.average(model.predict_proba(part.X)[:, 1], weights=weight) - expected) < 0.04
