"""Stochastic classifiers: the ideal algorithm on the iterates of training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.train.neural.estimator import TrainingWarning
from fairfrontier.train.neural.network import Network
from fairfrontier.train.noisy.ideal import IdealProblem, solve_ideal
from fairfrontier.train.noisy.lagrangian import TOLERANCE, Training, score_rows
from fairfrontier.train.noisy.noise import NoiseModel
from fairfrontier.train.noisy.rate import find_rates
from fairfrontier.train.noisy.row import Rows, sum_scores

if TYPE_CHECKING:
    from fairfrontier.train.noisy.estimator import NoisyGroups

# Shifts of the scores by which the classifiers differ from the iterates.
SHIFTS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def take_iterates(done: Training, place: int) -> list[np.ndarray]:
    """Return the recorded iterates of a model, arrays with a leading axis for them."""
    return [
        np.stack([to_numpy(array)[place] for array in arrays])
        for arrays in zip(*(each.arrays for each in done.snapshots), strict=True)
    ]


def mix_iterates(
    model: NoisyGroups, pools: Sequence[list[np.ndarray]], rows: Rows, noise: NoiseModel
) -> None:
    """Run the ideal algorithm on the recorded iterates, shifted, and the two constant decisions."""
    arrays = [np.concatenate(each).astype(np.float64) for each in zip(*pools, strict=True)]
    shifted = [np.concatenate([array] * len(SHIFTS)) for array in arrays]
    shifted[-1] = shifted[-1] + np.repeat(SHIFTS, len(arrays[0]))[:, None, None]
    constant = [np.zeros((2, *array.shape[1:])) for array in arrays]
    constant[-1][:, 0, 0] = (-1.0, 1.0)
    every = Network.of([np.concatenate(each) for each in zip(shifted, constant, strict=True)])
    x, weight, weighted = (
        to_numpy(each).astype(np.float64) for each in (rows.x, rows.weight, rows.weighted)
    )
    wide = Rows(x, weight, weighted, rows.borders, rows.n_groups, rows.total)
    cells = sum_scores(wide, score_rows(wide, every)).count
    cells = np.maximum(cells, 0.0)
    error = cells[:, :, 1:3].sum(axis=(1, 2))
    found = solve_ideal(
        IdealProblem(error, cells, noise.posterior, find_rates(model.criterion), model.budget),
        iterations=model.game_steps,
        response=model.response,
        inner_iterations=model.response_steps,
        slack=model.response_slack,
        tolerance=model.response_tolerance,
        inner_radius=model.response_radius,
    )
    chosen = np.flatnonzero(found.probability > 0)
    model.network_ = Network.of([array[chosen] for array in every.arrays])
    model.probability_ = found.probability[chosen]
    model.step_, model.error_ = found.iterations, found.error
    model.violation_ = float(found.violation.max())
    m, seen = noise.joint.shape
    model.carried_ = np.zeros((len(find_rates(model.criterion)), m, seen, 4))
    if model.violation_ > 100 * TOLERANCE + found.gap:
        warnings.warn(
            f"The mixture violates a constraint by {model.violation_:.3f}.",
            TrainingWarning,
            stacklevel=2,
        )
