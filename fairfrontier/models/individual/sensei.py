"""SenSeI: nets whose logits are invariant to the worst similar row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fairfrontier.models.individual.adversary import Adversary, Robust
from fairfrontier.models.individual.attack import LogitDistance, penalised_gradient
from fairfrontier.models.neural.estimator import Batch, Rule, Slope, Tables
from fairfrontier.models.neural.network import Network, by_models, forward
from fairfrontier.models.registry import method
from fairfrontier.runtime.arrays import to_numpy

Array = Any


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
