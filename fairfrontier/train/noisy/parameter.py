"""What the parameters of the classifiers on noisy groups may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def _is_rate(value: Any, least: float = np.nextafter(0, 1)) -> bool:
    given = np.atleast_1d(value)
    allowed = given.ndim == 1 and given.size > 0 and (given >= least) & np.isfinite(given)
    return bool(np.all(allowed))


def _is_above(value: Any, least: float) -> bool:
    return value is None or least <= value < np.inf


def _are_shares(value: Any) -> bool:
    return value is None or all(0 <= each < 1 for each in np.atleast_1d(value))


_RATE = (_is_rate, "a number of more than 0, or a list of them")
_COUNT = (lambda value: value is None or value >= 1, "1 or more")
# What every parameter may be, of those that an estimator has.
ALLOWED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "budget": (lambda value: _is_above(value, 0), "a number of 0 or more"),
    "slack": (lambda value: _is_rate(value, 0), "a number of 0 or more, or a list of them"),
    "level": (_are_shares, "shares in [0, 1), or null"),
    "tv": (lambda value: value in ("paper", "valid"), "paper or valid"),
    "variant": (lambda value: value in ("paper", "authors"), "paper or authors"),
    "radius": (lambda value: _is_above(value, np.nextafter(0, 1)), "a number above 0"),
    "iterations": _COUNT,
    "learning_rate": _RATE,
    "multiplier_rate": _RATE,
    "inner_rate": _RATE,
    "inner_steps": _COUNT,
    "validation_groups": (lambda value: value in ("noisy", "true"), "noisy or true"),
    "best": (lambda value: value in ("paper", "ranks", "last"), "paper, ranks or last"),
    "record_every": _COUNT,
    "response": (lambda value: value in ("exact", "nested"), "exact or nested"),
    "game_steps": _COUNT,
    "response_steps": _COUNT,
    "response_slack": (lambda value: _is_above(value, np.nextafter(0, 1)), "a number above 0"),
    "response_tolerance": (lambda value: _is_above(value, 0), "a number of 0 or more"),
    "dtype": (lambda value: value in ("float32", "float64"), "float32 or float64"),
}
