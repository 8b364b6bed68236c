from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import expit

from fairfrontier import create, learn
from fairfrontier.metrics.certificate.certificate import (
    certify,
    certify_gaps,
    tabulate_loss,
    trace_gap,
)
from fairfrontier.metrics.verb import tabulate
from fairfrontier.models.individual.budro.solver import solve
from fairfrontier.models.individual.budro.transport import Setting
from fairfrontier.models.prediction import Prediction, predict_part
from fairfrontier.runtime.errors import ConfigError, DataError
from papers.rival.transport_plan import build_problem
from tests.models.tables import make_split

BUDGETS = (0.0, 0.02, 0.3, 2.0, 100.0)


def rows(seed, n=14, classes=2, ties=False):
    generator = np.random.default_rng(seed)
    losses = -np.log(generator.dirichlet(np.ones(classes), size=n))
    z = generator.normal(size=(n, 2))
    if ties:
        losses, z = np.round(losses), np.round(z)
    return losses, generator.integers(classes, size=n), z, generator.integers(1, 4, size=n)


def by_linear_programme(losses, label, z, budget, weight):
    n = len(z)
    mass = weight / weight.sum()
    moved = losses[:, label]
    found = linprog(
        -moved.reshape(-1),
        A_ub=np.sum((z[:, None] - z[None]) ** 2, axis=2).reshape(1, -1),
        b_ub=[budget],
        A_eq=np.kron(np.ones((1, n)), np.eye(n)),
        b_eq=mass,
    )
    return -found.fun - mass @ np.diag(moved)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([2, 3]), st.booleans())
def test_it_equals_the_linear_programme(seed, classes, ties):
    losses, label, z, weight = rows(seed, classes=classes, ties=ties)
    found = trace_gap(losses, label, z, BUDGETS, weight=weight, tolerance=1e-10, replicates=0)
    for each in found.gaps:
        expected = by_linear_programme(losses, label, z, each.budget, weight)
        assert each.value == pytest.approx(expected, abs=1e-8)
        assert each.upper >= each.value
        assert each.upper == pytest.approx(expected, abs=1e-7)


def test_it_equals_what_budro_solves():
    losses, label, z, _ = rows(1, n=300)
    budgets = [0.01, 0.1, 0.5]
    found = trace_gap(losses, label, z, budgets, replicates=50)
    own = losses[np.arange(300), label].mean()
    for each in found.gaps:
        told = solve(build_problem(z, label, losses, each.budget), setting=Setting(tolerance=1e-8))
        assert each.value + own == pytest.approx(told.objective, rel=1e-6)


def test_maps_mix_to_the_value_within_the_budget():
    losses, label, z, weight = rows(2, n=80)
    found = trace_gap(losses, label, z, BUDGETS, weight=weight, replicates=30)
    for each in found.gaps:
        mixed = found.mix_maps(each.budget)
        assert sum(share for share, _ in mixed) == pytest.approx(1)
        gain = sum(share * found.mass @ found.gain[i] for share, i in mixed)
        assert gain == pytest.approx(each.value, rel=1e-12, abs=1e-15)
        cost = sum(share * found.mass @ found.cost[i] for share, i in mixed)
        assert cost <= each.budget + 1e-12
    # What is told of a map's targets is what it gains and costs.
    place = found.rows
    step = z[place][found.target] - z[place][None]
    assert found.cost == pytest.approx(np.sum(step**2, axis=2))
    reached = losses[place][found.target, label[place][None]]
    assert found.gain == pytest.approx(reached - losses[place, label[place]])


def test_more_budget_never_certifies_less():
    losses, label, z, _ = rows(3, n=60)
    found = trace_gap(losses, label, z, BUDGETS, replicates=0)
    values = [each.value for each in found.gaps]
    assert values == sorted(values)
    assert values[0] == 0
    assert np.isnan(found.gaps[0].low)


