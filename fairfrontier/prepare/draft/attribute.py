"""Guessing the protected attributes of an undescribed table, and groups that can be compared."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.section import OTHERS
from fairfrontier.prepare.draft.column import LARGE, NESTED, Column, shorten
from fairfrontier.prepare.draft.vocabulary import (
    PROTECTED,
    find_attribute,
    name_words,
    recognise_levels,
)
from fairfrontier.prepare.splitting.group import name_bands
from fairfrontier.prepare.table.column import MISSING_LEVEL, as_levels, sort_levels
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

# Rows below which rates of a group say little, and below which a split may leave it out of train.
SMALL, FEWEST = 50, 20
# Groups of one attribute; levels beyond are pooled.
MOST_GROUPS = 8
# Beginnings of age bands: adults, the age from which US law protects workers, and retirement.
AGES, OLDEST = (25.0, 40.0, 60.0), 120

# Share of the rows in which dummies of one attribute may be several, or none.
RARELY = 0.02
DUMMY = ({"0", "1"}, {"False", "True"})


@dataclass(frozen=True)
class AttributeDraft:
    """A protected attribute.

    ``group`` has the keys of the YAML's section, ``sizes`` the rows of each group, ``variants`` the
    levels that a person is given in turn, empty for bands. Rows are left out unless the column has
    one of the levels ``keep``, or, with ``present``, a value at all.
    """

    name: str
    column: str
    group: dict[str, Any]
    sizes: dict[str, int]
    comment: str = ""
    variants: list[str] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    present: bool = False

    @property
    def numeric(self) -> bool:
        """Whether the groups are bands of a number."""
        return "below" in self.group

    def warn(self, share: float) -> list[str]:
        """Return what is to be known of the groups before they are compared.

        ``share`` is that of the rows in the smallest part of the split.
        """
        small = [f"{level} ({rows})" for level, rows in self.sizes.items() if rows < SMALL]
        warnings = [f"{self.column}: {self.comment}"] if self.comment else []
        if small:
            warnings.append(
                f"{self.column}: fewer than {SMALL} rows of {', '.join(small)}, whose rates say "
                "little"
            )
        thin = [
            f"{level} (about {rows * share:.0f} of {rows:,})"
            for level, rows in self.sizes.items()
            if rows * share < SMALL <= rows
        ]
        if thin:
            warnings.append(
                f"{self.column}: fewer than {SMALL} rows in the smallest part, {share:.0%} of all, "
                f"of {', '.join(thin)}: what is chosen on one part may differ on another"
            )
        return warnings


def choose_protected(
    columns: Mapping[str, Column], label: str, named: Collection[str]
) -> list[AttributeDraft]:
    """Return the attributes that are named, or those that columns' names or levels suggest.

    ConfigError refuses a named column that does not exist, DataError one that makes no groups.
    """
    for name in named:
        if name not in columns or name == label:
            others = [column for column in columns if column != label]
            raise ConfigError(
                f"--protected: the table has no column {name!r}."
                if name != label
                else f"--protected: {name!r} is the label.",
                nearest(name, others),
            )
        if (reason := find_fault(columns[name])) is not None:
            raise DataError(
                f"--protected: column {name!r} makes no groups: it is {reason}.",
                "Name another column, or make one of it in the table.",
            )
    chosen = list(dict.fromkeys(named)) or _suggest(columns, label)
    taken: set[str] = set()
    drafts = []
    for name in chosen:
        slug = re.sub(r"[^\w.-]+", "_", name).strip("_.-")[:60] or "group"
        while slug in taken:
            slug += "_"
        taken.add(slug)
        draft = draft_attribute(slug, columns[name])
        if draft is None and named:
            raise DataError(
                f"--protected: column {name!r} has no two groups of {FEWEST} rows or more.",
                "Name another column, or merge levels in the table.",
            )
        drafts += [draft] if draft else []
    return drafts


def find_fault(column: Column) -> str | None:
    """Return why a column makes no groups; text may have many levels, which are pooled."""
    reason = column.find_fault()
    return None if reason and reason.startswith("text with") else reason


def _suggest(columns: Mapping[str, Column], label: str) -> list[str]:
    """Return the columns that look protected, one for every attribute, in the law's order."""
    found: dict[str, list[str]] = {}
    for name, column in columns.items():
        if name == label or column.find_fault() is not None:
            continue
        kind = _name_kind(column)
        if kind is not None:
            found.setdefault(kind, []).append(name)

    def rank(name: str) -> tuple[bool, int]:
        """Return what is least for the column that stands for its kind: years, by a short name."""
        banded = find_attribute(name) == "age" and not columns[name].is_continuous
        return banded, len(name_words(name))

    return [min(found[kind], key=rank) for kind in PROTECTED if kind in found]


def find_dummies(columns: Mapping[str, Column]) -> dict[str, dict[str, str]]:
    """Return what ``source.dummies`` says of columns of 0 and 1 that are one attribute's levels.

    They seem to be of the same kind, at most one is 1 in nearly every row, and either their names
    begin alike or one is 1 nearly everywhere.
    """
    kinds: dict[str, list[str]] = {}
    for name, column in columns.items():
        kind = find_attribute(name)
        if kind and not column.find_fault() and {*column.levels} in DUMMY:
            kinds.setdefault(kind, []).append(name)
    found = {}
    for kind, names in kinds.items():
        ones = sum(as_levels(columns[name].cells).isin(("1", "True")) for name in names)
        starts = [names[0][: mark.end()] for mark in re.finditer(r"[\W_]", names[0])]
        prefix = next((each for each in starts[::-1] if all(n.startswith(each) for n in names)), "")
        whole = bool(prefix) or np.mean(ones == 0) <= RARELY
        made = kind.replace(" ", "_")
        if len(names) > 1 and whole and np.mean(ones > 1) <= RARELY and made not in columns:
            found[made] = {name: name.removeprefix(prefix) for name in names}
    return found


