"""The budget ε of a fair metric, given as it is or as a share of the spread of the rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from array_api_compat import array_namespace

Array = Any


class Budget(NamedTuple):
    """ε in squared units of the metric, and as a share of the spread of the rows."""

    budget: float
    budget_share: float


def measure_spread(z: Array, mass: Array) -> float:
    """Return E ‖Z − Z'‖² = 2 tr Cov(Z) of two rows that are drawn at random with their masses.

    ``z`` are embedded rows, (n_samples, k), and ``mass`` adds up to 1. O(n k).

    The distance to the nearest row of another label, which is what flips a label, is 0 for most
    rows of a table of few discrete features (98% of COMPAS): no share of its median moves a row.
    """
    xp = array_namespace(z)
    centred = z - xp.sum(mass[:, None] * z, axis=0)
    return 2.0 * float(xp.sum(mass[:, None] * centred * centred))


def find_budget(model: Any, spread: float) -> Budget:
    """Return ``budget`` of an estimator, or of its setting, else what ``budget_share`` makes.

    ``spread`` is that of `measure_spread`, in the metric's space.
    """
    if model.budget is None:
        return Budget(model.budget_share * spread, model.budget_share)
    return Budget(float(model.budget), float(model.budget) / spread if spread > 0 else 0.0)


def check_budget(model: Any) -> None:
    """Raise ConfigError for an invalid budget of an estimator."""
    number = "a finite number that is 0 or more"
    budget = model.budget
    model.require("budget", budget is None or 0 <= budget < math.inf, f"{number}, or null")
    model.require("budget_share", 0 <= model.budget_share < math.inf, number)
