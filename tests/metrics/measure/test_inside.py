from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.metrics.measure.registry import MEASURES, Audit
from fairfrontier.models.prediction import Prediction
from tests.metrics.made import make_part

ATTRIBUTES = {"race": ("a", "b", "c"), "sex": ("f", "m")}


def gaps(part, decision) -> dict[str, tuple[float, int, float, float]]:
    rows = MEASURES.find("selection_rate_gap_inside").compute(
        Audit(Prediction(decision, decision), part)
    )
    return {row.group: tuple(row)[1:] for row in rows}


def test_equals_the_difference_of_means_inside_each_level():
    rng = np.random.default_rng(0)
    groups = np.column_stack([rng.integers(3, size=600), rng.integers(2, size=600)])
    part = make_part(rng.integers(2, size=600), groups, ATTRIBUTES)
    decision = (rng.random(600) < 0.3 + 0.1 * groups[:, 0] * groups[:, 1]).astype(np.float64)
    found = gaps(part, decision)
    # Three levels have no one gap, and so none inside the sexes.
    assert list(found) == [f"sex inside race={level}" for level in "abc"]
    for code, level in enumerate("abc"):
        inside = groups[:, 0] == code
        rates = [decision[inside & (groups[:, 1] == sex)].mean() for sex in (0, 1)]
        value, n, low, high, _ = found[f"sex inside race={level}"]
        assert value == pytest.approx(rates[0] - rates[1])
        assert n == inside.sum()
        assert low < value < high
    turned = make_part(part.y, groups[:, ::-1], {"sex": ("f", "m"), "race": ("a", "b", "c")})
    again = gaps(turned, decision)
    assert list(again) == list(found)
    for group, row in found.items():
        assert again[group] == pytest.approx(row)


def test_cross_products_and_empty_cells_have_no_gap():
    groups = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 2], [1, 0, 2]] * 10)
    attributes = {"race": ("a", "b"), "sex": ("f", "m"), "race×sex": ("af", "am", "bf")}
    part = make_part(np.tile([0, 1], 20), groups, attributes)
    found = gaps(part, np.tile([1.0, 0.0, 0.0, 1.0], 10))
    assert set(found) == {"sex inside race=a", "race inside sex=f"}
    assert found["sex inside race=a"][0] == 1.0
