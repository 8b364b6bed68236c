from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fairfrontier.runtime.seeds import derive_generator, derive_integer, derive_seed, uniforms


def test_seeds_are_the_same_on_every_machine():
    # Written down once: a change would silently change every stored result.
    assert derive_integer("adult", "split", 0) == 242471644
    assert uniforms(0, np.arange(3)).tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1)


@settings(max_examples=50, deadline=None)
@given(
    one=st.lists(st.text(max_size=3) | st.integers(-3, 12), min_size=1, max_size=3),
    other=st.lists(st.text(max_size=3) | st.integers(-3, 12), min_size=1, max_size=3),
)
def test_names_and_seeds_go_one_to_one(one, other):
    same = derive_seed(*one).entropy == derive_seed(*other).entropy
    assert same == (one == other)


def test_neither_order_nor_kind_nor_borders_of_names_are_lost():
    seeds = [("a", "b"), ("b", "a"), ("ab",), ("a", 1), ("a", "1"), ("a",)]
    assert len({derive_integer(*names) for names in seeds}) == len(seeds)
    for wrong in (1.5, True, None):
        with pytest.raises(TypeError, match="strings and integers"):
            derive_seed(wrong)


def test_generators_of_one_name_agree():
    one, other = derive_generator("x", 1), derive_generator("x", 1)
    np.testing.assert_array_equal(one.random(5), other.random(5))
    assert 0 <= derive_integer("x") < 2**31


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(-(2**70), 2**70),
    ids=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30),
    data=st.data(),
)
def test_a_row_draws_the_same_in_any_batch_and_order(seed, ids, data):
    ids = np.array(ids, dtype=np.int64)
    chosen = np.array(
        data.draw(st.lists(st.integers(0, len(ids) - 1), min_size=1, max_size=40)), dtype=int
    )
    whole = uniforms(seed, ids)
    np.testing.assert_array_equal(uniforms(seed, ids[chosen]), whole[chosen])
    assert ((whole >= 0) & (whole < 1)).all()
    assert whole.dtype == np.float64


@pytest.mark.parametrize("stride", [1, 2, 7, 1 << 20, 1 << 40])
@pytest.mark.parametrize("seed", [0, 1, 2**63])
def test_uniforms_are_uniform(seed, stride):
    drawn = uniforms(seed, np.arange(50_000, dtype=np.int64) * stride)
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    # The low half of the bits too, and neighbours do not know each other.
    assert stats.kstest((drawn * 2**26) % 1, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 4 / np.sqrt(drawn.size)


def test_neighbouring_seeds_are_independent():
    drawn = np.stack([uniforms(seed, np.arange(20_000)) for seed in range(8)])
    correlation = np.corrcoef(drawn) - np.eye(8)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(20_000)
    # Nor does one seed's row i draw what another's row j does.
    assert len(np.unique(drawn)) == drawn.size


def test_unsigned_and_signed_ids_agree_and_floats_are_refused():
    np.testing.assert_array_equal(
        uniforms(3, np.arange(5, dtype=np.uint64)), uniforms(3, np.arange(5, dtype=np.int32))
    )
    assert uniforms(3, np.zeros((2, 3), dtype=int)).shape == (2, 3)
    with pytest.raises(TypeError, match="integers"):
        uniforms(3, np.array([1.0]))
