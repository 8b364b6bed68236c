import numpy as np
import pytest

from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.train.base import require_binary, take_attribute, unit_weight
from fairfrontier.train.registry import METHODS, create


def test_no_weights_are_ones():
    assert np.array_equal(unit_weight(None, 3), np.ones(3))


def test_whole_numbers_and_noughts_are_weights():
    weight = unit_weight(np.array([0, 2, 1]), 3)
    assert weight.dtype == np.float64
    assert np.array_equal(weight, [0.0, 2.0, 1.0])


@pytest.mark.parametrize("wrong", [[1.0, -1.0], [1.0, np.nan], [np.inf, 1.0]])
def test_weights_below_nought_or_beyond_numbers_are_refused(wrong):
    with pytest.raises(DataError, match="case weights"):
        unit_weight(np.array(wrong), 2)


def test_an_attribute_is_a_column_of_groups():
    groups = np.array([[0, 1], [2, 3]])
    assert np.array_equal(take_attribute(groups, 1), [1, 3])
    assert np.array_equal(take_attribute(groups, -2), [0, 2])


@pytest.mark.parametrize(("shape", "attribute"), [((2, 2), 2), ((2, 2), -3), ((2,), 0)])
def test_a_column_that_groups_do_not_have_is_refused(shape, attribute):
    with pytest.raises(ConfigError, match=f"The attribute is column {attribute} of groups"):
        take_attribute(np.zeros(shape, dtype=np.int64), attribute)


def test_labels_beyond_nought_and_one_are_refused():
    require_binary(np.array([0, 1, 1]), "method")
    with pytest.raises(DataError, match=r"\[0, 2\], and method learns"):
        require_binary(np.array([0, 2]), "method")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("adversarial_debiasing", {}),
        ("fair_classification", {}),
        ("fair_regression", {"budget": 0.1}),
        ("noisy_groups", {"criterion": "equal_opportunity", "approach": "naive"}),
        ("reweigh", {}),
        ("seo", {}),
    ],
)
def test_methods_refuse_an_attribute_that_groups_do_not_have(name, parameters):
    generator = np.random.default_rng(0)
    label = np.arange(20) % 2
    y = label if "binary" in METHODS.find(name).task else label.astype(np.float64)
    groups = np.stack([label, 1 - label], axis=1)
    model = create(name, attribute=2, **parameters)
    with pytest.raises(ConfigError, match="The attribute is column 2"):
        model.fit(generator.normal(size=(20, 3)), y, groups=groups)
