import numpy as np
import pytest

from fairfrontier.metrics.certificate.certificate import PriceMaps, _read_hull


def make_maps(n=40):
    generator = np.random.default_rng(0)
    losses = -np.log(generator.dirichlet(np.ones(2), size=n))
    label = generator.integers(2, size=n)
    # Rows that agree to nine decimals are one point.
    z = np.round(generator.normal(size=(n, 2)), 6)
    return PriceMaps(z, label, losses, np.ones(n)), losses, label, z


def test_every_map_is_the_best_at_its_price():
    maps, losses, label, z = make_maps()
    maps.settle(np.ones((1, 40), dtype=np.uint16), [0.1, 0.5], 1e-9, 50)
    assert maps.eta == sorted(maps.eta, reverse=True)
    assert len(set(maps.eta)) == len(maps.eta) > 4
    gain = losses[:, label] - losses[np.arange(40), label]
    cost = np.sum((z[:, None] - z[None]) ** 2, axis=2)
    for eta, found, paid in zip(maps.eta[1:], maps.gain[1:], maps.cost[1:], strict=True):
        np.testing.assert_allclose(found - eta * paid, np.max(gain - eta * cost, axis=0))
    assert not maps.gain[0].any()
    assert not maps.cost[0].any()


def test_draws_are_solved_by_the_maps_of_the_sample_and_a_few_more():
    maps, losses, label, z = make_maps()
    counts = np.random.default_rng(1).multinomial(40, np.full(40, 1 / 40), size=6)
    value, upper = maps.settle(counts.astype(np.uint16), [0.1, 0.5], 1e-8, 60)
    for draw, count in enumerate(counts):
        alone = PriceMaps(z, label, losses, np.maximum(count, 1e-12))
        own, _ = alone.settle(np.ones((1, 40), dtype=np.uint16), [0.1, 0.5], 1e-9, 60)
        np.testing.assert_allclose(value[draw], own[0], rtol=1e-7)
        assert np.all(upper[draw] >= value[draw])


def test_maps_out_of_order_are_mixed_where_the_budget_is_first_passed():
    eta = np.array([np.inf, 1.0, 1e-13, 0.0])
    gain, cost = np.array([[0.0, 0.4, 0.5, 0.5]]), np.array([[0.0, 0.4, 0.2, 0.2]])
    value, upper, price = _read_hull(eta, gain, cost, 0.3)
    assert value == pytest.approx([0.3])
    assert price == pytest.approx([1.0])
    assert np.all(upper >= value)
