from dataclasses import replace

import numpy as np
import pytest

from fairfrontier import create, learn
from fairfrontier.models.neural.estimator import predict_logits
from fairfrontier.models.neural.network import Network, draw_network
from fairfrontier.models.prediction import predict_part
from fairfrontier.models.registry import load_model
from fairfrontier.prepare.split import Split, Variant
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.metrics.made import MadeSet, make_part
from tests.models.tables import make_split

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


def test_equal_rows_are_scored_alike_wherever_they_stand():
    generator = np.random.default_rng(0)
    people = generator.normal(size=(3000, 41))
    network = Network.of(draw_network([41, 100, 2], generator))
    rows = generator.integers(3000, size=20_000)
    logits = predict_logits(people[rows], network)
    first = np.unique(rows, return_index=True)[1]
    assert np.array_equal(logits, logits[first][np.unique(rows, return_inverse=True)[1]])
    large = Network.of([1e80 * array for array in network.arrays])
    assert np.isfinite(predict_logits(people, large)).all()
    alone = np.concatenate([predict_logits(people[row : row + 1], network) for row in range(50)])
    assert np.array_equal(alone, predict_logits(people, network)[:50])


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
    with pytest.raises(ConfigError):
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


def make_texts(n=240, n_classes=5, n_features=30):
    """Return a split as embedded texts give it: 32 bits, several classes, versions of some rows."""
    rng = np.random.default_rng(0)
    y, gender = np.arange(n) % n_classes, rng.integers(0, 2, n)
    lean = np.eye(n_features)[-1]
    X = 0.5 * np.eye(n_classes, n_features)[y] + rng.normal(0, 0.1, (n, n_features))
    X = (X + gender[:, None] * lean).astype(np.float32)
    having = np.flatnonzero(rng.random(n) < 0.6)
    versions = []
    for level in (0, 1):
        moved = X.copy()
        moved[having] += ((level - gender[having])[:, None] * lean).astype(np.float32)
        versions.append(Variant(str(level), moved, gender[:, None]))
    part = make_part(
        y, gender[:, None], {"gender": ("f", "m")}, X=X,
        classes=tuple(map(str, range(n_classes))),
        counterfactuals={"gender": MadeSet(tuple(versions), having)},
    )  # fmt: skip
    names = tuple(f"x{i}" for i in range(n_features))
    return Split("texts", 0, "multiclass", names, {}, {}, part, favourable=None)


@pytest.mark.parametrize("name", ["nn", "project_nn", "clp", "sensei", "sensr"])
def test_embeddings_of_texts_with_several_classes(name, tmp_path):
    split = make_texts()
    metric = learn("face", split, directions=1)
    assert abs(metric.directions[0, -1]) == pytest.approx(1, abs=1e-6)
    sizes = {"hidden": 16, "learning_rate": 0.01, "batch_size": 50, "steps": 300}
    attack = {"subspace_steps": 3, "full_steps": 3} if name in ("sensei", "sensr") else {}
    model = create(name, **sizes, **attack)
    # A fair metric may come from the versions: no attribute need be protected.
    assert model.supports(split) is None
    offered = {"metric": metric, "counterfactuals": split.train.counterfactuals}
    taken = {key: value for key, value in offered.items() if key in type(model).fit_takes}
    model.fit(split.train.X, split.train.y, **taken)
    asked = predict_part(model, split.train)
    assert asked.score.shape == (240, 5)
    assert asked.score.dtype == np.float64
    assert asked.score.sum(axis=1) == pytest.approx(np.ones(240))
    assert np.mean(asked.decision == split.train.y) > 0.8
    rows = split.train.counterfactuals["gender"].rows
    one, other = asked.counterfactual_scores["gender"]
    assert one.shape == (len(rows), 5)
    if name == "project_nn":
        assert one == pytest.approx(other, abs=1e-6)
    loaded = load_model(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(split.train.X), asked.score)


def test_without_attributes_or_versions_there_is_no_metric():
    split = make_texts()
    bare = split.replace(train=replace(split.train, counterfactuals={}))
    assert "no attribute and declares no counterfactuals" in create("sensei").supports(bare)
