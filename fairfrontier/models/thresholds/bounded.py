"""The best thresholds by cell under bounds in words: one linear programme on upper ROC hulls.

    max Σ_c α TP_c − β FP_c   s.t.   Σ_c a_rc TP_c + b_rc FP_c + Σ_j d_rj z_j ≤ e_r   for all rows r

Cells c are the crosses of all attributes that bounds name; (TP_c, FP_c) lies in the convex hull of
the points of the cell's thresholds. Rates with a fixed denominator are linear in these, and so are
their differences and ratios by an end z_j of the range in which they lie. A fractional rate, as
PPV = TP/(TP + FP), is linear once it is compared with a number: PPV_k ≥ v is TP_k ≥ v (TP_k +
FP_k). A difference between fractional rates says that there is a level v with v ≤ r_k ≤ v + δ. For
v in [a, a'] the rows a ≤ r_k ≤ a' + δ are linear and bound the optimum from above: intervals are
halved until that bound is reached by a rule that keeps the bounds.

Vertices of the hulls enter as their prices say: with multipliers π ≥ 0

    D(π) = Σ_c max_v (gain_cv − Σ_r π_r (a_rc TP_cv + b_rc FP_cv)) + π e + Σ_j max(0, −(dᵀπ)_j)

bounds every draw from above for z in [0, 1]. Bounds that contradict each other are those with a
price in the programme that relaxes all of them by the same least number.

References
----------
M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016, section 4.
The rows of bounds, the column generation and the branching: ours.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from fairfrontier.models.thresholds.bound import RATES, SELECTED, Bound
from fairfrontier.models.thresholds.curve import Curve, Gain
from fairfrontier.models.thresholds.programme import COLUMNS, REACH, ROUNDS, Draw
from fairfrontier.models.thresholds.threshold import TOLERANCE
from fairfrontier.runtime.errors import DataError, UnattainableError

# How far the best rule found may be from the bound on all, as a share of the largest gain.
CLOSED = 1e-6
# Intervals of levels that are tried at most, and the rounding of a bound that is kept.
MOST_NODES = 400
ROUNDING = 1e-9


class BoundedOptimum(NamedTuple):
    """One draw for each cell, TP, FP, P and N of each, the gain, and a bound on that of all."""

    draws: list[Draw]
    counts: np.ndarray
    value: float
    dual_value: float


@dataclass(frozen=True, eq=False)
class Rows:
    """What bounds say, as rows of a linear programme, (n_rows, ...).

    ``true`` and ``false`` are the factors of TP and FP of each cell, ``free`` those of the ends z,
    ``limit`` the right-hand sides; ``owner`` is the position of each row's bound.
    """

    true: np.ndarray
    false: np.ndarray
    free: np.ndarray
    limit: np.ndarray
    owner: np.ndarray


class _Writer:
    """Collects rows on sums over cells."""

    def __init__(self, totals: np.ndarray) -> None:
        self.totals = totals
        self.rows: list[tuple[np.ndarray, dict[int, float], float, int]] = []
        self.ends, self.owner = 0, 0

    def add(
        self, *terms: tuple[np.ndarray, np.ndarray], most: float = 0.0, end: float = 0.0
    ) -> None:
        """Bound Σ factors · (TP, FP, P, N) over the cells of each term, plus end · z, by ``most``.

        z is the last of the ends.
        """
        weights = sum(mask[:, None] * factor for factor, mask in terms)
        fixed = float((weights[:, 2:] * self.totals).sum())
        ends = {self.ends - 1: end} if end else {}
        self.rows.append((weights[:, :2], ends, most - fixed, self.owner))

    def gather(self) -> Rows:
        size = len(self.totals)
        weights = np.array([row[0] for row in self.rows]).reshape(-1, size, 2)
        free = np.zeros((len(self.rows), self.ends))
        for i, (_, ends, _, _) in enumerate(self.rows):
            for j, factor in ends.items():
                free[i, j] = factor
        limit, owner = (np.array([row[k] for row in self.rows]) for k in (2, 3))
        return Rows(weights[..., 0], weights[..., 1], free, limit, owner.astype(np.int64))


class Problem:
    """Bounds on the cells of some curves, as rows for any intervals of the levels.

    Parameters
    ----------
    curves : sequence of Curve
        Of each cell.
    bounds : sequence of Bound
    levels : sequence of mapping
        For each bound the levels of the cells, by attribute; see `Bound.compare`.

    Attributes
    ----------
    n_levels : int
        How many levels of fractional rates are to be found.

    Raises
    ------
    DataError
        Where a group that a bound names has no row, or its rate is 0/0 whatever is decided.
    """

    def __init__(
        self,
        curves: Sequence[Curve],
        bounds: Sequence[Bound],
        levels: Sequence[Mapping[str, np.ndarray]],
    ) -> None:
        self.curves, self.bounds, self.levels = curves, bounds, levels
        self.totals = np.array([(each.positive[-1], each.negative[-1]) for each in curves])
        self.n_levels = 0
        self.write([])
        self.intervals = [(0.0, 1.0)] * self.n_levels

    def write(self, intervals: Sequence[tuple[float, float]]) -> Rows:
        """Return the rows for intervals of the levels; for all levels where there are none."""
        writer, position = _Writer(self.totals), 0
        for owner, (bound, levels) in enumerate(zip(self.bounds, self.levels, strict=True)):
            writer.owner = owner
            for compared in bound.compare(levels):
                masks = compared.masks.astype(np.float64)
                mass = masks @ self.totals.sum(axis=1)
                if bound.level and not mass.any():
                    if bound.strata:
                        continue
                    raise DataError(
                        f"No row is of the group of {bound.name!r}.",
                        "Name a level of the attribute as the rows have it.",
                    )
                whole = compared.within.astype(np.float64)
                for rate in bound.rates:
                    _, denominator = RATES[rate]
                    fractional = bool(denominator[:2].any())
                    fixed = masks @ (self.totals @ denominator[2:])
                    undefined = (fixed <= 0) if not fractional else mass <= 0
                    if undefined.any() and not bound.strata and bound.form not in ("share",):
                        name = compared.names[int(undefined.argmax())]
                        raise DataError(
                            f"{bound.name}: {rate} of {name or 'all rows'} is 0/0.",
                            "Give rows of both classes of every group, or merge small groups.",
                        )
                    kept = masks[~undefined]
                    comparing = bound.form in ("difference", "ratio")
                    if not len(kept) or (comparing and not bound.overall and len(kept) < 2):
                        continue
                    if comparing and fractional:
                        known = intervals[position] if intervals else (0.0, 1.0)
                        _write_levels(writer, bound, RATES[rate], kept, whole, known)
                        position += 1
                    else:
                        _write_linear(writer, bound, RATES[rate], kept, whole)
        self.n_levels = position
        return writer.gather()

    def list_values(self, counts: np.ndarray) -> list[float]:
        """Return the value of each bound's measure for TP, FP, P and N of the cells."""
        pairs = zip(self.bounds, self.levels, strict=True)
        return [bound.value(counts, levels) for bound, levels in pairs]

    def find_excess(self, counts: np.ndarray) -> float:
        """Return by how much the bound is passed that is passed most."""
        pairs = zip(self.bounds, self.list_values(counts), strict=True)
        return max((bound.exceeds(v) for bound, v in pairs if not math.isnan(v)), default=0.0)

    def find_levels(self, counts: np.ndarray) -> list[float]:
        """Return for each level that is to be found one which is near to those of the groups."""
        found = []
        for bound, levels in zip(self.bounds, self.levels, strict=True):
            for compared in bound.compare(levels):
                for rate in bound.rates:
                    numerator, denominator = RATES[rate]
                    masks = compared.masks.astype(np.float64)
                    if not (denominator[:2].any() and bound.form in ("difference", "ratio")):
                        continue
                    masks = masks[masks @ self.totals.sum(axis=1) > 0]
                    if not bound.overall and len(masks) < 2:
                        continue
                    own = masks @ counts
                    values = (own @ numerator) / np.maximum(own @ denominator, 1e-300)
                    values = values[own @ denominator > 0]
                    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
                    if bound.overall:
                        found.append((low + high) / 2.0)
                    elif bound.form == "difference":
                        found.append((low + high - bound.limit) / 2.0)
                    else:
                        found.append((low + high) / (1.0 + bound.limit))
        return found


