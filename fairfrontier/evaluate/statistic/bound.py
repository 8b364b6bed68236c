"""One-sided confidence bounds of shares and of what two shares make, at any confidence.

``reach`` is the z of a bound, which is broken with probability Φ(−z).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

Reach = np.ndarray | float
# Values of shares and the rows they are shares of, which may be effective.
Shares = tuple[np.ndarray, np.ndarray]
# Where `propagate_imprecision` looks on its quarter of a circle.
ANGLES = np.linspace(0.0, np.pi / 2, 13)


def bonferroni(error: float, comparisons: int) -> float:
    """Return the z of so many bounds that all hold with probability 1 − ``error`` or more."""
    return float(-ndtri(error / comparisons))


def clopper_pearson(
    value: np.ndarray, size: np.ndarray, reach: Reach
) -> tuple[np.ndarray, np.ndarray]:
    """Return Clopper and Pearson's bounds of shares, from below and from above.

    The one from above is the p with P(Bin(size, p) ≤ value·size) = Φ(−reach). Wilson's is too
    narrow towards a share of 1/2 where few rows, or almost all, are counted. NaN in, NaN out.

    References
    ----------
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", 1934.
    """
    return 1.0 - _bound_above(1.0 - value, size, reach), _bound_above(value, size, reach)


def _bound_above(value: np.ndarray, size: np.ndarray, reach: Reach) -> np.ndarray:
    hits, misses = value * size, (1.0 - value) * size
    some = np.where(misses > 0, misses, 1.0)
    return np.where(misses == 0, 1.0, betaincinv(hits + 1.0, some, ndtr(reach)) + 0.0 * misses)


def propagate_imprecision(
    above: Shares,
    below: Shares,
    reach: Reach,
    combine: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Bound from above what grows with one share and falls with another, independent one.

        max combine(high at a, low at b)   over   a² + b² = reach²

    high and low are `clopper_pearson`'s, of the shares ``above`` and ``below``, which broadcast;
    ``reach`` is one number or one for each along the first axis. For the difference of normal
    shares this is Newcombe's bound, whose root of squares is too narrow where they are skewed.

    References
    ----------
    Newcombe, "Propagating imprecision: combining confidence intervals from independent sources",
    2011.
    """
    bound = np.asarray(-np.inf)
    reach = np.reshape(reach, (-1, *(1,) * (np.ndim(above[0]) - 1)))
    for angle in ANGLES:
        high = _bound_above(*above, reach * np.cos(angle))
        low = 1.0 - _bound_above(1.0 - below[0], below[1], reach * np.sin(angle))
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = np.maximum(bound, combine(high, low))
    return bound
