"""Maps of rows that are best at some price of the fair distance, and what they give any budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairfrontier.train.individual.budro.geometry import build_geometry
from fairfrontier.train.individual.budro.search import Search

# Largest number of passes over the rows for the sample and, beyond those, for its draws.
SAMPLE_PASSES, DRAW_PASSES = 100, 25
# Counts that are turned into float64 at a time: 32 MiB.
TILE = 1 << 22


class PriceMaps:
    """The maps that are best at some prices η, in falling order of price.

    At η every row j becomes the row i of the largest R_ij − η C_ij, whatever the masses are: the
    same maps serve every weighting of the rows. Here R_ij = losses[i, y_j], C_ij = ‖z_i − z_j‖²
    and the weights are positive.

    Prices ``eta`` fall from ∞ (rows become what coincides with them) to 0. Each map has the points
    that the merged columns move to (``target``), and ``gain`` R_ij − R_jj and ``cost`` C_ij of
    every row, of shape (n,).
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
        self._insert(float("inf"), self.geometry.column_point)
        self._insert(0.0, self.search.move_freely(0.0).target)

    def _insert(self, eta: float, target: np.ndarray) -> int:
        """Insert a map, and return its position."""
        pairs = [
            self.search.value(k, self.geometry.column_point[a:b], target[a:b])
            for k, (a, b) in enumerate(self.geometry.columns)
        ]
        gain, cost = (np.concatenate(blocks) for blocks in zip(*pairs, strict=True))
        position = int(np.sum(np.asarray(self.eta) > eta))
        self.eta.insert(position, eta)
        self.target.insert(position, target)
        self.gain.insert(position, gain[self.geometry.row_column] - self.own)
        self.cost.insert(position, cost[self.geometry.row_column])
        return position

    def name_rows(self, target: np.ndarray) -> np.ndarray:
        """Return the first row of the largest loss at every row's target point."""
        rows = np.empty(len(self.label), dtype=np.int64)
        points = target[self.geometry.row_column]
        for k in range(self.geometry.n_labels):
            worst = np.lexsort((-self.search.loss[:, k], self.geometry.row_point))
            first = worst[np.searchsorted(self.geometry.row_point[worst], points)]
            rows = np.where(self.label == k, first, rows)
        return rows

    def settle(
        self, counts: np.ndarray, budgets: Sequence[float], tolerance: float, passes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return values and upper bounds, (n_draws, n_budgets), adding maps where they differ.

        ``counts``, uint16 of shape (n_draws, n), says how often each draw has each row. At most
        ``passes`` maps are added, until the two differ by no more than ``tolerance`` as a share of
        the bound.
        """
        if counts.size <= TILE:
            counts = counts.astype(np.float64)
        sums = self._sum(counts, [np.ones(len(self.weight)), *self.gain, *self.cost])
        total = sums[:, :1]
        gain, cost = np.split(sums[:, 1:] / total, 2, axis=1)
        for _ in range(passes + 1):
            readings = [_read_hull(np.array(self.eta), gain, cost, budget) for budget in budgets]
            value, upper, price = (
                np.stack(columns, axis=1) for columns in zip(*readings, strict=True)
            )
            slack = np.where(np.isin(price, self.eta), 0.0, upper - value)
            slack = np.divide(slack, upper, out=np.zeros_like(upper), where=upper > 1e-15)
            if slack.max() <= tolerance or len(self.eta) > SAMPLE_PASSES + DRAW_PASSES:
                break
            eta = float(price[np.unravel_index(np.argmax(slack), slack.shape)])
            nearest_known = self.target[int(np.sum(np.asarray(self.eta) > eta)) - 1]
            i = self._insert(eta, self.search.move_all(eta, 0.0, nearest_known).target)
            more = self._sum(counts, [self.gain[i], self.cost[i]]) / total
            gain, cost = (
                np.insert(old, i, new, axis=1)
                for old, new in zip((gain, cost), more.T, strict=True)
            )
        return value, upper

    def _sum(self, counts: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the weighted sums of some values over the rows of every draw."""
        right = np.stack(values, axis=1) * self.weight[:, None]
        tiles = np.array_split(counts, 1 + counts.size // TILE)
        return np.concatenate([tile.astype(np.float64, copy=False) @ right for tile in tiles])


def _read_hull(
    eta: np.ndarray, gain: np.ndarray, cost: np.ndarray, budget: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return value, upper bound and the price to try next, for every draw.

    Costs rise along the maps as prices fall. The chord between two maps is attained; their
    tangents, whose slopes are the prices, lie above the optimum and meet at the chord's slope.
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