def test_rows_that_coincide_and_differ_in_loss_show_without_a_budget():
    losses = np.array([[0.0, 1.0], [0.0, 3.0]])
    found = trace_gap(losses, np.array([1, 1]), np.zeros((2, 1)), [0.0], replicates=0)
    assert found.gaps[0].value == pytest.approx(1)


def test_a_constant_model_has_no_gap():
    losses = np.tile([[0.3, 1.2]], (30, 1))
    _, label, z, _ = rows(0, n=30)
    for each in trace_gap(losses, label, z, BUDGETS).gaps:
        assert (each.value, each.upper, each.low, each.high) == (0, 0, 0, 0)


def test_neither_values_nor_intervals_depend_on_the_order_of_rows():
    losses, label, z, weight = rows(5, n=150, ties=True)
    order = np.random.default_rng(0).permutation(150)
    there = trace_gap(losses, label, z, BUDGETS, weight=weight, replicates=100)
    back = trace_gap(
        losses[order], label[order], z[order], BUDGETS, weight=weight[order], replicates=100
    )
    assert back.gaps == there.gaps


def test_weights_are_copies_and_no_weight_is_no_row():
    losses, label, z, weight = rows(6, n=60)
    weight[:5] = 0
    weighted = trace_gap(losses, label, z, BUDGETS, weight=weight, replicates=0)
    copies = np.repeat(np.arange(60), weight)
    copied = trace_gap(losses[copies], label[copies], z[copies], BUDGETS, replicates=0)
    for one, other in zip(weighted.gaps, copied.gaps, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-12)
    assert weighted.gaps[0].n == 55


def draw_people(generator, n):
    """Draw people whose score leans on what the metric ignores."""
    z, hidden = generator.normal(size=(n, 1)), generator.integers(2, size=n)
    score = z[:, 0] + 0.8 * hidden
    label = (generator.random(n) < expit(score)).astype(np.int64)
    return np.stack([np.logaddexp(0, score), np.logaddexp(0, -score)], axis=1), label, z


def face_counterparts(people, counterparts, budget):
    """Return the gap of many people who may become themselves or one of the counterparts."""
    (losses, label, z), (others, _, there) = people, counterparts
    own = losses[np.arange(len(label)), label]
    gain = others[:, label] - own
    cost = np.sum((there[:, None] - z[None]) ** 2, axis=2)
    values = [
        eta * budget + np.maximum(np.max(gain - eta * cost, axis=0), 0).mean()
        for eta in np.geomspace(0.2, 20, 40)
    ]
    return min(values)


def test_intervals_cover_the_gap_of_the_population():
    generator = np.random.default_rng(11)
    n, budget = 150, 0.05
    truth = np.mean(
        [
            face_counterparts(draw_people(generator, 800), draw_people(generator, n), budget)
            for _ in range(12)
        ]
    )
    found = [
        trace_gap(*draw_people(generator, n), [budget], tolerance=1e-4, replicates=150).gaps[0]
        for _ in range(100)
    ]
    covered = np.mean([each.low <= truth <= each.high for each in found])
    spread = np.std([each.value for each in found])
    width = np.mean([each.high - each.low for each in found])
    assert covered >= 0.9
    # And they are no wider than they need be.
    assert width == pytest.approx(2 * 1.96 * spread, rel=0.3)


class Coin:
    """A rule that draws its decisions: 1 with the probability in the second column."""

    randomized = True

    def predict_proba(self, X):
        p = expit(X[:, 1])
        return np.stack([1 - p, p], axis=1)


