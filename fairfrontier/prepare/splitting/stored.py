"""Fitted blocks and attributes from a file that anybody may have written: do they fit the YAML."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from fairfrontier.prepare.config.dataset import DatasetConfig, Limits
from fairfrontier.prepare.config.label import Label
from fairfrontier.prepare.splitting.encoder import (
    Binary,
    Bins,
    Block,
    Encoder,
    OneHot,
    Standard,
    Statistics,
    filled_columns,
    free_columns,
    make_blocks,
)
from fairfrontier.prepare.splitting.group import Attribute, fit_attributes
from fairfrontier.prepare.table.column import sort_levels, unique_levels
from fairfrontier.runtime.errors import ConfigError, DataError, repeated, require


def read_blocks(
    plain: Any, config: DatasetConfig, attributes: Iterable[Attribute] = ()
) -> tuple[Block, ...]:
    """Return the blocks that `Encoder.to_json` described, of all features but texts.

    ValueError, or what Python raises for other types, unless they are what `make_blocks` makes of
    a dataset's features, its ``attributes`` and the statistics that the blocks hold.
    """
    # What was validated is used: numbers may be written as text.
    blocks = tuple(
        TypeAdapter(type(block)).validate_python(vars(block))
        for block in Encoder.from_json(plain).blocks
    )
    statistics = _read_statistics(blocks)
    require(all(map(math.isfinite, statistics.mean.values())), "mean")
    require(all(0 < scale < math.inf for scale in statistics.scale.values()), "scale")
    require(all(map(math.isfinite, statistics.fill.values())), "fill")
    require({*statistics.fill} == {*filled_columns(config)}, "fill")
    require(all(map(_rises, statistics.edges.values())), "edges")
    for name in free_columns(config):
        levels = statistics.levels.get(name, ())
        require(len(levels) > 0 and unique_levels(pd.Series(levels)) == levels, "levels")
    made: tuple[Block, ...] = ()
    with suppress(KeyError):
        made = make_blocks(config, statistics, {each.name: each.names for each in attributes})
    require(Encoder(blocks).to_json() == Encoder(made).to_json(), "features")
    return blocks


def _read_statistics(blocks: Iterable[Block]) -> Statistics:
    """Return the statistics that blocks hold."""
    mean, scale, fill = dict[str, float](), dict[str, float](), dict[str, float]()
    edges, levels = dict[str, tuple[float, ...]](), dict[str, tuple[str, ...]]()
    for block in blocks:
        name = block.column
        if not math.isnan(block.fill):
            fill[name] = block.fill
        match block:
            case Standard():
                mean[name], scale[name] = block.mean, block.scale
            case Bins(upper=False):
                edges[name] = block.edges
            case OneHot() | Binary(levels=[_, *_]):
                levels[name] = block.levels
    return Statistics(mean, scale, fill, edges, levels)


def read_attributes(plain: Any, config: DatasetConfig) -> tuple[Attribute, ...]:
    """Return the attributes whose fields are given.

    ValueError unless they are what `fit_attributes` makes of a dataset's groups and the levels that
    the attributes hold.
    """
    attributes = TypeAdapter(tuple[Attribute, ...]).validate_python(plain)
    require([each.name for each in attributes] == [*config.groups], "attributes")
    sizes = {each.name: len(each.names) for each in attributes}
    present: dict[str, set[str]] = {}
    for each in attributes:
        if each.cross:
            # Before their names are made.
            require(math.prod(sizes[name] for name in each.cross) == len(each.names), "levels")
        present.setdefault(each.column or "", set()).update(each.codes or {})
    levels = {column: tuple(found) for column, found in present.items()}
    limits = Limits(levels=max(sizes.values(), default=1))
    made: tuple[Attribute, ...] = ()
    with suppress(KeyError, ConfigError, DataError):
        made = fit_attributes(config.groups, levels, "", limits)
    require(made == attributes, "attributes")
    return attributes


def read_levels(plain: Any, label: Label, classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the levels of a label; ValueError unless they can be those of its classes."""
    levels = TypeAdapter(tuple[str, ...]).validate_python(plain)
    named = {*(classes if label.task == "multiclass" else label.positive or ())}
    fitting = named < {*levels} if label.positive else named == {*levels}
    require(fitting and not repeated(levels), "levels of the label")
    require(label.task != "multiclass" or sort_levels(classes) == classes, "classes")
    return levels


def _rises(edges: Iterable[float]) -> bool:
    numbers = np.array([*edges], dtype=np.float64)
    return bool(np.isfinite(numbers).all() and (np.diff(numbers) > 0).all())
