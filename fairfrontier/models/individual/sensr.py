"""SenSR: nets trained on the worst similar rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fairfrontier.models.individual.adversary import Adversary, Robust
from fairfrontier.models.individual.attack import Loss
from fairfrontier.models.neural.estimator import Batch, Rule, Slope, Tables
from fairfrontier.models.neural.network import (
    Network,
    by_models,
    forward,
    loss_slope,
    parameter_gradient,
)
from fairfrontier.models.registry import method
from fairfrontier.runtime.arrays import to_numpy

Array = Any


@method("sensr")
@dataclass(kw_only=True, eq=False, repr=False)
class SenSR(Robust):
    """Sensitive subspace robustness: a net trained on the worst similar row.

    min_θ  sup { E_P ℓ(Y, h_θ(X)) : W(P, P_n) ≤ ε }
         = min_θ inf_{λ≥0}  λε + E sup_{x'} ℓ(Y, h_θ(x')) − λ d_X(X, x')

    Parameters
    ----------
    budget : float or None
        ε ≥ 0: mean fair distance that rows may be moved, in squared units of the metric; None for
        a share of how far apart rows are. Moving along free directions costs nothing, so 0 is not
        plain training.
    budget_share : float
        Without a ``budget``, as in a study with an objective, ε over the mean fair distance
        E d(X, X') of two training rows drawn at random.
    variant : {"paper", "authors"}
        ``paper``: attacks that lower their objective are discarded row by row, and λ makes a
        projected gradient step. ``authors``, as in their code: they are discarded for the whole
        minibatch, which is skipped if the full attack failed; the step of λ has a ratio factor
        and is clipped.
    early_stopping : int or None
        Where ``fit`` is given validation rows, entries of the history without a lower log loss on
        them after which training ends; the net of the lowest is kept.
    hidden, learning_rate, batch_size, steps, replacement, balanced, dtype, backend, record_every
        As in `Net`; SenSR draws its minibatches without replacement.
    subspace_steps, subspace_rate : int, float or None
        Steps and rate of Adam on the coefficients of the free directions; by default the steps
        together cross two standard deviations of the rows along the directions.
    full_steps, full_rate : int, float or None
        Steps and rate of Adam on all features; the default rate is a tenth of the budget.
    start_noise : float
        Coefficients of the directions start at U(−start_noise, start_noise).
    dual_start, dual_learning_rate : float
        Initial λ; η of its step (``paper``).
    dual_floor, dual_cap : float
        Bounds to which λ is clipped (``authors``).
    failure_decay : float
        Factor on the rate of the full attack after it failed (``authors``).
    random_state : int
        Seed of the weights, the minibatches and the noise.

    Attributes
    ----------
    report_ : dict of str to float
        ``budget`` and ``budget_share``, whichever was given.
    network_, history_
        As in `NeuralNetwork`; the history adds ``dual`` (λ), ``cost`` (mean d_X),
        ``subspace_gain`` and ``full_gain``. ``loss`` is that of the attacked rows.

    Notes
    -----
    A step costs ``subspace_steps`` passes through all but the first layer and ``full_steps``
    through the whole net, of a minibatch, whatever n. A gradient attack finds a local worst case:
    the loss that is minimised is a lower bound of the supremum.

    References
    ----------
    M. Yurochkin, A. Bower, Y. Sun. Training individually fair ML models with sensitive subspace
    robustness. ICLR 2020, (2.5) and Algorithm 2.
    """

    paper: ClassVar[str] = "Yurochkin, Bower, Sun, Sensitive subspace robustness, ICLR 2020"

    budget: float | None = 0.001
    budget_share: float = 1e-4
    replacement: bool = False

    @classmethod
    def _rule(
        cls, models: Sequence[Self], data: Sequence[Mapping[str, Any]], tables: Tables
    ) -> Rule:
        return _WorstLoss(Adversary(models, data, tables, np.ones(len(models))))


class _WorstLoss:
    """The gradient of the mean loss on the attacked rows."""

    def __init__(self, adversary: Adversary) -> None:
        self._adversary = adversary
        self.warn = adversary.warn

    def __call__(self, network: Network, batch: Batch) -> Slope:
        attacked = self._adversary.attack(network, batch, Loss(batch.target))
        facts, active = self._adversary.update(attacked)

        def step(nets: Network, x: Array, target: Array, weight: Array | None) -> tuple[Array, ...]:
            passed = forward(nets, x)
            loss, slope = loss_slope(passed.logits, target, weight)
            return (loss, *parameter_gradient(nets, x, passed, slope).arrays)

        loss, *gradient = by_models(network, (attacked.x, batch.target, batch.weight), step)
        return Slope(Network.of(gradient), {"loss": to_numpy(loss), **facts}, active)
