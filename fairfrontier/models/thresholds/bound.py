"""Bounds in words: what is said of groups' rates in Python, in YAML and in a choice.

    selection_rate_difference:sex <= 0.05              selection_rate_ratio:race >= 0.8
    tpr_min:race >= 0.6                                fdr_max:age <= 0.2
    error_rate_difference:sex to overall <= 0.02       ppv_difference:sex×race <= 0.03
    selection_rate_difference:sex | department <= 0.05 selection_rate:sex=female >= 0.2
    selection_rate <= 0.1                              selected <= 500
    share:race=Black >= 0.12                           gap_max:sex <= 0.05

A rate is a quotient of two sums over the cells of a confusion matrix. Behind a colon stand the
attributes whose groups are compared, crossed by ×, or one group; behind a bar those within whose
strata they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fairfrontier.runtime.errors import ConfigError, nearest

# Numerator and denominator as sums over TP, FP, P and N.
RATES: Mapping[str, np.ndarray] = MappingProxyType(
    {
        name: np.array(sums, dtype=np.float64)
        for name, sums in {
            "selection_rate": [[1, 1, 0, 0], [0, 0, 1, 1]],
            "tpr": [[1, 0, 0, 0], [0, 0, 1, 0]],
            "fpr": [[0, 1, 0, 0], [0, 0, 0, 1]],
            "tnr": [[0, -1, 0, 1], [0, 0, 0, 1]],
            "fnr": [[-1, 0, 1, 0], [0, 0, 1, 0]],
            "accuracy": [[1, -1, 0, 1], [0, 0, 1, 1]],
            "error_rate": [[-1, 1, 1, 0], [0, 0, 1, 1]],
            "ppv": [[1, 0, 0, 0], [1, 1, 0, 0]],
            "fdr": [[0, 1, 0, 0], [1, 1, 0, 0]],
            "npv": [[0, -1, 0, 1], [-1, -1, 1, 1]],
            "for": [[-1, 0, 1, 0], [-1, -1, 1, 1]],
        }.items()
    }
)
SELECTED = RATES["selection_rate"][0]
FORMS = ("difference", "ratio", "min", "max")
# What can be bounded in words, beside gap_max.
NAMES = (*RATES, *(f"{rate}_{form}" for rate in RATES for form in FORMS), "share", "selected")
# The sign that a form takes; the others take both.
SIGNS = {"difference": "<=", "ratio": ">=", "min": ">=", "max": "<="}
EXAMPLE = "Write it as in: selection_rate_difference:sex <= 0.05."
# Strata with fewer rows of a group are pooled.
FEW_ROWS = 10
POOLED = "(pooled)"

_BOUND = re.compile(
    r"(?P<measure>[^:|<>≤≥\s]+)\s*(?::(?P<group>[^|<>≤≥]*))?(?P<overall>\bto\s+overall\b\s*)?"
    r"(?:\|(?P<strata>[^<>≤≥]*))?(?P<sign><=|>=|≤|≥)\s*(?P<limit>\S+)\s*"
)
_OVERALL = re.compile(r"\s+to\s+overall\s*$")


class Compared(NamedTuple):
    """The groups that a bound compares within a stratum: names, and cells that are part of them.

    ``masks`` has shape (n_groups, n_cells), and ``within``, of the stratum, (n_cells,).
    """

    stratum: str
    names: list[str]
    masks: np.ndarray
    within: np.ndarray


@dataclass(frozen=True)
class Bound:
    """A bound on rates of groups.

    Attributes
    ----------
    measure : str
        As it was written: a rate with a form, ``share``, ``selected`` or ``gap_max``.
    rates : tuple of str
        Names in `RATES`; two of ``gap_max``.
    form : {"rate", "difference", "ratio", "min", "max", "share", "selected", "value", "distance"}
        The last two are of measures that are no rates: how large they are, and how far from 0.
    sign : {"<=", ">="}
    limit : float
    attributes, strata : tuple of str
        Whose crosses are compared, and within whose crosses.
    level : tuple of str
        The levels of a single group, or empty.
    overall : bool
        Whether groups are compared with all rows, not with each other.
    """

    measure: str
    rates: tuple[str, ...]
    form: str
    sign: str
    limit: float
    attributes: tuple[str, ...] = ()
    level: tuple[str, ...] = ()
    overall: bool = False
    strata: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The measure with its groups, as tables of results call it."""
        group = "×".join(self.attributes) + ("=" + "×".join(self.level) if self.level else "")
        text = f"{self.measure}:{group}" if group else self.measure
        text += " to overall" if self.overall else ""
        return f"{text} | {'×'.join(self.strata)}" if self.strata else text

    def __str__(self) -> str:
        """Return it as `read_bound` reads it."""
        return f"{self.name} {self.sign} {self.limit:.12g}"

    def orient(self, values: Any) -> Any:
        """Return values turned so that more is better."""
        if self.form == "distance":
            return -np.abs(values)
        return -values if self.sign == "<=" else values

    def exceeds(self, value: Any) -> Any:
        """Return by how much a value is beyond the bound, below 0 within it."""
        return (self.limit if self.sign == ">=" else -self.limit) - self.orient(value)

    def compare(self, levels: Mapping[str, np.ndarray]) -> Iterator[Compared]:
        """Yield the groups compared, by stratum.

        ``levels`` maps names of attributes to the level of each cell, str of shape (n_cells,).
        """
        n_cells = len(next(iter(levels.values())))
        strata = _cross(levels, self.strata, n_cells)
        groups = _cross(levels, self.attributes, n_cells)
        for stratum in np.unique(strata):
            within = strata == stratum
            names = ["×".join(self.level)] if self.level else np.unique(groups[within]).tolist()
            masks = np.array([within & (groups == name) for name in names])
            yield Compared(str(stratum), names, masks, within)

    def value(self, counts: np.ndarray, levels: Mapping[str, np.ndarray]) -> float:
        """Return the measure; of several strata or rates the one that is worst.

        ``counts`` has TP, FP, P and N of each cell, (n_cells, 4). Groups whose rate is 0/0 are left
        out; NaN where no rate, or a single one that is to be compared, is left.
        """
        found = []
        for compared in self.compare(levels):
            whole = compared.within.astype(np.float64) @ counts
            own = compared.masks.astype(np.float64) @ counts
            found += [self._measure(RATES[rate], own, whole) for rate in self.rates]
        known = [each for each in found if not math.isnan(each)]
        return max(known, key=self.exceeds) if known else math.nan

    def _measure(self, rate: np.ndarray, own: np.ndarray, whole: np.ndarray) -> float:
        if self.level and not own[:, 2:].any():
            return math.nan
        if self.form == "selected":
            return float((own @ SELECTED).sum())
        if self.form == "share":
            chosen = float(whole @ SELECTED)
            return float(own[0] @ SELECTED / chosen) if chosen > 0 else math.nan
        values = divide(own @ rate[0], own @ rate[1])
        values = values[~np.isnan(values)]
        if not values.size:
            return math.nan
        if self.form in ("rate", "min", "max"):
            return float(values.min() if self.sign == ">=" else values.max())
        if self.overall:
            (mean,) = divide(np.atleast_1d(whole @ rate[0]), np.atleast_1d(whole @ rate[1]))
            if self.form == "difference":
                return float(np.abs(values - mean).max())
            pairs = np.append(divide(values, mean), divide(mean, values))
            return float(np.nanmin(pairs)) if np.isfinite(pairs).any() else math.nan
        if values.size < 2:
            return math.nan
        if self.form == "difference":
            return float(np.ptp(values))
        return float(divide(values.min(), values.max()))


