from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.runtime import arrays
from fairfrontier.runtime.errors import ConfigError
from tests.namespaces import devices, load_cupy, namespaces


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(0, 40), n=st.integers(1, 9))
def test_segment_sum_equals_a_loop(namespace, columns, dtype, seed, m, n):
    xp = namespace()
    rng = np.random.default_rng(seed)
    shape = (m,) if columns is None else (m, columns)
    values = (rng.standard_normal(shape) * 10).astype(dtype)
    codes = rng.integers(0, n, m)
    expected = np.zeros((n, *shape[1:]), dtype=dtype)
    for row, code in enumerate(codes):
        expected[code] += values[row]

    ours = arrays.segment_sum(xp.asarray(values), xp.asarray(codes), n)

    ours = arrays.to_numpy(ours)
    assert ours.dtype == np.dtype(dtype)
    assert ours.shape == expected.shape
    np.testing.assert_allclose(
        ours, expected, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-4
    )


@pytest.mark.parametrize("namespace", devices())
def test_segment_sum_works_through_blocks(namespace, monkeypatch):
    rng = np.random.default_rng(0)
    values, codes = rng.standard_normal((100, 2)), rng.integers(0, 7, 100)
    monkeypatch.setattr(arrays, "BLOCK_ENTRIES", 7 * 13)
    xp = namespace()
    there = arrays.segment_sum(xp.asarray(values), xp.asarray(codes), 7)
    np.testing.assert_allclose(
        arrays.to_numpy(there), arrays.segment_sum(values, codes, 7), rtol=1e-12
    )


@pytest.mark.parametrize("namespace", namespaces())
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_segment_sum_of_many_segments_equals_a_loop(namespace, dtype):
    xp, n = namespace(), arrays.MANY_SEGMENTS + 1
    rng = np.random.default_rng(3)
    values, codes = rng.integers(0, 9, 500).astype(dtype), rng.integers(5, n - 5, 500)
    expected = np.zeros(n, dtype=dtype)
    np.add.at(expected, codes, values)
    ours = arrays.to_numpy(arrays.segment_sum(xp.asarray(values), xp.asarray(codes), n))
    assert ours.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(ours, expected)


def test_segment_sum_keeps_large_integers_exact():
    values = np.array([2**53, 1, 1], dtype=np.int64)
    assert arrays.segment_sum(values, np.array([0, 0, 1]), 2).tolist() == [2**53 + 1, 1]


def test_auto_takes_cupy_only_when_the_work_pays(monkeypatch):
    monkeypatch.setattr(arrays, "device_present", lambda: True)
    assert arrays.choose_backend("auto", arrays.WORK_THAT_PAYS) == "cupy"
    assert arrays.choose_backend("auto", arrays.WORK_THAT_PAYS / 2) == "numpy"
    assert arrays.choose_backend("numpy", 1e15) == "numpy"
    assert arrays.choose_backend("cupy", 0) == "cupy"
    monkeypatch.setattr(arrays, "device_present", lambda: False)
    assert arrays.choose_backend("auto", 1e15) == "numpy"
    with pytest.raises(ConfigError, match="backend 'auto'"):
        arrays.choose_backend("cupy")
    with pytest.raises(ConfigError):
        arrays.choose_backend("torch")


@pytest.mark.gpu
def test_a_device_array_comes_and_goes():
    cupy = load_cupy()
    x = arrays.as_backend(np.arange(3.0), "cupy")
    assert isinstance(x, cupy.ndarray)
    assert arrays.as_backend(x, "auto") is x
    assert arrays.as_backend(x, "numpy").tolist() == [0.0, 1.0, 2.0]


def test_the_module_needs_nothing_but_numpy_and_array_api_compat():
    code = (
        "import sys; import fairfrontier.runtime.arrays; "
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    foreign = {name for name in out.stdout.split() if not name.startswith("_")}
    assert foreign <= {"numpy", "array_api_compat", "fairfrontier", "setuptools", "distutils"}


@pytest.mark.parametrize("namespace", namespaces())
def test_a_device_has_free_memory(namespace):
    free = arrays.count_free_bytes(namespace().asarray(np.ones(3)))
    assert free > 2**20
