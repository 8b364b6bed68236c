"""Training nets by minibatches, many models at once; the base of every method that is a net."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from fairfrontier.prepare.split import Task
from fairfrontier.runtime.arrays import (
    Backend,
    array_namespace,
    as_backend,
    choose_backend,
    to_numpy,
)
from fairfrontier.runtime.errors import ConfigError, DataError, InputError
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.train.base import Classifier, training_weight
from fairfrontier.train.neural.minibatch import BalancedRows
from fairfrontier.train.neural.network import (
    Network,
    by_models,
    draw_network,
    forward,
    loss_slope,
    parameter_gradient,
    softmax,
)
from fairfrontier.train.neural.optimiser import Adam
from fairfrontier.train.persistence import State

Array = Any
Progress = Callable[[int, int], None]

# Rows that predict_proba works on at a time.
PREDICTION_ROWS = 8192


class TrainingWarning(UserWarning):
    """A fit ended, and its history says that it did not do what was asked of it."""


@dataclass(frozen=True, eq=False)
class Batch:
    """One minibatch of every model.

    Attributes
    ----------
    rows : tuple of int64 ndarray
        Row numbers, for each model in its own table.
    x : array of shape (n_models, batch_size, n_features)
    target : array of shape (n_models, batch_size, n_classes)
        1 in the place of the label.
    weight : array of shape (n_models, batch_size, 1) or None
        Case weights relative to their class's mean; None where all are 1.
    """

    rows: tuple[np.ndarray, ...]
    x: Array
    target: Array
    weight: Array | None


@dataclass(frozen=True, eq=False)
class Slope:
    """What a rule makes of a minibatch.

    Attributes
    ----------
    gradient : Network
        Of each model's objective.
    facts : mapping of str to float64 ndarray of shape (n_models,)
        What the history keeps.
    active : ndarray of bool, shape (n_models,), or None
        Models that take the step; all when None.
    pace : float or None
        Factor on the steps of all models, of rates that fall; 1 when None.
    """

    gradient: Network
    facts: Mapping[str, np.ndarray]
    active: np.ndarray | None = None
    pace: float | None = None


class Rule(Protocol):
    """The gradient of a method's objective on a minibatch; may keep state between steps."""

    def __call__(self, network: Network, batch: Batch) -> Slope:
        """Return the gradient."""
        ...

    def warn(self, history: Mapping[str, np.ndarray], model: int) -> None:
        """Warn about what the history of one model shows."""
        ...


class Tables:
    """The training rows of all models, on the backend, shared where models share them.

    Parameters
    ----------
    data : sequence of mapping
        X, y and perhaps sample_weight of each model.
    n_classes : int
    dtype : {"float32", "float64"}
    backend : {"numpy", "cupy"}
    balanced : bool
        Whether case weights count within their class: the classes of a batch are equally many.
    """

    def __init__(
        self,
        data: Sequence[Mapping[str, Any]],
        n_classes: int,
        dtype: str,
        backend: Backend,
        balanced: bool = True,
    ) -> None:
        self.dtype, self.backend = dtype, backend
        self._x: list[Array] = []
        kept: dict[int, Array] = {}
        for each in data:
            X = each["X"]
            if id(X) not in kept:
                kept[id(X)] = self.move(X)
            self._x.append(kept[id(X)])
        self._label = [np.asarray(each["y"]) for each in data]
        self._one_hot = np.eye(n_classes)
        self._weight = [
            _relative_weight(each.get("sample_weight"), each["y"] if balanced else None)
            for each in data
        ]

    def move(self, values: np.ndarray) -> Array:
        """Return a NumPy array on the backend, in the dtype of the training."""
        return as_backend(np.ascontiguousarray(values, dtype=self.dtype), self.backend)

    def stack(self, values: Sequence[float]) -> Array:
        """Return one number per model as an array of shape (n_models, 1, 1)."""
        return self.move(np.asarray(values, dtype=np.float64)[:, None, None])

    def take(self, rows: Sequence[np.ndarray]) -> Batch:
        """Return the minibatch of these rows of each model."""
        xp = array_namespace(self._x[0])
        x = xp.stack(
            [
                xp.take(table, self._index(chosen), axis=0)
                for table, chosen in zip(self._x, rows, strict=True)
            ]
        )
        target = [
            self._one_hot[label[chosen]] for label, chosen in zip(self._label, rows, strict=True)
        ]
        weight = None
        if any(each is not None for each in self._weight):
            weight = self.move(
                np.stack(
                    [
                        np.ones(len(chosen)) if each is None else each[chosen]
                        for each, chosen in zip(self._weight, rows, strict=True)
                    ]
                )[:, :, None]
            )
        return Batch(tuple(rows), x, self.move(np.stack(target)), weight)

    def _index(self, rows: np.ndarray) -> Array:
        return as_backend(rows, self.backend)


