"""95% intervals of rates and means, and of what is made of those of several groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtr, ndtri, stdtrit

CONFIDENCE = 0.95
Z = float(ndtri(0.5 + CONFIDENCE / 2))
# An interval without width tells infinitely many rows.
MOST_ROWS = 1e12
# Pairs of more levels are too many to be compared.
MANY_LEVELS = 1000
# Rows of all cells that those of one are joined by to estimate their skewness.
SKEW_ROWS = 10.0
# Draws of the noise of values, half of them the others' mirror images.
DRAWS = 2000
# From the z of their bounds to the lower and upper limits of values.
Limits = Callable[[float], tuple[np.ndarray, np.ndarray]]


def wilson(value: np.ndarray, size: np.ndarray, reach: float = Z) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilson's score interval of shares: the p with |value − p| ≤ z·sqrt(p(1 − p)/size).

    ``size`` may be effective, see `effective_size`; where it is 0, or the value NaN, both ends are
    NaN.

    References
    ----------
    Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    value, size = np.asarray(value, dtype=np.float64), np.asarray(size, dtype=np.float64)
    size = np.where(size > 0, size, np.nan)
    shrink = 1.0 + reach**2 / size
    centre = (value + reach**2 / (2 * size)) / shrink
    variance = np.maximum(value * (1 - value), 0) / size
    half = reach / shrink * np.sqrt(variance + (reach / size) ** 2 / 4)
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


def effective_size(
    value: np.ndarray, variance: np.ndarray, kish: np.ndarray, rows: np.ndarray | float = 0
) -> np.ndarray:
    """Return the unweighted rows that give a share this variance: value(1 − value)/variance.

    Where the variance is 0 it is ``kish``, (Σw)²/Σw², and it is at most that where weights vary,
    so that kish is below the number of ``rows``: of few heavy rows the variance is estimated too
    low as often as not. For 0/1 outcomes with equal weights it is the number of rows, so that
    Wilson's interval is the usual one. What probabilities give beyond that is less in as far as
    Student's quantile of so many rows is larger.

    References
    ----------
    Korn and Graubard, "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", 1998. Kish, "Survey sampling", 1965.
    """
    spread = value * (1 - value)
    usable = (variance * kish > 1e-12 * spread) & (spread > 0)
    size = np.where(usable, spread / np.where(usable, variance, 1.0), kish)
    degrees = np.maximum(kish - 1.0, 1.0)
    less = size * degrees / (degrees + 1.0) * (Z / stdtrit(degrees, ndtr(Z))) ** 2
    varies = kish < (1 - 1e-9) * rows
    surplus = (size > (1 + 1e-9) * kish) & (rows > 0)
    size = np.where(surplus, np.maximum(less, kish), size)
    return np.where(varies, np.minimum(size, kish), size)


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


def normal(value: float, error: float, reach: float = Z) -> tuple[float, float]:
    """Return value ± ``reach`` standard errors."""
    return value - reach * error, value + reach * error


@dataclass(frozen=True, eq=False)
class Mean:
    """Weighted means of values: ``value``, standard ``error``, ``degrees`` of freedom, ``skew``.

    All are numbers or arrays of one shape; ``skew`` is the skewness of the values over the root of
    their number. Without weight all are NaN.
    """

    value: np.ndarray
    error: np.ndarray
    degrees: np.ndarray
    skew: np.ndarray

    def limit(self, reach: float) -> tuple[np.ndarray, np.ndarray]:
        """Return Student's limits at a z, corrected for skewness (`skew_reach`)."""
        quantile = -stdtrit(self.degrees, ndtr(-reach))
        low, high = (
            self.value - self.error * skew_reach(end, self.skew) for end in (quantile, -quantile)
        )
        return low, high


