from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from scipy.sparse import eye, kron
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairfrontier import create, load_model
from fairfrontier.metrics.grouped import by_group
from fairfrontier.models.baseline.linear_post import (
    LinearPost,
    RateProblem,
    list_events,
    solve_rates,
)
from fairfrontier.models.group import EVENTS
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.models.tables import measure_gap

TREES = {"n_estimators": 40, "max_depth": 3, "learning_rate": 0.2}


def draw_table(n, seed=0, n_groups=2):
    """Return rows whose first feature leans on the group, and labels that follow two of them."""
    rng = np.random.default_rng(seed)
    group = rng.integers(n_groups, size=n)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 1.2 * group
    chance = 1 / (1 + np.exp(0.8 - X[:, 0] - X[:, 1]))
    return X, (rng.random(n) < chance).astype(np.int64), group[:, None]


@cache
def fit_all(n_groups):
    """Return a free and a bounded model for each criterion: they share their trees."""
    X, y, groups = draw_table(4000, n_groups=n_groups)
    keys = list(product(EVENTS, (1.0, 0.05)))
    models = [LinearPost(criterion=criterion, bound=bound, **TREES) for criterion, bound in keys]
    data = {"X": X, "y": y, "sensitive_features": groups}
    LinearPost.fit_batch(models, [data] * len(models))
    return dict(zip(keys, models, strict=True))


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("criterion", EVENTS)
def test_fresh_rows_keep_the_bound_without_their_groups(criterion, n_groups):
    _, y, groups = draw_table(4000, n_groups=n_groups)
    fresh, labels, others = draw_table(20_000, seed=1, n_groups=n_groups)
    free, bounded = (fit_all(n_groups)[criterion, bound] for bound in (1.0, 0.05))
    decided = bounded.predict(fresh)
    gaps = [measure_gap(model.predict(fresh), labels, others[:, 0], criterion)
            for model in (free, bounded)]  # fmt: skip
    # Three standard errors of a difference of two rates, from the rows that prices are found on.
    error = 3 * np.sqrt(0.5 / np.bincount(2 * groups[:, 0] + y).min())
    assert gaps[1] < 0.05 + error
    assert gaps[1] < gaps[0] / 2
    assert (decided == labels).mean() > max(labels.mean(), 1 - labels.mean()) + 0.05
    assert bounded.report_["gap"] <= 1e-5


def test_without_a_bound_decisions_are_about_those_of_plain_boosting():
    X, y, groups = draw_table(2000)
    plain = create("gbdt", **TREES).fit(X, y)
    model = LinearPost(bound=1.0, **TREES).fit(X, y, sensitive_features=groups)
    assert not model.price_.any()
    assert (model.predict(X) == plain.predict(X)).mean() > 0.95


def draw_families(n, seed):
    """Return incomes, ages and children, which say a little of the sex, and labels."""
    rng = np.random.default_rng(seed)
    sex, zone = rng.integers(2, size=n), rng.choice(3, n, p=[0.6, 0.3, 0.1])
    income, age = rng.normal(50 + 8 * sex, 12, n), rng.integers(18, 70, n)
    children = rng.poisson(1.6 - 0.6 * sex, n)
    margin = 0.06 * (income - 50) + 0.02 * (age - 40) - 0.3 * children - 0.3 * (zone == 2) - 2.2
    X = np.column_stack([income, age, children, zone == 1, zone == 2]).astype(np.float64)
    return X, (rng.random(n) < 1 / (1 + np.exp(-margin))).astype(np.int64), sex[:, None]


def test_rates_are_right_where_groups_are_hard_to_guess():
    # Probabilities that are calibrated each for itself leave .07 in the mean.
    fresh, labels, others = draw_families(40_000, seed=99)
    settings = {"criterion": "parity", "objective": "balanced_accuracy", "bound": 0.0}
    gaps = []
    for seed in (1, 2, 3):
        X, y, groups = draw_families(2400, seed)
        model = LinearPost(**settings).fit(X, y, sensitive_features=groups)
        gaps.append(measure_gap(model.predict(fresh), labels, others[:, 0], "parity"))
    assert np.mean(gaps) < 0.04


def test_one_group_alone_is_refused():
    X, y, groups = draw_table(40)
    with pytest.raises(DataError):
        LinearPost(**TREES).fit(X, y, sensitive_features=0 * groups)


@pytest.mark.parametrize("costs", [(1.0, 4.0), (4.0, 1.0)])
def test_decisions_serve_costs(costs):
    X, y, groups = draw_table(1500)
    objective = {"costs": dict(zip(("false_positive", "false_negative"), costs, strict=True))}
    lost = []
    for each in ("accuracy", objective):
        model = LinearPost(objective=each, bound=0.1, **TREES).fit(X, y, sensitive_features=groups)
        lost.append(np.mean(np.array(costs)[y] * (model.predict(X) != y)))
    assert lost[1] < 0.9 * lost[0]


