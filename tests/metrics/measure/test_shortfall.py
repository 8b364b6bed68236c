from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairfrontier.metrics.measure.registry import MEASURES, Audit
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.runtime.errors import ConfigError
from tests.metrics.made import make_part


def made(n: int = 400, seed: int = 0, weighted: bool = False) -> Audit:
    rng = np.random.default_rng(seed)
    y, groups = rng.integers(2, size=n), rng.integers(3, size=(n, 1))
    weight = rng.uniform(0.5, 2.0, n) if weighted else None
    part = make_part(y, groups, {"race": ("a", "b", "c")}, weight=weight)
    decision = (rng.random(n) < 0.3 + 0.2 * y + 0.1 * groups[:, 0]).astype(np.float64)
    return Audit(Prediction(decision, decision), part)


def table(audit: Audit, name: str) -> dict[str, tuple[float, int, float, float]]:
    return {row.group: tuple(row)[1:] for row in MEASURES.find(name).compute(audit)}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("name", "label", "sign"), [("tpr_shortfall", 1, 1), ("fpr_excess", 0, -1)]
)
def test_equals_the_difference_of_means(name, label, sign, weighted):
    audit = made(weighted=weighted)
    part, decision = audit.part, audit.prediction.decision
    kept = part.y == label
    overall = np.average(decision[kept], weights=part.weight[kept])
    found = table(audit, name)
    assert list(found) == ["race=a", "race=b", "race=c"]
    for code, level in enumerate(("a", "b", "c")):
        own = kept & (part.groups[:, 0] == code)
        value, n, low, high, _ = found[f"race={level}"]
        expected = sign * (overall - np.average(decision[own], weights=part.weight[own]))
        assert value == pytest.approx(expected)
        assert n == own.sum()
        assert low < value < high


def test_the_interval_covers_the_truth():
    # All levels have the same rate: the true shortfall is 0.
    hits = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        y, groups = np.ones(200, dtype=np.int64), rng.integers(3, size=(200, 1))
        part = make_part(y, groups, {"race": ("a", "b", "c")})
        decision = (rng.random(200) < 0.4).astype(np.float64)
        for _, _, low, high, _ in table(
            Audit(Prediction(decision, decision), part), "tpr_shortfall"
        ).values():
            hits.append(low <= 0 <= high)
    assert 0.93 < np.mean(hits) < 0.98


def test_true_groups_are_counted_where_noise_was_injected():
    audit = made()
    with pytest.raises(ConfigError):
        tabulate(audit.prediction, audit.part, measures=["true_tpr_shortfall"])
    assert "true_tpr_shortfall" not in set(tabulate(audit.prediction, audit.part).measure)
    rng = np.random.default_rng(1)
    seen = rng.integers(3, size=audit.part.groups.shape)
    noisy = Audit(audit.prediction, replace(audit.part, groups=seen, true_groups=audit.part.groups))
    assert table(noisy, "true_tpr_shortfall") == table(audit, "tpr_shortfall")
    assert table(noisy, "tpr_shortfall") != table(audit, "tpr_shortfall")


def test_a_level_of_too_few_rows_and_one_of_all_rows():
    y = np.ones(30, dtype=np.int64)
    decision = np.tile([0.0, 1.0], 15)
    few = make_part(y, [[0]] * 27 + [[1]] * 3, {"race": ("a", "b")})
    found = table(Audit(Prediction(decision, decision), few), "tpr_shortfall")
    assert np.isnan(found["race=b"][0])
    alone = make_part(y, [[0]] * 30, {"race": ("a", "b")})
    assert np.isnan(
        table(Audit(Prediction(decision, decision), alone), "tpr_shortfall")["race=a"][0]
    )
