"""Measures by their names: what each is, what it needs, which way is better, and its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import tasks.evaluate as package
from tasks.evaluate.cell import Cells, count_cells
from tasks.evaluate.rate import Aggregates, Direction, RateTable, aggregate, tabulate_rates
from tasks.prepare.split import Part, Task
from tasks.runtime.discovery import import_registering
from tasks.runtime.errors import ConfigError, nearest
from tasks.train.prediction import Prediction

if TYPE_CHECKING:
    from tasks.evaluate.adversarial_gap import GapCertificate
    from tasks.evaluate.box import BoxBound
    from tasks.evaluate.certificate import Certificate

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
]
# What measures need of a study that certifies its models.
CERTIFIED: frozenset[Need] = frozenset({"certificate", "gap", "box"})


class Row(NamedTuple):
    """One value of a measure with its rows and 95% interval; NaN where not estimable."""

    group: str
    value: float
    n: int
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Audit:
    """What a measure is computed from.

    Attributes
    ----------
    prediction : Prediction
        Scores and decisions.
    part : Part
        Labels, groups and weights of the same rows.
    minimum : int
        Rows that the denominator of a level needs; with fewer it is not estimable.
    replicates : int
        Bootstrap draws; 0 leaves out the intervals that need them.
    certificates : tuple of Certificate
        Of the same model on (a sample of) the same rows, one per budget.
    boxes : tuple of BoxBound
        Likewise, where the model is a net.
    gaps : tuple of GapCertificate
        Of the same model on the same rows, one per loss.
    """

    prediction: Prediction
    part: Part
    minimum: int = 10
    replicates: int = 1000
    certificates: tuple[Certificate, ...] = ()
    boxes: tuple[BoxBound, ...] = ()
    gaps: tuple[GapCertificate, ...] = ()

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
    def aggregates(self) -> Mapping[str, Aggregates]:
        """Aggregates over the levels of each attribute and pair."""
        return {
            name: aggregate(cells, self.rates[name], self.replicates)
            for name, cells in self.cells.items()
            if name
        }


Compute = Callable[[Audit], Iterable[Row]]


@dataclass(frozen=True)
class Measure:
    """A registered measure.

    Attributes
    ----------
    name : str
        As in the column ``measure`` of the results.
    what : str
        One line: what it is.
    compute : callable
        Audit -> rows.
    needs : frozenset of str
        Of ``score``, ``decision``, ``counterfactuals``, ``counterfactual_score``, ``group``,
        ``membership``, ``true_group``, ``certificate``, ``gap``, ``box``.
    task : frozenset of str
        The tasks it is for.
    direction : {"higher", "lower", "zero", "none"}
        Which values are better: ``zero`` for signed gaps, ``none`` for mere descriptions.
    reference : str
        Authors, title, year.
    """

    name: str
    what: str
    compute: Compute
    needs: frozenset[Need]
    task: frozenset[Task]
    direction: Direction
    reference: str

    @property
    def module(self) -> str:
        """Where it is written."""
        return str(getattr(self.compute, "func", self.compute).__module__)


_MEASURES: dict[str, Measure] = {}


def measure(
    name: str,
    *,
    what: str,
    needs: Iterable[Need] = ("decision",),
    task: Iterable[Task] = ("binary",),
    direction: Direction = "none",
    reference: str = "",
) -> Callable[[Compute], Compute]:
    """Register a function Audit -> rows as a measure.

    Modules of tasks/evaluate that use it as a decorator are found by themselves.

    Raises
    ------
    ValueError
        When another function holds the name already: a fault of the code, not of a user.
    """

    def register(compute: Compute) -> Compute:
        other = _MEASURES.get(name)
        if other is not None and other.what != what:
            raise ValueError(f"{name!r} names two measures: {other.what!r} and {what!r}")
        _MEASURES[name] = Measure(
            name, what, compute, frozenset(needs), frozenset(task), direction, reference
        )
        return compute

    return register


@cache
def _discover() -> None:
    import_registering(package, "measure")


def measures() -> dict[str, Measure]:
    """Return every registered measure: name -> Measure, sorted by name."""
    _discover()
    return dict(sorted(_MEASURES.items()))


def find(name: str) -> Measure:
    """Return the measure registered under ``name``.

    Raises
    ------
    ConfigError
        When there is none; the sentence offers the nearest name.
    """
    known = measures()
    if name not in known:
        raise ConfigError(f"There is no measure {name!r}.", nearest(name, known))
    return known[name]
