"""Losses of a label and a prediction in [0, 1], scaled so that they are 1-Lipschitz."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, log1p
from typing import Any

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

Array = Any
Function = Callable[[Array, Array], Array]

# Grid points of labels, and of predictions, on which a user's function is checked.
POINTS = 101


@dataclass(frozen=True)
class Loss:
    """A loss ℓ: [0, 1] × [0, 1] → [0, 1] with |ℓ(y, u) − ℓ(y', u')| ≤ |y − y'| + |u − u'|.

    ``value`` is ℓ(y, u) of broadcastable arrays, ``scale`` times the loss as it is usually written.
    ``sharpness`` is C of the logistic loss, for which p = σ(C(2u − 1)), and 0 for the others.
    """

    name: str
    value: Function
    scale: float = 1.0
    sharpness: float = 0.0


def square() -> Loss:
    """Return (y − u)² / 2, the paper's square loss; the mean squared error is twice its mean."""
    return Loss("square", lambda y, u: (y - u) ** 2 / 2.0)


def absolute() -> Loss:
    """Return |y − u|."""
    return Loss("absolute", lambda y, u: abs(y - u))


def quantile(tau: float = 0.5) -> Loss:
    """Return τ(y − u)₊ + (1 − τ)(u − y)₊, which the τ-quantile minimises; it is not scaled."""
    if not 0 < tau < 1:
        raise ConfigError(f"The quantile τ is {tau!r}.", "Give a number between 0 and 1.")
    return Loss("quantile", lambda y, u: (tau - 0.5) * (y - u) + abs(y - u) / 2.0)


def logistic(sharpness: float = 5.0) -> Loss:
    """Return log(1 + exp(−C(2y − 1)(2u − 1))) / (2 log(1 + e^C)), for labels 0 and 1.

    With p = σ(C(2u − 1)) it is −log p of the label, divided by 2 log(1 + e^C), so probabilities lie
    between σ(−C) and σ(C): .0067 and .9933 for C = 5.
    """
    if not 0 < sharpness <= 50:
        raise ConfigError(f"The sharpness C is {sharpness!r}.", "Give a number in (0, 50].")
    divisor = 2.0 * (sharpness + log1p(exp(-sharpness)))

    def value(y: Array, u: Array) -> Array:
        margin = sharpness * (2.0 * y - 1.0) * (2.0 * u - 1.0)
        return _softplus(-margin) / divisor

    return Loss("logistic", value, 1.0 / divisor, sharpness)


def poisson(offset: float = 0.05) -> Loss:
    """Return κ((u − y) − (y + κ) log((u + κ) / (y + κ))), half a Poisson deviance, scaled.

    For counts k ∈ [lo, hi] with lo > 0 and κ = lo / (hi − lo), the half deviance
    μ − k − k log(μ / k) is (hi − lo) / κ times it. Where lo = 0 the deviance is unbounded: an
    offset κ > 0 adds κ(hi − lo) to counts and rates alike. The factor κ bounds the slope in u by 1.
    """
    if not 0 < offset < float("inf"):
        raise ConfigError(f"The offset κ is {offset!r}.", "Give a number above 0.")

    def value(y: Array, u: Array) -> Array:
        xp = array_namespace(y, u)
        return offset * ((u - y) - (y + offset) * xp.log((u + offset) / (y + offset)))

    return Loss("poisson", value, offset)


LOSSES: dict[str, Callable[..., Loss]] = {
    "absolute": absolute,
    "logistic": logistic,
    "poisson": poisson,
    "quantile": quantile,
    "square": square,
}
BUILT_IN = frozenset(LOSSES)
# The parameter of the losses that have one.
SHAPES: Mapping[str, str] = {"logistic": "sharpness", "poisson": "offset", "quantile": "tau"}


