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

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import device

from tasks.runtime.arrays import segment_sum, to_numpy
from tasks.train.individual.budro.dual import Minimum, descend_dual, minimise_dual
from tasks.train.individual.budro.envelope import Envelope, Lines, trace_lines
from tasks.train.individual.budro.geometry import Geometry, sample_columns
from tasks.train.individual.budro.search import Search

Array = Any


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
        dual_value=found.dual,
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
        full passes, and within the tolerance another of the maps that meet it.
    dtype : {"float32", "float64"}
        Of the products that propose moves; what a move gains and costs is float64.
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
    most 512 MiB, which stays with the geometry. With ``dtype="float32"`` the dual value may be low
    by some 1e-6 of the largest squared norm × η.
    """
    search = Search(geometry, loss, dtype)
    free = search.move_freely(budget)
    warm = start is not None and 0 < start.eta < float("inf")
    begin = (start.eta, start.destination[0, :]) if start is not None and warm else None
    if column_share is not None and free.slope < 0 < budget:
        some = sample_columns(geometry, column_share)
        eta = solve_exact(some, loss, budget, tolerance=tolerance / 10, dtype=dtype).eta
        if eta > 0:
            begin = (eta, geometry.column_point if begin is None else begin[1])
    stay = search.stay(budget)
    found = minimise_dual(
        Envelope(search, free, stay).explore,
        free,
        stay,
        start=begin,
        tolerance=tolerance,
        # Early in boosting all losses are nearly equal, and a share of M would be met by any map.
        floor=stay.gain,
        max_iterations=max_iterations,
    )
    return finish(search, found)


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
        The last round's solution: its map speeds the search up and does not change η.

    Returns
    -------
    Transport
        One map; ``cost`` may be above or below ``budget``, and ``gap`` is only a bound of the
        suboptimality where it is not above.

    Notes
    -----
    O((steps · batch_size + n) n k) operations, most of which bounds save on NumPy as in
    ``solve_exact``. There the drawn columns are moved at once: what is best for them at any price
    between the first one and where the last round ended is known before the first step.
    """
    search = Search(geometry, loss, dtype)
    held = geometry.column_point if start is None else start.destination[0, :]
    batches = Batches(search, sample, held, _expect_interval(eta, start))
    eta = descend_dual(
        batches.pay, sample, budget, eta=eta, momentum=momentum, learning_rate=learning_rate
    )
    final = search.move_all(eta, budget, batches.choose(eta))
    return finish(
        search, Minimum(((1.0, final),), eta, final.dual, sample.shape[0], converged=True)
    )


def _expect_interval(eta: float, start: Transport | None) -> tuple[float, float]:
    """Return prices between which the steps are likely to stay."""
    ends = (eta,) if start is None or not 0 < start.eta < float("inf") else (eta, start.eta)
    return 0.97 * min(ends), 1.03 * max(ends)


class Batches:
    """What batches of columns pay at the prices of their steps.

    Parameters
    ----------
    search : Search
        Of one round's losses.
    sample : int64 ndarray of shape (steps, batch_size)
        Row numbers of all batches.
    held : int64 array of shape (n_columns,)
        Points that the columns hold so far.
    interval : (low, high)
        Where what is best for the drawn columns is found in advance, where `search` has bounds.
    """

    def __init__(
        self, search: Search, sample: np.ndarray, held: Array, interval: tuple[float, float]
    ) -> None:
        self.search, self.held = search, held
        self.row_column = to_numpy(search.geometry.row_column)
        self.lines: Lines | None = None
        drawn = np.unique(self.row_column[sample])
        self.drawn = drawn[drawn >= 0]
        if search.bounds is not None and interval[0] > 0 and self.drawn.size:
            if search.bounds.blank:
                self.held = search.move_columns(None, held, interval[0])
            begin = self.held[self.drawn]
            self.lines = trace_lines(search, self.drawn, begin, *interval)

    def _known(self, eta: float) -> Lines | None:
        lines = self.lines
        return lines if lines is not None and lines.low <= eta <= lines.high else None

    def pay(self, rows: np.ndarray, eta: float) -> float:
        """Return the mean cost of a batch at η."""
        search, geometry = self.search, self.search.geometry
        xp, lines = search.xp, self._known(eta)
        drawn = np.sort(self.row_column[rows])
        drawn = drawn[drawn >= 0]
        if lines is not None:
            paid = np.sum(lines.choose(np.searchsorted(self.drawn, drawn), eta)[1])
        else:
            chosen = xp.asarray(drawn, device=device(self.held))
            target = search.move_columns(chosen, xp.take(self.held, chosen), eta)
            paid = xp.sum(search.weigh(target, chosen)[1])
        return float(geometry.add_up(paid)) / rows.size

    def choose(self, eta: float) -> Array:
        """Return a map to start from at η: the best one as far as it is known."""
        lines = self._known(eta)
        if lines is None:
            return self.held
        target = self.held.copy()
        target[self.drawn] = lines.choose(np.arange(self.drawn.size), eta)[0]
        return target
