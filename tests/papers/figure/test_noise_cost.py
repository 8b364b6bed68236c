from __future__ import annotations

import itertools

import numpy as np
import pytest

from fairfrontier.models.noisy.assignment import bound_rates
from fairfrontier.models.noisy.noise import bound_rate_of_cells
from fairfrontier.models.noisy.rate import RATE_CELLS
from papers.figure.approach import list_trained
from papers.figure.noise_cost import (
    draw_cost,
    draw_error,
    trace_cost,
    trace_error,
    turn_assignments,
    turn_balls,
)
from tests.papers.noised import ROOT


def error_rate(scene, label, noise, budget=None):
    points = scene.points.query("part == 'test' and measure == 'accuracy' and group == ''")
    kept = (points.method == label) & points.setting.str.contains(f'"noise":{noise}')
    if budget is not None:
        kept &= points.setting.str.contains(f'"budget":{budget}')
    values = 1 - points[kept].value
    assert len(values) == 2
    return values.mean(), abs(np.diff(values)[0]) / 2


def test_errors_are_those_of_the_table(noised):
    found = trace_error(noised)
    assert [each.label for each in found.lines] == ["direct", "ball", "weights"]
    assert [each.label for each in found.references] == ["plain", "oracle"]
    for line in (*found.lines, *found.references):
        budget = None if line.label == "plain" else 0.1
        expected = [error_rate(noised, line.label, at, budget) for at in line.at]
        np.testing.assert_allclose(np.transpose([line.mean, line.error]), expected)
    assert 0.3 < found.trivial < 0.6


def test_costs_are_those_of_the_table(noised):
    costs, trivial = trace_cost(noised)
    assert trivial == trace_error(noised).trivial
    assert list(costs) == ["dro", "soft_assignment"]
    for levels, label in zip(costs.values(), ("ball-exact", "weights-exact"), strict=True):
        assert [cost.noise for cost in levels] == [0.1, 0.3]
        for noise, line, _, _ in levels:
            np.testing.assert_allclose(line.at, [0.1, 0.5])
            expected = [error_rate(noised, label, noise, budget) for budget in line.at]
            np.testing.assert_allclose(np.transpose([line.mean, line.error]), expected)
    # More noise, a worse worst case.
    assert costs["dro"][0].turning < costs["dro"][1].turning


def test_what_training_could_not_meet_is_told(noised):
    costs, _ = trace_cost(noised)
    rows = list_trained(noised, "figure")
    for levels in costs.values():
        for noise, line, _, met in levels:
            for at, is_met in zip(line.at, met, strict=True):
                (own,) = (
                    each for each in rows
                    if (each.label, each.noise, each.budget) == (line.label, noise, at)
                )  # fmt: skip
                worst = []
                for stored in own.row.fits.values():
                    train = stored.split(ROOT).train
                    model = stored.model()
                    worst.append(model.violation(train.X, train.y, train.groups, inner="exact"))
                assert is_met == (max(worst) <= 1e-6)


def every_classifier(share, positive, steps=21):
    """Return the cells of classifiers that err on no negative row, and the TPR of each group."""
    grid = np.linspace(0, 1, steps)
    # Nobody accepts all positive rows: 1 is left out.
    t = np.array(list(itertools.product(*[grid[:-1]] * len(share))))
    zero = np.zeros_like(t)
    parts = [zero + 1 - positive, positive * (1 - t), zero, positive * t]
    return np.stack(parts, axis=-1) * share[:, None]


@pytest.mark.parametrize("seed", range(6))
def test_below_the_turning_point_of_balls_no_classifier_accepts_more_than_the_budget(seed):
    rng = np.random.default_rng(seed)
    share, positive = rng.dirichlet([3, 2, 2]), rng.uniform(0.3, 0.7, 3)
    level = rng.uniform(0.02, 0.95 if seed > 3 else 0.6, 3) * positive
    turning = turn_balls(share, positive, level)
    cells = every_classifier(share, positive)
    low, _ = bound_rate_of_cells(cells, np.broadcast_to(level, (len(cells), 3)), RATE_CELLS["tpr"])
    overall = cells[..., 3].sum(axis=1) / (share @ positive)
    needed = (overall[:, None] - low).max(axis=1)
    # A classifier with TPR > α is allowed from the α that it needs on.
    allowed = needed[needed < overall - 1e-9]
    assert allowed.size > 0
    assert allowed.min() >= turning - 1e-9
    assert allowed.min() == pytest.approx(turning, abs=0.06)
    assert turning >= (level / positive).min()


def test_a_ball_that_reaches_every_accepted_row_turns_at_every_budget():
    share, positive = np.array([0.6, 0.4]), np.array([0.3, 0.2])
    level = np.array([0.1, 0.2])
    assert turn_balls(share, positive, level) == np.inf
    cells = every_classifier(share, positive)
    low, _ = bound_rate_of_cells(cells, np.broadcast_to(level, (len(cells), 2)), RATE_CELLS["tpr"])
    np.testing.assert_allclose(low[:, 1], 0, atol=1e-12)


@pytest.mark.parametrize(("noise", "expected"), [(0.02, 0.0), (0.3, np.inf)])
def test_soft_assignment_turn_where_other_groups_cover_the_accepted_rows(noise, expected):
    prior, positive = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.5])
    joint = prior[:, None] * (np.full((3, 3), noise / 2) + np.eye(3) * (1 - 1.5 * noise))
    share = joint.sum(axis=0)
    assert turn_assignments(share, positive, joint) == expected
    cells = every_classifier(share, positive)
    low, _ = bound_rates(cells, (joint / share).T, RATE_CELLS["tpr"])
    assert (low.min(axis=1).max() > 1e-9) == (expected == 0)


def test_the_same_scene_is_the_same_bytes(noised):
    for draw in (draw_error, draw_cost):
        picture = draw(noised)
        assert picture == draw(noised)
        assert "Deciding 0 for everyone: " in picture.alt
    costs, _ = trace_cost(noised)
    assert f"{costs['dro'][0].line.mean[0]:.3f} at 0.1" in draw_cost(noised).alt
