from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from fairfrontier.prepare.config.section import Label
from fairfrontier.prepare.splitting.plan import encode_label
from fairfrontier.runtime.errors import ConfigError, DataError


def encode(values, **label):
    return encode_label(pd.Series(values, name="y"), Label(column="y", **label), "f")


def test_two_levels_need_no_declaration():
    target = encode(["no", "yes", "no"])
    assert target.y.tolist() == [0, 1, 0]
    assert target.classes == ("no", "yes")
    assert target.favourable == 1


def test_positive_levels_are_merged_and_named():
    target = encode([">1", "<1", ">1."], positive=[">1", ">1."], names=["low", "high"])
    assert target.y.tolist() == [1, 0, 1]
    assert target.classes == ("low", "high")
    assert encode(["a", "b", "c"], positive="b").classes == ("other", "b")


@pytest.mark.parametrize("names", [["repaid", "not"], ["Repaid", "bad"], ["good", "not"]])
def test_levels_are_not_called_by_the_other_class(names):
    with pytest.raises(ConfigError, match=r"class [01] is called '.*', a level of class [01]"):
        encode(["repaid", "not"], positive="repaid", names=names)
    with pytest.raises(ConfigError, match=r"class 0 is called 'other', a level of class 1"):
        encode(["a", "b", "other"], positive="other")
    with pytest.raises(ValidationError, match="names calls both classes 'x'"):
        encode(["repaid", "not"], names=["x", "x"])


@pytest.mark.parametrize("favourable", ["good", 1])
def test_the_favourable_class_can_be_the_negative_one(favourable):
    target = encode([1, 2, 2], positive=2, names=["good", "bad"], favourable=favourable)
    assert target.y.tolist() == [0, 1, 1]
    assert target.favourable == 0


@pytest.mark.parametrize("names", [{}, {"names": ["fail", "pass"]}])
def test_a_number_becomes_a_label_by_what_it_exceeds(names):
    target = encode(["70", "70.5", "-3", "1e3"], above=70, **names)
    assert target.y.tolist() == [0, 1, 0, 1]
    assert target.classes == (("fail", "pass") if names else ("up to 70", "above 70"))
    assert target.favourable == 1
    assert encode([1.0, -1.0], above=0, favourable="up to 0").favourable == 0


def test_a_derived_label_needs_numbers_on_both_sides():
    with pytest.raises(DataError, match="only one class: up to 70"):
        encode(["1", "2"], above=70)
    with pytest.raises(DataError, match="holds 'high' in row 1, which is no number"):
        encode(["1", "high"], above=0)


def test_the_name_of_a_class_has_a_limit():
    assert len(encode(["a" * 4096, "b"]).classes[0]) == 4096
    with pytest.raises(DataError, match="'y' has a class of 4,097 letters, and names have at most"):
        encode(["a" * 4097, "b"])
    assert encode(["a" * 4097, "b"], positive="b", names=["other", "b"]).classes == ("other", "b")


def test_numbers_sort_as_numbers():
    assert encode(["10", "9", "2"], task="multiclass").classes == ("2", "9", "10")
    assert encode(["10", "9", "2"], task="multiclass").favourable is None


def test_regression_is_scaled_and_clipped():
    label = {"task": "regression", "range": [0, 4]}
    assert np.allclose(encode(["1", "4"], **label).y, [0.25, 1])
    assert np.allclose(encode(["1", "5"], clip=True, **label).y, [0.25, 1])
    with pytest.raises(DataError, match=r"between 1 and 5, outside \[0, 4\]"):
        encode(["1", "5"], **label)
    with pytest.raises(DataError, match="is 3 in every row"):
        encode([3, 3], task="regression")


def test_a_share_is_learnt_from_levels():
    target = encode(["<1", ">1", ">1."], task="regression", positive=[">1", ">1."])
    assert target.y.tolist() == [0.0, 1.0, 1.0]
    assert target.y.dtype == np.float64
    assert (target.classes, target.favourable) == ((), None)
    with pytest.raises(ConfigError, match=r"never is '>2'"):
        encode(["<1", ">1"], task="regression", positive=">2")
    for wrong in ({"range": [0, 1]}, {"names": ["a", "b"]}):
        with pytest.raises(ValueError, match="positive"):
            Label(column="y", task="regression", positive=">1", **wrong)


def test_what_is_no_label():
    with pytest.raises(DataError):
        encode(["a", "a"])
    with pytest.raises(DataError):
        encode(["a", "b"], positive=["a", "b"])
    with pytest.raises(DataError, match="has 3 levels"):
        encode(["a", "b", "c"])
    with pytest.raises(ConfigError, match=r"never is 'granded'.*Did you mean 'granted'"):
        encode(["granted", "refused"], positive="granded")
    with pytest.raises(ConfigError, match=r"never is 'True' .*unless quoted"):
        encode(["yes", "no"], positive=True)
    with pytest.raises(ConfigError, match="no class 'best'"):
        encode(["yes", "no"], favourable="best")
