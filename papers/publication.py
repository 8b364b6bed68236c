"""Published tables, with which a study of a paper is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fairfrontier.runtime.config import Model, fault, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.home import find_home


class PublishedRow(Model):
    """One row of a published table: means, and spreads where the paper has them.

    Attributes
    ----------
    label : str
        The row's name for readers.
    method : str or None
        Our label of the method; the row's own name when None.
    at : mapping
        What our setting must contain, for a method that is run at several: ``{noise: 0.1}``.
    mean, spread : tuple of float
        One number per measure.
    remark : str
        What a reader has to know of the numbers.
    """

    label: str
    method: str | None = None
    at: dict[str, Any] = Field(default_factory=dict)
    mean: tuple[float, ...]
    spread: tuple[float | None, ...] | None = None
    remark: str = ""


class Derived(Model):
    """A number of a paper that is derived from our measures: the largest of factor · mean + shift.

    Means are over the splits: the measure with the largest *mean* is shown, with its own spread.
    """

    largest_of: tuple[str, ...] = Field(min_length=1)
    factor: float = 1.0
    shift: float = 0.0


class PublishedTable(Model):
    """A published table.

    Attributes
    ----------
    title, dataset, where, verified : str
        What it shows, on which dataset, where it is printed, and how the numbers were checked.
    spread_kind : {"sd", "se"}
        What the spreads are.
    n_splits : int
        Splits behind a published mean.
    measures : tuple of str
        ``measure`` or ``measure:group``, in our names, or names of ``derived``, in the order of
        the rows' numbers.
    derived : mapping of str to Derived
        Numbers derived from our measures.
    along : str or None
        One of ``measures``, where the rows are points of curves: ours is read off the curve
        through our settings, see ``curve.Curve``, where this measure is as published.
    rows : mapping of str to PublishedRow
        By name; the name is our label of the method unless the row has another.
    """

    title: str
    dataset: str
    where: str
    verified: str
    spread_kind: Literal["sd", "se"]
    n_splits: int = Field(gt=0)
    measures: tuple[str, ...]
    derived: dict[str, Derived] = Field(default_factory=dict)
    along: str | None = None
    rows: dict[str, PublishedRow]

    @property
    def sources(self) -> tuple[str, ...]:
        """Our measures behind the numbers."""
        return tuple(
            source
            for name in self.measures
            for source in (self.derived[name].largest_of if name in self.derived else (name,))
        )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        for name, row in self.rows.items():
            for numbers in (row.mean, row.spread):
                if numbers is not None and len(numbers) != len(self.measures):
                    raise fault(
                        f"the row {name} needs {len(self.measures)} numbers",
                        "Give one per measure.",
                    )
        if self.along is not None and (self.derived or self.along not in self.measures):
            raise fault("along is none of the measures", "Name one of them, and derive nothing.")
        return self


class Publication(Model):
    """A file of ``data/reference``: the tables of one paper."""

    publication: str
    source: str
    tables: dict[str, PublishedTable]


def read_publication(reproduces: str, home: Path | None = None) -> tuple[Publication, str]:
    """Return the publication and the key of the table of ``FILE.TABLE``, e.g. ``budro.table2``."""
    name, _, table = reproduces.partition(".")
    path = find_yaml("publication", name, home or find_home())
    publication = parse(Publication, read_yaml(path), path)
    if table not in publication.tables:
        raise ConfigError(f"{path} has no table {table!r}.", nearest(table, publication.tables))
    return publication, table