def average_cells(
    values: np.ndarray,
    weight: np.ndarray,
    cell: np.ndarray | None = None,
    n_cells: int = 1,
    possible: np.ndarray | None = None,
) -> Mean:
    """Return the weighted means of the rows of each cell, 0 to n_cells − 1. O(n).

    ``possible``, of shape (n, m), are what a row's value may be, such as its loss for every label.
    Error and skewness are then those with one row more, which has each of them equally likely, lest
    what is rare and large be taken for impossible where no row shows it. Since few rows tell little
    of skewness, it is that with SKEW_ROWS rows more which are like those of all cells.

    References
    ----------
    Agresti and Coull, "Approximate is better than 'exact' for interval estimation of binomial
    proportions", 1998 (observations that are added).
    """
    cell = np.zeros(values.size, dtype=np.intp) if cell is None else cell
    total, squares = (np.bincount(cell, each, n_cells) for each in (weight, weight**2))
    total = np.where(total > 0, total, np.nan)
    rows = np.maximum(np.bincount(cell, minlength=n_cells), 1)
    value = np.bincount(cell, weight * values, n_cells) / total
    offset = weight * (values - value[cell])
    degrees = np.maximum(total**2 / np.where(squares > 0, squares, np.nan) - 1.0, 1.0)
    second: np.ndarray = np.bincount(cell, offset**2, n_cells)
    third: np.ndarray = np.bincount(cell, offset**3, n_cells)
    # Of few heavy rows the first is too low as often as not.
    plain = np.bincount(cell, weight * (values - value[cell]) ** 2, n_cells) / total
    variance = np.maximum(second, plain * squares)
    if possible is not None:
        more = possible - value[cell][:, None]
        square, cube = (
            np.bincount(cell, weight * (more**power).mean(axis=1), n_cells) / total
            for power in (2, 3)
        )
        size = squares / rows
        variance = variance + size * square
        second, third = second + size * square, third + size**1.5 * cube
    error = np.sqrt(variance * (degrees + 1.0) / degrees) / total
    second, third = (each + SKEW_ROWS * np.nansum(each) / rows.sum() for each in (second, third))
    with np.errstate(divide="ignore", invalid="ignore"):
        skew = third * (second * (degrees + 1.0) / degrees) ** -1.5 * np.sqrt(1 + SKEW_ROWS / rows)
    return Mean(value, error, degrees, np.where(error > 0, skew, 0.0))


def average(
    values: np.ndarray, weight: np.ndarray, reach: float = Z, possible: np.ndarray | None = None
) -> tuple[float, int, float, float]:
    """Return weighted mean, rows, and the limits of the mean at a z; NaN without weight.

    ``possible`` is as in `average_cells`.
    """
    mean = average_cells(values, weight, possible=possible)
    low, high = mean.limit(reach)
    return float(mean.value[0]), values.size, float(low[0]), float(high[0])


def skew_reach(reach: np.ndarray | float, skew: np.ndarray | float) -> np.ndarray:
    """Return the t that a studentised mean exceeds as often as a normal number exceeds a z.

    ``skew`` is that of the values, over the root of their number. O(1/n) is left out.

    References
    ----------
    Hall, "On the removal of skewness by transformation", 1992, equation 2.8.
    """
    some = np.where(np.abs(skew) > 1e-6, skew, 1e-6)
    return np.asarray(3.0 / some * (np.cbrt(1.0 + some * (reach - some / 6.0)) - 1.0))


