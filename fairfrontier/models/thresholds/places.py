"""Scarce places: which m rows of a batch get one, within floors and ceilings by group."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import Bounds, LinearConstraint, milp

from fairfrontier.models.group import frame_features, number_cells
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, InputError, nearest
from fairfrontier.runtime.seeds import derive_integer, uniforms

# Group, as race=Black -> a share of the places, or a whole number of them.
Amounts = Mapping[str, float]
# The rows of every cell, best first, and the least and most places of every group.
Best = list[np.ndarray]
Limits = tuple[np.ndarray, np.ndarray]
# Tangents of a cell with which a programme starts, and the gap, in ranges of scores, of its end.
GRID, TOLERANCE = 32, 1e-6


@dataclass(frozen=True, eq=False)
class Places:
    """Who gets a place, and who waits.

    Attributes
    ----------
    decision : ndarray of int64, shape (n_samples,)
        1 for a place, else 0.
    waiting : ndarray of int64, shape (n_samples,)
        The position on the waiting list, from 1; 0 for a place.
    groups : DataFrame
        By named group: ``rows``, ``places``, and ``floor`` and ``ceiling`` as numbers of places.
    total, bound : float
        The sum of the scores of those with a place, and what no choice within the bounds exceeds.
    """

    decision: np.ndarray
    waiting: np.ndarray
    groups: pd.DataFrame
    total: float
    bound: float


def fill_places(
    scores: Any,
    *,
    places: int,
    sensitive_features: Any = None,
    floor: Amounts | None = None,
    ceiling: Amounts | None = None,
    ids: Any = None,
    random_state: int = 0,
) -> Places:
    """Give m places to the rows of a batch with the highest scores, within bounds by group.

        max Σ_i s_i h_i   subject to   Σ_i h_i = m,   f_g ≤ Σ_{i in g} h_i ≤ c_g,   h_i in {0, 1}

    Parameters
    ----------
    scores : array-like of float, shape (n_samples,)
        Higher ones first; finite.
    places : int
        m, from 1 to n_samples.
    sensitive_features : optional
        Frame, series, mapping or array, with a column for each attribute. A row without a value is
        of no group. Columns without a name are ``sensitive_feature_0`` and so on.
    floor, ceiling : mapping of str to float or int, optional
        ATTRIBUTE=LEVEL -> the least or most places of the group: a share of m, a float from 0 to 1,
        or a number, an int. Shares of floors are rounded up, those of ceilings down.
    ids : array-like of int, shape (n_samples,), optional
        Of the rows, each another; their number by default.
    random_state : int
        Seed of the draws by which rows of equal scores are ordered.

    Returns
    -------
    Places

    Raises
    ------
    ConfigError
        For a number of places that is none of the batch, an amount or group that is none, and
        bounds that contradict each other: it names these, and the smallest relaxation.
    InputError
        For scores that are not finite, or ids that are repeated.

    Notes
    -----
    The answer depends on (score, group, id) of the rows, and not on their order. Rows of equal
    scores are ordered by a draw of (``random_state``, id), whatever their group, as far as the
    bounds permit: exchanging one that waits for one with a place would break a bound, lower the
    total, or leave it equal against the draw.

    Where the bounded groups are disjoint, as those of one attribute, the rows are a matroid and
    the best within floors, then the best below ceilings are optimal: O(n log n). Of crossed groups
    a programme in the numbers of places of the crossed cells is solved by HiGHS, whose gains are
    concave since the best of a cell come first; ``bound`` - ``total`` is at most 1e-6 ranges of the
    scores. Memory is O(n) and a number for every bounded group of a row.

    The waiting list is the order in which further places would go to the others by score, with the
    numbers of places in floors and ceilings as they are; those whose group is full come last. Where
    groups are disjoint these are the optimal choices for m + 1, m + 2, … places. Where somebody
    gives a place back, decide again without that row: nobody else then loses theirs.
    """
    score = np.asarray(to_numpy(scores), dtype=np.float64)
    if score.ndim != 1 or not np.isfinite(score).all():
        raise InputError("The scores are no column of finite numbers.", "Give one per row.")
    n, whole = len(score), isinstance(places, numbers.Integral)
    if not whole or isinstance(places, bool) or not 1 <= places <= n:
        raise ConfigError(
            f"There are {places} places, and {n:,} rows to give them to.",
            f"Give a whole number from 1 to {n}." if n else "Give rows.",
        )
    named = np.arange(n) if ids is None else np.asarray(to_numpy(ids))
    if named.shape != (n,) or named.dtype.kind not in "iu" or len(np.unique(named)) < n:
        raise InputError(
            f"The ids of {n:,} rows are not so many different whole numbers: one is repeated, say.",
            "Give every row an id of its own, and nobody two rows.",
        )
    groups, member = _find_groups(sensitive_features, n, floor or {}, ceiling or {}, places)
    draw = uniforms(derive_integer("places", random_state), named)
    order = np.lexsort((named, -draw, -score))
    # A column of zeros makes one cell of all rows where no group is bounded.
    cells, code = number_cells(np.column_stack([np.zeros(n, dtype=np.int64), member]))
    cells = cells[:, 1:]
    # The place of a row among those of its cell, best first.
    rank, by_cell = np.empty(n, dtype=np.int64), order[np.argsort(code[order], kind="stable")]
    size = np.bincount(code, minlength=len(cells))
    start = np.cumsum(size) - size
    rank[by_cell] = np.arange(n) - start[code[by_cell]]
    limits = groups["floor"].to_numpy(), groups["ceiling"].to_numpy()
    _check_feasible(cells, size, groups, places)
    bound = -math.inf
    if (cells.sum(axis=1) > 1).any():
        best = [by_cell[a : a + k] for a, k in zip(start, size, strict=True)]
        count, bound = _solve(cells, best, score, limits, places)
        taken = rank < _exchange(cells, best, np.argsort(order), limits, count)[code]
    else:
        # Groups have no row in common: the best within floors, and then the best below ceilings.
        taken = rank < (cells @ limits[0])[code]
    rest, open_places = order[~taken[order]], places - int(taken.sum())
    line = rest[_line_up(member[rest], limits[1] - member[taken].sum(axis=0))]
    taken[line[:open_places]] = True
    waiting = np.zeros(n, dtype=np.int64)
    waiting[line[open_places:]] = np.arange(1, n - places + 1)
    total = math.fsum(score[taken])
    groups.insert(1, "places", member[taken].sum(axis=0))
    return Places(taken.astype(np.int64), waiting, groups, total, max(total, bound))


def split_group(key: str, names: Any) -> tuple[str, str]:
    """Return attribute and level of ATTRIBUTE=LEVEL; ConfigError for another attribute."""
    for name in sorted(map(str, names), key=len, reverse=True):
        if key.startswith(f"{name}="):
            return name, key.removeprefix(f"{name}=")
    raise ConfigError(
        f"{key!r} names no group of {', '.join(map(str, names)) or 'sensitive features'}.",
        "Write ATTRIBUTE=LEVEL, as race=Black, of an attribute of the rows.",
    )


def find_bounded(
    names: Sequence[str], places: int | None, floor: Amounts | None, ceiling: Amounts | None
) -> tuple[str, ...]:
    """Return those of some attributes that have bounds; ConfigError for bounds of no places."""
    keys = sorted({*(floor or {}), *(ceiling or {})})
    if keys and places is None:
        raise ConfigError(
            f"There is a floor or ceiling for {keys[0]}, and no number of places.",
            "Say how many places there are: places=500 (--places 500).",
        )
    return tuple(dict.fromkeys(split_group(key, names)[0] for key in keys))


def _find_groups(
    features: Any, n: int, floor: Amounts, ceiling: Amounts, places: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the bounded groups, and which rows are of them, bool, (n_samples, n_groups)."""
    frame = pd.DataFrame(index=range(n)) if features is None else frame_features(features)
    if len(frame) != n:
        raise InputError(
            f"There are {n:,} scores, and {len(frame):,} rows of sensitive features.",
            "Give one of each per row.",
        )
    keys = sorted({*floor, *ceiling})
    member, rows = np.zeros((n, len(keys)), dtype=bool), []
    for position, key in enumerate(keys):
        name, level = split_group(key, frame)
        column = frame[name]
        listed = isinstance(column.dtype, pd.CategoricalDtype)
        values = column.cat.categories if listed else column.dropna().unique()
        found = [value for value in values if str(value) == level]
        if not found:
            raise ConfigError(
                f"No row has the level {level!r} of {name}.", nearest(level, map(str, values))
            )
        member[:, position] = column.isin(found)
        least = _count(key, floor.get(key, 0), places, math.ceil)
        most = _count(key, ceiling.get(key, places), places, math.floor)
        rows.append((int(member[:, position].sum()), least, most))
    return pd.DataFrame(rows, index=keys, columns=["rows", "floor", "ceiling"], dtype=int), member


