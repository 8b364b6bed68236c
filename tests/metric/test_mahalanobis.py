import numpy as np
import pytest

from fairfrontier.metric.mahalanobis import make_metric
from fairfrontier.runtime.errors import ConfigError


def test_a_singular_matrix_keeps_its_null_space_as_directions():
    root = np.random.default_rng(0).normal(size=(6, 4))
    sigma = root @ root.T
    metric = make_metric(sigma)
    assert metric.basis.shape == (6, 4)
    assert metric.basis @ metric.basis.T == pytest.approx(sigma)
    assert metric.directions @ metric.directions.T == pytest.approx(np.eye(2), abs=1e-12)
    assert metric.directions @ sigma == pytest.approx(0, abs=1e-12)


def test_a_regular_matrix_has_no_free_directions():
    metric = make_metric(np.diag([1.0, 4.0]))
    assert metric.directions.shape == (0, 2)
    assert metric.distance(np.array([[1.0, 1.0]]), np.zeros((1, 2))) == pytest.approx([5.0])


def test_zero_makes_everything_similar():
    metric = make_metric(np.zeros((3, 3)))
    assert metric.basis.shape == (3, 0)
    assert metric.directions.shape == (3, 3)


@pytest.mark.parametrize(
    ("sigma", "word"),
    [
        (np.ones((2, 3)), "shape"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "not finite"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (np.diag([1.0, -0.1]), "below zero"),
    ],
)
def test_what_is_no_metric_is_refused(sigma, word):
    with pytest.raises(ConfigError, match=word):
        make_metric(sigma)
