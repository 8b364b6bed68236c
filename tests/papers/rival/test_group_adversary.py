import numpy as np
import pytest

from fairfrontier.runtime.arrays import to_numpy
from papers.rival.group_adversary import (
    ABSENT,
    CRITERIA,
    GroupAdversary,
    count_inputs,
    draw_adversary,
    evaluate_adversary,
    project_gradient,
)
from tests.namespaces import devices

N_MODELS, N, N_GROUPS = 2, 9, 3
every_criterion = pytest.mark.parametrize("criterion", CRITERIA)


def make(criterion, n_groups=N_GROUPS, seed=0):
    generator = np.random.default_rng(seed)
    drawn = [draw_adversary(count_inputs(criterion), n_groups, generator) for _ in range(N_MODELS)]
    scale, weight, bias = (np.concatenate(each) for each in zip(*drawn, strict=True))
    # The absolute value of c has two sides.
    scale = scale * np.array([0.7, -1.3])[:, None, None]
    bias = bias + generator.normal(size=bias.shape)
    logits = generator.normal(size=(N_MODELS, N, 2))
    target = np.eye(2)[generator.integers(2, size=(N_MODELS, N))]
    group = np.eye(n_groups)[generator.integers(n_groups, size=(N_MODELS, N))]
    weight_of_rows = generator.exponential(size=(N_MODELS, N, 1))
    return GroupAdversary(scale, weight, bias), logits, target, group, weight_of_rows


def differences(function, array, step=1e-6):
    """Return the central differences of a function of the array's content."""
    found = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        kept = array[index]
        array[index] = kept + step
        upper = function()
        array[index] = kept - step
        found[index] = (upper - function()) / (2 * step)
        array[index] = kept
    return found


@every_criterion
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_finite_differences(criterion, weighted):
    adversary, logits, target, group, weight = make(criterion)
    settings = {"criterion": criterion, "weight": weight if weighted else None}

    def total():
        return evaluate_adversary(adversary, logits, target, group, **settings)[0].sum()

    _, slope, gradient = evaluate_adversary(adversary, logits, target, group, **settings)
    assert slope == pytest.approx(differences(total, logits), abs=1e-8)
    for found, array in zip(gradient.arrays, adversary.arrays, strict=True):
        assert found == pytest.approx(differences(total, array), abs=1e-8)


@every_criterion
def test_a_row_of_weight_two_is_two_rows(criterion):
    adversary, logits, target, group, _ = make(criterion)
    # A row is left out for one of its own label that counts twice.
    target = np.broadcast_to(target[:1], target.shape)
    first, second = np.flatnonzero(target[0, :, 1] == 1)[:2]
    weight = np.ones((N_MODELS, N, 1))
    weight[:, first], weight[:, second] = 2, 0
    taken = np.arange(N)
    taken[second] = first
    settings = {"criterion": criterion}
    weighted = evaluate_adversary(adversary, logits, target, group, weight=weight, **settings)
    repeated = evaluate_adversary(
        adversary, logits[:, taken], target[:, taken], group[:, taken], **settings
    )
    assert weighted[0] == pytest.approx(repeated[0])
    for one, other in zip(weighted[2].arrays, repeated[2].arrays, strict=True):
        assert one == pytest.approx(other)


def test_the_loss_is_that_of_the_formula_row_by_row():
    adversary, logits, target, group, _ = make("equalized_odds")
    loss, _, _ = evaluate_adversary(adversary, logits, target, group, criterion="equalized_odds")
    for model in range(N_MODELS):
        each = []
        for row in range(N):
            likely = 1 / (1 + np.exp(logits[model, row, 0] - logits[model, row, 1]))
            odds = np.log(likely / (1 - likely))
            s = 1 / (1 + np.exp(-(1 + abs(adversary.scale[model, 0, 0])) * odds))
            y = target[model, row, 1]
            z = np.array([s, s * y, s * (1 - y)]) @ adversary.weight[model]
            z = np.exp(z + adversary.bias[model, 0])
            each.append(-np.log(z[group[model, row] == 1][0] / z.sum()))
        assert loss[model] == pytest.approx(np.mean(each), rel=1e-12)


def test_two_groups_are_a_logistic_adversary():
    adversary, logits, target, group, _ = make("parity", n_groups=2)
    loss, _, _ = evaluate_adversary(adversary, logits, target, group, criterion="parity")
    s = 1 / (1 + np.exp(-(1 + np.abs(adversary.scale)) * (logits[..., 1:] - logits[..., :1])))
    steep = adversary.weight[..., 1:] - adversary.weight[..., :1]
    z = (s * steep + adversary.bias[..., 1:] - adversary.bias[..., :1])[..., 0]
    sign = 2 * group[..., 1] - 1
    assert loss == pytest.approx(np.logaddexp(0, -sign * z).mean(axis=1), rel=1e-12)


