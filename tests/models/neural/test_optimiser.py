import numpy as np
import pytest

from fairfrontier.models.neural.network import Adam
from fairfrontier.runtime.arrays import to_numpy
from tests.namespaces import namespaces


def reference(gradients, rate):
    """Return the sum of the steps of Algorithm 1, as it is printed."""
    m = v = moved = 0.0
    for t, gradient in enumerate(gradients, start=1):
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        moved = moved + rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return moved


def run(gradients, rate, active=None, xp=np):
    like = xp.asarray(gradients[0])
    adam, moved = Adam([like], rate), xp.zeros_like(like)
    for position, each in enumerate(gradients):
        moved = (
            moved + adam.step([xp.asarray(each)], None if active is None else active[position])[0]
        )
    return to_numpy(moved)


@pytest.mark.parametrize("namespace", namespaces())
def test_steps_are_those_of_the_paper(namespace):
    xp = namespace()
    gradients = np.random.default_rng(0).normal(size=(20, 3, 4, 2))
    rate = np.array([0.1, 0.01, 1.0])[:, None, None]
    assert run(gradients, xp.asarray(rate), xp=xp) == pytest.approx(
        reference(gradients, rate), rel=1e-9
    )


@pytest.mark.parametrize("namespace", namespaces())
def test_a_model_that_waits_goes_on_where_it_was(namespace):
    gradients = np.random.default_rng(1).normal(size=(12, 2, 3, 1))
    active = np.ones((12, 2), dtype=bool)
    active[[0, 4, 5], 1] = False
    moved = run(gradients, 0.1, active, namespace())
    assert moved[0] == pytest.approx(reference(gradients[:, 0], 0.1), rel=1e-9)
    assert moved[1] == pytest.approx(reference(gradients[active[:, 1], 1], 0.1), rel=1e-9)
