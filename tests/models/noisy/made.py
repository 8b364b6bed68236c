"""Small tables with groups, and games on them, for the tests of training."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, device

from fairfrontier.models.neural.network import Network
from fairfrontier.models.noisy.noise import NoiseModel
from fairfrontier.models.noisy.player import Game
from fairfrontier.models.noisy.rate import GroupedRows, arrange_rows, find_rates


def make_table(n=120, m=3, seed=0, d=4, levels=3):
    """Return one-hot rows, labels, groups that the labels lean on, and noisy groups."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(levels, size=(n, d))
    group = rng.integers(m, size=n)
    chance = codes[:, 0] + codes[:, 1] - 0.8 * group + rng.normal(size=n)
    y = (chance > np.median(chance)).astype(np.int64)
    moved = rng.random(n) < 0.25
    noisy = np.where(moved, (group + rng.integers(1, m, size=n)) % m, group)
    X = np.hstack([np.eye(levels)[codes[:, i]] for i in range(d)] + [np.eye(m)[noisy]])
    return X, y, group, noisy


def flip_uniformly(level, prior, names=None):
    """Return the noise of a share of rows that move to another group, each equally likely."""
    m = len(prior)
    confusion = np.full((m, m), level / (m - 1))
    np.fill_diagonal(confusion, 1 - level)
    return NoiseModel.from_confusion(confusion, prior=prior, names=names)


def make_rows(xp=np, dtype="float64", m=3, **changes):
    """Return arranged rows on a namespace, with noisy groups."""
    X, y, _, noisy = make_table(m=m, **changes)
    rows = arrange_rows(X, y, noisy, m, np.ones(len(y)), dtype)
    return GroupedRows(
        xp.asarray(rows.x),
        xp.asarray(rows.weight),
        xp.asarray(rows.weighted),
        rows.borders,
        rows.n_groups,
        rows.total,
    )


def make_game(rows, criterion="equalized_odds", models=3, budget=0.05, slack=1.25):
    xp, where = array_namespace(rows.x), device(rows.x)
    each = (xp.asarray(np.full(models, value), device=where) for value in (budget, slack))
    return Game(rows, find_rates(criterion), *each)


def make_scores(rows, models=3, seed=0, scale=1.5):
    """Return scores (M, n), some of them beyond the hinges' kinks."""
    xp, where = array_namespace(rows.x), device(rows.x)
    rng = np.random.default_rng(seed)
    return xp.asarray(rng.normal(scale=scale, size=(models, rows.n)), device=where)


def labels_of(rows):
    """Return the labels and groups of arranged rows, as NumPy arrays."""
    sizes = np.diff(rows.borders)
    m = rows.n_groups
    return np.repeat(np.arange(2 * m) // m, sizes), np.repeat(np.arange(2 * m) % m, sizes)


def start_network(rows, models, xp=np):
    zeros = xp.asarray(np.zeros((models, rows.x.shape[1], 1)), dtype=rows.x.dtype)
    return Network((zeros,), (xp.asarray(np.zeros((models, 1, 1)), dtype=rows.x.dtype),))
