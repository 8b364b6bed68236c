"""Where a search looks: spaces that methods accept, and rows that are left to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.study.config import MethodRow, ThenRow
from fairfrontier.study.expand import Planned
from fairfrontier.study.method_file import Dimension
from fairfrontier.study.resolve import ResolvedStudy, Resolver
from fairfrontier.study.searching.search import SearchedRow, list_searched


def leave_out_searched(
    plan: tuple[Planned, ...], resolved: ResolvedStudy, home: Path
) -> tuple[Planned, ...]:
    """Return the fits of a plan whose settings are no matter of the study's search.

    A ConfigError refuses a search that has nothing to choose, or values that methods do not accept.
    """
    resolver = Resolver(resolved.study, home, resolved.where)
    rows = list_searched(resolved.study, resolver)
    if not rows:
        raise ConfigError(
            f"{resolved.where}: search has nothing to choose.",
            "Leave parameters of a row open that its conf/methods has under space, or take it out.",
        )
    for row in rows:
        refuse_space(row, resolver)
    labels = {row.label for row in rows}
    return tuple(
        planned
        for planned in plan
        if "frontier" not in planned.blocks or planned.group.method not in labels
    )


def refuse_space(row: SearchedRow, resolver: Resolver) -> None:
    """Raise a ConfigError for an end or a choice of a row's space that its method refuses.

    It is one that is refused both beside the method's defaults and beside what the row says: what
    is refused beside other values alone is a trial that fails.
    """
    searched = [(row.method, row.row, name, each) for name, each in row.space.items()]
    if row.dial is not None and not row.listed:
        rule = row.row.then if row.of_rule else None
        own = (row.method, row.row) if rule is None else (rule.method, rule)
        searched.append((*own, *row.dial))
    for method, given, name, dimension in searched:
        around = _list_parameters(method, given, resolver)
        for end, value in _list_ends(dimension):
            refusal = _find_refusal(method, around, {name: value}, resolver)
            if refusal is not None:
                raise ConfigError(
                    f"conf/methods/{method}.yaml: space.{name}: {end} is {value!r}, which {method} "
                    "refuses.",
                    _name_mend(dimension, refusal),
                ) from refusal


def _list_parameters(method: str, given: MethodRow | ThenRow, resolver: Resolver) -> dict[str, Any]:
    """Return the parameters of a row, of lists the first values."""
    preset = resolver.read_preset(method, given.preset)
    listed = {
        name: value[0] if isinstance(value, list) else value
        for name, value in given.parameters.items()
    }
    return {**preset, **listed}


def _list_ends(dimension: Dimension) -> Iterator[tuple[str, Any]]:
    """Yield the ends of a range, or the values of a list, as they are proposed."""
    if dimension.choices is not None:
        yield from (("a choice", value) for value in dimension.choices)
        return
    whole = isinstance(dimension.low, int) and isinstance(dimension.high, int)
    for end, value in (("low", dimension.low), ("high", dimension.high)):
        yield end, value if whole else dimension.read(float(value or 0))


def _find_refusal(
    method: str, around: Mapping[str, Any], value: Mapping[str, Any], resolver: Resolver
) -> ConfigError | None:
    """Return why a method refuses a value; None where it takes it by itself or in its row."""
    refusal = None
    contexts: Sequence[Mapping[str, Any]] = ({}, around)
    for context in contexts:
        try:
            resolver.try_model(method, {**context, **value}, f"methods.{method}")
        except ConfigError as error:
            refusal = refusal or error
        except TypeError:
            # It has parameters without a default, which the row gives.
            continue
        else:
            return None
    return refusal


def _name_mend(dimension: Dimension, refusal: ConfigError) -> str:
    if "valid integer" in refusal.mend and dimension.choices is None:
        return "Give low and high as whole numbers."
    return refusal.mend
