"""The one-dimensional dual of a transport problem with a budget.

    M(η) = ηε + Σ_j m_j max_i (R_ij − η C_ij),   η ≥ 0                         (B.14)

is convex and piecewise affine. Whoever can maximise over i at a given η gets a piece of M from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True, eq=False)
class Piece:
    """All columns moved at one η: an affine piece of M, and one map of a mixture.

    Attributes
    ----------
    eta : float
        Where it was found.
    gain, cost : float
        ⟨R, Π⟩ and ⟨C, Π⟩ of its map Π.
    budget : float
        ε.
    target : array
        Its map, as the caller writes maps.
    slack : float
        By how much M may be above ``dual``, where points that tie count as equally good.
    """

    eta: float
    gain: float
    cost: float
    budget: float
    target: Array
    slack: float = 0.0

    @property
    def slope(self) -> float:
        """Subgradient ε − ⟨C, Π⟩ of M at η."""
        return self.budget - self.cost

    @property
    def dual(self) -> float:
        """M(η), up to ``slack``."""
        return self.gain + self.eta * self.slope

    @property
    def bound(self) -> float:
        """M(η) at most."""
        return self.dual + self.slack


@dataclass(frozen=True, eq=False)
class Minimum:
    """The minimum of M, with the maps whose mixture attains it.

    Attributes
    ----------
    maps : tuple of (share, Piece)
        One or two maps and the share of all mass that follows each.
    eta, dual : float
        Last η, and the lowest M seen.
    iterations : int
        Pieces asked for.
    converged : bool
        Whether the gap met the tolerance.
    slack : float
        Of the piece of the lowest M: with it ``dual`` is an upper bound of the optimum.
    """

    maps: tuple[tuple[float, Piece], ...]
    eta: float
    dual: float
    iterations: int
    converged: bool
    slack: float = 0.0

    @property
    def objective(self) -> float:
        """⟨R, Π⟩ of the mixture."""
        return sum(share * each.gain for share, each in self.maps)

    @property
    def cost(self) -> float:
        """⟨C, Π⟩ of the mixture."""
        return sum(share * each.cost for share, each in self.maps)


def minimise_dual(
    explore: Callable[[float, Array], Piece],
    zero: Piece,
    stay: Piece,
    *,
    start: tuple[float, Array] | None = None,
    tolerance: float = 1e-3,
    floor: float = 0.0,
    max_iterations: int = 100,
) -> Minimum:
    """Minimise M by its affine pieces, to a duality gap that is computed.

    The next η is where the pieces known on both sides of the minimum cross, and the maps of those
    two, mixed so that the cost is ε exactly, have that crossing's value as their objective: the
    gap is the distance from it to the lowest M(η) seen.

    Parameters
    ----------
    explore : callable
        (η, map held so far) -> Piece at η, no worse than the map held.
    zero : Piece
        At η = 0, with the cheapest of the best maps: where it is within the budget it is optimal.
    stay : Piece
        Of the map that moves nothing, at η = 0; its cost is 0.
    start : (η, map), optional
        Where to begin; else the slope of the line from ``zero`` down to ``stay``.
    tolerance : float
        Stop when the gap is at most this share of M − ``floor``.
    floor : float
        What M is counted from: 0, or the value of ``stay`` for a share of what moving gains.
    max_iterations : int
        Pieces at most.

    Returns
    -------
    Minimum
        ``converged`` is False where the tolerance was not met after ``max_iterations``.
    """
    budget = zero.budget
    if budget == 0:
        return Minimum(((1.0, stay),), float("inf"), stay.gain, 0, converged=True)
    if zero.slope >= 0:
        return Minimum(((1.0, zero),), 0.0, zero.dual, 0, True, zero.slack)
    if start is not None:
        (eta, held), least, most = start, 1.02, 4.0
        # Where a search ended two maps tie as a rule: beside it, rounding has no say in the next.
        eta *= 1 + 1e-6
    else:
        eta, held = (zero.gain - stay.gain) / zero.cost, stay.target
        least = most = 4.0
    low: Piece = zero
    high: Piece | None = None
    # Without an upper end yet, staying put is the map that is surely within the budget.
    maps: tuple[tuple[float, Piece], ...] = ((1.0, stay),)
    best, dual, converged, iteration = zero, zero.dual, False, 0
    while iteration < max_iterations and not converged:
        iteration += 1
        seen = explore(eta, held)
        held = seen.target
        if seen.dual < dual:
            best, dual = seen, seen.dual
        if seen.slope < 0:
            low = seen
        else:
            high = seen
        # Costs fall about as 1/η⁴ on real rows: the minimum is then likely in between.
        ratio = max(seen.cost / budget, 1e-300)
        step = min(max(ratio ** (0.25 if seen is low else -0.25), least), most)
        if high is None:
            eta, least, most = eta * step, _speed_up(least), _speed_up(most)
            continue
        share = high.slope / (high.slope - low.slope)
        maps = ((share, low), (1 - share, high))
        gap = dual - share * low.gain - (1 - share) * high.gain
        converged = gap <= max(tolerance * abs(dual - floor), 1e-15 * abs(dual))
        if low is zero and least < 100:
            eta, least, most = eta / step, _speed_up(least), _speed_up(most)
        else:
            eta = _crossing(low, high)
    return Minimum(maps, seen.eta, dual, iteration, converged, best.slack)


def descend_dual(
    pay: Callable[[np.ndarray, float], float],
    sample: np.ndarray,
    budget: float,
    *,
    eta: float,
    momentum: float,
    learning_rate: float,
) -> float:
    """Approach the minimum of M by stochastic subgradient steps.

    v ← μ v + (ε − mean_b C_b),  η ← max(0, η − α v), over batches b of columns.

    Parameters
    ----------
    pay : callable
        (row numbers of a batch, η) -> mean cost of moving those columns at η.
    sample : int64 ndarray of shape (steps, batch_size)
        Row numbers of the columns that each step draws.
    budget : float
        ε.
    eta : float
        η before the first step.
    momentum, learning_rate : float
        μ and α.

    Returns
    -------
    float
        η after the last step.
    """
    velocity = 0.0
    for rows in sample:
        velocity = momentum * velocity + budget - pay(rows, eta)
        eta = max(0.0, eta - learning_rate * velocity)
    return eta


def _speed_up(step: float) -> float:
    """Return the factor of the next step where no end is in sight; floats end at 1e308."""
    return min(step * step, 1e75)


def _crossing(low: Piece, high: Piece) -> float:
    """Return the η where two pieces meet, or the middle where rounding forbids it."""
    eta = (low.gain - high.gain) / (high.slope - low.slope)
    return eta if low.eta < eta < high.eta else (low.eta + high.eta) / 2