def define_loss(name: str, value: Function, *, lipschitz: float, xp: Any) -> Loss:
    """Make a loss of a user's function, divided so that it is 1-Lipschitz and at most 1.

    Parameters
    ----------
    name : str
        Its short name, for ``register_loss``.
    value : callable
        ℓ(y, u) ≥ 0 for arrays of labels and predictions in [0, 1].
    lipschitz : float
        A bound on the slope in either argument.
    xp : module
        Namespace in which the function is checked, e.g. ``numpy``.

    Raises
    ------
    ConfigError
        When the function is negative or not finite somewhere, or steeper than ``lipschitz``.

    Notes
    -----
    The bound is checked on a grid of 101 × 101 points, which proves nothing between them.
    """
    if not 0 < lipschitz < float("inf"):
        raise ConfigError(f"The Lipschitz bound is {lipschitz!r}.", "Give a number above 0.")
    points = xp.linspace(0.0, 1.0, POINTS, dtype=xp.float64)
    values = value(points[:, None], points[None, :])
    if values.shape != (POINTS, POINTS) or not bool(xp.all(xp.isfinite(values))):
        raise ConfigError(
            f"The loss {name!r} is not finite on [0, 1] × [0, 1], or not a function of two arrays.",
            "Write it with functions of arrays, and bound it.",
        )
    if float(xp.min(values)) < 0:
        raise ConfigError(f"The loss {name!r} is negative somewhere.", "Add a constant to it.")
    steps = [values[1:, :] - values[:-1, :], values[:, 1:] - values[:, :-1]]
    steepest = max(float(xp.max(xp.abs(step))) for step in steps) * (POINTS - 1)
    if steepest > lipschitz * (1.0 + 1e-9):
        raise ConfigError(
            f"The loss {name!r} has slope {steepest:.3g}, above its bound {lipschitz:.3g}.",
            f"Give a bound of at least {steepest:.3g}.",
        )
    scale = 1.0 / max(lipschitz, float(xp.max(values)))
    return Loss(name, lambda y, u: scale * value(y, u), scale)


def register_loss(loss: Loss) -> Loss:
    """Register a loss by its name, so that YAML and saved models can refer to it."""
    if loss.name in BUILT_IN:
        raise ConfigError(f"The name {loss.name!r} is taken.", "Give the loss another one.")
    LOSSES[loss.name] = lambda: loss
    return loss


def find_loss(name: str, shape: float | None = None) -> Loss:
    """Return the loss of a built-in or registered name.

    ``shape`` is τ of the quantile, C of the logistic and κ of the Poisson loss, by default .5, 5
    and .05. ConfigError for an unknown name, and for a shape where the loss has none.
    """
    if name not in LOSSES:
        raise ConfigError(f"There is no loss {name!r}.", nearest(name, LOSSES))
    if shape is None:
        return LOSSES[name]()
    if name not in SHAPES:
        raise ConfigError(f"The loss {name!r} has no shape.", f"{', '.join(SHAPES)} have one.")
    return LOSSES[name](shape)


def scale_labels(y: Array, low: float, high: float) -> Array:
    """Return (y − low) / (high − low), which lies in [0, 1].

    ConfigError unless low < high, both finite; DataError for labels outside [low, high] or NaN.
    """
    if not -float("inf") < low < high < float("inf"):
        raise ConfigError(f"The label range is [{low}, {high}].", "Give lowest < highest.")
    xp = array_namespace(y)
    if not bool(xp.all(xp.isfinite(y))):
        raise DataError("A label is NaN or infinite.", "Leave its row out.")
    if float(xp.min(y)) < low or float(xp.max(y)) > high:
        raise DataError(
            f"Labels lie between {float(xp.min(y)):g} and {float(xp.max(y)):g}, outside the "
            f"range [{low:g}, {high:g}].",
            "Give a label_range that contains them, or clip them.",
        )
    return (y - low) / (high - low)


def _softplus(x: Array) -> Array:
    xp = array_namespace(x)
    return xp.where(x > 0, x, xp.zeros_like(x)) + xp.log1p(xp.exp(-xp.abs(x)))
