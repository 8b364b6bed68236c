"""How far new rows are from reference rows, from counts in the same bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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
