"""Fitted blocks and attributes from a file that anybody may have written: do they fit the YAML."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.label import Label
from fairfrontier.prepare.splitting.encoder import (
    GROUP_PREFIX,
    Binary,
    Bins,
    Block,
    Encoder,
    OneHot,
    Standard,
)
from fairfrontier.prepare.splitting.group import Attribute
from fairfrontier.runtime.errors import repeated


def read_blocks(plain: Any, config: DatasetConfig) -> tuple[Block, ...]:
    """Return the blocks that `Encoder.to_json` described, of all features but texts.

    ValueError, or what Python raises for other types, unless they are those of a dataset's features
    in their order.
    """
    blocks = Encoder.from_json(plain).blocks
    features = config.features
    wanted = [
        *((Standard, name) for name in features.numeric),
        *((Bins, name) for name in features.binned),
        *((OneHot, name) for name in features.categorical),
        *((Binary, name) for name in features.binary),
        *((Block, name) for name in features.passthrough),
        *((OneHot, GROUP_PREFIX + name) for name in features.groups),
    ]
    require([(type(block), block.column) for block in blocks] == wanted, "features")
    # What was validated is used: numbers may be written as text.
    blocks = tuple(TypeAdapter(type(block)).validate_python(vars(block)) for block in blocks)
    for block in blocks:
        require(not math.isinf(block.fill), "fill")
        size = 1
        if isinstance(block, Standard):
            require(math.isfinite(block.mean) and 0 < block.scale < math.inf, "scale")
        elif isinstance(block, Bins):
            require(_rises(block.edges), "edges")
            size = len(block.edges) + 1
        elif isinstance(block, OneHot):
            require(not repeated(block.levels), "levels")
            size = len(block.levels)
        require(len(block.names) == size, "names of features")
    return blocks


def read_attributes(plain: Any, config: DatasetConfig) -> tuple[Attribute, ...]:
    """Return the attributes whose fields are given; ValueError unless they are a dataset's."""
    attributes = TypeAdapter(tuple[Attribute, ...]).validate_python(plain)
    require([each.name for each in attributes] == [*config.groups], "attributes")
    sizes = {each.name: len(each.names) for each in attributes}
    for each in attributes:
        group = config.groups[each.name]
        made = (each.column, each.edges, each.cross)
        require(made == (group.column, group.edges, group.cross or ()), "attributes")
        require(len(each.names) > 0 and not repeated(each.names), "levels")
        if each.cross:
            require(math.prod(sizes[name] for name in each.cross) == len(each.names), "levels")
        elif each.edges:
            require(_rises(each.edges) and len(each.edges) + 1 == len(each.names), "edges")
        else:
            codes = [*(each.codes or {}).values(), *([] if each.others is None else [each.others])]
            require(all(0 <= code < len(each.names) for code in codes), "codes of levels")
    return attributes


def read_levels(plain: Any, label: Label, classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the levels of a label; ValueError unless they can be those of its classes."""
    levels = TypeAdapter(tuple[str, ...]).validate_python(plain)
    named = {*(classes if label.task == "multiclass" else label.positive or ())}
    fitting = named < {*levels} if label.positive else named == {*levels}
    require(fitting and not repeated(levels), "levels of the label")
    return levels


def _rises(edges: Iterable[float]) -> bool:
    numbers = np.array([*edges], dtype=np.float64)
    return bool(np.isfinite(numbers).all() and (np.diff(numbers) > 0).all())


def require(holds: bool, what: str) -> None:
    """Raise ValueError unless something holds of what a file says."""
    if not holds:
        raise ValueError(f"its {what} cannot be right")
