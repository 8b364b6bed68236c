"""Minibatch training of many nets at once; the base of every method that is a net.

Balanced minibatches: every class equally often.

The rows that minibatches draw of a table whose rows stay in partitions, in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from fairfrontier.models.base import Classifier
from fairfrontier.models.neural.network import (
    Adam,
    Network,
    by_models,
    draw_network,
    forward,
    loss_slope,
    parameter_gradient,
    softmax,
)
from fairfrontier.models.persistence import State
from fairfrontier.models.stopping import Watch, check_stopping, watch
from fairfrontier.prepare.split import Part, Task
from fairfrontier.runtime.arrays import (
    Backend,
    array_namespace,
    as_backend,
    choose_backend,
    to_numpy,
)
from fairfrontier.runtime.cluster.executor import Block, hold, is_collection, open_rows
from fairfrontier.runtime.errors import ConfigError, DataError, InputError
from fairfrontier.runtime.seeds import derive_generator


class BalancedRows:
    """Draws rows so that every class that occurs fills the same share of a batch.

    The remainder goes to the first classes. ``replacement`` says whether a row can occur in a batch
    more than once; it always can where a class has fewer rows than its share.
    """

    def __init__(
        self, y: np.ndarray, batch_size: int, *, replacement: bool, generator: np.random.Generator
    ) -> None:
        members = [np.flatnonzero(y == code) for code in np.unique(y)]
        share, more = divmod(batch_size, len(members))
        self._members = [(rows, share + (position < more)) for position, rows in enumerate(members)]
        self._replacement = replacement
        self._generator = generator

    def draw(self) -> np.ndarray:
        """Return the row numbers of the next batch, int64 of shape (batch_size,)."""
        drawn = []
        for rows, size in self._members:
            if self._replacement or size > rows.size:
                chosen = self._generator.integers(rows.size, size=size)
            else:
                chosen = self._generator.choice(rows.size, size=size, replace=False, shuffle=False)
            drawn.append(rows[chosen])
        return np.concatenate(drawn)


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Some rows of a table, by the numbers that they have in it.

    Attributes
    ----------
    numbers : ndarray of int64, shape (n_drawn,)
        Ascending numbers of the rows.
    values : ndarray, shape (n_drawn, n_features)
        Those rows.
    shape : tuple of int
        That of the whole table.
    """

    numbers: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return rows by their numbers in the table, which must have been drawn."""
        return np.asarray(self.values[self.find(rows)])

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Return where rows of the table are among ``values``."""
        return np.searchsorted(self.numbers, rows)


def gather_rows(table: Mapping[str, Any], drawn: np.ndarray, dtype: str) -> dict[str, Any]:
    """Return the data of a fit with the drawn rows in place of its Dask array X.

    ``drawn``, bool (n_samples,), marks the rows, which are cast to ``dtype`` where they are. So are
    those of counterfactual sets, whose versions are made of the gathered rows.
    """
    X = table["X"]
    numbers = np.flatnonzero(drawn)
    rows = DrawnRows(numbers, open_rows(hold(X)).read(numbers, dtype), X.shape)
    sets = table.get("counterfactuals")
    if sets is None:
        return {**table, "X": rows}
    edited = {key: replace(each, X=rows) for key, each in sets.items()}
    return {**table, "X": rows, "counterfactuals": edited}


Array = Any
Progress = Callable[[int, int], None]

# Rows per block of predict_proba.
PREDICTION_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Batch:
    """One minibatch of every model.

    ``rows`` are row numbers in each model's own table, ``x`` has shape (n_models, batch_size,
    n_features), ``target`` is one-hot, (n_models, batch_size, n_classes), and ``weight``,
    (n_models, batch_size, 1), is relative to its class's mean; None where all are 1.
    """

    rows: tuple[np.ndarray, ...]
    x: Array
    target: Array
    weight: Array | None


