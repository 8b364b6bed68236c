import numpy as np
import pytest
from scipy.special import expit

from fairfrontier import create, learn
from fairfrontier.metrics.certificate.certificate import bound_box, bound_part, certify_rows
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.neural.network import Network, forward
from fairfrontier.models.prediction import predict_part
from fairfrontier.similarity.fair_metric import FairMetric
from tests.models.tables import make_split


def linear_net(weight):
    """A net of one hidden layer that is linear inside the box: logits ∓ w·x / 2."""
    d = len(weight)
    into = np.hstack([np.eye(d), -np.eye(d)])[None]
    out = np.vstack([np.outer(weight, [-0.5, 0.5]), np.outer(weight, [0.5, -0.5])])[None]
    return Network((into, out), (np.zeros((1, 1, 2 * d)), np.zeros((1, 1, 2))))


def ignoring(d, columns):
    keep = np.array([i not in columns for i in range(d)], dtype=float)
    return FairMetric(np.diag(keep), np.eye(d)[:, keep > 0], np.eye(d)[keep == 0])


def bound(net, X, metric, budgets, low, high, **effort):
    noise = 1e-2 * np.random.default_rng(0).normal(size=X.shape)
    return bound_box(net, X, metric, budgets, low, high, noise=noise, **effort)


def test_free_movement_reaches_the_corner_of_the_box():
    weight = np.array([2.0, 0.0])
    X = np.random.default_rng(0).uniform(-1, 1, size=(40, 2))
    box = np.full(2, -1.0), np.full(2, 1.0)
    (found,) = bound(linear_net(weight), X, ignoring(2, [0]), [0.0], *box, steps=300)
    # The farther end of the free feature; d_Y is a quarter of the squared log-odds.
    farthest = 1.0 + np.abs(X[:, 0])
    assert found.value <= np.mean((2.0 * farthest) ** 2 / 4) + 1e-9
    assert found.value >= 0.8 * np.mean((2.0 * np.minimum(farthest, 2.0 - farthest)) ** 2 / 4)


def test_a_blind_net_is_never_moved():
    X = np.random.default_rng(0).uniform(-1, 1, size=(30, 2))
    box = np.full(2, -1.0), np.full(2, 1.0)
    (found,) = bound(linear_net(np.array([0.0, 3.0])), X, ignoring(2, [0]), [0.0], *box)
    assert found.value == pytest.approx(0, abs=1e-9)


def test_a_linear_net_under_a_budget_stays_below_the_exact_value():
    # Without a wall in reach, sup E (w·δ)²/4 s.t. E‖δ‖² ≤ ε is ε ‖w‖² / 4.
    weight = np.array([1.0, -2.0, 0.5])
    X = np.random.default_rng(1).normal(size=(50, 3))
    box = np.full(3, -60.0), np.full(3, 60.0)
    budgets = [0.01, 1.0, 25.0]
    found = bound(linear_net(weight), X, ignoring(3, []), budgets, *box, steps=300, rate=0.01)
    exact = [budget * weight @ weight / 4 for budget in budgets]
    for each, most in zip(found, exact, strict=True):
        assert 0 < each.value <= most * (1 + 1e-6)


def test_more_budget_never_bounds_less():
    split = make_split(200)
    model = create("nn", steps=50, hidden=8, learning_rate=0.05, batch_size=50).fit(
        split.train.X, split.train.y
    )
    metric = learn("subspace", split)
    found = bound_part(model.network_, split.test, split.train, metric, [0.0, 0.1, 1.0, 10.0])
    values = [each.value for each in found]
    assert values == sorted(values)
    table = tabulate(predict_part(model, split.test), split.test, boxes=found)
    assert list(table[table.measure == "dif_box"].value) == values


def test_a_net_of_the_box_logits_agrees_with_its_probabilities():
    net = linear_net(np.array([1.5, 0.0]))
    X = np.array([[0.3, 0.1], [-0.7, 0.4]])
    logits = forward(net, X).logits[0]
    p = expit(logits[:, 1] - logits[:, 0])
    centred = np.stack([-np.log(p / (1 - p)) / 2, np.log(p / (1 - p)) / 2], axis=1)
    rows = certify_rows(centred, np.zeros((2, 1)), 1.0)
    assert rows.value == pytest.approx(np.mean((logits[0] - logits[1]) ** 2))
