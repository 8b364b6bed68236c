import numpy as np
import pytest
from scipy.optimize import least_squares

from fairfrontier import learn
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.similarity import subspace
from fairfrontier.similarity.fair_metric import FairMetric
from tests.models.tables import make_split
from tests.namespaces import devices


def with_protected(split, kind, values, columns):
    train = split.train
    part = type(train)(**{**vars(train), "protected": np.asarray(values, dtype=float)[:, None]})
    return split.replace(
        train=part, protected_kinds={"a": kind}, protected_columns={"a": tuple(columns)}
    )


def test_the_metric_is_a_projector_that_ignores_its_directions():
    split = make_split()
    metric = learn("subspace", split)
    assert metric.sigma @ metric.sigma == pytest.approx(metric.sigma, abs=1e-12)
    assert metric.sigma @ metric.directions.T == pytest.approx(0, abs=1e-12)
    assert metric.directions @ metric.directions.T == pytest.approx(np.eye(2))
    assert metric.basis @ metric.basis.T == pytest.approx(metric.sigma, abs=1e-12)
    x, other = split.train.X[:20], split.train.X[20:40]
    z = metric.embed(x) - metric.embed(other)
    assert metric.distance(x, other) == pytest.approx(np.sum(z**2, axis=1))


def test_a_flip_of_the_protected_column_moves_nothing_at_all():
    split = make_split()
    metric = learn("subspace", split)
    flipped = split.train.X.copy()
    flipped[:, 0] = 1 - flipped[:, 0]
    assert np.array_equal(metric.embed(split.train.X), metric.embed(flipped))
    assert np.array_equal(metric.project(split.train.X), metric.project(flipped))


def test_the_regression_finds_the_leaning_column():
    split = make_split(4000)
    metric = learn("subspace", split, units=False)
    (direction,) = metric.directions
    assert direction[0] == 0
    assert np.argmax(np.abs(direction)) == 1


def test_regress_none_leaves_the_unit_vectors():
    metric = learn("subspace", make_split(), regress=[])
    assert metric.directions == pytest.approx(np.eye(5)[:1])


def test_further_columns_are_free_too():
    metric = learn("subspace", make_split(), regress=[], columns=["x3", "x1"])
    assert metric.sigma == pytest.approx(np.diag([0, 0, 1, 0, 1]), abs=1e-12)


def test_balanced_weights_equal_copied_rows():
    split = make_split(300)
    codes = split.train.group("sex").copy()
    counts = np.where(codes == 0, 3, 1)
    rows = np.repeat(np.arange(len(codes)), counts)
    copied = split.replace(train=split.train.take(rows))
    one = learn("subspace", split, penalty=0.1)
    many = learn("subspace", copied, penalty=0.1)
    assert many.sigma == pytest.approx(one.sigma, abs=1e-3)


def test_several_levels_and_a_continuous_attribute():
    split = make_split(400)
    X = split.train.X
    levels = np.digitize(X[:, 2], [-0.5, 0.5])
    several = learn("subspace", with_protected(split, "categorical", levels, ()))
    # Three levels of a multinomial model span two directions once the mean is no direction.
    assert several.directions.shape[0] in (2, 3)
    assert np.linalg.norm(several.sigma[2]) < 0.2
    continuous = learn("subspace", with_protected(split, "continuous", 4 * X[:, 3] + 1, ()))
    assert np.abs(continuous.directions[0][3]) > 0.99


def test_several_levels_minimise_the_balanced_multinomial_loss():
    split = make_split(600)
    X = split.train.X.copy()
    levels = np.digitize(X[:, 2] + 0.5 * X[:, 3], [-0.8, 0.4])
    changed = with_protected(split, "categorical", levels, (0, 4))
    found = subspace._coefficients(changed, "a", 0.1, balanced=True)
    assert found.shape == (3, 5)
    assert not found[:, [0, 4]].any()
    # Fixed point: the gradient of the mean loss is −penalty · W at the minimum.
    onehot = np.eye(3)[levels]
    weight = (onehot / onehot.sum(axis=0)).sum(axis=1)
    weight /= weight.sum()

    def residual(intercept):
        score = np.exp(X @ found.T + intercept)
        return weight[:, None] * (score / score.sum(axis=1, keepdims=True) - onehot)

    # The intercept is not returned: it is what makes the mean residual vanish.
    intercept = least_squares(lambda b: residual(b).sum(axis=0), np.zeros(3)).x
    gradient = residual(intercept).T @ X + 0.1 * found
    assert gradient[:, [1, 2, 3]] == pytest.approx(0, abs=1e-5)
    directions = learn("subspace", changed).directions
    unit = np.eye(5)[[0, 4]]
    assert unit @ directions.T @ directions == pytest.approx(unit, abs=1e-12)
    assert len(directions) == 2 + np.linalg.matrix_rank(found, tol=1e-6)