@dataclass(frozen=True, eq=False)
class Slope:
    """The gradient of each model's objective on a minibatch, from a rule.

    ``facts``, float64 (n_models,), go to the history. ``active``, bool (n_models,), says which
    models take the step, by default all; ``pace`` is a factor on all steps, for decaying rates.
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

    ``data`` has X, y and perhaps sample_weight of each model. If ``balanced``, classes fill equal
    shares of a batch, and case weights are relative to their class.
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
        shared: dict[int, Array] = {}
        self._find: list[Callable[[np.ndarray], np.ndarray] | None] = []
        for table in data:
            X = table["X"]
            self._find.append(X.find if isinstance(X, DrawnRows) else None)
            if id(X) not in shared:
                shared[id(X)] = self.move(X.values if isinstance(X, DrawnRows) else X)
        self._x = [shared[id(table["X"])] for table in data]
        self._label = [np.asarray(table["y"]) for table in data]
        self._one_hot = np.eye(n_classes)
        self._weight = [
            _relative_weight(table.get("sample_weight"), table["y"] if balanced else None)
            for table in data
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
                xp.take(table, as_backend(find(chosen) if find else chosen, self.backend), axis=0)
                for table, find, chosen in zip(self._x, self._find, rows, strict=True)
            ]
        )
        target = [
            self._one_hot[label[chosen]] for label, chosen in zip(self._label, rows, strict=True)
        ]
        weight = None
        if any(own is not None for own in self._weight):
            weights = [
                np.ones(len(chosen)) if own is None else own[chosen]
                for own, chosen in zip(self._weight, rows, strict=True)
            ]
            weight = self.move(np.stack(weights)[:, :, None])
        return Batch(tuple(rows), x, self.move(np.stack(target)), weight)


def _relative_weight(weight: np.ndarray | None, y: np.ndarray | None) -> np.ndarray | None:
    """Return case weights over their mean, or that of their class; None where all become 1."""
    if weight is None:
        return None
    y = np.zeros(weight.size, dtype=np.int64) if y is None else y
    mean = np.bincount(y, weights=weight) / np.maximum(np.bincount(y), 1)
    if not mean[y].all():
        raise InputError(
            "All rows of one class have the weight zero.", "Leave them out, or weight some of them."
        )
    relative = weight / mean[y]
    return None if np.all(relative == 1.0) else relative


class PlainRule:
    """The mean loss alone."""

    def __call__(self, network: Network, batch: Batch) -> Slope:
        """Return the gradient of the mean loss of each model."""

        def step(nets: Network, x: Array, target: Array, weight: Array | None) -> tuple[Array, ...]:
            done = forward(nets, x)
            loss, slope = loss_slope(done.logits, target, weight)
            return (loss, *parameter_gradient(nets, x, done, slope).arrays)

        loss, *gradient = by_models(network, (batch.x, batch.target, batch.weight), step)
        return Slope(Network.of(gradient), {"loss": to_numpy(loss)})

    def warn(self, history: Mapping[str, np.ndarray], model: int) -> None:
        """Do nothing: there is nothing to warn about."""


class NeuralNetwork(Classifier):
    """Base of the methods that are nets: minibatches, Adam, history, saving, batched fits.

    A subclass defines the gradient by ``_rule``. Models of one class with the same ``structure``
    are trained together by ``fit_batch``; each draws its weights, rows and noise from its own
    ``random_state``, so that the model is the same, to rounding, alone or in a batch.

    Attributes
    ----------
    network_ : Network
        Weights and biases, float64, with a model axis of length 1.
    history_ : dict of str to float64 ndarray
        One entry every ``record_every`` steps and at the end: ``step``, ``loss`` and the method's
        own facts about that minibatch.
    """

    task: ClassVar[frozenset[Task]] = frozenset({"binary", "multiclass"})
    backends: ClassVar[tuple[str, ...]] = ("numpy", "cupy")
    # Weights apply to the loss of drawn rows: repeating a row is another draw.
    weights_are_counts: ClassVar[bool] = False
    takes_blocks: ClassVar[bool] = True
    batched: ClassVar[bool] = True
    plain: ClassVar[str] = "nn"
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
    # Entries of the history without a lower log loss on validation rows, after which a fit ends.
    early_stopping: int | None = None

    network_: Network
    history_: dict[str, np.ndarray]

    @property
    def layers(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        if isinstance(self.hidden, Sequence):
            return tuple(self.hidden)
        return (self.hidden,)

    def structure(self) -> tuple[tuple[str, Any], ...]:
        """Return the parameters that the models of a batch must have in common; hashable."""
        parameters = {**self.get_params(deep=False), "hidden": self.layers}
        return tuple(sorted((k, value) for k, value in parameters.items() if k not in self.varies))

    def check(self) -> None:
        """Raise ConfigError for invalid parameters."""
        layers = self.hidden if isinstance(self.hidden, list | tuple) else [self.hidden]
        sizes = all(isinstance(width, int) and width >= 1 for width in layers)
        self.require("hidden", sizes, "the width of the hidden layer, or a list of widths")
        self.require("learning_rate", 0 <= self.learning_rate < np.inf, "a number of 0 or more")
        self.require("batch_size", self.batch_size >= 2, "2 or more")
        self.require("steps", self.steps >= 1, "1 or more")
        self.require("record_every", self.record_every >= 1, "1 or more")
        check_stopping(self)
        self.require("dtype", self.dtype in ("float32", "float64"), "float32 or float64")

    @classmethod
    def fit_batch(
        cls,
        models: Sequence[Self],
        data: Sequence[Mapping[str, Any]],
        *,
        progress: Progress | None = None,
    ) -> None:
        """Fit models of equal ``structure`` at once, each on its own data.

        As in `Estimator.fit_batch`. Tables may differ in their rows, but not in their number of
        features or classes (DataError); models with the same X object share its copy. ConfigError
        is raised for invalid parameters and different structures. On NumPy a step costs about what
        the models cost one by one; on a device it is one program for all of them. Of a Dask array X
        those rows are brought here, in one pass, that the minibatches will draw: O(d steps
        batch_size) memory, whatever n.
        """
        check_alike(models)
        tables = [
            cls._prepare(model._validate(keywords))
            for model, keywords in zip(models, data, strict=True)
        ]
        n_features, n_classes = _common_shape(tables)
        leader = models[0]
        sizes = (n_features, *leader.layers, n_classes)
        products = sum(a * b for a, b in itertools.pairwise(sizes))
        work = 6.0 * leader.batch_size * products * len(models)
        backend = choose_backend(leader.backend, work)
        tables = [
            gather_rows(table, model._find_drawn(table["y"]), model.dtype)
            if is_collection(table["X"])
            else table
            for model, table in zip(models, tables, strict=True)
        ]
        store = Tables(tables, n_classes, leader.dtype, backend, leader.balanced)
        samplers = [
            model._start_drawing(table["y"]) for model, table in zip(models, tables, strict=True)
        ]
        drawn = [
            draw_network(sizes, derive_generator("network", "weights", model.random_state))
            for model in models
        ]
        network = Network.of(
            [store.move(np.concatenate(layer)) for layer in zip(*drawn, strict=True)]
        )
        optimiser = Adam(network.arrays, store.stack([model.learning_rate for model in models]))
        rule = cls._rule(models, tables, store)
        for model, table in zip(models, tables, strict=True):
            model._keep(table)
        stops = [
            model._begin_stop(table.get("validation"))
            for model, table in zip(models, tables, strict=True)
        ]
        records: list[dict[str, np.ndarray]] = []
        for step in range(1, leader.steps + 1):
            slope = rule(network, store.take([sampler.draw() for sampler in samplers]))
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
                for position, (model, watched) in enumerate(zip(models, stops, strict=True)):
                    if watched is not None and not watched.is_over:
                        net = take_model(network, position)
                        watched.add(np.concatenate(open_rows(watched.X).map(_predict_block, net)))
                        if watched.best == len(watched.losses):
                            model.network_ = net
                if all(watched is not None and watched.is_over for watched in stops):
                    break
        for position, (model, watched) in enumerate(zip(models, stops, strict=True)):
            if watched is None:
                model.network_ = take_model(network, position)
            # What others of the batch needed beyond its own end is not this model's.
            own = records if watched is None else records[: len(watched.losses)]
            model.history_ = {
                key: np.asarray([record[key][position] for record in own], dtype=np.float64)
                for key in own[0]
            }
            rule.warn(model.history_, position)

    def _validate(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data with rows and labels as arrays of numbers and codes."""
        weight = data.get("sample_weight")
        X, codes, mass, groups = self.read_training(
            data["X"], data["y"], weight, data.get("sensitive_features")
        )
        given = {} if groups is None else {"sensitive_features": groups}
        weight = None if weight is None else mass
        return {**data, **given, "X": X, "y": codes, "sample_weight": weight}

    def _start_drawing(self, y: np.ndarray) -> BalancedRows:
        return BalancedRows(
            y if self.balanced else np.zeros_like(y),
            self.batch_size,
            replacement=self.replacement,
            generator=derive_generator("network", "rows", self.random_state),
        )

    def _find_drawn(self, y: np.ndarray) -> np.ndarray:
        """Return which rows the minibatches of a fit draw, bool (n_samples,)."""
        drawn, sampler = np.zeros(len(y), dtype=bool), self._start_drawing(y)
        for _ in range(self.steps):
            drawn[sampler.draw()] = True
        return drawn

    def _begin_stop(self, validation: Part | None) -> Watch | None:
        """Return the watch of a fit with validation rows, whose classes count as in training."""
        begun = watch(self, validation)
        if begun is not None:
            if self.balanced:
                total = np.bincount(begun.y, weights=begun.weight)
                begun.weight /= np.maximum(total, np.finfo(float).tiny)[begun.y]
            rows = self._project(begun.X)
            begun.X = hold(rows)
        return begun

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
        models: Sequence[Self],  # noqa: ARG003 - subclasses use them
        data: Sequence[Mapping[str, Any]],  # noqa: ARG003
        tables: Tables,  # noqa: ARG003
    ) -> Rule:
        """Return the gradient rule of these models."""
        return PlainRule()

    def _keep(self, data: Mapping[str, Any]) -> None:
        """Keep what prediction needs besides the net."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return class probabilities, float64, shape (n_samples, n_classes).

        A row's probabilities do not depend on the other rows: logits are computed in float64,
        whatever the training's dtype, and rounded to 24 binary digits.
        """
        rows = self._project(self.validate_rows(X))
        return np.asarray(softmax(predict_logits(rows, self.network_)))

    def _project(self, X: np.ndarray) -> np.ndarray:
        """Return the net's inputs for rows of a prediction."""
        return X

    def get_state(self) -> State:
        """Return the net and the history."""
        return State(arrays=pack_training(self))

    def set_state(self, state: State) -> None:
        """Restore the net and the history."""
        unpack_training(self, state.arrays)