def widen(value: np.ndarray, low: np.ndarray, high: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Return 95% intervals at another z, low and high in the last axis.

    A mean's tell its skewness (`average`), by which it is stretched; no end comes nearer than in
    proportion, which is right for what is normal.
    """
    value, low, high, reach = np.broadcast_arrays(value, low, high, reach)
    least, most = np.full(value.shape, -3.0), np.full(value.shape, 3.0)
    for _ in range(40):
        skew = (least + most) / 2
        # The ratio of the upper to the lower part grows with the skewness.
        up, down = -skew_reach(-Z, skew), skew_reach(Z, skew)
        more = (high - value) * down > (value - low) * up
        least, most = np.where(more, skew, least), np.where(more, most, skew)
    ends = []
    for end, sign in ((low, 1.0), (high, -1.0)):
        times = skew_reach(sign * reach, skew) / skew_reach(sign * Z, skew)
        ends.append(value + np.maximum(times, reach / Z) * (end - value))
    return np.stack(ends, axis=-1)


def percentile(value: float, draws: np.ndarray) -> tuple[float, float]:
    """Return the percentile interval of bootstrap draws, widened to include the value itself.

    Not for largest differences or root mean squares, which are biased upwards: see
    `bound_difference` and `bound_root_mean_square`.
    """
    draws = draws[np.isfinite(draws)]
    if draws.size == 0 or not np.isfinite(value):
        return np.nan, np.nan
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(min(low, value)), float(max(high, value))


@lru_cache(maxsize=1024)
def reach_of_pairs(levels: tuple[int, ...]) -> float:
    """Return the q with P(|x_j − x_k| ≤ q·sd(x_j − x_k) for all pairs of levels) ≥ .95.

    ``levels`` are numbers of independent normal x of each of several independent rates, for all of
    which it holds. It is that of their studentised ranges, exact for equal variances, else safe.

    References
    ----------
    Hayter, "A proof of the conjecture that the Tukey-Kramer multiple comparisons procedure is
    conservative", 1984.
    """
    if max(levels, default=0) < 2:
        return Z
    x = np.linspace(-8.0, 8.0, 801)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * (x[1] - x[0])

    def excess(q: float) -> float:
        inside = ndtr(x + q * np.sqrt(2)) - ndtr(x)
        return float(
            np.prod([m * density @ inside ** (m - 1) for m in levels if m > 1]) - CONFIDENCE
        )

    return float(brentq(excess, 1.0, 12.0))


def bound_difference(value: np.ndarray, limits: Limits) -> tuple[float, float]:
    """Return the interval of max_r max_jk |x_rj − x_rk|, the largest difference between levels.

    ``value`` and what ``limits`` returns have shape (n_levels, n_rates), NaN where not estimable;
    rates are independent, as are levels. For two levels of one rate it is `newcombe`'s, folded at
    0. See `_bound_largest`. O(n_levels² n_rates).
    """

    def compare(reach: float) -> tuple[np.ndarray, np.ndarray]:
        low, high = limits(reach)
        gap, down, up = value[:, None] - value, value - low, high - value
        return gap - np.hypot(down[:, None], up), gap + np.hypot(up[:, None], down)

    low, high = _bound_pairs(value, compare)
    return max(low, 0.0), high


def bound_ratio(value: np.ndarray, limits: Limits) -> tuple[float, float]:
    """Return the interval of the smallest ratio min_r min_jk x_rj / x_rk of shares; as above.

    References
    ----------
    Donner and Zou, "Closed-form confidence intervals for functions of the normal mean and standard
    deviation", 2012 (limits of a ratio from those of its terms).
    """

    def compare(reach: float) -> tuple[np.ndarray, np.ndarray]:
        both = value[:, None] * value
        # The larger level comes first. x² − (x − end)² of both ends of both levels.
        low, high = (end * (2 * value - end) for end in limits(reach))
        with np.errstate(divide="ignore", invalid="ignore"):
            most = (both + np.sqrt(np.maximum(both**2 - low[:, None] * high, 0.0))) / low[:, None]
            least = low / (both + np.sqrt(np.maximum(both**2 - high[:, None] * low, 0.0)))
        least = np.where(low > 0, least, 0.0)
        # Negative, so that the larger is the worse; nothing is a ratio to 0.
        some = value[:, None] > 0
        return np.where(some, -most, np.nan), np.where(some, -least, np.nan)

    low, high = _bound_pairs(value, compare)
    return max(-high, 0.0), min(-low, 1.0)


def bound_extreme(limits: Limits, shape: tuple[int, ...], *, largest: bool) -> tuple[float, float]:
    """Return the interval of the largest or the smallest of independent levels' values.

    ``limits`` returns arrays of a ``shape``, NaN where not estimable; see `_bound_largest`.
    """

    def turn(reach: float) -> tuple[np.ndarray, np.ndarray]:
        low, high = limits(reach)
        return (low, high) if largest else (-high, -low)

    def widen(chosen: np.ndarray) -> float:
        return float(ndtri(ndtr(Z) ** (1.0 / max(int(chosen.sum()), 1))))

    low, high = _bound_largest(turn, widen, np.ones(shape, dtype=bool))
    return (low, high) if largest else (-high, -low)


def _bound_pairs(value: np.ndarray, compare: Limits) -> tuple[float, float]:
    """Bound the largest of what ``compare`` returns, of shape (n_levels, n_levels, n_rates).

    NaN for more than MANY_LEVELS.
    """
    if len(value) > MANY_LEVELS:
        return np.nan, np.nan
    known = ~np.isnan(value)
    pairs = known[:, None] & known
    pairs[np.arange(len(value)), np.arange(len(value))] = False

    def widen(chosen: np.ndarray) -> float:
        return reach_of_pairs(tuple((chosen.any(axis=0) | chosen.any(axis=1)).sum(axis=0).tolist()))

    return _bound_largest(compare, widen, pairs)


def _bound_largest(
    limits: Limits, widen: Callable[[np.ndarray], float], known: np.ndarray
) -> tuple[float, float]:
    """Return the interval of the largest of several values, which is biased upwards as estimated.

    The largest is above the lower limits of all that can be the largest, which hold at once, at
    the z that ``widen`` returns for them; and, whichever it is, it is below its own upper limit
    with probability .975. What can be the largest is what is not below another one, where the
    limits of all hold at once.

    References
    ----------
    Chernozhukov, Lee and Rosen, "Intersection bounds: estimation and inference", 2013.
    """
    low, high = limits(widen(known))
    known = known & ~np.isnan(low)
    if not known.any():
        return np.nan, np.nan
    chosen = known & (high >= np.fmax.reduce(low[known], axis=None))
    return (
        float(np.fmax.reduce(limits(widen(chosen))[0][chosen])),
        float(np.fmax.reduce(limits(Z)[1][chosen])),
    )


def bound_root_mean_square(value: np.ndarray, size: np.ndarray) -> tuple[float, float]:
    """Return the interval of sqrt(mean over rates and pairs of levels of (x_rj − x_rk)²).

    ``value`` and ``size`` are of shares, and have shape (n_levels, n_rates), NaN where not
    estimable; sizes may be effective, and rates of fewer than two levels are left out. See
    `bound_length`.
    """
    known = ~np.isnan(value)
    levels = known.sum(axis=0)
    if not (levels > 1).any():
        return np.nan, np.nan
    value, size, known = (each[:, levels > 1] for each in (value, size, known))
    levels = levels[levels > 1]
    # The mean over pairs is twice the sample variance, whatever the number of levels.
    factor = np.sqrt(2.0 / (levels.size * (levels - 1)))

    def centre(values: np.ndarray) -> np.ndarray:
        values = np.where(known, values, 0.0)
        mean = values.sum(axis=-2, keepdims=True) / levels
        return np.where(known, factor * (values - mean), 0.0).reshape(*values.shape[:-2], -1)

    noise = draw_noise(np.sqrt(estimate_variance(value, size)))
    low, high = bound_length(centre(value), centre(noise), float(np.nanmin(size)))
    return low, min(high, 1.0)


def estimate_variance(value: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return variances of shares: not too small on average, nor below those of Wilson's limits.

    Near 0 and 1 the variance at the share itself is next to nothing.
    """
    centre = (value * size + 1.0) / (size + 2.0)
    low, high = wilson(value, size)
    least = (np.maximum(high - value, value - low) / Z) ** 2
    return np.asarray(np.maximum(centre * (1.0 - centre) / np.maximum(size - 1.0, 1.0), least))


def draw_noise(error: np.ndarray) -> np.ndarray:
    """Return normal draws with these standard errors, (DRAWS, *error.shape), 0 where it is NaN.

    The generator is seeded with 0, so that the same errors give the same draws.
    """
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, *error.shape))
    return np.asarray(np.concatenate([half, -half]) * np.nan_to_num(error))


