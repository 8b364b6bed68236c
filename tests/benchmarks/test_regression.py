from __future__ import annotations

import numpy as np
import pytest

from benchmarks.regression import (
    N_GRID,
    PUBLISHED,
    RefittingOracle,
    Table,
    agree_on,
    measure_bounded_loss,
    measure_calls,
    measure_parity_fits,
)
from fairfrontier.models.regression.loss import square
from fairfrontier.models.regression.oracle import LeastSquaresOracle
from fairfrontier.models.regression.problem import build_parity, find_costs
from tests.models.regression.made import draw_rows


def make_table(n=300, *, classes=False):
    X, y, group = draw_rows(n)
    return Table(X, (y > 0.55).astype(float) if classes else y, group)


def test_calls_of_all_oracles_are_measured():
    records = measure_calls(make_table(40), calls=1, repeat=1, threads=1)
    assert [each.case for each in records] == [
        "LS linear, a call",
        *(f"{name} linear, a call (published)" for name in ("LS", "LR", "CS")),
        *(f"{name} trees, a call (published)" for name in ("LS", "LR")),
        "envelope linear, a call (LS)", "envelope trees, a call (LS)",
    ]  # fmt: skip
    assert {each.peer_seconds for each in records if "published" in each.peer} == {
        *PUBLISHED.values()
    }
    assert all(each.ours_seconds > 0 for each in records)


@pytest.mark.once
def test_bounded_group_loss_is_measured_at_one_objective():
    short, long = measure_bounded_loss(make_table(classes=True), iterations=20, repeat=1)
    assert short.peer == long.peer == "fairlearn"
    calls, peer = (int(word) for word in long.case.removesuffix(")").split() if word.isdigit())
    assert calls >= peer > 0


def test_whole_fits_are_measured():
    records = measure_parity_fits(make_table(400, classes=True), iterations=3, repeat=1)
    assert [each.peer for each in records] == ["fitted anew", "fitted anew", "LR"]


def test_the_peer_of_least_squares_answers_alike():
    table = make_table()
    problem = build_parity(
        table.rows, table.y, table.group, table.weight, loss=square(), budget=0.1
    )
    costs = find_costs(problem, np.random.default_rng(0).normal(0, 0.02, (2, N_GRID)))
    cached = LeastSquaresOracle(problem.rows, problem.n_cells)
    anew = RefittingOracle(problem).respond(costs)
    np.testing.assert_allclose(
        anew.score(table.X), cached.respond(costs).score(table.X), atol=1e-10
    )


def test_different_objectives_stop_the_run():
    agree_on(0.2, 0.201, 0.01, "LS")
    with pytest.raises(AssertionError, match="LS: ours reaches"):
        agree_on(0.2, 0.22, 0.01, "LS")
