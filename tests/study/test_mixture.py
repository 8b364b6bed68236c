"""Measures of a mixture are those of its decisions, computed from the rates of both settings."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import Part
from fairfrontier.study.frontier import (
    find_envelope,
    is_mixable,
    mix_measure,
    name_measures,
    pivot_measures,
    trace_mixtures,
)

# Few distinct values, so that ties, equal points and points on a segment are common.
POINT = st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, float("nan")])] * 2)


def attained(cost, harm, kept, at):
    """Return the least cost of two points, or a draw between them, at a harm of at most ``at``."""
    best = np.inf
    for i, j in itertools.product(kept, repeat=2):
        apart = harm[i] - harm[j]
        crossing = (at - harm[j]) / apart if apart else 0.0
        for share in {0.0, 1.0, min(max(crossing, 0.0), 1.0)}:
            if share * harm[i] + (1 - share) * harm[j] <= at + 1e-12:
                best = min(best, share * cost[i] + (1 - share) * cost[j])
    return best


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


def test_the_hull_is_traced_between_neighbouring_corners():
    part, decisions = make_part()
    points = pd.concat(
        measure(part, each).assign(method=name) for each, name in zip(decisions, "ab", strict=True)
    )
    fits = points[["method", "setting", "seed"]].drop_duplicates()
    frontier = pd.DataFrame(
        {
            "fairness": "tpr_difference:sex",
            "method": ["a", "b"],
            "setting": "{}",
            "selected_accuracy": [0.9, 0.8],
            "selected_fairness": [0.2, 0.1],
        }
    )
    traced = trace_mixtures(points, fits, frontier, "accuracy")
    assert traced["piece"].unique().tolist() == [0]
    values = points[(points["group"] == "") & (points["measure"] == "accuracy")]
    ends = values.set_index("method")["value"]
    # Corners come by ascending unfairness.
    assert traced["accuracy"].iloc[0] == pytest.approx(ends["b"])
    np.testing.assert_allclose(traced["accuracy"], np.linspace(ends["b"], ends["a"], len(traced)))
    # Preferences of opposite sign cancel on the way.
    assert traced["fairness_value"].min() < 0.5 * traced["fairness_value"].iloc[[0, -1]].min()
    assert trace_mixtures(points, fits, frontier, "auc").empty


@settings(max_examples=60, deadline=None)
@given(st.lists(POINT, max_size=7))
def test_corners_attain_all_that_the_points_attain_and_none_can_be_spared(points):
    cost, harm = np.array(points, dtype=np.float64).reshape(-1, 2).T
    known = [i for i in range(len(points)) if not np.isnan([cost[i], harm[i]]).any()]
    corners = find_envelope(cost, harm)
    assert set(corners) <= set(known)
    assert bool(known) == bool(len(corners))
    for at in sorted(set(harm[known])):
        expected = pytest.approx(attained(cost, harm, known, at), abs=1e-9)
        assert attained(cost, harm, corners, at) == expected
    for corner in corners:
        others = [each for each in corners if each != corner]
        assert attained(cost, harm, others, harm[corner]) > cost[corner] + 1e-9
    assert (np.diff(harm[corners]) > 0).all()
    assert (np.diff(cost[corners]) < 0).all()


def test_a_point_above_the_segment_of_its_neighbours_is_left_out():
    cost, harm = np.array([1.0, 0.6, 0.0, 0.9]), np.array([0.0, 0.5, 1.0, 0.05])
    assert find_envelope(cost, harm).tolist() == [0, 3, 2]
    assert find_envelope(cost[:3], harm[:3]).tolist() == [0, 2]
    assert find_envelope(np.array([1.0, 1.0]), np.array([0.5, 0.5])).tolist() == [0]
