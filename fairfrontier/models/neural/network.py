"""Multilayer perceptrons, many at once: forward and gradients in closed form.

    a_1 = x W_1 + b_1,   h_l = max(a_l, 0),   a_{l+1} = h_l W_{l+1} + b_{l+1},   logits = a_L

Every array has a leading model axis, so that the nets of a sweep are trained together. The code is
written against the array API: NumPy, CuPy or array-api-strict.

Adam for many models at once, each with its own rate.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace

Array = Any

# Entries of a block's widest layer on a CPU: 512 KiB of float32, so that a pass stays in cache.
BLOCK_ENTRIES = 1 << 17
SMALLEST_BLOCK = 64


@dataclass(frozen=True, eq=False)
class Network:
    """The parameters of nets of equal shape, or gradients in the same layout.

    ``weight`` is W_1, …, W_L, shapes (n_models, d_in, d_out), and ``bias`` b_1, …, b_L,
    (n_models, 1, d_out).
    """

    weight: tuple[Array, ...]
    bias: tuple[Array, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        # What is cached below holds a module, which cannot be copied or sent.
        return Network, (self.weight, self.bias)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All parameters, weights first."""
        return (*self.weight, *self.bias)

    @cached_property
    def namespace(self) -> Any:
        """The namespace of the parameters; an attack uses it thousands of times."""
        return array_namespace(*self.arrays)

    @cached_property
    def back(self) -> tuple[Array, ...]:
        """The transposed weights."""
        return tuple(self.namespace.matrix_transpose(weight) for weight in self.weight)

    @property
    def widest(self) -> int:
        """Width of the widest layer, the logits included."""
        return max(int(weight.shape[2]) for weight in self.weight)

    @classmethod
    def of(cls, arrays: Sequence[Array]) -> Network:
        """Return the network with these parameters, in the order of ``arrays``."""
        half = len(arrays) // 2
        return cls(tuple(arrays[:half]), tuple(arrays[half:]))

    def take(self, models: slice) -> Network:
        """Return the nets of a range of models."""
        return Network.of([array[models, ...] for array in self.arrays])


@dataclass(frozen=True, eq=False)
class Pass:
    """A forward pass: h_1, …, h_{L−1}, their gates (1 where h_l > 0, else 0) and the logits.

    Shapes (n_models, n, d_l) and (n_models, n, n_classes); gates have the dtype of h_l.
    """

    hidden: tuple[Array, ...]
    gate: tuple[Array, ...]
    logits: Array


def draw_network(sizes: Sequence[int], generator: np.random.Generator) -> list[np.ndarray]:
    """Draw one net: Glorot-uniform weights, biases .1.

    W_l ~ U(−c, c) with c = √(6 / (d_in + d_out)). ``sizes`` are d_0, …, d_L: features, hidden
    layers, classes. Returns float64 arrays as ``Network.arrays``, with a model axis of length 1.

    References
    ----------
    X. Glorot, Y. Bengio. Understanding the difficulty of training deep feedforward neural
    networks. AISTATS 2010, (16).
    """
    weight, bias = [], []
    for d_in, d_out in itertools.pairwise(sizes):
        bound = np.sqrt(6.0 / (d_in + d_out))
        weight.append(generator.uniform(-bound, bound, size=(1, d_in, d_out)))
        bias.append(np.full((1, 1, d_out), 0.1))
    return weight + bias


def enter(network: Network, x: Array) -> Array:
    """Return x W_1 + b_1, shape (n_models, n, d_1), for x of shape (n_models, n, d) or (n, d)."""
    first = x @ network.weight[0]
    first += network.bias[0]
    return first


def forward_from(network: Network, first: Array) -> Pass:
    """Run the nets from a_1 = x W_1 + b_1, (n_models, n, d_1), which is overwritten."""
    return _run(network, first, itertools.repeat(None))


def forward(network: Network, x: Array) -> Pass:
    """Run the nets on rows x of shape (n_models, n, d), or (n, d) for the same rows in all.

    O(n_models · n · Σ d_in d_out) operations; memory for every hidden layer, twice.
    """
    return forward_from(network, enter(network, x))


