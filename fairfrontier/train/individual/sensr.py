"""SenSR: nets trained on the worst similar rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.train.individual.adversary import Adversary, Robust
from fairfrontier.train.individual.attack import Loss
from fairfrontier.train.neural.estimator import Batch, Progress, Rule, Slope, Tables
from fairfrontier.train.neural.network import (
    Network,
    by_models,
    forward,
    loss_slope,
    parameter_gradient,
)
from fairfrontier.train.registry import method

Array = Any


@method("sensr")
class SenSR(Robust):
    """Sensitive subspace robustness: a net that does well on the worst similar row.

    min_θ  sup { E_P ℓ(Y, h_θ(X)) : W(P, P_n) ≤ ε }
         = min_θ inf_{λ≥0}  λε + E sup_{x'} ℓ(Y, h_θ(x')) − λ d_X(X, x')

    Parameters
    ----------
    budget : float
        ε ≥ 0: mean fair distance that rows may be moved, in squared units of the metric.
        Movement along free directions costs nothing, so 0 does not mean plain training.
    variant : {"paper", "authors"}
        ``paper``: an attack that lowers its objective is discarded row by row, and λ makes a
        projected gradient step. ``authors``, as their code: for the whole minibatch, which is
        then skipped where the full attack failed, and λ's step has a ratio factor and is cut.
    hidden, learning_rate, batch_size, steps, replacement, dtype, backend, record_every
        As in `Net`; SenSR draws its minibatches without replacement.
    subspace_steps, subspace_rate : int, float
        Steps and rate of Adam on the coefficients of the free directions.
    full_steps, full_rate : int, float or None
        Steps and rate of Adam in all features; a tenth of the budget when None.
    start_noise : float
        Coefficients of the directions start at U(−start_noise, start_noise).
    dual_start, dual_learning_rate : float
        λ at first; η of its step (``paper``).
    dual_floor, dual_cap : float
        Where λ is cut (``authors``).
    failure_decay : float
        Factor on the full attack's rate after it failed (``authors``).
    random_state : int
        Seed of the weights, the minibatches and the noise.

    Attributes
    ----------
    network_, history_
        As in `NeuralNetwork`; the history adds ``dual`` (λ), ``cost`` (mean d_X),
        ``subspace_gain`` and ``full_gain``. ``loss`` is that of the attacked rows.

    Notes
    -----
    A step costs ``subspace_steps`` passes through all but the first layer and ``full_steps``
    through the whole net. A gradient attack finds a local worst case: the loss that is minimised
    is a lower bound of the supremum.

    References
    ----------
    M. Yurochkin, A. Bower, Y. Sun. Training individually fair ML models with sensitive subspace
    robustness. ICLR 2020, (2.5) and Algorithm 2.
    """

    paper: ClassVar[str] = "Yurochkin, Bower, Sun, Sensitive subspace robustness, ICLR 2020"
    example: ClassVar[Mapping[str, Any]] = {
        "hidden": 8,
        "learning_rate": 0.01,
        "batch_size": 20,
        "steps": 10,
        "subspace_steps": 3,
        "subspace_rate": 1.0,
        "full_steps": 3,
        "full_rate": 0.01,
    }

    def __init__(
        self,
        *,
        budget: float = 0.001,
        variant: Literal["paper", "authors"] = "paper",
        hidden: int | Sequence[int] = 100,
        learning_rate: float = 1e-3,
        batch_size: int = 1000,
        steps: int = 1000,
        replacement: bool = False,
        subspace_steps: int = 50,
        subspace_rate: float = 10.0,
        full_steps: int = 40,
        full_rate: float | None = None,
        start_noise: float = 0.1,
        dual_start: float = 2.0,
        dual_learning_rate: float = 1.0,
        dual_floor: float = 1e-5,
        dual_cap: float = 10.0,
        failure_decay: float = 0.999,
        dtype: Literal["float32", "float64"] = "float32",
        backend: Literal["auto", "numpy", "cupy"] = "auto",
        record_every: int = 100,
        random_state: int = 0,
    ) -> None:
        self.budget = budget
        self.variant = variant
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.steps = steps
        self.replacement = replacement
        self.subspace_steps = subspace_steps
        self.subspace_rate = subspace_rate
        self.full_steps = full_steps
        self.full_rate = full_rate
        self.start_noise = start_noise
        self.dual_start = dual_start
        self.dual_learning_rate = dual_learning_rate
        self.dual_floor = dual_floor
        self.dual_cap = dual_cap
        self.failure_decay = failure_decay
        self.dtype = dtype
        self.backend = backend
        self.record_every = record_every
        self.random_state = random_state

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        metric: FairMetric,
        sample_weight: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y under a fair metric."""
        data = {"X": X, "y": y, "metric": metric, "sample_weight": sample_weight}
        return self._fit(data, progress)

    @classmethod
    def _rule(cls, models: Sequence[Self], data: Sequence[Mapping[str, Any]], held: Tables) -> Rule:
        return _WorstLoss(Adversary(models, data, held, np.ones(len(models))))


class _WorstLoss:
    """The gradient of the mean loss on the attacked rows."""

    def __init__(self, adversary: Adversary) -> None:
        self._adversary = adversary
        self.warn = adversary.warn

    def __call__(self, network: Network, batch: Batch) -> Slope:
        found = self._adversary.find(network, batch, Loss(batch.target))
        facts, active = self._adversary.update(found)

        def step(nets: Network, x: Array, target: Array, weight: Array | None) -> tuple[Array, ...]:
            done = forward(nets, x)
            loss, slope = loss_slope(done.logits, target, weight)
            return (loss, *parameter_gradient(nets, x, done, slope).arrays)

        loss, *gradient = by_models(network, (found.x, batch.target, batch.weight), step)
        return Slope(Network.of(gradient), {"loss": to_numpy(loss), **facts}, active)