def _count(key: str, amount: Any, places: int, rounded: Any) -> int:
    """Return a share or number of places as a number."""
    number = isinstance(amount, numbers.Real) and not isinstance(amount, bool)
    whole = isinstance(amount, numbers.Integral)
    if not number or not 0 <= amount <= (math.inf if whole else 1):
        raise ConfigError(
            f"{amount!r} is no amount of places for {key}.",
            "Give a share, a fraction from 0 to 1, or a whole number of places.",
        )
    # A share as it is written: .07 of 100 is 7.
    return int(amount) if whole else int(rounded(Fraction(str(float(amount))) * places))


def _check_feasible(cells: np.ndarray, size: np.ndarray, groups: pd.DataFrame, places: int) -> None:
    """Raise ConfigError where no choice of so many rows keeps the bounds."""
    number, count = len(cells), 2 * len(groups)
    # Floors, then ceilings as floors of what is not taken.
    value = np.r_[groups["floor"], -groups["ceiling"]].astype(np.float64)
    side = np.hstack([np.vstack([cells.T, -cells.T]), np.eye(count)])

    def relax(active: np.ndarray) -> np.ndarray:
        """Return by how many places each bound has to give way, fewest in all."""
        found = milp(
            np.r_[np.zeros(number), np.ones(count)],
            constraints=LinearConstraint(
                np.vstack([side, np.r_[np.ones(number), np.zeros(count)]]),
                np.r_[np.where(active, value, -np.inf), places],
                np.r_[np.full(count, np.inf), places],
            ),
            integrality=np.ones(number + count),
            bounds=Bounds(0, np.r_[size, np.full(count, np.inf)]),
        )
        return np.asarray(found.x[number:]).round()

    def state(bounds: np.ndarray, value: np.ndarray) -> str:
        return " and ".join(
            f"{groups.index[k % len(groups)]} at {'least' if 2 * k < count else 'most'} "
            f"{abs(value[k]):.0f}"
            for k in np.flatnonzero(bounds).tolist()
        )

    active = np.ones(count, dtype=bool)
    if (slack := relax(active)).any():
        # Bounds without which the others contradict each other all the same are not named.
        for k in range(count):
            rest = active & (np.arange(count) != k)
            active = rest if relax(rest).any() else active
        raise ConfigError(
            f"No {places:,} of the {size.sum():,} rows have {state(active, value)}.",
            f"The smallest relaxation is {state(slack > 0, value - slack)}.",
        )


