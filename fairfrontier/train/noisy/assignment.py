"""Soft assignments w(j | ŷ, y, k) of rows to true groups: the worst ones, and steps towards them.

With v_kc = P(Ĝ=k, cell c) and b_kj = P(G=j | Ĝ=k), the masses u_jkc = w(j | c, k) v_kc of an
assignment are a transport plan for every noisy group k: u ≥ 0, Σ_j u_jkc = v_kc and Σ_c u_jkc =
b_kj Σ_c v_kc. W(θ) is nothing else, and its extremes are found by filling cells in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.noisy.projection import project_leading_simplex
from fairfrontier.train.noisy.rate import N_CELLS, RateCells, sum_cells

Array = Any
Side = Literal["below", "above"]
Variant = Literal["paper", "authors"]


@dataclass(frozen=True, eq=False)
class Assignment:
    """An assignment of the rows of each noisy group and cell to true groups.

    Attributes
    ----------
    value : float array, shape (..., m) or (...)
        What it was found to maximise.
    weight : float array, shape (..., m, m̂, 4)
        w(j | c, k) ∈ [0, 1], cells c = 2ŷ + y. Where a cell has no row, P(G=j | Ĝ=k).
    """

    value: Array
    weight: Array


def score_constraint(cells: Array, rate: RateCells, budget: Array | float, side: Side) -> Array:
    """Return h of lemmas 2 to 5: what a row of each cell adds to a constraint.

    below:  h = ½ (1{among} (r − α) − 1{good}),  for  r − r_j − α ≤ 0
    above:  h = ½ (1{good} − 1{among} (r + α)),  for  r_j − r − α ≤ 0

    with r the rate of all rows. E[h | G=j] has the constraint's sign and is ½ P(among | G=j) times
    its value.

    Parameters
    ----------
    cells : float array, shape (..., m̂, 4)
        See ``count_cells``.
    rate : RateCells
        The rate r.
    budget : float or float array, shape (...)
        α ≥ 0.
    side : {"below", "above"}
        Whether a group may not fall below the rate of all, as for the true positive rate, or not
        rise above it, as for the false positive rate.

    Returns
    -------
    float array, shape (..., 4)

    Raises
    ------
    DataError
        When no row is in the rate's denominator.

    References
    ----------
    S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta, M. I. Jordan. Robust optimization for
    fairness with noisy protected groups. NeurIPS 2020, lemmas 2 to 5.
    """
    xp = array_namespace(cells)
    total = xp.sum(cells, axis=-2)
    among = sum_cells(total, rate.among)
    if bool(xp.any(among <= 0)):
        raise DataError(
            f"No row is in the denominator of the rate {rate.name}.",
            "Constrain another rate, or use more rows.",
        )
    overall = sum_cells(total, rate.good) / among
    zero = xp.zeros_like(overall)
    columns = []
    for cell in range(N_CELLS):
        good = float(cell in rate.good)
        if cell not in rate.among:
            columns.append(zero)
        elif side == "below":
            columns.append((overall - budget - good) / 2)
        else:
            columns.append((good - overall - budget) / 2)
    return xp.stack(columns, axis=-1)


def maximise_assignment(score: Array, cells: Array, posterior: Array) -> Assignment:
    """Solve max_{w ∈ W(θ)} E[h w(j | Ŷ, Y, Ĝ)] / P(G=j), for each true group j by itself.

    A fractional knapsack in each noisy group: the mass b_kj P(Ĝ=k) of group j takes the cells in
    the order of their h, largest first. What it leaves is enough for the other groups.

    Parameters
    ----------
    score : float array, shape (..., 4)
        h of each cell, see ``score_constraint``.
    cells : float array, shape (..., m̂, 4)
        P(Ĝ=k, Ŷ=ŷ, Y=y), see ``count_cells``.
    posterior : float array, shape (m̂, m) or (..., m̂, m)
        P(G=j | Ĝ=k), rows summing to 1.

    Returns
    -------
    Assignment
        ``value`` of shape (..., m). ``weight`` holds in its slice j the worst assignment for group
        j; the slices are maxima of their own and do not sum to 1 over j.

    Raises
    ------
    DataError
        When a true group has no probability in these rows.

    Notes
    -----
    O(M m m̂) whatever the number of rows.

    References
    ----------
    Wang et al., Robust optimization for fairness with noisy protected groups, NeurIPS 2020,
    equations 5 and 6. N. Kallus, X. Mao, A. Zhou. Assessing algorithmic fairness with unobserved
    protected class using data combination. Management Science 68, 2022, proposition 9.
    """
    xp = array_namespace(cells)
    prior = share_groups(cells, posterior)
    mass = _fill_best(xp.broadcast_to(score[..., None, :], cells.shape), cells, posterior)
    gain = xp.sum(xp.sum(mass, axis=-2) * score[..., None, :], axis=-1)
    return Assignment(gain / prior, _as_weight(mass, cells, posterior))


def maximise_by_group(gain: Array, cells: Array, posterior: Array) -> Array:
    """Return for each true group the assignment that maximises Σ_kc gain_kc w(j | c, k).

    ``maximise_assignment`` for gains that differ by noisy group, as sums of hinges do: in each
    noisy group the mass of j takes the cells in the order of their gain by mass.

    Parameters
    ----------
    gain : float64 array, shape (M, m̂, 4)
        What the whole cell would add.
    cells : float64 array, shape (M, m̂, 4)
        P(Ĝ=k, cell).
    posterior : float64 array, shape (M, m̂, m)

    Returns
    -------
    float64 array, shape (M, m, m̂, 4)
        Each slice j is a maximum of its own.
    """
    xp = array_namespace(gain)
    each = gain / xp.where(cells > 0, cells, 1.0)
    return _as_weight(_fill_best(each, cells, posterior), cells, posterior)


def bound_rates(
    cells: Array, posterior: Array, rate: RateCells, limits: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Return the smallest and largest rate of every true group over W(θ).

    min and max over w of  Σ_k Σ_{c good} w(j | c, k) v_kc / Σ_k Σ_{c among} w(j | c, k) v_kc

    The smallest needs as many bad and as few good rows as can be, and one assignment gives both:
    in each noisy group the mass of j fills the bad cells, then those outside the denominator, then
    the good ones. The largest starts with the good ones.

    Parameters
    ----------
    cells : float array, shape (..., m̂, 4)
        See ``count_cells``; randomised decisions count by expectation, and then the rows of true
        group j may be any that the coins send to a cell.
    posterior : float array, shape (m̂, m) or (..., m̂, m)
        P(G=j | Ĝ=k).
    rate : RateCells
        The rate.
    limits : pair of float arrays, shape of ``posterior``, optional
        P(G=j | Ĝ=k) is only known to lie between these: bounds over all of them. The cost is the
        same, for each noisy group has a worst value in between that does not depend on the others.

    Returns
    -------
    low, high : float array, shape (..., m)
        NaN where group j cannot have a row of the denominator.

    Notes
    -----
    O(M m m̂). For two true groups the smallest rate of one and the largest of the other are reached
    together: the one prefers good cells and the other bad ones; if both need more they share the
    cells outside, which hold the rest, for together they are at most the whole noisy group. So the
    difference r_i − r_j ranges over exactly [low_i − high_j, high_i − low_j].

    References
    ----------
    Kallus, Mao and Zhou, Assessing algorithmic fairness with unobserved protected class using data
    combination, Management Science 68, 2022, proposition 8. Wang et al., Robust optimization
    for fairness with noisy protected groups, NeurIPS 2020, equations 11 to 15.
    """
    xp = array_namespace(cells)
    smallest, largest = (posterior, posterior) if limits is None else limits
    size = xp.sum(cells, axis=-1)[..., None]
    low_mass, high_mass = smallest * size, largest * size
    good = sum_cells(cells, rate.good)[..., None]
    bad = sum_cells(cells, rate.bad)[..., None]
    least = _fill(good, bad, size, low_mass, high_mass)
    most = _fill(bad, good, size, low_mass, high_mass)
    some_good = xp.sum(xp.minimum(good, high_mass), axis=-2) > 0
    some_bad = xp.sum(xp.minimum(bad, high_mass), axis=-2) > 0
    # No denominator at the extreme means that only one kind of row can be had at all.
    return _divide(*least, some_good), 1.0 - _divide(*most, some_bad)


