"""Balanced accuracy, F1, cost of errors, log loss, AUC, and mean predictions of a regression.

Accuracy is a rate of the group table (metrics/statistic/rate.py), overall and by level.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairfrontier.metrics.measure.loss import measure_means
from fairfrontier.metrics.measure.registry import Audit, MeasureRow, measure
from fairfrontier.metrics.statistic.interval import average, effective_size, wilson


@measure(
    "balanced_accuracy",
    what="mean over the classes of the share of their rows that are decided right",
    task=("binary", "multiclass"),
    direction="higher",
    reference="Brodersen et al., The balanced accuracy and its posterior distribution, 2010",
)
def measure_balanced_accuracy(audit: Audit) -> Iterator[MeasureRow]:
    """Yield mean_k P(decision = k | Y = k) over the K classes that occur; expected if random.

    The interval combines Wilson's intervals of the K recalls: value − sqrt(Σ (r_k − l_k)²)/K and
    likewise above. Fewer than two classes: not estimable.

    References
    ----------
    Zou and Donner, "Construction of confidence limits about effect measures: a general
    approach", 2008.
    """
    y, right, weight = audit.part.y, audit.right, audit.weight
    total = np.bincount(y, weight)
    present = total > 0
    if present.sum() < 2:
        yield MeasureRow("", np.nan, y.size)
        return
    recall = np.divide(
        np.bincount(y, weight * right), total, where=present, out=np.zeros_like(total)
    )
    squares = np.bincount(y, (weight * (right - recall[y])) ** 2)[present]
    kish = total[present] ** 2 / np.bincount(y, weight**2)[present]
    recall, total = recall[present], total[present]
    rows = np.bincount(y)[present]
    low, high = wilson(recall, effective_size(recall, squares / total**2, kish, rows))
    value = float(recall.mean())
    below = np.sqrt(np.sum((recall - low) ** 2)) / recall.size
    above = np.sqrt(np.sum((high - recall) ** 2)) / recall.size
    yield MeasureRow("", value, y.size, max(value - below, 0.0), min(value + above, 1.0))


@measure(
    "f1",
    what="harmonic mean of precision and recall of the positive class",
    direction="higher",
    reference="van Rijsbergen, Information Retrieval, 1979",
)
def measure_f1(audit: Audit) -> Iterator[MeasureRow]:
    """Yield 2 TP/(2 TP + FP + FN), expected counts if random, with Wilson's interval.

    Its effective size is that of the variance of a ratio of sums, Σ w²(2 tp − F (2 tp + fp + fn))²
    over the squared sum below. No positive row and no decision 1: not estimable.
    """
    y, decision, weight = audit.part.y, audit.prediction.decision, audit.weight
    above, below = 2 * (y == 1) * decision, (y == 1) + decision
    total = float(np.sum(weight * below))
    if not total > 0:
        yield MeasureRow("", np.nan, y.size)
        return
    value = float(np.sum(weight * above)) / total
    some, error = weight[below > 0], (above - value * below)[below > 0]
    squares = np.sum(some**2)
    # Of few heavy rows the first is too low as often as not.
    spread = max(np.sum((some * error) ** 2), np.average(error**2, weights=some) * squares)
    size = effective_size(np.asarray(value), spread / total**2, some.sum() ** 2 / squares)
    low, high = wilson(np.asarray(value), size)
    yield MeasureRow("", value, y.size, float(low), float(high))


@measure(
    "error_cost",
    what="mean cost of the errors, at the costs of the study's objective",
    needs=("decision", "costs"),
    direction="lower",
    reference="Elkan, The foundations of cost-sensitive learning, 2001",
)
def measure_error_cost(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the weighted mean of c_FP 1{y = 0} d + c_FN 1{y = 1} (1 − d), expected if random.

    The interval is Wilson's, of the share that the cost is of the larger one of both.
    """
    y, decision, weight = audit.part.y, audit.prediction.decision, audit.weight
    false_positive, false_negative = audit.costs or (1.0, 1.0)
    most = max(false_positive, false_negative)
    cost = np.where(y == 1, false_negative * (1 - decision), false_positive * decision) / most
    total, squares = float(np.sum(weight)), float(np.sum(weight**2))
    if not total > 0:
        yield MeasureRow("", np.nan, y.size)
        return
    value = np.asarray(np.sum(weight * cost) / total)
    variance = np.asarray(np.sum((weight * (cost - value)) ** 2) / total**2)
    size = effective_size(value, variance, total**2 / np.asarray(squares), y.size)
    low, high = wilson(value, size)
    yield MeasureRow("", most * float(value), y.size, most * float(low), most * float(high))


