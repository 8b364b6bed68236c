"""The certificate of distributional individual fairness, exact over data rows, for any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from fairfrontier.metrics.statistic.interval import percentile
from fairfrontier.models.base import unit_weight
from fairfrontier.models.individual.budro.geometry import build_geometry, snap_coordinates
from fairfrontier.models.individual.budro.search import Piece, Search, minimise_dual
from fairfrontier.models.neural.network import Adam, Network, forward, input_gradient
from fairfrontier.models.prediction import Prediction, predict_part
from fairfrontier.models.thresholds.base import PostProcessor
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, refuse_unknown
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.similarity.fair_metric import FairMetric

BLOCK = 64
# Probabilities of trees and saturated nets can be 0 or 1: they are clipped before the logarithm.
SMALLEST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class Certificate:
    """R̂(h): how far a model's outputs can differ between similar rows, on average, at a budget ε.

    ``value`` is attained; ``upper`` is the dual's value, an upper bound. Both are in squared units
    of the logits. ``n`` counts the rows of positive weight.
    """

    budget: float
    value: float
    upper: float
    n: int


def centre_logits(probability: np.ndarray) -> np.ndarray:
    """Return log p minus its mean over the classes, shape (n_samples, n_classes).

    The logits of a softmax are known up to a constant per row; centring fixes it, so that models
    of any kind can be compared. With two classes both entries are half the log-odds in size, and
    d_Y = (Δ log-odds)² / 4.
    """
    p = np.asarray(probability, dtype=np.float64)
    if p.ndim == 1:
        p = np.stack([1.0 - p, p], axis=1)
    return centre(np.log(np.clip(p, SMALLEST_PROBABILITY, 1.0)))


def centre(logits: np.ndarray) -> np.ndarray:
    """Return logits minus their mean over the last axis."""
    return np.asarray(logits - logits.mean(axis=-1, keepdims=True))


def certify_rows(
    logits: np.ndarray,
    z: np.ndarray,
    budget: float,
    *,
    weight: np.ndarray | None = None,
    tolerance: float = 1e-6,
) -> Certificate:
    """Compute R̂(h) over the rows at hand, by the dual of BuDRO's transport.

        R̂(h) = max_Π Σ_ij Π_ij d_Y(h(x_i), h(x_j))
               s.t. Π ≥ 0,  Σ_ij Π_ij d_X(x_i, x_j) ≤ ε,  Πᵀ1 = m                (3.1)

    with m = 1/n or the normalised weights, d_Y = (1/K) ‖logits − logits'‖² and d_X = ‖z − z'‖².

    The logits, of shape (n, K), are centred; the embedded rows z have shape (n, k). Rows that
    coincide after `snap_coordinates` may become each other within any budget, 0 included. Rows of
    weight 0 are left out, also as counterparts. The tolerance is the duality gap as a share of the
    value.

    Raises
    ------
    ConfigError
        When the budget is below 0 or infinite, or no row has a positive weight.
    DataError
        For weights that are negative or not finite.

    Notes
    -----
    O(n² (k + K)) operations per value of η, some 10 to 20 of them, in blocks of O(n) memory. The
    rows are compared with each other only: the population's R differs by the error term of Theorem
    3.1, whose constants (the entropy integral of the model class and both diameters) are not known.

    References
    ----------
    M. Yurochkin, Y. Sun. SenSeI: sensitive set invariance for enforcing individual fairness. ICLR
    2021, (3.1), Theorem 3.1. A. Vargo et al. Individually fair gradient boosting. ICLR 2021,
    (B.14).
    """
    if not 0 <= budget < np.inf:
        raise ConfigError(f"The certificate's budget is {budget}.", "Give 0 or more.")
    mass = unit_weight(weight, len(z))
    kept = np.flatnonzero(mass > 0)
    if not kept.size:
        raise ConfigError(
            "No row of the certificate has a positive weight.", "Give some rows a weight above 0."
        )
    outputs, points = (np.asarray(values, dtype=np.float64)[kept] for values in (logits, z))
    pairs = _Pairs(outputs, points, mass[kept] / mass[kept].sum())
    stay, best = np.arange(pairs.n), pairs.farthest()
    if budget == 0:
        # Only moves that cost nothing are allowed.
        stay = best = pairs.coincide()
    solution = minimise_dual(
        lambda eta, known: pairs.piece(eta, budget, pairs.move(eta, known)),
        pairs.piece(0.0, budget, best),
        pairs.piece(0.0, budget, stay),
        tolerance=tolerance,
    )
    return Certificate(budget, solution.objective, solution.dual, pairs.n)


def certify_part(
    prediction: Prediction,
    part: Part,
    metric: FairMetric,
    budgets: Sequence[float],
    rows: int | None = 2000,
) -> tuple[Certificate, ...]:
    """Certify a model from its predictions on a part (of a sample of its rows) at every budget."""
    chosen = choose_rows(part, rows)
    logits = centre_logits(prediction.score[chosen])
    z, weight = np.asarray(metric.embed(part.X[chosen])), part.weight[chosen]
    return tuple(certify_rows(logits, z, budget, weight=weight) for budget in budgets)


def choose_rows(
    part: Part, rows: int | None, generator: np.random.Generator | None = None
) -> np.ndarray:
    """Return the positions of the rows that are certified: a sample, the same for every model."""
    if rows is None or rows >= part.n_samples:
        return np.arange(part.n_samples)
    random = generator or derive_generator("certificate", part.dataset, part.name)
    return np.sort(random.choice(part.n_samples, size=rows, replace=False))


def name_budget(budget: float) -> str:
    """Return the group of a certificate in points.parquet: ``budget=0.1``."""
    return f"budget={budget:g}"


class _Pairs:
    """Output and fair distances of all pairs, a block of columns at a time."""

    def __init__(self, logits: np.ndarray, z: np.ndarray, mass: np.ndarray) -> None:
        self.n, classes = logits.shape
        self.mass = mass
        self.f = logits / np.sqrt(classes)
        # Distances are computed from products, which lose least near the origin.
        self.z = snap_coordinates(z)
        self.z -= self.z.mean(axis=0)
        self.f_square = np.sum(self.f**2, axis=1)
        self.z_square = np.sum(self.z**2, axis=1)

    def search(self, score: Callable[[slice], np.ndarray]) -> np.ndarray:
        """Return the target of the largest score of every row, a block of rows at a time."""
        blocks = (slice(first, first + BLOCK) for first in range(0, self.n, BLOCK))
        return np.concatenate([np.argmax(score(block), axis=1) for block in blocks])

    def distances(self, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return d_Y and d_X of all rows to their targets."""
        output = np.sum((self.f[target] - self.f) ** 2, axis=1)
        return output, np.sum((self.z[target] - self.z) ** 2, axis=1)

    def piece(self, eta: float, budget: float, target: np.ndarray) -> Piece:
        output, fair = self.distances(target)
        return Piece(eta, float(self.mass @ output), float(self.mass @ fair), budget, target)

    def move(self, eta: float, known: np.ndarray) -> np.ndarray:
        """Return the best target of every row at η, at least as good as the known one."""
        level = (self.f_square - eta * self.z_square)[:, None]
        left = np.hstack([-2.0 * self.f, (2.0 * eta) * self.z, np.ones_like(level)])
        right = np.hstack([self.f, self.z, level]).T
        best = self.search(lambda block: left[block] @ right)
        new, old = self.distances(best), self.distances(known)
        return np.where(new[0] - eta * new[1] > old[0] - eta * old[1], best, known)

    def farthest(self) -> np.ndarray:
        """Return the target of the largest output distance; of those that tie, the nearest."""

        def score(block: slice) -> np.ndarray:
            output = self.f_square - 2.0 * (self.f[block] @ self.f.T)
            fair = self.z_square - 2.0 * (self.z[block] @ self.z.T)
            top = output.max(axis=1, keepdims=True)
            tied = output >= top - 1e-12 * np.maximum(1.0, np.abs(top))
            return np.where(tied, -fair, -np.inf)

        return self.search(score)

    def coincide(self) -> np.ndarray:
        """Return the target of the largest output distance among the rows at the same point."""
        point = np.unique(self.z, axis=0, return_inverse=True)[1].reshape(-1)

        def score(block: slice) -> np.ndarray:
            output = self.f_square - 2.0 * (self.f[block] @ self.f.T)
            return np.where(point[block, None] == point, output, -np.inf)

        best = self.search(score)
        return np.where(self.distances(best)[0] > 0, best, np.arange(self.n))


