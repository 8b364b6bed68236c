"""SenSeI: nets whose answer stays the same on the worst similar rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.train.individual.adversary import Adversary, Robust
from fairfrontier.train.individual.attack import LogitDistance
from fairfrontier.train.individual.invariance import penalised_gradient
from fairfrontier.train.neural.estimator import Batch, Progress, Rule, Slope, Tables
from fairfrontier.train.neural.network import Network, by_models, forward
from fairfrontier.train.registry import method

Array = Any


@method("sensei")
class SenSeI(Robust):
    """Sensitive set invariance: a net that is charged for telling similar rows apart.

    min_θ  E ℓ(Y, h_θ(X)) + ρ R(h_θ)
    R(h) = sup { E_Π d_Y(h(X), h(X')) : E_Π d_X(X, X') ≤ ε }
         = inf_{λ≥0}  λε + E sup_{x'} d_Y(h(X), h(x')) − λ d_X(X, x')

    with d_Y = (1/K) ‖logits − logits'‖² and Π a coupling of the data with any other rows.

    Parameters
    ----------
    strength : float
        ρ ≥ 0; with 0 the net is that of `Net`.
    budget : float
        ε ≥ 0: mean fair distance that rows may be moved, in squared units of the metric.
    variant : {"paper", "authors"}
        ``paper``: the attack raises d_Y − λ d_X and is discarded row by row where it lowers it;
        λ makes a projected gradient step. ``authors``, as their code: it raises ρ d_Y − λ d_X
        and is discarded for the whole minibatch, which is skipped where the full attack failed;
        λ's step has a ratio factor instead of ρ and is cut.
    hidden, learning_rate, batch_size, steps, replacement, dtype, backend, record_every
        As in `Net`.
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
        As in `NeuralNetwork`; the history adds ``regularizer`` (mean d_Y), ``dual`` (λ),
        ``cost`` (mean d_X), ``subspace_gain`` and ``full_gain``.

    Notes
    -----
    A step costs ``subspace_steps`` passes through all but the first layer and ``full_steps``
    through the whole net. A gradient attack finds a local worst case: ``regularizer`` is a lower
    bound of R on its minibatch.

    References
    ----------
    M. Yurochkin, Y. Sun. SenSeI: sensitive set invariance for enforcing individual fairness.
    ICLR 2021, (2.6)-(2.8) and Algorithm 1.
    """

    paper: ClassVar[str] = "Yurochkin, Sun, SenSeI, ICLR 2021"
    varies: ClassVar[frozenset[str]] = Robust.varies | {"strength"}
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
        strength: float = 5.0,
        budget: float = 0.01,
        variant: Literal["paper", "authors"] = "paper",
        hidden: int | Sequence[int] = 100,
        learning_rate: float = 1e-3,
        batch_size: int = 1000,
        steps: int = 1000,
        replacement: bool = True,
        subspace_steps: int = 50,
        subspace_rate: float = 10.0,
        full_steps: int = 50,
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
        self.strength = strength
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

    def check(self) -> None:
        """Raise ConfigError for parameters that cannot be."""
        super().check()
        self.require("strength", 0 <= self.strength < np.inf, "a number that is 0 or more")

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
        strength = np.asarray([float(each.strength) for each in models])
        # Whether ρ multiplies d_Y inside the attack is where paper and code differ.
        scale = strength if models[0].variant == "authors" else np.ones(len(models))
        return _WorstDistance(
            Adversary(models, data, held, strength),
            held.stack(list(strength)),
            held.stack(list(scale)),
        )


class _WorstDistance:
    """The gradient of the mean loss plus ρ times the logit distance to the attacked rows."""

    def __init__(self, adversary: Adversary, strength: Array, scale: Array) -> None:
        self._adversary, self._strength, self._scale = adversary, strength, scale
        self.warn = adversary.warn

    def __call__(self, network: Network, batch: Batch) -> Slope:
        (base,) = by_models(network, (batch.x,), lambda nets, x: (forward(nets, x).logits,))
        found = self._adversary.find(network, batch, LogitDistance(base, self._scale))
        facts, active = self._adversary.update(found)
        gradient, loss, distance = penalised_gradient(
            network, batch.x, found.x, batch.target, batch.weight, self._strength
        )
        history = {"loss": to_numpy(loss), "regularizer": to_numpy(distance), **facts}
        return Slope(gradient, history, active)