def find_unused(
    columns: Mapping[str, Column], label: str, drafted: Iterable[AttributeDraft]
) -> Iterator[str]:
    """Yield the columns that look protected and are compared by nothing, with the reason."""
    stands = {_name_kind(columns[each.column]): each.column for each in drafted}
    for name, column in columns.items():
        kind = _name_kind(column)
        if kind is None or name in (label, *stands.values()):
            continue
        reason = find_fault(column)
        if reason is None and kind in stands:
            reason = f"{stands[kind]} stands for it"
        reason = reason or column.find_fault() or f"it has no two groups of {FEWEST} rows"
        yield f"{name} looks protected ({kind}), and is not compared: {reason}"


def _name_kind(column: Column) -> str | None:
    """Return the protected attribute that a column seems to hold, by its name or its levels."""
    if kind := find_attribute(column.name):
        return kind
    if column.numbers is not None or column.find_fault() in (NESTED, LARGE):
        return None
    return recognise_levels(column.levels)


def draft_attribute(name: str, column: Column) -> AttributeDraft | None:
    """Return an attribute with groups large enough to be compared, None where there are no two.

    A number becomes bands: of an age at 25, 40 and 60, of anything else at terciles, as far as
    every band has rows. Levels of fewer than ``SMALL`` rows, and those beyond the most frequent
    ones, are pooled. A pool too small for every part of a split to have some of it is joined with
    the smallest level, or left out of the table where there are two levels.
    """
    if column.is_continuous:
        return _draft_bands(name, column)
    counts = {str(level): int(rows) for level, rows in column.counts.items()}
    if column.missing:
        counts[MISSING_LEVEL] = counts.get(MISSING_LEVEL, 0) + column.missing
    order = sorted(counts, key=lambda level: -counts[level])
    kept = [level for level in order if counts[level] >= SMALL][:MOST_GROUPS]
    # Two groups are compared even where both are small.
    kept = kept if len(kept) > 1 else [level for level in order if counts[level] >= FEWEST][:2]
    pooled = [level for level in order if level not in kept]
    if len(kept) == MOST_GROUPS and pooled:
        pooled.insert(0, kept.pop())
    size = sum(counts[level] for level in pooled)
    comment, keep = "", []
    if pooled and size < FEWEST and (MISSING_LEVEL in kept or len(kept) > 2):
        joined = MISSING_LEVEL if MISSING_LEVEL in kept else kept[-1]
        kept.remove(joined)
        pooled.insert(0, joined)
        size += counts[joined]
    if len(kept) + (size >= FEWEST) < 2:
        return None
    if len(pooled) == 1 and size >= FEWEST:
        kept, pooled = kept + pooled, []
    listed = list(sort_levels(kept))
    sizes = {level: counts[level] for level in listed}
    group: dict[str, Any] = {"column": column.name}
    if pooled and size < FEWEST:
        keep = listed
        group["levels"] = listed
        comment = f"{size} rows of {shorten(pooled)} are left out: too few to compare"
    elif pooled:
        pool = next(word for word in ("other", "all other", "pooled") if word not in listed)
        # What the table does not hold yet is pooled too, unless a level has that word's name.
        rest: str | list[str] = pooled if OTHERS in counts else OTHERS
        group["levels"] = {**{level: [level] for level in listed}, pool: rest}
        sizes[pool] = size
        comment = f"{pool} pools {shorten(pooled)}"
    variants = [level for level in listed if level != MISSING_LEVEL]
    return AttributeDraft(
        name, column.name, group, sizes, comment, variants if len(variants) > 1 else [], keep
    )


def _draft_bands(name: str, column: Column) -> AttributeDraft | None:
    numbers = column.numbers.dropna() if column.numbers is not None else pd.Series(dtype=float)
    years = find_attribute(column.name) == "age" and numbers.between(0, OLDEST).all()
    # Digits of what varies: years of birth differ in their last two. The range may be infinite.
    digits = 2 - math.floor(math.log10(numbers.max() / 2 - numbers.min() / 2 or 1.0))
    terciles = [round(float(numbers.quantile(share)), digits) for share in (1 / 3, 2 / 3)]
    edges: list[float] = []
    for edge in AGES if years else terciles:
        low = edges[-1] if edges else -float("inf")
        if numbers.between(low, edge, inclusive="left").sum() >= SMALL <= (numbers >= edge).sum():
            edges.append(edge)
    if not edges:
        middle = round(float(numbers.median()), digits)
        if min((numbers < middle).sum(), (numbers >= middle).sum()) < FEWEST:
            return None
        edges = [middle]
    starts = pd.IntervalIndex.from_breaks([-float("inf"), *edges, float("inf")], closed="left")
    rows = [int(numbers.between(i.left, i.right, inclusive="left").sum()) for i in starts]
    sizes = dict(zip(name_bands(tuple(edges)), rows, strict=True))
    below: Any = edges[0] if len(edges) == 1 else edges
    comment = f"{column.missing:,} rows without it are left out" if column.missing else ""
    return AttributeDraft(
        name,
        column.name,
        {"column": column.name, "below": below},
        sizes,
        comment,
        present=bool(column.missing),
    )
