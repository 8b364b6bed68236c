import numpy as np
import pytest
import xgboost
from scipy.special import expit, logit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from fairfrontier import create, learn
from fairfrontier.models.individual.budro.solver import evaluate_losses, solve
from fairfrontier.models.individual.budro.transport import Setting
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError
from fairfrontier.similarity.fair_metric import FairMetric
from papers.rival.fair_boosting.estimator import (
    FairBoosting,
    differentiate,
    find_target,
    search_step,
)
from papers.rival.fair_boosting.learner import LEARNERS
from papers.rival.fair_boosting.spline import Spline
from papers.rival.transport_plan import build_problem
from tests.models.tables import make_split

SPLIT = make_split(160)
PART = SPLIT.train
METRIC = learn("subspace", SPLIT)
LEVEL = {"max_depth": 3, "reg_lambda": 0.05, "min_child_weight": 0.01}


def fit(part=PART, **parameters):
    settings = {"n_estimators": 5, "budget": 0.2, "learning_rate": 0.5, **parameters}
    return FairBoosting(**settings).fit(part.X, part.y, metric=METRIC)


def make_budro(X, tree_method, rounds):
    model = create(
        "budro",
        n_estimators=rounds + 1,
        budget=0.2,
        learning_rate=0.3,
        tree_method=tree_method,
        max_depth=LEVEL["max_depth"],
        reg_lambda=LEVEL["reg_lambda"],
        min_child_rows=LEVEL["min_child_weight"] * len(X),
        tolerance=1e-9,
    )
    return model.fit(X, PART.y, metric=METRIC)


def follow(model, X, rounds, **parameters):
    """Boost from where BuDRO's first round, a constant, has led."""
    frame = model.booster_.trees_to_dataframe()
    first = frame[frame.Tree == 0]
    assert len(first) == 1
    settings = {
        "order": 2,
        "start": float(first.Gain.iloc[0]),
        "n_estimators": rounds,
        "budget": 0.2,
        "learning_rate": 0.3,
        "scale_pos_weight": "balanced",
        "tolerance": 1e-9,
        **parameters,
    }
    return FairBoosting(**settings).fit(X, PART.y, metric=METRIC)


@pytest.mark.parametrize("tree_method", ["exact", "hist"])
def test_newton_trees_go_budros_way(tree_method):
    rounds = 8
    # Fewer distinct values than bins: only then does hist choose among all cuts.
    X = np.round(PART.X, 1)
    budro = make_budro(X, tree_method, rounds)
    parameters = {**LEVEL, "ties": "high" if tree_method == "exact" else "low"}
    ours = follow(budro, X, rounds, learner="newton_tree", learner_parameters=parameters)
    frame = budro.booster_.trees_to_dataframe()
    for number, tree in enumerate(ours.learners_, start=1):
        theirs = frame[frame.Tree == number].sort_values("Node")
        asked = [-1 if each == "Leaf" else int(each[1:]) for each in theirs.Feature]
        assert asked == tree.feature_.tolist()
        leaves = (theirs.Feature == "Leaf").to_numpy()
        assert 0.3 * tree.value_[leaves] == pytest.approx(
            theirs.Gain[leaves].to_numpy(), rel=1e-3, abs=1e-5
        )
        if tree_method == "exact":
            cut = theirs.Split[~leaves].to_numpy()
            assert tree.threshold_[~leaves] == pytest.approx(cut, rel=1e-6)
    assert len(frame) > 3 * rounds
    assert ours.predict_proba(X) == pytest.approx(budro.predict_proba(X), abs=1e-5)
    for key in ("eta", "objective", "cost"):
        assert ours.history_[key] == pytest.approx(budro.history_[key], rel=1e-3, abs=1e-6)


def test_xgboosts_own_regressor_goes_the_same_way():
    rounds = 4
    budro = make_budro(PART.X, "exact", rounds)
    tree = xgboost.XGBRegressor(
        n_estimators=1, learning_rate=1.0, base_score=0.0, tree_method="exact", n_jobs=1, **LEVEL
    )
    ours = follow(budro, PART.X, rounds, learner=tree)
    assert ours.predict_proba(PART.X) == pytest.approx(budro.predict_proba(PART.X), abs=1e-5)


