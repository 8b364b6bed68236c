"""The worst similar row: gradient attacks on many nets, along free directions and all features.

    sup_{x'}  g(h(x')) − λ d_X(x, x'),   d_X(x, x') = (x' − x)ᵀ Σ (x' − x)

g is the distance from h(x) (SenSeI) or the loss (SenSR). First only the coefficients of the
metric's free directions are moved, which costs nothing; then all features.

References
----------
M. Yurochkin, Y. Sun. SenSeI: sensitive set invariance for enforcing individual fairness. ICLR
2021, Algorithm 1. M. Yurochkin, A. Bower, Y. Sun. Training individually fair ML models with
sensitive subspace robustness. ICLR 2020, Algorithm 2.

The penalty that SenSeI and CLP share, on logit differences between versions of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from fairfrontier.models.neural.network import (
    Adam,
    Network,
    blocks,
    by_models,
    cross_entropy,
    enter,
    first_gradient,
    forward,
    forward_from,
    loss_slope,
    parameter_gradient,
)
from fairfrontier.runtime.arrays import array_namespace

Array = Any


class Objective(Protocol):
    """What an attack raises, as a function of the logits, (n_models, n, n_classes)."""

    def value(self, logits: Array) -> Array:
        """Return g, shape (n_models, n)."""
        ...

    def slope(self, logits: Array) -> Array:
        """Return ∂g/∂logits."""
        ...

    def take(self, models: slice, rows: slice) -> Objective:
        """Return the objective of a block."""
        ...


@dataclass(frozen=True, eq=False)
class LogitDistance:
    """g = scale · (1/K) ‖logits − base‖², with logits at x and a scale of each model."""

    base: Array  # (n_models, n, n_classes)
    scale: Array  # (n_models, 1, 1)

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
    """g = ℓ(y, h(x')), the softmax cross-entropy."""

    target: Array  # (n_models, n, n_classes), one-hot

    def value(self, logits: Array) -> Array:
        """Return g, shape (n_models, n)."""
        return cross_entropy(logits, self.target)[0]

    def slope(self, logits: Array) -> Array:
        """Return ∂g/∂logits."""
        if logits.shape[2] > 2:
            return cross_entropy(logits, self.target)[1]
        # The same for two classes, without reductions along an axis of length two.
        xp = array_namespace(logits)
        excess = xp.tanh((logits[..., 1] - logits[..., 0]) * 0.5)
        excess += 1.0
        excess *= 0.5
        excess -= self.target[..., 1]
        return xp.stack([-excess, excess], axis=-1)

    def take(self, models: slice, rows: slice) -> Loss:
        """Return the objective of a block."""
        return Loss(self.target[models, rows, :])


class Penalty(Protocol):
    """A penalty cᵀ C c / 2 of coefficients c, (n_models, n, k), with a symmetric C per model."""

    def slope(self, coefficient: Array) -> Array:
        """Return C c."""
        ...

    def take(self, models: slice) -> Penalty:
        """Return the penalty of a range of models."""
        ...


@dataclass(frozen=True, eq=False)
class MatrixPenalty:
    """A penalty with C as a matrix."""

    matrix: Array  # (n_models, k, k)

    def slope(self, coefficient: Array) -> Array:
        """Return C c, in O(n k²) operations per model."""
        return coefficient @ self.matrix

    def take(self, models: slice) -> MatrixPenalty:
        """Return the penalty of a range of models."""
        return MatrixPenalty(self.matrix[models, ...])


@dataclass(frozen=True, eq=False)
class ProjectorPenalty:
    """A penalty with C = price (I − Dᵀ D), where the rows of D are orthonormal or zero."""

    price: Array  # (n_models, 1, 1)
    directions: Array  # (n_models, r, k), D

    def slope(self, coefficient: Array) -> Array:
        """Return C c, in O(n k r) operations per model."""
        xp, directions = array_namespace(coefficient), self.directions
        projected = coefficient - (coefficient @ xp.matrix_transpose(directions)) @ directions
        projected *= self.price
        return projected

    def take(self, models: slice) -> ProjectorPenalty:
        """Return the penalty of a range of models."""
        return ProjectorPenalty(self.price[models, ...], self.directions[models, ...])


def logit_distance(logits: Array, other: Array) -> Array:
    """Return d_Y = (1/K) ‖logits − other‖² of each row, shape (n_models, n)."""
    difference = logits - other
    return array_namespace(logits).mean(difference * difference, axis=-1)


@dataclass(frozen=True, eq=False)
class Ascent:
    """The final coefficients of an attack, with the penalised objective before and after it."""

    coefficient: Array  # (n_models, n, k)
    before: Array  # (n_models, n)
    after: Array  # (n_models, n)

    @property
    def gain(self) -> Array:
        """Rise of the objective, shape (n_models, n)."""
        return self.after - self.before

    def accept(self, *, discard_batch: bool) -> Array:
        """Return the coefficients, 0 in rows or models whose (mean) objective fell."""
        xp, gain = array_namespace(self.after), self.gain
        if discard_batch:
            gain = xp.mean(gain, axis=1, keepdims=True)
        return self.coefficient * xp.astype(gain >= 0, gain.dtype)[..., None]


def ascend(
    network: Network,
    x: Array,
    objective: Objective,
    *,
    start: Array,
    moves: Array | None,
    penalty: Penalty | None,
    steps: int,
    rate: Array,
) -> Ascent:
    """Maximise g(h(x + c M)) − cᵀ C c / 2 over coefficients c of moves M by Adam.

    ``x`` is (n_models, n, d), ``start`` (n_models, n, k), ``moves`` (n_models, k, d) or None for
    the identity, ``rate`` (n_models, 1, 1).

    x W_1 + b_1 is computed once; a step multiplies by M W_1 (k × d_1) instead, which for three
    directions is a fraction of the first layer. Rows do not depend on each other: on NumPy all
    steps are made for a block that stays in cache before the next one is begun.
    """
    xp = array_namespace(x)
    first_layer = network.weight[0]
    entry = first_layer if moves is None else xp.matmul(moves, first_layer)
    results: list[Array] = []
    for models, rows in blocks(x, int(x.shape[1]), network.widest):
        nets = network.take(models)
        parts = _ascend_block(
            nets,
            enter(nets, x[models, rows, :]),
            objective.take(models, rows),
            start[models, rows, :] + 0.0,
            entry[models, ...],
            None if penalty is None else penalty.take(models),
            steps,
            rate[models, ...],
        )
        if parts[1].shape == x.shape[:2]:
            return Ascent(*parts)
        if not results:
            results = [xp.empty((*x.shape[:2], *part.shape[2:]), dtype=x.dtype) for part in parts]
        for result, part in zip(results, parts, strict=True):
            result[models, rows, ...] = part
    return Ascent(*results)


def _ascend_block(
    network: Network,
    first: Array,
    objective: Objective,
    coefficient: Array,
    entry: Array,
    penalty: Penalty | None,
    steps: int,
    rate: Array,
) -> tuple[Array, Array, Array]:
    xp = array_namespace(first)
    back = xp.matrix_transpose(entry) + 0.0
    adam = Adam([coefficient], rate)
    before = objective.value(forward_from(network, first + 0.0).logits)
    for _ in range(steps):
        entered = coefficient @ entry
        entered += first
        passed = forward_from(network, entered)
        slope = first_gradient(network, passed, objective.slope(passed.logits)) @ back
        if penalty is not None:
            slope -= penalty.slope(coefficient)
        coefficient += adam.step([slope])[0]
    entered = coefficient @ entry
    entered += first
    after = objective.value(forward_from(network, entered).logits)
    if penalty is not None:
        after = after - xp.sum(penalty.slope(coefficient) * coefficient, axis=-1) * 0.5
    return coefficient, before, after


@dataclass(frozen=True, eq=False)
class AttackSetting:
    """How rows are attacked; arrays hold an entry per model.

    ``directions`` are the free directions of the metrics, padded with zeros. ``sigma`` is Σ, or
    None where it is I − Dᵀ D with the directions D. With ``discard_batch`` an attack that lowers
    the mean of its objective is discarded for the whole minibatch, else row by row.
    """

    directions: Array  # (n_models, r, d)
    sigma: Array | None  # (n_models, d, d)
    subspace_steps: int
    full_steps: int
    subspace_rate: Array  # (n_models, 1, 1)
    discard_batch: bool

    def penalty(self, price: Array) -> Penalty:
        """Return the penalty with C = price Σ, for a price of shape (n_models, 1, 1)."""
        if self.sigma is None:
            return ProjectorPenalty(price, self.directions)
        return MatrixPenalty(price * self.sigma)


@dataclass(frozen=True, eq=False)
class AttackedRows:
    """Attacked rows x', their costs d_X(x, x'), and how the mean objectives rose.

    Gains are those before anything was discarded; ``failed`` says where the full attack lowered
    the mean objective.
    """

    x: Array  # (n_models, n, d)
    cost: Array  # (n_models, n)
    subspace_gain: Array  # (n_models,)
    full_gain: Array  # (n_models,)
    failed: Array  # (n_models,), bool


def attack(
    network: Network,
    x: Array,
    objective: Objective,
    setting: AttackSetting,
    *,
    noise: Array,
    dual: Array,
    full_rate: Array,
) -> AttackedRows:
    """Attack rows x, (n_models, n, d), along free directions, then in all features at price λ.

    ``noise`` holds the starting coefficients of the r directions, (n_models, n, r), since the
    gradient of a distance from h(x) is 0 at x; without directions it is the start of the full
    attack, (n_models, n, d). ``dual`` is λ and ``full_rate`` Adam's rate of the full attack, both
    (n_models, 1, 1). Where both parts fail, the result is x itself at cost 0.
    """
    xp = array_namespace(x)
    zero = xp.zeros_like(x[..., 0])
    subspace_gain = zero[:, 0]
    free = setting.directions.shape[1] > 0
    if free and setting.subspace_steps:
        ascent = ascend(
            network,
            x,
            objective,
            start=noise,
            moves=setting.directions,
            penalty=None,
            steps=setting.subspace_steps,
            rate=setting.subspace_rate,
        )
        subspace_gain = xp.mean(ascent.gain, axis=1)
        accepted = ascent.accept(discard_batch=setting.discard_batch)
        x = x + xp.matmul(accepted, setting.directions)
    if not setting.full_steps:
        return AttackedRows(x, zero, subspace_gain, zero[:, 0], zero[:, 0] > 0)
    ascent = ascend(
        network,
        x,
        objective,
        start=xp.zeros_like(x) if free else noise,
        moves=None,
        penalty=setting.penalty(2.0 * dual),
        steps=setting.full_steps,
        rate=full_rate,
    )
    move = ascent.accept(discard_batch=setting.discard_batch)
    cost = xp.sum(setting.penalty(xp.ones_like(dual)).slope(move) * move, axis=-1)
    full_gain = xp.mean(ascent.gain, axis=1)
    return AttackedRows(x + move, cost, subspace_gain, full_gain, full_gain < 0)


def penalised_gradient(
    network: Network, x: Array, other: Array, target: Array, weight: Array | None, strength: Array
) -> tuple[Network, Array, Array]:
    """Return the gradient of E ℓ(y, h(x)) + ρ E d_Y(h(x), h(x')), then E ℓ and E d_Y of each model.

    d_Y = (1/K) ‖h(x) − h(x')‖². ``x`` and ``other`` (x') are (n_models, n, d), ``target`` is
    one-hot, (n_models, n, n_classes), and ``strength`` is ρ, (n_models, 1, 1); case weights,
    (n_models, n, 1), apply to both terms. With ρ = 0 the gradient is that of the mean loss, to the
    last bit.
    """
    xp = array_namespace(other)

    def step(
        nets: Network, x: Array, target: Array, weight: Array | None, variant: Array, rho: Array
    ) -> tuple[Array, ...]:
        passed, moved = forward(nets, x), forward(nets, variant)
        loss, slope = loss_slope(passed.logits, target, weight)
        distance = logit_distance(passed.logits, moved.logits)
        difference = passed.logits - moved.logits
        difference *= rho * (2.0 / (difference.shape[1] * difference.shape[2]))
        if weight is not None:
            difference *= weight
            distance = distance * weight[..., 0]
        own = parameter_gradient(nets, x, passed, slope + difference).arrays
        # Added separately, so that ρ = 0 changes no rounding.
        shifted = parameter_gradient(nets, variant, moved, -difference).arrays
        both = [a + b for a, b in zip(own, shifted, strict=True)]
        return (loss, xp.mean(distance, axis=1), *both)

    loss, regularizer, *gradient = by_models(network, (x, target, weight, other, strength), step)
    return Network.of(gradient), loss, regularizer
