"""The best thresholds by cell under bounds in words: a linear programme on ROC hulls.

Cells are the crosses of all attributes that bounds name; see `hull` for the programme. Rates with a
fixed denominator are linear in what the cells choose, and so are their differences and ratios by an
end z of the range in which they lie. A fractional rate, as PPV = TP/(TP + FP), is linear once it is
compared with a number: PPV_k ≥ v is TP_k ≥ v (TP_k + FP_k). A difference between fractional rates
says that there is a level v with v ≤ r_k ≤ v + δ. For v in [a, a'] the rows a ≤ r_k ≤ a' + δ are
linear and bound the optimum from above: intervals are halved until that bound is reached by a rule
that keeps the bounds. With one cut a cell the cuts of a cell that mixes two are parted in the same
way, and cuts near those of the programme are tried. Bounds that contradict each other are those
with a price in the programme that relaxes all of them by the same least number.

References
----------
M. Hardt, E. Price, N. Srebro. Equality of opportunity in supervised learning. NIPS 2016, section 4.
The rows of bounds and the branching: ours.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fairfrontier.models.thresholds.bound import RATES, SELECTED, Bound, divide
from fairfrontier.models.thresholds.curve import Curve, Gain
from fairfrontier.models.thresholds.hull import Draw, Hulls, Reached, Rows, RowWriter
from fairfrontier.runtime.errors import DataError, UnattainableError

# How far the best rule found may be from the bound on all, as a share of the largest gain.
CLOSED = 1e-5
# Intervals of levels that are tried at most, and the rounding of a bound that is kept.
MOST_NODES = 400
ROUNDING = 1e-9
# Rounds over the cells in which one cut is chosen for each.
PASSES = 3


class BoundedOptimum(NamedTuple):
    """One draw for each cell, TP, FP, P and N of each, the gain, and a bound on that of all."""

    draws: list[Draw]
    counts: np.ndarray
    value: float
    dual_value: float


class _Term(NamedTuple):
    """One rate of a bound in a stratum: the groups compared, and all cells, as masks of cells.

    ``compares`` says whether groups are compared by a level that is to be found.
    """

    owner: int
    bound: Bound
    rate: np.ndarray
    masks: np.ndarray
    whole: np.ndarray
    compares: bool


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
        self.bounds, self.levels = bounds, levels
        self.totals = np.array([(each.positive[-1], each.negative[-1]) for each in curves])
        self.terms = [
            term
            for owner, pair in enumerate(zip(bounds, levels, strict=True))
            for term in self._list_terms(owner, *pair)
        ]
        self.intervals = [(0.0, 1.0) for term in self.terms if term.compares]

    def _list_terms(
        self, owner: int, bound: Bound, levels: Mapping[str, np.ndarray]
    ) -> Iterator[_Term]:
        """Yield the rates of a bound; within strata those that are not 0/0 whatever is decided."""
        pairs = bound.form in ("difference", "ratio")
        for compared in bound.compare(levels):
            masks, whole = (each.astype(np.float64) for each in (compared.masks, compared.within))
            for rate in bound.rates:
                factors = RATES[rate]
                fractional = bool(factors[1, :2].any())
                fixed = self.totals.sum(axis=1) if fractional else self.totals @ factors[1, 2:]
                undefined = masks @ fixed <= 0
                if undefined.any() and not bound.strata:
                    name = compared.names[int(undefined.argmax())] or "all rows"
                    raise DataError(
                        f"{bound.name}: {rate} of {name} is 0/0.",
                        "Give rows of both classes of every group, or merge small groups.",
                    )
                kept = masks[~undefined]
                if len(kept) > (pairs and not bound.overall):
                    yield _Term(owner, bound, factors, kept, whole, pairs and fractional)

    def write(self, intervals: Sequence[tuple[float, float]]) -> Rows:
        """Return the rows for intervals of the levels."""
        writer, left = RowWriter(self.totals), iter(intervals)
        for term in self.terms:
            writer.owner = term.owner
            if term.compares:
                _write_levels(writer, term, next(left))
            else:
                _write_linear(writer, term)
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
        for term in self.terms:
            if not term.compares:
                continue
            own = term.masks @ counts
            values = divide(own @ term.rate[0], own @ term.rate[1])
            values = values[~np.isnan(values)]
            low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
            bound = term.bound
            if bound.overall:
                found.append((low + high) / 2.0)
            elif bound.form == "difference":
                found.append((low + high - bound.limit) / 2.0)
            else:
                found.append((low + high) / (1.0 + bound.limit))
        return found


def _write_linear(writer: RowWriter, term: _Term) -> None:
    """Write a bound that is linear: on fixed denominators, or on a number."""
    bound, (numerator, denominator), masks = term.bound, term.rate, term.masks
    sign, limit = (1.0 if bound.sign == "<=" else -1.0), bound.limit
    totals = writer.totals
    if bound.form == "selected":
        mass = float(totals.sum())
        writer.add((sign * SELECTED / mass, masks[0]), most=sign * limit / mass)
    elif bound.form == "share":
        scale = sign / float(term.whole @ totals.sum(axis=1))
        writer.add((scale * SELECTED, masks[0]), (-scale * limit * SELECTED, term.whole))
    elif bound.form in ("rate", "min", "max"):
        fixed = totals.sum(axis=1) if denominator[:2].any() else totals @ denominator[2:]
        for mask in masks:
            writer.add((sign * (numerator - limit * denominator) / float(mask @ fixed), mask))
    else:
        fixed = totals @ denominator[2:]
        shares = [(numerator / float(mask @ fixed), mask) for mask in masks]
        difference = bound.form == "difference"
        if bound.overall:
            every = numerator / float(term.whole @ fixed), term.whole
            factor, most = (1.0, limit) if difference else (limit, 0.0)
            for one, two in [*((e, every) for e in shares), *((every, e) for e in shares)]:
                writer.add(_scale(factor, one), _scale(-1.0, two), most=most)
            return
        end = writer.n_ends
        writer.n_ends += 1
        for share in shares:
            writer.add(share, ends={end: -1.0}, most=limit if difference else 0.0)
            writer.add(_scale(-1.0, share), ends={end: 1.0 if difference else limit})


def _scale(factor: float, term: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return factor * term[0], term[1]


def _write_levels(writer: RowWriter, term: _Term, interval: tuple[float, float]) -> None:
    """Write that fractional rates are compared with a level within an interval.

    The level is the least rate of a difference, the largest of a ratio, or that of all rows.
    """
    (numerator, denominator), (low, high) = term.rate, interval
    limit, difference = term.bound.limit, term.bound.form == "difference"
    if term.bound.overall:
        ends = (low - limit, high + limit) if difference else (low * limit, high / max(limit, 1e-9))
        between = [(term.whole, low, high), *((mask, *ends) for mask in term.masks)]
    else:
        ends = (low, high + limit) if difference else (low * limit, high)
        between = [(mask, *ends) for mask in term.masks]
    for mask, least, most in between:
        mass = float((mask @ writer.totals).sum())
        if least > 0:
            writer.add(((least * denominator - numerator) / mass, mask))
        if most < 1:
            writer.add(((numerator - most * denominator) / mass, mask))


class _Node(NamedTuple):
    """A part of all choices: the cuts of some hulls, and levels within intervals."""

    reached: Reached
    hulls: Hulls
    intervals: list[tuple[float, float]]


def solve_bounds(
    curves: Sequence[Curve], problem: Problem, gain: Gain, *, randomized: bool = True
) -> BoundedOptimum:
    """Return the best draws among the thresholds of each cell that keep all bounds.

    Without ``randomized`` each cell has one cut: the best of those tried, and ``dual_value`` bounds
    all others.

    Raises
    ------
    UnattainableError
        Where none does; it names the bounds that contradict each other, and by how much all would
        have to give way.

    Notes
    -----
    Some linear programmes of some hundred columns; up to `MOST_NODES` times two of them for
    fractional rates that are compared and for one cut a cell, beside a sort of the scores.
    """
    whole = Hulls(curves, gain, both=True)

    def solve(hulls: Hulls, intervals: Sequence[tuple[float, float]]) -> Reached | None:
        return hulls.solve(problem.write(intervals))

    def count(reached: Reached) -> np.ndarray:
        return np.hstack([reached.counts, problem.totals])

    root = solve(whole, problem.intervals)
    if root is None:
        raise _refuse(problem, whole)
    best: Reached | None = None
    # The best value found, and the largest bound on what was left out.
    least, left_out, number = -np.inf, -np.inf, itertools.count()
    for share in () if randomized else (0.0, 1.0):
        found = _round(problem, whole, whole.choose_share(share))
        if found is not None and found.value > least:
            best, least = found, found.value
    queue = [(-root.dual, next(number), _Node(root, whole, problem.intervals))]
    for _ in range(MOST_NODES if randomized else MOST_NODES // 2):
        if not queue or -queue[0][0] <= least + CLOSED:
            break
        node, hulls, intervals = heapq.heappop(queue)[2]
        mixed = [] if randomized else [c for c, d in enumerate(node.draws) if d.cuts.size > 1]
        found = node
        levels = [0.0] * len(intervals)
        if problem.find_excess(count(node)) > ROUNDING and intervals:
            wanted = problem.find_levels(count(node))
            levels = [min(max(v, a), b) for v, (a, b) in zip(wanted, intervals, strict=True)]
            found = solve(hulls, [(v, v) for v in levels])
        elif not mixed:
            left_out = max(left_out, node.dual)
            if node.value > least:
                best, least = node, node.value
            continue
        if found is not None and not randomized:
            found = _round(problem, hulls, found)
        if found is not None and found.value > least:
            best, least = found, found.value
        halves = [*_halve(node, hulls, intervals, mixed, levels)]
        if not halves:
            left_out = max(left_out, node.dual)
        for some, narrowed in halves:
            child = solve(some, narrowed)
            if child is not None and child.dual > least + CLOSED:
                heapq.heappush(queue, (-child.dual, next(number), _Node(child, some, narrowed)))
            elif child is not None:
                left_out = max(left_out, child.dual)
    if best is None:
        raise _refuse(problem, whole)
    above = max(left_out, least, *(-each[0] for each in queue))
    value, dual = (gain.constant + whole.scale * each for each in (best.value, above))
    return BoundedOptimum(best.draws, count(best), value, dual)


def _halve(
    node: Reached,
    hulls: Hulls,
    intervals: list[tuple[float, float]],
    mixed: Sequence[int],
    levels: Sequence[float],
) -> Iterator[tuple[Hulls, list[tuple[float, float]]]]:
    """Yield the halves of a part: of the cuts of a cell that mixes them, else of some levels."""
    if mixed:
        spread = [np.ptp(hulls.place(c, node.draws[c].cuts), axis=0).sum() for c in mixed]
        cell = mixed[int(np.argmax(spread))]
        first, last = hulls.spans[cell]
        cut = min(hulls.find_near(cell, node.counts[cell]), last - 1)
        for span in ((first, cut), (cut + 1, last)):
            yield hulls.narrow(cell, *span), intervals
        return
    wide = int(np.argmax([b - a for a, b in intervals]))
    low, high = intervals[wide]
    if high - low < ROUNDING:
        return
    # At the level of the relaxation the halves exclude it sooner than at the middle.
    inside = low + 0.1 * (high - low) < levels[wide] < high - 0.1 * (high - low)
    middle = levels[wide] if inside else (low + high) / 2.0
    for half in ((low, middle), (middle, high)):
        yield hulls, [*intervals[:wide], half, *intervals[wide + 1 :]]


def _round(problem: Problem, hulls: Hulls, reached: Reached) -> Reached | None:
    """Return one cut a cell near some draws that keeps the bounds, if it is found.

    Cell by cell, and again, the cut is taken that passes the bounds least, and is then best.
    """
    options = [hulls.list_near(c, *each) for c, each in enumerate(zip(*reached[:2], strict=True))]
    points = [hulls.place(c, cuts) for c, cuts in enumerate(options)]
    chosen = [len(each) // 2 for each in options]
    counts = np.hstack([[own[k] for own, k in zip(points, chosen, strict=True)], problem.totals])
    several = [c for c, each in enumerate(options) if each.size > 1]
    for _ in range(PASSES):
        for c in several:
            judged = []
            for k, point in enumerate(points[c]):
                counts[c, :2] = point
                excess = max(float(problem.find_excess(counts)), ROUNDING)
                judged.append((excess, -float(point @ hulls.worth), k))
            chosen[c] = min(judged)[2]
            counts[c, :2] = points[c][chosen[c]]
    if problem.find_excess(counts) > ROUNDING:
        return None
    cuts = [each[[k]] for each, k in zip(options, chosen, strict=True)]
    return reached._replace(
        draws=[Draw(each, np.ones(1)) for each in cuts],
        counts=counts[:, :2].copy(),
        value=float((counts[:, :2] @ hulls.worth).sum()),
    )


def _refuse(problem: Problem, hulls: Hulls) -> UnattainableError:
    """Return the error of bounds that no rule keeps."""
    rows = problem.write(problem.intervals)
    relaxed = hulls.relax(rows)
    owners = np.unique(rows.owner[relaxed.price > 1e-7]).tolist()
    names = [str(problem.bounds[k]) for k in owners] or [*map(str, problem.bounds)]
    kept = f"{' and '.join(names)} on the fitted rows."
    if -relaxed.value <= ROUNDING:
        return UnattainableError(
            f"No rule was found that keeps {kept}",
            "Loosen one of them, or let thresholds be drawn where they are not.",
        )
    return UnattainableError(
        f"No rule keeps {kept}", f"Loosen them: by {-relaxed.value:.4g} all of them can be kept."
    )