def bound_length(point: np.ndarray, noise: np.ndarray, size: float) -> tuple[float, float]:
    """Return the interval of ‖μ‖, of which ``point`` is an estimate and ``noise`` draws of errors.

    ‖μ‖ is in it where the estimate's length is not among the smallest or largest 2.5% of those of
    μ + noise, with μ in the estimate's direction. Since ‖μ + ε‖² = ‖μ‖² + 2μᵀε + ‖ε‖², the
    direction matters only where ‖μ‖ is large: there the interval is Student's, of ``size`` rows.
    Lengths below the median of ‖ε‖ have that one's upper end, lest luck shorten the interval.

    O(n_draws · point.size).
    """
    length, squares = float(np.linalg.norm(point)), (noise**2).sum(axis=-1)
    along = noise @ point / length if length > 0 else np.zeros(len(noise))
    along *= float(stdtrit(max(size - 1.0, 1.0), ndtr(Z))) / Z

    def invert(reached: float) -> np.ndarray:
        left = along**2 + reached - squares
        return np.where(left >= 0, np.sqrt(np.maximum(left, 0.0)) - along, 0.0)

    low = np.quantile(np.where(length**2 > squares, invert(length**2), 0.0), ndtr(-Z))
    high = np.quantile(invert(max(length**2, float(np.median(squares)))), ndtr(Z))
    return min(max(float(low), 0.0), length), max(float(high), length)