@measure(
    "log_loss",
    what="mean of −log P(Y = y | x), in nats",
    needs=("score",),
    task=("binary", "multiclass"),
    direction="lower",
    reference="Good, Rational decisions, 1952",
)
def measure_log_loss(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the weighted mean of −log p_y; its interval allows for skewness (`average_cells`).

    Probabilities are clipped 2.2e-16 away from 0 and 1, as in scikit-learn.
    """
    y, score = audit.part.y, audit.prediction.score
    likelihood = np.stack([1 - score, score], axis=1) if score.ndim == 1 else score
    eps = np.finfo(np.float64).eps
    losses = -np.log(np.clip(likelihood, eps, 1 - eps))
    yield MeasureRow("", *average(losses[np.arange(y.size), y], audit.weight, possible=losses))


@measure(
    "auc",
    what="probability that a positive row scores above a negative one, ties counting half",
    needs=("score",),
    direction="higher",
    reference="DeLong, DeLong and Clarke-Pearson, Comparing the areas under two or more "
    "correlated ROC curves, 1988",
)
def measure_auc(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the weighted AUC with Wilson's interval of an effective size.

    V_i is the weighted share of the other class that row i is on the right side of (ties count
    half). AUC is the weighted mean of V over either class, and DeLong's variance the sum over both
    classes of Σ w²(V − AUC)² / (Σw)². Of few rows it may be far too small, as where none of the
    worst was drawn: at least Hanley and McNeil's is taken, whichever class varies more. One class
    only: not estimable.

    Notes
    -----
    O(n log n): one sort, then sums by distinct score.

    References
    ----------
    Sun and Xu, "Fast implementation of DeLong's algorithm for comparing the areas under
    correlated receiver operating characteristic curves", 2014. Hanley and McNeil, "The meaning and
    use of the area under a receiver operating characteristic (ROC) curve", 1982.
    """
    y, score, weight = audit.part.y, audit.prediction.score, audit.weight
    _, rank = np.unique(score, return_inverse=True)
    positive = np.bincount(rank, weight * (y == 1))
    negative = np.bincount(rank, weight * (y == 0))
    if not (positive.sum() > 0 and negative.sum() > 0):
        yield MeasureRow("", np.nan, y.size)
        return
    below = (np.cumsum(negative) - negative / 2) / negative.sum()
    above = (positive.sum() - np.cumsum(positive) + positive / 2) / positive.sum()
    value = float(np.sum(positive * below) / positive.sum())
    squares = np.where(y == 1, below[rank], above[rank]) - value
    share = weight / np.where(y == 1, positive.sum(), negative.sum())
    rows = np.array([1.0 / np.sum(share[y == k] ** 2) for k in (0, 1)])
    terms = np.array([(1.0 - value) / (2.0 - value), value / (1.0 + value)])
    least = value * (1.0 - value) * max(terms @ (1.0 / rows), terms[::-1] @ (1.0 / rows))
    variance = np.maximum(np.sum((share * squares) ** 2), least)
    low, high = wilson(np.asarray(value), effective_size(np.asarray(value), variance, rows.min()))
    yield MeasureRow("", value, y.size, float(low), float(high))


@measure(
    "mean_prediction",
    what="mean predicted value, overall and by level",
    needs=("score",),
    task=("regression",),
)
def measure_mean_prediction(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the weighted mean prediction of the part and of every level."""
    yield MeasureRow("", *average(audit.prediction.score, audit.weight))
    for attribute in audit.part.attributes:
        yield from measure_means(audit, attribute, audit.prediction.score)
