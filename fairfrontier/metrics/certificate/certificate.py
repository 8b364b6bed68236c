"""The certificate of distributional individual fairness, exact over data rows, for any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fairfrontier.models.base import unit_weight
from fairfrontier.models.individual.budro.geometry import snap_coordinates
from fairfrontier.models.individual.budro.search import Piece, minimise_dual
from fairfrontier.models.prediction import Prediction
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.errors import ConfigError, DataError
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
        For weights that are negative or not finite, or logits or rows that are not finite.

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
    for name, values in (("logits", outputs), ("embedded rows", points)):
        if not np.isfinite(values).all():
            raise DataError(
                f"The {name} of the certificate are not all finite.",
                "Correct or drop the rows whose features or scores are missing or infinite.",
            )
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
