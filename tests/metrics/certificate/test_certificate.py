from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from fairfrontier import create, learn
from fairfrontier.metrics.certificate.certificate import (
    centre_logits,
    certify_part,
    certify_rows,
    choose_rows,
)
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.prediction import predict_part
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.models.tables import make_split


def rows(seed, n=18, ties=False):
    generator = np.random.default_rng(seed)
    logits = centre_logits(generator.dirichlet(np.ones(3), size=n))
    z = generator.normal(size=(n, 2))
    if ties:
        logits, z = np.round(logits), np.round(z)
    return logits, z


def by_linear_programme(logits, z, budget, mass=None):
    n, classes = logits.shape
    output = np.sum((logits[:, None] - logits[None]) ** 2, axis=2) / classes
    fair = np.sum((z[:, None] - z[None]) ** 2, axis=2)
    found = linprog(
        -output.reshape(-1),
        A_ub=fair.reshape(1, -1),
        b_ub=[budget],
        A_eq=np.kron(np.ones((1, n)), np.eye(n)),
        b_eq=np.full(n, 1 / n) if mass is None else mass,
    )
    return -found.fun


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("budget", [0.01, 0.3, 2.0, 100.0])
def test_it_equals_the_linear_programme(budget, ties):
    for seed in range(5):
        logits, z = rows(seed, ties=ties)
        found = certify_rows(logits, z, budget, tolerance=1e-10)
        assert found.value == pytest.approx(by_linear_programme(logits, z, budget), abs=1e-8)
        assert found.upper >= found.value - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_rows_count_by_their_weight(seed):
    logits, z = rows(seed)
    weight = np.random.default_rng(seed).uniform(0, 3, len(z))
    weight[::5] = 0
    mass = weight / weight.sum()
    found = certify_rows(logits, z, 0.2, weight=weight, tolerance=1e-10)
    left = mass > 0
    wanted = by_linear_programme(logits[left], z[left], 0.2, mass[left])
    assert found.value == pytest.approx(wanted, abs=1e-8)
    assert found.upper == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize("budget", [0.0, 0.3])
def test_rows_of_weight_0_are_no_counterparts(budget):
    logits, z = rows(1, ties=True)
    weight = np.ones(len(z))
    weight[[0, 5, 6]] = 0
    logits[0] = 50.0, -25.0, -25.0
    found = certify_rows(logits, z, budget, weight=weight)
    left = np.flatnonzero(weight)
    assert found == certify_rows(logits[left], z[left], budget)
    assert found.n == len(left)


def test_rows_that_coincide_become_each_other_without_a_budget():
    logits = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]])
    z = np.array([[0.0, 0.0], [1e-12, 0.0], [5.0, 5.0]])
    found = certify_rows(logits, z, 0.0)
    assert found.value == found.upper == pytest.approx(8 / 3)
    assert certify_rows(logits, z, 1e-300).value == pytest.approx(8 / 3)
    for seed in range(3):
        logits, z = rows(seed, n=40, ties=True)
        wanted = by_linear_programme(logits, z, 0.0)
        assert wanted > 0
        assert certify_rows(logits, z, 0.0).value == pytest.approx(wanted, abs=1e-8)


def test_rows_may_lie_anywhere():
    logits, z = rows(2)
    wanted = by_linear_programme(logits, z, 0.01)
    # 2^26, so that the distances themselves are not rounded.
    far = certify_rows(logits, np.round(z * 2**20) / 2**20 + 2.0**26, 0.01, tolerance=1e-10)
    assert far.value == pytest.approx(wanted, rel=1e-4)
    assert far.upper >= far.value - 1e-12


def test_more_budget_never_certifies_less():
    logits, z = rows(3, n=60)
    values = [certify_rows(logits, z, each).value for each in (0, 0.01, 0.1, 1.0, 10.0)]
    assert values == sorted(values)
    assert values[0] == 0


def test_a_constant_model_is_perfectly_fair():
    found = certify_rows(np.zeros((30, 2)), rows(0, n=30)[1], 0.5)
    assert found.value == 0
    assert found.upper == 0


