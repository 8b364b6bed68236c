from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.train.noisy.cell import count_cells, find_rate, sum_cells
from tests.runtime.test_arrays import namespaces


@pytest.mark.parametrize("namespace", namespaces())
def test_cells_equal_a_loop(namespace):
    xp = namespace()
    rng = np.random.default_rng(0)
    models, n, m = 3, 40, 4
    decision = rng.random((models, n)).round(1)
    y = rng.integers(0, 2, n)
    codes = rng.integers(0, m, (models, n))
    weight = rng.random(n)
    expected = np.zeros((models, m, 4))
    for model in range(models):
        for i in range(n):
            h, k = decision[model, i], codes[model, i]
            expected[model, k, y[i]] += weight[i] * (1 - h)
            expected[model, k, 2 + y[i]] += weight[i] * h
    expected /= weight.sum()
    ours = count_cells(*map(xp.asarray, (decision, y, codes)), m, xp.asarray(weight))
    np.testing.assert_allclose(to_numpy(ours), expected, atol=1e-14)
    alone = count_cells(*map(xp.asarray, (decision[1], y, codes[1])), m)
    assert alone.shape == (m, 4)
    assert float(xp.sum(alone)) == pytest.approx(1)


def test_rates_are_shares_of_cells():
    rng = np.random.default_rng(1)
    decision, y = rng.integers(0, 2, (2, 60))
    codes = np.zeros(60, dtype=np.int64)
    cells = count_cells(decision.astype(float), y, codes, 1)[0]
    expected = {
        "tpr": decision[y == 1].mean(),
        "fpr": decision[y == 0].mean(),
        "selection_rate": decision.mean(),
        "accuracy": (decision == y).mean(),
    }
    for name, value in expected.items():
        rate = find_rate(name)
        assert sum_cells(cells, rate.good) / sum_cells(cells, rate.among) == pytest.approx(value)
    with pytest.raises(ConfigError, match="Did you mean 'tpr'"):
        find_rate("tp")
