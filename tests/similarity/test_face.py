from __future__ import annotations

from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pytest
from dask_ml.decomposition import TruncatedSVD
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from fairfrontier import learn, load
from fairfrontier.prepare.split import Variant
from fairfrontier.prepare.splitting.plan import Edit, Edits
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.similarity import face
from fairfrontier.similarity.fair_metric import FairMetric
from tests.metrics.made import MadeSet
from tests.models.tables import make_split
from tests.namespaces import devices, namespaces

SEX = (Edit("sex=Female", {0: 0.0}, {0: 0}), Edit("sex=Male", {0: 1.0}, {0: 1}))
REGION = (
    Edit("region=0", {3: 0.0, 4: 0.0}, {}),
    Edit("region=1", {3: 1.0, 4: 0.0}, {}),
    Edit("region=2", {3: 0.0, 4: 1.0}, {}),
)


def plant(n_groups=400, d=8, k=3, noise=0.02, seed=0):
    """Make groups that vary along k directions, much more between each other, and some noise."""
    rng = np.random.default_rng(seed)
    planted = np.linalg.qr(rng.normal(size=(d, k)))[0].T
    groups = []
    for _ in range(n_groups):
        m = rng.integers(2, 6)
        within = (rng.normal(size=(m, k)) * np.arange(k, 0, -1)) @ planted
        groups.append(10 * rng.normal(size=d) + within + noise * rng.normal(size=(m, d)))
    return planted, groups


def by_svd(stack, k):
    """Return the projector on the complement of the top right singular vectors."""
    top = np.linalg.svd(stack)[2][:k]
    return np.eye(stack.shape[1]) - top.T @ top


def centred(groups):
    return np.vstack([group - group.mean(axis=0) for group in groups])


def with_sets(split, **sets):
    part = split.train
    changed = {
        name: Edits(part.X, part.groups, attributes=(), edits=edits) for name, edits in sets.items()
    }
    train = type(part)(**{**vars(part), "counterfactuals": changed})
    return split.replace(train=train)


def test_a_planted_subspace_is_found():
    planted, groups = plant()
    metric = face.learn_from_groups(groups, 3)
    assert subspace_angles(metric.directions.T, planted.T).max() < 0.01
    # The largest variation comes first.
    assert np.abs(metric.directions @ planted.T) == pytest.approx(np.eye(3), abs=0.15)
    # More data, less noise: what is left is the noise's.
    _, noisy = plant(noise=0.3)
    found = face.learn_from_groups(noisy, 3)
    assert 0.01 < subspace_angles(found.directions.T, planted.T).max() < 0.1


def test_it_is_the_singular_vectors_of_the_centred_stack():
    _, groups = plant(60)
    metric = face.learn_from_groups(groups, 2)
    assert metric.sigma == pytest.approx(by_svd(centred(groups), 2), abs=1e-10)
    assert metric.sigma @ metric.sigma == pytest.approx(metric.sigma, abs=1e-12)
    assert metric.basis @ metric.basis.T == pytest.approx(metric.sigma, abs=1e-12)
    assert metric.directions @ metric.sigma == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("namespace", namespaces())
def test_pairs_are_differences_without_a_centre(namespace):
    xp = namespace()
    rng = np.random.default_rng(1)
    x = rng.normal(size=(50, 6))
    other = x + rng.normal(size=(50, 6)) * [3, 2, 1, 0.1, 0.1, 0.1] + [0, 0, 0, 5, 0, 0]
    expected = by_svd(other - x, 2)
    assert face.learn_from_pairs(xp.asarray(x), xp.asarray(other), 2).sigma == pytest.approx(
        expected, abs=1e-10
    )
    # Who comes first in a pair, and which pair comes first, says nothing.
    swapped = face.learn_from_pairs(xp.asarray(other[::-1].copy()), xp.asarray(x[::-1].copy()), 2)
    assert swapped.sigma == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("namespace", namespaces())
