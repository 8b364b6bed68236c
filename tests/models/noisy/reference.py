"""The constraints row by row, as they are written down, and projections of rows: references."""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np
from array_api_compat import device

from fairfrontier.models.noisy.rate import project_simplex, sum_cells
from fairfrontier.runtime.arrays import array_namespace
from papers.rival.ideal import share_groups


def row_sign(rate, label, like):
    """Return s of every row, in the dtype of ``like``, shape (n,)."""
    xp = array_namespace(like)
    return xp.astype(
        xp.where(label == 1, rate.sign[1] + 0 * label, rate.sign[0] + 0 * label), like.dtype
    )


def assigned_mass(assignment, score, label, codes, weight, prior):
    """Return the row masses of soft assignments: a_ji = w(j | ŷ_i, y_i, k_i) ω_i / P(G=j)."""
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
    """Values of a rate's constraint and where they go with the scores."""

    value: object
    gradient: object
    pull: object


def constrain(rate, score, label, mass, *, weight, budget, slack=None, form="ratio", nominal=None):
    """Evaluate a rate's constraint for every model and group."""
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


def bound_hinge(score, label, weight):
    """Return the mean hinge loss (1 − ỹφ)₊ of each model, (M,), and its gradient in φ, (M, n)."""
    xp = array_namespace(score)
    sign = xp.astype(2 * label - 1, score.dtype)
    margin = 1.0 - sign * score
    share = weight / xp.sum(weight)
    active = xp.astype(margin > 0, score.dtype)
    zero = xp.zeros((), dtype=score.dtype, device=device(score))
    return xp.sum(share * xp.maximum(margin, zero), axis=-1), -sign * share * active


def centre_rows(codes, n_groups, weight=None):
    """Return p̂: the distribution on the rows of each noisy group, shape (..., m̂, n), float64."""
    xp = array_namespace(codes)
    groups = xp.arange(n_groups, dtype=codes.dtype, device=array_api_compat.device(codes))
    mass = xp.astype(codes[..., None, :] == groups[:, None], xp.float64)
    if weight is not None:
        mass = mass * weight
    total = xp.sum(mass, axis=-1, keepdims=True)
    return mass / total


def evaluate_assignment(score, weight, cells, posterior):
    """Return g_j(θ, w) = E[h w(j | Ŷ, Y, Ĝ)] / P(G=j) in the h-form, shape (..., m)."""
    xp = array_namespace(cells)
    prior = share_groups(cells, posterior)
    mass = xp.sum(weight * cells[..., None, :, :], axis=-2)
    return xp.sum(mass * score[..., None, :], axis=-1) / prior


def evaluate_rates(weight, cells, rate):
    """Return every true group's rate under w, shape (..., m); NaN where nothing is assigned."""
    xp = array_namespace(cells)
    mass = xp.sum(weight * cells[..., None, :, :], axis=-2)
    among = sum_cells(mass, rate.among)
    return xp.where(among > 0, sum_cells(mass, rate.good) / xp.where(among > 0, among, 1.0), xp.nan)


def differentiate_assignment(score, multiplier, cells, posterior):
    """Return ∂/∂w of Σ_j λ_j g_j(θ, w) in the h-form, λ_j h_c v_kc / P(G=j)."""
    prior = share_groups(cells, posterior)
    slope = (multiplier / prior)[..., None, None]
    return slope * (score[..., None, :] * cells)[..., None, :, :]


def project_l1_ball(point, centre, radius):
    """Return the nearest p with ‖p − c‖₁ ≤ r, along the last axis."""
    offset = point - centre
    size, cap = np.abs(offset), np.broadcast_to(radius, offset.shape[:-1])
    inside = size.sum(axis=-1) <= cap
    return centre + np.sign(offset) * np.where(inside[..., None], size, project_simplex(size, cap))


def project_l1_simplex(point, centre, radius):
    """Return the nearest p ≥ 0 with Σ p = 1 and ‖p − c‖₁ ≤ r, along the last axis.

    Gains and losses both sum to r/2 where the ball binds; the losses' level is found by halving.
    """
    point, centre = np.broadcast_arrays(point, centre)
    half = np.broadcast_to(radius, point.shape[:-1]) / 2
    offset = point - centre
    gain = project_simplex(offset, half)
    low, high = offset.min(axis=-1), point.max(axis=-1)
    for _ in range(200):
        middle = (low + high) / 2
        filled = np.clip(middle[..., None] - offset, 0, centre).sum(axis=-1)
        low, high = np.where(filled < half, middle, low), np.where(filled < half, high, middle)
    loss = np.clip(high[..., None] - offset, 0, centre)
    free = ((offset - gain).max(axis=-1) < high) | (half >= 1)
    held = np.maximum(centre + gain - loss, 0)
    return np.where(free[..., None], project_simplex(point), held)


def ascend_in_ball(point, direction, centre, level, variant="paper"):
    """Return the projection of p̃ + d: within the simplex, or by the authors cut at 0."""
    if variant == "paper":
        return project_l1_simplex(point + direction, centre, 2 * level)
    return np.maximum(project_l1_ball(point + direction, centre, 2 * level), 0.0)