def test_proposition_2_3_holds_on_the_rows():
    logits, z = rows(9, n=80)
    budget = 0.2
    fair = np.sum((z[:, None] - z[None]) ** 2, axis=2)
    output = np.sum((logits[:, None] - logits[None]) ** 2, axis=2) / 3
    worst = np.where(fair <= budget, output, 0).max(axis=1)
    found = certify_rows(logits, z, budget)
    for tau in (0.05, 0.2, 1.0, 3.0):
        assert np.mean(worst >= tau) <= found.upper / tau + 1e-9


def test_blocks_and_order_of_rows_do_not_matter():
    logits, z = rows(5, n=700)
    order = np.random.default_rng(0).permutation(700)
    there, back = certify_rows(logits, z, 0.3), certify_rows(logits[order], z[order], 0.3)
    assert back.value == pytest.approx(there.value, rel=1e-5)


def test_logits_are_centred_log_probabilities():
    found = centre_logits(np.array([0.5, 0.8, 0.0]))
    assert found.sum(axis=1) == pytest.approx(np.zeros(3))
    assert found[1, 1] - found[1, 0] == pytest.approx(np.log(4))
    assert np.isfinite(found).all()


def test_what_cannot_be_is_refused():
    for budget in (-1.0, np.inf, np.nan):
        with pytest.raises(ConfigError):
            certify_rows(*rows(0), budget)
    with pytest.raises(ConfigError):
        certify_rows(*rows(0), 1.0, weight=np.zeros(18))
    for weight in (-1.0, np.nan):
        with pytest.raises(DataError):
            certify_rows(*rows(0), 1.0, weight=np.append(np.ones(17), weight))


def test_a_part_is_certified_and_measured():
    split = make_split(400)
    metric = learn("subspace", split)
    rows = {}
    for name in ("linear", "project"):
        keywords = {"metric": metric} if name == "project" else {}
        model = create(name).fit(split.train.X, split.train.y, **keywords)
        predicted = predict_part(model, split.test)
        found = certify_part(predicted, split.test, metric, [0.0, 0.5], rows=150)
        assert found[0].n == 150
        table = tabulate(predicted, split.test, certificates=found)
        rows[name] = table[table.measure == "dif"].set_index("group").value
    assert list(rows["linear"].index) == ["budget=0", "budget=0.5"]
    # A model on the projected rows cannot tell rows apart that the metric does not.
    assert rows["project"]["budget=0"] == pytest.approx(0, abs=1e-12)
    assert rows["linear"]["budget=0"] >= 0


def test_a_part_is_certified_by_its_weights():
    part = make_split(200).test
    part = replace(part, weight=np.random.default_rng(0).uniform(0.1, 3, part.n_samples))
    metric = learn("subspace", make_split(200))
    model = create("linear").fit(part.X, part.y)
    predicted = predict_part(model, part)
    (found,) = certify_part(predicted, part, metric, [0.2], rows=40)
    (again,) = certify_part(predicted, part, metric, [0.2], rows=40)
    # A sample, but the same whenever it is asked for.
    assert found.value == again.value
    chosen = choose_rows(part, 40)
    logits, z = centre_logits(predicted.score[chosen]), metric.embed(part.X[chosen])
    mass = part.weight[chosen] / part.weight[chosen].sum()
    wanted = by_linear_programme(logits, z, 0.2, mass)
    assert found.value == pytest.approx(wanted, rel=1e-5)
    assert wanted != pytest.approx(by_linear_programme(logits, z, 0.2), rel=1e-3)


def test_without_a_certificate_the_measure_is_left_out_or_refused():
    split = make_split(60)
    model = create("linear").fit(split.train.X, split.train.y)
    predicted = predict_part(model, split.test)
    assert "dif" not in set(tabulate(predicted, split.test).measure)
    with pytest.raises(ConfigError):
        tabulate(predicted, split.test, ["dif"])
