"""The best cuts of groups whose true and false positive rates lie within windows.

    max Σ_k α P_k y_k − β N_k x_k   s.t.  (x_k, y_k) under the upper ROC hull of group k,
    max_k x_k − min_k x_k ≤ d,   max_k y_k − min_k y_k ≤ e,

with d, e ≤ δ, or d + e ≤ 2 δ for the mean gap. With draws this is a linear programme whose columns
are the vertices of the hulls. Some vertices of each group are enough: the multipliers ν, κ of the
windows price all others, the best one and its neighbours enter, and

    D(ν, κ) = Σ_k max_j (gain_kj − ν_k x_kj − κ_k y_kj) + price of the windows

bounds every draw from above. It ends where that bound is reached. Points under the upper hull but
above its lower counterpart are draws too, and are never better.

References
----------
M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016, equation
4.3. A. F. Cruz, M. Hardt. Unprocessing seven years of algorithmic fairness. ICLR 2024, for the
relaxed programme. The column generation: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from fairfrontier.train.postprocess.roc.curve import Curve, Gain
from fairfrontier.train.postprocess.roc.rate import (
    Draw,
    Optimum,
    find_base,
    find_largest,
    find_range,
)
from fairfrontier.train.postprocess.threshold import TOLERANCE, merge_runs

# Vertices of each hull in the first programme, and programmes at most.
COLUMNS = 24
ROUNDS = 100
# The gap that counts as closed, of gains scaled to 1.
ACCURACY = 1e-10
# One cut per group: up to so many windows, pairs of starts, are all tried. Of more, those from
# SIDE starts of each rate, in these shares of all starts around the best so far.
PAIRS = 1 << 18
SIDE = 64
ZOOMS = (1.0, 0.2, 0.04, 0.008, 0.0016, 0.0)
# Shares of the mean gap that is spent on the false positive rate.
SPLITS = np.linspace(0.0, 1.0, 9)


@dataclass(frozen=True, eq=False)
class _Group:
    """One group: rates and scaled gains of its cuts, which rates are defined, and the least tpr."""

    curve: Curve
    fpr: np.ndarray
    tpr: np.ndarray
    gain: np.ndarray
    base: int
    floor: float

    @property
    def bounded(self) -> tuple[bool, bool]:
        """Whether the false and the true positive rate are defined."""
        return bool(self.fpr[-1] > 0), bool(self.tpr[-1] > 0)


def solve_odds(
    curves: Sequence[Curve],
    gain: Gain,
    bound: float,
    *,
    mean: bool = False,
    base: Sequence[int] | None = None,
    randomized: bool = True,
) -> Optimum:
    """Solve for both error rates; ``base`` are cuts from which no true positive rate may fall.

    A rate that is 0/0 is not bounded. With draws it takes a few linear programmes of some hundred
    columns; without, windows that start at the rates of cuts are tried: all of them where these are
    at most `PAIRS`, else some near the optimum with draws, which need not be the best.
    """
    positive = sum(float(curve.positive[-1]) for curve in curves)
    negative = sum(float(curve.negative[-1]) for curve in curves)
    scale = gain.positive * positive + gain.negative * negative or 1.0
    scaled = Gain(gain.positive / scale, gain.negative / scale, 0.0)
    alone = find_base(curves, scaled)
    groups = []
    for k, curve in enumerate(curves):
        fpr, tpr = (mass / (mass[-1] or 1.0) for mass in (curve.negative, curve.positive))
        floor = 0.0 if base is None else float(tpr[base[k]])
        groups.append(_Group(curve, fpr, tpr, scaled.of(curve, slice(None)), alone[k], floor))
    draws, value, dual = _generate_columns(groups, bound, mean=mean)
    proven = dual - value <= 10 * ACCURACY
    if not randomized:
        draws, proven = _find_cuts(groups, draws, bound, mean=mean)
        value = sum(
            float(group.gain[draw.cuts[0]]) for group, draw in zip(groups, draws, strict=True)
        )
    found, bound_above = (float(gain.constant + scale * each) for each in (value, dual))
    return Optimum(draws, found, bound_above, proven)


def _generate_columns(
    groups: Sequence[_Group], bound: float, *, mean: bool
) -> tuple[list[Draw], float, float]:
    """Return the draws, their scaled value, and the least upper bound found."""
    columns = []
    for group in groups:
        hull = group.curve.hull
        spread = np.linspace(0, hull.size - 1, min(COLUMNS, hull.size)).astype(np.int64)
        columns.append(np.unique(np.append(spread, np.searchsorted(hull, group.base))))
    least = np.inf
    for _ in range(ROUNDS):
        cuts = [group.curve.hull[each] for group, each in zip(groups, columns, strict=True)]
        shares, value, prices = _solve_programme(groups, cuts, bound, mean=mean)
        dual, entering = _price(groups, prices, bound, mean=mean)
        least = min(least, dual)
        larger = [np.union1d(*pair) for pair in zip(columns, entering, strict=True)]
        grown = any(one.size > two.size for one, two in zip(larger, columns, strict=True))
        if least - value <= ACCURACY or not grown:
            break
        columns = larger
    draws = []
    for each, share in zip(cuts, shares, strict=True):
        used = share > TOLERANCE
        draws.append(Draw(each[used], share[used] / share[used].sum()))
    return draws, value, least


def _solve_programme(
    groups: Sequence[_Group], cuts: Sequence[np.ndarray], bound: float, *, mean: bool
) -> tuple[list[np.ndarray], float, np.ndarray]:
    """Return the shares of the cuts of each group, their value, and prices of shape (3, n_groups).

    The prices are ν and κ, which multiply the rates, and those of the least true positive rates.
    """
    stops = np.cumsum([each.size for each in cuts])
    size, n_groups = int(stops[-1]), len(groups)
    spans = [slice(*span) for span in zip([0, *stops[:-1].tolist()], stops.tolist(), strict=True)]
    whole = np.zeros((n_groups, size + 4))
    rows: list[np.ndarray] = []
    limits: list[float] = []
    owners: list[tuple[int, int, float]] = []
    cost = np.zeros(size + 4)
    for k, (group, each, span) in enumerate(zip(groups, cuts, spans, strict=True)):
        cost[span] = -group.gain[each]
        whole[k, span] = 1.0
        for j, (rates, defined) in enumerate(
            zip((group.fpr, group.tpr), group.bounded, strict=True)
        ):
            # rate − start − length ≤ 0 and start − rate ≤ 0
            for sign in (1.0, -1.0) if defined else ():
                row = np.zeros(size + 4)
                row[span], row[size + j] = sign * rates[each], -sign
                row[size + 2 + j] = -1.0 if sign > 0 else 0.0
                rows, limits = [*rows, row], [*limits, 0.0]
                owners.append((j, k, sign))
        if group.floor > 0:
            row = np.zeros(size + 4)
            row[span] = -group.tpr[each]
            rows, limits = [*rows, row], [*limits, -group.floor]
            owners.append((2, k, 1.0))
    if mean:
        row = np.zeros(size + 4)
        row[size + 2 :] = 1.0
        rows, limits = [*rows, row], [*limits, 2.0 * bound]
    length = (0.0, 2.0 * bound if mean else bound)
    found = linprog(
        cost, np.array(rows), np.array(limits), whole, np.ones(n_groups),
        bounds=[(0.0, None)] * size + [(None, None)] * 2 + [length] * 2,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    if found.x is None:
        raise ArithmeticError(f"the programme of the odds has no solution: {found.message}")
    prices = np.zeros((3, n_groups))
    for (j, k, sign), marginal in zip(owners, found.ineqlin.marginals, strict=False):
        prices[j, k] -= sign * marginal
    return [np.maximum(found.x[span], 0.0) for span in spans], -float(found.fun), prices


def _price(
    groups: Sequence[_Group], prices: np.ndarray, bound: float, *, mean: bool
) -> tuple[float, list[np.ndarray]]:
    """Return D at the prices, and each group's best vertex with its neighbours."""
    moves, floors = prices[:2].copy(), np.maximum(prices[2], 0.0)
    for j in range(2):
        defined = np.array([group.bounded[j] for group in groups])
        # Rounding must not leave a remainder: D holds for prices that add up to 0.
        moves[j, defined] -= moves[j, defined].mean() if defined.any() else 0.0
        moves[j, ~defined] = 0.0
    halves = np.abs(moves).sum(axis=1) / 2.0
    dual = bound * float(2.0 * halves.max() if mean else halves.sum())
    entering = []
    for k, group in enumerate(groups):
        hull = group.curve.hull
        worth = group.gain[hull] - moves[0, k] * group.fpr[hull]
        worth += (floors[k] - moves[1, k]) * group.tpr[hull]
        best = int(worth.argmax())
        dual += float(worth[best]) - floors[k] * group.floor
        entering.append(np.arange(max(0, best - 1), min(hull.size, best + 2)))
    return dual, entering


