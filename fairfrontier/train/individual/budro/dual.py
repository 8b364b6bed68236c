"""The one-dimensional dual of a transport problem with a budget.

    M(η) = ηε + Σ_j m_j max_i (R_ij − η C_ij),   η ≥ 0                         (B.14)

is convex and piecewise affine: maximising over i at one η gives one of its affine pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True, eq=False)
class Piece:
    """An affine piece of M, found at ``eta``, and the map Π that gives it.

    ``gain`` and ``cost`` are ⟨R, Π⟩ and ⟨C, Π⟩, ``budget`` is ε, and ``target`` is the map in the
    caller's own form. M(η) may exceed ``dual`` by ``slack``, since points that tie count as equal.
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
        """Upper bound of M(η)."""
        return self.dual + self.slack


@dataclass(frozen=True, eq=False)
class Minimum:
    """The minimum of M, as one or two maps with their shares of all mass.

    ``eta`` is the last η, ``dual`` the lowest M found and ``dual`` + ``slack`` an upper bound of
    the optimum; ``iterations`` counts pieces.
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
        return sum(share * piece.gain for share, piece in self.maps)

    @property
    def cost(self) -> float:
        """⟨C, Π⟩ of the mixture."""
        return sum(share * piece.cost for share, piece in self.maps)


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
    """Minimise M by its affine pieces, to a computed duality gap.

    The next η is where the pieces known on both sides of the minimum cross, and the maps of those
    two, mixed so that the cost is ε exactly, have that crossing's value as their objective: the
    gap is the distance from it to the lowest M(η) found.

    ``explore`` takes η and the last map, and returns the piece at η. ``zero`` is the piece at η = 0
    with the cheapest of the best maps, optimal if it is within the budget; ``stay`` that of the map
    that moves nothing. The search begins at ``start``, (η, map), or at the slope of the line from
    ``zero`` to ``stay``, and stops when the gap is at most ``tolerance`` times M − ``floor``, or
    without convergence after ``max_iterations`` pieces.
    """
    budget = zero.budget
    if budget == 0:
        return Minimum(((1.0, stay),), float("inf"), stay.gain, 0, converged=True)
    if zero.slope >= 0:
        return Minimum(((1.0, zero),), 0.0, zero.dual, 0, True, zero.slack)
    if start is not None:
        (eta, target), least, most = start, 1.02, 4.0
        # At the end of a search two maps usually tie; beside it, rounding does not decide.
        eta *= 1 + 1e-6
    else:
        eta, target = (zero.gain - stay.gain) / zero.cost, stay.target
        least = most = 4.0
    low: Piece = zero
    high: Piece | None = None
    # Until there is an upper end, only moving nothing is sure to be within the budget.
    maps: tuple[tuple[float, Piece], ...] = ((1.0, stay),)
    best, dual, converged, iteration = zero, zero.dual, False, 0
    while iteration < max_iterations and not converged:
        iteration += 1
        piece = explore(eta, target)
        target = piece.target
        if piece.dual < dual:
            best, dual = piece, piece.dual
        if piece.slope < 0:
            low = piece
        else:
            high = piece
        # On real rows costs fall about as 1/η⁴, so that this step likely brackets the minimum.
        ratio = max(piece.cost / budget, 1e-300)
        step = min(max(ratio ** (0.25 if piece is low else -0.25), least), most)
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
    return Minimum(maps, piece.eta, dual, iteration, converged, best.slack)


def descend_dual(
    pay: Callable[[np.ndarray, float], float],
    sample: np.ndarray,
    budget: float,
    *,
    eta: float,
    momentum: float,
    learning_rate: float,
) -> float:
    """Approach the minimum of M by stochastic subgradient steps; return the last η.

    v ← μ v + (ε − mean_b C_b),  η ← max(0, η − α v), over batches b of columns: the rows of
    ``sample``, (steps, batch_size) row numbers. ``pay`` takes a batch and η and returns the mean
    cost.
    """
    velocity = 0.0
    for rows in sample:
        velocity = momentum * velocity + budget - pay(rows, eta)
        eta = max(0.0, eta - learning_rate * velocity)
    return eta


def _speed_up(step: float) -> float:
    """Return the factor of the next step while no end is in sight; floats end at 1e308."""
    return min(step * step, 1e75)


def _crossing(low: Piece, high: Piece) -> float:
    """Return the η where two pieces cross, or the midpoint where rounding prevents it."""
    eta = (low.gain - high.gain) / (high.slope - low.slope)
    return eta if low.eta < eta < high.eta else (low.eta + high.eta) / 2
