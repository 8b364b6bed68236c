"""How far new rows are from reference rows, from counts in the same bins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, logsumexp, xlogy
from scipy.stats import chi2, wasserstein_distance


@dataclass(frozen=True)
class Drift:
    """Distances of new rows from reference rows.

    Attributes
    ----------
    psi : float
        Population stability index Σ_b (q_b − p_b) log(q_b / p_b) in nats, where p_b and q_b are
        shares of the bins. Half a row is added to every bin: empty ones do not make it infinite.
    psi_by_chance : float
        What the index exceeds in 5% of samples of these sizes without any drift.
    ks : float
        Kolmogorov and Smirnov's max |F − G|; from bins, at their edges. NaN without an order.
    wasserstein : float
        ∫ |F − G|, in units of the column, as if every bin's rows were at its middle; NaN with fewer
        than two edges.
    """

    psi: float
    psi_by_chance: float
    ks: float = np.nan
    wasserstein: float = np.nan


def compare_counts(
    reference: np.ndarray, new: np.ndarray, edges: np.ndarray | None = None
) -> Drift:
    """Return the drift of counts in the same bins.

    Parameters
    ----------
    reference, new : ndarray of int, shape (n_bins,)
        Rows in each bin. The index counts bins that both leave empty as none.
    edges : ndarray of float64, optional, shape (n_ordered − 1,)
        Of numbers: the edges between the first n_ordered bins, of which the outer ones have no end
        and are taken for as wide as their neighbours; further bins, as of missing values, have
        no place among numbers.

    Notes
    -----
    O(n_bins). Without drift, the index divided by 1/n + 1/m is asymptotically chi-squared with
    n_bins − 1 degrees of freedom: the customary limits .1 and .25 mean nothing without n and m.

    References
    ----------
    B. Yurdakul and J. Naranjo. Statistical properties of the population stability index. Journal of
    Risk Model Validation 14, 2020.
    """
    reference, new = np.asarray(reference, np.float64), np.asarray(new, np.float64)
    sizes = reference.sum(), new.sum()
    if not min(sizes) > 0:
        return Drift(np.nan, np.nan)
    used = (reference > 0) | (new > 0)
    p, q = ((each[used] + 0.5) / (each[used] + 0.5).sum() for each in (reference, new))
    psi = float(((q - p) * np.log(q / p)).sum())
    chance = float(chi2.ppf(0.95, max(p.size - 1, 1)) * (1 / sizes[0] + 1 / sizes[1]))
    if edges is None:
        return Drift(psi, chance)
    ordered = [each[: len(edges) + 1] for each in (reference, new)]
    if not min(each.sum() for each in ordered) > 0:
        return Drift(psi, chance)
    ks = float(np.abs(np.subtract(*(np.cumsum(each) / each.sum() for each in ordered))).max())
    # Bins without ends on both sides have no width.
    if len(edges) < 2:
        return Drift(psi, chance, ks)
    middles = _find_middles(np.asarray(edges, np.float64))
    return Drift(psi, chance, ks, float(wasserstein_distance(middles, middles, *ordered)))


def _find_middles(edges: np.ndarray) -> np.ndarray:
    """Return the middles of bins, the outer ones as wide as their neighbours."""
    width = np.diff(edges)
    inner = edges[:-1] + width / 2
    return np.concatenate([[edges[0] - width[0] / 2], inner, [edges[-1] + width[-1] / 2]])


# Evidence that rates have left where they should be, valid however often one looks.

# Shares of a period's rows that are bet on one after the other by who begins with that period, and
# learns from the earlier ones: each is as large as all before it.
BATCHES = (1 / 16, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
# Rows that the first guess counts for: guesses deviate from it by about ½ / √PRIOR_ROWS.
PRIOR_ROWS = 20.0
BISECTIONS = 50
# From guesses and numbers of rows to the nearest rates of the null hypothesis.
Projection = Callable[[np.ndarray, np.ndarray], np.ndarray]


def bound_rate(
    hits: np.ndarray, rows: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return Clopper and Pearson's interval of a binomial rate: its coverage is never below.

    ``hits`` of ``rows`` are arrays of one shape, and so are both ends; without rows they are 0, 1.

    References
    ----------
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", 1934.
    """
    hits, rows = np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    tail = (1.0 - confidence) / 2.0
    misses = rows - hits
    low = betaincinv(np.where(hits > 0, hits, 1.0), misses + 1.0, tail)
    high = betaincinv(hits + 1.0, np.where(misses > 0, misses, 1.0), 1.0 - tail)
    return np.where(hits > 0, low, 0.0), np.where(misses > 0, high, 1.0)


def within(low: np.ndarray | float, high: np.ndarray | float) -> Projection:
    """Return the projection onto rates that all lie between two bounds, of shape (..., 1, K)."""
    return lambda guess, _: np.clip(guess, low, high)


def within_difference(limit: float) -> Projection:
    """Return the projection onto rates whose largest difference is at most a limit, in [0, 1]."""
    return lambda guess, rows: _fit_band(guess, rows, (0.0, 1.0), (limit, 1.0), 1.0 - limit)


