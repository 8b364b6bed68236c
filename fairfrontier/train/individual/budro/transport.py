"""BuDRO's transport problem: where the worst case moves the training rows, at a budget.

    max_Π ⟨R, Π⟩   s.t.  Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                         (2.8)
    min_{η≥0} M(η) = ηε + Σ_j m_j max_i (R_ij − η C_ij)                       (B.14)

C_ij = ‖z_i − z_j‖², and R_ij = loss of row i under the label of column j, so there are only as
many loss vectors as labels. Everything here is array code over one namespace of the array API.

References
----------
A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
Sections 2.2 and 4, Appendix B.2 (Algorithms 2 and 7).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import segment_sum, to_numpy
from fairfrontier.train.individual.budro.dual import Minimum, Piece, descend_dual, minimise_dual
from fairfrontier.train.individual.budro.envelope import Envelope, Lines, trace_lines
from fairfrontier.train.individual.budro.geometry import Geometry, sample_columns
from fairfrontier.train.individual.budro.search import Search, has_many_pairs

Array = Any

# Share of the columns on which a first round seeks η where pairs are many.
COLD_SHARE = 0.05
# Share by which the price of a step may differ from what was expected, and steps that are looked
# at together where little is.
NEAR = 0.05
AHEAD = 16


@dataclass(frozen=True, eq=False)
class Transport:
    """What every solver returns: a map, and the certificate of its quality.

    Attributes
    ----------
    eta : float
        Dual variable; infinite where the budget is 0.
    objective : float
        ⟨R, Π⟩ of the map.
    dual_value : float
        Smallest M(η) seen: an upper bound of the optimum.
    cost : float
        ⟨C, Π⟩ of the map, to be compared with the budget.
    iterations : int
        Full passes over the columns, stochastic steps, or the linear programme's pivots.
    converged : bool
        Whether the gap met the tolerance; always true for the stochastic solver's fixed steps.
    weight : float64 array of shape (n_samples, n_labels)
        w(x_i, k) = Σ_j Π_ij 1{y_j = k}; sums to the total mass. Coincident rows that tie share
        equally, so that the next tree does not depend on the order of rows.
    destination : int64 array of shape (n_maps, n_columns)
        Points that each merged column moves to. Of an entropic solver: its likeliest points, which
        only a part of the mass follows; `solver.plan_columns` gives the whole.
    share : tuple of float
        Share of every column's mass that follows each of those maps.
    etas : tuple of float
        η of each of those maps.
    entropy_weight : float
        γ of an entropic solver, else 0.
    path : tuple of float
        Of ``solve_sgd``: η before each step.
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

    @property
    def gap(self) -> float:
        """Duality gap M(η) − ⟨R, Π⟩; at least 0 for a map within the budget, up to rounding."""
        return self.dual_value - self.objective


def finish(search: Search, found: Minimum) -> Transport:
    """Return the map of a minimum, with the weights that it gives the rows."""
    xp, geometry = search.xp, search.geometry
    n_points = geometry.point.shape[0]
    columns, arriving = [], []
    for first, last in geometry.columns:
        mass = geometry.column_mass[first:last]
        came = (
            share * segment_sum(mass, each.target[first:last], n_points)
            for share, each in found.maps
        )
        arriving.append(sum(came))
    arrived = geometry.add_up(xp.stack(arriving))
    for label in range(geometry.n_labels):
        level = xp.take(search.level[label], geometry.row_point)
        worst = xp.astype(search.loss[:, label] == level, mass.dtype)
        winners = segment_sum(worst, geometry.row_point, n_points)
        columns.append(worst * xp.take(arrived[label, :] / winners, geometry.row_point))
    return Transport(
        eta=found.eta,
        objective=found.objective,
        dual_value=found.dual + found.slack,
        cost=found.cost,
        iterations=found.iterations,
        converged=found.converged,
        weight=xp.stack(columns, axis=1),
        destination=xp.stack([each.target for _, each in found.maps], axis=0),
        share=tuple(share for share, _ in found.maps),
        etas=tuple(each.eta for _, each in found.maps),
    )


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
    """Solve (2.8) by its one-dimensional dual, to a duality gap that is computed.

    Every pass over the columns gives an affine piece of M, and `minimise_dual` mixes two maps so
    that the cost is ε exactly. Where nothing binds (η* = 0) every column goes to its cheapest
    worst point and the budget is not used up.

    Parameters
    ----------
    geometry : Geometry
        What ``build_geometry`` returns.
    loss : float64 array of shape (n_samples, n_labels)
        ℓ(f(x_i), k) for every label k, on the same backend.
    budget : float
        ε ≥ 0, in squared units of the embedding.
    tolerance : float
        Stop when the gap is at most this share of what moving gains, M(η) − Σ_j m_j R_jj.
    start : Transport, optional
        The last round's solution on the same geometry: its η and map are where the search begins.
    column_share : float, optional
        Share of the columns, in (0, 1], on which η is sought before all of them are moved: fewer
        full passes, and within the tolerance another of the maps that meet it. By default
        COLD_SHARE without a ``start`` where pairs are many, else none.
    dtype : {"float32", "float64"}
        Of the products; points that these, with their error, leave open are compared in float64.
    max_iterations : int
        Passes at most.

    Returns
    -------
    Transport
        ``converged`` is False where the tolerance was not met after ``max_iterations``.

    Notes
    -----
    A pass is a product of augmented vectors, O(n² k) operations, of which bounds kept from earlier
    passes and rounds (see `bound`) leave some hundredths on NumPy, and a pass between two others
    looks only at columns that those leave open (see `envelope`). Memory is O(n) and a table of at
    most 512 MiB, which stays with the geometry. Of points that tie a column takes its own, else the
    first, see `tie`: the order of rows and the number of processes change no map, but where values
    differ by as much as the tolerance of ties, to rounding.
    """
    warm = start is not None and 0 < start.eta < float("inf")
    begin = (start.eta, start.destination[0, :]) if start is not None and warm else None
    if column_share is None and begin is None and has_many_pairs(geometry):
        column_share = COLD_SHARE
    search = Search(geometry, loss, dtype)
    free = search.move_freely(budget)
    if column_share is not None and free.slope < 0 < budget:
        some = Search(sample_columns(geometry, column_share), loss, dtype)
        eta = _minimise(some, some.move_freely(budget), None, tolerance / 10, max_iterations).eta
        if 0 < eta < float("inf"):
            begin = (eta, geometry.column_point if begin is None else begin[1])
    return finish(search, _minimise(search, free, begin, tolerance, max_iterations))


