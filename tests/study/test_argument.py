from __future__ import annotations

import pytest

from fairfrontier.models.registry import METHODS
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.similarity.registry import METRICS
from fairfrontier.study.resolve import check_names, check_types


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("gbdt", {"max_depth": 1.5}),
        ("gbdt", {"n_estimators": True}),
        ("gbdt", {"reg_lambda": 1e308}),
        # Inherited from dataclasses of other modules, whose names this one does not have.
        ("reweigh", {"scale_pos_weight": "much"}),
        ("sensr", {"hidden": "wide"}),
        ("randomized_threshold", {"width_grid": [0.1, 1e300]}),
    ],
)
def test_an_argument_of_another_type_is_named(name, arguments):
    (parameter,) = arguments
    with pytest.raises(ConfigError, match=f"'{parameter}' of {name} is"):
        check_types(METHODS.find(name), name, arguments)


def test_a_metric_has_typed_parameters_too():
    with pytest.raises(ConfigError, match=r"'regress' of it is \[1.5\]"):
        check_types(METRICS.find("subspace"), "it", {"regress": [1.5]})
    with pytest.raises(ConfigError, match="it takes no parameter 'split'"):
        check_names(METRICS.find("subspace"), "it", ["split"])


def test_whole_numbers_and_lists_are_taken_where_they_fit():
    check_types(METHODS.find("gbdt"), "gbdt", {"learning_rate": 1, "base_score": None})
    check_types(METHODS.find("sensr"), "sensr", {"hidden": [10, 10]})
    check_types(METHODS.find("gbdt"), "gbdt", {"scale_pos_weight": "balanced"})


def test_what_has_no_readable_type_is_taken():
    def learn(split, *, size: Unknown = 1):  # noqa: F821
        pass

    check_types(learn, "learn", {"size": "any"})
