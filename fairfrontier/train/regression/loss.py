"""Losses of a label and a prediction in [0, 1], scaled so that they are 1-Lipschitz."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, log, log1p
from typing import Any

from fairfrontier.runtime.arrays import array_namespace
from fairfrontier.runtime.errors import ConfigError, DataError, nearest

Array = Any
Function = Callable[[Array, Array], Array]

# A function of the user's is tried on a grid of so many labels and predictions.
TRIED = 101


@dataclass(frozen=True)
class Loss:
    """A loss ℓ: [0, 1] × [0, 1] → [0, 1] with |ℓ(y, u) − ℓ(y', u')| ≤ |y − y'| + |u − u'|.

    Attributes
    ----------
    name : str
        Short name.
    value : callable
        ℓ(y, u) of broadcastable arrays.
    slope : callable or None
        ∂ℓ/∂u of the same arrays; a subgradient where ℓ has a kink. None where it is not known.
    lipschitz : float
        Largest slope in u, at most 1.
    largest : float
        Largest value, at most 1.
    scale : float
        ℓ is ``scale`` times the loss as it is usually written, on labels in [0, 1].
    power : float
        Labels and predictions on [lo, hi] have (hi − lo)^power times the usual loss of the scaled
        ones: 2 for the square, 1 for the absolute, quantile and Poisson losses, 0 for the logistic.
    sharpness : float
        C of the logistic loss, by which p = σ(C(2u − 1)); 0 for the others.
    """

    name: str
    value: Function
    slope: Function | None
    lipschitz: float
    largest: float
    scale: float = 1.0
    power: float = 0.0
    sharpness: float = 0.0

    def unit(self, span: float = 1.0) -> float:
        """Return what ℓ = 1 is in the usual loss on labels of a range of length ``span``."""
        return float(span**self.power) / self.scale


def square() -> Loss:
    """Return (y − u)² / 2, the paper's square loss; the mean squared error is twice its mean."""
    return Loss("square", lambda y, u: (y - u) ** 2 / 2.0, lambda y, u: u - y, 1.0, 0.5, power=2.0)


def absolute() -> Loss:
    """Return |y − u|."""
    return Loss("absolute", lambda y, u: abs(y - u), lambda y, u: _sign(u - y), 1.0, 1.0, power=1.0)


def quantile(tau: float = 0.5) -> Loss:
    """Return τ(y − u)₊ + (1 − τ)(u − y)₊, whose minimiser is the τ-quantile; not scaled."""
    if not 0 < tau < 1:
        raise ConfigError(f"The quantile τ is {tau!r}.", "Give a number between 0 and 1.")

    def value(y: Array, u: Array) -> Array:
        return (tau - 0.5) * (y - u) + abs(y - u) / 2.0

    def slope(y: Array, u: Array) -> Array:
        return _sign(u - y) / 2.0 + (0.5 - tau)

    steepest = max(tau, 1.0 - tau)
    return Loss("quantile", value, slope, steepest, steepest, power=1.0)


def logistic(sharpness: float = 5.0) -> Loss:
    """Return log(1 + exp(−C(2y − 1)(2u − 1))) / (2 log(1 + e^C)), for labels 0 and 1.

    With p = σ(C(2u − 1)) it is −log p of the label, divided by 2 log(1 + e^C); so probabilities lie
    between σ(−C) and σ(C), .0067 and .9933 for C = 5.
    """
    if not 0 < sharpness <= 50:
        raise ConfigError(f"The sharpness C is {sharpness!r}.", "Give a number in (0, 50].")
    whole = 2.0 * (sharpness + log1p(exp(-sharpness)))

    def value(y: Array, u: Array) -> Array:
        margin = sharpness * (2.0 * y - 1.0) * (2.0 * u - 1.0)
        return _softplus(-margin) / whole

    def slope(y: Array, u: Array) -> Array:
        side = 2.0 * sharpness * (2.0 * y - 1.0)
        return -side * _sigmoid(-sharpness * (2.0 * y - 1.0) * (2.0 * u - 1.0)) / whole

    steepest = 2.0 * sharpness / (1.0 + exp(-sharpness)) / whole
    return Loss("logistic", value, slope, steepest, 0.5, 1.0 / whole, sharpness=sharpness)