def _minimise(
    search: Search,
    free: Piece,
    begin: tuple[float, Array] | None,
    tolerance: float,
    max_iterations: int,
) -> Minimum:
    """Minimise M from the piece at η = 0 and, where there is one, a price and a map."""
    stay = search.stay(free.budget)
    return minimise_dual(
        Envelope(search, free, stay).explore,
        free,
        stay,
        start=begin,
        tolerance=tolerance,
        # Early in boosting all losses are nearly equal, and a share of M would be met by any map.
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
    """Approach the dual's minimum by the paper's stochastic subgradient steps, then move all.

    v ← μ v + (ε − mean_b C_{i(b),b}),  η ← max(0, η − α v), over batches b of columns; at the last
    η every column goes to its best row (Algorithm 2). The cost meets the budget only as far as the
    steps have carried η.

    Parameters
    ----------
    geometry, loss, budget, dtype
        As in ``solve_exact``.
    sample : int64 ndarray of shape (steps, batch_size)
        Row numbers of the columns that each step draws.
    eta : float
        η before the first step.
    momentum, learning_rate : float
        μ and α.
    start : Transport, optional
        The last round's solution: its map and path speed the search up and do not change η.

    Returns
    -------
    Transport
        One map; ``cost`` may be above or below ``budget``, and ``gap`` is only a bound of the
        suboptimality where it is not above.

    Notes
    -----
    O((steps · batch_size + n) n k) operations, most of which bounds save on NumPy as in
    ``solve_exact``. There the columns of all steps are moved at once, for prices around those of
    the same steps a round before; where the steps leave these, for some further steps.
    """
    search = Search(geometry, loss, dtype)
    held = geometry.column_point if start is None else start.destination[0, :]
    batches = Batches(search, sample, held, () if start is None else start.path)
    eta = descend_dual(
        batches.pay, sample, budget, eta=eta, momentum=momentum, learning_rate=learning_rate
    )
    final = search.move_all(eta, budget, batches.held)
    found = Minimum(((1.0, final),), eta, final.dual, sample.shape[0], True, final.slack)
    return replace(finish(search, found), path=tuple(batches.path))


class Batches:
    """What batches of columns pay at the prices of their steps.

    Where `search` has bounds, what is best for the columns of many steps is found at once, for
    prices within NEAR of those expected: in proportion to the last round's, or else the present
    one for some steps.

    Parameters
    ----------
    search : Search
        Of one round's losses.
    sample : int64 ndarray of shape (steps, batch_size)
        Row numbers of all batches.
    held : int64 array of shape (n_columns,)
        Points that the columns hold so far.
    expected : tuple of float
        Prices of the last round's steps; empty where there were none.

    Attributes
    ----------
    path : list of float
        Prices of the steps so far.
    """

    def __init__(
        self, search: Search, sample: np.ndarray, held: Array, expected: tuple[float, ...]
    ) -> None:
        self.search, self.held = search, held
        self.drawn = to_numpy(search.geometry.row_column)[sample]
        self.path: list[float] = []
        alike = len(expected) == len(sample) and min(expected, default=0.0) > 0
        self.expected = np.asarray(expected) if alike else None
        self.known: deque[tuple[float, float, np.ndarray]] = deque()
        self.lines: Lines | None = None

    def _look_ahead(self, eta: float) -> None:
        """Find what is best for the columns of the next steps near the prices expected."""
        search, step = self.search, len(self.path)
        if search.bounds is not None and search.bounds.blank:
            self.held = search.move_columns(None, self.held, eta)
        prices = np.full(min(AHEAD, len(self.drawn) - step), eta)
        if self.expected is not None:
            stop = step + AHEAD if step else len(self.drawn)
            prices = eta * self.expected[step:stop] / self.expected[step]
        low, high = (1 - NEAR) * prices, (1 + NEAR) * prices
        drawn = self.drawn[step : step + prices.size]
        # Column by column, as `search` wants them; another process moves those below 0.
        order = np.argsort(drawn, axis=None, kind="stable")
        order = order[np.count_nonzero(drawn < 0) :]
        owner, column = order // drawn.shape[1], drawn.ravel()[order]
        held = self.held[column]
        self.lines = trace_lines(search, column, held, low[owner], high[owner])
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
            chosen = xp.asarray(drawn[drawn >= 0], device=device(self.held))
            target = search.move_columns(chosen, xp.take(self.held, chosen), eta)
            paid = xp.sum(search.weigh(target, chosen)[1])
        self.path.append(eta)
        return float(geometry.add_up(paid)) / rows.size