def _write_linear(
    writer: _Writer, bound: Bound, rate: np.ndarray, masks: np.ndarray, whole: np.ndarray
) -> None:
    """Write a bound that is linear: on fixed denominators, or on a number."""
    numerator, denominator = rate
    sign, limit = (1.0 if bound.sign == "<=" else -1.0), bound.limit
    totals = writer.totals
    if bound.form == "selected":
        mass = float(totals.sum())
        writer.add((sign * SELECTED / mass, masks[0]), most=sign * limit / mass)
    elif bound.form == "share":
        scale = sign / max(float(whole @ totals.sum(axis=1)), 1e-300)
        writer.add((scale * SELECTED, masks[0]), (-scale * limit * SELECTED, whole))
    elif bound.form in ("rate", "min", "max"):
        for mask in masks:
            mass = float(mask @ totals @ denominator[2:])
            mass = mass if not denominator[:2].any() else float((mask @ totals).sum())
            writer.add((sign * (numerator - limit * denominator) / mass, mask))
    else:
        fixed = masks @ (totals @ denominator[2:])
        shares = [numerator / mass for mass in fixed]
        difference = bound.form == "difference"
        if bound.overall:
            every = numerator / float(whole @ (totals @ denominator[2:]))
            factor, most = (1.0, limit) if difference else (limit, 0.0)
            for share, mask in zip(shares, masks, strict=True):
                first, second = (share, mask), (every, whole)
                writer.add(_scale(factor, first), _scale(-1.0, second), most=most)
                writer.add(_scale(factor, second), _scale(-1.0, first), most=most)
            return
        writer.ends += 1
        for share, mask in zip(shares, masks, strict=True):
            writer.add((share, mask), end=-1.0, most=limit if difference else 0.0)
            writer.add((-share, mask), end=1.0 if difference else limit)


