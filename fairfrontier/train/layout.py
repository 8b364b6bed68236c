"""The shapes of what a saved model predicts with, checked before anything is computed from it.

Arrays of other shapes may broadcast, so that a small file asks for any amount of memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fairfrontier.runtime.foreign.claim import require
from fairfrontier.train.node import find_parts

if TYPE_CHECKING:
    from fairfrontier.train.persistence import State

FEATURES = "n_features_in_"
# Boosting may find no step, and a reduction no model that keeps its bounds.
MAYBE_NONE = ("rounds", "models")
Layout = Mapping[str, tuple[int | str, ...]]

LINEAR: Layout = {"coefficient": ("features",)}
MIXTURE: Layout = {"coefficient": ("features",), "probability": ("models",)}
RULE: Layout = {"cells": ("groups", "attributes"), "classes_": (2,)}
NETS = (
    *("adversarial_debiasing", "clp", "nn", "sensei", "sensr"),
    *("noisy_dro", "noisy_ideal", "noisy_naive", "noisy_soft_assignment"),
    *("noisy_true_groups", "noisy_unconstrained"),
)
# By method the arrays that predictions use, but those of nets. ``features`` and ``classes`` are the
# model's; any other name is one number in all arrays of a method, 0 in ``MAYBE_NONE`` alone. Arrays
# of a sequence, as coefficient_0 and coefficient_1, have the name before the number.
LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        **{net: {} for net in NETS},
        "constant": {"share": ("classes",)},
        "ensemble": {},
        "fair_boosting": {"rate": ("rounds",)},
        "fair_classification": {
            "probability": ("models",),
            "coefficient": ("models", "features"),
            "intercept": ("models",),
        },
        "fair_regression": MIXTURE,
        "fair_regression_classifier": MIXTURE,
        "group_thresholds": RULE,
        "hardt": {
            **RULE,
            **dict.fromkeys(("share", "threshold", "above"), ("groups", "cuts")),
            **dict.fromkeys(("ignored", "constant"), ("groups",)),
        },
        "k_neighbors": {"rows": ("rows", "features"), "codes": ("rows",)},
        "linear": {"coefficient": ("classes", "features"), "intercept": ("classes",)},
        "linear_post": {
            "label_coefficient": ("classes", "label_inputs"),
            "label_intercept": ("classes",),
            "group_coefficient": ("groups", "group_inputs"),
            "group_intercept": ("groups",),
            "price": ("events", "groups"),
            "gain": ("classes",),
        },
        "linear_regression": LINEAR,
        "project": {"sigma": ("features", "features")},
        "project_nn": {"sigma": ("features", "features")},
        "randomized_threshold": {**RULE, "place": ("knots",), "value": ("knots",)},
        "reductions": {"probability": ("models",)},
        "reject_option": {**RULE, "favoured": ("groups",)},
        "seo": LINEAR,
        "shift_inference": {**RULE, "priors": ("groups",)},
    }
)
# Of any model.
COMMON: Layout = {"classes_": ("classes",), "feature_names_in_": ("features",)}
# The most of parameters that predictions make room for.
MOST: Mapping[str, int] = MappingProxyType({"n_grid": 2**20, "attributes": 2**10, "within": 2**10})
MOST_CLASSES = 2**13
# Of a class in bytes: a thousand letters, of which every row that is decided gets a copy.
MOST_WIDTH = 2**12
# Arrays of truth values; others would be larger, for a file of the same size, than what was saved.
FLAGS = ("above", "favoured")
NET = "parameter_"


def check_layout(name: str, parameters: Mapping[str, Any], state: State) -> None:
    """Raise ValueError, or what Python raises, where parts of a method's model do not fit.

    What methods of other packages call like ours may be anything.
    """
    arrays, facts = state.arrays, state.facts
    sizes: dict[str, int] = {"features": facts.get(FEATURES, 0)}
    for layout in (COMMON, LAYOUTS.get(name, {})):
        for key, array in arrays.items():
            if wanted := layout.get(key) or layout.get(re.sub(r"_\d+$", "", key)):
                numbers = array.dtype.kind in "if" and array.dtype.itemsize >= 4
                require(numbers or key in COMMON or key in FLAGS, "arrays")
                _check_shape(array, wanted, sizes)
    width = arrays["classes_"].dtype.itemsize if "classes_" in arrays else 0
    require(width <= MOST_WIDTH, "classes")
    n_classes = sizes.get("classes", MOST_CLASSES)
    require(n_classes <= MOST_CLASSES, "classes")
    for part in find_parts(dict(state.learners)):
        require(len(getattr(part, "classes_", ())) <= n_classes, "classes")
    if name not in LAYOUTS:
        return
    for key, most in MOST.items():
        require(np.max(parameters.get(key) or 0) <= most, key)
    net = [arrays[f"{NET}{i}"] for i in range(sum(key.startswith(NET) for key in arrays))]
    if net:
        _check_net(net, sizes, arrays.get("probability"))
    for k, each in enumerate(facts.get("classifiers", ())):
        if isinstance(each, dict):
            inner = state.take(f"{k}_", each)
            require(inner.arrays["classes_"].shape == arrays["classes_"].shape, "classes")
            check_layout(parameters["learner"], {}, inner)


def _check_shape(array: np.ndarray, wanted: tuple[int | str, ...], sizes: dict[str, int]) -> None:
    """Raise ValueError for another shape; its names get their sizes where they have none."""
    require(array.ndim == len(wanted) and array.dtype.kind in "biufU", "arrays")
    for size, name in zip(array.shape, wanted, strict=True):
        number = sizes.setdefault(name, size) if isinstance(name, str) else name
        require(size == number and (size > 0 or name in MAYBE_NONE), "arrays")


def _check_net(
    arrays: Sequence[np.ndarray], sizes: Mapping[str, int], probability: np.ndarray | None
) -> None:
    """Raise ValueError unless weights, before biases, lead from the features to the classes.

    With probabilities there is a net for each, with one output.
    """
    models, outputs = (1, sizes["classes"]) if probability is None else (len(probability), 1)
    half = len(arrays) // 2
    widths = [sizes["features"], *(bias.shape[-1] for bias in arrays[half:])]
    shapes = [(models, *pair) for pair in pairwise(widths)]
    shapes += [(models, 1, width) for width in widths[1:]]
    require(min(widths) > 0 and widths[-1] == outputs, "network")
    require([each.shape for each in arrays] == shapes, "network")
    require(probability is None or probability.ndim == 1, "network")
    # Smaller numbers would be more units in a file of the same size.
    numbers = arrays if probability is None else [*arrays, probability]
    require(all(each.dtype == np.float64 for each in numbers), "network")
