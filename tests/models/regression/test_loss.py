import numpy as np
import pytest
from scipy.special import expit

from fairfrontier.models.regression.loss import (
    LOSSES,
    absolute,
    define_loss,
    find_loss,
    logistic,
    poisson,
    quantile,
    register_loss,
    scale_labels,
    square,
)
from fairfrontier.runtime.arrays import to_numpy
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.namespaces import namespaces

HOUSE = [
    square(),
    absolute(),
    quantile(0.2),
    quantile(0.9),
    logistic(),
    logistic(1.5),
    poisson(),
    poisson(2.0),
]
each_loss = pytest.mark.parametrize("loss", HOUSE, ids=lambda loss: loss.name)
POINTS = np.linspace(0, 1, 201)


@each_loss
@pytest.mark.parametrize("namespace", namespaces())
def test_losses_are_lipschitz_and_at_most_one(loss, namespace):
    xp = namespace()
    points = xp.asarray(POINTS)
    value = to_numpy(loss.value(points[:, None], points[None, :]))
    assert value.min() >= -1e-15
    assert value.max() <= 1
    in_u = np.abs(np.diff(value, axis=1)).max() * 200
    in_y = np.abs(np.diff(value, axis=0)).max() * 200
    assert in_u <= 1 + 1e-9
    # The label of the logistic loss is 0 or 1, and so of the two.
    assert in_y <= 1 + 1e-9 or loss.name == "poisson"


def test_scaled_losses_in_their_usual_units():
    low, high = 10.0, 14.0
    span = high - low
    y, u = 0.25, 0.75
    Y, U = low + span * y, low + span * u
    assert square().value(y, u) * span**2 == pytest.approx((Y - U) ** 2 / 2)
    assert absolute().value(y, u) * span == pytest.approx(abs(Y - U))
    third = quantile(0.3)
    assert third.value(y, u) * span == pytest.approx(0.7 * (U - Y))
    p = expit(5 * (2 * u - 1))
    one, point = np.array(1.0), np.array(u)
    assert logistic().value(one, point) / logistic().scale == pytest.approx(-np.log(p))
    counted = poisson(low / span)
    deviance = U - Y - Y * np.log(U / Y)
    ours = counted.value(np.array(y), point) * span / counted.scale
    assert ours == pytest.approx(deviance)


def test_quantile_is_minimised_by_the_quantile():
    y = np.random.default_rng(0).random(1001)
    mean = quantile(0.3).value(y[:, None], POINTS[None, :]).mean(axis=0)
    assert POINTS[mean.argmin()] == pytest.approx(np.quantile(y, 0.3), abs=0.006)


def test_users_losses_are_scaled_and_checked():
    cubed = define_loss("cubed", lambda y, u: 2 * abs(y - u) ** 3, lipschitz=6.0, xp=np)
    assert cubed.value(0.0, 1.0) == pytest.approx(1 / 3)
    assert cubed.value(0.0, 0.5) / cubed.scale == pytest.approx(0.25)
    with pytest.raises(ConfigError, match=r"slope 5\.9"):
        define_loss("cubed", lambda y, u: 2 * abs(y - u) ** 3, lipschitz=2.0, xp=np)
    with pytest.raises(ConfigError):
        define_loss("signed", lambda y, u: y - u, lipschitz=1.0, xp=np)
    with pytest.raises(ConfigError):
        define_loss("endless", lambda y, u: np.where(y > u, np.inf, 0.0), lipschitz=1.0, xp=np)
    try:
        assert find_loss(register_loss(cubed).name) is cubed
    finally:
        del LOSSES["cubed"]
    with pytest.raises(ConfigError):
        register_loss(square())


def test_what_is_wrong_is_said():
    with pytest.raises(ConfigError, match="Did you mean 'square'"):
        find_loss("sqare")
    with pytest.raises(ConfigError):
        find_loss("square", 0.5)
    for name, shape in (("quantile", 1.0), ("logistic", 0.0), ("poisson", -1.0)):
        with pytest.raises(ConfigError):
            find_loss(name, shape)


@pytest.mark.parametrize("namespace", namespaces())
def test_labels_are_scaled_or_refused(namespace):
    xp = namespace()
    y = xp.asarray(np.array([2.0, 3.0, 6.0]))
    np.testing.assert_allclose(to_numpy(scale_labels(y, 2.0, 6.0)), [0, 0.25, 1])
    with pytest.raises(DataError, match=r"outside the range \[0, 1\]"):
        scale_labels(y, 0.0, 1.0)
    with pytest.raises(DataError):
        scale_labels(xp.asarray(np.array([np.nan])), 0.0, 1.0)
    with pytest.raises(ConfigError):
        scale_labels(y, 6.0, 2.0)
