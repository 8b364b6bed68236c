"""Adversarial debiasing: a net trained so that its score does not reveal the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.baseline.nn import BaseNet
from fairfrontier.models.group import take_attribute
from fairfrontier.models.neural.estimator import Batch, PlainRule, Progress, Rule, Slope, Tables
from fairfrontier.models.neural.network import (
    Adam,
    Network,
    by_models,
    forward,
    forward_dropped,
    loss_slope,
    parameter_gradient,
)
from fairfrontier.models.registry import method
from fairfrontier.prepare.split import Task
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.seeds import derive_generator
from papers.rival.group_adversary import (
    ABSENT,
    CRITERIA,
    GroupAdversary,
    count_inputs,
    draw_adversary,
    evaluate_adversary,
    project_gradient,
)

Array = Any
PROJECTIONS = ("whole", "arrays")


@method("adversarial_debiasing")
@dataclass(kw_only=True, eq=False, repr=False)
class AdversarialDebiasing(BaseNet):
    """A net against an adversary that predicts the group from its score, and perhaps the label.

    The predictor W minimises L_P, its cross-entropy; the adversary minimises L_A, that of the
    group. Both step at once, by Adam; the predictor's direction is

    ∇_W L_P − proj_{∇_W L_A} ∇_W L_P − α ∇_W L_A

    The adversary's input is s = σ((1 + |c|) σ⁻¹(ŷ)) under ``parity``, and s, s y and s (1 − y)
    under ``equalized_odds``; its output is the softmax of a linear map of that, for any number of
    groups.

    Parameters
    ----------
    strength : float
        α ≥ 0. With 0 the predictor still avoids what would help the adversary.
    criterion : {"parity", "equal_opportunity", "equalized_odds"}
        Whether the adversary sees the score alone, that of rows of class 1 only, or also the label.
    attribute : int
        Column of the attribute in ``sensitive_features``; a study's YAML may name it.
    projection : {"whole", "arrays"}
        Whether the projection is over all weights together (paper), or in each array of weights or
        biases separately (AIF360).
    adversary_learning_rate : float or None
        Of the adversary's Adam; that of the predictor when None.
    decay, decay_steps : float, int
        Both rates are multiplied by ``decay`` after every ``decay_steps`` minibatches.
    dropout : float
        Share of hidden units that a step drops, in [0, 1).
    hidden, learning_rate, batch_size, steps, replacement, balanced, dtype, backend, record_every
        As in `Net`.
    random_state : int
        Seed of the weights of both nets, the minibatches and the dropped units.

    Attributes
    ----------
    network_, history_
        As in `NeuralNetwork`; the history adds ``adversary_loss`` (L_A). The adversary is not kept.

    Notes
    -----
    A step costs one forward and two backward passes of a minibatch, whatever n. The losses pull in
    different directions, and convergence is not guaranteed. An adversary that learns more slowly
    than the predictor lets the gap oscillate about 0; a larger ``adversary_learning_rate`` and
    decaying rates damp it. A score that misleads this adversary, which is monotone in the score for
    each label, may still reveal the group to another one.

    AIF360 differs in details: its biases start at 0, it shuffles rows once an epoch where
    minibatches are independent here, and its predictor has one output where this one has two.

    References
    ----------
    B. H. Zhang, B. Lemoine, M. Mitchell. Mitigating unwanted biases with adversarial learning.
    AIES 2018, (1) and the experiment on Adult.
    R. K. E. Bellamy et al. AI Fairness 360. IBM Journal of Research and Development 63, 2019.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary"})
    group_parameters: ClassVar[tuple[str, ...]] = ("attribute",)
    varies: ClassVar[frozenset[str]] = BaseNet.varies | frozenset(
        ("strength", "attribute", "adversary_learning_rate")
    )
    paper: ClassVar[str] = "Zhang, Lemoine, Mitchell, Mitigating unwanted biases, AIES 2018"
    example: ClassVar[Mapping[str, Any]] = {
        "hidden": 8,
        "learning_rate": 0.01,
        "batch_size": 20,
        "steps": 20,
        "dropout": 0.2,
        "decay": 0.9,
        "decay_steps": 5,
    }

    strength: float = 0.1
    criterion: Literal["parity", "equal_opportunity", "equalized_odds"] = "equalized_odds"
    attribute: int = 0
    projection: Literal["whole", "arrays"] = "whole"
    adversary_learning_rate: float | None = None
    decay: float = 1.0
    decay_steps: int = 1000
    dropout: float = 0.0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        super().check()
        rate = self.adversary_learning_rate
        self.require("strength", 0 <= self.strength < np.inf, "a number of 0 or more")
        self.require("criterion", self.criterion in CRITERIA, " or ".join(CRITERIA))
        self.require("projection", self.projection in PROJECTIONS, " or ".join(PROJECTIONS))
        self.require(
            "adversary_learning_rate",
            rate is None or 0 <= rate < np.inf,
            "a number of 0 or more, or null for the predictor's",
        )
        self.require("decay", 0 < self.decay <= 1, "a number above 0 and at most 1")
        self.require("decay_steps", self.decay_steps >= 1, "1 or more")
        self.require("dropout", 0 <= self.dropout < 1, "a number of 0 or more, below 1")

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        sensitive_features: np.ndarray,
        sample_weight: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y of two classes and group codes, one column per attribute.

        Raises
        ------
        ConfigError
            For invalid parameters, or an attribute that is no column of ``sensitive_features``.
        DataError
            When a group code is below 0.
        """
        data = {
            "X": X,
            "y": y,
            "sensitive_features": sensitive_features,
            "sample_weight": sample_weight,
        }
        return self._fit(data, progress)

    @classmethod
    def _rule(
        cls, models: Sequence[Self], data: Sequence[Mapping[str, Any]], tables: Tables
    ) -> Rule:
        return _AdversarialRule(models, data, tables)


def _read_codes(model: AdversarialDebiasing, groups: np.ndarray) -> np.ndarray:
    """Return the codes of a model's attribute; DataError for one below 0."""
    codes = take_attribute(groups, model.attribute)
    if codes.min() < 0:
        raise DataError(
            f"Column {model.attribute} of the groups has the code {codes.min()}.",
            "Give every row a group: codes start at 0.",
        )
    return codes