def project_assignment(
    weight: Array, cells: Array, posterior: Array, *, rounds: int = 20, variant: Variant = "paper"
) -> Array:
    """Project onto W(θ) by alternating projections.

    argmin ‖w − x‖² s.t. Σ_c w(j | c, k) P(c | k) = P(G=j | Ĝ=k), Σ_j w(j | c, k) = 1, w ≥ 0

    Parameters
    ----------
    weight : float array, shape (..., m, m̂, 4)
        x.
    cells : float array, shape (..., m̂, 4)
        See ``count_cells``.
    posterior : float array, shape (m̂, m) or (..., m̂, m)
    rounds : int
        Rounds of projections.
    variant : {"paper", "authors"}
        ``paper``: Dykstra's algorithm between the total probabilities and the simplices, whose
        limit is the nearest point of W(θ). ``authors``: the sets w ≥ 0 and Σ_j w = 1 apart, and
        without Dykstra's correction, for their code cuts at 0 what it has not rolled back: a point
        near W(θ), not the nearest.

    Returns
    -------
    float array, shape (..., m, m̂, 4)
        Non-negative. After finitely many rounds the total probabilities hold approximately; the
        sums over j are exact in the variant ``paper`` only.

    Notes
    -----
    O(rounds × M m m̂). Dykstra's algorithm converges linearly here, at a rate that depends on the
    cells. For exact maxima there is no need of it: see ``maximise_assignment``.

    References
    ----------
    J. P. Boyle, R. L. Dykstra. A method for finding projections onto the intersection of convex
    sets in Hilbert spaces. Lecture Notes in Statistics 37, 1986.
    """
    xp = array_namespace(weight)
    if variant not in ("paper", "authors"):
        raise ConfigError(
            f"The variant of the projection is {variant!r}.", "Choose 'paper' or 'authors'."
        )
    groups, seen = int(weight.shape[-3]), int(weight.shape[-2])
    lead = weight.shape[:-3]
    # True groups and cells first, so that a pass over all models and noisy groups is one operation.
    point = xp.permute_dims(xp.reshape(weight, (-1, groups, seen, N_CELLS)), (1, 3, 0, 2)) + 0.0
    held = xp.reshape(xp.broadcast_to(cells, (*lead, seen, N_CELLS)), (-1, seen, N_CELLS))
    wanted = xp.reshape(xp.broadcast_to(posterior, (*lead, seen, groups)), (-1, seen, groups))
    target = xp.permute_dims(wanted, (2, 0, 1)) + 0.0
    size = xp.sum(held, axis=-1, keepdims=True)
    share = xp.permute_dims(held / xp.where(size > 0, size, 1.0), (2, 0, 1)) + 0.0
    square = _add([share[cell, ...] * share[cell, ...] for cell in range(N_CELLS)])
    # A noisy group without rows binds nothing: its shares are 0.
    pull = xp.where(square > 0, share / xp.where(square > 0, square, 1.0), 0.0)
    correction = xp.zeros_like(point)
    for _ in range(rounds):
        product = point * share
        missing = target - _add([product[:, cell, ...] for cell in range(N_CELLS)])
        point += missing[:, None, ...] * pull
        if variant == "paper":
            point += correction
            correction = point
            point = project_leading_simplex(point)
            correction = correction - point
        else:
            point -= (_add([point[j, ...] for j in range(groups)]) - 1.0) / groups
            point = xp.maximum(point, 0.0)
    back = xp.permute_dims(point, (2, 0, 3, 1)) + 0.0
    return xp.reshape(back, (*lead, groups, seen, N_CELLS))