def _scale(factor: float, term: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return factor * term[0], term[1]


def _write_levels(
    writer: _Writer,
    bound: Bound,
    rate: np.ndarray,
    masks: np.ndarray,
    whole: np.ndarray,
    interval: tuple[float, float],
) -> None:
    """Write that fractional rates are compared with a level within an interval.

    The level is the least rate of a difference, the largest of a ratio, or that of all rows.
    """
    numerator, denominator = rate
    low, high = interval
    limit, difference = bound.limit, bound.form == "difference"
    if bound.overall:
        ends = (low - limit, high + limit) if difference else (low * limit, high / max(limit, 1e-9))
        between = [(whole, low, high), *((mask, *ends) for mask in masks)]
    else:
        ends = (low, high + limit) if difference else (low * limit, high)
        between = [(mask, *ends) for mask in masks]
    for mask, least, most in between:
        mass = float((mask @ writer.totals).sum())
        if least > 0:
            writer.add(((least * denominator - numerator) / mass, mask))
        if most < 1:
            writer.add(((numerator - most * denominator) / mass, mask))


class _Found(NamedTuple):
    draws: list[Draw]
    counts: np.ndarray
    value: float
    dual: float


class _Master:
    """The column generation on the curves; columns that entered stay for later rows."""

    def __init__(self, problem: Problem, gain: Gain) -> None:
        self.problem, curves = problem, problem.curves
        self.points = [
            np.column_stack([each.positive[each.hull], each.negative[each.hull]]) for each in curves
        ]
        totals = problem.totals.sum(axis=0)
        self.scale = float(gain.positive * totals[0] + gain.negative * totals[1]) or 1.0
        self.worth = np.array([gain.positive, -gain.negative]) / self.scale
        self.columns = [
            np.union1d(
                np.linspace(0, len(each) - 1, min(COLUMNS, len(each))).astype(np.int64),
                (each @ self.worth).argmax(),
            )
            for each in self.points
        ]

    def solve(self, rows: Rows) -> _Found | None:
        """Return the best draws under some rows, in scaled gains; None where there are none."""
        if not len(rows.limit):
            best = [np.array([(each @ self.worth).argmax()]) for each in self.points]
            return self._find([(each, np.ones(1)) for each in best], math.nan)
        found = self._generate(rows, self.worth, slack=False)
        if found is None:
            relaxed = self._generate(rows, np.zeros(2), slack=True)
            # `relaxed` is the least relaxation, as a number below 0.
            if relaxed is None or relaxed.dual < -10 * ROUNDING:
                return None
            found = self._generate(rows, self.worth, slack=False)
        return found

    def relax(self, rows: Rows) -> tuple[float, np.ndarray]:
        """Return the least number by which all rows can be relaxed alike, and priced bounds."""
        found = self._generate(rows, np.zeros(2), slack=True)
        return -found.value if found else math.inf, np.unique(rows.owner[self.prices > 1e-7])

    def _generate(self, rows: Rows, worth: np.ndarray, *, slack: bool) -> _Found | None:
        n_cells, n_free = len(self.points), rows.free.shape[1]
        extra = n_free + slack
        least, found = np.inf, None
        for _ in range(ROUNDS):
            sizes = [each.size for each in self.columns]
            owner, size = np.repeat(np.arange(n_cells), sizes), sum(sizes)
            points = np.concatenate(
                [own[each] for own, each in zip(self.points, self.columns, strict=True)]
            )
            matrix = rows.true[:, owner] * points[:, 0] + rows.false[:, owner] * points[:, 1]
            whole = [rows.free, -np.ones((len(matrix), int(slack)))]
            equal = np.zeros((n_cells, size + extra))
            equal[owner, np.arange(size)] = 1.0
            cost = np.concatenate([-(points @ worth), np.zeros(n_free), np.ones(int(slack))])
            solved = linprog(
                cost, np.hstack([matrix, *whole]), rows.limit, equal, np.ones(n_cells),
                bounds=[(0.0, None)] * size + [(0.0, 1.0)] * n_free + [(0.0, None)] * slack,
                method="highs-ds",
                options={
                    "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10
                },
            )  # fmt: skip
            if solved.x is None:
                return None
            self.prices = prices = np.maximum(-solved.ineqlin.marginals, 0.0)
            # The price of the slack is at most 1, so that D bounds the relaxation, too.
            total = prices.sum()
            dual = prices if not slack or total <= 1.0 else prices / total
            bound = float(dual @ rows.limit + np.maximum(-(dual @ rows.free), 0.0).sum())
            grown, larger = False, []
            for c, own in enumerate(self.points):
                price = np.array([dual @ rows.true[:, c], dual @ rows.false[:, c]])
                gains = own @ (worth - price)
                best = int(gains.argmax())
                bound += float(gains[best])
                around = best + REACH
                entering = np.union1d(self.columns[c], around[(around >= 0) & (around < len(own))])
                grown |= entering.size > self.columns[c].size
                larger.append(entering)
            least = min(least, bound)
            shares = np.split(solved.x[:size], np.cumsum(sizes)[:-1])
            value = -float(solved.fun)
            pairs = list(zip(self.columns, shares, strict=True))
            found = self._find(pairs, least)._replace(value=value)
            if least - value <= TOLERANCE or not grown:
                break
            self.columns = larger
        return found

    def _find(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]], dual: float) -> _Found:
        """Return draws of vertices with their shares."""
        draws, counts = [], np.zeros((len(pairs), 4))
        counts[:, 2:] = self.problem.totals
        for c, ((vertices, share), curve) in enumerate(
            zip(pairs, self.problem.curves, strict=True)
        ):
            used = share > TOLERANCE
            vertices, part = vertices[used], share[used] / share[used].sum()
            counts[c, :2] = part @ self.points[c][vertices]
            draws.append(Draw(curve.hull[vertices], part))
        value = float((counts[:, :2] @ self.worth).sum())
        return _Found(draws, counts, value, value if math.isnan(dual) else dual)


