from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from fairfrontier.models.tree.rate_game import (
    EVENTS,
    Played,
    ascend,
    build_cells,
    differentiate,
    find_gap,
)


def draw(n=400, n_groups=3, seed=0):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(2, size=n), rng.integers(n_groups, size=n)
    return y, group, rng.exponential(size=n), rng.normal(size=n)


@pytest.mark.parametrize("criterion", EVENTS)
def test_rates_are_those_of_the_rows_in_each_cell(criterion):
    y, group, weight, margin = draw()
    cells = build_cells(y, group, 3, weight, criterion)
    rate = cells.measure(margin >= 0)
    assert rate.shape == cells.share.shape == (len(EVENTS[criterion]), 3)
    for event, label in enumerate(EVENTS[criterion]):
        for k in range(3):
            rows = (group == k) & (True if label is None else y == label)
            expected = np.average(margin[rows] >= 0, weights=weight[rows])
            assert rate[event, k] == pytest.approx(expected)
            assert cells.share[event, k] == pytest.approx(weight[rows].sum() / weight.sum())


def test_rows_outside_of_the_event_have_no_price():
    y, group, weight, _ = draw()
    cells = build_cells(y, group, 3, weight, "equal_opportunity")
    price = cells.spread(np.array([[1.0, 2.0, -3.0]]))
    np.testing.assert_array_equal(price, np.where(y == 1, np.array([1.0, 2.0, -3.0])[group], 0.0))


def test_a_group_without_rows_has_no_rate_and_no_price():
    y, group = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    cells = build_cells(y, group, 3, np.ones(4), "equalized_odds")
    rate = cells.measure(np.array([True, True, False, True]))
    assert np.isnan(rate[:, 2]).all()
    assert find_gap(rate) == 1.0
    price = ascend(np.zeros((2, 3)), rate, cells.share, 0.5, 0.0)
    assert np.isfinite(price).all()
    assert (price[:, 2] == 0).all()
    assert price[0].tolist() == [0.25, -0.25, 0.0]


def test_derivatives_are_those_of_the_lagrangian():
    y, _, weight, margin = draw(40)
    price = np.random.default_rng(1).normal(size=40)

    def lagrangian(f):
        proxy = np.where(price > 0, np.logaddexp(0, f), -np.logaddexp(0, -f))
        return weight * (np.logaddexp(0, f) - y * f) + price * proxy

    gradient, curvature = differentiate(margin, y, weight, price)
    h = 1e-4
    up, middle, down = (lagrangian(margin + shift) for shift in (h, 0.0, -h))
    np.testing.assert_allclose(gradient, (up - down) / (2 * h), atol=1e-7)
    np.testing.assert_allclose(curvature, (up - 2 * middle + down) / h**2, atol=1e-6)
    assert (curvature > 0).all()


def test_two_groups_by_hand():
    share, rate = np.array([[0.25, 0.25]]), np.array([[0.7, 0.3]])
    # η (r − ν) with ν = ½, and η ε / 2 = .05 less.
    price = ascend(np.zeros((1, 2)), rate, share, step=0.5, bound=0.2)
    np.testing.assert_allclose(price, [[0.05, -0.05]])
    # Equal rates lower the prices by η ε / 2, down to 0.
    later = ascend(price, np.array([[0.5, 0.5]]), share, step=0.5, bound=0.1)
    np.testing.assert_allclose(later, [[0.025, -0.025]])
    assert not ascend(later, np.array([[0.5, 0.5]]), share, step=0.5, bound=0.2).any()


@pytest.mark.parametrize("bound", [0.0, 0.1, 0.4])
def test_a_step_solves_its_problem(bound):
    rng = np.random.default_rng(3)
    share, rate = rng.uniform(0.1, 0.5, (1, 4)), rng.random((1, 4))
    start = rng.normal(size=4)
    start -= share[0] @ start / share.sum()
    price = ascend(start[None], rate, share, 0.7, bound)[0]

    def value(halves):
        u = halves[:4] - halves[4:]
        gain = u * rate[0] - (u - start) ** 2 / 1.4
        return -(share[0] @ gain - bound / 2 * share[0] @ halves.reshape(2, 4).sum(axis=0))

    best = minimize(
        value,
        np.concatenate([np.maximum(start, 0), np.maximum(-start, 0)]),
        method="SLSQP",
        bounds=[(0, None)] * 8,
        constraints=LinearConstraint(np.append(share[0], -share[0])[None], 0, 0),
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert share[0] @ price == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(price, best.x[:4] - best.x[4:], atol=1e-5)


def test_prices_of_a_toy_settle_where_the_rates_meet():
    # A group's rate falls by a tenth of its price; without prices they are .8, .5 and .2.
    share, free = np.array([[0.2, 0.3, 0.5]]), np.array([[0.8, 0.5, 0.2]])
    price = np.zeros((1, 3))
    for _ in range(400):
        price = ascend(price, free - 0.1 * price, share, step=0.5, bound=0.1)
    rate = free - 0.1 * price
    assert find_gap(rate) == pytest.approx(0.1, abs=1e-6)
    assert (share * price).sum() == pytest.approx(0.0, abs=1e-12)


def test_the_round_of_the_least_lagrangian_is_chosen():
    price, share = np.array([[-1.0, 1.0]]), np.array([[0.5, 0.5]])
    rate = np.array([[[0.0, 0.4]], [[0.3, 0.3]], [[0.3, np.nan]]])
    played = Played(None, price, np.array([0.2, 0.25, 0.45]), rate)
    # .2 + .2, .25 + 0 and .45 − .15
    assert played.choose_round(share) == 1
