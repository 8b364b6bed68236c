"""The prepared table: parts for training, calibration, validation and test, ready for arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

Task = Literal["binary", "multiclass", "regression"]
PART_NAMES = ("train", "calibration", "validation", "test")


@dataclass(frozen=True, eq=False)
class Variant:
    """One counterfactual version of a part.

    Attributes
    ----------
    name : str
        What was set, e.g. ``"relationship=Husband"``.
    X : ndarray of shape (n_samples, n_features)
        The encoded features of that version.
    groups : ndarray of int64, shape (n_samples, n_attributes)
        Group codes of that version: they follow the columns that were set.
    """

    name: str
    X: np.ndarray
    groups: np.ndarray


class CounterfactualSet(Protocol):
    """Versions of a part that a fair model treats alike, made one at a time, never all stored."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variants, in the order they come."""
        ...

    @property
    def n_samples(self) -> int:
        """Number of rows of every variant."""
        ...

    @property
    def rows(self) -> np.ndarray | None:
        """Positions of the rows that have versions, int64 and ascending; None for all of them.

        A variant nevertheless has all rows of the part, the others unchanged. Measures of the set
        are computed from these rows, whose scores are stored.
        """
        ...

    def __iter__(self) -> Iterator[Variant]: ...

    def take(self, rows: np.ndarray) -> CounterfactualSet:
        """Return the same set for a subset of the rows."""
        ...


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of one part of a split.

    Attributes
    ----------
    dataset, name : str
        Dataset and part (``train``, ``calibration``, ``validation`` or ``test``).
    ids : ndarray of int64, shape (n_samples,)
        Row numbers in the source table: stable names of rows in any order or batch.
    X : ndarray of float64, shape (n_samples, n_features)
        Encoded features; a Dask array in a Dask-backed split, as are the other fields.
    y : ndarray, shape (n_samples,)
        int64 class codes (1 is the positive class of a binary task) or float64 targets.
    groups : ndarray of int64, shape (n_samples, n_attributes)
        Group codes, one column per attribute of ``attributes`` in its order.
    protected : ndarray of float64, shape (n_samples, n_protected)
        Raw values (continuous) or level codes (categorical) of the protected attributes.
    weight : ndarray of float64, shape (n_samples,)
        Case weights; ones unless the dataset names a column.
    attributes : mapping of str to tuple of str
        Group attribute -> level names; code k is level k.
    classes : tuple of str
        Label names by code; empty for regression.
    true_groups : ndarray of int64 or None
        Groups before noise was injected; None without noise.
    counterfactuals : mapping of str to CounterfactualSet
        Named sets of variants.
    feature_names : tuple of str
        Names of the columns of X; empty where they have none.
    favourable : int or None
        As of `Split`: the class whose decisions selection rates are of.
    units : tuple of float
        a and b: a target y of a regression is a + b y in the units of its measures.
    """

    dataset: str
    name: str
    ids: np.ndarray
    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    protected: np.ndarray
    weight: np.ndarray
    attributes: Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...]
    true_groups: np.ndarray | None = None
    counterfactuals: Mapping[str, CounterfactualSet] = field(default_factory=dict)
    feature_names: tuple[str, ...] = ()
    favourable: int | None = 1
    units: tuple[float, float] = (0.0, 1.0)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def group(self, attribute: str) -> np.ndarray:
        """Return the group codes of one attribute, shape (n_samples,)."""
        return self.groups[:, list(self.attributes).index(attribute)]

    def take(self, rows: np.ndarray, name: str | None = None) -> Part:
        """Return the part restricted to ``rows`` (integer positions, in that order)."""
        return replace(
            self,
            name=name or self.name,
            ids=self.ids[rows],
            X=self.X[rows],
            y=self.y[rows],
            groups=self.groups[rows],
            protected=self.protected[rows],
            weight=self.weight[rows],
            true_groups=None if self.true_groups is None else self.true_groups[rows],
            counterfactuals={key: sets.take(rows) for key, sets in self.counterfactuals.items()},
        )


@dataclass(frozen=True, eq=False)
class Split:
    """A table made ready for learning: what ``fairfrontier.prepare.load`` returns.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    seed : int
        Which split (an index into the dataset's list of seeds where it has one).
    task : {"binary", "multiclass", "regression"}
        What is learnt.
    feature_names : tuple of str
        Names of the columns of X.
    protected_columns : mapping of str to tuple of int
        Protected attribute -> the columns of X that are, or encode, it (may be empty).
    protected_kinds : mapping of str to {"continuous", "categorical"}
        How the columns of ``Part.protected`` are to be read, in their order.
    train, calibration, validation, test : Part or None
        The parts; any may be absent. Encoders are fitted on train only.
    digest : str
        sha256 of the source's digest and the part of the configuration that shapes the arrays.
    favourable : int or None
        Code of the desirable class; None for regression, and for several classes unless the dataset
        names it.
    text_encoder : str or None
        Name of the encoder that made vectors of texts; None where there are none.
    """

    dataset: str
    seed: int
    task: Task
    feature_names: tuple[str, ...]
    protected_columns: Mapping[str, tuple[int, ...]]
    protected_kinds: Mapping[str, Literal["continuous", "categorical"]]
    train: Part
    calibration: Part | None = None
    validation: Part | None = None
    test: Part | None = None
    digest: str = ""
    favourable: int | None = 1
    text_encoder: str | None = None

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield the parts that are present, as (name, part)."""
        for name in PART_NAMES:
            part = getattr(self, name)
            if part is not None:
                yield name, part

    def replace(self, **changes: Any) -> Split:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def cross(
    columns: Sequence[tuple[np.ndarray, tuple[str, ...]]],
) -> tuple[np.ndarray, tuple[tuple[str, ...], ...]]:
    """Return the codes, int64, of the combinations of several columns, and those that occur.

    Each column is given by its codes, int64 of shape (n,), and its levels.
    """
    shape = [len(levels) for _, levels in columns]
    joint = np.zeros(columns[0][0].shape[0], dtype=np.int64)
    for codes, levels in columns:
        joint = joint * len(levels) + codes
    present, code = np.unique(joint, return_inverse=True)
    names = [
        np.array(levels, dtype=object)[codes]
        for (_, levels), codes in zip(columns, np.unravel_index(present, shape), strict=True)
    ]
    return np.asarray(code, dtype=np.int64).reshape(-1), tuple(zip(*names, strict=True))
