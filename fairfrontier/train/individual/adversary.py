"""The adversary of a training: attacks each minibatch, and prices fair distance by λ."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.train.individual.attack import Attacked, Objective, Terrain, attack
from fairfrontier.train.neural.estimator import Batch, NeuralNetwork, Tables, TrainingWarning
from fairfrontier.train.neural.network import Network

Array = Any

# A cost of 0 would make the ratio of the authors' update infinite; any small number is cut alike.
SMALLEST_COST = 1e-12
# Features from which two products by some directions are faster than one by Σ: measured, 64 rows.
THIN_FROM = 128


class Robust(NeuralNetwork):
    """Base of the nets that are trained against an adversary; holds the adversary's parameters."""

    varies: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "random_state", "budget", "subspace_rate", "full_rate", "dual_start"}
        | {"dual_learning_rate"}
    )

    budget: float
    variant: Literal["paper", "authors"]
    subspace_steps: int
    subspace_rate: float
    full_steps: int
    full_rate: float | None
    start_noise: float
    dual_start: float
    dual_learning_rate: float
    dual_floor: float
    dual_cap: float
    failure_decay: float

    def check(self) -> None:
        """Raise ConfigError for parameters that cannot be."""
        super().check()
        number = "a number that is 0 or more"
        self.require("variant", self.variant in ("paper", "authors"), "paper or authors")
        for name in ("budget", "subspace_rate", "start_noise", "dual_start", "dual_learning_rate"):
            self.require(name, 0 <= getattr(self, name) < np.inf, number)
        rate = self.full_rate
        self.require("full_rate", rate is None or 0 <= rate < np.inf, number + ", or null")
        self.require("subspace_steps", self.subspace_steps >= 0, "0 or more")
        self.require("full_steps", self.full_steps >= 0, "0 or more")
        self.require("dual_floor", 0 <= self.dual_floor <= self.dual_cap, "0 to dual_cap")
        self.require("failure_decay", 0 < self.failure_decay <= 1, "a number in (0, 1]")

    def _passes(self) -> float:
        return 1.0 + self.subspace_steps + self.full_steps


