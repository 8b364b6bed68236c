"""The registry of measures, and what they are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from fairfrontier.metrics.statistic.interval import rank
from fairfrontier.metrics.statistic.rate import (
    Cells,
    Direction,
    RateTable,
    aggregate,
    count_cells,
    tabulate_rates,
)
from fairfrontier.models.prediction import Prediction, task_of
from fairfrontier.prepare.split import Part, Task
from fairfrontier.runtime.registry import Registry

if TYPE_CHECKING:
    from fairfrontier.metrics.certificate.certificate import BoxBound, Certificate, GapCertificate

Need = Literal[
    "score",
    "decision",
    "counterfactuals",
    "counterfactual_score",
    "group",
    "membership",
    "true_group",
    "certificate",
    "gap",
    "box",
    "costs",
]
# What measures need of a study that certifies its models.
CERTIFIED: frozenset[Need] = frozenset({"certificate", "gap", "box"})


class MeasureRow(NamedTuple):
    """One value of a measure with its rows and 95% interval; NaN where not estimable.

    ``left_out`` are the levels with rows that an aggregate leaves out, since they have too few.
    """

    group: str
    value: float
    n: int
    low: float = np.nan
    high: float = np.nan
    left_out: int = 0


@dataclass(frozen=True, eq=False)
class Audit:
    """What a measure is computed from: predictions on the rows of a part.

    ``minimum`` is the number of rows that the denominator of a level needs; with fewer it is not
    estimable. The certificates are from `certify_part`, `bound_part` (of a net) and `certify_gaps`
    on the same rows or a sample of them. ``costs`` are those of a false positive and a false
    negative.
    """

    prediction: Prediction
    part: Part
    minimum: int = 10
    certificates: tuple[Certificate, ...] = ()
    boxes: tuple[BoxBound, ...] = ()
    gaps: tuple[GapCertificate, ...] = ()
    costs: tuple[float, float] | None = None

    @cached_property
    def weight(self) -> np.ndarray:
        """Case weights as float64."""
        return np.asarray(self.part.weight, dtype=np.float64)

    @cached_property
    def right(self) -> np.ndarray:
        """Probability that each decision is right, float64."""
        y, decision = self.part.y, self.prediction.decision
        if task_of(self.part) == "binary":
            return np.where(y == 1, decision, 1 - decision)
        return np.asarray(decision == y, dtype=np.float64)

    @cached_property
    def version_ranks(self) -> Mapping[str, np.ndarray]:
        """Ranks of the versions of each counterfactual set among the part's scores, (m, n)."""
        # Versions have 32 bits.
        own = self.prediction.score.astype(np.float32).astype(np.float64)
        return {
            name: rank(np.stack(versions), own, self.weight)
            for name, versions in self.prediction.counterfactual_scores.items()
            if versions
        }

    @cached_property
    def cells(self) -> Mapping[str, Cells]:
        """Rows counted by group, label and decision, once for all measures."""
        return count_cells(self.prediction, self.part)

    @cached_property
    def rates(self) -> Mapping[str, RateTable]:
        """Rates of the levels of each attribute and pair, and of all rows under ``""``."""
        return {
            name: tabulate_rates(cells, self.minimum if name else 1)
            for name, cells in self.cells.items()
        }

    @cached_property
    def aggregates(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """Aggregates over the levels of each attribute and pair."""
        return {name: aggregate(table) for name, table in self.rates.items() if name}


Compute = Callable[[Audit], Iterable[MeasureRow]]


@dataclass(frozen=True)
class Measure:
    """A registered measure; see `measure`."""

    name: str
    what: str
    compute: Compute
    needs: frozenset[Need]
    task: frozenset[Task]
    direction: Direction
    reference: str
    has_units: bool = False

    @property
    def module(self) -> str:
        """The module that defines it."""
        return str(getattr(self.compute, "func", self.compute).__module__)


MEASURES: Registry[Measure] = Registry(
    "measure", "measure", ("fairfrontier.metrics",), "fairfrontier.measures"
)


def measure(
    name: str,
    *,
    what: str,
    needs: Iterable[Need] = ("decision",),
    task: Iterable[Task] = ("binary",),
    direction: Direction = "none",
    reference: str = "",
    has_units: bool = False,
) -> Callable[[Compute], Compute]:
    """Register a function Audit -> rows as a measure.

    Parameters
    ----------
    name : str
        As in the column ``measure`` of the results.
    what : str
        One line: what it is.
    needs : iterable of str
        Without these the measure is left out; see ``Need``.
    task : iterable of str
        The tasks it is for.
    direction : {"higher", "lower", "zero", "none"}
        Which values are better: ``zero`` for signed gaps, ``none`` for descriptions.
    reference : str
        Authors, title, year.
    has_units : bool
        Whether its values are in units of the target of a regression.
    """

    def register(compute: Compute) -> Compute:
        found = Measure(
            name, what, compute, frozenset(needs), frozenset(task), direction, reference, has_units
        )
        MEASURES.add(name, found, getattr(compute, "func", compute))
        return compute

    return register


def split_name(name: str) -> tuple[str, str]:
    """Split ``measure:group`` into its two parts; the group may be empty."""
    measure, _, group = name.partition(":")
    return measure, group