def within_ratio(limit: float) -> Projection:
    """Return the projection onto rates whose smallest ratio is at least a limit, in (0, 1]."""
    return lambda guess, rows: _fit_band(guess, rows, (0.0, limit), (0.0, 1.0), 1.0)


def _fit_band(
    guess: np.ndarray,
    rows: np.ndarray,
    low: tuple[float, float],
    high: tuple[float, float],
    end: float,
) -> np.ndarray:
    """Project on θ_k between low and high, where each is intercept + slope · s, for some s ≤ end.

    The divergence is convex in s once every θ_k is clipped: its derivative is bisected.
    """
    start, stop = np.zeros(guess.shape[:-1]), np.full(guess.shape[:-1], end)
    for _ in range(BISECTIONS):
        middle = (start + stop) / 2
        slope = np.zeros_like(middle)
        for (intercept, rise), side in ((low, np.less), (high, np.greater)):
            bound = (intercept + rise * middle)[..., None]
            outside = side(guess, bound)
            slope += (
                rise
                * np.where(outside, rows * (bound - guess), 0.0).sum(-1)
                / np.maximum(bound * (1.0 - bound), 1e-300).squeeze(-1)
            )
        start, stop = np.where(slope < 0, middle, start), np.where(slope < 0, stop, middle)
    bounds = [intercept + rise * stop[..., None] for intercept, rise in (low, high)]
    return np.clip(guess, *bounds)


def bet(
    past: Sequence[np.ndarray],
    hits: np.ndarray,
    rows: np.ndarray,
    prior: np.ndarray,
    project: Projection,
) -> np.ndarray:
    """Return log e of one bet for each leading index; the last axis of all arrays is that of K.

    ``past`` are hits and rows from which the guess is made, together with the ``prior`` rates.
    """
    guess = (past[0] + PRIOR_ROWS * prior) / (past[1] + PRIOR_ROWS)
    null = project(guess, rows)
    # A null rate of 0 or 1 is refuted by a single row.
    with np.errstate(divide="ignore"):
        gain = xlogy(hits, guess / null) + xlogy(rows - hits, (1.0 - guess) / (1.0 - null))
    return np.asarray(gain.sum(axis=-1))


def accumulate_evidence(
    hits: np.ndarray, rows: np.ndarray, prior: np.ndarray, project: Projection
) -> np.ndarray:
    """Return log E after every period.

    It is the wealth of bettors of whom the j-th begins with period j and has 1/(j(j + 1)) to bet,
    so that a change is found soon after it happens, whenever that is: the cost of not knowing when
    is log(j(j + 1)) nats. Who has begun guesses from all rows since then, see `bet`.

    Parameters
    ----------
    hits, rows : ndarray, shape (..., n_periods, n_batches, K)
        Of each group in each batch; rows are assigned to ``BATCHES`` at random.
    prior : ndarray of float64, shape (..., K)
        What is guessed before there are rows, in (0, 1).
    project : callable
        The null hypothesis: `within`, `within_difference` or `within_ratio`.

    Returns
    -------
    ndarray of float64, shape (..., n_periods)

    Notes
    -----
    O(n_periods²) time and memory. P(E_t ≥ 1/α for some t) ≤ α where the rows of a period are
    independent given the past; several rows of one person are not.

    References
    ----------
    J. Shin, A. Ramdas and A. Rinaldo. E-detectors: a nonparametric framework for sequential change
    detection. New England Journal of Statistics in Data Science 2, 2023.
    """
    hits, rows = np.asarray(hits, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    prior = np.asarray(prior, dtype=np.float64)[..., None, :]
    batches = (*hits.shape[:-3], -1, hits.shape[-1])
    before = [(np.cumsum(each, axis=-2) - each).reshape(batches) for each in (hits, rows)]
    first = bet(before, hits.reshape(batches), rows.reshape(batches), prior, project)
    first = first.reshape(hits.shape[:-1]).sum(axis=-1)
    hits, rows = hits.sum(axis=-2), rows.sum(axis=-2)
    before = [np.cumsum(each, axis=-2) - each for each in (hits, rows)]
    n_periods = hits.shape[-2]
    # Bettor j has seen, in a later period t, what came before t and not before j.
    j, t = np.triu_indices(n_periods, 1)
    seen = [each[..., t, :] - each[..., j, :] for each in before]
    gain = np.zeros((*hits.shape[:-2], n_periods, n_periods))
    gain[..., j, t] = bet(seen, hits[..., t, :], rows[..., t, :], prior, project)
    gain += first[..., None] * np.eye(n_periods)
    period = np.arange(1.0, n_periods + 1)
    share = np.append(1.0 / (period * (period + 1.0)), 1.0 / (n_periods + 1.0))
    wealth = np.cumsum(gain, axis=-1)
    idle = np.zeros_like(wealth[..., :1, :])
    total = logsumexp(np.concatenate([wealth, idle], axis=-2), axis=-2, b=share[:, None])
    return np.asarray(total)