def divide(part: Any, whole: Any) -> Any:
    """Return a quotient, NaN for 0/0 and others by 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)


def _cross(levels: Mapping[str, np.ndarray], names: Sequence[str], n_cells: int) -> np.ndarray:
    """Return the levels of each cell in some attributes, crossed; empty text for none."""
    columns = [[str(each) for each in levels[name]] for name in names]
    return np.array(["×".join(row) for row in zip(*columns, strict=True)] or [""] * n_cells)


def read_bounds(text: str) -> tuple[Bound, ...]:
    """Read bounds in words that are joined by ``and``."""
    return tuple(read_bound(part) for part in re.split(r"\s+and\s+", text))


def read_bound(text: Any) -> Bound:
    """Read a bound in words.

    Raises
    ------
    ConfigError
        Names the word at which the text cannot be read.
    """
    found = _BOUND.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ConfigError(f"{text!r} is no bound.", EXAMPLE)
    measure, group, sign = found["measure"], found["group"] or "", found["sign"]
    sign = {"≤": "<=", "≥": ">="}.get(sign, sign)
    overall = found["overall"] is not None or _OVERALL.search(group) is not None
    group, _, level = _OVERALL.sub("", group).strip().partition("=")
    attributes, strata = _split(group), _split(found["strata"] or "")
    levels = _split(level)
    rates, form = _read_measure(measure, text)
    try:
        limit = float(found["limit"])
    except ValueError:
        limit = math.nan
    compares = form in FORMS
    checks = [
        (measure, form != "share" or levels, f"share needs a group, as share:{group or 'sex'}=A"),
        (group or measure, not compares or attributes, f"{measure} needs an attribute behind ':'"),
        (level, not (compares and levels), f"{measure} compares the groups of an attribute"),
        (group, not (form == "rate" and attributes and not levels), f"name one group of {group}"),
        ("overall", not overall or form in ("difference", "ratio"), f"{measure} compares nothing"),
        (level, not levels or len(levels) == len(attributes), "a level for each attribute"),
        (sign, SIGNS.get(form, sign) == sign, f"{measure} is better the other way round"),
        (found["limit"], math.isfinite(limit) and limit >= 0, "expected a number from 0"),
        (found["limit"], form == "selected" or limit <= 1, "expected a number up to 1"),
        (
            found["strata"],
            not {*attributes} & {*strata},
            "an attribute cannot be compared in its own strata",
        ),
    ]
    for word, passed, reason in checks:
        if not passed:
            raise _point_at(text, word or measure, reason)
    return Bound(measure, rates, form, sign, limit, attributes, levels, overall, strata)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("×")) if text.strip() else ()


def _read_measure(measure: str, text: str) -> tuple[tuple[str, ...], str]:
    """Return the rates of a measure, and its form."""
    if measure == "gap_max":
        return ("tpr", "fpr"), "difference"
    if measure in ("share", "selected"):
        return ("selection_rate",), measure
    rate, _, form = measure.rpartition("_")
    if rate in RATES and form in FORMS:
        return (rate,), form
    if measure in RATES:
        return (measure,), "rate"
    raise _point_at(text, measure, f"no bound can be on it. {nearest(measure, NAMES)}")


def _point_at(text: str, word: str, reason: str) -> ConfigError:
    """Return the error that points at a word of the text."""
    at = max(text.find(word), 0)
    marked = f"{text[:at]}⟦{word}⟧{text[at + len(word) :]}"
    return ConfigError(f"The bound cannot be read at {word!r}, {reason}: {marked}.", EXAMPLE)


def require_groups(bounds: Sequence[Bound], levels: Mapping[str, np.ndarray]) -> None:
    """Raise ConfigError where a bound names an attribute or a group that is not there."""
    for bound in bounds:
        if lacking := [name for name in bound.attributes + bound.strata if name not in levels]:
            raise ConfigError(
                f"{bound} names {lacking[0]!r}, and the attributes are {', '.join(levels)}.",
                "Name one of them.",
            )
        if bound.level and not any(each.masks.any() for each in bound.compare(levels)):
            raise ConfigError(f"No row is of the group of {bound}.", "Name another level.")


def pool_strata(
    bound: Bound, levels: Mapping[str, np.ndarray], counts: np.ndarray
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return levels whose strata with few rows of a group are one, and the names of these.

    ``counts`` are the rows of each cell, (n_cells,).
    """
    small = {
        compared.stratum
        for compared in bound.compare(levels)
        if bound.strata and (compared.masks @ counts < FEW_ROWS).any()
    }
    if len(small) < 2:
        return dict(levels), []
    strata = _cross(levels, bound.strata, len(counts))
    few = np.isin(strata, [*small])
    pooled = {
        name: np.where(few, POOLED, np.asarray(column, dtype=object)).astype(str)
        if name in bound.strata
        else column
        for name, column in levels.items()
    }
    return pooled, sorted(small)
