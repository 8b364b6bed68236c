"""Linear programmes on the hulls of ROC curves, whose vertices enter as their prices say.

    max Σ_c α TP_c − β FP_c   s.t.   Σ_c a_rc TP_c + b_rc FP_c + Σ_j d_rj z_j ≤ e_r   for all rows r

(TP_c, FP_c) lies in the convex hull of the points of cell c's thresholds: that is what draws among
them reach. z_j in [0, 1] are ends of ranges in which rates lie. Some vertices of each cell are
enough: with multipliers π ≥ 0

    D(π) = Σ_c max_v (gain_cv − Σ_r π_r (a_rc TP_cv + b_rc FP_cv)) + π e + Σ_j max(0, −(dᵀπ)_j)

bounds every draw from above, the best vertex of each cell enters with some around it, and it ends
where the bound is reached. Criteria need the upper hull alone; a cap on what is good, or a range of
cuts, needs the lower one, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_array, csr_array, hstack

from fairfrontier.models.thresholds.curve import Curve, Gain, find_hull
from fairfrontier.models.thresholds.threshold import TOLERANCE

# Vertices of each hull in the first programme, and programmes at most.
COLUMNS = 24
ROUNDS = 100
# Vertices that enter lie so far from the best one.
REACH = np.array([0, *(sign * 4**i for i in range(10) for sign in (-1, 1))])
# Cuts so far from a draw may stand in for it.
NEAR = 2
DENSE = 10_000
OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# A relaxation that is rounding.
NO_SLACK = 1e-8


class Draw(NamedTuple):
    """Cuts of one cell, ascending, and the probabilities with which one of them is used."""

    cuts: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a programme: factors a and b, (n_rows, n_cells), d, (n_rows, n_ends), and limits e.

    ``owner``, int64 (n_rows,), says what each row is of.
    """

    true: np.ndarray
    false: np.ndarray
    ends: np.ndarray
    limit: np.ndarray
    owner: np.ndarray


class RowWriter:
    """Collects rows on sums over cells, whose positives and negatives are ``totals``, (n, 2)."""

    def __init__(self, totals: np.ndarray) -> None:
        self.totals = totals
        self.rows: list[tuple[np.ndarray, Mapping[int, float], float, int]] = []
        self.n_ends, self.owner = 0, 0

    def add(
        self,
        *terms: tuple[np.ndarray, np.ndarray],
        most: float = 0.0,
        ends: Mapping[int, float] | None = None,
    ) -> None:
        """Bound Σ factors · (TP, FP, P, N) over the cells of each term, and d · z, by ``most``.

        A term is four factors and a mask of cells, float64 (n_cells,).
        """
        weights = sum(mask[:, None] * factors for factors, mask in terms)
        fixed = float((weights[:, 2:] * self.totals).sum())
        self.rows.append((weights[:, :2], ends or {}, most - fixed, self.owner))

    def gather(self) -> Rows:
        """Return what was collected."""
        weights = np.array([row[0] for row in self.rows]).reshape(-1, len(self.totals), 2)
        ends = np.zeros((len(self.rows), self.n_ends))
        for i, row in enumerate(self.rows):
            ends[i, [*row[1]]] = [*row[1].values()]
        limit = np.array([row[2] for row in self.rows])
        owner = np.array([row[3] for row in self.rows], dtype=np.int64)
        return Rows(weights[..., 0], weights[..., 1], ends, limit, owner)


class Reached(NamedTuple):
    """Draws, TP and FP of each cell, (n_cells, 2), their scaled gain, and the least D found.

    ``price`` has π of each row, and ``charge`` what TP and FP of a cell cost by it, (n_cells, 2).
    """

    draws: list[Draw]
    counts: np.ndarray
    value: float
    dual: float
    price: np.ndarray
    charge: np.ndarray


