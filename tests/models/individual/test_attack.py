import numpy as np
import pytest

from fairfrontier.models.individual.attack import (
    AttackSetting,
    LogitDistance,
    Loss,
    MatrixPenalty,
    ascend,
    attack,
    logit_distance,
)
from fairfrontier.models.neural.network import Network, cross_entropy, forward
from fairfrontier.runtime.arrays import to_numpy
from tests.models.neural.test_network import differences, make_network, make_rows
from tests.namespaces import devices, namespaces

SIZES = (5, 12, 6, 3)
DIRECTIONS = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 2)))[0].T
SIGMA = np.eye(5) - DIRECTIONS.T @ DIRECTIONS


def make_setting(*, discard_batch=False, subspace_rate=0.1, directions=DIRECTIONS, sigma=SIGMA):
    return AttackSetting(
        directions=np.stack([directions] * 2),
        sigma=None if sigma is None else np.stack([sigma] * 2),
        subspace_steps=6,
        full_steps=5,
        subspace_rate=np.full((2, 1, 1), subspace_rate),
        discard_batch=discard_batch,
    )


def make_objective(kind, network, x, target):
    if kind == "loss":
        return Loss(target)
    return LogitDistance(forward(network, x).logits, np.array([1.0, 3.0])[:, None, None])


def setting(sizes=SIZES, n=9):
    return (make_network(sizes), *make_rows(sizes, n=n))


def run(kind, attack_setting, *, dual=0.5, full_rate=0.01, n=9, noise=None, xp=np):
    network, x, target = setting(n=n)
    if noise is None:
        noise = np.random.default_rng(0).uniform(-0.1, 0.1, size=(2, n, 2))
    objective = make_objective(kind, network, x, target)
    if xp is not np:
        network = Network.of([xp.asarray(each) for each in network.arrays])
        changed = {key: xp.asarray(each) for key, each in vars(objective).items()}
        objective = type(objective)(**changed)
        attack_setting = AttackSetting(
            xp.asarray(attack_setting.directions),
            None if attack_setting.sigma is None else xp.asarray(attack_setting.sigma),
            attack_setting.subspace_steps,
            attack_setting.full_steps,
            xp.asarray(attack_setting.subspace_rate),
            attack_setting.discard_batch,
        )
    price = np.full((2, 1, 1), dual)
    found = attack(
        network,
        xp.asarray(x),
        objective,
        attack_setting,
        noise=xp.asarray(noise),
        dual=xp.asarray(price),
        full_rate=xp.asarray(np.full((2, 1, 1), full_rate)),
    )
    return network, x, objective, found


@pytest.mark.parametrize("sizes", [(5, 12, 6, 3), (5, 12, 2), (5, 4)])
@pytest.mark.parametrize("kind", ["loss", "distance"])
def test_slopes_are_those_of_finite_differences(sizes, kind):
    network, x, target = setting(sizes)
    objective = make_objective(kind, network, x, target)
    logits = forward(network, x + 0.3).logits
    wanted = differences(lambda: objective.value(logits).sum(), logits)
    assert objective.slope(logits) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("moves", [DIRECTIONS, None])
def test_a_long_climb_ends_where_the_gradient_is_zero(moves):
    network, x, target = setting()
    objective = Loss(target)
    penalty = MatrixPenalty(4.0 * np.eye(2 if moves is not None else 5)[None].repeat(2, 0))
    shift = np.eye(5) if moves is None else moves
    start = np.zeros((2, 9, len(shift)))

    def total(coefficient):
        paid = (coefficient**2).sum() * 2.0
        return objective.value(forward(network, x + coefficient @ shift).logits).sum() - paid

    found = ascend(
        network,
        x,
        objective,
        start=start,
        moves=None if moves is None else np.stack([moves] * 2),
        penalty=penalty,
        steps=3000,
        rate=np.full((2, 1, 1), 2e-3),
    )
    assert found.after.sum() == pytest.approx(total(found.coefficient))
    assert found.before.sum() == pytest.approx(total(start))
    slope = differences(lambda: total(found.coefficient), found.coefficient, step=1e-7)
    # ReLU has kinks, on which some coefficients come to rest.
    assert np.median(np.abs(slope)) < 1e-3
    assert found.after.sum() > found.before.sum()


