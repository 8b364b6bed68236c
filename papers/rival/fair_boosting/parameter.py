"""Checks of the weak learners' parameters."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np

from fairfrontier.runtime.errors import ConfigError


def require_whole(learner: Any, name: str, *, least: int) -> None:
    """Raise ConfigError unless a learner's parameter is a whole number of at least ``least``."""
    value = getattr(learner, name)
    integral = isinstance(value, Integral) and not isinstance(value, bool)
    if not integral or int(value) < least:
        _refuse(learner, name, f"a whole number that is {least} or more")


def require_number(learner: Any, name: str) -> None:
    """Raise ConfigError unless a learner's parameter is a finite number of at least 0."""
    value = getattr(learner, name)
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= float(value) < math.inf:
        _refuse(learner, name, "a number that is 0 or more")


def _refuse(learner: Any, name: str, wanted: str) -> None:
    raise ConfigError(
        f"The parameter {name!r} of {type(learner).__name__} is {getattr(learner, name)!r}.",
        f"Give {wanted}.",
    )
