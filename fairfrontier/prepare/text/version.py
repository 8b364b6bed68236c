"""Counterfactual versions of texts: which rows have some, and their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.section import PartName
from fairfrontier.prepare.config.text import Terms, VersionRule
from fairfrontier.prepare.text.gender import swap_gender
from fairfrontier.prepare.text.occurrence import Occurrences, Rewriting, find_words
from fairfrontier.prepare.text.substitution import draw_version, set_term
from fairfrontier.runtime.seeds import derive_integer, uniforms

AS_WRITTEN = "as written"
SWAPPED = "swapped"


@dataclass(frozen=True, eq=False)
class Version:
    """One counterfactual version of the texts of some rows, which ``write`` makes."""

    name: str
    write: Callable[[], Rewriting]


@dataclass(frozen=True, eq=False)
class Versions:
    """The versions of a part's texts in one counterfactual set.

    ``rows`` are the positions of the rows that have versions, ascending, and ``ids`` their ids;
    every version is of these rows.
    """

    rows: np.ndarray
    ids: np.ndarray
    versions: tuple[Version, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the versions, in their order."""
        return tuple(version.name for version in self.versions)

    @property
    def texts(self) -> Iterator[str]:
        """Yield the texts of all versions."""
        for version in self.versions:
            yield from version.write().texts

    def table(self) -> pd.DataFrame:
        """Return every word that is replaced; see `Rewriting.table`, with a column ``version``."""
        tables = [
            version.write().table(self.ids).assign(version=version.name)
            for version in self.versions
        ]
        return pd.concat(tables, ignore_index=True)


def make_versions(
    name: str, rule: VersionRule, texts: Sequence[str], ids: np.ndarray, part: PartName, seed: int
) -> Versions:
    """Return the versions of the rows of a part that contain a known term, or a word to swap.

    Terms that are unknown in training are plain words there: a text that mentions no other term has
    no version. ``name`` (of the set), the row ids, all different, and the seed of the split
    determine what is drawn. O(characters) now, and as much for each version when it is written.
    """
    limit = rule.rows.get(part)
    if rule.terms is not None:
        terms = known_terms(rule, part, seed).terms
        counts = find_words(texts, terms).counts
        rows = _sample(np.flatnonzero(counts), ids, limit, name, part, seed)
        # Found again in the few texts: occurrences refer to texts by position.
        found = find_words([texts[row] for row in rows], terms)
        return Versions(rows, ids[rows], _term_versions(name, rule, found, ids[rows], part, seed))
    assert rule.swap is not None  # noqa: S101 - checked when the rule was read
    number = derive_integer("versions", name, seed)
    swapped = swap_gender(texts, rule.swap, ids, number).texts
    changed = np.array([old != new for old, new in zip(texts, swapped, strict=True)])
    rows = _sample(np.flatnonzero(changed), ids, limit, name, part, seed)
    kept = [texts[row] for row in rows]
    versions = (
        Version(AS_WRITTEN, partial(_keep, kept)),
        Version(SWAPPED, partial(swap_gender, kept, rule.swap, ids[rows], number)),
    )
    return Versions(rows, ids[rows], versions[1:] if part == "train" else versions)


def known_terms(rule: VersionRule, part: PartName, seed: int) -> Terms:
    """Return the terms that a part may use: in the test part all, elsewhere those drawn."""
    assert rule.terms is not None  # noqa: S101 - as above
    if part == "test" or rule.known is None:
        return rule.terms
    return rule.terms.draw(rule.known, seed)


def _term_versions(
    name: str, rule: VersionRule, found: Occurrences, ids: np.ndarray, part: PartName, seed: int
) -> tuple[Version, ...]:
    drawn = rule.draw.get(part)
    if drawn is None:
        return tuple(Version(term, partial(set_term, found, term)) for term in found.names)
    seeds = [derive_integer("versions", name, seed, number) for number in range(1, drawn + 1)]
    return tuple(
        Version(f"drawn {number + 1}", partial(draw_version, found, ids, drawn, seeds[:number]))
        for number, drawn in enumerate(seeds)
    )


def _sample(
    rows: np.ndarray, ids: np.ndarray, limit: int | None, name: str, part: PartName, seed: int
) -> np.ndarray:
    """Return at most ``limit`` of the rows, drawn by their ids, in ascending order."""
    if limit is None or rows.size <= limit:
        return rows
    share = uniforms(derive_integer("versions", name, part, seed), ids[rows])
    return np.sort(rows[np.argsort(share, kind="stable")[:limit]])


def _keep(texts: list[str]) -> Rewriting:
    return find_words(texts, ()).replace(())