def worst_loss(margin, budget=0.2):
    problem = build_problem(METRIC.embed(PART.X), PART.y, evaluate_losses(margin), budget)
    return solve(problem, "exact", Setting(tolerance=1e-13, dtype="float64"))


def test_the_slope_is_that_of_the_worst_loss():
    margin = np.random.default_rng(0).normal(size=len(PART.y))
    found = worst_loss(margin)
    slope = differentiate(margin, np.asarray(found.weight))[0]
    direction = np.random.default_rng(1).normal(size=len(PART.y))
    step = 1e-5
    upper, lower = (worst_loss(margin + sign * step * direction).objective for sign in (1, -1))
    assert slope @ direction == pytest.approx((upper - lower) / (2 * step), rel=1e-4)


def test_second_derivatives_are_those_of_finite_differences():
    generator = np.random.default_rng(2)
    margin, weight = generator.normal(size=6), generator.exponential(size=(6, 2))
    step = 1e-5
    upper, lower = (differentiate(margin + sign * step, weight) for sign in (1, -1))
    found = differentiate(margin, weight)
    assert found[1] == pytest.approx((upper[0] - lower[0]) / (2 * step), rel=1e-8)
    target, weights = find_target(margin, weight, 2)
    assert target * weights == pytest.approx(-found[0])


def test_a_learner_is_fitted_to_the_pseudo_residuals():
    # Smooth margins: with those of trees many worst cases are alike, and solvers choose freely.
    model = fit(n_estimators=2, learner="spline", start=0.3, tolerance=1e-9)
    margin = 0.3 + 0.5 * model.learners_[0].predict(PART.X)
    p, weight = expit(margin), np.asarray(worst_loss(margin).weight)
    residual = len(PART.y) * (weight[:, 1] * (1 - p) - weight[:, 0] * p)
    wanted = Spline().fit(PART.X, residual)
    assert model.learners_[1].predict(PART.X) == pytest.approx(wanted.predict(PART.X), abs=1e-3)
    margin = 0.3 + sum(0.5 * each.predict(SPLIT.test.X) for each in model.learners_)
    assert model.decision_function(SPLIT.test.X) == pytest.approx(margin)
    assert logit(model.predict_proba(SPLIT.test.X)[:, 1]) == pytest.approx(margin)


def test_curvatures_have_a_floor():
    margin, weight = np.array([-800.0, 50.0, 0.0, 800.0]), np.array([[0.2, 0.3]] * 3 + [[0, 0]])
    found = differentiate(margin, weight)
    assert found[1] == pytest.approx([0.5e-16, 0.5e-16, 0.125, 0], rel=1e-12)
    target, _ = find_target(margin, weight, 2)
    assert target == pytest.approx([0.6e16, -0.4e16, 0.4, 0], rel=1e-12)


@pytest.mark.parametrize("learner", LEARNERS)
def test_steps_that_run_away_are_said_and_no_others(learner):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(np.int64)
    metric = FairMetric(np.eye(3), np.eye(3), np.zeros((0, 3)))
    order = 1 if learner == "k_neighbors" else 2
    settings = {"learner": learner, "order": order, "learning_rate": 1.0, "n_estimators": 30}
    if learner in ("tree", "stump", "spline"):
        with pytest.raises(ConfigError, match=r"diverge.*Lower learning_rate, which is 1"):
            FairBoosting(**settings, budget=0.4).fit(X, y, metric=metric)
    # Without transport the labels are separable: curvatures shrink until they are 0.
    model = FairBoosting(**settings | {"n_estimators": 60}, budget=0.0).fit(X, y, metric=metric)
    assert (model.predict(X) == y).mean() > 0.9
    assert np.abs(model.decision_function(X)).max() < 1000


def test_margins_beyond_all_numbers_are_said():
    with pytest.raises(ConfigError):
        fit(learning_rate=1e308, n_estimators=9)


