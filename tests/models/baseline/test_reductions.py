from __future__ import annotations

import numpy as np
import pytest
from fairlearn.reductions import DemographicParity, GridSearch
from scipy.optimize import linprog

from fairfrontier import create
from fairfrontier.models.baseline.reductions import Reductions
from fairfrontier.models.group import EVENTS
from fairfrontier.models.registry import load_model
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.models.tables import make_split

# Learns any function of few values: one tree without penalties.
SATURATED = {
    "learner": "gbdt",
    "learner_parameters": {
        "n_estimators": 1,
        "max_depth": 5,
        "learning_rate": 1.0,
        "reg_lambda": 0.0,
        "min_child_weight": 0.0,
    },
}


def draw_cells(n=600, seed=0):
    """Two groups and eight kinds of rows, whose shares and chances differ by group."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    kind = np.minimum(rng.binomial(7, 0.35 + 0.25 * group), 7)
    y = (rng.random(n) < 0.1 + 0.11 * kind).astype(np.int64)
    return kind[:, None].astype(np.float64), y, group[:, None]


def measure(positive, y, group, criterion):
    """Return the largest distance of a group's rate from that of all rows."""
    distances = []
    for label in EVENTS[criterion]:
        event = np.full(len(y), True) if label is None else y == label
        overall = positive[event].mean()
        distances += [
            abs(positive[event & (group == code)].mean() - overall) for code in np.unique(group)
        ]
    return max(distances)


def solve_program(kind, y, group, criterion, budget):
    """Return the least error of P(h=1 | kind) within the budget, by a linear programme."""
    is_kind = kind[:, None] == np.unique(kind)
    rows = []
    for label in EVENTS[criterion]:
        event = np.full(len(y), True) if label is None else y == label
        for code in np.unique(group):
            difference = is_kind[event & (group == code)].mean(axis=0) - is_kind[event].mean(axis=0)
            rows += [difference, -difference]
    gain = (is_kind * (1 - 2 * y)[:, None]).mean(axis=0)
    found = linprog(gain, A_ub=np.array(rows), b_ub=np.full(len(rows), budget), bounds=(0, 1))
    return y.mean() + found.fun


@pytest.mark.parametrize("criterion", EVENTS)
def test_the_mixture_is_near_the_linear_programme_s(criterion):
    X, y, groups = draw_cells()
    free = create("gbdt", **SATURATED["learner_parameters"]).fit(X, y)
    assert measure(free.predict(X), y, groups[:, 0], criterion) > 0.2
    model = create("reductions", criterion=criterion, bound=0.06, max_iter=4, **SATURATED)
    positive = model.fit(X, y, sensitive_features=groups).predict_proba(X)[:, 1]
    gap = model.report_["gap"]
    assert gap < 0.01
    assert measure(positive, y, groups[:, 0], criterion) <= 0.03 + gap + 1e-9
    least = solve_program(X[:, 0], y, groups[:, 0], criterion, 0.03)
    error = np.where(y == 1, 1 - positive, positive).mean()
    assert least - 1e-9 <= error <= least + 2 * gap + 1e-9


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("bound", "nearest"), [(1.0, False), (0.1, False), (0.01, True)])
def test_the_grid_s_is_the_most_accurate_within_the_bound(bound, nearest):
    X, y, groups = draw_cells()
    model = create("reductions", solver="grid_search", bound=bound, grid_size=9, **SATURATED)
    decision = model.fit(X, y, sensitive_features=groups).predict(X)
    assert model.probability_.tolist() == [1.0]
    learner = create("gbdt", **SATURATED["learner_parameters"])
    grid = GridSearch(learner, DemographicParity(), grid_size=9)
    grid.fit(X, y, sensitive_features=groups[:, 0])
    tried = [
        (measure(each.predict(X), y, groups[:, 0], "parity"), np.mean(each.predict(X) != y))
        for each in grid.predictors_
    ]
    within = [error for distance, error in tried if distance <= bound / 2]
    assert (not within) is nearest
    assert np.mean(decision != y) == (min(within) if within else min(tried)[1])


@pytest.mark.parametrize(
    ("objective", "costs"),
    [
        ("balanced_accuracy", None),
        ({"costs": {"false_positive": 1, "false_negative": 4}}, (1.0, 4.0)),
    ],
)
@pytest.mark.parametrize("solver", ["exponentiated_gradient", "grid_search"])
def test_errors_have_the_objective_s_costs(solver, objective, costs):
    X, y, groups = draw_cells()
    false_positive, false_negative = costs or (1 / (y == 0).sum(), 1 / (y == 1).sum())
    model = create(
        "reductions", objective=objective, solver=solver, bound=1.0, max_iter=2, **SATURATED
    )
    positive = model.fit(X, y, sensitive_features=groups).predict_proba(X)[:, 1]
    for kind in np.unique(X):
        rows = X[:, 0] == kind
        worth = false_negative * y[rows].sum() > false_positive * (1 - y[rows]).sum()
        assert (positive[rows] == worth).all()


