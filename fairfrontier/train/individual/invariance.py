"""The penalty that SenSeI and CLP share: two versions of a row should have the same logits."""

from __future__ import annotations

from typing import Any

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.train.individual.attack import logit_distance
from fairfrontier.train.neural.network import (
    Network,
    by_models,
    forward,
    loss_slope,
    parameter_gradient,
)

Array = Any


def penalised_gradient(
    network: Network, x: Array, other: Array, target: Array, weight: Array | None, strength: Array
) -> tuple[Network, Array, Array]:
    """Return the gradient of the mean loss plus ρ times the mean logit distance.

        E ℓ(y, h(x)) + ρ E d_Y(h(x), h(x')),   d_Y = (1/K) ‖h(x) − h(x')‖²

    Parameters
    ----------
    network : Network
    x, other : array of shape (n_models, n, d)
        x and x'.
    target : array of shape (n_models, n, n_classes)
        1 in the place of the label y.
    weight : array of shape (n_models, n, 1) or None
        Case weights of both terms.
    strength : array of shape (n_models, 1, 1)
        ρ; with 0 the gradient is that of the mean loss, bit by bit.

    Returns
    -------
    gradient : Network
    loss, regularizer : array of shape (n_models,)
        E ℓ and E d_Y.
    """
    xp = array_namespace(other)

    def step(
        nets: Network, x: Array, target: Array, weight: Array | None, twin: Array, rho: Array
    ) -> tuple[Array, ...]:
        done, moved = forward(nets, x), forward(nets, twin)
        loss, slope = loss_slope(done.logits, target, weight)
        distance = logit_distance(done.logits, moved.logits)
        pull = done.logits - moved.logits
        pull *= rho * (2.0 / (pull.shape[1] * pull.shape[2]))
        if weight is not None:
            pull *= weight
            distance = distance * weight[..., 0]
        here = parameter_gradient(nets, x, done, slope + pull).arrays
        # Apart from each other, so that ρ = 0 changes no rounding.
        there = parameter_gradient(nets, twin, moved, -pull).arrays
        both = [a + b for a, b in zip(here, there, strict=True)]
        return (loss, xp.mean(distance, axis=1), *both)

    loss, regularizer, *gradient = by_models(network, (x, target, weight, other, strength), step)
    return Network.of(gradient), loss, regularizer
