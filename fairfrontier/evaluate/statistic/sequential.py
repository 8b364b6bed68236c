"""Evidence that rates have left where they should be, valid however often one looks.

A period t brings h_k of n_k rows of group k for which something happened: they were selected, or
decided wrongly. Given the past they are binomial with rates θ_t, and the null hypothesis is

    θ_t ∈ Θ for every period t,    Θ ⊂ [0, 1]^K convex,

for example a confidence interval of the rate that a reference had, or rates that differ by at most
a limit. Rates may change within Θ. For a guess θ* made from the past alone,

    e_t = Π_k (θ*_k / θ°_k)^h_k ((1 − θ*_k) / (1 − θ°_k))^(n_k − h_k),
    θ° = argmin {Σ_k n_k KL(θ*_k ‖ θ_k) : θ ∈ Θ}

has expectation at most 1 for every θ ∈ Θ: with c_k = (θ*_k − θ°_k) / (θ°_k (1 − θ°_k)) it is

    Π_k (1 + c_k (θ_k − θ°_k))^n_k ≤ exp(Σ_k n_k c_k (θ_k − θ°_k)) ≤ 1,

because −n_k c_k is the derivative at the minimum over a convex set (Turner and Grünwald, theorem
1). Rows may count any share from 0 to 1, such as the probability of a decision that is drawn: each
factor is convex in it. So E_t = e_1 ⋯ e_t is a test supermartingale, the wealth of one who bets
against the null at fair odds, and by Ville's inequality P(E_t ≥ 1/α for some t) ≤ α: looks need not
be planned or counted, as rules that spend α over a number of looks require. Under rates θ outside
Θ, log E grows by Σ_k n_k KL(θ_k ‖ θ°_k), less about ½ log n nats for each rate that is guessed.

References
----------
R. Turner and P. Grünwald. Exact anytime-valid confidence intervals for contingency tables and
beyond. Statistics and Probability Letters 198, 2023.
I. Waudby-Smith and A. Ramdas. Estimating means of bounded random variables by betting. Journal of
the Royal Statistical Society B 86, 2024.
B. Chugh, S. Cortes-Gomez, B. Wilder and A. Ramdas. Auditing fairness by betting. NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import betaincinv, logsumexp, xlogy

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
