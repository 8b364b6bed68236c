"""Rates of groups: as shares of cells, and as constraints with indicators or with hinges.

Every constraint says that the bad share of group j exceeds that of all rows by at most α:

    g_j = A_j[1{bad}] − E[1{bad}] − α,   bad  ⟺  φ ≥ 0 where s = +1,  φ < 0 where s = −1,

over the rows of an event, with s = 0 outside of it. For true positive rates the event is y = 1 and
bad is the decision 0, so that g_j = TPR − TPR_j − α. With (1 + sφ)₊ ≥ 1{bad} and
1 − (1 − sφ)₊ ≤ 1{bad} the hinge form is

    A_j[(1 + sφ)₊] + E[(1 − sφ)₊] − 1 − α − β.

A_j is the mean over the rows of the event under row masses a_j: those of hard groups, of a
distribution p̃_j, or of soft assignments w(j | ŷ, y, k).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat

from fairfrontier.runtime.arrays import array_namespace, segment_sum
from fairfrontier.runtime.errors import ConfigError, nearest

Array = Any

# A cell is 2ŷ + y: (ŷ, y) = (0, 0), (0, 1), (1, 0), (1, 1).
N_CELLS = 4


@dataclass(frozen=True)
class RateCells:
    """A rate as a share of cells: the rows of ``good`` among those of ``good`` and ``bad``."""

    name: str
    good: tuple[int, ...]
    bad: tuple[int, ...]

    @property
    def among(self) -> tuple[int, ...]:
        """The cells of the denominator."""
        return self.good + self.bad


RATE_CELLS = {
    rate.name: rate
    for rate in (
        RateCells("tpr", good=(3,), bad=(1,)),
        RateCells("fpr", good=(2,), bad=(0,)),
        RateCells("selection_rate", good=(2, 3), bad=(0, 1)),
        RateCells("accuracy", good=(0, 3), bad=(1, 2)),
    )
}


def find_rate(name: str) -> RateCells:
    """Return the cells of a rate; ConfigError for an unknown one."""
    if name not in RATE_CELLS:
        raise ConfigError(f"There is no rate {name!r}.", nearest(name, RATE_CELLS))
    return RATE_CELLS[name]


def count_cells(
    decision: Array, y: Array, codes: Array, n_groups: int, weight: Array | None = None
) -> Array:
    """Return the share of the rows in each noisy group and cell, P(Ĝ=k, Ŷ=ŷ, Y=y), in O(M n).

    Parameters
    ----------
    decision : float array, shape (n,) or (M, n)
        Probability that the decision is 1; a row counts in both of its cells by expectation.
    y : integer array, shape (n,)
        Labels 0 and 1.
    codes : integer array, shape (n,) or (M, n)
        Noisy groups 0, …, m̂ − 1.
    n_groups : int
        m̂.
    weight : float array, shape (n,), optional
        Case weights ≥ 0.

    Returns
    -------
    float array, shape (m̂, 4) or (M, m̂, 4)
        Sums to 1 over the last two axes.
    """
    xp = array_namespace(decision)
    lead = decision.shape[:-1]
    n = int(decision.shape[-1])
    device = array_api_compat.device(decision)
    share = xp.ones((n,), dtype=decision.dtype, device=device) if weight is None else weight
    share = share / xp.sum(share)
    index = codes * 2 + xp.astype(y, codes.dtype)
    flat = xp.reshape(decision, (-1, n))
    models = int(flat.shape[0])
    shift = xp.arange(models, dtype=codes.dtype, device=device) * (2 * n_groups)
    index = xp.reshape(xp.broadcast_to(index, (models, n)) + shift[:, None], (-1,))
    halves = xp.stack(
        [xp.reshape(share * (1.0 - flat), (-1,)), xp.reshape(share * flat, (-1,))], axis=1
    )
    sums = segment_sum(halves, index, models * n_groups * 2)
    # (model, group, label, decision) → (…, group, decision, label)
    table = xp.permute_dims(xp.reshape(sums, (models, n_groups, 2, 2)), (0, 1, 3, 2))
    return xp.reshape(table, (*lead, n_groups, N_CELLS))


def sum_cells(cells: Array, chosen: tuple[int, ...]) -> Array:
    """Return the sum over some cells, shape (...) from (..., 4)."""
    total = cells[..., chosen[0]]
    for cell in chosen[1:]:
        total = total + cells[..., cell]
    return total


@dataclass(frozen=True)
class Rate:
    """A rate whose bad share is bounded.

    ``sign`` is s for the labels 0 and 1: +1 where the decision 1 is bad, −1 where 0 is, 0 outside
    of the event. ``cells`` names the same rate in ``RATE_CELLS``. With ``floor`` its smallest value
    over groups is bounded, else its largest.
    """

    name: str
    sign: tuple[int, int]
    cells: str
    floor: bool


RATES = {
    rate.name: rate
    for rate in (
        Rate("tpr", (0, -1), "tpr", floor=True),
        Rate("fpr", (1, 0), "fpr", floor=False),
        Rate("selection_floor", (-1, -1), "selection_rate", floor=True),
        Rate("selection_cap", (1, 1), "selection_rate", floor=False),
        Rate("accuracy", (1, -1), "accuracy", floor=True),
    )
}
CRITERIA = {
    "demographic_parity": ("selection_floor", "selection_cap"),
    "equal_opportunity": ("tpr",),
    "equalized_odds": ("tpr", "fpr"),
    "accuracy": ("accuracy",),
}


def find_rates(criterion: str) -> tuple[Rate, ...]:
    """Return the rates that a criterion bounds; ConfigError for an unknown criterion."""
    if criterion not in CRITERIA:
        raise ConfigError(f"There is no criterion {criterion!r}.", nearest(criterion, CRITERIA))
    return tuple(RATES[name] for name in CRITERIA[criterion])
