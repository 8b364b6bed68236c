"""BuDRO's transport problem: where the worst case moves the training rows, at a budget.

    max_Π ⟨R, Π⟩   s.t.  Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                         (2.8)
    min_{η≥0} M(η) = ηε + Σ_j m_j max_i (R_ij − η C_ij)                       (B.14)

C_ij = ‖z_i − z_j‖², and R_ij = loss of row i under the label of column j, so there are only as
many loss vectors as labels. All is array code over one namespace of the array API.

References
----------
A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
Sections 2.2 and 4, Appendix B.2 (Algorithms 2 and 7).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import segment_sum, to_numpy
from fairfrontier.train.individual.budro.dual import Minimum, Piece, descend_dual, minimise_dual
from fairfrontier.train.individual.budro.envelope import Envelope, Lines, trace_lines
from fairfrontier.train.individual.budro.geometry import Geometry, sample_columns
from fairfrontier.train.individual.budro.search import Search, has_many_pairs

Array = Any

# Share of the columns on which a first round seeks η if pairs are many.
COLD_SHARE = 0.05
# Relative difference of a step's price from the expected one, and steps that are prepared together
# if the last round had no such steps.
NEAR = 0.05
AHEAD = 16


@dataclass(frozen=True, eq=False)
class Transport:
    """The map that a solver found, with its certificate.

    Attributes
    ----------
    eta : float
        Dual variable; infinite where the budget is 0.
    objective, cost : float
        ⟨R, Π⟩ and ⟨C, Π⟩ of the map.
    dual_value : float
        Smallest M(η) found: an upper bound of the optimum.
    iterations : int
        Passes over all columns, stochastic steps, or pivots of the linear programme.
    converged : bool
        Whether the gap met the tolerance; always true for the stochastic solvers.
    weight : float64 array of shape (n_samples, n_labels)
        w(x_i, k) = Σ_j Π_ij 1{y_j = k}; sums to the total mass. Coincident rows that tie share
        equally, so that the next tree does not depend on the order of rows.
    destination : int64 array of shape (n_maps, n_columns)
        Points that each merged column moves to; the likeliest ones of an entropic solver, whose map
        `solver.plan_columns` returns.
    share, etas : tuple of float
        Share of every column's mass that follows each of those maps, and its η.
    entropy_weight : float
        γ of an entropic solver, else 0.
    path : tuple of float
        η before each step of ``solve_sgd``.
    """

    eta: float
    objective: float
    dual_value: float
    cost: float
    iterations: int
    converged: bool
    weight: Array
    destination: Array
    share: tuple[float, ...]
    etas: tuple[float, ...] = ()
    entropy_weight: float = 0.0
    path: tuple[float, ...] = ()

    @classmethod
    def of(cls, minimum: Minimum, weight: Array, destination: Array) -> Self:
        """Return a minimum of the dual with the weights of the rows and where columns go."""
        return cls(
            eta=minimum.eta,
            objective=minimum.objective,
            dual_value=minimum.dual + minimum.slack,
            cost=minimum.cost,
            iterations=minimum.iterations,
            converged=minimum.converged,
            weight=weight,
            destination=destination,
            share=tuple(share for share, _ in minimum.maps),
            etas=tuple(piece.eta for _, piece in minimum.maps),
        )

    def resume(self) -> tuple[float, Array] | None:
        """Return the η and the map at which the next round begins, unless η is 0 or infinite."""
        return (self.eta, self.destination[0, :]) if 0 < self.eta < float("inf") else None

    @property
    def gap(self) -> float:
        """Duality gap M(η) − ⟨R, Π⟩, ≥ 0 up to rounding for a map within the budget."""
        return self.dual_value - self.objective


def finish(search: Search, minimum: Minimum) -> Transport:
    """Return the map of a minimum, with the weights of the rows."""
    xp, geometry = search.xp, search.geometry
    n_points = geometry.point.shape[0]
    columns, arriving = [], []
    for first, last in geometry.columns:
        mass = geometry.column_mass[first:last]
        came = (
            share * segment_sum(mass, piece.target[first:last], n_points)
            for share, piece in minimum.maps
        )
        arriving.append(sum(came))
    arrived = geometry.add_up(xp.stack(arriving))
    for label in range(geometry.n_labels):
        level = xp.take(search.level[label], geometry.row_point)
        worst = xp.astype(search.loss[:, label] == level, mass.dtype)
        winners = segment_sum(worst, geometry.row_point, n_points)
        columns.append(worst * xp.take(arrived[label, :] / winners, geometry.row_point))
    destination = xp.stack([piece.target for _, piece in minimum.maps], axis=0)
    return Transport.of(minimum, xp.stack(columns, axis=1), destination)


def solve_exact(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    tolerance: float = 1e-3,
    start: Transport | None = None,
    column_share: float | None = None,
    dtype: str = "float32",
    max_iterations: int = 100,
) -> Transport:
    """Solve (2.8) by its one-dimensional dual, to a computed duality gap.

    Every pass over the columns gives an affine piece of M, and `minimise_dual` mixes two maps so
    that the cost is ε exactly. Where nothing binds (η* = 0) every column goes to its cheapest
    worst point and the budget is not used up.

    ``loss`` holds ℓ(f(x_i), k), (n_samples, n_labels). The search stops when the gap is at most
    ``tolerance`` times what moving gains, M(η) − Σ_j m_j R_jj, or unconverged after
    ``max_iterations`` passes. It begins at the η and map of ``start``, the last round's solution.
    With a ``column_share`` η is first sought on that share of the columns: fewer full passes, and
    within the tolerance another of the maps that meet it; COLD_SHARE by default if pairs are many
    and there is no ``start``. ``dtype`` is that of the products, see `Search`.

    A pass is a product of augmented vectors, O(n² k) operations, of which bounds kept from earlier
    passes and rounds (see `bound`) leave some hundredths on NumPy, and a pass between two others
    moves only columns that those leave open (see `envelope`). Memory is O(n) and a table of at most
    512 MiB, kept with the geometry. The order of rows and the number of processes change no map,
    but for values that differ by just the tolerance of ties (see `tie`), to rounding.
    """
    begin = None if start is None else start.resume()
    if column_share is None and begin is None and has_many_pairs(geometry):
        column_share = COLD_SHARE
    search = Search(geometry, loss, dtype)
    # Without a budget nothing moves, whatever is best elsewhere.
    free = search.move_freely(budget) if budget > 0 else search.stay(budget)
    if column_share is not None and free.slope < 0 < budget:
        eta = seek_price(
            geometry,
            loss,
            budget,
            share=column_share,
            tolerance=tolerance / 10,
            dtype=dtype,
            max_iterations=max_iterations,
        )
        if 0 < eta < float("inf"):
            begin = (eta, geometry.column_point if begin is None else begin[1])
    return finish(search, _minimise(search, free, begin, tolerance, max_iterations))


def seek_price(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    share: float,
    tolerance: float,
    dtype: str,
    max_iterations: int,
    start: float | None = None,
) -> float:
    """Return the η of the problem of a share of the columns, from ``start`` if there is one."""
    sample = Search(sample_columns(geometry, share), loss, dtype)
    begin = None if start is None else (start, sample.geometry.column_point)
    free = sample.move_freely(budget)
    return _minimise(sample, free, begin, tolerance, max_iterations).eta


def _minimise(
    search: Search,
    free: Piece,
    begin: tuple[float, Array] | None,
    tolerance: float,
    max_iterations: int,
) -> Minimum:
    """Minimise M from the piece at η = 0 or from a price and a map."""
    stay = search.stay(free.budget)
    return minimise_dual(
        Envelope(search, free, stay).explore,
        free,
        stay,
        start=begin,
        tolerance=tolerance,
        # Early in boosting all losses are nearly equal, and any map would meet a share of M.
        floor=stay.gain,
        max_iterations=max_iterations,
    )


def solve_sgd(
    geometry: Geometry,
    loss: Array,
    budget: float,
    *,
    sample: np.ndarray,
    eta: float = 0.1,
    momentum: float = 0.9,
    learning_rate: float = 1e-4,
    start: Transport | None = None,
    dtype: str = "float32",
) -> Transport:
    """Approach the dual's minimum by stochastic subgradient steps, then move all (Algorithm 2).

    v ← μ v + (ε − mean_b C_{i(b),b}),  η ← max(0, η − α v), over batches b of columns: the row
    numbers ``sample``, (steps, batch_size). μ is ``momentum`` and α ``learning_rate``. At the last
    η every column goes to its best row. The cost may be above or below the budget, and ``gap``
    bounds the suboptimality only if it is not above. ``start`` saves work and does not change η.

    O((steps · batch_size + n) n k) operations, most of which bounds save on NumPy as in
    ``solve_exact``. There the columns of all steps are moved at once, for prices around those of
    the same steps a round before; if the steps leave these, for some further steps.
    """
    search = Search(geometry, loss, dtype)
    target = geometry.column_point if start is None else start.destination[0, :]
    batches = Batches(search, sample, target, () if start is None else start.path)
    eta = descend_dual(
        batches.pay, sample, budget, eta=eta, momentum=momentum, learning_rate=learning_rate
    )
    final = search.move_all(eta, budget, batches.start)
    minimum = Minimum(((1.0, final),), eta, final.dual, sample.shape[0], True, final.slack)
    return replace(finish(search, minimum), path=tuple(batches.path))


class Batches:
    """The costs of batches of columns at the prices of their steps.

    If `search` has bounds, what is best for the columns of many steps is found at once, for prices
    within NEAR of the expected ones: proportional to the last round's, ``expected``, or else the
    present price for some steps. ``path`` collects the prices of the steps so far.
    """

    def __init__(
        self, search: Search, sample: np.ndarray, start: Array, expected: tuple[float, ...]
    ) -> None:
        self.search, self.start = search, start
        self.drawn = to_numpy(search.geometry.row_column)[sample]
        self.path: list[float] = []
        alike = len(expected) == len(sample) and min(expected, default=0.0) > 0
        self.expected = np.asarray(expected) if alike else None
        self.known: deque[tuple[float, float, np.ndarray]] = deque()
        self.lines: Lines | None = None

    def _look_ahead(self, eta: float) -> None:
        """Find what is best for the columns of the next steps near the expected prices."""
        search, step = self.search, len(self.path)
        if search.bounds is not None and search.bounds.blank:
            self.start = search.move_columns(None, self.start, eta)
        prices = np.full(min(AHEAD, len(self.drawn) - step), eta)
        if self.expected is not None:
            stop = step + AHEAD if step else len(self.drawn)
            prices = eta * self.expected[step:stop] / self.expected[step]
        low, high = (1 - NEAR) * prices, (1 + NEAR) * prices
        drawn = self.drawn[step : step + prices.size]
        # In order of columns, as `search` requires; those below 0 belong to other processes.
        order = np.argsort(drawn, axis=None, kind="stable")
        order = order[np.count_nonzero(drawn < 0) :]
        owner, column = order // drawn.shape[1], drawn.ravel()[order]
        start = self.start[column]
        self.lines = trace_lines(search, column, start, low[owner], high[owner])
        places = np.split(
            np.argsort(owner, kind="stable"),
            np.cumsum(np.bincount(owner, minlength=prices.size))[:-1],
        )
        self.known = deque(zip(low, high, places, strict=True))

    def pay(self, rows: np.ndarray, eta: float) -> float:
        """Return the mean cost of the next batch at η."""
        search, geometry = self.search, self.search.geometry
        low, high, places = self.known.popleft() if self.known else (1.0, 0.0, rows)
        if not low <= eta <= high and search.bounds is not None and eta > 0:
            self._look_ahead(eta)
            low, high, places = self.known.popleft()
        if self.lines is not None and low <= eta <= high:
            paid = np.sum(self.lines.choose(places, eta)[1])
        else:
            xp, drawn = search.xp, np.sort(self.drawn[len(self.path)])
            chosen = xp.asarray(drawn[drawn >= 0], device=device(self.start))
            target = search.move_columns(chosen, xp.take(self.start, chosen), eta)
            paid = xp.sum(search.weigh(target, chosen)[1])
        self.path.append(eta)
        return float(geometry.add_up(paid)) / rows.size