def pack_training(model: Any) -> dict[str, np.ndarray]:
    """Return the parameters of ``network_`` and the columns of ``history_``, by their names."""
    arrays = {f"parameter_{i}": array for i, array in enumerate(model.network_.arrays)}
    return arrays | {f"history_{key}": column for key, column in model.history_.items()}


def unpack_training(model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Restore ``network_`` and ``history_`` from what `pack_training` returned."""
    count = sum(key.startswith("parameter_") for key in arrays)
    model.network_ = Network.of([arrays[f"parameter_{i}"] for i in range(count)])
    model.history_ = {
        key.removeprefix("history_"): array
        for key, array in arrays.items()
        if key.startswith("history_")
    }


def predict_logits(rows: np.ndarray, network: Network) -> np.ndarray:
    """Return the logits of a net's inputs, float64, shape (n_samples, n_classes).

    They have the 24 binary digits of 32 bits: the last ones of a product depend on a row's place in
    it, and equal rows are to be scored alike.
    """
    blocks = (
        # Block by block, so that the embeddings of many texts are never copied at once.
        rows[start : start + PREDICTION_ROWS].astype(np.float64, copy=False)
        for start in range(0, len(rows), PREDICTION_ROWS)
    )
    parts = [forward(network, block).logits[0] for block in blocks]
    logits = np.concatenate(parts) if parts else np.zeros((0, network.bias[-1].shape[-1]))
    mantissa, exponent = np.frexp(logits)
    rounded: np.ndarray = np.ldexp(np.rint(np.ldexp(mantissa, 24)), exponent - 24)
    return rounded


def _predict_block(block: Block, network: Network) -> np.ndarray:
    return predict_logits(block.X, network)


def take_model(network: Network, position: int) -> Network:
    """Return the net of one model as float64 on NumPy, with a model axis of length 1."""
    own = slice(position, position + 1)
    return Network.of([to_numpy(array).astype(np.float64)[own].copy() for array in network.arrays])


def check_alike(models: Sequence[Any]) -> None:
    """Refuse models of a batch whose parameters are invalid, or whose structures differ."""
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
    shapes = {(table["X"].shape[1], int(np.max(table["y"])) + 1) for table in data}
    if len(shapes) > 1:
        raise DataError(
            f"The tables of a batch have these features and classes: {sorted(shapes)}.",
            "Fit tables of different shape in separate batches.",
        )
    return shapes.pop()