def test_any_classifier_is_certified_and_measured():
    split = make_split(300)
    metric = learn("subspace", split)
    linear = create("linear").fit(split.train.X, split.train.y)
    project = create("project").fit(split.train.X, split.train.y, metric=metric)
    found = {
        "linear": certify(linear, split.test, metric, [0.0, 0.5], rows=100, replicates=50),
        "project": certify(project, split.test, metric, [0.0, 0.5], rows=100, replicates=50),
        "coin": certify(Coin(), split.test, metric, [0.0, 0.5], rows=100, replicates=50),
    }
    assert [each.loss for each in found.values()] == ["log", "log", "error"]
    assert all(each.gaps[0].n == 100 for each in found.values())
    for each in found.values():
        assert 0 < each.gaps[1].low < each.gaps[1].value < each.gaps[1].high
    # A model on the projected rows cannot tell rows apart that the metric does not.
    assert found["project"].gaps[0].value == pytest.approx(0, abs=1e-12)
    predicted = predict_part(linear, split.test)
    gaps = certify_gaps(predicted, split.test, metric, [0.0, 0.5], rows=100, replicates=50)
    assert gaps[0].gaps == found["linear"].gaps
    table = tabulate(predicted, split.test, gaps=gaps)
    for name, each in zip(("adversarial_gap", "adversarial_error_gap"), gaps, strict=True):
        shown = table[table.measure == name].set_index("group").loc["budget=0.5"]
        told = each.find_gap(0.5)
        assert (shown.value, shown.low, shown.high) == (told.value, told.low, told.high)
    with pytest.raises(ConfigError, match=r"budget 0\.1 was not certified"):
        gaps[0].find_gap(0.1)


def test_post_processed_models_are_certified_by_their_decisions():
    split = make_split(300)
    metric = learn("subspace", split)
    model = create("linear").fit(split.train.X, split.train.y)
    score = model.predict_proba(split.train.X)[:, 1]
    rule = create("randomized_threshold", budget=0.0)
    rule.fit(score, split.train.y, sensitive_features=split.train.groups)
    chain = rule.behind(model)
    found = certify(chain, split.test, metric, [0.1], rows=None, replicates=50)
    assert found.loss == "error"
    part = split.test
    chance = chain.predict_proba(part.X, sensitive_features=part.groups)[:, 1]
    wrong = np.stack([chance, 1 - chance], axis=1)
    told = trace_gap(wrong, part.y, metric.embed(part.X), [0.1], replicates=0)
    assert found.gaps[0].value == pytest.approx(told.gaps[0].value, rel=1e-6)


def test_losses():
    part = make_split(8).test
    part = replace(part, y=np.array([0, 1, 2, 0]), classes=("a", "b", "c"))
    score = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.1, 0.8, 0.1], [0.4, 0.3, 0.3]])
    predicted = Prediction(score, np.argmax(score, axis=1).astype(np.float64))
    log = tabulate_loss(predicted, part, "log")
    assert log[0] == pytest.approx(-np.log(score[0]))
    assert log[1] == pytest.approx([0, -np.log(1e-6), -np.log(1e-6)])
    error = tabulate_loss(predicted, part, "error")
    assert error.tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1], [0, 1, 1]]
    with pytest.raises(ConfigError):
        tabulate_loss(predicted, part, "eror")


def test_budgets_may_be_an_array():
    losses, label, z, _ = rows(0)
    found, wanted = (
        trace_gap(losses, label, z, each, replicates=0) for each in (np.array([0.1, 1.0]), [0.1, 1])
    )
    np.testing.assert_equal(list(map(astuple, found.gaps)), list(map(astuple, wanted.gaps)))
    with pytest.raises(ConfigError):
        trace_gap(losses, label, z, np.empty(0))


def test_what_cannot_be_certified_is_refused():
    losses, label, z, _ = rows(0)
    for budgets in ([-1.0], [], [float("nan")], [float("inf")]):
        with pytest.raises(ConfigError):
            trace_gap(losses, label, z, budgets)
    for weight in (-1.0, float("nan")):
        with pytest.raises(DataError):
            trace_gap(losses, label, z, [0.1], weight=np.append(np.ones(len(z) - 1), weight))
    with pytest.raises(ConfigError):
        trace_gap(losses, label, z, [0.1], weight=np.zeros(len(z)))
    split = make_split(60)
    with pytest.raises(ConfigError):
        certify(None, replace(split.test, classes=()), learn("subspace", split), [0.1])
    model = create("linear").fit(split.train.X, split.train.y)
    with pytest.raises(ConfigError):
        tabulate(predict_part(model, split.test), split.test, ["adversarial_gap"])