def test_models_of_one_table_share_trees_and_are_those_fitted_alone():
    X, y, groups = draw_table(600)
    names = np.where(y == 1, "yes", "no")
    data = {"X": X, "y": names, "sensitive_features": groups}
    together = [
        LinearPost(criterion=criterion, bound=bound, **TREES)
        for criterion, bound in (("parity", 0.0), ("equalized_odds", 0.1))
    ]
    LinearPost.fit_batch(together, [data, data])
    assert together[0].guesser_ is together[1].guesser_
    for model in together:
        alone = LinearPost(**model.get_params()).fit(X, names, sensitive_features=groups)
        np.testing.assert_array_equal(alone.predict_proba(X), model.predict_proba(X))
    assert together[0].structure() == together[1].structure()
    assert together[0].structure() != LinearPost(**TREES | {"max_depth": 2}).structure()


def test_a_group_without_a_row_in_an_event_is_not_bounded():
    X, y, groups = draw_table(900, n_groups=3)
    y[groups[:, 0] == 2] = 0
    model = LinearPost(criterion="equal_opportunity", bound=0.0, **TREES).fit(
        X, y, sensitive_features=groups
    )
    assert model.price_[0, :2].all()
    assert model.price_[0, 2] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"criterion": "odds"}, "criterion"),
        ({"objective": "auc"}, "objective"),
        ({"bound": 2.0}, "bound"),
        ({"folds": 1}, "folds"),
        ({"max_depth": -1}, "max_depth"),
        ({"attributes": 3}, "columns"),
    ],
)
def test_invalid_parameters_are_named(wrong, message):
    X, y, groups = draw_table(40)
    with pytest.raises(ConfigError, match=message):
        LinearPost(**wrong).fit(X, y, sensitive_features=groups)