def _relative_weight(weight: np.ndarray | None, y: np.ndarray | None) -> np.ndarray | None:
    """Return case weights over their mean, that of their class where classes are given.

    None stands for weights that change nothing.
    """
    if weight is None:
        return None
    y = np.zeros(weight.size, dtype=np.int64) if y is None else y
    mean = np.bincount(y, weights=weight) / np.maximum(np.bincount(y), 1)
    if not mean[y].all():
        raise InputError(
            "All rows of one class have the weight zero.", "Leave them out, or weigh some of them."
        )
    relative = weight / mean[y]
    return None if np.all(relative == 1.0) else relative


class PlainRule:
    """The mean loss and nothing else."""

    def __call__(self, network: Network, batch: Batch) -> Slope:
        """Return the gradient of the mean loss of each model."""

        def step(nets: Network, x: Array, target: Array, weight: Array | None) -> tuple[Array, ...]:
            done = forward(nets, x)
            loss, slope = loss_slope(done.logits, target, weight)
            return (loss, *parameter_gradient(nets, x, done, slope).arrays)

        loss, *gradient = by_models(network, (batch.x, batch.target, batch.weight), step)
        return Slope(Network.of(gradient), {"loss": to_numpy(loss)})

    def warn(self, history: Mapping[str, np.ndarray], model: int) -> None:
        """Stay silent: there is nothing to warn about."""