@pytest.mark.parametrize("learner", ["linear", "gbdt"])
def test_mixtures_of_any_learner_are_saved(learner, tmp_path):
    train = make_split(200).train
    parameters = None if learner == "linear" else {"n_estimators": 3, "max_depth": 2}
    model = create(
        "reductions", learner=learner, learner_parameters=parameters, bound=0.02, max_iter=3
    )
    model.fit(train.X, train.y, sensitive_features=train.groups)
    assert len(model.classifiers_) > 1
    loaded = load_model(model.save(tmp_path / "model"))
    assert loaded.predict_proba(train.X).tobytes() == model.predict_proba(train.X).tobytes()
    assert not list((tmp_path / "model").glob("*.pkl"))


def test_one_label_for_all_rows_is_a_classifier(tmp_path):
    X, y, groups = draw_cells(60)
    # Without a feature nothing can be learnt, and the game is between the two labels.
    model = create("reductions", bound=0.0, max_iter=2, **SATURATED)
    model.fit(np.zeros_like(X), y, sensitive_features=groups)
    model.classifiers_, model.probability_ = (0, 1), np.array([0.25, 0.75])
    assert model.predict_proba(X)[:, 1].tolist() == [0.75] * 60
    loaded = load_model(model.save(tmp_path / "model"))
    assert loaded.classifiers_ == (0, 1)


def test_draws_follow_the_row_ids():
    X, y, groups = draw_cells()
    names = np.where(y == 1, "yes", "no")
    model = create("reductions", bound=0.2, max_iter=4, **SATURATED)
    model.fit(X, names, sensitive_features=groups)
    chance = model.predict_proba(X)[:, 1]
    assert ((chance > 0.1) & (chance < 0.9)).any()
    ids = np.random.default_rng(1).permutation(10 * len(X))[: len(X)]
    drawn = model.predict(X, ids=ids)
    some = np.arange(0, len(X), 7)
    np.testing.assert_array_equal(model.predict(X[some], ids=ids[some]), drawn[some])
    share = np.mean([model.predict(X, ids=ids + k * 10_000) == "yes" for k in range(300)], axis=0)
    np.testing.assert_allclose(share, chance, atol=0.15)
    assert np.abs(share - chance).mean() < 0.03


def test_groups_are_crossed():
    X, y, group = draw_cells()
    other = np.random.default_rng(2).integers(3, size=len(y))
    settings = {"bound": 0.04, "max_iter": 4, **SATURATED}
    both = create("reductions", **settings).fit(
        X, y, sensitive_features=np.column_stack([group, other])
    )
    named = create("reductions", **settings).fit(
        X, y, sensitive_features=3 * group + other[:, None]
    )
    np.testing.assert_array_equal(both.predict_proba(X), named.predict_proba(X))
    positive = both.predict_proba(X)[:, 1]
    reached = measure(positive, y, 3 * group[:, 0] + other, "parity")
    assert reached <= 2 * (0.02 + both.report_["gap"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"criterion": "odds"}, "criterion"),
        ({"solver": "newton"}, "solver"),
        ({"objective": "auc"}, "objective"),
        ({"bound": -0.1}, "bound"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"learner": "gbtd"}, "no method 'gbtd'"),
        ({"learner": "budro"}, "needs metric"),
        ({"learner": "reductions"}, "needs sensitive_features"),
        ({"learner": "linear_regression"}, "no weighted classes"),
        ({"learner": "gbdt", "learner_parameters": {"depth": 3}}, "no parameter 'depth'"),
        ({"learner": "gbdt", "learner_parameters": {"max_depth": -1}}, "max_depth"),
    ],
)
def test_invalid_parameters_are_named(wrong, message):
    X, y, groups = draw_cells(40)
    with pytest.raises(ConfigError, match=message):
        Reductions(**wrong).fit(X, y, sensitive_features=groups)


@pytest.mark.parametrize("solver", ["exponentiated_gradient", "grid_search"])
def test_one_group_alone_is_refused(solver):
    X, y, groups = draw_cells(40)
    with pytest.raises(DataError):
        Reductions(solver=solver).fit(X, y, sensitive_features=0 * groups)
