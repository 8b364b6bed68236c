"""95% intervals: analytic ones for rates and means, and a bootstrap over cells."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

CONFIDENCE = 0.95
Z = float(ndtri(0.5 + CONFIDENCE / 2))
# An interval without width tells infinitely many rows.
MOST_ROWS = 1e12


def wilson(value: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilson's score interval of shares: the p with |value − p| ≤ z·sqrt(p(1 − p)/size).

    ``size`` may be effective, see `effective_size`; where it is 0, or the value NaN, both ends are
    NaN.

    References
    ----------
    Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    value, size = np.asarray(value, dtype=np.float64), np.asarray(size, dtype=np.float64)
    size = np.where(size > 0, size, np.nan)
    shrink = 1.0 + Z**2 / size
    centre = (value + Z**2 / (2 * size)) / shrink
    variance = np.maximum(value * (1 - value), 0) / size
    half = Z / shrink * np.sqrt(variance + (Z / size) ** 2 / 4)
    # Rounding must not push a bound past the share itself, nor outside 0 to 1.
    low = np.clip(np.minimum(centre - half, value), 0.0, 1.0)
    return low, np.clip(np.maximum(centre + half, value), 0.0, 1.0)


def invert_wilson(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the size from which `wilson` makes an interval of shares: z²·p(1 − p)/(p − value)².

    p is the end that is farther from the value. Where the interval has no width the size is
    MOST_ROWS, and where a value or an end is NaN it is NaN.
    """
    end = np.where(high - value > value - low, high, low)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.minimum(Z**2 * end * (1.0 - end) / (end - value) ** 2, MOST_ROWS))


def effective_size(value: np.ndarray, variance: np.ndarray, kish: np.ndarray) -> np.ndarray:
    """Return the unweighted rows that give a share this variance: value(1 − value)/variance.

    Where the variance is 0 it is ``kish``, (Σw)²/Σw². For 0/1 outcomes with equal weights it is the
    number of rows, so that Wilson's interval is the usual one.

    References
    ----------
    Korn and Graubard, "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", 1998. Kish, "Survey sampling", 1965.
    """
    spread = value * (1 - value)
    usable = (variance * kish > 1e-12 * spread) & (spread > 0)
    return np.where(usable, spread / np.where(usable, variance, 1.0), kish)


def newcombe(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    """Return the interval of a difference of two independent shares, from their own intervals.

    Each array has shape (2,); the difference is the first share minus the second.

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
    """Return value ± ``reach`` standard errors."""
    return value - reach * error, value + reach * error


def average(
    values: np.ndarray, weight: np.ndarray, reach: float = Z
) -> tuple[float, int, float, float]:
    """Return weighted mean, rows, and the mean ± ``reach`` standard errors; NaN without weight."""
    total = float(np.sum(weight))
    if not total > 0:
        return np.nan, values.size, np.nan, np.nan
    value = float(np.sum(weight * values) / total)
    error = float(np.sqrt(np.sum((weight * (values - value)) ** 2)) / total)
    return value, values.size, *normal(value, error, reach)


def percentile(value: float, draws: np.ndarray) -> tuple[float, float]:
    """Return the percentile interval of bootstrap draws, widened to include the value itself.

    Maxima and root mean squares of gaps are biased upward in a bootstrap: without widening, a
    gap of 0 would lie outside its own interval. For the same reason such an interval hardly ever
    reaches 0: whether two levels differ at all is shown by the signed gap.
    """
    draws = draws[np.isfinite(draws)]
    if draws.size == 0 or not np.isfinite(value):
        return np.nan, np.nan
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(min(low, value)), float(max(high, value))
