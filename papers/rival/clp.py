"""CLP: nets whose logits are invariant to counterfactual versions of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairfrontier.models.individual.attack import penalised_gradient
from fairfrontier.models.neural.estimator import Batch, NeuralNetwork, Progress, Rule, Slope, Tables
from fairfrontier.models.neural.network import Network
from fairfrontier.models.registry import method
from fairfrontier.prepare.split import CounterfactualSet, Part, Split
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError, nearest
from fairfrontier.runtime.seeds import derive_generator

Array = Any
# Rows whose versions are looked at before training.
CHECKED = 1000


@method("clp")
@dataclass(kw_only=True, eq=False, repr=False)
class CLP(NeuralNetwork):
    """Counterfactual logit pairing: a net penalised for differences between versions of a row.

    min_θ  E ℓ(Y, h_θ(X)) + ρ E d_Y(h_θ(X), h_θ(X')),   d_Y = (1/K) ‖logits − logits'‖²

    X' is a random variant of X from a counterfactual set, drawn anew for every row of every
    minibatch: a text with its identity term replaced by another one. For tables, where a set
    replaces levels of columns, this is an extension of the paper.

    Parameters
    ----------
    strength : float
        ρ ≥ 0; with 0 the net is that of `Net`.
    counterfactual_set : str or None
        Name of the set that the variants are drawn from; by default each row first draws one of
        all sets, each equally likely.
    early_stopping
        As in `SenSR`.
    hidden, learning_rate, batch_size, steps, replacement, balanced, dtype, backend, record_every
        As in `Net`.
    random_state : int
        Seed of the weights, the minibatches and the variants.

    Attributes
    ----------
    network_, history_
        As in `NeuralNetwork`; the history adds ``regularizer`` (mean d_Y).

    Notes
    -----
    A step costs a forward and a backward pass of a minibatch and of one variant of each of its
    rows, whatever n. A row that has no versions in a set is its own variant there, without penalty.

    References
    ----------
    S. Garg, V. Perot, N. Limtiaco, A. Taly, E. Chi, A. Beutel. Counterfactual fairness in text
    classification through robustness. AIES 2019, Section 4.3.
    """

    varies: ClassVar[frozenset[str]] = NeuralNetwork.varies | {
        "strength",
        "counterfactual_set",
        "early_stopping",
    }
    paper: ClassVar[str] = "Garg et al., Counterfactual fairness in text classification, AIES 2019"
    example: ClassVar[Mapping[str, Any]] = {
        "hidden": 8,
        "learning_rate": 0.01,
        "batch_size": 20,
        "steps": 20,
    }

    strength: float = 5.0
    counterfactual_set: str | None = None
    hidden: int | Sequence[int] = 100
    learning_rate: float = 1e-3
    batch_size: int = 1000
    steps: int = 1000
    replacement: bool = True
    balanced: bool = True
    early_stopping: int | None = None
    dtype: Literal["float32", "float64"] = "float32"
    backend: Literal["auto", "numpy", "cupy"] = "auto"
    record_every: int = 100
    random_state: int = 0

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
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
        validation: Part | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Train on rows X with labels y and their counterfactual sets.

        Raises
        ------
        ConfigError
            When the set is not among ``counterfactuals``, or there is none.
        DataError
            For sets of other rows than X, as in cross-validation and bagging, which draw rows of X
            but not of the sets.
        """
        data = {"X": X, "y": y, "counterfactuals": counterfactuals, "sample_weight": sample_weight}
        return self._fit({**data, "validation": validation}, progress)

    @classmethod
    def _rule(
        cls, models: Sequence[Self], data: Sequence[Mapping[str, Any]], tables: Tables
    ) -> Rule:
        return _Pairing(models, data, tables)

    def _sets(
        self, counterfactuals: Mapping[str, CounterfactualSet], X: Any
    ) -> list[CounterfactualSet]:
        name = self.counterfactual_set
        if name is not None and name not in counterfactuals:
            raise ConfigError(
                f"The parameter 'counterfactual_set' of 'clp' is {name!r}, which does not exist.",
                nearest(name, counterfactuals),
            )
        if not counterfactuals:
            raise ConfigError(
                "clp was given no counterfactual set.", "Declare one in the dataset's YAML."
            )
        chosen = list(counterfactuals.values()) if name is None else [counterfactuals[name]]
        for chosen_set in chosen:
            if chosen_set.n_samples != len(X):
                fault = f"{len(X)} rows, and a counterfactual set of {chosen_set.n_samples}"
            elif isinstance(X, np.ndarray) and _is_of_others(chosen_set, X):
                fault = "a counterfactual set of other rows than X, or of the same in another order"
            else:
                continue
            raise DataError(
                f"clp was given {fault}.",
                "Pass the sets of the same rows, as returned by take(rows); what draws rows, as a "
                "bagging classifier, draws none of a set.",
            )
        return chosen


def _is_of_others(chosen: CounterfactualSet, X: np.ndarray) -> bool:
    """Return whether versions of some rows share no feature with them that the set leaves alone.

    It does not say which features it writes: those that are the same in all rows of a version, or
    differ between versions, may be.
    """
    rows = np.unique(np.linspace(0, len(X) - 1, CHECKED).astype(np.int64))
    versions = np.stack([np.asarray(variant.X, dtype=X.dtype) for variant in chosen.take(rows)])
    if versions.shape[1:] != (rows.size, X.shape[1]):
        return True
    if chosen.rows is not None:
        # Versions of a text may share nothing with it.
        rest = ~np.isin(rows, chosen.rows)
        versions, rows = versions[:, rest], rows[rest]
    left = (versions == versions[:1, :]).all(axis=(0, 1)) & (versions != versions[:, :1]).any(
        (0, 1)
    )
    same = np.isclose(versions[0], X[rows], rtol=1e-5)
    if len(versions) < 2:
        # A single version does not tell what it leaves alone from what it changes in all rows.
        left &= same.any(axis=0)
    # One feature alone may be the one that a single version writes.
    return bool(left.sum() > 1 and not same.all(axis=0)[left].any())


class _Pairing:
    """The gradient of the mean loss plus ρ times the logit distance to random variants."""

    def __init__(
        self, models: Sequence[CLP], data: Sequence[Mapping[str, Any]], tables: Tables
    ) -> None:
        self._tables = tables
        self._strength = tables.stack([float(model.strength) for model in models])
        self._sets = [
            model._sets(table["counterfactuals"], table["X"])
            for model, table in zip(models, data, strict=True)
        ]
        self._X = [np.asarray(table["X"]) for table in data]
        self._generators = [
            derive_generator("network", "variants", model.random_state) for model in models
        ]

    def __call__(self, network: Network, batch: Batch) -> Slope:
        variants = [
            draw_variants(sets, X, rows, generator)
            for sets, X, rows, generator in zip(
                self._sets, self._X, batch.rows, self._generators, strict=True
            )
        ]
        other = self._tables.move(np.stack(variants))
        gradient, loss, distance = penalised_gradient(
            network, batch.x, other, batch.target, batch.weight, self._strength
        )
        return Slope(gradient, {"loss": to_numpy(loss), "regularizer": to_numpy(distance)})

    def warn(self, history: Mapping[str, np.ndarray], model: int) -> None:
        """Warn about nothing."""


def draw_variants(
    sets: Sequence[CounterfactualSet],
    X: np.ndarray,
    rows: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Return a random variant of each of the given rows of X, float64 (n, n_features).

    One of the sets is drawn for each row, then one of its variants, each equally likely. A row
    without versions in its set is returned unchanged.
    """
    set_of_row = generator.integers(len(sets), size=rows.size)
    share = generator.random(rows.size)
    drawn = np.array(X[rows], dtype=np.float64)
    for number, chosen_set in enumerate(sets):
        own = np.flatnonzero(set_of_row == number)
        if chosen_set.rows is not None:
            own = own[np.isin(rows[own], chosen_set.rows)]
        choice = np.floor(share[own] * len(chosen_set.names)).astype(np.int64)
        for position, variant in enumerate(chosen_set.take(rows[own])):
            chosen = choice == position
            drawn[own[chosen]] = variant.X[chosen]
    return drawn
