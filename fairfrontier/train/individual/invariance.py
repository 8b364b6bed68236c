"""The penalty that SenSeI and CLP share, on logit differences between versions of a row."""

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
