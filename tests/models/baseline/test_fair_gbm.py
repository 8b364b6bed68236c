from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from fairfrontier import create
from fairfrontier.models.baseline.fair_gbm import (
    FairGBM,
    GameResult,
    ascend,
    build_cells,
    differentiate,
    find_gap,
)
from fairfrontier.models.group import EVENTS
from fairfrontier.models.objective import list_serving
from fairfrontier.runtime.errors import ConfigError
from tests.models.tables import make_split, measure_gap

TREES = {"n_estimators": 60, "max_depth": 3, "learning_rate": 0.2}


@pytest.fixture(scope="module")
def table():
    """Four groups, of two attributes, whose rates differ."""
    rng = np.random.default_rng(0)
    n = 2000
    groups = rng.integers(2, size=(n, 2))
    kind = rng.integers(10, size=n)
    chance = np.clip(0.05 + 0.09 * kind + 0.3 * groups[:, 0] - 0.2 * groups[:, 1], 0, 1)
    X = np.column_stack([kind, groups, rng.normal(size=n)]).astype(np.float64)
    return X, (rng.random(n) < chance).astype(np.int64), groups


@pytest.mark.parametrize("criterion", EVENTS)
def test_the_bound_is_reached_on_the_training_rows(table, criterion):
    X, y, groups = table
    free = create("gbdt", **TREES).fit(X, y)
    apart = measure_gap(free.predict(X), y, groups[:, 0], criterion)
    model = create("fair_gbm", criterion=criterion, bound=0.05, attributes=0, **TREES)
    decision = model.fit(X, y, sensitive_features=groups).predict(X)
    gap = measure_gap(decision, y, groups[:, 0], criterion)
    assert apart > 0.12
    assert gap < 0.07
    assert model.report_["rate_gap"] == pytest.approx(gap)
    assert model.report_["error"] == pytest.approx((decision != y).mean())
    assert (decision == y).mean() > max(y.mean(), 1 - y.mean()) + 0.05


@pytest.mark.parametrize("costs", [(1.0, 5.0), (4.0, 1.0)])
def test_a_class_weight_serves_costs(table, costs):
    X, y, groups = table
    objective = {"costs": dict(zip(("false_positive", "false_negative"), costs, strict=True))}
    found = []
    for parameters in ({}, list_serving(objective, FairGBM)):
        model = create("fair_gbm", bound=0.1, attributes=0, **TREES, **parameters)
        decision = model.fit(X, y, sensitive_features=groups).predict(X)
        found.append(np.mean(np.array(costs)[y] * (decision != y)))
    assert found[1] < 0.9 * found[0]


def test_groups_that_columns_of_the_table_cross(table):
    X, y, groups = table
    crossed = groups @ [2, 1]
    one = create("fair_gbm", criterion="parity", bound=0.05, attributes=0, **TREES)
    both = create("fair_gbm", criterion="parity", bound=0.05, **TREES)
    one.fit(X, y, sensitive_features=groups)
    both.fit(X, y, sensitive_features=groups)
    assert both.cells_.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert measure_gap(both.predict(X), y, crossed, "parity") < 0.1
    assert measure_gap(one.predict(X), y, crossed, "parity") > 0.2
    np.testing.assert_allclose(both.multiplier_.sum(axis=1), 0, atol=1e-12)
    # The same four groups as levels of one attribute.
    named = create("fair_gbm", criterion="parity", bound=0.05, **TREES)
    named.fit(X, y, sensitive_features=crossed[:, None])
    np.testing.assert_array_equal(named.predict_proba(X), both.predict_proba(X))


@pytest.mark.parametrize("scale", [1.0, "balanced"])
def test_a_bound_that_never_binds_leaves_plain_boosting(table, scale):
    X, y, groups = table
    settings = {**TREES, "scale_pos_weight": scale}
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    plain = create("gbdt", **settings).fit(X, y, sample_weight=weight)
    ours = create("fair_gbm", bound=1.0, **settings)
    ours.fit(X, y, sensitive_features=groups, sample_weight=weight)
    np.testing.assert_allclose(ours.predict_proba(X), plain.predict_proba(X), atol=1e-6)


def test_weights_count_rows(table):
    # Ten values and no noise: repeated rows do not move the quantiles at which hist cuts.
    X, y, groups = (array[:800] for array in table)
    X = X[:, :3]
    counts = np.random.default_rng(2).integers(1, 4, len(y))
    repeated = [np.repeat(array, counts, axis=0) for array in (X, y, groups)]
    # Halves are drawn by row: a repeated row may be in both.
    settings = {**TREES, "n_estimators": 20, "attributes": 0, "cross_fit_below": 0}
    one = create("fair_gbm", **settings).fit(
        repeated[0], repeated[1], sensitive_features=repeated[2]
    )
    other = create("fair_gbm", **settings).fit(
        X, y, sensitive_features=groups, sample_weight=counts
    )
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(one.multiplier_, other.multiplier_, atol=1e-3)


