"""An adversary that predicts the group from a classifier's score, and the step that misleads it.

    s = σ((1 + |c|) u),   ẑ = softmax(φ(s, y) U + b),   u = logit of class 1

Every array has a leading model axis, as in `network`. All of it is array code over one namespace of
the array API.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.models.neural.network import cross_entropy
from fairfrontier.runtime.arrays import array_namespace

Array = Any

CRITERIA = ("parity", "equal_opportunity", "equalized_odds")
# Logit of a group that a model's table does not have; finite, since 0 · ∞ is NaN.
ABSENT = -1e30


@dataclass(frozen=True, eq=False)
class GroupAdversary:
    """The parameters of adversaries of equal shape, or their gradients.

    c, shape (n_models, 1, 1); U, shape (n_models, n_inputs, n_groups); b, shape (n_models, 1,
    n_groups).
    """

    scale: Array
    weight: Array
    bias: Array

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        """All parameters."""
        return (self.scale, self.weight, self.bias)


def count_inputs(criterion: str) -> int:
    """Return the number of inputs of the adversary per row."""
    return 3 if criterion == "equalized_odds" else 1


def draw_adversary(
    n_inputs: int, n_groups: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw one adversary: c = 1, Glorot-uniform U, b = 0; float64, with a model axis of 1."""
    bound = np.sqrt(6.0 / (n_inputs + n_groups))
    weight = generator.uniform(-bound, bound, size=(1, n_inputs, n_groups))
    return np.ones((1, 1, 1)), weight, np.zeros((1, 1, n_groups))


def evaluate_adversary(
    adversary: GroupAdversary,
    logits: Array,
    target: Array,
    group: Array,
    *,
    criterion: str,
    weight: Array | None = None,
    absent: Array | None = None,
) -> tuple[Array, Array, GroupAdversary]:
    """Return the adversary's loss, its slope in the logits, and its gradient in the parameters.

    L_A = mean cross-entropy of ẑ against the group, where φ(s, y) is

    - ``parity``: s, so that the score is to carry no information about the group;
    - ``equal_opportunity``: s, and the mean is over rows of class 1;
    - ``equalized_odds``: (s, s y, s (1 − y)), so that it is to carry none beyond the label.

    Parameters
    ----------
    adversary : GroupAdversary
    logits : array of shape (n_models, n, 2)
        u is the second less the first.
    target, group : arrays of shape (n_models, n, 2) and (n_models, n, n_groups)
        One-hot labels and groups.
    criterion : {"parity", "equal_opportunity", "equalized_odds"}
    weight : array of shape (n_models, n, 1), optional
        Case weights.
    absent : array of shape (n_models, 1, n_groups), optional
        Added to the adversary's logits: 0, or ``ABSENT`` for groups that a model does not have.

    Returns
    -------
    loss : array of shape (n_models,)
        L_A; 0 under ``equal_opportunity`` for a minibatch without a row of class 1.
    slope : array of shape (n_models, n, 2)
        ∂L_A / ∂ logits.
    gradient : GroupAdversary
        ∂L_A / ∂(c, U, b).

    References
    ----------
    B. H. Zhang, B. Lemoine, M. Mitchell. Mitigating unwanted biases with adversarial learning.
    AIES 2018, Section 3 and the experiment on Adult.
    """
    xp = array_namespace(logits)
    steepness = 1.0 + xp.abs(adversary.scale)
    score = logits[..., 1:] - logits[..., :1]
    s = 0.5 + 0.5 * xp.tanh(0.5 * steepness * score)
    positive = target[..., 1:]
    inputs = s
    if criterion == "equalized_odds":
        inputs = xp.concat([s, s * positive, s * (1.0 - positive)], axis=2)
    prediction = inputs @ adversary.weight + adversary.bias
    if absent is not None:
        prediction = prediction + absent
    losses, slope = cross_entropy(prediction, group)
    share = _shares(positive if criterion == "equal_opportunity" else None, weight, losses)
    loss = xp.sum(losses * share[..., 0], axis=1)
    slope = slope * share
    back = slope @ xp.matrix_transpose(adversary.weight)
    down = back[..., :1]
    if criterion == "equalized_odds":
        down = down + positive * back[..., 1:2] + (1.0 - positive) * back[..., 2:]
    down = down * s * (1.0 - s)
    gradient = GroupAdversary(
        xp.sign(adversary.scale) * xp.sum(down * score, axis=1, keepdims=True),
        xp.matrix_transpose(inputs) @ slope,
        xp.sum(slope, axis=1, keepdims=True),
    )
    down = down * steepness
    return loss, xp.concat([-down, down], axis=2), gradient


def _shares(rows: Array | None, weight: Array | None, like: Array) -> Array:
    """Return the share of each row in the mean, (n_models, n, 1)."""
    xp = array_namespace(like)
    share = xp.ones_like(like)[..., None] if rows is None else rows
    count = xp.sum(share, axis=1, keepdims=True)
    share = share / xp.where(count > 0, count, xp.ones_like(count))
    return share if weight is None else share * weight


def project_gradient(
    plain: Sequence[Array], fair: Sequence[Array], strength: Array, *, whole: bool = True
) -> list[Array]:
    """Return the predictor's step: its own gradient without what would help the adversary.

    g = ∇L_P − proj_{∇L_A} ∇L_P − α ∇L_A,   so that ⟨g, ∇L_A⟩ = −α ‖∇L_A‖²

    ``plain`` and ``fair`` are ∇L_P and ∇L_A in each array of the predictor's parameters;
    ``strength`` (α) has shape (n_models, 1, 1). The projection is over all parameters together if
    ``whole``, else in each array separately. g is ∇L_P where ∇L_A is 0. Zhang et al., AIES 2018,
    (1).
    """
    along = [_inner(p, f) for p, f in zip(plain, fair, strict=True)]
    size = [_inner(f, f) for f in fair]
    if whole:
        along, size = [sum(along[1:], along[0])] * len(along), [sum(size[1:], size[0])] * len(size)
    return [
        p - (_divide(a, s) + strength) * f
        for p, f, a, s in zip(plain, fair, along, size, strict=True)
    ]


def _inner(left: Array, right: Array) -> Array:
    xp = array_namespace(left)
    return xp.sum(left * right, axis=(1, 2), keepdims=True)


def _divide(part: Array, size: Array) -> Array:
    """Return part / size, 0 where the size is 0 or rounds to it."""
    xp = array_namespace(part)
    positive = size > 0
    divisor = xp.where(positive, size, xp.ones_like(size))
    return xp.where(positive, part / divisor, xp.zeros_like(part))