def test_versions_and_groups_are_two_views_of_the_same(namespace):
    xp = namespace()
    rng = np.random.default_rng(2)
    table = rng.normal(size=(30, 1, 7)) + rng.normal(size=(30, 4, 7)) * np.linspace(2, 0.1, 7)
    expected = by_svd(centred(table), 3)
    made = (xp.asarray(table[:, version].copy()) for version in range(4))
    assert face.learn_from_versions(made, 3).sigma == pytest.approx(expected, abs=1e-10)
    groups = [xp.asarray(group.copy()) for group in table]
    assert face.learn_from_groups(groups, 3).sigma == pytest.approx(expected, abs=1e-10)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6), n=st.integers(1, 6), m=st.integers(2, 6), shift=st.floats(-1e3, 1e3)
)
def test_contrasts_have_the_scatter_of_the_centred_group(seed, n, m, shift):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(m, n, 4)) + shift
    table[:, :, 0] = table[0, :, 0]
    stack = np.vstack(list(face.contrasts(table)))
    deviation = (table - table.mean(axis=0)).reshape(-1, 4)
    np.testing.assert_allclose(stack.T @ stack, deviation.T @ deviation, atol=1e-8)
    assert not stack[:, 0].any()


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 40))
def test_streaming_equals_in_memory(seed, size):
    _, groups = plant(40, d=6, seed=seed)
    whole = centred(groups)
    expected = by_svd(whole, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(face, "BLOCK_ROWS", size)
        streamed = face.learn_from_groups((group for group in groups), 3)
        triangle = face.compress([whole[:7], whole[7:]])
    np.testing.assert_allclose(streamed.sigma, expected, atol=1e-9)
    np.testing.assert_allclose(triangle.T @ triangle, whole.T @ whole, atol=1e-9)
    assert triangle.shape == (6, 6)


def test_groups_are_taken_a_block_at_a_time(monkeypatch):
    monkeypatch.setattr(face, "BLOCK_ROWS", 10)
    sizes = []
    decompose = np.linalg.qr

    def watch(block, mode="reduced"):
        sizes.append(block.shape[0])
        return decompose(block, mode=mode)

    monkeypatch.setattr(np.linalg, "qr", watch)
    face.learn_from_groups((group for group in plant(100, d=5)[1]), 2)
    assert len(sizes) > 20
    assert max(sizes) <= 5 + 10


def test_small_singular_values_keep_their_digits():
    rng = np.random.default_rng(3)
    left = np.linalg.qr(rng.normal(size=(300, 4)))[0]
    right = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    sizes = np.array([1.0, 1e-3, 1e-7, 1e-9])
    stack = left * sizes @ right
    found = np.linalg.svd(face.compress(np.array_split(stack, 7)), compute_uv=False)
    np.testing.assert_allclose(found, sizes, rtol=1e-5)
    # The Gram matrix would have lost the last one.
    gram = np.sqrt(np.abs(np.linalg.eigvalsh(stack.T @ stack)))[0]
    assert abs(gram - 1e-9) > 1e-10


def test_distributed_equals_in_memory():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 6))
    other = x + rng.normal(size=(500, 6)) * [3, 2, 1, 0.1, 0.1, 0.1]
    expected = by_svd(other - x, 3)
    chunks = ((90, 100, 3, 7, 100, 100, 50, 20, 15, 15), (4, 2))
    pair = [da.from_array(each, chunks=chunks) for each in (x, other)]
    with dask.config.set(scheduler="synchronous"):
        found = face.learn_from_pairs(*pair, 3)
        theirs = TruncatedSVD(3, algorithm="tsqr").fit((pair[0] - pair[1]).rechunk({1: -1}))
    assert found.sigma == pytest.approx(expected, abs=1e-10)
    top = theirs.components_
    assert found.sigma == pytest.approx(np.eye(6) - top.T @ top, abs=1e-10)