def draw_noisy(n, rng):
    """Return many features of noise, one that leans on the group and one that does not."""
    group = rng.integers(2, size=n)
    X = rng.normal(size=(n, 20))
    X[:, 0] += 1.5 * group
    chance = 1 / (1 + np.exp(0.9 - 1.2 * X[:, 0] - X[:, 1]))
    return X, (rng.random(n) < chance).astype(np.int64), group


def test_rates_of_rows_that_trees_memorise_are_cross_fitted():
    rng = np.random.default_rng(4)
    (X, y, group), (fresh, labels, other) = draw_noisy(600, rng), draw_noisy(20_000, rng)
    settings = {**TREES, "criterion": "equal_opportunity", "bound": 0.1}
    gaps = []
    for below in (0, 1000):
        model = FairGBM(cross_fit_below=below, **settings).fit(
            X, y, sensitive_features=group[:, None]
        )
        gaps.append(measure_gap(model.predict(fresh), labels, other, "equal_opportunity"))
        assert (model.predict(fresh) == labels).mean() > 0.6
    # Of the rows that they are trained on, trees meet any bound.
    assert gaps[0] > 0.2
    assert gaps[1] < 0.1
    # Cells too small for a rate of held-out rows have that of training rows.
    few = group * (np.cumsum(group) <= 8)
    one, both = (
        FairGBM(cross_fit_below=below, **settings | {"n_estimators": 5})
        .fit(X, y, sensitive_features=few[:, None]).multiplier_ for below in (0, 1000)
    )  # fmt: skip
    np.testing.assert_array_equal(one, both)


def test_trees_end_where_the_validation_rows_say():
    split = make_split(400)
    train, part = split.train, split.test
    settings = {"n_estimators": 80, "max_depth": 2, "bound": 0.2}
    whole = FairGBM(**settings).fit(train.X, train.y, sensitive_features=train.groups)
    ended = FairGBM(**settings).fit(
        train.X, train.y, sensitive_features=train.groups, validation=part
    )
    rounds = ended.report_["iterations"]
    assert 1 < rounds < whole.report_["iterations"] == 80
    assert ended.booster_.num_boosted_rounds() == rounds
    # The trees themselves do not depend on the validation rows.
    first = whole.booster_[:rounds]
    assert first.save_raw() == ended.booster_.save_raw()
    decision = ended.predict(part.X)
    assert ended.report_["error"] == pytest.approx((decision != part.y).mean())
    gap = measure_gap(decision, part.y, part.groups[:, 0], "equalized_odds")
    assert ended.report_["rate_gap"] == pytest.approx(gap)


def test_a_group_of_the_validation_rows_alone_has_no_multiplier():
    split = make_split(200)
    train, part = split.train, split.test
    strange = replace(part, groups=np.where(part.ids[:, None] % 5 == 0, 7, part.groups))
    model = FairGBM(n_estimators=5).fit(
        train.X, train.y, sensitive_features=train.groups, validation=strange
    )
    assert model.cells_.tolist() == [[0], [1], [7]]
    assert (model.multiplier_[:, 2] == 0).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"criterion": "odds"}, "criterion"),
        ({"bound": 1.5}, "bound"),
        ({"multiplier_rate": 0.0}, "multiplier_rate"),
        ({"attributes": 3}, "columns"),
    ],
)
def test_invalid_parameters_are_named(table, wrong, message):
    X, y, groups = table
    with pytest.raises(ConfigError, match=message):
        FairGBM(**wrong).fit(X, y, sensitive_features=groups)


def draw(n=400, n_groups=3, seed=0):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(2, size=n), rng.integers(n_groups, size=n)
    return y, group, rng.exponential(size=n), rng.normal(size=n)


@pytest.mark.parametrize("criterion", EVENTS)
def test_rates_are_those_of_the_rows_in_each_cell(criterion):
    y, group, weight, margin = draw()
    cells = build_cells(y, group, 3, weight, criterion)
    rate = cells.measure(margin >= 0)
    assert rate.shape == cells.share.shape == (len(EVENTS[criterion]), 3)
    for event, label in enumerate(EVENTS[criterion]):
        for k in range(3):
            rows = (group == k) & (True if label is None else y == label)
            expected = np.average(margin[rows] >= 0, weights=weight[rows])
            assert rate[event, k] == pytest.approx(expected)
            assert cells.share[event, k] == pytest.approx(weight[rows].sum() / weight.sum())