@pytest.mark.parametrize("longest", [0.3, 50.0])
def test_the_search_finds_the_best_step(longest):
    generator = np.random.default_rng(4)
    margin, weight = generator.normal(size=30), generator.exponential(size=(30, 2))
    answer = -differentiate(margin, weight)[0]
    found = search_step(margin, answer, weight, longest)
    rates = np.linspace(0, longest, 2001)
    losses = [(weight * evaluate_losses(margin + rate * answer)).sum() for rate in rates]
    assert found == pytest.approx(rates[np.argmin(losses)], abs=longest / 2000)
    assert (found == longest) == (longest == 0.3)
    assert search_step(margin, -answer, weight, longest) == 0


def test_searched_steps_are_the_best_for_the_worst_case_of_their_round():
    model = fit(step="search", n_estimators=4, learner="spline", learning_rate=30.0, tolerance=1e-9)
    assert np.all((model.rate_ > 0) & (model.rate_ < 30))
    margin = np.zeros(len(PART.y))
    # Not at the constant that all begins with: every plan is a worst case there.
    for number, (rate, learner) in enumerate(zip(model.rate_, model.learners_, strict=True)):
        answer = learner.predict(PART.X)
        if number > 0:
            weight = np.asarray(worst_loss(margin).weight)
            slope = differentiate(margin + rate * answer, weight)[0] @ answer
            whole = differentiate(margin, weight)[0] @ answer
            assert abs(slope) < 0.02 * abs(whole)
        margin = margin + rate * answer


def test_the_search_ends_where_no_step_helps(tmp_path):
    calls = []
    # A learner that answers the mean, and labels whose residuals have mean 0.
    tree = DecisionTreeRegressor(max_depth=1, min_samples_leaf=len(PART.y))
    y = np.arange(len(PART.y)) % 2
    model = FairBoosting(learner=tree, step="search", budget=0.0, n_estimators=7)
    model.fit(PART.X, y, metric=METRIC, progress=lambda *each: calls.append(each))
    assert model.rate_.size == len(model.learners_) < 7
    assert calls[-1] == (7, 7)
    assert model.predict_proba(PART.X) == pytest.approx(0.5, abs=1e-6)
    loaded = FairBoosting.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(PART.X), model.predict_proba(PART.X))


def test_budget_buys_consistency():
    split = make_split(500)
    metric = learn("subspace", split)
    settings = {"learner": "stump", "n_estimators": 25, "learning_rate": 1.0}
    models = [
        FairBoosting(**settings, budget=each).fit(split.train.X, split.train.y, metric=metric)
        for each in (0.0, 0.5)
    ]
    # The rows without what the metric ignores.
    blind = split.test.X @ metric.sigma
    shifts = [
        np.abs(model.decision_function(split.test.X) - model.decision_function(blind)).mean()
        / np.std(model.decision_function(split.test.X))
        for model in models
    ]
    assert shifts[1] < 0.7 * shifts[0]
    assert models[1].history_["cost"][1:] == pytest.approx(np.full(24, 0.5), abs=1e-6)
    assert (models[1].predict(split.test.X) == split.test.y).mean() > 0.6


class Stranger(DecisionTreeRegressor):
    """A learner of a type that nobody trusts."""


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_named_learner_is_kept(learner, tmp_path):
    model = fit(learner=learner, n_estimators=2)
    loaded = type(model).load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(SPLIT.test.X), model.predict_proba(SPLIT.test.X))
    assert loaded.history_["eta"].tolist() == model.history_["eta"].tolist()
    assert loaded.get_params() == model.get_params()


def test_an_object_is_kept_where_its_types_are_trusted(tmp_path):
    template = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=2))
    model = fit(learner=template, n_estimators=2)
    trusted = ["sklearn.pipeline.Pipeline", "sklearn.preprocessing._data.StandardScaler"]
    loaded = FairBoosting.load(model.save(tmp_path / "model"), trusted=trusted)
    assert np.array_equal(loaded.predict_proba(PART.X), model.predict_proba(PART.X))
    assert loaded.learner.steps[1][1].max_depth == 2
    folder = fit(learner=Stranger(), n_estimators=1).save(tmp_path / "stranger")
    with pytest.raises(StoreError, match="Stranger"):
        FairBoosting.load(folder, trusted=trusted)