class _AdversarialRule(PlainRule):
    """The gradients of the predictors, which mislead adversaries that learn at the same time."""

    def __init__(
        self,
        models: Sequence[AdversarialDebiasing],
        data: Sequence[Mapping[str, Any]],
        tables: Tables,
    ) -> None:
        self._tables, self._leader, self._step = tables, models[0], 0
        codes = [
            _read_codes(model, table["sensitive_features"])
            for model, table in zip(models, data, strict=True)
        ]
        counts = [int(code.max()) + 1 for code in codes]
        most = max(counts)
        self._groups = [np.eye(most)[code] for code in codes]
        missing = np.arange(most) >= np.asarray(counts)[:, None, None]
        # Tables of a batch may differ in their groups; an adversary sees only those of its table.
        self._absent = tables.move(np.where(missing, ABSENT, 0.0)) if missing.any() else None
        self._adversary = self._draw(models, counts, most)
        self._strength = tables.stack([float(model.strength) for model in models])
        pairs = [(model.adversary_learning_rate, model.learning_rate) for model in models]
        rates = [predictor if own is None else own for own, predictor in pairs]
        self._optimiser = Adam(self._adversary.arrays, tables.stack(rates))
        self._generators = [
            derive_generator("network", "dropout", model.random_state) for model in models
        ]

    def _draw(
        self, models: Sequence[AdversarialDebiasing], counts: Sequence[int], most: int
    ) -> GroupAdversary:
        """Draw an adversary for each model, padded to the largest number of groups."""
        drawn = []
        for model, count in zip(models, counts, strict=True):
            generator = derive_generator("network", "adversary", model.random_state)
            scale, weight, bias = draw_adversary(count_inputs(model.criterion), count, generator)
            padding = ((0, 0), (0, 0), (0, most - count))
            drawn.append((scale, np.pad(weight, padding), np.pad(bias, padding)))
        columns = zip(*drawn, strict=True)
        return GroupAdversary(*(self._tables.move(np.concatenate(column)) for column in columns))

    def __call__(self, network: Network, batch: Batch) -> Slope:
        leader = self._leader
        group = np.stack([own[rows] for own, rows in zip(self._groups, batch.rows, strict=True)])
        arrays = (
            batch.x,
            batch.target,
            batch.weight,
            self._tables.move(group),
            self._absent,
            self._strength,
            *self._adversary.arrays,
            *self._masks(batch),
        )

        def step(nets: Network, *arrays: Array) -> tuple[Array, ...]:
            x, target, weight, group, absent, strength, scale, slopes, bias, *masks = arrays
            passed = forward_dropped(nets, x, masks) if masks else forward(nets, x)
            adversary_loss, leak, gradient = evaluate_adversary(
                GroupAdversary(scale, slopes, bias),
                passed.logits,
                target,
                group,
                criterion=leader.criterion,
                weight=weight,
                absent=absent,
            )
            loss, slope = loss_slope(passed.logits, target, weight)
            plain = parameter_gradient(nets, x, passed, slope).arrays
            fair = parameter_gradient(nets, x, passed, leak).arrays
            direction = project_gradient(plain, fair, strength, whole=leader.projection == "whole")
            return (loss, adversary_loss, *gradient.arrays, *direction)

        loss, adversary_loss, *gradients = by_models(network, arrays, step)
        pace = self._pace()
        changes = self._optimiser.step(gradients[:3])
        self._adversary = GroupAdversary(
            *(
                array - (change if pace is None else change * pace)
                for array, change in zip(self._adversary.arrays, changes, strict=True)
            )
        )
        facts = {"loss": to_numpy(loss), "adversary_loss": to_numpy(adversary_loss)}
        return Slope(Network.of(gradients[3:]), facts, pace=pace)

    def _masks(self, batch: Batch) -> list[Array]:
        """Draw the masks of the hidden units, one array per layer; none without dropout."""
        if self._leader.dropout == 0:
            return []
        kept = 1.0 - self._leader.dropout
        return [
            self._tables.move(
                np.stack(
                    [
                        (generator.random((rows.size, width)) < kept) / kept
                        for generator, rows in zip(self._generators, batch.rows, strict=True)
                    ]
                )
            )
            for width in self._leader.layers
        ]

    def _pace(self) -> float | None:
        """Return the factor on the rates at this step, and count it."""
        factor = self._leader.decay ** (self._step // self._leader.decay_steps)
        self._step += 1
        return None if factor == 1.0 else float(factor)