def test_rows_outside_of_the_event_have_no_price():
    y, group, weight, _ = draw()
    cells = build_cells(y, group, 3, weight, "equal_opportunity")
    price = cells.spread(np.array([[1.0, 2.0, -3.0]]))
    np.testing.assert_array_equal(price, np.where(y == 1, np.array([1.0, 2.0, -3.0])[group], 0.0))


def test_a_group_without_rows_has_no_rate_and_no_price():
    y, group = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    cells = build_cells(y, group, 3, np.ones(4), "equalized_odds")
    rate = cells.measure(np.array([True, True, False, True]))
    assert np.isnan(rate[:, 2]).all()
    assert find_gap(rate) == 1.0
    price = ascend(np.zeros((2, 3)), rate, cells.share, 0.5, 0.0)
    assert np.isfinite(price).all()
    assert (price[:, 2] == 0).all()
    assert price[0].tolist() == [0.25, -0.25, 0.0]


def test_derivatives_are_those_of_the_lagrangian():
    y, _, weight, margin = draw(40)
    price = np.random.default_rng(1).normal(size=40)

    def lagrangian(f):
        proxy = np.where(price > 0, np.logaddexp(0, f), -np.logaddexp(0, -f))
        return weight * (np.logaddexp(0, f) - y * f) + price * proxy

    gradient, curvature = differentiate(margin, y, weight, price)
    h = 1e-4
    up, middle, down = (lagrangian(margin + shift) for shift in (h, 0.0, -h))
    np.testing.assert_allclose(gradient, (up - down) / (2 * h), atol=1e-7)
    np.testing.assert_allclose(curvature, (up - 2 * middle + down) / h**2, atol=1e-6)
    assert (curvature > 0).all()


def test_two_groups_by_hand():
    share, rate = np.array([[0.25, 0.25]]), np.array([[0.7, 0.3]])
    # η (r − ν) with ν = ½, and η ε / 2 = .05 less.
    price = ascend(np.zeros((1, 2)), rate, share, step=0.5, bound=0.2)
    np.testing.assert_allclose(price, [[0.05, -0.05]])
    # Equal rates lower the prices by η ε / 2, down to 0.
    later = ascend(price, np.array([[0.5, 0.5]]), share, step=0.5, bound=0.1)
    np.testing.assert_allclose(later, [[0.025, -0.025]])
    assert not ascend(later, np.array([[0.5, 0.5]]), share, step=0.5, bound=0.2).any()


@pytest.mark.parametrize("bound", [0.0, 0.1, 0.4])
def test_a_step_solves_its_problem(bound):
    rng = np.random.default_rng(3)
    share, rate = rng.uniform(0.1, 0.5, (1, 4)), rng.random((1, 4))
    start = rng.normal(size=4)
    start -= share[0] @ start / share.sum()
    price = ascend(start[None], rate, share, 0.7, bound)[0]

    def value(halves):
        u = halves[:4] - halves[4:]
        gain = u * rate[0] - (u - start) ** 2 / 1.4
        return -(share[0] @ gain - bound / 2 * share[0] @ halves.reshape(2, 4).sum(axis=0))

    best = minimize(
        value,
        np.concatenate([np.maximum(start, 0), np.maximum(-start, 0)]),
        method="SLSQP",
        bounds=[(0, None)] * 8,
        constraints=LinearConstraint(np.append(share[0], -share[0])[None], 0, 0),
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert share[0] @ price == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(price, best.x[:4] - best.x[4:], atol=1e-5)


def test_prices_of_a_toy_settle_where_the_rates_meet():
    # A group's rate falls by a tenth of its price; without prices they are .8, .5 and .2.
    share, free = np.array([[0.2, 0.3, 0.5]]), np.array([[0.8, 0.5, 0.2]])
    price = np.zeros((1, 3))
    for _ in range(400):
        price = ascend(price, free - 0.1 * price, share, step=0.5, bound=0.1)
    rate = free - 0.1 * price
    assert find_gap(rate) == pytest.approx(0.1, abs=1e-6)
    assert (share * price).sum() == pytest.approx(0.0, abs=1e-12)


def test_the_round_of_the_least_lagrangian_is_chosen():
    price, share = np.array([[-1.0, 1.0]]), np.array([[0.5, 0.5]])
    rate = np.array([[[0.0, 0.4]], [[0.3, 0.3]], [[0.3, np.nan]]])
    played = GameResult(None, price, np.array([0.2, 0.25, 0.45]), rate)
    # .2 + .2, .25 + 0 and .45 − .15
    assert played.choose_round(share) == 1
