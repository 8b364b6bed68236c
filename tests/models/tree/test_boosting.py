import numpy as np
import pytest

from fairfrontier.models.registry import create
from fairfrontier.models.tree.boosting import positive_weight
from fairfrontier.runtime.errors import ConfigError


def test_balanced_is_the_weight_of_zeros_over_ones():
    y, weight = np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 4.0, 0.5])
    assert positive_weight("balanced", y, weight) == pytest.approx(2.0)
    assert positive_weight(3, y, weight) == 3.0


@pytest.mark.parametrize("weight", [[0.0, 1.0], [1.0, 0.0]])
def test_one_class_has_nothing_to_balance(weight):
    assert positive_weight("balanced", np.array([0, 1]), np.array(weight)) == 1.0


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("gbdt", {"base_score": 1.0}),
        ("gbdt", {"base_score": -0.5}),
        ("gbdt", {"min_child_weight": -1}),
        ("gbdt_regression", {"min_child_weight": -0.5}),
        ("linear_post", {"max_bin": 1}),
        ("gbdt", {"colsample_bytree": 0.0}),
    ],
)
def test_what_xgboost_refuses_is_refused_before(method, parameters):
    (name,) = parameters
    with pytest.raises(ConfigError, match=f"'{name}' of '{method}'"):
        create(method, **parameters).check()
