"""Random transport problems, with ties and coincident rows where they are asked for."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, kron

from fairfrontier.models.individual.budro.geometry import keep_columns


def draw_problem(seed, n=24, k=2, n_labels=2, levels=None, copies=0):
    """Return embedded rows, labels and losses; ``levels`` rounds, ``copies`` repeats rows."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(n, k))
    loss = generator.exponential(size=(n, n_labels))
    if levels:
        z = np.round(z * levels) / levels
        loss = np.round(loss * levels) / levels
    if copies:
        z[:copies] = z[copies : 2 * copies]
    return z, generator.integers(n_labels, size=n), loss


def draw_lattice(seed, n=160, turned=False):
    """Return rows of a small grid, labels and losses of a few levels, so that most points tie.

    ``turned`` as a projection turns them: then rounding alone tells distances apart.
    """
    generator = np.random.default_rng(seed)
    z = generator.integers(4, size=(n, 4)).astype(np.float64)
    loss = generator.integers(4, size=(n, 2)) / 4
    if turned:
        z = z @ np.linalg.qr(generator.normal(size=(4, 4)))[0]
    return z, generator.integers(2, size=n), loss


class Sum:
    """Sums over threads that run in step, as workers' sums over processes."""

    def __init__(self, n):
        self.n, self.barrier, self.terms = n, Barrier(n, timeout=60), [None] * n

    def add_up(self, place, values):
        self.terms[place] = values
        self.barrier.wait()
        total = sum(self.terms)
        self.barrier.wait()
        return total


def solve_in_portions(geometry, n, solve):
    """Return what ``solve`` says of each of n portions of the columns, solved in step."""
    total, held = Sum(n), geometry.column_point.shape[0]

    def run(place):
        part = np.arange(place, held, n)
        return solve(keep_columns(geometry, part, lambda values: total.add_up(place, values)))

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


def find_optimum(z, label, loss, budget, mass=None):
    """Return the optimum of (2.8) by a linear programme of all n² pairs."""
    return solve_programme(z, label, loss, budget, mass)[0]


def solve_programme(z, label, loss, budget, mass=None):
    """Return the optimum of (2.8), and the price of the budget there."""
    n = len(z)
    cost = np.sum((z[:, None, :] - z[None, :, :]) ** 2, axis=2)
    found = linprog(
        -loss[:, label].reshape(-1),
        A_ub=csr_array(cost.reshape(1, -1)),
        b_ub=[budget],
        A_eq=kron(csr_array(np.ones((1, n))), eye_array(n)),
        b_eq=np.full(n, 1 / n) if mass is None else mass,
        bounds=(0, None),
        method="highs",
    )
    return -found.fun, max(0.0, -float(found.ineqlin.marginals[0]))