@pytest.mark.parametrize("solver", ["sgd", "sinkhorn"])
def test_other_solvers_serve_too(solver):
    model = fit(solver=solver, n_estimators=3, steps=5, batch_size=20, entropy_weight=1e-2)
    assert np.isfinite(model.predict_proba(PART.X)).all()
    assert np.ptp(model.predict_proba(PART.X)[:, 1]) > 0.01


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"budget": -0.1}, "budget"),
        ({"order": 3}, "order"),
        ({"step": "x"}, "step"),
        ({"solver": "x"}, "solver"),
        ({"scale_pos_weight": "x"}, "scale_pos_weight"),
        ({"start": float("inf")}, "start"),
        ({"learning_rate": float("inf")}, "learning_rate"),
        ({"scale_pos_weight": float("inf")}, "scale_pos_weight"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": float("nan")}, "momentum"),
        ({"dual_learning_rate": -1.0}, "dual_learning_rate"),
        ({"dual_start": float("inf")}, "dual_start"),
        ({"entropy_weight": float("inf")}, "entropy_weight"),
        ({"learner": "tree", "learner_parameters": {"max_depth": -1}}, "max_depth"),
        ({"learner": "k_neighbors", "learner_parameters": {"n_neighbors": 0}}, "n_neighbors"),
        ({"learner": "spline", "learner_parameters": {"n_knots": 1}}, "n_knots"),
        ({"learner": "newton_tree", "learner_parameters": {"ties": "foo"}}, "ties"),
        ({"learner": "forrest"}, "learner"),
        ({"learner": "k_neighbors", "order": 2}, "takes no weights"),
    ],
)
def test_what_cannot_be_is_said(parameters, word):
    with pytest.raises(ConfigError, match=word):
        FairBoosting(**parameters).check()


def test_more_neighbours_than_rows_are_refused():
    part = PART.take(np.arange(10))
    with pytest.raises(ConfigError, match="25 neighbours, but there are 10 rows"):
        fit(part, learner="k_neighbors")
    with pytest.raises(ConfigError, match="11 neighbours"):
        fit(part, learner=make_pipeline(StandardScaler(), KNeighborsRegressor(n_neighbors=11)))
    model = fit(part, learner="k_neighbors", learner_parameters={"n_neighbors": 10})
    assert np.isfinite(model.predict_proba(part.X)).all()


def test_rows_labels_and_weights_that_do_not_match_are_refused():
    X, y = PART.X, PART.y
    for rows, labels, weight, word in (
        (X[:0], y[:0], None, "0 sample"),
        (X[:, 0], y, None, "Expected 2D array"),
        (X, y[1:], None, "inconsistent numbers of samples"),
        (X, y, np.ones(len(y) - 1), f"case weights of shape .{len(y) - 1}"),
        (X, y, np.zeros(len(y)), "weights are zero"),
    ):
        with pytest.raises(DataError, match=word):
            FairBoosting(n_estimators=1).fit(rows, labels, metric=METRIC, sample_weight=weight)


def test_rows_of_weight_nought_are_no_rows():
    weight = np.ones(len(PART.y))
    weight[::4] = 0.0
    kept = weight > 0
    parameters = {"n_estimators": 5, "budget": 0.4}
    model = FairBoosting(**parameters).fit(PART.X, PART.y, metric=METRIC, sample_weight=weight)
    without = FairBoosting(**parameters).fit(PART.X[kept], PART.y[kept], metric=METRIC)
    assert np.array_equal(model.predict_proba(PART.X), without.predict_proba(PART.X))
    assert model.history_["cost"].tolist() == without.history_["cost"].tolist()


def test_classes_beyond_nought_and_one_are_refused():
    X = np.arange(6.0)[:, None]
    with pytest.raises(DataError, match="given 3 classes"):
        FairBoosting(n_estimators=1).fit(X, np.arange(6) % 3, metric=None)