def test_equal_opportunity_is_parity_among_the_positive():
    adversary, logits, target, group, _ = make("parity")
    loss, slope, _ = evaluate_adversary(
        adversary, logits, target, group, criterion="equal_opportunity"
    )
    for model in range(N_MODELS):
        kept = target[model, :, 1] == 1
        one = slice(model, model + 1)
        alone = GroupAdversary(*(each[one] for each in adversary.arrays))
        wanted = evaluate_adversary(
            alone,
            logits[one][:, kept],
            target[one][:, kept],
            group[one][:, kept],
            criterion="parity",
        )
        assert loss[model] == pytest.approx(wanted[0][0], rel=1e-12)
        assert slope[model][kept] == pytest.approx(wanted[1][0], rel=1e-12)
        assert not slope[model][~kept].any()
    none = np.broadcast_to([1.0, 0.0], target.shape)
    loss, slope, _ = evaluate_adversary(
        adversary, logits, none, group, criterion="equal_opportunity"
    )
    assert not loss.any()
    assert not slope.any()


@every_criterion
def test_an_absent_group_changes_nothing(criterion):
    adversary, logits, target, group, weight = make(criterion, n_groups=2)
    wider = ((0, 0), (0, 0), (0, 1))
    padded = GroupAdversary(
        adversary.scale, np.pad(adversary.weight, wider), np.pad(adversary.bias, wider)
    )
    absent = np.broadcast_to([0.0, 0.0, ABSENT], (N_MODELS, 1, 3))
    settings = {"criterion": criterion, "weight": weight}
    loss, slope, gradient = evaluate_adversary(adversary, logits, target, group, **settings)
    other = evaluate_adversary(
        padded, logits, target, np.pad(group, wider), **settings, absent=absent
    )
    assert other[0] == pytest.approx(loss, rel=1e-12)
    assert other[1] == pytest.approx(slope, rel=1e-12)
    assert other[2].weight[..., :2] == pytest.approx(gradient.weight, rel=1e-12)
    assert not other[2].weight[..., 2].any()
    assert not other[2].bias[..., 2].any()


def make_gradients(seed=0):
    generator = np.random.default_rng(seed)
    shapes = [(N_MODELS, 3, 4), (N_MODELS, 1, 4), (N_MODELS, 4, 2)]
    return [[generator.normal(size=each) for each in shapes] for _ in range(2)]


def flat(arrays, model):
    return np.concatenate([each[model].ravel() for each in arrays])


def test_what_is_left_of_the_gradient_is_orthogonal_to_the_adversarys():
    plain, fair = make_gradients()
    strength = np.array([0.0, 0.4])[:, None, None]
    found = project_gradient(plain, fair, strength)
    for model in range(N_MODELS):
        g, p, f = (flat(each, model) for each in (found, plain, fair))
        alpha = strength[model, 0, 0]
        assert g @ f == pytest.approx(-alpha * (f @ f), abs=1e-12)
        # The brute-force projection, by least squares.
        kept = np.linalg.lstsq(f[:, None], p, rcond=None)[0][0]
        assert g == pytest.approx(p - kept * f - alpha * f, rel=1e-12)


def test_each_array_can_be_projected_by_itself():
    plain, fair = make_gradients(1)
    strength = np.full((N_MODELS, 1, 1), 0.3)
    found = project_gradient(plain, fair, strength, whole=False)
    for position, each in enumerate(found):
        alone = project_gradient([plain[position]], [fair[position]], strength)
        assert each == pytest.approx(alone[0], rel=1e-12)
    whole = project_gradient(plain, fair, strength)
    assert np.abs(found[0] - whole[0]).max() > 1e-3


def test_without_an_adversary_the_gradient_stays():
    plain, fair = make_gradients(2)
    nothing = [np.zeros_like(each) for each in fair]
    for whole in (True, False):
        found = project_gradient(plain, nothing, np.ones((N_MODELS, 1, 1)), whole=whole)
        for each, wanted in zip(found, plain, strict=True):
            assert np.array_equal(each, wanted)


@every_criterion
@pytest.mark.parametrize("namespace", devices())
def test_a_device_gives_the_same(namespace, criterion):
    xp = namespace()
    adversary, logits, target, group, weight = make(criterion)
    loss, slope, gradient = evaluate_adversary(
        adversary, logits, target, group, criterion=criterion, weight=weight
    )
    there = evaluate_adversary(
        GroupAdversary(*(xp.asarray(each) for each in adversary.arrays)),
        *(xp.asarray(each) for each in (logits, target, group)),
        criterion=criterion,
        weight=xp.asarray(weight),
    )
    assert to_numpy(there[0]) == pytest.approx(loss, rel=1e-12)
    assert to_numpy(there[1]) == pytest.approx(slope, rel=1e-12)
    for left, right in zip(there[2].arrays, gradient.arrays, strict=True):
        assert to_numpy(left) == pytest.approx(right, rel=1e-12)
    plain, fair = make_gradients()
    strength = np.full((N_MODELS, 1, 1), 0.3)
    found = project_gradient(
        *([xp.asarray(each) for each in arrays] for arrays in (plain, fair)), xp.asarray(strength)
    )
    for left, right in zip(found, project_gradient(plain, fair, strength), strict=True):
        assert to_numpy(left) == pytest.approx(right, rel=1e-12)
