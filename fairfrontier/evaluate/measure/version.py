"""The rows of a part that have counterfactual versions: of these alone sets are measured."""

from __future__ import annotations

import numpy as np

from fairfrontier.prepare.split import Part


def weigh_versions(part: Part, name: str) -> np.ndarray:
    """Return the case weights of the rows that have versions in a set, float64 (n_rows,)."""
    rows = part.counterfactuals[name].rows
    weight = np.asarray(part.weight, dtype=np.float64)
    return weight if rows is None else weight[rows]
