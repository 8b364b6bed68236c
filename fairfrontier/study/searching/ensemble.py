"""Which settings that a search tried make an ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fairfrontier.runtime.store import canonical_json
from fairfrontier.train.baseline.learner import explain_refusal

if TYPE_CHECKING:
    from fairfrontier.study.resolve import Resolver
    from fairfrontier.study.searching.search import SearchedRow

MEMBERS = 5


@dataclass(frozen=True, eq=False)
class Tuned:
    """A row, parameters of its space that were tried, and the objective there."""

    row: SearchedRow
    parameters: Mapping[str, Any]
    value: float


def choose_learner(
    row: SearchedRow, told: Mapping[str, Sequence[Tuned]], resolver: Resolver
) -> str | None:
    """Return the base whose settings make a row's ensemble: of its learner, or the best of all.

    None where no base has two settings that can be members.
    """
    learner = row.row.parameters.get("learner")
    able = [
        base
        for base, tuned in told.items()
        if len(tuned) > 1
        and tuned[0].row.method == (learner or tuned[0].row.method)
        and _may_join(tuned[0].row, resolver)
    ]
    return max(able, key=lambda base: max(each.value for each in told[base]), default=None)


def _may_join(row: SearchedRow, resolver: Resolver) -> bool:
    """Return whether a row's settings can be members: of rows, labels and weights alone."""
    plain = not (row.row.sweeps or row.row.metric or row.row.noise)
    return plain and explain_refusal(resolver.methods.find(row.method)) is None


def gather_members(told: Sequence[Tuned], resolver: Resolver) -> dict[str, Any]:
    """Return an ensemble's learner and settings: the best that were tried of one row."""
    method, own = told[0].row.method, told[0].row.row
    fixed = {**resolver.read_preset(method, own.preset), **own.parameters}
    ranked = sorted(told, key=attrgetter("value"), reverse=True)
    distinct = {canonical_json(each.parameters): each.parameters for each in ranked}
    # A list of values would be a sweep.
    return {
        "learner": method,
        "settings": [[{**fixed, **each} for each in distinct.values()][:MEMBERS]],
    }
