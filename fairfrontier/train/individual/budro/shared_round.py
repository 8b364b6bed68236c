"""BuDRO's rounds on rows that stay with their processes, which share the sources of a round."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import xgboost

from fairfrontier.runtime.errors import ClusterError, DataError
from fairfrontier.train.dask.boosting import bin_rows
from fairfrontier.train.individual.budget import find_budget
from fairfrontier.train.individual.budro.objective import evaluate_losses
from fairfrontier.train.individual.budro.round import BoostingSetting, BoostingState, scale_classes
from fairfrontier.train.individual.budro.rows import check_rows
from fairfrontier.train.individual.budro.search import blocks
from fairfrontier.train.individual.budro.shared import (
    WEIGHED,
    Process,
    SharedRows,
    share_rows,
    solve_shared,
)
from fairfrontier.train.individual.budro.solver import WorstCases
from fairfrontier.train.individual.budro.transport import Transport


class SharedCases(WorstCases):
    """The worst cases of successive rounds, of which each process has those of its rows."""

    def __init__(
        self, rows: SharedRows, budget: float, sources: int, tolerance: float, random_state: int
    ) -> None:
        self.held, self.budget, self.sources, self.tolerance = rows, budget, sources, tolerance
        self.generator = np.random.default_rng([random_state, rows.process.rank])
        self.last: Transport | None = None
        self.table: list[list[float]] = []

    def solve(self, margin: np.ndarray) -> Transport:
        """Return the worst case for the margins of this process's rows."""
        self.last = solve_shared(
            self.held,
            evaluate_losses(margin),
            self.budget,
            sources=self.sources,
            generator=self.generator,
            tolerance=self.tolerance,
            start=0.0 if self.last is None else self.last.eta,
        )
        self.add_history(self.last)
        return self.last


class SharedState(BoostingState):
    """Boosting in progress on rows of which no process has all.

    ``batches`` are this process's rows, float32 arrays one after the other, and ``z`` (n_rows, k),
    float32, the same embedded, which are centred in place. Where the tree method is ``hist``,
    batches become bins, and the list is emptied, also for the caller. What processes exchange are
    the sources of a round, the columns that are checked, a few sums, and histograms of gradients.
    """

    def __init__(
        self,
        setting: BoostingSetting,
        batches: list[np.ndarray],
        y: np.ndarray,
        z: np.ndarray,
        weight: np.ndarray,
        process: Process,
        sources: int,
    ) -> None:
        self.setting, self.batches, self.workers = setting, batches, process
        self.bin_bytes = sum(each.size for each in batches)
        finite = np.isfinite(z).all(axis=1)
        if process.add_up(np.array([float((~finite).sum())]))[0] > 0:
            raise DataError(
                "The embedding of a row is not finite.",
                "Give rows, and a metric, of finite numbers.",
            )
        self.data = None
        self._require_data()
        self.n_classes = max(2, int(process.find_largest(np.array([float(y.max())]))[0]) + 1)
        count, total = (
            process.add_up(np.bincount(y, each, minlength=self.n_classes).astype(np.float64))
            for each in (None, weight)
        )
        check_rows(np.flatnonzero(count))
        self.scale = scale_classes(setting, np.arange(self.n_classes), total, self.n_classes)
        mass = weight / total.sum()
        # A product of the whole would hold z in double precision.
        spans = blocks(len(z), WEIGHED)
        z -= process.add_up(sum(mass[a:b] @ z[a:b] for a, b in spans)).astype(np.float32)
        rows = share_rows(z, y, mass, self.n_classes, sources, process)
        spread = 2.0 * float(process.add_up(np.array([mass @ rows.square]))[0])
        self.budget = find_budget(setting, spread)
        tolerance = setting.transport.tolerance
        self.worst_cases = SharedCases(
            rows, self.budget.budget, sources, tolerance, setting.random_state
        )
        self.rows, self.embedded_bytes = slice(None), z.nbytes
        self.start(y, weight, mass, int(count.sum()))

    def __sizeof__(self) -> int:
        kept = sum(each.nbytes for each in self.batches)
        return int(kept + self.bin_bytes + 1.5 * self.embedded_bytes)

    def __copy__(self) -> Self:
        later = object.__new__(type(self))
        vars(later).update(vars(self))
        return later

    def __getstate__(self) -> dict[str, Any]:
        if self.batches:
            return super().__getstate__()
        # Bins cannot be stored, and what cannot be stored Dask keeps in memory.
        raise ClusterError(
            "budro's rows do not fit into a worker's memory.",
            "Give the workers more memory, or choose more of them.",
        )

    def _make_data(self) -> xgboost.DMatrix:
        if self.setting.tree_method != "hist":
            return xgboost.DMatrix(np.concatenate(self.batches), nthread=self.setting.n_jobs)
        data = bin_rows(lambda: ({"data": each} for each in self.batches), self.setting.n_jobs)
        self.batches.clear()
        return data

    def _gather(self, margin: np.ndarray) -> np.ndarray:
        return margin
