import numpy as np
import pytest

from fairfrontier.models.individual.adversary import THIN_FROM, may_leave_out_sigma
from fairfrontier.similarity.fair_metric import FairMetric


def make_metric(d, r, *, scale=1.0):
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(d, max(r, 1))))[0].T[:r]
    sigma = scale * (np.eye(d) - directions.T @ directions)
    return FairMetric(sigma=sigma, basis=np.eye(d), directions=directions)


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [
        ([make_metric(THIN_FROM, 5)], True),
        ([make_metric(THIN_FROM, 5), make_metric(THIN_FROM, 9)], True),
        ([make_metric(THIN_FROM, 0)], True),
        ([make_metric(THIN_FROM - 1, 5)], False),
        ([make_metric(THIN_FROM, THIN_FROM // 2)], False),
        ([make_metric(THIN_FROM, 5), make_metric(THIN_FROM, 5, scale=2.0)], False),
    ],
)
def test_sigma_is_left_out_where_few_directions_of_many_make_it(metrics, wanted):
    assert may_leave_out_sigma(metrics) is wanted