def test_a_client_is_used_when_it_is_given():
    class Client:
        asked = 0

        def compute(self, task):
            self.asked += 1
            answer = task.compute(scheduler="synchronous")
            return type("Future", (), {"result": lambda self: answer})()

    client = Client()
    _, groups = plant(30, d=5, k=2)
    pairs = np.stack([group[:2] for group in groups])
    x, other = (da.from_array(pairs[:, side], chunks=(8, 5)) for side in (0, 1))
    found = face.learn_from_pairs(x, other, 2, client=client)
    assert client.asked == 1
    assert found.sigma == pytest.approx(by_svd(pairs[:, 0] - pairs[:, 1], 2), abs=1e-10)


def test_single_precision_is_read_in_double():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(40, 5)).astype(np.float32)
    other = x + np.float32(0.1) * rng.normal(size=(40, 5)).astype(np.float32)
    found = face.learn_from_pairs(x, other, 2)
    assert found.sigma.dtype == np.float64
    assert found.sigma == pytest.approx(by_svd(other.astype(float) - x.astype(float), 2), abs=1e-10)


def test_a_table_s_variants_are_at_distance_nothing():
    split = with_sets(make_split(), sex=SEX, region=REGION)
    metric = learn("face", split)
    assert metric.directions.shape == (3, 5)
    for variants in split.train.counterfactuals.values():
        for variant in variants:
            assert np.array_equal(metric.embed(split.train.X), metric.embed(variant.X))
    assert learn("face", split, counterfactuals="sex").sigma == pytest.approx(
        np.diag([0.0, 1, 1, 1, 1])
    )
    both = learn("face", split, counterfactuals=["region", "sex"])
    assert both.sigma == pytest.approx(metric.sigma)


@pytest.mark.parametrize(("seed", "n_levels"), [(6797, 2), (9120, 3)])
def test_no_rounding_stays_where_the_metric_sees_nothing(seed, n_levels):
    # Trees in single precision would cut between 1e-13 and 0.
    generator = np.random.default_rng(seed)
    n = int(generator.integers(200, 1500))
    generator.integers(2, 6)
    n_numbers = int(generator.integers(2, 20))
    generator.random()
    generator.integers(2, 7)
    sex, job = generator.integers(0, n_levels, n), generator.integers(0, 3, n)
    numbers, zone = generator.normal(size=(n, n_numbers)), generator.integers(0, 3, n)

    def encode(sex, job):
        return np.hstack([numbers, np.eye(n_levels)[sex], np.eye(3)[zone], np.eye(3)[job]])

    of_sex = [encode(np.full(n, level), job) for level in range(n_levels)]
    of_job = [encode(sex, np.full(n, level)) for level in range(3)]
    metric = face.learn_from_versions([encode(sex, job), *of_sex, *of_job], directions=None)
    seen = [metric.project(rows).astype(np.float32) for rows in of_sex[:2]]
    assert np.array_equal(*seen)


def test_the_learner_stacks_rows_with_their_variants():
    split = with_sets(make_split(), region=REGION)
    variants = list(split.train.counterfactuals["region"])
    table = np.stack([split.train.X, *(each.X for each in variants)], axis=1)
    found = learn("face", split, directions=1)
    assert found.sigma == pytest.approx(by_svd(centred(table), 1), abs=1e-10)


def test_rows_without_versions_are_skipped():
    split, rng = make_split(), np.random.default_rng(0)
    part = split.train
    having = np.sort(rng.choice(part.n_samples, 30, replace=False))
    weight = rng.integers(1, 4, part.n_samples).astype(float)
    versions = []
    for name in ("a", "b"):
        moved = part.X.copy()
        moved[having] += rng.normal(size=(30, moved.shape[1]))
        versions.append(Variant(name, moved, part.groups))
    sets = {"some": MadeSet(tuple(versions), having)}
    train = replace(part, counterfactuals=sets, weight=weight)
    found = learn("face", split.replace(train=train), directions=2)
    table = np.stack([part.X[having], *(each.X[having] for each in versions)], axis=1)
    table = np.repeat(table, weight[having].astype(int), axis=0)
    assert found.sigma == pytest.approx(by_svd(centred(table), 2), abs=1e-10)