def forward_dropped(network: Network, x: Array, masks: Sequence[Array]) -> Pass:
    """Run the nets on rows with hidden units dropped.

    h_l = max(a_l, 0) ∘ m_l,   m_l = 0 or 1 / (share kept)

    ``masks`` are m_1, …, m_{L−1}, shapes (n_models, n, d_l). The gates of the pass contain them, so
    that backward passes need no masks.

    References
    ----------
    N. Srivastava, G. Hinton, A. Krizhevsky, I. Sutskever, R. Salakhutdinov. Dropout: a simple way
    to prevent neural networks from overfitting. JMLR 15, 2014.
    """
    return _run(network, enter(network, x), masks)


def _run(network: Network, value: Array, masks: Iterable[Array | None]) -> Pass:
    xp = network.namespace
    hidden, gates = [], []
    for weight, bias, mask in zip(network.weight[1:], network.bias[1:], masks, strict=False):
        # A float gate costs one conversion and serves both ways; maximum() and where() are slower.
        gate = xp.astype(value > 0, value.dtype)
        gate = gate if mask is None else mask * gate
        value *= gate
        hidden.append(value)
        gates.append(gate)
        value = value @ weight
        value += bias
    return Pass(tuple(hidden), tuple(gates), value)


def first_gradient(network: Network, done: Pass, slope: Array) -> Array:
    """Return ∂/∂a_1, shape (n_models, n, d_1), for ∂/∂logits = slope; nothing else is computed."""
    for back, gate in zip(reversed(network.back[1:]), reversed(done.gate), strict=True):
        slope = slope @ back
        slope *= gate
    return slope


def input_gradient(network: Network, done: Pass, slope: Array) -> Array:
    """Return the gradient with respect to the rows, (n_models, n, d), for ∂/∂logits = slope."""
    return first_gradient(network, done, slope) @ network.back[0]


def parameter_gradient(network: Network, x: Array, done: Pass, slope: Array) -> Network:
    """Return the gradient with respect to the parameters, summed over the rows x of the pass.

    ``slope`` is ∂ objective / ∂ logits of each row, shape (n_models, n, n_classes).
    """
    xp = network.namespace
    weight: list[Array] = []
    bias: list[Array] = []
    for layer in reversed(range(len(network.weight))):
        below = done.hidden[layer - 1] if layer else x
        weight.append(xp.matrix_transpose(below) @ slope)
        bias.append(xp.sum(slope, axis=1, keepdims=True))
        if layer:
            slope = slope @ network.back[layer]
            slope *= done.gate[layer - 1]
    return Network(tuple(reversed(weight)), tuple(reversed(bias)))


def softmax(logits: Array) -> Array:
    """Return class probabilities, the shape of the logits; rows sum to 1 to rounding."""
    xp = array_namespace(logits)
    power = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return power / xp.sum(power, axis=-1, keepdims=True)


def cross_entropy(logits: Array, target: Array) -> tuple[Array, Array]:
    """Return the softmax cross-entropy of each row and its gradient.

    ℓ = log Σ_k exp(a_k) − a_y,   ∂ℓ/∂a = softmax(a) − e_y

    Logits and the one-hot target e_y have shape (..., n_classes), the loss (...).
    """
    xp = array_namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    power = xp.exp(shifted)
    total = xp.sum(power, axis=-1, keepdims=True)
    loss = xp.log(total[..., 0]) - xp.sum(shifted * target, axis=-1)
    return loss, power / total - target


