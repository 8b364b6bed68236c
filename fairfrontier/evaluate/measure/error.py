"""Errors of a regression in units of its target.

Of a regression that draws one of several regressors they are expectations over the draw.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairfrontier.evaluate.measure.loss import (
    average_loss,
    compute_absolute,
    compute_square,
    expect_loss,
)
from fairfrontier.evaluate.measure.registry import Audit, MeasureRow, measure


@measure(
    "rmse",
    what="root mean squared error, in units of the target",
    needs=("score",),
    task=("regression",),
    direction="lower",
)
def measure_rmse(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the root of the mean squared error; its interval is that of the mean square, rooted."""
    square = 2 * expect_loss(audit, compute_square)
    value, n, low, high = average_loss(square, np.asarray(audit.part.weight, dtype=np.float64))
    root = np.sqrt(np.maximum([value, low, high], 0.0))
    yield MeasureRow("", float(root[0]), n, float(root[1]), float(root[2]))


@measure(
    "mae",
    what="mean absolute error, in units of the target",
    needs=("score",),
    task=("regression",),
    direction="lower",
)
def measure_mae(audit: Audit) -> Iterator[MeasureRow]:
    """Yield the mean absolute error, ± two standard errors."""
    error = expect_loss(audit, compute_absolute)
    yield MeasureRow("", *average_loss(error, np.asarray(audit.part.weight, dtype=np.float64)))


@measure(
    "r2",
    what="share of the target's variance that is explained",
    needs=("score",),
    task=("regression",),
    direction="higher",
)
def measure_r2(audit: Audit) -> Iterator[MeasureRow]:
    """Yield R² = 1 − E(y − f(x))² / E(y − E y)², without an interval.

    Not estimable for fewer than two rows or a constant target. What is drawn at random explains
    nothing: R² of a mixture is below that of its mean.
    """
    y, weight = audit.part.y, np.asarray(audit.part.weight, dtype=np.float64)
    value = np.nan
    if y.size > 1 and np.ptp(y) > 0 and weight.sum() > 0:
        spread = float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
        square = 2 * expect_loss(audit, compute_square)
        if spread > 0:
            value = 1 - float(np.average(square, weights=weight)) / spread
    yield MeasureRow("", value, y.size, np.nan, np.nan)