def draw_problem(bound, seed=0, n=300):
    """Three groups in one event and two in another, each with its rates."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.5, 2.0, n)
    weight /= weight.sum()
    lean = rng.dirichlet(np.ones(5), n)
    gain = lean @ [0.9, -0.2, -0.7, 0.6, -0.5] + 0.3 * rng.normal(size=n)
    gain, event = np.stack([0 * gain, gain], axis=1), np.array([0, 0, 0, 1, 1])
    share, column = lean / (weight @ lean), np.arange(5)
    return RateProblem(gain, share, column, np.ones(5, dtype=int), event, weight, bound)


def draw_classes(criterion, n_classes, n_groups, bound, *, kind="plain", n=60):
    """Several classes and groups: ``ties`` has rows twice, ``empty`` no row of a cell."""
    rng = np.random.default_rng(10 * n_classes + n_groups)
    n_drawn = n // 3 if kind == "ties" else n
    chance = rng.dirichlet(np.full(n_classes, 0.7), n_drawn)
    group = rng.dirichlet(np.full(n_groups, 0.5), n_drawn)
    if kind == "known":
        group = np.eye(n_groups)[rng.integers(n_groups, size=n_drawn)]
    joint = chance[:, :, None] * group[:, None]
    if kind == "empty":
        joint[:, 0, 0] = 0.0
    joint = np.tile(joint, (n // n_drawn, 1, 1))
    weight = rng.uniform(0.5, 2.0, n)
    weight /= weight.sum()
    cells = [
        (e, k, joint[:, list(among), a].sum(axis=1))
        for e, (among, k) in enumerate(list_events(criterion, n_classes))
        for a in range(n_groups)
    ]
    event, decision, mass = zip(*[each for each in cells if each[2].any()], strict=True)
    mass = np.stack(mass, axis=1)
    return RateProblem(
        joint.sum(axis=2),
        mass / (weight @ mass),
        np.arange(mass.shape[1]),
        np.array(decision),
        np.array(event),
        weight,
        bound,
    )


def solve_program(problem):
    """Return the best expected gain within the bound, by a linear programme over all rules."""
    n, n_decisions = problem.gain.shape
    reached = np.zeros((len(problem.event), n, n_decisions))
    for cell, (column, decision) in enumerate(zip(problem.column, problem.decision, strict=True)):
        reached[cell, :, decision] = problem.weight * problem.share[:, column]
    reached = reached.reshape(len(reached), -1)
    pairs = [(i, j) for i, e in enumerate(problem.event) for j, f in enumerate(problem.event)
             if i != j and e == f]  # fmt: skip
    rows = np.array([reached[i] - reached[j] for i, j in pairs])
    one = kron(eye(n), np.ones((1, n_decisions)))
    found = linprog(-(problem.weight[:, None] * problem.gain).ravel(), A_ub=rows,
                    b_ub=[problem.bound] * len(rows), A_eq=one, b_eq=np.ones(n),
                    bounds=(0, 1))  # fmt: skip
    return -found.fun


@pytest.mark.parametrize("criterion", EVENTS)
@pytest.mark.parametrize(
    ("n_classes", "n_groups", "kind"),
    [(3, 2, "plain"), (3, 5, "empty"), (4, 3, "known"), (4, 2, "ties"), (2, 5, "ties")],
)
@pytest.mark.parametrize("bound", [0.0, 0.05])
def test_the_dual_is_the_best_gain_of_all_rules_of_several_classes(
    criterion, n_classes, n_groups, kind, bound
):
    problem = draw_classes(criterion, n_classes, n_groups, bound, kind=kind)
    found = solve_rates(problem, 3e-5)
    best = solve_program(problem)
    assert best - 1e-8 <= found.value <= best + found.gap + 1e-8
    assert found.gap <= 3e-5


@pytest.mark.parametrize("bound", [0.0, 0.03, 0.1, 1.0])
def test_the_dual_is_the_best_gain_of_all_rules(bound):
    problem = draw_problem(bound)
    found = solve_rates(problem)
    best = solve_program(problem)
    assert best - 1e-9 <= found.value <= best + found.gap + 1e-9
    assert found.gap <= 1e-5
    for event in (0, 1):
        assert abs(found.price[problem.event == event].sum()) < 1e-9
    # Thresholds at these prices reach it, but for the one or two rows on which they lie.
    chosen = problem.weight * (problem.gain[:, 1] > problem.share @ found.price)
    assert chosen @ problem.gain[:, 1] == pytest.approx(best, abs=0.02)
    rates = chosen @ problem.share
    gaps = [np.ptp(rates[problem.event == event]) for event in (0, 1)]
    assert max(gaps) <= bound + 0.05
    assert (found.attained, found.difference) == pytest.approx(
        (chosen @ problem.gain[:, 1], max(gaps))
    )


def test_no_price_where_no_bound_binds():
    assert not solve_rates(draw_problem(1.0)).price.any()


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("fitted", [True, False])
def test_it_stands_behind_any_estimator(n_groups, fitted, tmp_path):
    X, y, groups = draw_table(4000, n_groups=n_groups)
    fresh, labels, others = draw_table(20_000, seed=1, n_groups=n_groups)
    rows, new = (pd.DataFrame(each, columns=list("abc")).assign(d="text") for each in (X, fresh))
    encoder = make_column_transformer((StandardScaler(), list("abc")))
    pipe = make_pipeline(encoder, LogisticRegression())
    named, name = np.array(["no", "yes"])[y], np.array(list("uvw"))[groups[:, 0]]
    if fitted:
        train, yes = draw_table(3000, seed=2, n_groups=n_groups)[:2]
        earlier = pd.DataFrame(train, columns=list("abc"))
        pipe = FrozenEstimator(pipe.fit(earlier, np.array(["no", "yes"])[yes]))
    decided = {}
    for bound in (1.0, 0.05):
        model = LinearPost(pipe, criterion="parity", bound=bound, cv=3)
        model.fit(rows, named, sensitive_features=name)
        decided[bound] = (model.predict(new) == "yes").astype(int)
    gaps = {bound: measure_gap(each, labels, others[:, 0], "parity")
            for bound, each in decided.items()}  # fmt: skip
    assert gaps[0.05] < 0.05 + 3 * np.sqrt(0.5 / np.bincount(groups[:, 0]).min())
    assert gaps[1.0] > 0.15
    assert (decided[0.05] == labels).mean() > max(labels.mean(), 1 - labels.mean()) + 0.05
    back = load_model(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict_proba(new), model.predict_proba(new))


def draw_grades(n, seed=0):
    """Return rows, three grades that follow two of their features, and three groups."""
    X, _, groups = draw_table(n, seed, n_groups=3)
    grade = X[:, 0] + X[:, 1] + np.random.default_rng(seed).logistic(size=n)
    return X, np.array(["a", "b", "c"])[np.digitize(grade, [0.5, 2.5])], groups


@pytest.mark.parametrize(
    ("criterion", "measure"),
    [
        ("parity", "selection_rate_difference"),
        ("equal_opportunity", "gap_max"),
        ("equalized_odds", "equalized_odds_difference"),
    ],
)
@pytest.mark.parametrize("behind", [True, False])
def test_fresh_rows_of_several_classes_keep_the_bound(criterion, measure, behind, tmp_path):
    X, y, groups = draw_grades(4000)
    fresh, labels, others = draw_grades(20_000, seed=1)
    gaps, right = {}, {}
    for bound in (1.0, 0.05):
        settings = {"criterion": criterion, "bound": bound}
        model = LinearPost(LogisticRegression(), cv=3) if behind else LinearPost(**TREES)
        model.set_params(**settings).fit(X, y, sensitive_features=groups)
        decided = model.predict(fresh)
        rows = by_group(labels, decided, sensitive_features={"g": others[:, 0]}, measures=measure)
        gaps[bound], right[bound] = rows["value"].item(), (decided == labels).mean()
        assert model.report_["value"] == pytest.approx(right[bound], abs=0.03)
    error = 3 * np.sqrt(0.5 / np.unique(groups[:, 0] * 3 + (y == "b"), return_counts=True)[1].min())
    assert gaps[0.05] < 0.05 + error
    assert gaps[0.05] < gaps[1.0] / 2
    assert right[1.0] > right[0.05] > (labels == "b").mean()
    back = load_model(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict_proba(fresh), model.predict_proba(fresh))


def test_costs_are_of_two_classes():
    X, y, groups = draw_grades(200)
    costs = {"costs": {"false_positive": 1, "false_negative": 2}}
    with pytest.raises(ConfigError, match="objective"):
        LinearPost(objective=costs, **TREES).fit(X, y, sensitive_features=groups)
