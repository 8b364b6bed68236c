"""Parts made up for the tests of measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import Part, Variant


@dataclass(frozen=True, eq=False)
class MadeSet:
    """Variants that exist already."""

    variants: tuple[Variant, ...]
    rows: np.ndarray | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.variants)

    @property
    def n_samples(self) -> int:
        return len(self.variants[0].X)

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.variants)

    def take(self, rows: np.ndarray) -> MadeSet:
        having = None if self.rows is None else np.flatnonzero(np.isin(rows, self.rows))
        taken = (Variant(v.name, v.X[rows], v.groups[rows]) for v in self.variants)
        return MadeSet(tuple(taken), having)


def make_part(
    y: Sequence[int] | np.ndarray,
    groups: Sequence[Sequence[int]] | np.ndarray,
    attributes: Mapping[str, Sequence[str]],
    *,
    X: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    classes: tuple[str, ...] = ("no", "yes"),
    counterfactuals: Mapping[str, MadeSet] | None = None,
) -> Part:
    """Return a part with one column for each attribute in ``groups``."""
    y = np.asarray(y)
    groups = np.asarray(groups, dtype=np.int64).reshape(y.size, len(attributes))
    return Part(
        dataset="made",
        name="test",
        ids=np.arange(y.size),
        X=np.zeros((y.size, 1)) if X is None else X,
        y=y,
        groups=groups,
        protected=groups.astype(np.float64),
        weight=np.ones(y.size) if weight is None else np.asarray(weight, dtype=np.float64),
        attributes={name: tuple(levels) for name, levels in attributes.items()},
        classes=classes,
        counterfactuals=counterfactuals or {},
    )


def make_rows(
    rows: int, seed: int = 0, levels: Sequence[int] = (2, 3)
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, tuple[str, ...]]]:
    """Return labels, groups, scores and attributes that depend on one another."""
    rng = np.random.default_rng(seed)
    groups = np.column_stack([rng.integers(0, size, rows) for size in levels])
    y = (rng.random(rows) < 0.3 + 0.1 * groups[:, 0]).astype(np.int64)
    score = np.round(rng.beta(2 + y, 2 + 0.3 * groups[:, -1]), 2)
    names = [f"attribute{a}" for a in range(len(levels))]
    return (
        y,
        groups,
        score,
        {
            name: tuple(f"level{k}" for k in range(size))
            for name, size in zip(names, levels, strict=True)
        },
    )


def make_regression(
    rows: int, seed: int = 0, *, weighted: bool = False, levels: Sequence[int] = (2, 3)
) -> tuple[Part, Prediction]:
    """Return targets in [0, 1], and predictions that follow them and lean on the groups.

    Predictions are rounded to hundredths, so that there are ties.
    """
    y, groups, score, attributes = make_rows(rows, seed, levels)
    rng = np.random.default_rng(seed + 1)
    weight = rng.uniform(0.2, 3, rows) if weighted else np.ones(rows)
    part = make_part(
        rng.random(rows) * 0.5 + 0.5 * y, groups, attributes, weight=weight, classes=()
    )
    return part, Prediction(score, score)


def mix(components: np.ndarray, probability: np.ndarray) -> Prediction:
    """Return the prediction of a regression that draws one of several regressors."""
    score = components @ probability
    return Prediction(score, score, components=components, probability=probability)