def solve_bounds(problem: Problem, gain: Gain) -> BoundedOptimum:
    """Return the best draws among the thresholds of each cell that keep all bounds.

    Raises
    ------
    UnattainableError
        Where none does; it names the bounds that contradict each other, and by how much all would
        have to give way.

    Notes
    -----
    Some linear programmes of some hundred columns; of fractional rates that are compared, one for
    each of up to `MOST_NODES` intervals of levels, beside a sort of the scores.
    """
    master = _Master(problem, gain)
    root = master.solve(problem.write(problem.intervals))
    if root is None:
        raise _refuse(problem, master)
    best: _Found | None = None
    # The best value found, and the largest bound on what was left out.
    least, left_out, count = -np.inf, -np.inf, itertools.count()
    queue = [(-root.dual, next(count), root, problem.intervals)]
    for _ in range(MOST_NODES):
        if not queue or -queue[0][0] <= least + CLOSED:
            break
        _, _, node, intervals = heapq.heappop(queue)
        if problem.find_excess(node.counts) <= ROUNDING or not intervals:
            left_out = max(left_out, node.dual)
            if node.value > least:
                best, least = node, node.value
            continue
        wanted = problem.find_levels(node.counts)
        levels = [min(max(v, a), b) for v, (a, b) in zip(wanted, intervals, strict=True)]
        tried = master.solve(problem.write([(v, v) for v in levels]))
        if tried is not None and tried.value > least:
            best, least = tried, tried.value
        wide = int(np.argmax([b - a for a, b in intervals]))
        low, high = intervals[wide]
        if high - low < ROUNDING:
            left_out = max(left_out, node.dual)
            continue
        # At the level of the relaxation the halves exclude it sooner than at the middle.
        inside = low + 0.1 * (high - low) < levels[wide] < high - 0.1 * (high - low)
        middle = levels[wide] if inside else (low + high) / 2.0
        for half in ((low, middle), (middle, high)):
            smaller = [*intervals]
            smaller[wide] = half
            child = master.solve(problem.write(smaller))
            if child is not None and child.dual > least + CLOSED:
                heapq.heappush(queue, (-child.dual, next(count), child, smaller))
            elif child is not None:
                left_out = max(left_out, child.dual)
    if best is None:
        raise _refuse(problem, master)
    above = max(left_out, least, *(-each[0] for each in queue))
    value, dual = (gain.constant + master.scale * each for each in (best.value, above))
    return BoundedOptimum(best.draws, best.counts, value, dual)


def _refuse(problem: Problem, master: _Master) -> UnattainableError:
    """Return the error of bounds that no rule keeps."""
    relaxation, owners = master.relax(problem.write(problem.intervals))
    names = [str(problem.bounds[k]) for k in owners.tolist()] or [*map(str, problem.bounds)]
    if relaxation <= ROUNDING:
        how = "The search of levels found none; loosen one of them."
    else:
        how = f"Loosen them: by {relaxation:.4g} all of them can be kept."
    return UnattainableError(f"No rule keeps {' and '.join(names)} on the fitted rows.", how)