def poisson(offset: float = 0.05) -> Loss:
    """Return κ((u − y) − (y + κ) log((u + κ) / (y + κ))), half a Poisson deviance, scaled.

    For counts k ∈ [lo, hi] with lo > 0 and κ = lo / (hi − lo), the half deviance
    μ − k − k log(μ / k) is (hi − lo) / κ times it. Where lo = 0 the deviance has no bound: an
    offset κ > 0 adds κ(hi − lo) to counts and rates alike. Its slope in u is at most 1 because of
    the factor κ.
    """
    if not 0 < offset < float("inf"):
        raise ConfigError(f"The offset κ is {offset!r}.", "Give a number above 0.")

    def value(y: Array, u: Array) -> Array:
        xp = array_namespace(y, u)
        return offset * ((u - y) - (y + offset) * xp.log((u + offset) / (y + offset)))

    def slope(y: Array, u: Array) -> Array:
        return offset * (u - y) / (u + offset)

    ratio = log((1.0 + offset) / offset)
    largest = offset * max((1.0 + offset) * ratio - 1.0, 1.0 - offset * ratio)
    return Loss("poisson", value, slope, 1.0, largest, offset, power=1.0)


LOSSES: dict[str, Callable[..., Loss]] = {
    "absolute": absolute,
    "logistic": logistic,
    "poisson": poisson,
    "quantile": quantile,
    "square": square,
}
# What the one parameter of a loss is called where it has one.
SHAPES: Mapping[str, str] = {"logistic": "sharpness", "poisson": "offset", "quantile": "tau"}


def define_loss(
    name: str,
    value: Function,
    *,
    lipschitz: float,
    xp: Any,
    slope: Function | None = None,
    power: float = 0.0,
) -> Loss:
    """Make a loss of a user's function, divided by what makes it 1-Lipschitz and at most 1.

    Parameters
    ----------
    name : str
        Its short name; under it ``register_loss`` makes it known to YAML.
    value : callable
        ℓ(y, u) ≥ 0 for arrays of labels and predictions in [0, 1].
    lipschitz : float
        A bound on the slope in either argument.
    xp : module
        Namespace in which the function is tried, e.g. ``numpy``.
    slope : callable, optional
        ∂ℓ/∂u.
    power : float
        See ``Loss``.

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
    points = xp.linspace(0.0, 1.0, TRIED, dtype=xp.float64)
    tried = value(points[:, None], points[None, :])
    if tried.shape != (TRIED, TRIED) or not bool(xp.all(xp.isfinite(tried))):
        raise ConfigError(
            f"The loss {name!r} is not finite on [0, 1] × [0, 1], or not of two arrays.",
            "Write it with functions of arrays, and bound it.",
        )
    if float(xp.min(tried)) < 0:
        raise ConfigError(f"The loss {name!r} is negative somewhere.", "Add what makes it 0.")
    steps = [tried[1:, :] - tried[:-1, :], tried[:, 1:] - tried[:, :-1]]
    steepest = max(float(xp.max(xp.abs(each))) for each in steps) * (TRIED - 1)
    if steepest > lipschitz * (1.0 + 1e-9):
        raise ConfigError(
            f"The loss {name!r} has slope {steepest:.3g}, above its bound {lipschitz:.3g}.",
            f"Give a bound of at least {steepest:.3g}.",
        )
    scale = 1.0 / max(lipschitz, float(xp.max(tried)))
    scaled = None if slope is None else (lambda y, u: scale * slope(y, u))
    return Loss(
        name,
        lambda y, u: scale * value(y, u),
        scaled,
        lipschitz * scale,
        float(xp.max(tried)) * scale,
        scale,
        power,
    )


def register_loss(loss: Loss) -> Loss:
    """Make a loss known by its name, so that YAML and saved models can refer to it.

    Raises
    ------
    ConfigError
        When the name is taken by one of the house's own.
    """
    if loss.name in ("absolute", "logistic", "poisson", "quantile", "square"):
        raise ConfigError(f"The name {loss.name!r} is taken.", "Give the loss another one.")
    LOSSES[loss.name] = lambda: loss
    return loss


def find_loss(name: str, shape: float | None = None) -> Loss:
    """Return a loss by its short name.

    Parameters
    ----------
    name : str
        ``square``, ``absolute``, ``quantile``, ``logistic``, ``poisson`` or a registered one.
    shape : float, optional
        τ of the quantile, C of the logistic, κ of the Poisson loss; their defaults are .5, 5, .05.

    Raises
    ------
    ConfigError
        For an unknown name, or a shape where the loss has none.
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

    Raises
    ------
    ConfigError
        Unless low < high, both finite.
    DataError
        When a label is outside [low, high] or not finite.
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
            "Give a label_range that holds them, or clip them.",
        )
    return (y - low) / (high - low)


def _sign(x: Array) -> Array:
    return array_namespace(x).sign(x)


def _softplus(x: Array) -> Array:
    xp = array_namespace(x)
    return xp.where(x > 0, x, xp.zeros_like(x)) + xp.log1p(xp.exp(-xp.abs(x)))


def _sigmoid(x: Array) -> Array:
    xp = array_namespace(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