class NeuralNetwork(Classifier):
    """Base of the methods that are nets: minibatches, Adam, history, saving, batched fits.

    A subclass says by ``_rule`` what the gradient is. Models of one class whose ``structure``
    is the same are trained together by ``fit_batch``; each draws its weights, rows and noise
    from its own ``random_state``, so that it becomes the same model alone or in company, to
    rounding.

    Attributes
    ----------
    network_ : Network
        Weights and biases, float64, with a model axis of length 1.
    history_ : dict of str to float64 ndarray
        One entry every ``record_every`` steps and at the end: ``step``, ``loss`` and what the
        method adds, each of that minibatch.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    backends: ClassVar[tuple[str, ...]] = ("numpy", "cupy")
    # Weights act on the loss of rows that were drawn, so a repeated row is another draw.
    weights_are_counts: ClassVar[bool] = False
    # Sweeps are trained together; see ``structure``.
    batched: ClassVar[bool] = True
    # Parameters in which the models of a batch may differ.
    varies: ClassVar[frozenset[str]] = frozenset({"learning_rate", "random_state"})

    # Whether every class fills the same share of a minibatch.
    balanced: bool = True
    hidden: int | Sequence[int]
    learning_rate: float
    batch_size: int
    steps: int
    replacement: bool
    dtype: str
    backend: Backend
    record_every: int
    random_state: int

    network_: Network
    history_: dict[str, np.ndarray]

    @property
    def layers(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        if isinstance(self.hidden, Sequence):
            return tuple(self.hidden)
        return (self.hidden,)

    def structure(self) -> tuple[tuple[str, Any], ...]:
        """Return what the models of a batch must have in common; hashable."""
        parameters = self.get_params(deep=False)
        shared: dict[str, Any] = {
            key: value for key, value in parameters.items() if key not in self.varies
        }
        return tuple(sorted({**shared, "hidden": self.layers}.items()))

    def check(self) -> None:
        """Raise ConfigError for parameters that cannot be."""
        layers = self.hidden if isinstance(self.hidden, list | tuple) else [self.hidden]
        sizes = all(isinstance(each, int) and each >= 1 for each in layers)
        self.require("hidden", sizes, "the width of the hidden layer, or a list of widths")
        self.require("learning_rate", 0 <= self.learning_rate < np.inf, "a number of 0 or more")
        self.require("batch_size", self.batch_size >= 2, "2 or more")
        self.require("steps", self.steps >= 1, "1 or more")
        self.require("record_every", self.record_every >= 1, "1 or more")
        self.require("dtype", self.dtype in ("float32", "float64"), "float32 or float64")

    @classmethod
    def fit_batch(
        cls,
        models: Sequence[Self],
        data: Sequence[Mapping[str, Any]],
        *,
        progress: Progress | None = None,
    ) -> None:
        """Fit several models at once, each on its own data.

        Parameters
        ----------
        models : sequence of estimators of this class
            Of equal ``structure``.
        data : sequence of mapping
            For each model X, y and the keywords that ``fit`` takes, but ``progress``. Tables may
            differ in their rows, not in their number of features or classes. Models that are
            given the same X object share its copy.
        progress : callable, optional
            Called with (steps done, steps).

        Raises
        ------
        ConfigError
            For parameters that cannot be, or models of different structure.
        DataError
            For tables of different features or classes.

        Notes
        -----
        On NumPy a step costs what the models cost one by one, less the calls that small nets
        share; on a device it is one program for all of them.
        """
        _check_alike(models)
        tables = [
            cls._prepare(model._validate(each)) for model, each in zip(models, data, strict=True)
        ]
        n_features, n_classes = _common_shape(tables)
        leader = models[0]
        sizes = (n_features, *leader.layers, n_classes)
        work = leader._work(sizes) * len(models)
        backend = choose_backend(leader.backend, work)
        held = Tables(tables, n_classes, leader.dtype, backend, leader.balanced)
        samplers = [
            BalancedRows(
                each["y"] if model.balanced else np.zeros_like(each["y"]),
                model.batch_size,
                replacement=model.replacement,
                generator=derive_generator("network", "rows", model.random_state),
            )
            for model, each in zip(models, tables, strict=True)
        ]
        drawn = [
            draw_network(sizes, derive_generator("network", "weights", model.random_state))
            for model in models
        ]
        network = Network.of([held.move(np.concatenate(each)) for each in zip(*drawn, strict=True)])
        optimiser = Adam(network.arrays, held.stack([each.learning_rate for each in models]))
        rule = cls._rule(models, tables, held)
        records: list[dict[str, np.ndarray]] = []
        for step in range(1, leader.steps + 1):
            slope = rule(network, held.take([each.draw() for each in samplers]))
            changes = optimiser.step(slope.gradient.arrays, slope.active)
            if slope.pace is not None:
                changes = [change * slope.pace for change in changes]
            network = Network.of(
                [array - change for array, change in zip(network.arrays, changes, strict=True)]
            )
            if step % leader.record_every == 0 or step == leader.steps:
                records.append({"step": np.full(len(models), float(step)), **slope.facts})
                if progress is not None:
                    progress(step, leader.steps)
        arrays = [to_numpy(each).astype(np.float64) for each in network.arrays]
        for position, (model, each) in enumerate(zip(models, tables, strict=True)):
            own = slice(position, position + 1)
            model.network_ = Network.of([array[own].copy() for array in arrays])
            model.history_ = {
                key: np.asarray([record[key][position] for record in records], dtype=np.float64)
                for key in records[0]
            }
            model._keep(each)
            rule.warn(model.history_, position)

    def _validate(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data with rows and labels as arrays of numbers and codes."""
        X, codes = self.validate_training(data["X"], data["y"], data.get("groups"))
        weight = data.get("sample_weight")
        if weight is not None:
            weight = training_weight(weight, len(codes))
        return {**data, "X": X, "y": codes, "sample_weight": weight}

    def _fit(self, data: Mapping[str, Any], progress: Progress | None) -> Self:
        type(self).fit_batch([self], [data], progress=progress)
        return self

    @classmethod
    def _prepare(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data that the net is trained on."""
        return data

    @classmethod
    def _rule(
        cls,
        models: Sequence[Self],  # noqa: ARG003 - for methods with parameters of their own
        data: Sequence[Mapping[str, Any]],  # noqa: ARG003
        held: Tables,  # noqa: ARG003
    ) -> Rule:
        """Return the gradient rule of these models."""
        return PlainRule()

    def _keep(self, data: Mapping[str, Any]) -> None:
        """Keep what prediction needs of the data besides the net."""

    def _work(self, sizes: Sequence[int]) -> float:
        """Return the number of operations of a fit of one model, roughly."""
        products = sum(a * b for a, b in itertools.pairwise(sizes))
        return 6.0 * self.steps * self.batch_size * products * self._passes()

    def _passes(self) -> float:
        """Return how often a step goes through the net."""
        return 1.0

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes).

        Computed in float64 whatever the training's dtype, so that a row's answer does not depend
        on the rows that it is asked with.
        """
        rows = self._project(self.validate_rows(X))
        blocks = (
            # Block by block: the embeddings of many texts are not copied whole.
            rows[start : start + PREDICTION_ROWS].astype(np.float64, copy=False)
            for start in range(0, len(rows), PREDICTION_ROWS)
        )
        found = [softmax(forward(self.network_, block).logits[0]) for block in blocks]
        return np.concatenate(found) if found else np.zeros((0, self.classes_.size))

    def _project(self, X: np.ndarray) -> np.ndarray:
        """Return what the net sees of rows that it is asked about."""
        return X

    def get_state(self) -> State:
        """Return the net and the history."""
        arrays = {f"parameter_{i}": each for i, each in enumerate(self.network_.arrays)}
        arrays |= {f"history_{key}": each for key, each in self.history_.items()}
        return State(arrays=arrays)

    def set_state(self, state: State) -> None:
        """Restore the net and the history."""
        count = sum(key.startswith("parameter_") for key in state.arrays)
        self.network_ = Network.of([state.arrays[f"parameter_{i}"] for i in range(count)])
        self.history_ = {
            key.removeprefix("history_"): each
            for key, each in state.arrays.items()
            if key.startswith("history_")
        }


def _check_alike(models: Sequence[NeuralNetwork]) -> None:
    wanted = dict(models[0].structure())
    for model in models:
        model.check()
        for key, value in model.structure():
            if value != wanted[key]:
                raise ConfigError(
                    f"Models of {model.name!r} with {key} {wanted[key]!r} and {value!r} cannot be "
                    "fitted in one batch.",
                    f"Vary only {', '.join(sorted(model.varies))} within a batch.",
                )


def _common_shape(data: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    shapes = {(each["X"].shape[1], int(np.max(each["y"])) + 1) for each in data}
    if len(shapes) > 1:
        raise DataError(
            f"The tables of a batch have these features and classes: {sorted(shapes)}.",
            "Fit tables of different shape in batches of their own.",
        )
    return shapes.pop()
