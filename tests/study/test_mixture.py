"""Measures of a mixture are those of its decisions, computed from the rates of both settings."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import Part
from fairfrontier.study.frontier import is_mixable, mix_measure, name_measures, pivot_measures


def make_part(rows: int = 400) -> tuple[Part, np.ndarray]:
    """Return a part with two attributes, and the decisions of two models, shape (2, rows)."""
    rng = np.random.default_rng(0)
    groups = np.column_stack([rng.integers(0, 2, rows), rng.integers(0, 3, rows)])
    part = Part(
        dataset="toy",
        name="test",
        ids=np.arange(rows),
        X=np.zeros((rows, 1)),
        y=rng.integers(0, 2, rows),
        groups=groups,
        protected=groups.astype(np.float64),
        weight=rng.random(rows) + 0.5,
        attributes={"sex": ("F", "M"), "race": ("A", "B", "C")},
        classes=("0", "1"),
    )
    chance = 0.3 + 0.3 * np.array([groups[:, 0], 1 - groups[:, 0]])
    return part, (rng.random((2, rows)) < chance).astype(np.float64)


def measure(part: Part, decision: np.ndarray) -> pd.DataFrame:
    table = tabulate(Prediction(decision, decision), part, costs=(1.0, 5.0))
    return table.assign(method="m", setting="{}", seed=0, part=part.name, dataset="toy")


def test_measures_from_rates_are_those_of_the_mixed_decisions():
    part, decisions = make_part()
    first, second, mixed = (
        pivot_measures(table.assign(name=name_measures(table)), ["seed"])
        for table in (
            measure(part, each) for each in (*decisions, 0.3 * decisions[0] + 0.7 * decisions[1])
        )
    )
    names = [name for name in mixed.columns if is_mixable(name)]
    assert {"accuracy", "error_cost", "gap_rms:sex×race", "fpr_ratio:race", "tpr_gap:sex"} <= {
        *names
    }
    for name in names:
        told = mix_measure(name, first, second, np.array([0.0, 0.7]))
        wanted = [first[name].iloc[0], mixed[name].iloc[0]]
        np.testing.assert_allclose(told[0], wanted, atol=1e-12, err_msg=name)
    # Two models that prefer opposite groups: the mixture is fairer than both.
    name = "selection_rate_difference:sex"
    assert mixed[name].iloc[0] < 0.7 * min(first[name].iloc[0], second[name].iloc[0])
    assert not is_mixable("auc")
