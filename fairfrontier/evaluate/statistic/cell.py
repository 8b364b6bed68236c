"""Rows counted by group, label and decision: all that group measures need to know of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.prediction import Prediction, task_of

# Beyond this many cells the joint table over all attributes would cost more than the rows.
JOINT_LIMIT = 1 << 16

Sums = tuple[np.ndarray, np.ndarray, np.ndarray, bool]


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums over the rows of each level (of one attribute or cross product), label and decision.

    With weight w and decision h (the probability of deciding 1), a row counts w(1 − h) towards
    the decision 0 and wh towards the decision 1.

    Attributes
    ----------
    levels : tuple of str
        Level names.
    count : ndarray of int64, shape (n_levels, 2)
        Rows by level and label.
    mass : ndarray of float64, shape (n_levels, 2, 2)
        Sums by level, label and decision.
    square : ndarray of float64, shape (n_levels, 2, 2, 2)
        Sums of products: [k, y, d, e] sums w²·h_d·h_e, with h_0 = 1 − h and h_1 = h.
    whole : bool
        Whether all weights are 1 and all decisions 0 or 1, so that the masses are counts.
    """

    levels: tuple[str, ...]
    count: np.ndarray
    mass: np.ndarray
    square: np.ndarray
    whole: bool


def find_memberships(attributes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the attributes that say whether a row belongs: those with the levels yes and no.

    Texts have one for every family of terms that they may mention. A row may belong to several.
    """
    return tuple(name for name, levels in attributes.items() if set(levels) == {"no", "yes"})


def count_cells(prediction: Prediction, part: Part) -> Mapping[str, Cells]:
    """Count the rows of a part for every attribute and every pair of attributes.

    Parameters
    ----------
    prediction : Prediction
        Its decisions are counted. With more than two classes the label becomes 1 and the
        decision whether the class is right, so that the accuracy can be read from the cells.
    part : Part
        Labels, groups and weights.

    Returns
    -------
    mapping of str to Cells
        ``""`` (all rows), then each attribute, then each pair as ``"sex×race"``. A cross product
        leaves out the combinations that no row has. Two memberships make no pair.

    Raises
    ------
    DataError
        When a group code or a label is out of range.

    Notes
    -----
    Cost O(n) whatever the number of attributes: the rows are counted once over the joint index
    of all attributes, and every table is a sum over the axes of that. Where the joint table
    would be large (65,536 cells), each pair is counted by itself instead; a pair with more cells
    than that and than rows is left out, for it could not be estimated.
    """
    label, decision = _binary(prediction, part)
    attributes = dict(part.attributes)
    names = list(attributes)
    sizes = [len(levels) for levels in attributes.values()]
    columns = [read_codes(part, name, size) for name, size in zip(attributes, sizes, strict=True)]
    memberships = set(find_memberships(attributes))
    pairs = [
        (a, b)
        for a, b in combinations(range(len(sizes)), 2)
        # A cross product is crossed already; memberships are many, and overlap as they are.
        if not any("×" in names[each] for each in (a, b))
        and not {names[a], names[b]} <= memberships
        and 4 * sizes[a] * sizes[b] <= max(JOINT_LIMIT, part.n_samples)
    ]
    wanted: list[tuple[int, ...]] = [(), *((a,) for a in range(len(sizes))), *pairs]
    if 4 * math.prod(sizes) <= JOINT_LIMIT:
        blocks: list[tuple[int, ...]] = [tuple(range(len(sizes)))]
    else:
        blocks = wanted[::-1]
    tables: dict[tuple[int, ...], Sums] = {}
    weight = np.asarray(part.weight)
    for block in blocks:
        if block not in tables:
            shape = [sizes[a] for a in block]
            joint = _count([columns[a] for a in block], shape, label, decision, weight)
            for axes in wanted:
                if axes not in tables and set(axes) <= set(block):
                    tables[axes] = _marginal(joint, block, axes)
    result: dict[str, Cells] = {}
    for axes in wanted:
        count, mass, square, whole = tables[axes]
        levels = [attributes[names[a]] for a in axes]
        if len(axes) == 2:
            joined = [f"{first}×{second}" for first in levels[0] for second in levels[1]]
            kept = np.flatnonzero(count.sum(axis=1))
            result["×".join(names[a] for a in axes)] = Cells(
                tuple(joined[k] for k in kept), count[kept], mass[kept], square[kept], whole
            )
        else:
            flat = tuple(levels[0]) if axes else ("",)
            result[names[axes[0]] if axes else ""] = Cells(flat, count, mass, square, whole)
    return result


def read_codes(part: Part, attribute: str, size: int) -> np.ndarray:
    """Return the group codes of an attribute, checked against the number of its levels.

    Raises
    ------
    DataError
        When a code is out of range.
    """
    codes = np.asarray(part.group(attribute))
    if codes.size and (codes.min() < 0 or codes.max() >= size):
        raise DataError(
            f"The groups {attribute!r} of {part.dataset}/{part.name} have codes outside their "
            f"{size} levels.",
            "Prepare the part again: each row needs one of the levels.",
        )
    return codes


def _binary(prediction: Prediction, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Return 0/1 labels and decisions."""
    y = np.asarray(part.y)
    if task_of(part) == "multiclass":
        return np.ones(y.shape[0], dtype=np.int64), (prediction.decision == y).astype(np.float64)
    if y.size and (y.min() < 0 or y.max() > 1):
        raise DataError(
            f"The labels of {part.dataset}/{part.name} go beyond 0 and 1.",
            "Give the dataset a label with two classes, or measure a regression.",
        )
    return y, prediction.decision


def _count(
    columns: list[np.ndarray],
    sizes: list[int],
    label: np.ndarray,
    decision: np.ndarray,
    weight: np.ndarray,
) -> Sums:
    """Return count, mass, square (with one axis for each column in front) and whole."""
    index = np.zeros(label.shape[0], dtype=np.intp)
    for column, size in zip(columns, sizes, strict=True):
        index *= size
        index += column
    index *= 2
    index += label
    shape = (*sizes, 2)
    n_cells = math.prod(shape)
    choice = decision.astype(np.intp)
    if (choice == decision).all() and (weight == 1).all():
        index *= 2
        index += choice
        rows = np.bincount(index, minlength=2 * n_cells).reshape(*shape, 2)
        return rows.sum(axis=-1), rows.astype(np.float64), rows[..., None] * np.eye(2), True
    halves = np.stack([weight * (1 - decision), weight * decision])
    mass = np.empty((*shape, 2))
    square = np.empty((*shape, 2, 2))
    for d in (0, 1):
        mass[..., d] = np.bincount(index, halves[d], n_cells).reshape(shape)
        for e in (0, 1):
            product = np.bincount(index, halves[d] * halves[e], n_cells)
            square[..., d, e] = product.reshape(shape)
    return np.bincount(index, minlength=n_cells).reshape(shape), mass, square, False


def _marginal(joint: Sums, block: tuple[int, ...], axes: tuple[int, ...]) -> Sums:
    """Sum a joint table over the attributes that are not in ``axes``; flatten those that are."""
    dropped = tuple(position for position, a in enumerate(block) if a not in axes)
    count, mass, square = (
        each.sum(axis=dropped).reshape(-1, *each.shape[len(block) :]) for each in joint[:3]
    )
    return count, mass, square, joint[3]