def _find_cuts(
    groups: Sequence[_Group], draws: Sequence[Draw], bound: float, *, mean: bool
) -> tuple[list[Draw], bool]:
    """Return the best cuts found, one for each group, and whether all windows were tried."""
    starts, centre = [], []
    for j in range(2):
        bounded = [pair for pair in zip(groups, draws, strict=True) if pair[0].bounded[j]]
        rates = [(group.fpr, group.tpr)[j] for group, _ in bounded]
        starts.append(merge_runs([np.zeros(1), *rates]))
        reached = [
            draw.shares @ rate[draw.cuts] for rate, (_, draw) in zip(rates, bounded, strict=True)
        ]
        centre.append(float(min(reached, default=0.0)))
    lengths = np.array([[bound, bound]])
    if mean and bound > 0:
        lengths = 2.0 * bound * np.column_stack([SPLITS, 1.0 - SPLITS])
    complete = starts[0].size * starts[1].size <= PAIRS
    best, cuts = -np.inf, [0] * len(groups)
    for share in (1.0,) if complete else ZOOMS:
        some = (
            starts
            if complete
            else [_spread(*each, share) for each in zip(starts, centre, strict=True)]
        )
        value, chosen, window = _judge(groups, some, lengths)
        if value > best:
            best, cuts, centre = value, chosen, window
    draws = [Draw(np.array([cut]), np.ones(1)) for cut in cuts]
    return draws, complete and len(lengths) == 1