def _add(parts: list[Array]) -> Array:
    """Return the sum of a few arrays."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def share_groups(cells: Array, posterior: Array) -> Array:
    """Return P(G=j) = Σ_k P(G=j | Ĝ=k) P(Ĝ=k) among the rows at hand, shape (..., m).

    Raises
    ------
    DataError
        When a true group has no probability.
    """
    xp = array_namespace(cells)
    prior = xp.sum(posterior * xp.sum(cells, axis=-1)[..., None], axis=-2)
    if bool(xp.any(prior <= 0)):
        lead = tuple(range(prior.ndim - 1))
        absent = xp.any(prior <= 0, axis=lead) if lead else prior <= 0
        group = int(xp.argmax(xp.astype(absent, xp.int64)))
        raise DataError(
            f"The true group {group} has no probability in these rows under the noise model.",
            "Leave the group out, or look at the noise model.",
        )
    return prior


def _group_masses(cells: Array, posterior: Array) -> Array:
    """Return P(G=j, Ĝ=k), groups first as in w, shape (..., m, m̂)."""
    xp = array_namespace(cells)
    return xp.matrix_transpose(posterior * xp.sum(cells, axis=-1)[..., None])


def _fill_best(gain: Array, cells: Array, posterior: Array) -> Array:
    """Return the masses (..., m, m̂, 4) that take the cells in the order of their gain by mass."""
    xp = array_namespace(cells)
    order = xp.argsort(gain, axis=-1, descending=True)
    held = xp.take_along_axis(cells, order, axis=-1)[..., None, :, :]
    before = xp.cumulative_sum(held, axis=-1) - held
    budget = _group_masses(cells, posterior)[..., None]
    taken = xp.minimum(xp.maximum(budget - before, 0.0), held)
    back = xp.broadcast_to(xp.argsort(order, axis=-1)[..., None, :, :], taken.shape)
    return xp.take_along_axis(taken, back, axis=-1)


def _as_weight(mass: Array, cells: Array, posterior: Array) -> Array:
    """Return w = u / v, and P(G=j | Ĝ=k) where a cell has no row."""
    xp = array_namespace(cells)
    held = cells[..., None, :, :]
    plain = xp.matrix_transpose(posterior)[..., None]
    ratio = xp.clip(mass / xp.where(held > 0, held, 1.0), 0.0, 1.0)
    return xp.where(held > 0, ratio, plain)


def _fill(
    last: Array, first: Array, size: Array, low_mass: Array, high_mass: Array
) -> tuple[Array, Array]:
    """Fill the first cells, then the rest, then the last ones; return the masses in last and among.

    The mass may lie between two limits: the best amount fills the first cells and stops there.
    """
    xp = array_namespace(last)
    mass = xp.maximum(xp.minimum(first, high_mass), low_mass)
    in_first = xp.sum(xp.minimum(mass, first), axis=-2)
    in_last = xp.sum(xp.maximum(mass - (size - last), 0.0), axis=-2)
    return in_last, in_first + in_last


def _divide(above: Array, below: Array, some: Array) -> Array:
    """Return above / below; where both are 0, 1 if ``some`` row counts above, else NaN."""
    xp = array_namespace(above)
    otherwise = xp.where(some, xp.ones_like(above), xp.nan)
    return xp.where(below > 0, above / xp.where(below > 0, below, 1.0), otherwise)
