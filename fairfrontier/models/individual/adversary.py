"""Training against an adversary, which attacks each minibatch at a price λ of fair distance."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.base import TrainingWarning, unit_weight
from fairfrontier.models.individual.attack import AttackedRows, AttackSetting, Objective, attack
from fairfrontier.models.individual.budget import check_budget, find_budget
from fairfrontier.models.neural.estimator import Batch, NeuralNetwork, Progress, Tables
from fairfrontier.models.neural.network import Network
from fairfrontier.prepare.split import Part
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.cluster.executor import Block, hold, open_rows
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.similarity.fair_metric import FairMetric

Array = Any

# A cost of 0 would make the ratio of the authors' update infinite; the result is clipped anyway.
SMALLEST_COST = 1e-12
# From so many features, two products by few directions beat one by Σ (measured on 64 rows).
THIN_FROM = 128


@dataclass(kw_only=True, eq=False, repr=False)
class Robust(NeuralNetwork):
    """Base of the nets that are trained against an adversary, with their parameters."""

    varies: ClassVar[frozenset[str]] = frozenset(
        {"learning_rate", "random_state", "budget", "budget_share", "early_stopping"}
        | {"subspace_rate", "full_rate", "dual_start", "dual_learning_rate"}
    )
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

    budget: float | None = 0.01
    budget_share: float = 1e-3
    variant: Literal["paper", "authors"] = "paper"
    hidden: int | Sequence[int] = 100
    learning_rate: float = 3e-3
    batch_size: int = 250
    steps: int = 1000
    replacement: bool = True
    balanced: bool = True
    early_stopping: int | None = None
    subspace_steps: int = 10
    subspace_rate: float | None = None
    full_steps: int = 10
    full_rate: float | None = None
    start_noise: float = 0.1
    dual_start: float = 2.0
    dual_learning_rate: float = 1.0
    dual_floor: float = 1e-5
    dual_cap: float = 10.0
    failure_decay: float = 0.999
    dtype: Literal["float32", "float64"] = "float32"
    backend: Literal["auto", "numpy", "cupy"] = "auto"
    record_every: int = 100
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        number = "a number that is 0 or more"
        self.require("variant", self.variant in ("paper", "authors"), "paper or authors")
        check_budget(self)
        for name in ("start_noise", "dual_start", "dual_learning_rate"):
            self.require(name, 0 <= getattr(self, name) < np.inf, number)
        for name in ("subspace_rate", "full_rate"):
            rate = getattr(self, name)
            self.require(name, rate is None or 0 <= rate < np.inf, number + ", or null")
        self.require("subspace_steps", self.subspace_steps >= 0, "0 or more")
        self.require("full_steps", self.full_steps >= 0, "0 or more")
        self.require("dual_floor", 0 <= self.dual_floor <= self.dual_cap, "0 to dual_cap")
        self.require("failure_decay", 0 < self.failure_decay <= 1, "a number in (0, 1]")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        metric: FairMetric,
        sample_weight: np.ndarray | None = None,
        validation: Part | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y under a fair metric; see ``early_stopping``."""
        data = {"X": X, "y": y, "metric": metric, "sample_weight": sample_weight}
        return self._fit({**data, "validation": validation}, progress)

    def _validate(self, data: Mapping[str, Any]) -> dict[str, Any]:
        table = super()._validate(data)
        X, metric = table["X"], table["metric"]
        mass = unit_weight(table["sample_weight"], len(table["y"]))
        mass = mass / mass.sum()
        apart, along = _measure_spreads(X, mass, (metric.basis, metric.directions.T))
        rate = self.subspace_rate
        if rate is None:
            # The steps together cross two standard deviations of the rows.
            deviation = np.sqrt(along / 2 / max(1, len(metric.directions)))
            # In 32 bits: the steps amplify last bits of a sum, which depend on the partitions.
            rate = float(np.float32(2 * deviation / max(1, self.subspace_steps)))
        return {**table, "budget": find_budget(self, apart), "subspace_rate": rate}

    def _keep(self, data: Mapping[str, Any]) -> None:
        self.report_ = data["budget"]._asdict()


def _measure_spreads(X: Array, mass: np.ndarray, maps: Sequence[np.ndarray]) -> list[float]:
    """Return `measure_spread` of X M for each map M, in two passes over the rows."""
    rows = open_rows(hold(X), mass=mass)
    means = rows.sum(_sum_images, maps)
    return [2.0 * float(total) for total in rows.sum(_sum_squares, maps, means)]


def _sum_images(block: Block, maps: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.sum(block["mass"][:, None] * (block.X @ each), axis=0) for each in maps)


def _sum_squares(
    block: Block, maps: Sequence[np.ndarray], means: Sequence[np.ndarray]
) -> tuple[float, ...]:
    centred = [block.X @ each - mean for each, mean in zip(maps, means, strict=True)]
    return tuple(float(np.sum(block["mass"][:, None] * each * each)) for each in centred)