def test_weights_equal_copied_rows():
    split = with_sets(make_split(), region=REGION)
    counts = np.where(split.train.X[:, 2] > 0, 3, 1)
    copied = split.replace(train=split.train.take(np.repeat(np.arange(len(counts)), counts)))
    part = split.train
    weighted = split.replace(train=type(part)(**{**vars(part), "weight": counts.astype(float)}))
    one, many = learn("face", weighted, directions=1), learn("face", copied, directions=1)
    assert one.sigma == pytest.approx(many.sigma, abs=1e-10)
    assert np.abs(one.sigma - learn("face", split, directions=1).sigma).max() > 1e-4


def test_a_sample_of_rows_is_seeded():
    split = with_sets(make_split(), region=REGION)
    drawn = [learn("face", split, directions=1, rows=20, seed=seed).sigma for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    every = learn("face", split, directions=1, rows=10**6)
    assert np.array_equal(every.sigma, learn("face", split, directions=1).sigma)


def test_a_split_of_dask_arrays_gives_the_same_metric(root):
    plain = load("adult", rows=300, home=root)
    spread = load("adult", rows=300, home=root, backend="dask", partitions=3)
    with dask.config.set(scheduler="synchronous"):
        found = learn("face", spread, counterfactuals="spouse")
    expected = learn("face", plain, counterfactuals="spouse")
    assert found.sigma == pytest.approx(expected.sigma, abs=1e-10)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"counterfactuals": "sec"}, "sex"),
        ({"directions": 5}, "from 1 to 4"),
        ({"rows": 0}, "above 0"),
        ({"direction": 1}, "directions"),
    ],
)
def test_what_cannot_be_is_said(parameters, word):
    with pytest.raises(ConfigError, match=word):
        learn("face", with_sets(make_split(60), sex=SEX), **parameters)


def test_a_split_without_counterfactuals_is_refused():
    with pytest.raises(ConfigError):
        learn("face", make_split(60))


def test_more_directions_than_there_are_is_refused():
    split = with_sets(make_split(60), sex=SEX)
    with pytest.raises(DataError, match=r"along 1 direction\(s\) only, 2"):
        learn("face", split, directions=2)
    same = np.ones((5, 3))
    with pytest.raises(DataError, match=r"along 0 direction\(s\)"):
        face.learn_from_pairs(same, same, None)
    with pytest.raises(DataError):
        face.learn_from_groups(plant(20, d=3)[1], None)


@pytest.mark.parametrize(
    ("groups", "word"),
    [
        ([], "no comparable samples"),
        ([np.ones((2, 3)), np.ones((1, 3))], "Group 1"),
        ([np.ones((2, 3)), np.ones((2, 4))], "4 features"),
        ([np.array([[1.0, np.nan, 0.0], [0.0, 1.0, 2.0]])], "not finite"),
    ],
)
def test_groups_that_are_none_are_refused(groups, word):
    with pytest.raises(DataError, match=word):
        face.learn_from_groups(groups, 1)


@pytest.mark.parametrize("namespace", devices())
def test_the_metric_works_on_a_device_and_is_saved(namespace, tmp_path):
    metric = face.learn_from_groups(plant(30)[1], 2)
    x = np.random.default_rng(0).normal(size=(4, 8))
    there = namespace().asarray(x)
    assert to_numpy(metric.embed(there)) == pytest.approx(metric.embed(x))
    back = FairMetric.load(metric.save(tmp_path / "face"))
    for name in ("sigma", "basis", "directions"):
        assert np.array_equal(getattr(back, name), getattr(metric, name))
