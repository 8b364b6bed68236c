from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier import learn
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.similarity import explore
from fairfrontier.similarity.fair_metric import FairMetric
from tests.models.tables import make_split
from tests.namespaces import namespaces


def plant(n=4000, d=4, seed=0):
    """Draw pairs whose judgements follow a singular Σ."""
    rng = np.random.default_rng(seed)
    root = np.zeros((d, d - 1))
    root[1:] = rng.normal(size=(d - 1, d - 1)) / 2 + np.eye(d - 1)
    sigma = root @ root.T
    x, other = rng.normal(size=(2, n, d))
    distance = np.einsum("ni,ij,nj->n", x - other, sigma, x - other)
    comparable = rng.random(n) < 2 / (1 + np.exp(distance))
    return sigma, x, other, comparable


def some_pairs(seed=0, n=30, d=3):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    z = (rng.random(n) < 0.5).astype(float)
    return root @ root.T / d, rng.normal(size=(n, d)), z


def test_the_gradient_is_that_of_the_likelihood():
    sigma, difference, z = some_pairs()
    found = explore.gradient(sigma, difference, z)
    step = 1e-6
    for i in range(3):
        for j in range(3):
            change = np.zeros((3, 3))
            change[i, j] = change[j, i] = 1.0
            up = explore.loss(sigma + step * change, difference, z)
            down = explore.loss(sigma - step * change, difference, z)
            assert np.sum(found * change) == pytest.approx((up - down) / (2 * step), rel=1e-6)


def test_loss_and_gradient_are_the_means_of_their_definitions():
    sigma, difference, z = some_pairs(1)
    losses, slopes = [], []
    for row, comparable in zip(difference, z, strict=True):
        d = row @ sigma @ row
        p = 2 / (1 + math.exp(d))
        losses.append(-math.log(p if comparable else 1 - p))
        slope = 1 / (1 + math.exp(-d)) if comparable else -1 / math.sinh(d)
        slopes.append(slope * np.outer(row, row))
    assert explore.loss(sigma, difference, z) == pytest.approx(np.mean(losses))
    assert explore.gradient(sigma, difference, z) == pytest.approx(np.mean(slopes, axis=0))


@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-6, 1.0, 40.0, 1e4, 1e12])
@pytest.mark.parametrize("comparable", [0.0, 1.0])
def test_no_distance_overflows(distance, comparable):
    difference, z = np.array([[1.0]]), np.array([comparable])
    sigma = np.array([[distance]])
    value = float(explore.loss(sigma, difference, z))
    slope = float(explore.gradient(sigma, difference, z)[0, 0])
    d = max(distance, 1e-10)
    if comparable:
        expected = d + math.log1p(math.exp(-d)) - math.log(2), 1 / (1 + math.exp(-d))
    else:
        expected = (
            -math.log(math.tanh(d / 2)) if d < 20 else 2 * math.exp(-d),
            -1 / math.sinh(d) if d < 700 else 0.0,
        )
    assert value == pytest.approx(expected[0], rel=1e-6, abs=1e-15)
    assert slope == pytest.approx(expected[1], rel=1e-9)


def test_a_planted_metric_is_found():
    sigma, x, other, comparable = plant()
    metric = explore.learn_from_labelled_pairs(
        x, other, comparable, iterations=1500, batch=400, generator=np.random.default_rng(0)
    )
    assert np.abs(metric.sigma - sigma).max() < 0.15 * np.abs(sigma).max()
    # The first feature does not count.
    assert metric.sigma[0, 0] < 0.05 * np.diag(metric.sigma)[1:].min()
    # No metric is likelier than the planted one by more than what four thousand pairs can say.
    z = comparable.astype(float)
    ours, planted = (float(explore.loss(each, x - other, z)) for each in (metric.sigma, sigma))
    assert abs(ours - planted) < 0.01


def test_the_full_batch_ends_where_the_gradient_does():
    # Fixed point: clip(Σ − gradient) = Σ, also where Σ is singular.
    _, x, other, comparable = plant(800)
    z = comparable.astype(float)
    sigma, start_loss, end_loss = explore.descend(
        x - other, z, batch=800, iterations=2000, generator=np.random.default_rng(0)
    )
    again = explore.clip(sigma - 0.1 * explore.gradient(sigma, x - other, z))
    assert again == pytest.approx(sigma, abs=1e-4)
    assert end_loss < start_loss


