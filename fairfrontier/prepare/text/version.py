"""Versions of texts: which rows have some, and what stands in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.section import PartName
from fairfrontier.prepare.config.text import VersionRule
from fairfrontier.prepare.config.vocabulary import Terms
from fairfrontier.prepare.text.gender import swap_gender
from fairfrontier.prepare.text.occurrence import Occurrences, Rewriting
from fairfrontier.prepare.text.substitution import draw_version, find_terms, set_term
from fairfrontier.runtime.seeds import derive_integer, uniforms

AS_WRITTEN = "as written"
SWAPPED = "swapped"


@dataclass(frozen=True, eq=False)
class Version:
    """One counterfactual version of the texts of some rows.

    Attributes
    ----------
    name : str
    write : callable
        Returns the texts with what was replaced in them; made when it is called.
    """

    name: str
    write: Callable[[], Rewriting]


@dataclass(frozen=True, eq=False)
class Versions:
    """The versions of a part's texts in one counterfactual set.

    Attributes
    ----------
    rows : ndarray of int64, shape (n_rows,)
        Positions of the rows that have versions, ascending.
    ids : ndarray of int64, shape (n_rows,)
        Their ids.
    versions : tuple of Version
        Each is of these rows.
    """

    rows: np.ndarray
    ids: np.ndarray
    versions: tuple[Version, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the versions, in their order."""
        return tuple(each.name for each in self.versions)

    @property
    def texts(self) -> Iterator[str]:
        """Yield the texts of all versions."""
        for each in self.versions:
            yield from each.write().texts

    def table(self) -> pd.DataFrame:
        """Return every word that is replaced; see `Rewriting.table`, with a column ``version``."""
        tables = [each.write().table(self.ids).assign(version=each.name) for each in self.versions]
        return pd.concat(tables, ignore_index=True)


def make_versions(
    name: str, rule: VersionRule, texts: Sequence[str], ids: np.ndarray, part: PartName, seed: int
) -> Versions:
    """Decide which rows of a part have versions, and which.

    Parameters
    ----------
    name : str
        Of the set; names its random draws.
    rule : VersionRule
    texts : sequence of str, length n_samples
    ids : ndarray of int64, shape (n_samples,)
        Row ids, all different: they alone decide with the seed what is drawn for a row.
    part : str
        ``train``, ``calibration``, ``validation`` or ``test``.
    seed : int
        Of the split.

    Returns
    -------
    Versions
        Of the rows that hold a term that is known in this part, or a word that is exchanged.

    Notes
    -----
    Terms that are not known in training are plain words there: a text that mentions no other has
    no version. O(characters) now, and as much for each version when it is written.
    """
    limit = rule.rows.get(part)
    listed = list(texts)
    if rule.terms is not None:
        found = find_terms(listed, known_terms(rule, part, seed))
        rows = _sample(np.flatnonzero(found.counts), ids, limit, name, part, seed)
        # Looked for again in the few texts: an occurrence knows its text by position.
        found = find_terms([listed[row] for row in rows], known_terms(rule, part, seed))
        return Versions(rows, ids[rows], _term_versions(name, rule, found, ids[rows], part, seed))
    assert rule.swap is not None  # noqa: S101 - checked when the rule was read
    number = derive_integer("versions", name, seed)
    every = swap_gender(listed, rule.swap, ids, number)
    changed = np.array([old != new for old, new in zip(listed, every.texts, strict=True)])
    rows = _sample(np.flatnonzero(changed), ids, limit, name, part, seed)
    some = [listed[row] for row in rows]
    swapped = Version(SWAPPED, partial(swap_gender, some, rule.swap, ids[rows], number))
    if part == "train":
        return Versions(rows, ids[rows], (swapped,))
    written = Version(AS_WRITTEN, partial(_keep, some))
    return Versions(rows, ids[rows], (written, swapped))


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
        Version(f"drawn {position + 1}", partial(draw_version, found, ids, each, seeds[:position]))
        for position, each in enumerate(seeds)
    )


def _sample(
    rows: np.ndarray, ids: np.ndarray, limit: int | None, name: str, part: PartName, seed: int
) -> np.ndarray:
    """Return at most so many of the rows, drawn by their ids, in ascending order."""
    if limit is None or rows.size <= limit:
        return rows
    share = uniforms(derive_integer("versions", name, part, seed), ids[rows])
    return np.sort(rows[np.argsort(share, kind="stable")[:limit]])


def _keep(texts: list[str]) -> Rewriting:
    none = np.empty(0, dtype=np.int64)
    return Occurrences(tuple(texts), (), none, none, none, none).replace(())
