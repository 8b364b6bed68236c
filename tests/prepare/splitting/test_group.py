from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairfrontier.prepare.config.dataset import Limits
from fairfrontier.prepare.config.section import Group
from fairfrontier.prepare.splitting.encoder import (
    check_attributes,
    cross_codes,
    encode_attributes,
    fit_attributes,
    name_bands,
)
from fairfrontier.runtime.errors import ConfigError, DataError

FRAME = pd.DataFrame(
    {"race": ["b", "w", "x", "w"], "age": [20.0, 25.0, 30.0, 24.9], "code": [2.0, 10.0, 9.0, 2.0]}
)
LEVELS = {"race": ("b", "w", "x"), "code": ("2", "9", "10")}


def fit(**groups):
    return fit_attributes(
        {name: Group(**each) for name, each in groups.items()}, LEVELS, "f", Limits()
    )


@pytest.mark.parametrize(
    ("group", "names", "codes"),
    [
        ({"column": "race"}, ("b", "w", "x"), [0, 1, 2, 1]),
        ({"column": "code"}, ("2", "9", "10"), [0, 2, 1, 0]),
        ({"column": "race", "levels": ["w", "x", "b"]}, ("w", "x", "b"), [2, 0, 1, 0]),
        ({"column": "race", "levels": {"rest": "others", "W": "w"}}, ("rest", "W"), [0, 1, 0, 1]),
        ({"column": "race", "levels": {"u": ["b", "x"], "v": "w"}}, ("u", "v"), [0, 1, 0, 1]),
        ({"column": "race", "levels": {"u": ["b", "x", "b "], "v": "w"}}, ("u", "v"), [0, 1, 0, 1]),
        ({"column": "age", "below": 25}, ("below 25", "from 25"), [0, 1, 1, 0]),
        ({"column": "age", "below": 25, "names": ["y", "o"]}, ("y", "o"), [0, 1, 1, 0]),
        (
            {"column": "age", "below": [22, 25]},
            ("below 22", "22 to below 25", "from 25"),
            [0, 2, 2, 1],
        ),
    ],
)
def test_codes_of_one_attribute(group, names, codes):
    (attribute,) = fit(g=group)
    assert attribute.names == names
    assert encode_attributes((attribute,), FRAME).tolist() == [[code] for code in codes]


def test_cross_products_name_and_number_every_combination():
    attributes = fit(
        both={"cross": ["race", "age"]},
        race={"column": "race"},
        age={"column": "age", "below": 25, "names": ["y", "o"]},
    )
    codes = encode_attributes(attributes, FRAME)
    names = attributes[0].names
    assert names == ("b×y", "b×o", "w×y", "w×o", "x×y", "x×o")
    assert [names[code] for code in codes[:, 0]] == ["b×y", "w×o", "x×o", "w×y"]
    changed = codes.copy()
    changed[:, 1] = 0
    assert [names[code] for code in cross_codes(changed, attributes)[:, 0]] == [
        "b×y", "b×o", "b×o", "b×y",
    ]  # fmt: skip


@pytest.mark.parametrize("crossed", [{"pq": {"cross": ["p", "q"]}}, {}])
def test_combinations_of_one_name_are_refused_before_anything_is_trained(crossed):
    # Of every pair of attributes studies measure the cross, whether it is named or not.
    groups = {"p": {"column": "p"}, "q": {"column": "q"}, **crossed}
    groups = {name: Group(**each) for name, each in groups.items()}
    levels = {"p": ("a", "a×b"), "q": ("c", "d")}
    fit_attributes(groups, levels, "f", Limits())
    with pytest.raises(DataError, match=r"f: groups.*both named 'a×b×c'"):
        fit_attributes(groups, {**levels, "q": ("c", "b×c")}, "f", Limits())


@pytest.mark.parametrize(
    ("edges", "names"),
    [
        ((0.5, 1e6), ("below 0.5", "0.5 to below 1e+06", "from 1e+06")),
        ((1234561, 1234562), ("below 1234561", "1234561 to below 1234562", "from 1234562")),
        (
            (0.3, 0.1 + 0.2),
            ("below 0.3", "0.3 to below 0.30000000000000004", "from 0.30000000000000004"),
        ),
    ],
)
def test_no_two_bands_have_one_name(edges, names):
    assert name_bands(edges) == names


def test_levels_that_cannot_be():
    with pytest.raises(ConfigError, match="holds no level 'z'"):
        fit(g={"column": "race", "levels": ["z", "w"]})
    with pytest.raises(ConfigError, match="'w' is listed in two groups"):
        fit(g={"column": "race", "levels": {"one": ["w", "b"], "two": ["w", "x"]}})
    (attribute,) = fit(g={"column": "race", "levels": ["w", "b"]})
    with pytest.raises(DataError, match="holds 'x' in row 2, which belongs to no group"):
        encode_attributes((attribute,), FRAME)


def test_constant_and_unseen_groups_are_refused():
    (attribute,) = fit(g={"column": "race"})
    codes = np.array([[0], [0], [1], [2]])
    check_attributes((attribute,), codes, {"train": np.arange(4)}, "f")
    with pytest.raises(DataError, match="g is constant: all training rows are 'b'"):
        check_attributes((attribute,), codes, {"train": np.array([0, 1])}, "f")
    with pytest.raises(DataError, match="'x' occurs in test and never in train"):
        check_attributes(
            (attribute,), codes, {"train": np.array([0, 2]), "test": np.array([3])}, "f"
        )
