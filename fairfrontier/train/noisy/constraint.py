"""The constraints of a classifier that was trained on noisy groups, on any rows."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fairfrontier.runtime.errors import DataError
from fairfrontier.train.noisy.ambiguity import bound_rate_of_cells
from fairfrontier.train.noisy.assignment import bound_rates
from fairfrontier.train.noisy.noise import NoiseModel
from fairfrontier.train.noisy.problem import Setting, Solution
from fairfrontier.train.noisy.rate import RATE_CELLS, Rate, count_cells, find_rates


def evaluate_constraints(
    setting: Setting,
    solution: Solution,
    decision: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    weight: np.ndarray,
    inner: Literal["ascent", "exact"],
) -> np.ndarray:
    """Return the constraints of an approach for decisions on any rows, with indicators.

    Parameters
    ----------
    setting : Setting
        Its approach, criterion and budget count.
    solution : Solution
        Its probabilities, levels, noise and adversary's masses count.
    decision : ndarray of float64, shape (n, K)
        Of every classifier, 0 or 1.
    y, codes : ndarray of int64, shape (n,)
        Labels, and the groups that are constrained.
    weight : ndarray of float64, shape (n,)
    inner : {"ascent", "exact"}
        Worst cases under the masses of the solution, or true maxima on these rows.

    Returns
    -------
    ndarray of float64, shape (R, m)
        By rate and group, in units of the rate; NaN where a group has no row of the event. Under
        ``unconstrained`` there are none: shape (0, m). Of a mixture the expectation.

    Raises
    ------
    DataError
        For a group that training did not have.
    """
    known = solution.cell_mass.shape[-2]
    if codes.size and codes.max() >= known:
        raise DataError(
            f"There is a group with the code {codes.max()}, and training had {known} groups.",
            "Ask about the groups that the model was trained with.",
        )
    if setting.approach == "unconstrained":
        return np.zeros((0, known))
    cells = count_cells(decision.T, y, codes, known, weight)
    found = [
        _evaluate_rate(setting, solution, cells, place, inner)
        for place in range(len(find_rates(setting.criterion)))
    ]
    return np.asarray(np.einsum("k,krj->rj", solution.probability, np.stack(found, axis=1)))


def take_largest(constraints: np.ndarray) -> float:
    """Return the largest constraint; −∞ of none, NaN where no group has a row of any event."""
    if constraints.size == 0:
        return -np.inf
    return float(np.nan if np.isnan(constraints).all() else np.nanmax(constraints))


def _evaluate_rate(
    setting: Setting, solution: Solution, cells: np.ndarray, place: int, inner: str
) -> np.ndarray:
    """Return the constraints of one rate for every classifier, shape (K, m)."""
    rate = find_rates(setting.criterion)[place]
    among, wrong = _flag_cells(rate)
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = (cells * wrong).sum(axis=(1, 2)) / (cells * among).sum(axis=(1, 2))
        if setting.approach in ("true_groups", "naive"):
            bad = (cells * wrong).sum(axis=2) / (cells * among).sum(axis=2)
        elif inner == "ascent":
            mass = solution.cell_mass[place] * cells[:, None]
            bad = (mass * wrong).sum(axis=(2, 3)) / (mass * among).sum(axis=(2, 3))
        else:
            kind = RATE_CELLS[rate.cells]
            if setting.approach == "dro":
                centre = _find_centre(solution.joint)
                low, high = bound_rate_of_cells(cells, solution.level, kind, centre)
            else:
                posterior = (solution.joint / solution.joint.sum(axis=0)).T
                low, high = bound_rates(cells, posterior, kind)
            bad = 1 - low if rate.floor else high
    return np.asarray(bad - overall[:, None] - setting.budget)


def _flag_cells(rate: Rate) -> tuple[np.ndarray, np.ndarray]:
    """Return which cells c = 2ŷ + y are of a rate's event, and which of them are bad."""
    sign = np.asarray([rate.sign[c % 2] for c in range(4)])
    decision = np.asarray([1 if c // 2 else -1 for c in range(4)])
    return (sign != 0).astype(np.float64), (sign == decision).astype(np.float64)


def _find_centre(joint: np.ndarray) -> tuple[int, ...] | None:
    """Return the noisy group at the centre of each ball; None where each is its own."""
    if joint.size == 0:
        return None
    m, seen = joint.shape
    names = tuple(str(each) for each in range(m)), tuple(str(each) for each in range(seen))
    return NoiseModel(joint, *names).centre
