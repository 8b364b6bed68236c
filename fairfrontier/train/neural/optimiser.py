"""Adam for many models at once, each with its own rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import device

from fairfrontier.runtime.arrays import array_namespace

Array = Any


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