def _spread(rates: np.ndarray, centre: float, share: float) -> np.ndarray:
    """Return `SIDE` of the ascending rates, from a share of them around a centre, and both ends."""
    reach = min(rates.size, max(SIDE, int(share * rates.size)))
    near = int(np.searchsorted(rates, centre))
    low = max(0, min(near - reach // 2, rates.size - reach))
    span = np.linspace(low, low + reach - 1, min(SIDE, reach)).astype(np.int64)
    return np.union1d(rates[span], rates[[0, -1]])


def _judge(
    groups: Sequence[_Group], starts: Sequence[np.ndarray], lengths: np.ndarray
) -> tuple[float, list[int], list[float]]:
    """Return the largest value of one cut per group in windows, −∞ for none, cuts and window.

    Windows have a start of each rate and one of the lengths, (L, 2), in all combinations.
    """
    shape = (len(lengths), starts[1].size, starts[0].size)
    where, gains = np.arange(np.prod(shape)), np.zeros(np.prod(shape))
    for group in groups:
        first, last = (each.reshape(-1)[where] for each in _find_windows(group, starts, lengths))
        some = first < last
        if not some.any():
            return -np.inf, [], []
        where, first, last = where[some], first[some], last[some]
        gains = gains[some] + find_largest(group.gain, first, last)
    best = int(gains.argmax())
    i, above, right = np.unravel_index(where[best], shape)
    window = [starts[0][right], starts[1][above]]
    cuts = []
    for group in groups:
        first, last = _find_windows(group, [axis[None] for axis in window], lengths[[i]])
        cuts.append(int(first.item() + group.gain[first.item() : last.item()].argmax()))
    return float(gains[best]), cuts, [float(start) for start in window]


def _find_windows(
    group: _Group, starts: Sequence[np.ndarray], lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return first and one past the last of a group's cuts by length and starts of tpr and fpr."""
    shape = (len(lengths), starts[1].size, starts[0].size)
    first = np.full(shape, np.searchsorted(group.tpr, group.floor - TOLERANCE))
    last = np.full(shape, group.gain.size)
    axes = (starts[0], starts[1][:, None])
    for j, rates in enumerate((group.fpr, group.tpr)):
        if group.bounded[j]:
            low, high = find_range(rates, axes[j], lengths[:, j, None, None])
            first, last = np.maximum(first, low), np.minimum(last, high)
    return first, last