@pytest.mark.parametrize("namespace", namespaces())
def test_any_namespace_gives_the_same(namespace):
    xp = namespace()
    _, x, other, comparable = plant(300)
    judged = (x, other, comparable)
    few = {"iterations": 60, "batch": 50}
    expected = explore.learn_from_labelled_pairs(*judged, generator=np.random.default_rng(0), **few)
    found = explore.learn_from_labelled_pairs(
        *map(xp.asarray, judged), generator=np.random.default_rng(0), **few
    )
    assert found.sigma == pytest.approx(expected.sigma, abs=1e-8)
    moved = to_numpy(explore.gradient(*(xp.asarray(each) for each in some_pairs())))
    assert moved == pytest.approx(explore.gradient(*some_pairs()))


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_order_and_sides_of_pairs_say_nothing(seed):
    _, x, other, comparable = plant(60, d=3, seed=1)
    difference, z = x - other, comparable.astype(float)
    rng = np.random.default_rng(seed)
    turned = np.where(rng.random((60, 1)) < 0.5, -difference, difference)
    order = rng.permutation(60)
    whole, mixed = (
        explore.descend(*pairs, batch=60, iterations=40, generator=np.random.default_rng(0))[0]
        for pairs in ((difference, z), (turned[order], z[order]))
    )
    np.testing.assert_allclose(mixed, whole, atol=1e-7)
    one, two = (
        explore.descend(each, z, batch=20, iterations=40, generator=np.random.default_rng(0))[0]
        for each in (difference, turned)
    )
    assert np.array_equal(one, two)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 6))
def test_clipping_finds_the_nearest_metric(seed, d):
    rng = np.random.default_rng(seed)
    given_matrix = rng.normal(size=(d, d))
    given_matrix = given_matrix + given_matrix.T
    clipped = explore.clip(given_matrix)
    assert np.array_equal(clipped, clipped.T)
    assert np.linalg.eigvalsh(clipped).min() > -1e-12
    # The residual is negative semidefinite and orthogonal to it: the optimality condition.
    residual = given_matrix - clipped
    assert np.linalg.eigvalsh(residual).max() < 1e-10
    assert abs(np.sum(residual * clipped)) < 1e-10
    np.testing.assert_allclose(explore.clip(clipped), clipped, atol=1e-10)


def test_the_metric_is_positive_and_saved(tmp_path):
    # Until its falling steps are shorter than 2 over the curvature the descent jitters, and where
    # it is, and whether that is worse than the start, is rounding: 300 steps are too few here.
    metric = learn("explore", make_split(), iterations=1500)
    assert np.linalg.eigvalsh(metric.sigma).min() > -1e-12
    assert metric.basis @ metric.basis.T == pytest.approx(metric.sigma, abs=1e-12)
    assert metric.directions @ metric.sigma == pytest.approx(0, abs=1e-9)
    back = FairMetric.load(metric.save(tmp_path / "explore"))
    for name in ("sigma", "basis", "directions"):
        assert np.array_equal(getattr(back, name), getattr(metric, name))


def test_the_group_counts_less_than_what_makes_the_label():
    metric = learn("explore", make_split(2000), iterations=4000)
    size = np.diag(metric.sigma)
    assert size[0] < 0.05
    assert size[2] > 2 * max(size[3], size[4])


def test_seeds_repeat_and_differ():
    few = {"iterations": 1500, "comparable": 300, "incomparable": 100, "batch": 100}
    drawn = [learn("explore", make_split(), seed=seed, **few).sigma for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_pairs_are_what_the_learner_says(monkeypatch):
    split = make_split(400)
    seen = {}

    def watch(x, other, comparable, **parameters):
        seen.update(x=x, other=other, comparable=comparable, **parameters)

    monkeypatch.setattr(explore, "learn_from_labelled_pairs", watch)
    learn("explore", split, comparable=70, incomparable=30)
    label = {row.tobytes(): y for row, y in zip(split.train.X, split.train.y, strict=True)}
    first, second = (np.array([label[r.tobytes()] for r in seen[k]]) for k in ("x", "other"))
    alike = seen["comparable"]
    assert alike.sum() == 140
    assert (~alike).sum() == 30
    assert np.array_equal(np.bincount(first[alike]), [70, 70])
    assert (first[alike] == second[alike]).all()
    assert (first[~alike] != second[~alike]).all()
    assert (seen["x"][alike][:, 0] != seen["other"][alike][:, 0]).all()
    assert seen["batch"] == 1000
    assert seen["iterations"] == 10_000


def test_pairs_are_drawn_in_proportion_to_their_weights():
    codes = np.array([2, 0, 1, 0, 2])
    weight = np.array([1.0, 2.0, 0.5, 1.0, 0.0])
    drawn = explore.draw_pairs(codes, 40_000, np.random.default_rng(0), weight=weight, where="")
    expected = weight[:, None] * weight * (codes[:, None] != codes)
    expected /= expected.sum()
    found = np.zeros((5, 5))
    np.add.at(found, tuple(drawn.T), 1 / len(drawn))
    np.testing.assert_allclose(found, expected, atol=4 * np.sqrt(0.25 / len(drawn)))
    assert not found[expected == 0].any()


@settings(max_examples=30)
@given(codes=st.lists(st.integers(0, 3), min_size=2, max_size=12), seed=st.integers(0, 10**6))
def test_no_pair_shares_a_code(codes, seed):
    codes = np.array(codes)
    generator = np.random.default_rng(seed)
    weight = generator.random(len(codes)) + 1e-3
    if len(np.unique(codes)) < 2:
        with pytest.raises(DataError, match="No two rows differ"):
            explore.draw_pairs(codes, 5, generator, weight=weight, where="the rows")
        return
    first, second = explore.draw_pairs(codes, 200, generator, weight=weight, where="").T
    assert (codes[first] != codes[second]).all()


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"attribute": "sec"}, "sex"),
        ({"bins": 1}, "bins"),
        ({"gradient_limit": 0}, "gradient_limit"),
        ({"iteration": 5}, "iterations"),
    ],
)
def test_what_cannot_be_is_said(parameters, word):
    with pytest.raises(ConfigError, match=word):
        learn("explore", make_split(60), **parameters)


