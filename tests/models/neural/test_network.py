import subprocess
import sys

import numpy as np
import pytest

from fairfrontier.models.neural.network import (
    Network,
    blocks,
    cross_entropy,
    draw_network,
    forward,
    forward_dropped,
    input_gradient,
    parameter_gradient,
    softmax,
)
from fairfrontier.runtime.arrays import to_numpy
from tests.namespaces import SecondDevice, devices


def make_network(sizes, n_models=2, seed=0):
    generator = np.random.default_rng(seed)
    drawn = [draw_network(sizes, generator) for _ in range(n_models)]
    return Network.of([np.concatenate(each) for each in zip(*drawn, strict=True)])


def make_rows(sizes, n_models=2, n=7, seed=1):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n_models, n, sizes[0]))
    target = np.eye(sizes[-1])[generator.integers(sizes[-1], size=(n_models, n))]
    return x, target


def total(network, x, target):
    return cross_entropy(forward(network, x).logits, target)[0].sum()


def differences(function, array, step=1e-6):
    """Return the central differences of a function of the array's content."""
    found = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        kept = array[place]
        array[place] = kept + step
        upper = function()
        array[place] = kept - step
        found[place] = (upper - function()) / (2 * step)
        array[place] = kept
    return found


@pytest.mark.parametrize("sizes", [(3, 2), (3, 4, 2), (4, 5, 3, 3)])
def test_gradients_are_those_of_finite_differences(sizes):
    network, (x, target) = make_network(sizes), make_rows(sizes)
    done = forward(network, x)
    slope = cross_entropy(done.logits, target)[1]
    inputs = input_gradient(network, done, slope)
    assert inputs == pytest.approx(differences(lambda: total(network, x, target), x), abs=1e-7)
    slope = cross_entropy(done.logits, target)[1]
    found = parameter_gradient(network, x, done, slope).arrays
    for gradient, array in zip(found, network.arrays, strict=True):
        wanted = differences(lambda: total(network, x, target), array)
        assert gradient == pytest.approx(wanted, abs=1e-7)


def test_each_model_is_a_net_of_its_own():
    sizes = (4, 6, 3)
    network, (x, target) = make_network(sizes, 3), make_rows(sizes, 3)
    together = forward(network, x)
    slope = cross_entropy(together.logits, target)[1]
    gradients = parameter_gradient(network, x, together, slope).arrays
    for model in range(3):
        one = slice(model, model + 1)
        alone = forward(network.take(one), x[one])
        assert together.logits[one] == pytest.approx(alone.logits, rel=1e-12)
        slope = cross_entropy(alone.logits, target[one])[1]
        single = parameter_gradient(network.take(one), x[one], alone, slope).arrays
        for all_of_them, own in zip(gradients, single, strict=True):
            assert all_of_them[one] == pytest.approx(own, rel=1e-10, abs=1e-14)


def test_rows_can_be_shared_by_the_models():
    sizes = (4, 6, 3)
    network, (x, target) = make_network(sizes), make_rows(sizes, 1)
    shared = forward(network, x[0])
    assert shared.logits == pytest.approx(forward(network, np.repeat(x, 2, 0)).logits)
    slope = cross_entropy(shared.logits, target)[1]
    gradient = parameter_gradient(network, x[0], shared, slope.copy())
    other = parameter_gradient(network, np.repeat(x, 2, 0), shared, slope.copy())
    for left, right in zip(gradient.arrays, other.arrays, strict=True):
        assert left == pytest.approx(right)


def test_glorot_weights_and_small_biases():
    weight, other, *bias = draw_network((50, 70, 3), np.random.default_rng(0))
    bound = np.sqrt(6 / 120)
    assert np.abs(weight).max() == pytest.approx(bound, rel=1e-2)
    assert weight.std() == pytest.approx(bound / np.sqrt(3), rel=2e-2)
    assert other.shape == (1, 70, 3)
    assert all((each == 0.1).all() for each in bias)


def test_softmax_and_loss_stand_large_logits():
    logits = np.array([[1e4, 0.0, -1e4], [-1e4, -1e4, -1e4]])
    assert softmax(logits) == pytest.approx(np.array([[1, 0, 0], [1 / 3] * 3]))
    loss, gradient = cross_entropy(logits, np.eye(3)[[1, 2]])
    assert loss == pytest.approx([1e4, np.log(3)])
    assert gradient.sum(axis=-1) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("namespace", devices())
def test_a_device_gives_the_same(namespace):
    xp = namespace()
    sizes = (4, 5, 3, 3)
    network, (x, target) = make_network(sizes), make_rows(sizes)
    done = forward(network, x)
    slope = cross_entropy(done.logits, target)[1]
    net = Network.of([xp.asarray(each) for each in network.arrays])
    rows, wanted = xp.asarray(x), xp.asarray(target)
    there = forward(net, rows)
    incline = cross_entropy(there.logits, wanted)[1]
    found = input_gradient(net, there, incline)
    assert to_numpy(found) == pytest.approx(input_gradient(network, done, slope))
    ours = parameter_gradient(network, x, done, cross_entropy(done.logits, target)[1])
    theirs = parameter_gradient(net, rows, there, cross_entropy(there.logits, wanted)[1])
    for left, right in zip(ours.arrays, theirs.arrays, strict=True):
        assert left == pytest.approx(to_numpy(right))


@pytest.mark.parametrize(
    ("n_models", "n_rows", "widest"), [(3, 5000, 100), (30, 50, 80), (2, 1, 1)]
)
def test_blocks_cover_every_row_of_every_model_once(n_models, n_rows, widest):
    seen = np.zeros((n_models, n_rows), dtype=int)
    for models, rows in blocks(seen, n_rows, widest):
        seen[models, rows] += 1
    assert (seen == 1).all()
    there = SecondDevice().asarray(np.zeros((n_models, 1)))
    assert list(blocks(there, n_rows, widest)) == [(slice(0, n_models), slice(0, n_rows))]


def test_the_kernels_need_nothing_but_numpy_and_array_api_compat():
    code = (
        "import sys; import fairfrontier.models.neural.network; "
        "import fairfrontier.models.individual.attack; "
        "print(*sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    foreign = {name for name in out.stdout.split() if not name.startswith("_")}
    assert foreign <= {"numpy", "array_api_compat", "fairfrontier", "setuptools", "distutils"}


@pytest.mark.parametrize("sizes", [(3, 4, 2), (4, 5, 3, 3)])
def test_dropped_units_have_no_part_in_the_answer_and_its_gradients(sizes):
    network, (x, target) = make_network(sizes), make_rows(sizes)
    generator = np.random.default_rng(2)
    masks = [(generator.random((2, 7, width)) < 0.6) / 0.6 for width in sizes[1:-1]]

    def loss():
        return cross_entropy(forward_dropped(network, x, masks).logits, target)[0].sum()

    done = forward_dropped(network, x, masks)
    for hidden, mask in zip(done.hidden, masks, strict=True):
        assert not hidden[mask == 0].any()
    found = parameter_gradient(network, x, done, cross_entropy(done.logits, target)[1]).arrays
    for gradient, array in zip(found, network.arrays, strict=True):
        assert gradient == pytest.approx(differences(loss, array), abs=1e-7)
    whole = forward_dropped(network, x, [np.ones_like(each) for each in masks])
    assert np.array_equal(whole.logits, forward(network, x).logits)
