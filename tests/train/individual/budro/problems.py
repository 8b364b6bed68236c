"""Random transport problems, with ties and coincident rows where they are asked for."""

import numpy as np


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
