"""Counterfactual fairness of scores: how far apart a model's answers on versions of a row lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure
from fairfrontier.evaluate.measure.version import weigh_versions
from fairfrontier.evaluate.statistic.interval import average


@measure(
    "counterfactual_fairness",
    what="CTF score: how much the probabilities of the classes vary over the versions of a row",
    needs=("counterfactual_score",),
    task=("binary", "multiclass"),
    direction="lower",
    reference="Garg et al., Counterfactual fairness in text classification through robustness, "
    "2019; Yurochkin and Sun, SenSeI, 2021",
)
def measure_counterfactual_fairness(audit: Audit) -> Iterator[MeasureRow]:
    """Yield one row for each counterfactual set: the weighted mean over the rows with versions.

    Two classes: mean_i std_v P(Y=1 | version v of row i). More: the mean over rows and over pairs
    of versions of ‖p_iv − p_iv'‖², p the probabilities of the classes. See ``vary``. The interval
    is the normal one of a mean over rows, cut at 0.

    Notes
    -----
    O(n m K) for m versions. Sets of tables keep no scores and have no row here.
    """
    for name, scores in audit.prediction.counterfactual_scores.items():
        weight = weigh_versions(audit.part, name)
        if not scores:
            yield MeasureRow(name, np.nan, weight.size, np.nan, np.nan)
            continue
        value, n, low, high = average(vary(scores), weight)
        yield MeasureRow(name, value, n, max(low, 0.0), high)


def vary(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return how much the scores of each row vary over its versions.

    Of probabilities of one class the standard deviation (NumPy's, over m versions and not m − 1);
    of probabilities of K classes the mean over the m(m − 1)/2 pairs of versions of the squared
    Euclidean distance, which is 2/(m − 1) Σ_v ‖p_v − p̄‖².

    Parameters
    ----------
    scores : sequence of ndarray of float64, shape (n_samples,) or (n_samples, n_classes)
        One array for each version; at least one.

    Returns
    -------
    ndarray of float64, shape (n_samples,)
        0 where there is one version.
    """
    m = len(scores)
    # From the first version, so that versions that agree vary by exactly 0.
    mean = sum((score - scores[0] for score in scores), np.zeros_like(scores[0])) / m
    square = sum(((score - scores[0] - mean) ** 2 for score in scores), np.zeros_like(mean))
    if square.ndim == 1:
        return np.asarray(np.sqrt(square / m))
    return np.asarray(square.sum(axis=1) * 2 / max(m - 1, 1))
