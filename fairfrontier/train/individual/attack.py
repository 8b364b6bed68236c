"""The worst similar row: gradient attacks on many nets, along free directions and all features.

    sup_{x'}  g(h(x')) − λ d_X(x, x'),   d_X(x, x') = (x' − x)ᵀ Σ (x' − x)

g is the distance from h(x) (SenSeI) or the loss (SenSR). First the coefficients of the metric's
free directions are moved, which costs nothing; then the whole row.

References
----------
M. Yurochkin, Y. Sun. SenSeI: sensitive set invariance for enforcing individual fairness. ICLR
2021, Algorithm 1. M. Yurochkin, A. Bower, Y. Sun. Training individually fair ML models with
sensitive subspace robustness. ICLR 2020, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.train.neural.network import (
    Network,
    blocks,
    cross_entropy,
    enter,
    first_gradient,
    forward_from,
)
from fairfrontier.train.neural.optimiser import Adam

Array = Any


class Objective(Protocol):
    """What an attack raises, as a function of the logits of each row."""

    def value(self, logits: Array) -> Array:
        """Return g, shape (n_models, n)."""
        ...

    def slope(self, logits: Array) -> Array:
        """Return ∂g/∂logits, shape (n_models, n, n_classes)."""
        ...

    def take(self, models: slice, rows: slice) -> Objective:
        """Return the objective of a block."""
        ...


@dataclass(frozen=True, eq=False)
class LogitDistance:
    """g = scale · d_Y,   d_Y = (1/K) ‖logits − base‖².

    Attributes
    ----------
    base : array of shape (n_models, n, n_classes)
        Logits at x.
    scale : array of shape (n_models, 1, 1)
    """

    base: Array
    scale: Array

    @cached_property
    def factor(self) -> Array:
        """2 scale / K."""
        return self.scale * (2.0 / self.base.shape[2])

    def value(self, logits: Array) -> Array:
        """Return g, shape (n_models, n)."""
        return self.scale[..., 0] * logit_distance(logits, self.base)

    def slope(self, logits: Array) -> Array:
        """Return ∂g/∂logits."""
        difference = logits - self.base
        difference *= self.factor
        return difference

    def take(self, models: slice, rows: slice) -> LogitDistance:
        """Return the objective of a block."""
        return LogitDistance(self.base[models, rows, :], self.scale[models, ...])


@dataclass(frozen=True, eq=False)
class Loss:
    """g = ℓ(y, h(x')), the softmax cross-entropy.

    Attributes
    ----------
    target : array of shape (n_models, n, n_classes)
        1 in the place of the label.
    """

    target: Array

    def value(self, logits: Array) -> Array:
        """Return g, shape (n_models, n)."""
        return cross_entropy(logits, self.target)[0]

    def slope(self, logits: Array) -> Array:
        """Return ∂g/∂logits."""
        if logits.shape[2] > 2:
            return cross_entropy(logits, self.target)[1]
        # Of two classes the same, without reductions along an axis of length two.
        xp = array_namespace(logits)
        excess = xp.tanh((logits[..., 1] - logits[..., 0]) * 0.5)
        excess += 1.0
        excess *= 0.5
        excess -= self.target[..., 1]
        return xp.stack([-excess, excess], axis=-1)

    def take(self, models: slice, rows: slice) -> Loss:
        """Return the objective of a block."""
        return Loss(self.target[models, rows, :])


class Charge(Protocol):
    """What coefficients c are charged, cᵀ C c / 2 with a symmetric C for each model."""

    def pull(self, coefficient: Array) -> Array:
        """Return C c, the slope of the charge, shape (n_models, n, k)."""
        ...

    def take(self, models: slice) -> Charge:
        """Return the charge of a range of models."""
        ...


@dataclass(frozen=True, eq=False)
class MatrixCharge:
    """C as a matrix.

    Attributes
    ----------
    matrix : array of shape (n_models, k, k)
    """

    matrix: Array

    def pull(self, coefficient: Array) -> Array:
        """Return C c, in O(n k²) operations a model."""
        return coefficient @ self.matrix

    def take(self, models: slice) -> MatrixCharge:
        """Return the charge of a range of models."""
        return MatrixCharge(self.matrix[models, ...])


@dataclass(frozen=True, eq=False)
class ProjectorCharge:
    """C = price (I − Dᵀ D): what is left of the space without the rows of an orthonormal D.

    Attributes
    ----------
    price : array of shape (n_models, 1, 1)
    directions : array of shape (n_models, r, k)
        D; rows of zeros where a model has fewer than others.
    """

    price: Array
    directions: Array

    def pull(self, coefficient: Array) -> Array:
        """Return C c, in O(n k r) operations a model."""
        xp = array_namespace(coefficient)
        left = coefficient - (coefficient @ xp.matrix_transpose(self.directions)) @ self.directions
        left *= self.price
        return left

    def take(self, models: slice) -> ProjectorCharge:
        """Return the charge of a range of models."""
        return ProjectorCharge(self.price[models, ...], self.directions[models, ...])


def logit_distance(logits: Array, other: Array) -> Array:
    """Return d_Y = (1/K) ‖logits − other‖² of each row, shape (n_models, n)."""
    difference = logits - other
    return array_namespace(logits).mean(difference * difference, axis=-1)


@dataclass(frozen=True, eq=False)
class Climb:
    """Where the coefficients of an attack ended.

    Attributes
    ----------
    coefficient : array of shape (n_models, n, k)
    before, after : array of shape (n_models, n)
        Objective, its charge included, at coefficients 0 and at these.
    charge : array of shape (n_models, n)
        cᵀ C c / 2 at these coefficients.
    """

    coefficient: Array
    before: Array
    after: Array
    charge: Array


def climb(
    network: Network,
    x: Array,
    objective: Objective,
    *,
    start: Array,
    moves: Array,
    charge: Charge | None,
    steps: int,
    rate: Array,
) -> Climb:
    """Raise the objective over coefficients c of moves M by Adam.

        max_c  g(h(x + c M)) − cᵀ C c / 2

    Parameters
    ----------
    network : Network
    x : array of shape (n_models, n, d)
    objective : Objective
        g.
    start : array of shape (n_models, n, k)
        First coefficients.
    moves : array of shape (n_models, k, d) or None
        M; the identity when None (then k = d).
    charge : Charge, optional
        C; no charge when None.
    steps : int
    rate : array of shape (n_models, 1, 1)
        Of Adam.

    Returns
    -------
    Climb

    Notes
    -----
    x W_1 + b_1 is computed once; a step multiplies by M W_1 (k × d_1) instead, which for three
    directions is a fraction of the first layer. Rows do not depend on each other: on NumPy all
    steps are made for a block that stays in cache before the next one is begun.
    """
    xp = array_namespace(x)
    first_layer = network.weight[0]
    entry = first_layer if moves is None else xp.matmul(moves, first_layer)
    found: list[Array] = []
    for models, rows in blocks(x, int(x.shape[1]), network.widest):
        nets = network.take(models)
        parts = _climb_block(
            nets,
            enter(nets, x[models, rows, :]),
            objective.take(models, rows),
            start[models, rows, :] + 0.0,
            entry[models, ...],
            None if charge is None else charge.take(models),
            steps,
            rate[models, ...],
        )
        if parts[1].shape == x.shape[:2]:
            return Climb(*parts)
        if not found:
            found = [xp.empty((*x.shape[:2], *each.shape[2:]), dtype=x.dtype) for each in parts]
        for whole, part in zip(found, parts, strict=True):
            whole[models, rows, ...] = part
    return Climb(*found)


def _climb_block(
    network: Network,
    first: Array,
    objective: Objective,
    coefficient: Array,
    entry: Array,
    charge: Charge | None,
    steps: int,
    rate: Array,
) -> tuple[Array, Array, Array, Array]:
    xp = array_namespace(first)
    back = xp.matrix_transpose(entry) + 0.0
    adam = Adam([coefficient], rate)
    before = objective.value(forward_from(network, first + 0.0).logits)
    for _ in range(steps):
        entered = coefficient @ entry
        entered += first
        done = forward_from(network, entered)
        slope = first_gradient(network, done, objective.slope(done.logits)) @ back
        if charge is not None:
            slope -= charge.pull(coefficient)
        coefficient += adam.step([slope])[0]
    entered = coefficient @ entry
    entered += first
    after = objective.value(forward_from(network, entered).logits)
    paid = xp.zeros_like(after)
    if charge is not None:
        paid = xp.sum(charge.pull(coefficient) * coefficient, axis=-1) * 0.5
    return coefficient, before, after - paid, paid


@dataclass(frozen=True, eq=False)
class Terrain:
    """What the attack may do, for each model.

    Attributes
    ----------
    directions : array of shape (n_models, r, d)
        Free directions of the metric; zeros where a model has fewer than others.
    sigma : array of shape (n_models, d, d) or None
        Σ; None where it is I − Dᵀ D with the directions D.
    subspace_steps, full_steps : int
    subspace_rate : array of shape (n_models, 1, 1)
    whole : bool
        An attack that lowers its objective is discarded for the whole minibatch (in the mean)
        instead of row by row.
    """

    directions: Array
    sigma: Array | None
    subspace_steps: int
    full_steps: int
    subspace_rate: Array
    whole: bool

    def charge(self, price: Array) -> Charge:
        """Return C = price Σ, for a price of shape (n_models, 1, 1)."""
        if self.sigma is None:
            return ProjectorCharge(price, self.directions)
        return MatrixCharge(price * self.sigma)


@dataclass(frozen=True, eq=False)
class Attacked:
    """The rows that an attack found.

    Attributes
    ----------
    x : array of shape (n_models, n, d)
    cost : array of shape (n_models, n)
        d_X(x, x'), in squared units of the metric.
    subspace_gain, full_gain : array of shape (n_models,)
        Mean rise of the objective by each part of the attack, before anything was discarded.
    failed : array of bool, shape (n_models,)
        Whether the full attack lowered the mean objective.
    """

    x: Array
    cost: Array
    subspace_gain: Array
    full_gain: Array
    failed: Array


def attack(
    network: Network,
    x: Array,
    objective: Objective,
    terrain: Terrain,
    *,
    noise: Array,
    dual: Array,
    full_rate: Array,
) -> Attacked:
    """Attack rows: along the free directions first, then in all features at the price λ.

    Parameters
    ----------
    network : Network
    x : array of shape (n_models, n, d)
    objective : Objective
    terrain : Terrain
    noise : array of shape (n_models, n, r), or (n_models, n, d) where r = 0
        First coefficients of the directions; the gradient of a distance from h(x) is 0 at x.
        Without free directions, where the full attack starts.
    dual : array of shape (n_models, 1, 1)
        λ.
    full_rate : array of shape (n_models, 1, 1)
        Adam's rate of the full attack.

    Returns
    -------
    Attacked
        Where both parts fail, x itself at cost 0.
    """
    xp = array_namespace(x)
    zero = xp.zeros_like(x[..., 0])
    subspace_gain = zero[:, 0]
    free = terrain.directions.shape[1] > 0
    if free and terrain.subspace_steps:
        found = climb(
            network,
            x,
            objective,
            start=noise,
            moves=terrain.directions,
            charge=None,
            steps=terrain.subspace_steps,
            rate=terrain.subspace_rate,
        )
        subspace_gain = xp.mean(found.after - found.before, axis=1)
        kept = _kept(found, whole=terrain.whole)
        x = x + xp.matmul(found.coefficient * kept[..., None], terrain.directions)
    if not terrain.full_steps:
        return Attacked(x, zero, subspace_gain, zero[:, 0], zero[:, 0] > 0)
    found = climb(
        network,
        x,
        objective,
        start=xp.zeros_like(x) if free else noise,
        moves=None,
        charge=terrain.charge(2.0 * dual),
        steps=terrain.full_steps,
        rate=full_rate,
    )
    kept = _kept(found, whole=terrain.whole)
    move = found.coefficient * kept[..., None]
    cost = xp.sum(terrain.charge(xp.ones_like(dual)).pull(move) * move, axis=-1)
    full_gain = xp.mean(found.after - found.before, axis=1)
    return Attacked(x + move, cost, subspace_gain, full_gain, full_gain < 0)


def _kept(found: Climb, *, whole: bool) -> Array:
    """Return 1 where an attack counts and 0 where it is discarded, (n_models, n) or (·, 1)."""
    xp = array_namespace(found.after)
    gain = found.after - found.before
    if whole:
        gain = xp.mean(gain, axis=1, keepdims=True)
    return xp.astype(gain >= 0, gain.dtype)
