"""SenSeI: nets whose logits are invariant to the worst similar row.

The penalty that SenSeI and CLP share, on logit differences between versions of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fairfrontier.runtime.arrays import array_namespace, to_numpy
from fairfrontier.train.individual.adversary import Adversary, LogitDistance, Robust, logit_distance
from fairfrontier.train.neural.estimator import Batch, Rule, Slope, Tables
from fairfrontier.train.neural.network import (
    Network,
    by_models,
    forward,
    loss_slope,
    parameter_gradient,
)
from fairfrontier.train.registry import method

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


@method("sensei")
@dataclass(kw_only=True, eq=False, repr=False)
class SenSeI(Robust):
    """Sensitive set invariance: a net penalised for differences between similar rows.

    min_θ  E ℓ(Y, h_θ(X)) + ρ R(h_θ)
    R(h) = sup { E_Π d_Y(h(X), h(X')) : E_Π d_X(X, X') ≤ ε }
         = inf_{λ≥0}  λε + E sup_{x'} d_Y(h(X), h(x')) − λ d_X(X, x')

    with d_Y = (1/K) ‖logits − logits'‖² and Π a coupling of the data with any other rows.

    Parameters
    ----------
    strength : float
        ρ ≥ 0; with 0 the net is that of `Net`.
    variant : {"paper", "authors"}
        As in `SenSR`; besides, ``paper`` attacks by raising d_Y − λ d_X and has ρ in the step of
        λ, ``authors`` raises ρ d_Y − λ d_X.
    hidden, learning_rate, batch_size, steps, replacement, balanced, dtype, backend, record_every
        As in `Net`.
    budget, budget_share, early_stopping, subspace_steps, subspace_rate, full_steps, full_rate
        As in `SenSR`.
    start_noise, random_state, dual_start, dual_learning_rate, dual_floor, dual_cap, failure_decay
        As in `SenSR`.

    Attributes
    ----------
    report_
        As in `SenSR`.
    network_, history_
        As in `NeuralNetwork`; the history adds ``regularizer`` (mean d_Y), ``dual`` (λ),
        ``cost`` (mean d_X), ``subspace_gain`` and ``full_gain``.

    Notes
    -----
    A step costs as much as one of `SenSR`, whatever n. A gradient attack finds a local worst case:
    ``regularizer`` is a lower bound of R on its minibatch.

    References
    ----------
    M. Yurochkin, Y. Sun. SenSeI: sensitive set invariance for enforcing individual fairness.
    ICLR 2021, (2.6)-(2.8) and Algorithm 1.
    """

    paper: ClassVar[str] = "Yurochkin, Sun, SenSeI, ICLR 2021"
    varies: ClassVar[frozenset[str]] = Robust.varies | {"strength"}

    strength: float = 5.0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        self.require("strength", 0 <= self.strength < np.inf, "a number that is 0 or more")

    @classmethod
    def _rule(
        cls, models: Sequence[Self], data: Sequence[Mapping[str, Any]], tables: Tables
    ) -> Rule:
        strength = np.asarray([float(model.strength) for model in models])
        # Whether ρ multiplies d_Y inside the attack is where paper and code differ.
        scale = strength if models[0].variant == "authors" else np.ones(len(models))
        return _WorstDistance(
            Adversary(models, data, tables, strength),
            tables.stack(list(strength)),
            tables.stack(list(scale)),
        )


class _WorstDistance:
    """The gradient of the mean loss plus ρ times the logit distance to the attacked rows."""

    def __init__(self, adversary: Adversary, strength: Array, scale: Array) -> None:
        self._adversary, self._strength, self._scale = adversary, strength, scale
        self.warn = adversary.warn

    def __call__(self, network: Network, batch: Batch) -> Slope:
        (base,) = by_models(network, (batch.x,), lambda nets, x: (forward(nets, x).logits,))
        attacked = self._adversary.attack(network, batch, LogitDistance(base, self._scale))
        facts, active = self._adversary.update(attacked)
        gradient, loss, distance = penalised_gradient(
            network, batch.x, attacked.x, batch.target, batch.weight, self._strength
        )
        history = {"loss": to_numpy(loss), "regularizer": to_numpy(distance), **facts}
        return Slope(gradient, history, active)