def blocks(like: Array, n_rows: int, widest: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices (models, rows) to process at a time, for rows that do not depend on each other.

    ``like``, (n_models, ...), gives the number of models and the backend; ``widest`` is the width
    of the widest layer. On NumPy activations of a block stay in cache: several small models, or
    some rows of a large one. Elsewhere everything is one block.
    """
    n_models = int(like.shape[0])
    if not array_api_compat.is_numpy_array(like):
        yield slice(0, n_models), slice(0, n_rows)
        return
    rows = max(SMALLEST_BLOCK, BLOCK_ENTRIES // widest)
    # Equal blocks: a small last one would cost as many calls as a full one.
    n_blocks = -(-n_rows // rows)
    rows = -(-n_rows // n_blocks)
    models = max(1, BLOCK_ENTRIES // (rows * widest)) if n_blocks == 1 else 1
    for first in range(0, n_models, models):
        for start in range(0, n_rows, rows):
            yield (
                slice(first, min(first + models, n_models)),
                slice(start, min(start + rows, n_rows)),
            )


def loss_slope(logits: Array, target: Array, weight: Array | None) -> tuple[Array, Array]:
    """Return the mean loss of each model, (n_models,), and its gradient in the logits."""
    xp = array_namespace(logits)
    loss, slope = cross_entropy(logits, target)
    if weight is not None:
        loss *= weight[..., 0]
        slope *= weight
    slope *= 1.0 / slope.shape[1]
    return xp.mean(loss, axis=1), slope


def by_models(
    network: Network, arrays: Sequence[Array | None], function: Callable[..., tuple[Array, ...]]
) -> tuple[Array, ...]:
    """Apply a function to the nets and arrays of some models at a time, and join the results.

    ``function`` gets (network, *arrays) of a range of models and returns arrays with that model
    axis. The first array has shape (n_models, n, ...); others may be None. On NumPy, as many models
    at a time as keep activations in cache; elsewhere all at once.
    """
    xp, n_models = array_namespace(arrays[0]), int(network.weight[0].shape[0])
    many = n_models
    if isinstance(arrays[0], np.ndarray):
        many = max(1, BLOCK_ENTRIES // (arrays[0].shape[1] * network.widest))
    if many >= n_models:
        return function(network, *arrays)
    results = []
    for first in range(0, n_models, many):
        models = slice(first, min(first + many, n_models))
        taken = [None if array is None else array[models, ...] for array in arrays]
        results.append(function(network.take(models), *taken))
    return tuple(xp.concat(parts, axis=0) for parts in zip(*results, strict=True))


class Adam:
    """The steps of Adam.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,
    step = α · m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε)

    ``like``, arrays of shapes (n_models, ...), are the parameters, for shapes, dtype and backend;
    the learning rate α may have shape (n_models, 1, 1). The moments are stored without their
    factors 1 − β, which saves a pass over the arrays.

    References
    ----------
    D. P. Kingma, J. Ba. Adam: a method for stochastic optimization. ICLR 2015, Algorithm 1.
    """

    def __init__(
        self,
        like: Sequence[Array],
        learning_rate: Any,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
    ) -> None:
        self._xp = array_namespace(*like)
        self._rate, self._beta1, self._beta2, self._epsilon = learning_rate, beta1, beta2, epsilon
        self._first = [self._xp.zeros_like(array) for array in like]
        self._second = [self._xp.zeros_like(array) for array in like]
        # A number while all models have made the same steps, else one per model.
        self._count: Any = 0

    def step(self, gradients: Sequence[Array], active: np.ndarray | None = None) -> list[Array]:
        """Return the steps *along* the gradients: add them to ascend, subtract to descend.

        Models that are not ``active``, bool of shape (n_models,), keep their moments and get zeros.
        """
        if active is not None and not active.all():
            return self._masked_step(gradients, active)
        self._count = self._count + 1
        return self._advance(gradients, self._first, self._second)

    def _advance(
        self, gradients: Sequence[Array], first: Sequence[Array], second: Sequence[Array]
    ) -> list[Array]:
        xp, steps = self._xp, []
        decay = ((1 - self._beta2) / (1 - self._beta2**self._count)) ** 0.5
        share = (1 - self._beta1) / (1 - self._beta1**self._count) / decay
        small = self._epsilon / decay
        if not isinstance(self._count, int):
            small, share = (self._move(number, gradients[0]) for number in (small, share))
        for gradient, m, v in zip(gradients, first, second, strict=True):
            m *= self._beta1
            m += gradient
            v *= self._beta2
            v += gradient * gradient
            scale = xp.sqrt(v)
            scale += small
            made = m / scale
            made *= self._rate * share
            steps.append(made)
        return steps

    def _masked_step(self, gradients: Sequence[Array], active: np.ndarray) -> list[Array]:
        xp = self._xp
        before = self._count
        counts = np.broadcast_to(np.reshape(before, (-1, 1, 1)), (len(active), 1, 1))
        old = [(m + 0.0, v + 0.0) for m, v in zip(self._first, self._second, strict=True)]
        # The moments of inactive models are restored; their counts must not be 0 meanwhile.
        self._count = counts + 1
        steps = self._advance(gradients, self._first, self._second)
        self._count = counts + active[:, None, None]
        keep = xp.asarray(active[:, None, None], device=device(gradients[0]))
        for position, (m, v) in enumerate(old):
            self._first[position] = xp.where(keep, self._first[position], m)
            self._second[position] = xp.where(keep, self._second[position], v)
            steps[position] = xp.where(keep, steps[position], xp.zeros_like(steps[position]))
        return steps

    def _move(self, values: np.ndarray, like: Array) -> Array:
        return self._xp.asarray(values, dtype=like.dtype, device=device(like))
