"""Rates of groups as constraints: exact with indicators, or bounded by hinges for training.

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
from typing import Any, Literal

from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.runtime.errors import ConfigError, nearest

Array = Any
Form = Literal["ratio", "linear"]


@dataclass(frozen=True)
class Rate:
    """A rate whose bad share is bounded.

    Attributes
    ----------
    name : str
    sign : tuple of int
        s for the labels 0 and 1: +1 where the decision 1 is bad, −1 where 0 is, 0 outside.
    cells : str
        The same rate in ``cell.RATE_CELLS``.
    floor : bool
        Whether its smallest value over groups is bounded; else its largest.
    """

    name: str
    sign: tuple[int, int]
    cells: str
    floor: bool


RATES = {
    each.name: each
    for each in (
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
    """Return the rates that a criterion bounds.

    Raises
    ------
    ConfigError
        When there is no such criterion.
    """
    if criterion not in CRITERIA:
        raise ConfigError(f"There is no criterion {criterion!r}.", nearest(criterion, CRITERIA))
    return tuple(RATES[name] for name in CRITERIA[criterion])


def row_sign(rate: Rate, label: Array, like: Array) -> Array:
    """Return s of every row, in the dtype of ``like``, shape (n,)."""
    xp = array_namespace(like)
    return xp.astype(
        xp.where(label == 1, rate.sign[1] + 0 * label, rate.sign[0] + 0 * label), like.dtype
    )


def assigned_mass(
    assignment: Array, score: Array, label: Array, codes: Array, weight: Array, prior: Array
) -> Array:
    """Return the row masses of soft assignments: a_ji = w(j | ŷ_i, y_i, k_i) ω_i / P(G=j).

    Parameters
    ----------
    assignment : float array, shape (M, m, m̂, 4)
        w(j | ŷ, y, k), the last axis 2ŷ + y.
    score : float array, shape (M, n)
        φ; ŷ = 1{φ ≥ 0}.
    label, codes : integer array, shape (n,)
        y and the noisy group k.
    weight : float array, shape (n,)
        ω; sums to 1.
    prior : float array, shape (m,)
        P(G=j).

    Returns
    -------
    float array, shape (M, m, n)
        Sums to 1 over the rows where w keeps the law of total probability.
    """
    xp = array_namespace(score)
    models, m, seen, cells = assignment.shape
    place = (codes * cells)[None, :] + 2 * xp.astype(score >= 0, codes.dtype) + label[None, :]
    flat = xp.reshape(assignment, (models, m, seen * cells))
    chosen = xp.take_along_axis(
        flat, xp.broadcast_to(place[:, None, :], (models, m, place.shape[1])), axis=2
    )
    return chosen * weight / prior[:, None]


@dataclass(frozen=True, eq=False)
class Constraint:
    """Values of a rate's constraint and where they go with the scores.

    Attributes
    ----------
    value : float array, shape (M, m)
        g_j, in units of the rate; satisfied where ≤ 0.
    gradient : float array, shape (M, m, n)
        A subgradient in φ with the masses held fixed; zeros for indicators.
    pull : float array, shape (M, m, n)
        ∂g_j / ∂a_j, the ascent direction of row masses.
    """

    value: Array
    gradient: Array
    pull: Array


def constrain(
    rate: Rate,
    score: Array,
    label: Array,
    mass: Array,
    *,
    weight: Array,
    budget: float,
    slack: float | None = None,
    form: Form = "ratio",
    nominal: Array | None = None,
) -> Constraint:
    """Evaluate a rate's constraint for every model and group.

    Parameters
    ----------
    rate : Rate
    score : float array, shape (M, n)
        φ.
    label : integer array, shape (n,)
        0 or 1.
    mass : float array, shape (M, m, n)
        a_j ≥ 0, such as ``ambiguity.centre_rows`` or ``assigned_mass`` give.
    weight : float array, shape (n,)
        ω of the mean over all rows.
    budget : float
        α.
    slack : float or None
        β of the hinge form; None evaluates indicators.
    form : {"ratio", "linear"}
        ``ratio`` divides by the group's mass in the event, as (11), (12), (14) and (15) do;
        ``linear`` is E[h] of lemmas 2 to 5, of the same sign: the ratio times the mass in the
        event over ``nominal``, a constant by which values stay in units of the rate.
    nominal : float array, shape (M, m), optional
        The group's mass in the event before any worst case; the mass itself when None.

    Returns
    -------
    Constraint

    Notes
    -----
    O(M m n) in time and memory: the reference for what training computes from sums over cells.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020, appendices B.3, C.2 and F.1.
    """
    xp = array_namespace(score)
    sign = row_sign(rate, label, score)
    event = xp.astype(sign != 0, score.dtype)
    overall = weight * event / xp.sum(weight * event)
    one = xp.ones_like(score)
    if slack is None:
        bad = xp.astype(xp.where(sign > 0, score >= 0, score < 0), score.dtype) * event
        good, slope_bad, slope_good = event - bad, 0 * one, 0 * one
        slack = 0.0
    else:
        margin = sign * score
        bad = xp.maximum(one + margin, 0 * one) * event
        good = xp.maximum(one - margin, 0 * one) * event
        slope_bad = sign * xp.astype(margin > -1, score.dtype)
        slope_good = -sign * xp.astype(margin < 1, score.dtype)
    rest = xp.sum(overall * good, axis=-1)[:, None] - 1.0 - budget - slack
    inside = xp.sum(mass * event, axis=-1)
    total = xp.sum(mass * bad[:, None, :], axis=-1)
    if form == "ratio":
        value = total / inside + rest
        scale, share = 1.0 / inside, xp.ones_like(inside)
        pull = event * (bad[:, None, :] - (total / inside)[:, :, None]) / inside[:, :, None]
    else:
        nominal = inside if nominal is None else nominal
        value = (total + inside * rest) / nominal
        scale, share = 1.0 / nominal, inside / nominal
        pull = event * (bad[:, None, :] + rest[:, :, None]) / nominal[:, :, None]
    gradient = (
        scale[:, :, None] * mass * slope_bad[:, None, :]
        + share[:, :, None] * (overall * slope_good)[:, None, :]
    )
    return Constraint(value, gradient, pull)


def bound_hinge(score: Array, label: Array, weight: Array) -> tuple[Array, Array]:
    """Return the mean hinge loss (1 − ỹφ)₊ of each model, (M,), and its gradient in φ, (M, n)."""
    xp = array_namespace(score)
    sign = xp.astype(2 * label - 1, score.dtype)
    margin = 1.0 - sign * score
    share = weight / xp.sum(weight)
    active = xp.astype(margin > 0, score.dtype)
    zero = xp.zeros((), dtype=score.dtype, device=device(score))
    return xp.sum(share * xp.maximum(margin, zero), axis=-1), -sign * share * active