class Hulls:
    """Vertices of curves as columns of programmes; those that entered one stay for the next.

    Gains are scaled, so that the largest possible one is 1: ``scale`` is what 1 stands for, and
    ``worth`` what TP and FP gain. ``both`` says whether vertices of lower hulls are among them, and
    ``spans`` has the first and the last cut of each cell.
    """

    def __init__(self, curves: Sequence[Curve], gain: Gain, *, both: bool = False) -> None:
        self.curves = curves
        self.totals = np.array([(each.positive[-1], each.negative[-1]) for each in curves])
        self.spans = [(0, each.positive.size - 1) for each in curves]
        positive, negative = self.totals.sum(axis=0)
        self.scale = float(gain.positive * positive + gain.negative * negative) or 1.0
        self.worth = np.array([gain.positive, -gain.negative]) / self.scale
        self.vertices = [
            find_hull(np.diff(each.positive), np.diff(each.negative), both=True)
            if both
            else each.hull
            for each in curves
        ]
        self.points = [self.place(c, cuts) for c, cuts in enumerate(self.vertices)]
        self.columns = [self._choose_columns(each) for each in self.points]

    def place(self, cell: int, cuts: np.ndarray) -> np.ndarray:
        """Return TP and FP of some cuts of a cell, (n_cuts, 2)."""
        curve = self.curves[cell]
        return np.column_stack([curve.positive[cuts], curve.negative[cuts]])

    def narrow(self, cell: int, first: int, last: int) -> Self:
        """Return hulls with the cuts from ``first`` to ``last`` of a cell alone."""
        made, curve = copy(self), self.curves[cell]
        made.spans, made.vertices, made.points, made.columns = (
            [*each] for each in (self.spans, self.vertices, self.points, self.columns)
        )
        here = slice(first, last + 1)
        made.spans[cell] = first, last
        made.vertices[cell] = first + find_hull(
            np.diff(curve.positive[here]), np.diff(curve.negative[here]), both=True
        )
        made.points[cell] = self.place(cell, made.vertices[cell])
        made.columns[cell] = self._choose_columns(made.points[cell])
        return made

    def find_near(self, cell: int, point: np.ndarray) -> int:
        """Return the cut of a cell that chooses as many as TP and FP, or the last with fewer."""
        curve, mass = self.curves[cell], float(point.sum())
        (first, last) = self.spans[cell]
        chosen = curve.positive[first : last + 1] + curve.negative[first : last + 1]
        return first + max(int(np.searchsorted(chosen, mass + TOLERANCE, side="right")) - 1, 0)

    def list_near(self, cell: int, draw: Draw, point: np.ndarray) -> np.ndarray:
        """Return cuts near a draw that reaches TP and FP, ascending."""
        if draw.cuts.size == 1:
            return draw.cuts
        first, last = self.spans[cell]
        near = self.find_near(cell, point) + np.arange(-NEAR, NEAR + 1)
        near = near[(near >= first) & (near <= last)]
        return np.union1d(near, draw.cuts)

    def choose_share(self, share: float) -> Reached:
        """Return the cuts that choose none or all, by a share of 0 or 1."""
        return self._reach(
            [(np.array([round(share * (each.size - 1))]), np.ones(1)) for each in self.vertices]
        )

    def _choose_columns(self, points: np.ndarray) -> np.ndarray:
        spread = np.linspace(0, len(points) - 1, min(COLUMNS, len(points)))
        return np.union1d(spread.astype(np.int64), (points @ self.worth).argmax())

    def solve(self, rows: Rows) -> Reached | None:
        """Return the best draws under some rows; None where there are none."""
        if not len(rows.limit):
            best = [np.array([(each @ self.worth).argmax()]) for each in self.points]
            free = self._reach([(each, np.ones(1)) for each in best])
            return free._replace(dual=free.value)
        found = self._generate(rows, self.worth)
        if found is None and self.relax(rows).value > -NO_SLACK:
            # Columns of the relaxation make some draws feasible.
            found = self._generate(rows, self.worth)
        return found

    def relax(self, rows: Rows) -> Reached:
        """Return draws for the least number by which all rows have to give way, as −value."""
        found = self._generate(rows, np.zeros(2), slack=1)
        if found is None:
            raise ArithmeticError("the relaxed programme of the thresholds has no solution")
        return found

    def _generate(self, rows: Rows, worth: np.ndarray, slack: int = 0) -> Reached | None:
        n_cells, n_ends = len(self.points), rows.ends.shape[1]
        # Of many cells almost all factors are 0; of few a dense matrix is made faster.
        many = len(rows.limit) * n_cells > DENSE
        true, false = (csc_array(each) if many else each for each in (rows.true, rows.false))
        whole = np.hstack([rows.ends, np.full((len(rows.limit), slack), -1.0)])
        least, price, charge = np.inf, np.zeros(len(rows.limit)), np.zeros((n_cells, 2))
        for _ in range(ROUNDS):
            sizes = [each.size for each in self.columns]
            owner, size = np.repeat(np.arange(n_cells), sizes), sum(sizes)
            pairs = zip(self.points, self.columns, strict=True)
            points = np.concatenate([own[each] for own, each in pairs])
            matrix = true[:, owner] * points[:, 0] + false[:, owner] * points[:, 1]
            shares = csr_array(
                (np.ones(size), (owner, np.arange(size))), shape=(n_cells, size + n_ends + slack)
            )
            solved = linprog(
                np.concatenate([-(points @ worth), np.zeros(n_ends), np.ones(slack)]),
                (hstack if many else np.hstack)([matrix, whole]), rows.limit,
                shares if many else shares.toarray(),
                np.ones(n_cells),
                bounds=[(0.0, None)] * size + [(0.0, 1.0)] * n_ends + [(0.0, None)] * slack,
                method="highs-ds",
                options=OPTIONS,
            )  # fmt: skip
            if solved.x is None:
                return None
            prices = np.maximum(-solved.ineqlin.marginals, 0.0)
            if slack:
                # Prices that add up to at most 1 bound the relaxation.
                prices /= max(1.0, prices.sum())
            charged = np.column_stack([prices @ rows.true, prices @ rows.false])
            dual = float(prices @ rows.limit + np.maximum(-(prices @ rows.ends), 0.0).sum())
            larger = []
            for own, cost, before in zip(self.points, charged, self.columns, strict=True):
                gains = own @ (worth - cost)
                best = int(gains.argmax())
                dual += float(gains[best])
                around = best + REACH
                larger.append(np.union1d(before, around[(around >= 0) & (around < len(own))]))
            if dual < least:
                least, price, charge = dual, prices, charged
            found = np.split(solved.x[:size], np.cumsum(sizes)[:-1])
            reached = self._reach(list(zip(self.columns, found, strict=True)))
            reached = reached._replace(dual=least, price=price, charge=charge)
            if slack:
                reached = reached._replace(value=-float(solved.fun))
            grown = any(a.size > b.size for a, b in zip(larger, self.columns, strict=True))
            if least - reached.value <= TOLERANCE or not grown:
                break
            self.columns = larger
        return reached

    def _reach(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Reached:
        """Return draws of vertices with their shares."""
        draws, counts = [], np.zeros((len(pairs), 2))
        for c, (vertices, share) in enumerate(pairs):
            used = share > TOLERANCE
            vertices, share = vertices[used], share[used] / share[used].sum()
            counts[c] = share @ self.points[c][vertices]
            draws.append(Draw(self.vertices[c][vertices], share))
        value = float((counts @ self.worth).sum())
        return Reached(draws, counts, value, math.inf, np.zeros(0), np.zeros_like(counts))