@pytest.mark.parametrize("kind", ["loss", "distance"])
@pytest.mark.parametrize("discard_batch", [False, True])
@pytest.mark.parametrize(
    ("subspace_rate", "full_rate", "dual"), [(0.1, 0.01, 0.1), (30.0, 2.0, 1e4)]
)
def test_what_is_kept_never_lowers_the_objective(
    kind, discard_batch, subspace_rate, full_rate, dual
):
    attack_setting = make_setting(discard_batch=discard_batch, subspace_rate=subspace_rate)
    network, x, objective, found = run(kind, attack_setting, dual=dual, full_rate=full_rate, n=200)
    before = objective.value(forward(network, x).logits)
    after = objective.value(forward(network, found.x).logits) - dual * found.cost
    gain = (after - before).mean(axis=1) if discard_batch else after - before
    assert gain.min() >= -1e-9
    assert (after > before).any()
    # Rates as large as these do fail somewhere, or nothing was tested.
    assert found.failed.all() == (full_rate > 1)


def test_the_cost_is_the_fair_distance_and_directions_are_free():
    _, x, _, found = run("distance", make_setting())
    step = found.x - x
    assert found.cost == pytest.approx(((step @ SIGMA) * step).sum(axis=2))
    assert (found.cost > 0).any()
    assert np.abs(step @ DIRECTIONS.T).max() > 0.1


@pytest.mark.parametrize("kind", ["loss", "distance"])
@pytest.mark.parametrize("discard_batch", [False, True])
@pytest.mark.parametrize("namespace", namespaces())
def test_directions_alone_charge_what_sigma_does(kind, discard_batch, namespace):
    xp = namespace()
    by_sigma = run(kind, make_setting(discard_batch=discard_batch))[3]
    by_directions = run(kind, make_setting(discard_batch=discard_batch, sigma=None), xp=xp)[3]
    for key, each in vars(by_directions).items():
        assert to_numpy(each) == pytest.approx(getattr(by_sigma, key), rel=1e-7, abs=1e-9), key
    assert (by_sigma.cost > 0).any()


def test_no_price_moves_further_than_a_high_one():
    cheap, dear = (run("loss", make_setting(), dual=dual)[3].cost.mean() for dual in (0.0, 100.0))
    assert cheap > 10 * dear


def test_without_noise_a_distance_has_no_slope_to_follow():
    _, x, _, found = run("distance", make_setting(), noise=np.zeros((2, 9, 2)))
    assert np.array_equal(found.x, x)
    assert (found.subspace_gain == 0).all()
    assert not found.failed.any()


def test_a_metric_without_directions_is_attacked_from_a_small_step():
    attack_setting = make_setting(directions=np.zeros((0, 5)), sigma=np.eye(5))
    noise = np.random.default_rng(0).uniform(-0.01, 0.01, size=(2, 9, 5))
    _, x, _, found = run("distance", attack_setting, dual=0.05, noise=noise)
    assert (found.full_gain > 0).all()
    assert (found.x != x).any()


def test_directions_of_zeros_move_nothing():
    padded = make_setting(directions=np.vstack([DIRECTIONS, np.zeros((1, 5))]))
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, size=(2, 9, 3))
    plain = run("distance", make_setting(), noise=noise[:, :, :2])[3]
    assert run("distance", padded, noise=noise)[3].x == pytest.approx(plain.x, rel=1e-12)


@pytest.mark.parametrize("kind", ["loss", "distance"])
@pytest.mark.parametrize("discard_batch", [False, True])
@pytest.mark.parametrize("namespace", devices())
def test_a_device_gives_the_same_in_one_block(namespace, kind, discard_batch, monkeypatch):
    # On NumPy blocks of 50 rows.
    monkeypatch.setattr("fairfrontier.models.neural.network.BLOCK_ENTRIES", 1)
    ours = run(kind, make_setting(discard_batch=discard_batch), n=200)[3]
    theirs = run(kind, make_setting(discard_batch=discard_batch), n=200, xp=namespace())[3]
    for key, each in vars(theirs).items():
        assert to_numpy(each) == pytest.approx(getattr(ours, key), rel=1e-7, abs=1e-9), key


def test_the_distance_is_a_mean_over_classes():
    logits, other = np.array([[[1.0, 2.0, 5.0]]]), np.array([[[1.0, 0.0, 4.0]]])
    assert logit_distance(logits, other)[0, 0] == pytest.approx(5 / 3)
    assert cross_entropy(logits, np.eye(3)[None, :1])[0].shape == (1, 1)
