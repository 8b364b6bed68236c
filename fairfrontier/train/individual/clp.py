"""CLP: nets whose answer stays the same on counterfactual versions of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.prepare.split import CounterfactualSet, Split
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.train.individual.invariance import penalised_gradient
from fairfrontier.train.neural.estimator import Batch, NeuralNetwork, Progress, Rule, Slope, Tables
from fairfrontier.train.neural.network import Network
from fairfrontier.train.registry import method

Array = Any


@method("clp")
class CLP(NeuralNetwork):
    """Counterfactual logit pairing: a net that is charged for telling versions of a row apart.

    min_θ  E ℓ(Y, h_θ(X)) + ρ E d_Y(h_θ(X), h_θ(X')),   d_Y = (1/K) ‖logits − logits'‖²

    X' is a random variant of X from a counterfactual set, drawn anew for every row of every
    minibatch: in a text another identity term in place of the one that stands there. For tables,
    where a set writes other levels into columns, this is an extension of the paper.

    Parameters
    ----------
    strength : float
        ρ ≥ 0; with 0 the net is that of `Net`.
    counterfactual_set : str or None
        Name of the set that the variants are drawn from. When None, each row draws one of all
        sets first, every set as likely.
    hidden, learning_rate, batch_size, steps, replacement, dtype, backend, record_every
        As in `Net`.
    random_state : int
        Seed of the weights, the minibatches and the variants.

    Attributes
    ----------
    network_, history_
        As in `NeuralNetwork`; the history adds ``regularizer`` (mean d_Y).

    Notes
    -----
    Variants are made for the rows of a minibatch only, one variant at a time. A row that has no
    versions in a set is its own variant there, and is charged nothing.

    References
    ----------
    S. Garg, V. Perot, N. Limtiaco, A. Taly, E. Chi, A. Beutel. Counterfactual fairness in text
    classification through robustness. AIES 2019, Section 4.3.
    """

    varies: ClassVar[frozenset[str]] = NeuralNetwork.varies | {"strength", "counterfactual_set"}
    paper: ClassVar[str] = "Garg et al., Counterfactual fairness in text classification, AIES 2019"
    example: ClassVar[Mapping[str, Any]] = {
        "hidden": 8,
        "learning_rate": 0.01,
        "batch_size": 20,
        "steps": 20,
    }

    def __init__(
        self,
        *,
        strength: float = 5.0,
        counterfactual_set: str | None = None,
        hidden: int | Sequence[int] = 100,
        learning_rate: float = 1e-3,
        batch_size: int = 1000,
        steps: int = 1000,
        replacement: bool = True,
        dtype: Literal["float32", "float64"] = "float32",
        backend: Literal["auto", "numpy", "cupy"] = "auto",
        record_every: int = 100,
        random_state: int = 0,
    ) -> None:
        self.strength = strength
        self.counterfactual_set = counterfactual_set
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.steps = steps
        self.replacement = replacement
        self.dtype = dtype
        self.backend = backend
        self.record_every = record_every
        self.random_state = random_state

    def check(self) -> None:
        """Raise ConfigError for parameters that cannot be."""
        super().check()
        self.require("strength", 0 <= self.strength < np.inf, "a number that is 0 or more")

    def supports(self, split: Split) -> str | None:
        """Return why this method cannot be trained on ``split``, or None when it can."""
        reason = super().supports(split)
        if reason is None and not split.train.counterfactuals:
            return f"clp needs counterfactual sets, and {split.dataset} declares none."
        return reason

    def fit(
        self,
        X: np.ndarray,
        y: np.ndarray,
        *,
        counterfactuals: Mapping[str, CounterfactualSet],
        sample_weight: np.ndarray | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y and their counterfactual sets.

        Raises
        ------
        ConfigError
            When the set is not among ``counterfactuals``, or there is none.
        DataError
            For sets of other rows than X, as cross-validation hands them on: it cuts X, not them.
        """
        data = {"X": X, "y": y, "counterfactuals": counterfactuals, "sample_weight": sample_weight}
        return self._fit(data, progress)

    @classmethod
    def _rule(cls, models: Sequence[Self], data: Sequence[Mapping[str, Any]], held: Tables) -> Rule:
        return _Pairing(models, data, held)

    def _sets(
        self, counterfactuals: Mapping[str, CounterfactualSet], n_samples: int
    ) -> list[CounterfactualSet]:
        name = self.counterfactual_set
        if name is not None and name not in counterfactuals:
            raise ConfigError(
                f"The parameter 'counterfactual_set' of 'clp' is {name!r}, which is no set here.",
                nearest(name, counterfactuals),
            )
        if not counterfactuals:
            raise ConfigError(
                "clp was given no counterfactual set.", "Declare one in the dataset's YAML."
            )
        chosen = list(counterfactuals.values()) if name is None else [counterfactuals[name]]
        for each in chosen:
            if each.n_samples != n_samples:
                raise DataError(
                    f"clp was given {n_samples} rows, and a counterfactual set of "
                    f"{each.n_samples}.",
                    "Give it the sets of the same rows: those that take(rows) returns.",
                )
        return chosen


class _Pairing:
    """The gradient of the mean loss plus ρ times the logit distance to random variants."""

    def __init__(
        self, models: Sequence[CLP], data: Sequence[Mapping[str, Any]], held: Tables
    ) -> None:
        self._held = held
        self._strength = held.stack([float(each.strength) for each in models])
        self._sets = [
            model._sets(each["counterfactuals"], len(each["X"]))
            for model, each in zip(models, data, strict=True)
        ]
        self._tables = [np.asarray(each["X"]) for each in data]
        self._generators = [
            derive_generator("network", "variants", each.random_state) for each in models
        ]

    def __call__(self, network: Network, batch: Batch) -> Slope:
        twins = [
            draw_variants(sets, X, rows, generator)
            for sets, X, rows, generator in zip(
                self._sets, self._tables, batch.rows, self._generators, strict=True
            )
        ]
        other = self._held.move(np.stack(twins))
        gradient, loss, distance = penalised_gradient(
            network, batch.x, other, batch.target, batch.weight, self._strength
        )
        return Slope(gradient, {"loss": to_numpy(loss), "regularizer": to_numpy(distance)})

    def warn(self, history: Mapping[str, np.ndarray], model: int) -> None:
        """Stay silent: there is nothing to warn about."""


def draw_variants(
    sets: Sequence[CounterfactualSet],
    X: np.ndarray,
    rows: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Return a random variant of each row.

    Parameters
    ----------
    sets : sequence of CounterfactualSet
        One is drawn for each row, then one of its variants, each as likely.
    X : array of shape (n_samples, n_features)
        The table of the sets: a row that has no versions in its set stays as it is.
    rows : int64 array of shape (n,)
        Row numbers in the sets.
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of float64, shape (n, n_features)
    """
    which = generator.integers(len(sets), size=rows.size)
    share = generator.random(rows.size)
    found = np.array(X[rows], dtype=np.float64)
    for number, each in enumerate(sets):
        mine = np.flatnonzero(which == number)
        if each.rows is not None:
            mine = mine[np.isin(rows[mine], each.rows)]
        choice = np.floor(share[mine] * len(each.names)).astype(np.int64)
        for position, variant in enumerate(each.take(rows[mine])):
            chosen = choice == position
            found[mine[chosen]] = variant.X[chosen]
    return found
