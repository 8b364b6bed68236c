"""Maps of rows that are best at some price of the fair distance, and what they give any budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairfrontier.train.individual.budro.geometry import build_geometry
from fairfrontier.train.individual.budro.search import Search

# Passes over the rows at most, for the sample and, beyond those, for its draws.
SAMPLE_PASSES, DRAW_PASSES = 100, 25
# Counts that are turned into float64 at a time: 32 MiB.
TILE = 1 << 22


class PriceMaps:
    """The maps that are best at some prices η, the dearest first.

    At η every row j becomes the row i of the largest R_ij − η C_ij, whatever the masses are: the
    same maps serve every weighting of the rows.

    Parameters
    ----------
    z : float64 array of shape (n, k)
        Embedded rows: C_ij = ‖z_i − z_j‖².
    label : int64 array of shape (n,)
        Codes 0..K-1.
    losses : float64 array of shape (n, K)
        R_ij = losses[i, y_j].
    weight : float64 array of shape (n,)
        Above 0.

    Attributes
    ----------
    own : float64 ndarray of shape (n,)
        R_jj.
    eta : list of float
        Prices, from ∞ (rows become what coincides with them) down to 0.
    target : list of int64 ndarray
        Points that the merged columns move to.
    gain, cost : list of float64 ndarray of shape (n,)
        R_ij − R_jj and C_ij of every row.
    """

    def __init__(
        self, z: np.ndarray, label: np.ndarray, losses: np.ndarray, weight: np.ndarray
    ) -> None:
        self.geometry = build_geometry(z, label, n_labels=losses.shape[1], mass=weight)
        self.search = Search(self.geometry, losses, "float32")
        self.label, self.weight = label, weight
        self.own = losses[np.arange(len(label)), label]
        self.eta: list[float] = []
        self.target: list[np.ndarray] = []
        self.gain: list[np.ndarray] = []
        self.cost: list[np.ndarray] = []
        # Within budget 0 a row may only become one that coincides with it.
        self._keep(float("inf"), self.geometry.column_point)
        self._keep(0.0, self.search.move_freely(0.0).target)

    def _keep(self, eta: float, target: np.ndarray) -> int:
        found = [
            self.search.value(k, self.geometry.column_point[a:b], target[a:b])
            for k, (a, b) in enumerate(self.geometry.columns)
        ]
        gain, cost = (np.concatenate(each) for each in zip(*found, strict=True))
        place = int(np.sum(np.asarray(self.eta) > eta))
        self.eta.insert(place, eta)
        self.target.insert(place, target)
        self.gain.insert(place, gain[self.geometry.row_column] - self.own)
        self.cost.insert(place, cost[self.geometry.row_column])
        return place

    def name_rows(self, target: np.ndarray) -> np.ndarray:
        """Return the first row of the largest loss at every row's target point."""
        found = np.empty(len(self.label), dtype=np.int64)
        points = target[self.geometry.row_column]
        for k in range(self.geometry.n_labels):
            worst = np.lexsort((-self.search.loss[:, k], self.geometry.row_point))
            first = worst[np.searchsorted(self.geometry.row_point[worst], points)]
            found = np.where(self.label == k, first, found)
        return found

    def settle(
        self, counts: np.ndarray, budgets: Sequence[float], tolerance: float, passes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return values and upper bounds, shape (n_draws, n_budgets); add maps where they part.

        Parameters
        ----------
        counts : uint16 array of shape (n_draws, n)
            How often each draw has each row.
        tolerance : float
            Largest distance of the two, as a share of the bound, that needs no further map.
        passes : int
            Further maps at most.
        """
        if counts.size <= TILE:
            counts = counts.astype(np.float64)
        sums = self._sum(counts, [np.ones(len(self.weight)), *self.gain, *self.cost])
        total = sums[:, :1]
        gain, cost = np.split(sums[:, 1:] / total, 2, axis=1)
        for _ in range(passes + 1):
            read = [_read_hull(np.array(self.eta), gain, cost, each) for each in budgets]
            value, upper, price = (np.stack(each, axis=1) for each in zip(*read, strict=True))
            apart = np.where(np.isin(price, self.eta), 0.0, upper - value)
            apart = np.divide(apart, upper, out=np.zeros_like(upper), where=upper > 1e-15)
            if apart.max() <= tolerance or len(self.eta) > SAMPLE_PASSES + DRAW_PASSES:
                break
            eta = float(price[np.unravel_index(np.argmax(apart), apart.shape)])
            nearest_known = self.target[int(np.sum(np.asarray(self.eta) > eta)) - 1]
            place = self._keep(eta, self.search.move_all(eta, 0.0, nearest_known).target)
            more = self._sum(counts, [self.gain[place], self.cost[place]]) / total
            gain, cost = (
                np.insert(old, place, new, axis=1)
                for old, new in zip((gain, cost), more.T, strict=True)
            )
        return value, upper

    def _sum(self, counts: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the weighted sums of some values over the rows of every draw."""
        right = np.stack(values, axis=1) * self.weight[:, None]
        return np.concatenate(
            [
                each.astype(np.float64, copy=False) @ right
                for each in np.array_split(counts, 1 + counts.size // TILE)
            ]
        )


def _read_hull(
    eta: np.ndarray, gain: np.ndarray, cost: np.ndarray, budget: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return value, upper bound and the price at which to look next, for every draw.

    Costs rise along the maps as prices fall. Between two maps the chord is attained, and their
    tangents, whose slopes are the prices, lie above the optimum and meet where the chord's slope
    says to look next.
    """
    draw, last = np.arange(len(gain)), len(eta) - 1
    # Up to the first that is dearer: next to price 0, maps that tie may come in any order of cost.
    left = np.maximum(np.sum(np.cumprod(cost <= budget, axis=1), axis=1), 1) - 1
    right = np.minimum(left + 1, last)
    step = np.where(left == last, 1.0, cost[draw, right] - cost[draw, left])
    spare = budget - cost[draw, left]
    slope = (gain[draw, right] - gain[draw, left]) / step
    value = gain[draw, left] + slope * spare
    before = np.where(spare > 0, eta[left], 0.0) * spare
    after = eta[right] * (budget - cost[draw, right])
    upper = np.minimum(gain[draw, left] + before, gain[draw, right] + after)
    settled = (left == last) | (spare <= 0)
    return value, np.where(settled, value, np.maximum(upper, value)), slope
