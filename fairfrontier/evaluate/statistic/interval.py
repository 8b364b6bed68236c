"""95% intervals: analytic ones for rates and means, and a bootstrap over cells."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

CONFIDENCE = 0.95
Z = float(ndtri(0.5 + CONFIDENCE / 2))


def wilson(value: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's score interval of a share.

    The p with |value − p| ≤ z·sqrt(p(1 − p)/size), z = 1.96.

    Parameters
    ----------
    value : ndarray of float64
        Shares between 0 and 1; NaN stays NaN.
    size : ndarray of float64, same shape
        Rows, or the effective number of rows (see ``effective_size``).

    Returns
    -------
    low, high : ndarray of float64
        NaN where the size is 0.

    References
    ----------
    Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    value, size = np.asarray(value, dtype=np.float64), np.asarray(size, dtype=np.float64)
    size = np.where(size > 0, size, np.nan)
    shrink = 1.0 + Z**2 / size
    centre = (value + Z**2 / (2 * size)) / shrink
    half = Z / shrink * np.sqrt(np.maximum(value * (1 - value), 0) / size + (Z / size) ** 2 / 4)
    # Rounding must not push a bound past the share itself, nor outside 0 to 1.
    low = np.clip(np.minimum(centre - half, value), 0.0, 1.0)
    return low, np.clip(np.maximum(centre + half, value), 0.0, 1.0)


def effective_size(value: np.ndarray, variance: np.ndarray, kish: np.ndarray) -> np.ndarray:
    """Return the unweighted rows that give a share this variance: value(1 − value)/variance.

    Parameters
    ----------
    value, variance : ndarray of float64
        A weighted share and the variance of its estimate.
    kish : ndarray of float64
        (Σw)²/Σw², which is taken where the variance is 0.

    Notes
    -----
    For 0/1 outcomes with equal weights this is the number of rows, so that Wilson's interval is
    the usual one.

    References
    ----------
    Korn and Graubard, "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", 1998. Kish, "Survey sampling", 1965.
    """
    spread = value * (1 - value)
    usable = (variance * kish > 1e-12 * spread) & (spread > 0)
    return np.where(usable, spread / np.where(usable, variance, 1.0), kish)


def newcombe(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Interval of the difference of two independent shares from their own intervals.

    Parameters
    ----------
    value, low, high : ndarray of float64, shape (2,)
        Both shares with Wilson's intervals; the difference is the first minus the second.

    References
    ----------
    Newcombe, "Interval estimation for the difference between independent proportions", 1998,
    method 10.
    """
    difference = value[0] - value[1]
    below = np.hypot(value[0] - low[0], high[1] - value[1])
    above = np.hypot(high[0] - value[0], value[1] - low[1])
    return float(difference - below), float(difference + above)


def fold(low: float, high: float) -> tuple[float, float]:
    """Return the interval of |x| from that of x: it reaches 0 when x may have either sign."""
    if low <= 0 <= high:
        return 0.0, max(-low, high)
    return min(abs(low), abs(high)), max(abs(low), abs(high))


def normal(value: float, error: float, reach: float = Z) -> tuple[float, float]:
    """Return value ± 1.96 standard errors, or ± ``reach`` of them."""
    return value - reach * error, value + reach * error


def average(
    values: np.ndarray, weight: np.ndarray, reach: float = Z
) -> tuple[float, int, float, float]:
    """Return weighted mean, rows and normal interval of so many errors; NaN without weight."""
    total = float(np.sum(weight))
    if not total > 0:
        return np.nan, values.size, np.nan, np.nan
    value = float(np.sum(weight * values) / total)
    error = float(np.sqrt(np.sum((weight * (values - value)) ** 2)) / total)
    return value, values.size, *normal(value, error, reach)


def percentile(value: float, draws: np.ndarray) -> tuple[float, float]:
    """Percentile interval of bootstrap draws, widened where needed to hold the value itself.

    Notes
    -----
    Maxima and root mean squares of gaps are biased upward in a bootstrap: without widening, a
    gap of 0 would lie outside its own interval. For the same reason such an interval hardly ever
    reaches down to 0: whether two levels differ at all is for the signed gap to say.
    """
    draws = draws[np.isfinite(draws)]
    if draws.size == 0 or not np.isfinite(value):
        return np.nan, np.nan
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(min(low, value)), float(max(high, value))


def resample_counts(mass: np.ndarray, replicates: int, rng: np.random.Generator) -> np.ndarray:
    """Bootstrap of counts: draw cell counts instead of rows.

    Resampling n rows with replacement and counting them by cell gives counts that are
    multinomial(n, mass/n), whatever the rows hold beside their cell. A measure that is a
    function of the cell counts alone therefore has exactly the distribution that the row
    bootstrap would give it, at O(cells × replicates) instead of O(n × replicates).

    Parameters
    ----------
    mass : ndarray, any shape
        Rows in each cell.
    replicates : int
        How many draws.
    rng : Generator
        Where they come from.

    Returns
    -------
    ndarray of float64, shape (replicates, *mass.shape)

    References
    ----------
    Efron and Tibshirani, "An introduction to the bootstrap", 1993, section 6.
    """
    flat = mass.ravel()
    n = int(flat.sum())
    if n == 0:
        return np.zeros((replicates, *mass.shape))
    draws = rng.multinomial(n, flat / n, size=replicates)
    return draws.reshape(replicates, *mass.shape).astype(np.float64)


def resample_sums(
    mass: np.ndarray, square: np.ndarray, replicates: int, rng: np.random.Generator
) -> np.ndarray:
    """Bootstrap of sums over rows with weights or fractional decisions.

    A row bootstrap with Poisson(1) repetitions gives the sums Σ_i m_i a_i of a group of rows the
    mean Σ a_i and the covariance Σ a_i a_iᵀ. Normal draws with these two moments stand in for it,
    independent between groups, as they are there; sums below 0 are set to 0.

    Parameters
    ----------
    mass : ndarray of float64, shape (..., 2)
        Sums of (w(1 − h), wh) over each group of rows.
    square : ndarray of float64, shape (..., 2, 2)
        Sums of their outer products.
    replicates : int
        How many draws.
    rng : Generator
        Where they come from.

    Returns
    -------
    ndarray of float64, shape (replicates, ..., 2)

    References
    ----------
    Chamandy, Muralidharan, Najmi and Naidu, "Estimating uncertainty for massive data streams",
    2012 (the Poisson bootstrap).
    """
    normals = rng.standard_normal((replicates, *mass.shape))
    # The Cholesky factor of each 2 × 2 matrix by hand: it may be singular.
    first = np.sqrt(square[..., 0, 0])
    below = np.divide(square[..., 0, 1], first, out=np.zeros_like(first), where=first > 0)
    second = np.sqrt(np.maximum(square[..., 1, 1] - below**2, 0.0))
    draws = np.empty_like(normals)
    draws[..., 0] = mass[..., 0] + first * normals[..., 0]
    draws[..., 1] = mass[..., 1] + below * normals[..., 0] + second * normals[..., 1]
    return np.maximum(draws, 0.0)