def test_a_continuous_attribute_is_regressed_on_the_others_by_ridge():
    split = make_split(400)
    X = split.train.X
    values = 3 * X[:, 1] - X[:, 2] + np.random.default_rng(0).normal(size=len(X))
    changed = with_protected(split, "continuous", values, (4,))
    (found,) = subspace._coefficients(changed, "a", 0.1, balanced=True)
    assert found[4] == 0
    others = X[:, :4] - X[:, :4].mean(axis=0)
    moment = others.T @ (values - values.mean())
    ridge = [np.linalg.solve(others.T @ others + a * np.eye(4), moment) for a in (0.1, 1.0, 10.0)]
    assert min(np.abs(found[:4] - each).max() for each in ridge) < 1e-8
    metric = learn("subspace", changed)
    assert metric.directions.shape == (2, 5)
    assert metric.sigma[4] == pytest.approx(0, abs=1e-12)
    assert metric.sigma @ found == pytest.approx(0, abs=1e-10)


def test_attributes_of_all_kinds_together():
    split = make_split(400)
    part = split.train
    X = part.X
    levels = np.digitize(X[:, 2], [-0.5, 0.5])
    protected = np.column_stack([X[:, 0], levels, X[:, 4]])
    mixed = split.replace(
        train=type(part)(**{**vars(part), "protected": protected}),
        protected_kinds={"sex": "categorical", "region": "categorical", "age": "continuous"},
        protected_columns={"sex": (0,), "region": (), "age": (4,)},
    )
    one = learn("subspace", mixed, attributes=["region"])
    assert one.directions.shape[0] in (2, 3)
    # Two unit vectors and one regression.
    some = learn("subspace", mixed, attributes=["sex", "age"], regress=["age"])
    assert some.directions.shape == (3, 5)
    assert some.sigma[[0, 4]] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"attributes": ["sec"]}, "sex"),
        ({"regress": ["race"]}, "race"),
        ({"columns": ["x33"]}, "x3"),
        ({"penalty": 0}, "penalty"),
        ({"penalti": 1}, "penalty"),
    ],
)
def test_what_cannot_be_is_said(parameters, word):
    with pytest.raises(ConfigError, match=word):
        learn("subspace", make_split(60), **parameters)


def test_a_constant_attribute_is_refused():
    split = make_split(60)
    with pytest.raises(ConfigError):
        learn("subspace", with_protected(split, "categorical", np.ones(30), ()))


def test_nothing_protected_is_refused():
    with pytest.raises(ConfigError):
        learn("subspace", make_split(60).replace(protected_kinds={}, protected_columns={}))


def test_the_metric_is_saved_and_loaded(tmp_path):
    metric = learn("subspace", make_split())
    back = FairMetric.load(metric.save(tmp_path / "metric"))
    for name in ("sigma", "basis", "directions"):
        assert np.array_equal(getattr(back, name), getattr(metric, name))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "metric.npz").read_bytes()[:100])
    for name in ("cut.npz", "absent.npz"):
        with pytest.raises(StoreError):
            FairMetric.load(tmp_path / name)


@pytest.mark.parametrize("namespace", devices())
def test_distances_on_a_device(namespace):
    asarray = namespace().asarray
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(3, 6))
    vectors[2] = vectors[0] + vectors[1]
    directions, basis = subspace.orthonormalise(asarray(vectors))
    assert directions.shape == (2, 6)
    assert basis.shape == (6, 4)
    x = generator.normal(size=(7, 6))
    plain = subspace.orthonormalise(vectors)[1]
    sigma = plain @ plain.T
    metric = FairMetric(sigma, plain, to_numpy(directions))
    distance = metric.distance(asarray(x), asarray(x[::-1].copy()))
    expected = [(a - b) @ sigma @ (a - b) for a, b in zip(x, x[::-1], strict=True)]
    assert to_numpy(distance) == pytest.approx(np.asarray(expected))
    assert metric.embed(asarray(x)).shape == (7, 4)


def test_no_vectors_leave_the_whole_space():
    directions, basis = subspace.orthonormalise(np.zeros((0, 3)))
    assert directions.shape == (0, 3)
    assert basis.shape == (3, 3)