def bound_mean_difference(
    value: np.ndarray, size: np.ndarray, *, largest: bool
) -> tuple[float, float]:
    """Return the interval of the mean over rates of their mean, or ``largest``, |x_j − x_k|.

    ``value`` and ``size`` are those of shares, as for `bound_root_mean_square`. What is averaged
    is the largest of several sums of signed differences: as estimated it exceeds the truth by at
    most the error of one that can be the largest, and the truth exceeds it by at most the error of
    the true one. Settled are signs whose pairs, all at once, differ, and levels that, all at
    once, are neither the highest nor the lowest.

    O(DRAWS · n_levels² · n_rates); with ``largest`` O(DRAWS · n_levels · n_rates).
    """
    known = ~np.isnan(value)
    used = known.sum(axis=0) > 1
    if not used.any():
        return np.nan, np.nan
    value, size, known = value[:, used], size[:, used], known[:, used]
    variance = np.where(known, estimate_variance(value, size), 0.0)
    noise, levels = draw_noise(np.sqrt(variance)), known.sum(axis=0)
    reach = reach_of_pairs(tuple(levels.tolist()))
    if largest:
        low, high = wilson(value, size, reach)
        top, bottom = high >= np.nanmax(low, axis=0), low <= np.nanmin(high, axis=0)
        estimate = np.nanmax(value, axis=0) - np.nanmin(value, axis=0)
        excess = np.where(top, noise, -np.inf).max(axis=1)
        excess -= np.where(bottom, noise, np.inf).min(axis=1)
        spread = np.where(top, variance, 0.0).max(axis=0) + np.where(bottom, variance, 0.0).max(0)
    else:
        estimate, excess = np.zeros(levels.size), np.zeros((len(noise), levels.size))
        factor = np.zeros(value.shape)
        for j, k in zip(*np.triu_indices(len(value), 1), strict=True):
            gap, error = value[j] - value[k], noise[:, j] - noise[:, k]
            share = np.where(known[j] & known[k], 2.0 / (levels * (levels - 1)), 0.0)
            settled = np.abs(gap) > reach * np.sqrt(variance[j] + variance[k])
            sign = np.where(gap < 0, -1.0, 1.0)
            estimate += share * np.nan_to_num(np.abs(gap))
            excess += share * np.where(settled, sign * error, np.abs(error))
            factor[j], factor[k] = factor[j] + share * sign, factor[k] - share * sign
        spread = (factor**2 * variance).sum(axis=0)
    mean, half = float(estimate.mean()), Z * float(np.sqrt(spread.sum())) / levels.size
    low_end = mean - float(np.quantile(excess.mean(axis=1), ndtr(Z)))
    return max(low_end, 0.0), min(mean + half, 1.0)


# One-sided confidence bounds of shares and of what two shares make, at any confidence.

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


# Ranks of numbers within a distribution.


def rank(scores: np.ndarray, reference: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return F(s): the weighted share of the reference below s, and half of that equal to s.

    ``scores`` may have any shape, which is that of the ranks; ``reference`` and ``weight`` have
    shape (n,). O(n log n).
    """
    order = np.argsort(reference, kind="stable")
    held, total = reference[order], np.append(0.0, np.cumsum(weight[order]))
    # In rising order each search begins in the cache, where the one before has ended.
    rising = np.argsort(scores, axis=None)
    sought = scores.astype(held.dtype, copy=False).ravel()[rising]
    below, up_to = (total[np.searchsorted(held, sought, side=side)] for side in ("left", "right"))
    ranks = np.empty(scores.size)
    ranks[rising] = (below + up_to) / (2 * total[-1])
    return ranks.reshape(scores.shape)


def measure_reach(each: np.ndarray, weight: np.ndarray) -> float:
    """Return half the length of the 95% interval of a weighted mean; weights add up to 1.

    Of differences by row it is that of a paired comparison.
    """
    spread = np.sqrt(np.sum(weight**2 * (each - np.sum(weight * each)) ** 2))
    return float(Z * spread)
