"""Rows counted by group, label and decision, from which all group measures are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from fairfrontier.evaluate.statistic.resampling import Outcomes, count_outcomes
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import DataError
from fairfrontier.train.prediction import Prediction, task_of

# Beyond this many cells the joint table over all attributes would cost more than the rows.
JOINT_LIMIT = 1 << 16


@dataclass(frozen=True, eq=False)
class Cells(Outcomes):
    """Sums over the rows of each level (of one attribute or cross product), label and decision.

    With weight w and decision h (the probability of deciding 1), a row counts w(1 − h) towards
    the decision 0 and wh towards the decision 1. ``count`` has shape (n_levels, 2), ``mass``
    (n_levels, 2, 2), and ``square[k, y, d, e]`` sums w²·h_d·h_e, with h_0 = 1 − h and h_1 = h.
    ``favourable`` is the decision that is good for the person.
    """

    levels: tuple[str, ...]
    favourable: int = 1


def find_memberships(attributes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the attributes that say whether a row belongs: those with the levels yes and no.

    Texts have one for every family of terms that they may mention. A row may belong to several.
    """
    return tuple(name for name, levels in attributes.items() if set(levels) == {"no", "yes"})


def count_cells(prediction: Prediction, part: Part) -> Mapping[str, Cells]:
    """Count the rows of a part for every attribute and every pair of attributes.

    With more than two classes the label becomes 1 and the decision whether the class is right, so
    that the accuracy can be read from the cells.

    The keys are ``""`` (all rows), each attribute, and each pair as ``"sex×race"``. A cross product
    leaves out the combinations that no row has. Two memberships make no pair. DataError when a
    group code or a label is out of range.

    Cost O(n) whatever the number of attributes: the rows are counted once over the joint index
    of all attributes, and every table is a sum over axes of that. Where the joint table would be
    large (65,536 cells), each pair is counted separately; a pair with more cells than that and
    than rows is left out, since it could not be estimated.
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
        # A cross product is crossed already; memberships are many, and overlap anyway.
        if not any("×" in names[i] for i in (a, b))
        and not {names[a], names[b]} <= memberships
        and 4 * sizes[a] * sizes[b] <= max(JOINT_LIMIT, part.n_samples)
    ]
    wanted: list[tuple[int, ...]] = [(), *((a,) for a in range(len(sizes))), *pairs]
    if 4 * math.prod(sizes) <= JOINT_LIMIT:
        blocks: list[tuple[int, ...]] = [tuple(range(len(sizes)))]
    else:
        blocks = wanted[::-1]
    tables: dict[tuple[int, ...], Outcomes] = {}
    weight = np.asarray(part.weight)
    for block in blocks:
        if block not in tables:
            shape = [sizes[a] for a in block]
            joint = _count([columns[a] for a in block], shape, label, decision, weight)
            for axes in wanted:
                if axes not in tables and set(axes) <= set(block):
                    tables[axes] = _sum_out(joint, block, axes)
    result: dict[str, Cells] = {}
    for axes in wanted:
        table = tables[axes]
        levels = ["×".join(crossed) for crossed in product(*(attributes[names[a]] for a in axes))]
        kept = np.flatnonzero(table.count.sum(axis=1)) if len(axes) == 2 else np.arange(len(levels))
        result["×".join(names[a] for a in axes)] = Cells(
            table.count[kept],
            table.mass[kept],
            table.square[kept],
            tuple(levels[k] for k in kept),
            int(task_of(part) == "multiclass" or part.favourable != 0),
        )
    return result


def read_codes(part: Part, attribute: str, size: int) -> np.ndarray:
    """Return the group codes of an attribute; DataError when one is not below ``size``."""
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
            f"The labels of {part.dataset}/{part.name} are not all 0 or 1.",
            "Give the dataset a label with two classes, or measure a regression.",
        )
    return y, prediction.decision


def _count(
    columns: list[np.ndarray],
    sizes: list[int],
    label: np.ndarray,
    decision: np.ndarray,
    weight: np.ndarray,
) -> Outcomes:
    """Count rows by the columns, one axis for each, and by label."""
    index = np.zeros(label.shape[0], dtype=np.intp)
    for column, size in zip(columns, sizes, strict=True):
        index *= size
        index += column
    index *= 2
    index += label
    shape = (*sizes, 2)
    flat = count_outcomes(index, decision, weight, math.prod(shape))
    return Outcomes(
        flat.count.reshape(shape), flat.mass.reshape(*shape, 2), flat.square.reshape(*shape, 2, 2)
    )


def _sum_out(joint: Outcomes, block: tuple[int, ...], axes: tuple[int, ...]) -> Outcomes:
    """Sum a joint table over the attributes that are not in ``axes``; flatten those that are."""
    dropped = tuple(position for position, a in enumerate(block) if a not in axes)
    count, mass, square = (
        sums.sum(axis=dropped).reshape(-1, *sums.shape[len(block) :])
        for sums in (joint.count, joint.mass, joint.square)
    )
    return Outcomes(count, mass, square)
