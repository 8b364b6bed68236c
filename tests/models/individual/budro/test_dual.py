from __future__ import annotations

import numpy as np
import pytest

from fairfrontier.models.individual.budro.search import Piece, minimise_dual


class Dense:
    """M(η) of a few columns over a whole matrix, and all pieces that were asked for."""

    def __init__(self, seed, budget, spread=1.0, n=9):
        generator = np.random.default_rng(seed)
        z = generator.normal(size=(n, 2))
        self.cost = np.sum((z[:, None] - z[None]) ** 2, axis=2)
        self.loss = 0.69 + spread * generator.exponential(size=(n, n))
        self.budget, self.seen = budget, []
        # The cheapest of the worst, of every column.
        free = np.lexsort((self.cost, -self.loss), axis=0)[0]
        self.zero = self.piece(0.0, free)
        self.stay = self.piece(0.0, np.arange(n))

    def piece(self, eta, target):
        columns = np.arange(len(target))
        gain, cost = (each[target, columns].mean() for each in (self.loss, self.cost))
        return Piece(eta, gain, cost, self.budget, target)

    def explore(self, eta, held):
        found = self.piece(eta, np.argmax(self.loss - eta * self.cost, axis=0))
        self.seen.append(found.dual)
        return found

    def least(self):
        """The minimum of M, which is 0 or where two lines of a column cross."""
        rise = self.loss[:, None, :] - self.loss[None]
        run = self.cost[:, None, :] - self.cost[None]
        etas = np.append(0.0, (rise[run > 0] / run[run > 0]).clip(0.0))
        best = np.max(self.loss - etas[:, None, None] * self.cost, axis=1)
        return np.min(etas * self.budget + best.mean(axis=1))

    def minimise(self, **options):
        return minimise_dual(self.explore, self.zero, self.stay, **options)


@pytest.mark.parametrize("budget", [0.0, 0.01, 0.3, 2.0, 50.0])
def test_the_minimum_is_brute_forces_and_its_maps_attain_it(budget):
    for seed in range(20):
        problem = Dense(seed, budget)
        found = problem.minimise(tolerance=0.0)
        assert found.converged
        wanted = problem.stay.gain if budget == 0 else problem.least()
        assert found.dual == pytest.approx(wanted, rel=1e-12)
        assert found.objective == pytest.approx(wanted, rel=1e-12)
        assert found.cost <= budget + 1e-12
        assert sum(share for share, _ in found.maps) == pytest.approx(1.0)


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-6])
def test_the_tolerance_is_a_share_of_what_is_above_the_floor(spread):
    for seed in range(20):
        problem = Dense(seed, 0.1, spread, n=60)
        floor = problem.stay.gain
        found = problem.minimise(tolerance=0.01, floor=floor)
        assert found.converged
        assert found.dual - found.objective <= 0.01 * (found.dual - floor)


@pytest.mark.parametrize("start", [None, 1e-3, 30.0])
def test_the_dual_is_the_least_that_was_seen_whenever_it_ends(start):
    for seed in range(10):
        for most in range(1, 6):
            problem = Dense(seed, 0.1)
            begin = None if start is None else (start, problem.stay.target)
            found = problem.minimise(tolerance=0.0, start=begin, max_iterations=most)
            assert found.dual == min(problem.zero.dual, *problem.seen)
            assert found.iterations == len(problem.seen) <= most
            assert found.cost <= 0.1 + 1e-12


@pytest.mark.parametrize("start", [1e-250, 1e250])
def test_a_start_far_off_is_left_however_far(start):
    problem = Dense(0, 0.1)
    found = problem.minimise(tolerance=0.0, start=(start, problem.stay.target))
    assert found.converged
    assert found.dual == pytest.approx(problem.least(), rel=1e-12)


def test_a_budget_that_dwarfs_what_is_paid_is_met():
    problem = Dense(0, 0.1)
    problem.cost *= 1e30
    problem.budget = 1e29
    problem.zero = problem.piece(0.0, problem.zero.target)
    problem.stay = problem.piece(0.0, problem.stay.target)
    # Far above the minimum nobody moves.
    found = problem.minimise(start=(1e-20, problem.stay.target))
    assert found.converged
    assert found.dual == pytest.approx(problem.least(), rel=2e-3)