# A lower bound of individual unfairness for nets, over all rows that the data's range allows.

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

    Notes
    -----
    O(prices · steps · n) passes through the net. A local attack is no supremum: a small value
    proves nothing, and its dual is no upper bound either. Without a box the value would be
    unbounded along free directions.

    References
    ----------
    M. Yurochkin, Y. Sun. SenSeI. ICLR 2021, (2.3) and Theorem 2.4.
    """
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


# The restricted adversarial gap of a classifier: loss that similar rows add in the worst case.

# Maps of rows that are best at some price of the fair distance, and what they give any budget.

# Largest number of passes over the rows for the sample and, beyond those, for its draws.
SAMPLE_PASSES, DRAW_PASSES = 100, 25
# Counts that are turned into float64 at a time: 32 MiB.
TILE = 1 << 22


class PriceMaps:
    """The maps that are best at some prices η, in falling order of price.

    At η every row j becomes the row i of the largest R_ij − η C_ij, whatever the masses are: the
    same maps serve every weighting of the rows. Here R_ij = losses[i, y_j], C_ij = ‖z_i − z_j‖²
    and the weights are positive.

    Prices ``eta`` fall from ∞ (rows become what coincides with them) to 0. Each map has the points
    that the merged columns move to (``target``), and ``gain`` R_ij − R_jj and ``cost`` C_ij of
    every row, of shape (n,).
    """

    def __init__(
        self, z: np.ndarray, label: np.ndarray, losses: np.ndarray, weight: np.ndarray
    ) -> None:
        self.geometry = build_geometry(z, label, n_labels=losses.shape[1], mass=weight)
        self.search = Search(self.geometry, losses, "float32")
        self.label, self.weight = label, weight
        self.own = losses[np.arange(len(label)), label]
        self.eta: list[float] = []
        self.target: list[np.ndarray] = []
        self.gain: list[np.ndarray] = []
        self.cost: list[np.ndarray] = []
        # Within budget 0 a row may only become one that coincides with it.
        self._insert(float("inf"), self.geometry.column_point)
        self._insert(0.0, self.search.move_freely(0.0).target)

    def _insert(self, eta: float, target: np.ndarray) -> int:
        """Insert a map, and return its position."""
        pairs = [
            self.search.value(k, self.geometry.column_point[a:b], target[a:b])
            for k, (a, b) in enumerate(self.geometry.columns)
        ]
        gain, cost = (np.concatenate(blocks) for blocks in zip(*pairs, strict=True))
        position = int(np.sum(np.asarray(self.eta) > eta))
        self.eta.insert(position, eta)
        self.target.insert(position, target)
        self.gain.insert(position, gain[self.geometry.row_column] - self.own)
        self.cost.insert(position, cost[self.geometry.row_column])
        return position

    def name_rows(self, target: np.ndarray) -> np.ndarray:
        """Return the first row of the largest loss at every row's target point."""
        rows = np.empty(len(self.label), dtype=np.int64)
        points = target[self.geometry.row_column]
        for k in range(self.geometry.n_labels):
            worst = np.lexsort((-self.search.loss[:, k], self.geometry.row_point))
            first = worst[np.searchsorted(self.geometry.row_point[worst], points)]
            rows = np.where(self.label == k, first, rows)
        return rows

    def settle(
        self, counts: np.ndarray, budgets: Sequence[float], tolerance: float, passes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return values and upper bounds, (n_draws, n_budgets), adding maps where they differ.

        ``counts``, uint16 of shape (n_draws, n), says how often each draw has each row. At most
        ``passes`` maps are added, until the two differ by no more than ``tolerance`` as a share of
        the bound.
        """
        if counts.size <= TILE:
            counts = counts.astype(np.float64)
        sums = self._sum(counts, [np.ones(len(self.weight)), *self.gain, *self.cost])
        total = sums[:, :1]
        gain, cost = np.split(sums[:, 1:] / total, 2, axis=1)
        for _ in range(passes + 1):
            readings = [_read_hull(np.array(self.eta), gain, cost, budget) for budget in budgets]
            value, upper, price = (
                np.stack(columns, axis=1) for columns in zip(*readings, strict=True)
            )
            slack = np.where(np.isin(price, self.eta), 0.0, upper - value)
            slack = np.divide(slack, upper, out=np.zeros_like(upper), where=upper > 1e-15)
            if slack.max() <= tolerance or len(self.eta) > SAMPLE_PASSES + DRAW_PASSES:
                break
            eta = float(price[np.unravel_index(np.argmax(slack), slack.shape)])
            nearest_known = self.target[int(np.sum(np.asarray(self.eta) > eta)) - 1]
            i = self._insert(eta, self.search.move_all(eta, 0.0, nearest_known).target)
            more = self._sum(counts, [self.gain[i], self.cost[i]]) / total
            gain, cost = (
                np.insert(old, i, new, axis=1)
                for old, new in zip((gain, cost), more.T, strict=True)
            )
        return value, upper

    def _sum(self, counts: np.ndarray, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the weighted sums of some values over the rows of every draw."""
        right = np.stack(values, axis=1) * self.weight[:, None]
        tiles = np.array_split(counts, 1 + counts.size // TILE)
        return np.concatenate([tile.astype(np.float64, copy=False) @ right for tile in tiles])


def _read_hull(
    eta: np.ndarray, gain: np.ndarray, cost: np.ndarray, budget: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return value, upper bound and the price to try next, for every draw.

    Costs rise along the maps as prices fall. The chord between two maps is attained; their
    tangents, whose slopes are the prices, lie above the optimum and meet at the chord's slope.
    """
    draw, last = np.arange(len(gain)), len(eta) - 1
    # Up to the first that is dearer: next to price 0, maps that tie may come in any order of cost.
    left = np.maximum(np.sum(np.cumprod(cost <= budget, axis=1), axis=1), 1) - 1
    right = np.minimum(left + 1, last)
    step = np.where(left == last, 1.0, cost[draw, right] - cost[draw, left])
    spare = budget - cost[draw, left]
    slope = (gain[draw, right] - gain[draw, left]) / step
    value = gain[draw, left] + slope * spare
    before = np.where(spare > 0, eta[left], 0.0) * spare
    after = eta[right] * (budget - cost[draw, right])
    upper = np.minimum(gain[draw, left] + before, gain[draw, right] + after)
    settled = (left == last) | (spare <= 0)
    return value, np.where(settled, value, np.maximum(upper, value)), slope


Loss = Literal["log", "error"]
# How far a bootstrap draw may be from its optimum, as a share of its gap.
DRAW_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Gap:
    """The gap Ĝ(ε) at one budget.

    ``value``, at least 0, is attained by a map of the rows within the budget, in nats for the log
    loss and in shares of rows for errors. ``upper`` is the dual's value, an upper bound over these
    rows; ``low`` and ``high`` are a 95% bootstrap interval, NaN without replicates; ``n`` counts
    rows.
    """

    budget: float
    value: float
    upper: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, eq=False)
class GapCertificate:
    """A model's gaps over a range of budgets, and the maps of rows that attain them.

    ``rows`` are positions in the part, sorted by the rows' values, so that nothing here depends on
    their order; ``twin`` is the first row with the same values and ``mass`` the share of each row.
    ``target``, ``gain`` and ``cost``, of shape (n_maps, n), say what each row becomes at each price
    of the fair distance, in falling order from ∞, what that adds to its loss, and its fair
    distance.
    """

    loss: Loss
    gaps: tuple[Gap, ...]
    rows: np.ndarray
    twin: np.ndarray
    mass: np.ndarray
    target: np.ndarray
    gain: np.ndarray
    cost: np.ndarray

    def find_gap(self, budget: float) -> Gap:
        """Return the gap at one of the budgets; ConfigError when it was not certified."""
        for gap in self.gaps:
            if gap.budget == budget:
                return gap
        known = ", ".join(f"{gap.budget:g}" for gap in self.gaps)
        raise ConfigError(f"The budget {budget:g} was not certified.", f"Choose among: {known}.")

    def mix_maps(self, budget: float) -> tuple[tuple[float, int], ...]:
        """Return the (share, position) of the one or two maps whose mixture spends a budget."""
        cost = self.cost @ self.mass
        inside = max(int(np.sum(cost <= budget)), 1) - 1
        if inside == len(cost) - 1:
            return ((1.0, inside),)
        share = (budget - cost[inside]) / (cost[inside + 1] - cost[inside])
        return ((1.0 - share, inside), (share, inside + 1))


def certify(
    model: Any,
    part: Part,
    metric: FairMetric,
    budgets: Sequence[float],
    *,
    loss: Loss | None = None,
    rows: int | None = 2000,
    replicates: int = 1000,
) -> GapCertificate:
    """Certify any fitted classifier on a part: its restricted adversarial gap at every budget.

    Parameters
    ----------
    model : estimator
        Anything scikit-learn shaped, post-processed and randomised rules included; only its
        predictions are used, see `predict_part`.
    part : Part
        Rows with labels of two or more classes.
    metric : FairMetric
        What "similar" means.
    budgets : sequence of float
        ε ≥ 0 of each gap, in squared units of the metric.
    loss : {"log", "error"}, optional
        ``log``: −log of the probability of the label, clipped at 1e-6. ``error``: the probability
        of a wrong decision. By default ``error`` for post-processed and randomised models, else
        ``log``.
    rows : int, optional
        Size of the sample, the same for every model; all rows when None.
    replicates : int
        Bootstrap draws; 0 leaves out the intervals.

    Returns
    -------
    GapCertificate
        `list_worst_moves` lists the moves behind it.

    Raises
    ------
    ConfigError
        For a budget below 0, an unknown loss, or a part without classes.

    Examples
    --------
    >>> found = certify(model, split.test, metric, [0.1, 0.4])  # doctest: +SKIP
    >>> list_worst_moves(found, 0.1)  # doctest: +SKIP
    """
    if not part.classes:
        raise ConfigError(
            f"The label of {part.dataset} has no classes.", "Certify classifiers only."
        )
    corrected = isinstance(model, PostProcessor) and not model.rescores
    decides = corrected or getattr(model, "randomized", False)
    chosen: Loss = loss or ("error" if decides else "log")
    predicted = predict_part(model, replace(part, counterfactuals={}))
    (found,) = certify_gaps(
        predicted, part, metric, budgets, rows=rows, losses=(chosen,), replicates=replicates
    )
    return found


def certify_gaps(
    prediction: Prediction,
    part: Part,
    metric: FairMetric,
    budgets: Sequence[float],
    *,
    rows: int | None = 2000,
    losses: Sequence[Loss] = ("log", "error"),
    replicates: int = 1000,
    tolerance: float = 1e-6,
) -> tuple[GapCertificate, ...]:
    """Certify a model from its predictions on a part, once per loss; see `certify`."""
    chosen = choose_rows(part, rows)
    some = part.take(chosen)
    z = np.asarray(metric.embed(some.X))
    return tuple(
        trace_gap(
            tabulate_loss(prediction, part, loss)[chosen],
            some.y,
            z,
            budgets,
            loss=loss,
            weight=some.weight,
            features=some.X,
            replicates=replicates,
            generator=derive_generator("adversarial gap", part.dataset, part.name),
            rows=chosen,
            tolerance=tolerance,
        )
        for loss in losses
    )


def tabulate_loss(prediction: Prediction, part: Part, loss: Loss) -> np.ndarray:
    """Return every row's loss under every label, float64, shape (n_samples, n_classes)."""
    refuse_unknown([loss], get_args(Loss), "The certificate has no loss")
    classes = max(2, len(part.classes))
    predicted = prediction.score if loss == "log" else prediction.decision
    if classes == 2:
        probability = np.stack([1.0 - predicted, predicted], axis=1)
    elif loss == "log":
        probability = predicted
    else:
        probability = np.eye(classes)[predicted.astype(np.int64)]
    if loss == "error":
        return np.asarray(1.0 - probability)
    return np.asarray(-np.log(np.clip(probability, SMALLEST_PROBABILITY, 1.0)))


def trace_gap(
    losses: np.ndarray,
    label: np.ndarray,
    z: np.ndarray,
    budgets: Sequence[float],
    *,
    loss: Loss = "log",
    weight: np.ndarray | None = None,
    features: np.ndarray | None = None,
    rows: np.ndarray | None = None,
    tolerance: float = 1e-6,
    replicates: int = 1000,
    generator: np.random.Generator | None = None,
) -> GapCertificate:
    """Compute the restricted adversarial gap of embedded rows at every budget.

        Ĝ(ε) = max_Π ⟨R, Π⟩ − Σ_j m_j R_jj
               s.t. Π ≥ 0,  ⟨C, Π⟩ ≤ ε,  Πᵀ1 = m                       (2.8), (3.2)
             = min_{η ≥ 0} ηε + Σ_j m_j max_i (R_ij − η C_ij − R_jj)   (B.14)

    with R_ij the loss of row i under the label of row j, C_ij = ‖z_i − z_j‖² and m = 1/n or the
    normalised weights. The inner maxima do not depend on ε or m: the maps found at some prices η
    serve all budgets and all bootstrap draws, and Ĝ is read off the upper concave hull of their
    (cost, gain), with the tangents there as the upper bound.

    Parameters
    ----------
    losses : float64 array of shape (n, K)
        Loss of every row under every label, of the kind ``loss``.
    label : int64 array of shape (n,)
        Codes 0..K-1.
    z : float64 array of shape (n, k)
        Rows embedded by the fair metric.
    weight : float64 array of shape (n,), optional
        Case weights; rows of weight 0 are left out.
    features : float64 array of shape (n, d), optional
        Further values by which rows are sorted: of rows that tie, a move shows the first.
    rows : int64 array of shape (n,), optional
        The rows' positions in the part; 0..n-1 by default.
    tolerance : float
        Of the values: duality gap as a share of Ĝ(ε).

    Raises
    ------
    ConfigError
        For a budget below 0 or infinite, or without a row of positive weight.
    DataError
        For weights that are negative or not finite.

    Notes
    -----
    The bootstrap resamples the people who are moved, rows with their labels and weights, n at a
    time; their n possible counterparts stay the same. Resampling counterparts, too, would keep 63%
    of them and lower the gap by more than its noise. So the interval covers other people of the
    same population against these counterparts. It does not cover the growth of the gap with more
    counterparts (the first term of Theorem 3.4), nor its variation between samples of them, and is
    too narrow for other tables where few rows have many features and the budget is small. Draws
    are solved to 1e-3.

    A price costs O(n² k) operations in blocks of O(n) memory, some 10 to 30 of them for all
    budgets and draws together; a draw costs O(n) for each price. Memory is O(n · prices) and
    2 bytes for each row and draw.

    References
    ----------
    A. Vargo, F. Zhang, M. Yurochkin, Y. Sun. Individually fair gradient boosting. ICLR 2021,
    (2.5), (2.8), Section 3 with (3.2), (B.14).
    """
    if len(budgets) == 0 or not all(0 <= budget < np.inf for budget in budgets):
        raise ConfigError(
            f"The certificate's budgets are {list(budgets)}.", "Give one or more, each 0 or more."
        )
    weight = unit_weight(weight, len(z))
    values = [np.round(z, 9) + 0.0, label[:, None], losses]
    content = np.column_stack(values if features is None else [*values, features])
    order = np.lexsort([weight, *content.T[::-1]])
    order = order[weight[order] > 0]
    if not order.size:
        raise ConfigError(
            "No row of the certificate has a positive weight.", "Give some rows a weight above 0."
        )
    new = np.append(True, np.any(content[order[1:]] != content[order[:-1]], axis=1))
    weight = weight[order]
    sorted_losses = np.asarray(losses[order], dtype=np.float64)
    maps = PriceMaps(z[order], label[order], sorted_losses, weight)
    one = np.ones((1, order.size), dtype=np.uint16)
    value, upper = maps.settle(one, budgets, tolerance, SAMPLE_PASSES)
    draws = np.empty((0, len(budgets)))
    if replicates:
        random = np.random.default_rng(0) if generator is None else generator
        counts = _draw_counts(order.size, replicates, random)
        draws, _ = maps.settle(counts, budgets, DRAW_TOLERANCE, DRAW_PASSES)
        # The draws' prices may have found a better map for the sample, too.
        value, upper = maps.settle(one, budgets, tolerance, 0)
    gaps = []
    for i, budget in enumerate(budgets):
        middle, bound = float(value[0, i]), float(upper[0, i])
        interval = percentile(middle, draws[:, i])
        gaps.append(Gap(float(budget), middle, bound, *interval, order.size))
    return GapCertificate(
        loss=loss,
        gaps=tuple(gaps),
        rows=order if rows is None else rows[order],
        twin=np.flatnonzero(new)[np.cumsum(new) - 1],
        mass=weight / weight.sum(),
        target=np.stack([maps.name_rows(target) for target in maps.target]),
        gain=np.stack(maps.gain),
        cost=np.stack(maps.cost),
    )


def _draw_counts(n: int, replicates: int, generator: np.random.Generator) -> np.ndarray:
    """Draw n rows with replacement and count them, uint16, shape (replicates, n)."""
    counts = np.empty((replicates, n), dtype=np.uint16)
    for draw in range(replicates):
        counts[draw] = np.bincount(generator.integers(n, size=n), minlength=n)
    return counts