def test_what_pairs_cannot_come_from_is_refused():
    split = make_split(60)
    part = split.train
    for change, word in (
        ({"groups": np.zeros_like(part.groups)}, "label 0 of made, by sex"),
        ({"y": np.zeros_like(part.y)}, "the labels of made"),
    ):
        changed = split.replace(train=type(part)(**{**vars(part), **change}))
        with pytest.raises(DataError, match=word):
            learn("explore", changed)
    without = type(part)(**{**vars(part), "attributes": {}})
    with pytest.raises(ConfigError):
        learn("explore", split.replace(train=without))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"other": np.ones((4, 2))}, "shapes"),
        ({"x": np.full((4, 3), np.inf)}, "not finite"),
        ({"comparable": np.zeros(4, dtype=bool)}, "one kind"),
    ],
)
def test_pairs_that_are_none_are_refused(change, word):
    pairs = {
        "x": np.ones((4, 3)),
        "other": np.zeros((4, 3)),
        "comparable": np.array([True, False, True, False]),
    }
    with pytest.raises(DataError, match=word):
        explore.learn_from_labelled_pairs(**{**pairs, **change}, generator=np.random.default_rng(0))


def test_a_descent_that_runs_away_says_so_and_is_held_by_a_limit():
    # Steps of 1 overshoot to Σ = 0 here, where 1/sinh d of the pairs with z = 0 explodes.
    split = make_split(400)
    with pytest.raises(DataError):
        learn("explore", split, iterations=300, gradient_limit=None)
    assert np.abs(learn("explore", split, iterations=2000).sigma).max() < 2
    with pytest.raises(DataError):
        learn("explore", split, iterations=5, gradient_limit=1e3)


def test_the_limit_leaves_shorter_gradients_alone():
    _, x, other, comparable = plant(500)
    pairs = (x - other) / 4, comparable.astype(float)
    free, held, tight = (
        explore.descend(
            *pairs, batch=500, iterations=50, gradient_limit=k, generator=np.random.default_rng(0)
        )[0]
        for k in (None, 5.0, 0.01)
    )
    assert np.array_equal(free, held)
    assert not np.array_equal(free, tight)
    # Fifty shortened steps cannot go further than their lengths together.
    assert np.linalg.norm(tight - np.eye(4)) <= 50 * 0.01 * 2 + 1e-9


def test_a_decomposition_that_fails_is_made_the_other_way_round(monkeypatch):
    sigma = np.random.default_rng(0).normal(size=(6, 6))
    sigma = sigma + sigma.T
    expected = explore.clip(sigma)
    decompose, asked = np.linalg.eigh, []

    def fail_once(matrix):
        asked.append(matrix)
        if len(asked) == 1:
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        return decompose(matrix)

    monkeypatch.setattr(np.linalg, "eigh", fail_once)
    assert explore.clip(sigma) == pytest.approx(expected)
    assert len(asked) == 2


def test_a_singular_matrix_keeps_its_null_space_as_directions():
    root = np.random.default_rng(0).normal(size=(6, 4))
    sigma = root @ root.T
    metric = explore.make_metric(sigma)
    assert metric.basis.shape == (6, 4)
    assert metric.basis @ metric.basis.T == pytest.approx(sigma)
    assert metric.directions @ metric.directions.T == pytest.approx(np.eye(2), abs=1e-12)
    assert metric.directions @ sigma == pytest.approx(0, abs=1e-12)


def test_a_regular_matrix_has_no_free_directions():
    metric = explore.make_metric(np.diag([1.0, 4.0]))
    assert metric.directions.shape == (0, 2)
    assert metric.distance(np.array([[1.0, 1.0]]), np.zeros((1, 2))) == pytest.approx([5.0])


def test_zero_makes_everything_similar():
    metric = explore.make_metric(np.zeros((3, 3)))
    assert metric.basis.shape == (3, 0)
    assert metric.directions.shape == (3, 3)


@pytest.mark.parametrize(
    "sigma",
    [
        np.ones((2, 3)),
        np.array([[1.0, np.nan], [np.nan, 1.0]]),
        np.array([[1.0, 0.5], [0.0, 1.0]]),
        np.diag([1.0, -0.1]),
    ],
)
def test_what_is_no_metric_is_refused(sigma):
    with pytest.raises(ConfigError):
        explore.make_metric(sigma)
