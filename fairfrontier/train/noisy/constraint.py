"""The constraints of a classifier that was trained on noisy groups, on any rows."""

from __future__ import annotations

import numpy as np

from fairfrontier.runtime.errors import DataError
from fairfrontier.train.noisy.ambiguity import bound_rate_of_cells
from fairfrontier.train.noisy.assignment import bound_rates
from fairfrontier.train.noisy.noise import NoiseModel
from fairfrontier.train.noisy.problem import Inner, Setting, Solution
from fairfrontier.train.noisy.rate import RATE_CELLS, Rate, count_cells, find_rates


def evaluate_constraints(
    setting: Setting,
    solution: Solution,
    decision: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    weight: np.ndarray,
    inner: Inner,
) -> np.ndarray:
    """Return the constraints of an approach on any rows, with indicators, by rate and group.

    ``decision``, shape (n, K), holds 0 or 1 of every classifier; ``codes`` are the constrained
    groups. With ``inner`` "ascent" worst cases are those under the masses of the solution, else
    true maxima on these rows. The result has shape (R, m), or (0, m) without constraints, and is in
    units of the rate: the expectation over a mixture, NaN where a group has no row of the event.
    DataError for a group that training did not have.
    """
    n_groups = solution.cell_mass.shape[-2]
    if codes.size and codes.max() >= n_groups:
        raise DataError(
            f"There is a group with the code {codes.max()}, and training had {n_groups} groups.",
            "Use the groups that the model was trained with.",
        )
    if setting.approach == "unconstrained":
        return np.zeros((0, n_groups))
    cells = count_cells(decision.T, y, codes, n_groups, weight)
    values = [
        _evaluate_rate(setting, solution, cells, index, rate, inner)
        for index, rate in enumerate(find_rates(setting.criterion))
    ]
    return np.asarray(np.einsum("k,krj->rj", solution.probability, np.stack(values, axis=1)))


def take_largest(constraints: np.ndarray) -> float:
    """Return the largest constraint; −∞ of none, NaN where no group has a row of any event."""
    if constraints.size == 0:
        return -np.inf
    return float(np.nan if np.isnan(constraints).all() else np.nanmax(constraints))


def _evaluate_rate(
    setting: Setting, solution: Solution, cells: np.ndarray, index: int, rate: Rate, inner: Inner
) -> np.ndarray:
    """Return the constraints of one rate for every classifier, shape (K, m)."""
    # Which cells c = 2ŷ + y are in the rate's event, and which of them are bad.
    sign = np.asarray([rate.sign[c % 2] for c in range(4)])
    among, wrong = (sign != 0).astype(np.float64), (sign == [-1, -1, 1, 1]).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = (cells * wrong).sum(axis=(1, 2)) / (cells * among).sum(axis=(1, 2))
        if setting.approach in ("true_groups", "naive"):
            bad = (cells * wrong).sum(axis=2) / (cells * among).sum(axis=2)
        elif inner == "ascent":
            mass = solution.cell_mass[index] * cells[:, None]
            bad = (mass * wrong).sum(axis=(2, 3)) / (mass * among).sum(axis=(2, 3))
        else:
            kind, joint = RATE_CELLS[rate.cells], solution.joint
            if setting.approach == "dro":
                low, high = bound_rate_of_cells(cells, solution.level, kind, _find_centre(joint))
            else:
                low, high = bound_rates(cells, (joint / joint.sum(axis=0)).T, kind)
            bad = 1 - low if rate.floor else high
    return np.asarray(bad - overall[:, None] - setting.budget)


def _find_centre(joint: np.ndarray) -> tuple[int, ...] | None:
    """Return the noisy group at the centre of each ball; None where each group is its own."""
    if joint.size == 0:
        return None
    true, noisy = (tuple(map(str, range(size))) for size in joint.shape)
    return NoiseModel(joint, true, noisy).centre
