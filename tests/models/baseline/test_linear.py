import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from fairfrontier.models.baseline.linear import Linear
from fairfrontier.runtime.errors import ConfigError, DataError
from tests.models.tables import make_split


def test_linear_minimises_its_objective():
    split = make_split(200)
    X, y = split.train.X, split.train.y
    weight = np.random.default_rng(0).exponential(size=len(y))

    def objective(theta):
        margin = X @ theta[:-1] + theta[-1]
        loss = np.average(np.logaddexp(0, np.where(y == 1, -margin, margin)), weights=weight)
        return loss + 0.05 / 2 * theta[:-1] @ theta[:-1]

    best = minimize(objective, np.zeros(X.shape[1] + 1), tol=1e-10).x
    model = Linear(penalty=0.05).fit(X, y, sample_weight=weight)
    assert model.coefficient_[1] == pytest.approx(best[:-1], abs=1e-3)
    assert model.intercept_[1] == pytest.approx(best[-1], abs=1e-3)


def test_three_classes_and_balance():
    generator = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], [200, 40, 10])
    X = generator.normal(size=(250, 2)) + 2.0 * y[:, None]
    plain = Linear(penalty=1e-3).fit(X, y)
    balanced = Linear(penalty=1e-3, class_weight="balanced").fit(X, y)
    assert plain.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(250))
    assert (balanced.predict(X) == 2).sum() >= (plain.predict(X) == 2).sum()


def choose_by_hand(X, y, weight, grid, folds):
    """Return the C of the best mean of weighted accuracies over the folds, and all of them."""
    found = []
    for C in grid:
        each = []
        for train, held in StratifiedKFold(folds).split(X, y):
            model = LogisticRegression(C=C, tol=1e-10, max_iter=10_000)
            model.fit(X[train], y[train], sample_weight=weight[train])
            each.append(np.average(model.predict(X[held]) == y[held], weights=weight[held]))
        found.append(np.mean(each))
    return grid[int(np.argmax(found))], found


def test_folds_choose_the_penalty():
    split = make_split(240, n_features=12)
    X, y = split.train.X, split.train.y
    weight = np.random.default_rng(0).exponential(size=len(y))
    grid = np.logspace(-4, 4, 10)
    C, found = choose_by_hand(X, y, weight, grid, 4)
    assert len(set(found)) > 3
    model = Linear(folds=4).fit(X, y, sample_weight=weight)
    assert model.penalty_ == pytest.approx(1.0 / (C * weight.sum()))
    # The model is that of the chosen penalty.
    alone = Linear(penalty=model.penalty_).fit(X, y, sample_weight=weight)
    assert alone.coefficient_ == pytest.approx(model.coefficient_, rel=1e-6)


def test_penalties_can_be_given(tmp_path):
    split = make_split(200)
    X, y = split.train.X, split.train.y
    given = [10.0, 1e-3, 0.1]
    model = Linear(folds=5, penalties=given).fit(X, y)
    C, _ = choose_by_hand(X, y, np.ones(len(y)), 1.0 / (np.sort(given)[::-1] * len(y)), 5)
    assert model.penalty_ == pytest.approx(1.0 / (C * len(y)))
    assert Linear.load(model.save(tmp_path / "model")).penalty_ == model.penalty_


def test_folds_of_three_classes():
    generator = np.random.default_rng(2)
    y = np.repeat([0, 1, 2], 60)
    X = generator.normal(size=(180, 3)) + np.eye(3)[y]
    model = Linear(folds=3).fit(X, y)
    assert (model.predict(X) == y).mean() > 0.5


def test_what_cannot_be():
    split = make_split(60)
    X, y = split.train.X, split.train.y
    with pytest.raises(ConfigError):
        Linear(penalties=[1.0]).fit(X, y)
    with pytest.raises(ConfigError):
        Linear(penalties=[0.0], folds=3).fit(X, y)
    with pytest.raises(ConfigError):
        Linear(folds=1).fit(X, y)
    rare = np.zeros_like(y)
    rare[:3] = 1
    with pytest.raises(DataError, match="5 folds, and a class has 3 rows"):
        Linear(folds=5).fit(X, rare)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_solvers_agree_where_columns_have_unlike_scales(n_classes):
    generator = np.random.default_rng(2)
    X = generator.normal(size=(300, 4)) * [1.0, 10.0, 0.1, 100.0]
    y = np.digitize(
        X[:, 0] + X[:, 1] / 10 + generator.normal(size=300), [-1.0, 1.0][: n_classes - 1]
    )
    newton, lbfgs = (Linear(solver=solver).fit(X, y) for solver in ("auto", "lbfgs"))
    assert newton.predict_proba(X) == pytest.approx(lbfgs.predict_proba(X), abs=1e-3)
    # The mean gradient is zero at the minimum, however large a column is.
    wrong = newton.predict_proba(X) - np.eye(n_classes)[y]
    last = n_classes - 1
    slope = X.T @ wrong[:, last] / 300 + 1e-4 * newton.coefficient_[last]
    assert np.abs(slope / np.abs(X).mean(axis=0)).max() < 1e-5


def test_the_solver_is_a_known_one():
    with pytest.raises(ConfigError, match="'solver' of 'linear' is 'sag'"):
        Linear(solver="sag").fit(np.eye(4), np.array([0, 1, 0, 1]))
