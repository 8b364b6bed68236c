"""Policies: one point of a frontier without a bound, by accuracy and fairness together."""

from __future__ import annotations

import re

import numpy as np

from fairfrontier.runtime.errors import ConfigError

KNEE, IDEAL, WITHIN = "knee", "closest-to-ideal", "least-disparity-within"
NAMES = f"{KNEE}, {IDEAL} or {WITHIN}=0.01"


def read_policy(text: str) -> tuple[str, float]:
    """Return the name of a policy and its tolerance, 0 without one; ConfigError for another."""
    found = re.fullmatch(rf"({KNEE}|{IDEAL})|({WITHIN})=([0-9.]+)", text)
    try:
        if found is not None:
            return found[1] or found[2], float(found[3] or 0.0)
    except ValueError:
        pass
    raise ConfigError(f"There is no policy {text!r}.", f"Give {NAMES}.")


def apply_policy(policy: str, scores: np.ndarray) -> int:
    """Return the point of a frontier that a policy chooses.

    With s_i in [0, 1]^k, the scores of the points that no other dominates, scaled from the worst to
    the best of them:

    - ``knee``: the largest Σ_j s_ij, which is the farthest from the plane through the extremes;
    - ``closest-to-ideal``: the least Σ_j (1 − s_ij)²;
    - ``least-disparity-within=t``: the largest sum of s_i2, …, s_ik of the points whose raw first
      score is within t of the best.

    Parameters
    ----------
    policy : str
        One of these.
    scores : ndarray of float64, shape (n_points, n_scores)
        Accuracy, then fairness, better higher, without NaN.

    Returns
    -------
    int
        Its position; the first of equal ones.

    Raises
    ------
    ConfigError
        For another policy.

    References
    ----------
    I. Das. On characterizing the "knee" of the Pareto curve based on normal-boundary intersection.
    Structural Optimization 18, 1999. P. L. Yu. A class of solutions for group decision problems.
    Management Science 19, 1973.
    """
    # Options need the names alone, and what imports pandas takes a second.
    from fairfrontier.study.frontier import find_pareto

    name, tolerance = read_policy(policy)
    front = np.flatnonzero(find_pareto(scores))
    kept = scores[front]
    low, high = kept.min(axis=0), kept.max(axis=0)
    # What does not vary on the frontier decides nothing.
    scaled = np.where(high > low, (kept - low) / np.where(high > low, high - low, 1.0), 1.0)
    if name == KNEE:
        value = scaled.sum(axis=1)
    elif name == IDEAL:
        value = -((1.0 - scaled) ** 2).sum(axis=1)
    else:
        # Rounding must not cost the best point itself.
        near = kept[:, 0] >= high[0] - tolerance - 1e-12
        value = np.where(near, scaled[:, 1:].sum(axis=1), -np.inf)
    return int(front[np.argmax(value)])