class Adversary:
    """Attacks the minibatches of some models and keeps their λ.

    paper:   λ ← max(0, λ − η ρ (ε − mean d_X))
    authors: λ ← clip(λ + max(d, ε) / min(d, ε) · (d − ε)),  d = mean d_X

    Parameters
    ----------
    models : sequence of Robust
        Of equal structure.
    data : sequence of mapping
        With the metric of each.
    held : Tables
    strength : ndarray of float64, shape (n_models,)
        ρ of the update in the variant ``paper``.

    References
    ----------
    M. Yurochkin, Y. Sun. SenSeI. ICLR 2021, Algorithm 1.
    """

    def __init__(
        self,
        models: Sequence[Robust],
        data: Sequence[Mapping[str, Any]],
        held: Tables,
        strength: np.ndarray,
    ) -> None:
        leader = models[0]
        self._leader, self._held, self._strength = leader, held, strength
        metrics: list[FairMetric] = [each["metric"] for each in data]
        self._free = [each.directions for each in metrics]
        self._noise = [derive_generator("network", "noise", model.random_state) for model in models]
        self.budget = np.asarray([float(each.budget) for each in models])
        self.dual = np.asarray([float(each.dual_start) for each in models])
        self._dual_rate = np.asarray([float(each.dual_learning_rate) for each in models])
        # A tenth of ε: the step that SenSR and SenSeI were published with.
        self._full_rate = np.asarray(
            [
                float(each.budget) / 10 if each.full_rate is None else float(each.full_rate)
                for each in models
            ]
        )
        self.terrain = Terrain(
            directions=held.move(_padded(self._free)),
            sigma=(
                None
                if may_leave_out_sigma(metrics)
                else held.move(np.stack([each.sigma for each in metrics]))
            ),
            subspace_steps=leader.subspace_steps,
            full_steps=leader.full_steps,
            subspace_rate=held.stack([float(each.subspace_rate) for each in models]),
            whole=leader.variant == "authors",
        )

    def find(self, network: Network, batch: Batch, objective: Objective) -> Attacked:
        """Return the worst similar rows of a minibatch."""
        return attack(
            network,
            batch.x,
            objective,
            self.terrain,
            noise=self._draw(*batch.x.shape),
            dual=self._held.stack(list(self.dual)),
            full_rate=self._held.stack(list(self._full_rate)),
        )

    def update(self, found: Attacked) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Move λ after a minibatch; return what the history keeps and which models may step."""
        cost = to_numpy(found.cost).astype(np.float64).mean(axis=1)
        facts = {
            "dual": self.dual.copy(),
            "cost": cost,
            "subspace_gain": to_numpy(found.subspace_gain),
            "full_gain": to_numpy(found.full_gain),
        }
        if self._leader.variant == "paper":
            pull = self._dual_rate * self._strength * (self.budget - cost)
            self.dual = np.maximum(0.0, self.dual - pull)
            return facts, None
        low, high = np.minimum(cost, self.budget), np.maximum(cost, self.budget)
        moved = self.dual + high / np.maximum(low, SMALLEST_COST) * (cost - self.budget)
        self.dual = np.clip(moved, self._leader.dual_floor, self._leader.dual_cap)
        failed = to_numpy(found.failed)
        self._full_rate = np.where(
            failed, self._full_rate * self._leader.failure_decay, self._full_rate
        )
        return facts, ~failed

    def warn(self, history: Mapping[str, np.ndarray], model: int) -> None:
        """Warn where attacks never gained, or λ stayed at its cap."""
        name, steps = self._leader.name, history["step"].size
        attacks = self._leader.subspace_steps + self._leader.full_steps
        gained = max(history["subspace_gain"].max(), history["full_gain"].max()) > 0
        if attacks and self._strength[model] > 0 and not gained:
            free = len(self._free[model])
            warnings.warn(
                f"{name}: no recorded attack of {attacks} steps raised its objective "
                f"({free} free directions, budget {self.budget[model]:g}, full_rate "
                f"{self._full_rate[model]:g}, start_noise {self._leader.start_noise:g}). "
                "Raise subspace_rate, full_rate or start_noise, or give a metric with directions.",
                TrainingWarning,
                stacklevel=2,
            )
        later = history["dual"][steps // 2 :]
        # Without a budget the price can only rise.
        cut = self._leader.variant == "authors" and self.budget[model] > 0 and steps > 1
        if cut and np.all(later >= self._leader.dual_cap):
            warnings.warn(
                f"{name}: the price λ stayed at its cap {self._leader.dual_cap:g} through the "
                f"second half of the training, and rows moved {history['cost'][-1]:.3g} where the "
                f"budget is {self.budget[model]:g}. Lower full_rate, or raise dual_cap or budget.",
                TrainingWarning,
                stacklevel=2,
            )

    def _draw(self, n_models: int, n_rows: int, n_features: int) -> Array:
        """Draw first coefficients of the directions, or of a step without directions."""
        n_free = self.terrain.directions.shape[1]
        noise = np.zeros((n_models, n_rows, n_free or n_features), dtype=np.float32)
        for model, generator in enumerate(self._noise):
            own = len(self._free[model]) or (0 if n_free else n_features)
            drawn = generator.random((n_rows, own), dtype=np.float32) * 2 - 1
            size = self._leader.start_noise if n_free else self._full_rate[model]
            noise[model, :, :own] = drawn * np.float32(size)
        return self._held.move(noise)


def may_leave_out_sigma(metrics: Sequence[FairMetric]) -> bool:
    """Tell whether products by the free directions give every Σ, and faster than Σ itself."""
    for each in metrics:
        r, d = each.directions.shape
        if d < THIN_FROM or 3 * r > d:
            return False
        rest = np.eye(d) - each.directions.T @ each.directions
        if not np.allclose(each.sigma, rest, rtol=0.0, atol=1e-12):
            return False
    return True


def _padded(directions: Sequence[np.ndarray]) -> np.ndarray:
    """Stack directions of several metrics; a row of zeros moves nothing and has no gradient."""
    padded = np.zeros((len(directions), max(map(len, directions)), directions[0].shape[1]))
    for own, each in zip(padded, directions, strict=True):
        own[: len(each)] = each
    return padded
