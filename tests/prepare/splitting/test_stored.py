"""Blocks and attributes from a file are those of the dataset, or refused."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict

import numpy as np
import pytest

from fairfrontier.prepare.config.dataset import Limits
from fairfrontier.prepare.splitting.group import fit_attributes
from fairfrontier.prepare.splitting.stored import read_attributes, read_blocks
from tests.prepare.splitting.test_encoder import config_of, fit, table

FEATURES = {
    "numeric": ["income"],
    "quantile": {"columns": ["points"], "bins": 4},
    "cut": {"age": [30, 40]},
    "categorical": ["city"],
    "binary": {"owner": True},
}
CONFIG = config_of(FEATURES)
ENCODER = fit(table(), CONFIG)
BLOCKS = json.loads(json.dumps(ENCODER.to_json()))
FITTED = fit_attributes(CONFIG.groups, {"origin": ("north", "south")}, "f", Limits())
ATTRIBUTES = json.loads(json.dumps([asdict(each) for each in FITTED]))


def edit(plain, *path, value):
    plain = copy.deepcopy(plain)
    owner = plain
    for step in path[:-1]:
        owner = owner[step]
    owner[path[-1]] = value
    return plain


def test_what_was_written_is_read():
    blocks = read_blocks(BLOCKS, CONFIG)
    assert [type(block).__name__ for block in blocks] == [each["block"] for each in BLOCKS]
    assert np.array_equal(
        np.hstack([block.encode(table()[block.column]) for block in blocks]),
        ENCODER.encode(table()),
    )
    assert read_attributes(ATTRIBUTES, CONFIG) == FITTED


def test_numbers_that_are_written_as_text_are_numbers():
    plain = edit(BLOCKS, 2, "edges", value=["30", "40"])
    assert read_blocks(plain, CONFIG)[2].edges == (30.0, 40.0)


@pytest.mark.parametrize(
    "path",
    [
        (0, "column", "city"),
        (0, "block", "OneHot"),
        (0, "block", "Block"),
        (0, "scale", 0.0),
        (0, "scale", float("nan")),
        (0, "mean", float("inf")),
        (0, "mean", [1]),
        (0, "fill", float("inf")),
        (0, "names", []),
        (0, "names", "income"),
        (0, "more", 1),
        (1, "edges", [2, 1]),
        (1, "edges", [float("nan")]),
        (1, "names", ["x"]),
        (2, "edges", [9, 30]),
        (2, "upper", {}),
        (2, "upper", False),
        (3, "levels", ["Ulm", "Ulm", "Bonn", "missing"]),
        (3, "levels", [1, 2, 3, 4]),
        (3, "levels", []),
        (3, "levels", ["missing", "Ulm", "Köln", "Bonn"]),
        (3, "levels", ["Bonn", "Köln", "Ulm", "missing "]),
        (3, "names", ["city_Ulm", "city_Bonn", "city_Köln", "city_missing"]),
        (4, "level", None),
        (4, "level", "False"),
        (4, "levels", []),
        (4, "levels", ["True", "False"]),
        (4, {}),
        (4, None),
    ],
    ids=str,
)
def test_blocks_that_are_not_the_datasets_are_refused(path):
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        read_blocks(edit(BLOCKS, *path[:-1], value=path[-1]), CONFIG)


@pytest.mark.parametrize(
    "path",
    [
        (0, "name", "city"),
        (0, "column", "city"),
        (0, "column", None),
        (0, "names", ["north", "north"]),
        (0, "names", []),
        (0, "codes", {"north": 2}),
        (0, "codes", {"north": -1}),
        (0, "codes", [1]),
        (0, "others", 9),
        (0, "cross", ["age", "age"]),
        (1, "edges", [40]),
        (1, "names", ["young"]),
        (2, "names", ["north×young"]),
        (2, "cross", ["origin"]),
        (2, {}),
    ],
    ids=str,
)
def test_attributes_that_are_not_the_datasets_are_refused(path):
    with pytest.raises((ValueError, TypeError)):
        read_attributes(edit(ATTRIBUTES, *path[:-1], value=path[-1]), CONFIG)
