from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.prepare.config.section import Drop, Noise
from fairfrontier.prepare.splitting.encoder import Attribute
from fairfrontier.prepare.splitting.plan import add_noise, drop_rows
from fairfrontier.runtime.errors import ConfigError

RACE = Attribute("race", ("a", "b", "c"), column="race")
SEX = Attribute("sex", ("f", "m"), column="sex")
BOTH = Attribute("both", tuple(f"{r}×{s}" for r in "abc" for s in "fm"), cross=("race", "sex"))
ATTRIBUTES = (RACE, SEX, BOTH)


def groups_of(n):
    draw = np.random.default_rng(0)
    codes = np.column_stack([draw.integers(0, 3, n), draw.integers(0, 2, n)])
    return np.column_stack([codes, codes[:, 0] * 2 + codes[:, 1]])


@settings(max_examples=25)
@given(share=st.floats(0, 1), seed=st.integers(0, 100))
def test_a_share_of_rows_moves_to_another_group(share, seed):
    true = groups_of(500)
    noisy = add_noise({"race": Noise(share=share)}, ATTRIBUTES, true, seed, "f")
    assert (noisy[:, 0] != true[:, 0]).sum() == round(share * 500)
    assert np.array_equal(noisy[:, 1], true[:, 1])
    assert np.array_equal(noisy[:, 2], noisy[:, 0] * 2 + noisy[:, 1])
    assert noisy.min() >= 0
    assert noisy[:, 0].max() <= 2
    again = add_noise({"race": Noise(share=share)}, ATTRIBUTES, true, seed, "f")
    assert np.array_equal(noisy, again)


def test_moves_are_uniform_over_the_other_groups():
    true = groups_of(30_000)
    noisy = add_noise({"race": Noise(share=0.5)}, ATTRIBUTES, true, 1, "f")
    for code in range(3):
        seen = np.bincount(noisy[true[:, 0] == code, 0], minlength=3) / (true[:, 0] == code).sum()
        expected = np.full(3, 0.25)
        expected[code] = 0.5
        assert np.allclose(seen, expected, atol=0.02)


def test_a_confusion_matrix_gives_the_probabilities():
    true = groups_of(30_000)
    rule = Noise(confusion={"a": {"b": 0.3}, "c": {"a": 0.2, "b": 0.8}})
    noisy = add_noise({"race": rule}, ATTRIBUTES, true, 2, "f")
    expected = np.array([[0.7, 0.3, 0], [0, 1, 0], [0.2, 0.8, 0]])
    for code in range(3):
        seen = np.bincount(noisy[true[:, 0] == code, 0], minlength=3) / (true[:, 0] == code).sum()
        assert np.allclose(seen, expected[code], atol=0.015)
        assert (seen[expected[code] == 0] == 0).all()
    with pytest.raises(ConfigError, match="there is no group 'z'"):
        add_noise({"race": Noise(confusion={"a": {"z": 0.1}})}, ATTRIBUTES, true, 2, "f")


def test_noise_of_one_attribute_does_not_depend_on_the_other():
    true = groups_of(300)
    alone = add_noise({"sex": Noise(share=0.3)}, ATTRIBUTES, true, 3, "f")
    both = {"race": Noise(share=0.5), "sex": Noise(share=0.3)}
    assert np.array_equal(alone[:, 1], add_noise(both, ATTRIBUTES, true, 3, "f")[:, 1])


def test_dropping_is_biased_as_asked():
    groups = groups_of(20_000)
    y = np.random.default_rng(1).integers(0, 2, 20_000)
    train = np.arange(0, 20_000, 2)
    rule = Drop(
        where=[{"groups": {"sex": "f"}, "label": "no"}, {"groups": {"sex": "m"}, "label": "yes"}],
        probability=0.5,
    )
    kept = drop_rows(rule, train, ATTRIBUTES, groups, y, ("no", "yes"), 0, "f")
    assert np.isin(kept, train).all()
    assert (np.diff(kept) > 0).all()
    match = groups[train, 1] == y[train]
    assert (groups[kept, 1] != y[kept]).sum() == (~match).sum()
    assert abs((groups[kept, 1] == y[kept]).sum() / match.sum() - 0.5) < 0.03
    always = rule.model_copy(update={"probability": 1.0})
    kept = drop_rows(always, train, ATTRIBUTES, groups, y, ("no", "yes"), 0, "f")
    assert (groups[kept, 1] != y[kept]).all()


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"groups": {"sex": "x"}}, "no group 'x'"),
        ({"groups": {"sex": "f"}, "label": "nay"}, "no class 'nay'"),
    ],
)
def test_dropping_needs_names_that_exist(case, message):
    rule = Drop(where=case, probability=0.5)
    groups = groups_of(10)
    y = np.zeros(10, dtype=int)
    with pytest.raises(ConfigError, match=message):
        drop_rows(rule, np.arange(10), ATTRIBUTES, groups, y, ("no", "yes"), 0, "f")
