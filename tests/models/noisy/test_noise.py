from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from fairfrontier.models.noisy.noise import NoiseModel, limit_share
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.models.noisy.made import flip_uniformly


def make_table(seed, n=400, m=3, n_noisy=3):
    rng = np.random.default_rng(seed)
    true = np.concatenate([np.arange(m), rng.choice(m, n, p=rng.dirichlet(np.ones(m)))])
    table = rng.dirichlet(np.ones(n_noisy), size=m)
    noisy = np.array([rng.choice(n_noisy, p=table[j]) for j in true])
    noisy[:n_noisy] = np.arange(n_noisy)
    return true, noisy


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(2, 4), n_noisy=st.integers(2, 4))
def test_a_table_gives_its_own_shares(seed, m, n_noisy):
    true, noisy = make_table(seed, 60, m, n_noisy)
    noise = NoiseModel.from_table(
        true,
        noisy,
        names=[f"g{j}" for j in range(m)],
        noisy_names=[f"{'g' if m == n_noisy else 's'}{k}" for k in range(n_noisy)],
    )
    for j in range(m):
        assert noise.prior[j] == pytest.approx((true == j).mean())
        for k in range(n_noisy):
            seen = (true == j) & (noisy == k)
            assert noise.confusion[j, k] == pytest.approx(seen.sum() / (true == j).sum())
            assert noise.posterior[k, j] == pytest.approx(seen.sum() / (noisy == k).sum())
    again = NoiseModel.from_confusion(noise.confusion, prior=noise.prior)
    np.testing.assert_allclose(again.joint, noise.joint)
    if m == n_noisy:
        assert noise.centre == tuple(range(m))
        np.testing.assert_allclose(noise.level, 1 - np.diag(noise.confusion))
    if m <= n_noisy and np.linalg.cond(noise.confusion) < 1e3:
        solved = NoiseModel.from_confusion(noise.confusion, noisy_prior=noise.noisy_prior)
        np.testing.assert_allclose(solved.joint, noise.joint, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), square=st.booleans())
def test_the_valid_level_bounds_the_total_variation(seed, square):
    true, noisy = make_table(seed, 60, 3, 3 if square else 4)
    noise = NoiseModel.from_table(true, noisy, names="abc", noisy_names="abc" if square else "wxyz")
    for j, k in enumerate(noise.centre):
        p, q = (true == j) / (true == j).sum(), (noisy == k) / (noisy == k).sum()
        # Rows are told apart, so that this is the largest distance two such groups can have.
        distance = np.abs(p - q).sum() / 2
        assert distance == pytest.approx(noise.valid_level[j], abs=1e-12)
        assert noise.level_holds[j] == (distance <= noise.level[j] + 1e-9)
        assert noise.premise[j] == ((true == j).sum() == (noisy == k).sum())
        if not square:
            others = [np.abs(p - (noisy == o) / (noisy == o).sum()).sum() / 2 for o in range(4)]
            assert distance == pytest.approx(min(others))


def test_uniform_flips_of_unequal_groups_break_the_premise():
    noise = flip_uniformly(0.1, [0.855, 0.096, 0.049], names=["white", "black", "other"])
    np.testing.assert_allclose(noise.level, 0.1)
    np.testing.assert_allclose(1 - np.diag(noise.posterior), [0.009, 0.343, 0.519], atol=5e-4)
    assert noise.level_holds.tolist() == [True, False, False]
    assert not noise.premise.any()
    equal = flip_uniformly(0.3, [0.5, 0.5])
    assert equal.premise.all()
    np.testing.assert_allclose(equal.valid_level, equal.level)
    none = flip_uniformly(0.0, [0.2, 0.8])
    np.testing.assert_array_equal(none.valid_level, [0, 0])


def test_what_is_no_noise_model():
    with pytest.raises(ConfigError, match=r"Row 'b' .* sums to 0.9"):
        NoiseModel.from_confusion([[1, 0], [0.2, 0.7]], prior=[0.5, 0.5], names="ab")
    with pytest.raises(ConfigError):
        NoiseModel.from_confusion([[1.2, -0.2], [0, 1]], prior=[0.5, 0.5])
    with pytest.raises(ConfigError):
        NoiseModel.from_confusion(np.eye(2))
    with pytest.raises(ConfigError):
        NoiseModel.from_confusion(np.eye(2), prior=[0.5, 0.5], noisy_prior=[0.5, 0.5])
    with pytest.raises(ConfigError):
        NoiseModel.from_confusion(np.eye(2), prior=[0.5, 0.6])
    with pytest.raises(ConfigError):
        NoiseModel.from_confusion(np.full((2, 2), 0.5), noisy_prior=[0.5, 0.5])
    with pytest.raises(ConfigError):
        NoiseModel.from_confusion([[0.6, 0.4], [0.4, 0.6]], noisy_prior=[0.9, 0.1])
    with pytest.raises(DataError, match="true group 'b' never occurs"):
        flip_uniformly(0.1, [1.0, 0.0], names="ab")
    with pytest.raises(DataError, match="noisy group 'c' never occurs"):
        NoiseModel.from_table(np.array([0, 1, 2]), np.array([0, 1, 0]), names="abc")
    with pytest.raises(DataError, match="at least one row"):
        NoiseModel.from_table(np.array([], dtype=int), np.array([], dtype=int))
    with pytest.raises(DataError, match="outside 0 to 1"):
        NoiseModel.from_table(np.array([0, 1]), np.array([0, 2]), names="ab")
    with pytest.raises(ConfigError, match="do not sum to 1"):
        NoiseModel(np.eye(2), ("a", "b"), ("a", "b"))
    with pytest.raises(ConfigError):
        NoiseModel.from_confusion([0.5, 0.5], prior=[1.0])


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 60), share=st.floats(0, 1), confidence=st.floats(0.5, 0.99))
def test_limits_are_clopper_and_pearsons(n, share, confidence):
    count = round(share * n)
    low, high = limit_share(np.array(count), np.array(n), 1 - confidence)
    expected = binomtest(count, n).proportion_ci(confidence, method="exact")
    assert low == pytest.approx(expected.low, abs=1e-9)
    assert high == pytest.approx(expected.high, abs=1e-9)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5])
def test_limits_hold_as_often_as_they_say(share):
    n = 25
    counts = np.arange(n + 1)
    low, high = limit_share(counts, np.array(n), 0.1)
    covered = binom.pmf(counts, n, share)[(low <= share) & (share <= high)].sum()
    assert covered >= 0.9


def test_the_upper_limit_of_the_level_holds():
    noise = flip_uniformly(0.3, [0.7, 0.3])
    rng = np.random.default_rng(0)
    n, draws = 80, 2000
    valid = np.zeros(2)
    for _ in range(draws):
        counts = rng.multinomial(n, noise.joint.ravel()).reshape(2, 2)
        table = NoiseModel(counts / n, noise.names, noise.noisy_names, counts)
        valid += table.interval(0.9).valid_level_limit >= noise.valid_level
    assert (valid / draws > 0.89).all()


def test_intervals_of_a_table():
    true, noisy = make_table(1)
    noise = NoiseModel.from_table(true, noisy)
    found = noise.interval(0.95)
    for low, high, value in ((*found.posterior, noise.posterior), (*found.level, noise.level)):
        assert (low <= value).all()
        assert (value <= high).all()
    together = noise.interval(0.95, at_once=9)
    assert (together.posterior[1] >= found.posterior[1]).all()
    with pytest.raises(DataError):
        flip_uniformly(0.1, [0.5, 0.5]).interval()
    with pytest.raises(ConfigError):
        noise.interval(95)
