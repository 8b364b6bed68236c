"""A choice in words: what is best, subject to which bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.config import split_name

EXAMPLE = (
    "Write it as in: max accuracy subject to selection_rate_difference:sex <= 0.05 and "
    "consistency:spouse >= 0.95."
)
# What is better where: the word of the objective, and the sign of a bound.
WORDS = {"higher": ("max", ">="), "lower": ("min", "<="), "zero": ("min", "<=")}
_SIGN = re.compile(r"\s*(<=|>=|≤|≥)\s*")
_TURN = re.compile(r"\s+(subject\s+to|and)\s+")


@dataclass(frozen=True)
class Query:
    """What is maximised, or minimised where less is better; the study's objective where None.

    ``bounds`` maps measures, as ``measure`` or ``measure:group``, to least or largest values.
    """

    measure: str | None = None
    bounds: Mapping[str, float] = field(default_factory=dict)


def read_query(text: str) -> Query:
    """Read ``max MEASURE subject to MEASURE <= NUMBER and ...``.

    Either half may be left out: the objective is then the study's, or there are no bounds. Whether
    a bound is a least or a largest value follows from the measure, and has to be said so.

    Raises
    ------
    ConfigError
        Names the word at which the text cannot be read.
    """
    clauses = _TURN.split(f" {text.strip()} ")
    head, rest = clauses[0].strip(), clauses[1:]
    if head.startswith("subject to"):
        head, rest = "", ["subject to", head.removeprefix("subject to"), *rest]
    measure = _read_objective(head, text) if head else None
    bounds: dict[str, float] = {}
    for position in range(0, len(rest), 2):
        turn, clause = " ".join(rest[position].split()), rest[position + 1].strip()
        if (turn == "subject to") != (position == 0):
            raise _fault(text, turn, f"expected {'and' if position else 'subject to'!r}")
        name, bound = _read_bound(clause, text)
        if name in bounds:
            raise _fault(text, name, "it is bounded twice")
        bounds[name] = bound
    return Query(measure, bounds)


def _read_objective(clause: str, text: str) -> str:
    word, _, measure = clause.partition(" ")
    if word not in ("max", "min"):
        raise _fault(text, word or clause, "expected max, min or subject to")
    measure = measure.strip()
    if not measure:
        raise _fault(text, word, "expected a measure behind it")
    if sign := _SIGN.search(measure):
        raise _fault(text, sign[1], "bounds stand behind 'subject to'")
    wanted, _ = WORDS[_find_direction(measure, text)]
    if word != wanted:
        raise _fault(text, word, f"{measure} is better when it is {_describe(wanted)}")
    return measure


def _read_bound(clause: str, text: str) -> tuple[str, float]:
    name, *parts = _SIGN.split(clause)
    if len(parts) != 2:
        raise _fault(text, clause or text.split()[-1], "expected MEASURE <= NUMBER, or >=")
    sign, number = parts[0].replace("≤", "<=").replace("≥", ">="), parts[1].strip()
    word, wanted = WORDS[_find_direction(name, text)]
    if sign != wanted:
        raise _fault(text, parts[0], f"{name} is better when it is {_describe(word)}: use {wanted}")
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise _fault(text, number or clause, "expected a number")
    return name, bound


def _find_direction(name: str, text: str) -> str:
    measure, _ = split_name(name)
    known = {each.name: each.direction for each in MEASURES.all().values()}
    if measure not in known:
        raise _fault(text, name, f"there is no such measure. {nearest(measure, known)}")
    if known[measure] not in WORDS:
        raise _fault(text, name, "no value of this measure is better than another")
    return known[measure]


def write_bounds(bounds: Mapping[str, float]) -> str:
    """Write bounds as `read_query` reads them."""
    signs = {name: WORDS[MEASURES.find(split_name(name)[0]).direction][1] for name in bounds}
    return " and ".join(f"{name} {signs[name]} {bound:.4g}" for name, bound in bounds.items())


def _describe(word: str) -> str:
    return "higher" if word == "max" else "lower, or nearer to 0"


def _fault(text: str, word: str, expected: str) -> ConfigError:
    """Return the error that points at a word of the text."""
    at = max(text.find(word), 0)
    marked = f"{text[:at]}⟦{word}⟧{text[at + len(word) :]}"
    return ConfigError(f"The choice cannot be read at {word!r}, {expected}: {marked}.", EXAMPLE)