class Adversary:
    """Attacks the minibatches of models of equal structure and updates the λ of each.

    paper:   λ ← max(0, λ − η ρ (ε − mean d_X)), with ρ = ``strength``
    authors: λ ← clip(λ + max(d, ε) / min(d, ε) · (d − ε)),  d = mean d_X

    M. Yurochkin, Y. Sun. SenSeI. ICLR 2021, Algorithm 1.
    """

    def __init__(
        self,
        models: Sequence[Robust],
        data: Sequence[Mapping[str, Any]],
        tables: Tables,
        strength: np.ndarray,
    ) -> None:
        def column(name: str) -> np.ndarray:
            return np.asarray([float(getattr(model, name)) for model in models])

        leader = models[0]
        self._leader, self._tables, self._strength = leader, tables, strength
        metrics: list[FairMetric] = [table["metric"] for table in data]
        self._free = [metric.directions for metric in metrics]
        self._noise = [derive_generator("network", "noise", model.random_state) for model in models]
        self.budget = np.asarray([table["budget"].budget for table in data])
        self.dual = column("dual_start")
        self._dual_rate = column("dual_learning_rate")
        # A tenth of ε by default: the step that SenSR and SenSeI were published with.
        self._full_rate = np.asarray(
            [
                budget / 10 if model.full_rate is None else float(model.full_rate)
                for model, budget in zip(models, self.budget, strict=True)
            ]
        )
        sigma = None
        if not may_leave_out_sigma(metrics):
            sigma = tables.move(np.stack([metric.sigma for metric in metrics]))
        self.setting = AttackSetting(
            directions=tables.move(_pad(self._free)),
            sigma=sigma,
            subspace_steps=leader.subspace_steps,
            full_steps=leader.full_steps,
            subspace_rate=tables.stack([table["subspace_rate"] for table in data]),
            discard_batch=leader.variant == "authors",
        )

    def attack(self, network: Network, batch: Batch, objective: Objective) -> AttackedRows:
        """Return the worst similar rows of a minibatch."""
        return attack(
            network,
            batch.x,
            objective,
            self.setting,
            noise=self._draw_noise(*batch.x.shape),
            dual=self._tables.stack(list(self.dual)),
            full_rate=self._tables.stack(list(self._full_rate)),
        )

    def update(self, attacked: AttackedRows) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Update λ after a minibatch; return entries of the history, and which models may step."""
        cost = to_numpy(attacked.cost).astype(np.float64).mean(axis=1)
        facts = {
            "dual": self.dual.copy(),
            "cost": cost,
            "subspace_gain": to_numpy(attacked.subspace_gain),
            "full_gain": to_numpy(attacked.full_gain),
        }
        if self._leader.variant == "paper":
            step = self._dual_rate * self._strength * (self.budget - cost)
            self.dual = np.maximum(0.0, self.dual - step)
            return facts, None
        low, high = np.minimum(cost, self.budget), np.maximum(cost, self.budget)
        moved = self.dual + high / np.maximum(low, SMALLEST_COST) * (cost - self.budget)
        self.dual = np.clip(moved, self._leader.dual_floor, self._leader.dual_cap)
        failed = to_numpy(attacked.failed)
        decayed = self._full_rate * self._leader.failure_decay
        self._full_rate = np.where(failed, decayed, self._full_rate)
        return facts, ~failed

    def warn(self, history: Mapping[str, np.ndarray], model: int) -> None:
        """Warn if no attack raised its objective, or λ stayed at its cap."""
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
        # Without a budget λ can only rise.
        clipped = self._leader.variant == "authors" and self.budget[model] > 0 and steps > 1
        if clipped and np.all(later >= self._leader.dual_cap):
            warnings.warn(
                f"{name}: the price λ stayed at its cap {self._leader.dual_cap:g} through the "
                f"second half of the training, and rows moved {history['cost'][-1]:.3g} where the "
                f"budget is {self.budget[model]:g}. Lower full_rate, or raise dual_cap or budget.",
                TrainingWarning,
                stacklevel=2,
            )

    def _draw_noise(self, n_models: int, n_rows: int, n_features: int) -> Array:
        """Draw starting coefficients of the directions, or a first step if there are none."""
        n_free = self.setting.directions.shape[1]
        noise = np.zeros((n_models, n_rows, n_free or n_features), dtype=np.float32)
        for model, generator in enumerate(self._noise):
            size = len(self._free[model]) or (0 if n_free else n_features)
            drawn = generator.random((n_rows, size), dtype=np.float32) * 2 - 1
            scale = self._leader.start_noise if n_free else self._full_rate[model]
            noise[model, :, :size] = drawn * np.float32(scale)
        return self._tables.move(noise)


def may_leave_out_sigma(metrics: Sequence[FairMetric]) -> bool:
    """Return whether every Σ is I − Dᵀ D with directions D so few that products by D are faster."""
    for metric in metrics:
        r, d = metric.directions.shape
        if d < THIN_FROM or 3 * r > d:
            return False
        projector = np.eye(d) - metric.directions.T @ metric.directions
        if not np.allclose(metric.sigma, projector, rtol=0.0, atol=1e-12):
            return False
    return True


def _pad(directions: Sequence[np.ndarray]) -> np.ndarray:
    """Stack directions of several metrics; a row of zeros moves nothing and has no gradient."""
    padded = np.zeros((len(directions), max(map(len, directions)), directions[0].shape[1]))
    for row, own in zip(padded, directions, strict=True):
        row[: len(own)] = own
    return padded