def _line_up(member: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return the positions of rows, best first, in the order in which places go to them.

    ``room`` has how many more each group takes: those whose group is full go to the end.
    """
    fits = np.ones(len(member), dtype=bool)
    while True:
        inside = member & fits[:, None]
        over = inside & (np.cumsum(inside, axis=0) > room)
        if not over.any():
            return np.argsort(~fits, kind="stable")
        first = int(over.any(axis=1).argmax())
        fits[first:] &= ~member[first:, over[first]].any(axis=1)


def _solve(
    cells: np.ndarray, best: Best, score: np.ndarray, limits: Limits, places: int
) -> tuple[np.ndarray, float]:
    """Return the numbers of places of the cells, and a bound on the sum of scores.

    The gain of k places in a cell, the sum of its k highest scores, is the least of its tangents
    v <= G(j) + s_(j+1) (k - j) and those to the left of j. Those at some j make a programme whose
    value is a bound; where its k has more value than gain, tangents there are added.
    """
    low, span = float(score.min()), float(np.ptp(score)) or 1.0
    gain = [np.r_[0.0, np.cumsum((score[rows] - low) / span)] for rows in best]
    number, size = len(cells), np.array([len(rows) for rows in best])
    tangents: set[tuple[int, int]] = {
        (c, int(j)) for c in range(number) for j in np.linspace(0, size[c] - 1, GRID)
    }
    fixed = np.vstack([cells.T, np.ones(number)])
    fixed = np.hstack([fixed, np.zeros((len(fixed), number))])
    count, reached, bound = np.zeros(number, dtype=np.int64), -math.inf, math.inf
    while bound - reached > TOLERANCE:
        at = np.array(sorted(tangents))
        slope = np.array([gain[c][j + 1] - gain[c][j] for c, j in at])
        level = np.array([gain[c][j] for c, j in at]) - slope * at[:, 1]
        rows, each = np.zeros((len(at), 2 * number)), np.arange(len(at))
        rows[each, at[:, 0]], rows[each, number + at[:, 0]] = -slope, 1.0
        found = milp(
            np.r_[np.zeros(number), -np.ones(number)],
            constraints=LinearConstraint(
                np.vstack([rows, fixed]),
                np.r_[np.full(len(at), -np.inf), limits[0], places],
                np.r_[level, limits[1], places],
            ),
            integrality=np.r_[np.ones(number), np.zeros(number)],
            bounds=Bounds(0, np.r_[size, np.full(number, np.inf)]),
            options={"mip_rel_gap": 0.0},
        )
        own = np.asarray(found.x[:number]).round().astype(np.int64)
        value = math.fsum(gain[c][k] for c, k in enumerate(own))
        bound = min(bound, -float(found.mip_dual_bound))
        if value > reached:
            count, reached = own, value
        new = {(c, int(j)) for c, k in enumerate(own) for j in (k - 1, k) if 0 <= j < size[c]}
        if new <= tangents:
            break
        tangents |= new
    return count, low * places + span * max(bound, reached)


def _exchange(
    cells: np.ndarray, best: Best, position: np.ndarray, limits: Limits, count: np.ndarray
) -> np.ndarray:
    """Return the numbers of places after exchanges of two rows for those before them in order."""
    while True:
        used, size = count @ cells, [len(rows) for rows in best]
        last = [(position[best[c][k - 1]], c) for c, k in enumerate(count) if k]
        following = [(position[best[c][k]], c) for c, k in enumerate(count) if k < size[c]]
        for (new, b), (old, a) in itertools.product(sorted(following), sorted(last)[::-1]):
            moved = used - cells[a] + cells[b]
            if new < old and ((limits[0] <= moved) & (moved <= limits[1])).all():
                count[a], count[b] = count[a] - 1, count[b] + 1
                break
        else:
            return count
