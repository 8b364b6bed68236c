"""A lower bound of individual unfairness for nets, over all rows that the data's range allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairfrontier.metrics.certificate.certificate import centre, choose_rows
from fairfrontier.models.neural.network import Adam, Network, forward, input_gradient
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.similarity.fair_metric import FairMetric

# Prices of the fair distance. The last map moves along free directions only.
PRICES = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 0.0)
# What rounding may cost a map along free directions.
ROUNDING = 1e-9


@dataclass(frozen=True)
class BoxBound:
    """The result of a gradient attack on n rows within a budget ε: R(h) over the box is ≥ value."""

    budget: float
    value: float
    n: int


def bound_box(
    network: Network,
    X: np.ndarray,
    metric: FairMetric,
    budgets: Sequence[float],
    low: np.ndarray,
    high: np.ndarray,
    *,
    noise: np.ndarray,
    steps: int = 100,
    rate: float = 0.05,
) -> tuple[BoxBound, ...]:
    """Bound R(h) from below, where rows may move anywhere between ``low`` and ``high``.

        R(h) = sup E d_Y(h(X), h(T(X)))  s.t.  E d_X(X, T(X)) ≤ ε,  low ≤ T(X) ≤ high

    For each of several prices λ, every row climbs d_Y − λ d_X by projected Adam; one more map
    climbs d_Y along the metric's free directions. Mixtures of maps are allowed, so the value at ε
    is read off the upper concave hull of the maps' mean (cost, gain) and of the map that moves
    nothing.

    The net (a model axis of length 1) has at least two logits. X, of shape (n, d), lies inside the
    box; features with low = high do not move. The search starts from X + noise · (high − low),
    since d_Y has no slope at X itself; Adam makes ``steps`` steps at a ``rate`` that is a share of
    the box's width.

    Raises
    ------
    ConfigError
        For a budget below 0, or rows outside the box.

    Notes
    -----
    O(prices · steps · n) passes through the net. A local attack is no supremum: a small value
    proves nothing, and its dual is no upper bound either. Without a box the value would be
    unbounded along free directions.

    References
    ----------
    M. Yurochkin, Y. Sun. SenSeI. ICLR 2021, (2.3) and Theorem 2.4.
    """
    if min(budgets) < 0:
        raise ConfigError(f"A budget of the certificate is {min(budgets)}.", "Give 0 or more.")
    if np.any(low - 1e-9 > X) or np.any(high + 1e-9 < X):
        raise ConfigError("Rows of the certificate lie outside its box.", "Widen the box.")
    width = high - low
    price = np.asarray(PRICES)[:, None, None]
    nets = Network.of([np.repeat(array, len(PRICES), axis=0) for array in network.arrays])
    start = centre(forward(network, X).logits)
    x = np.repeat(np.clip(X + noise * width, low, high)[None], len(PRICES), axis=0)
    x[-1] = _move_freely(x[-1], X, metric.directions, low, high)
    adam = Adam([x], rate)
    best = np.zeros((len(PRICES), len(X)))
    gain, cost = np.zeros_like(best), np.zeros_like(best)
    for _ in range(steps + 1):
        done = forward(nets, x)
        shift = centre(done.logits) - start
        classes = shift.shape[-1]
        moved = (x - X) @ metric.sigma
        output = np.mean(shift**2, axis=-1)
        fair = np.maximum(np.sum(moved * (x - X), axis=-1), 0.0)
        better = output - price[..., 0] * fair > best
        best = np.where(better, output - price[..., 0] * fair, best)
        gain, cost = np.where(better, output, gain), np.where(better, fair, cost)
        slope = input_gradient(nets, done, 2.0 / classes * shift) - 2.0 * price * moved
        # Steps in units of the box: features of any scale move alike.
        x = np.clip(x + adam.step([slope * width])[0] * width, low, high)
        x[-1] = _move_freely(x[-1], X, metric.directions, low, high)
    return tuple(
        BoxBound(float(budget), _mix(cost.mean(axis=1), gain.mean(axis=1), budget), len(X))
        for budget in budgets
    )


def bound_part(
    network: Network,
    part: Part,
    train: Part,
    metric: FairMetric,
    budgets: Sequence[float],
    rows: int | None = 500,
) -> tuple[BoxBound, ...]:
    """Bound a net from below on a sample of a part, in the box that train and the sample span."""
    generator = derive_generator("box", part.dataset, part.name)
    X = part.X[choose_rows(part, rows, generator)]
    low = np.minimum(train.X.min(axis=0), X.min(axis=0))
    high = np.maximum(train.X.max(axis=0), X.max(axis=0))
    noise = 1e-2 * generator.normal(size=X.shape)
    return bound_box(network, X, metric, budgets, low, high, noise=noise)


def _move_freely(
    x: np.ndarray, X: np.ndarray, directions: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Project moves on the free directions, and shorten them to end inside the box."""
    move = (x - X) @ directions.T @ directions
    wall = np.where(move > 0, high - X, X - low)
    room = np.divide(wall, np.abs(move), out=np.full_like(move, np.inf), where=np.abs(move) > 1e-12)
    return np.asarray(X + np.minimum(1.0, room.min(axis=1, keepdims=True)) * move)


def _mix(cost: np.ndarray, gain: np.ndarray, budget: float) -> float:
    """Return the largest gain of a mixture of two maps, or of none, whose cost is the budget."""
    cost, gain = np.append(cost, 0.0), np.append(gain, 0.0)
    cheap, dear = cost <= budget + ROUNDING, cost > budget + ROUNDING
    best = float(gain[cheap].max())
    for c, g in zip(cost[dear], gain[dear], strict=True):
        share = np.maximum(budget - cost[cheap], 0.0) / (c - cost[cheap])
        best = max(best, float(np.max(share * g + (1 - share) * gain[cheap])))
    return best
