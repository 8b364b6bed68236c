"""Equal distributions behind any regressor, against an assignment and by invariances."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import LinearConstraint, linear_sum_assignment, minimize
from scipy.stats import ks_2samp, wasserstein_distance
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import check_parameters_default_constructible

from fairfrontier import QuantileBarycentre, ResidualShift, load_model
from fairfrontier.models.base import TrainingWarning
from fairfrontier.runtime.errors import ConfigError, InputError


def draw(n=900, seed=0, levels="abc"):
    generator = np.random.default_rng(seed)
    group = generator.choice([*levels], n)
    shift = pd.Series(group).map({each: k for k, each in enumerate(levels)}).to_numpy()
    X = generator.normal(size=(n, 2)) * (1 + 0.3 * shift[:, None]) + 0.5 * shift[:, None]
    return X, 1000 * X.sum(axis=1) + generator.normal(size=n), group


class Given(LinearRegression):
    """Predicts the first column."""

    def predict(self, X):
        return np.asarray(X)[:, 0]


def measure(predicted, group, distance):
    parts = [predicted[group == each] for each in np.unique(group)]
    kind = (lambda a, b: ks_2samp(a, b).statistic) if distance[0] == "k" else wasserstein_distance
    return max(kind(a, b) for k, a in enumerate(parts) for b in parts[:k])


@pytest.mark.parametrize(
    ("distance", "bound"),
    [("kolmogorov_smirnov", 0.1), ("kolmogorov_smirnov", 0.03), ("wasserstein", 200.0)],
)
def test_the_bound_holds_on_the_rows_of_the_fit_and_is_used(distance, bound):
    X, y, group = draw()
    fitted = LinearRegression().fit(X, y)
    model = QuantileBarycentre(fitted, distance=distance, bound=bound, prefit=True)
    model.fit(X, y, sensitive_features=group)
    found = measure(model.predict(X, sensitive_features=group), group, distance)
    assert found == pytest.approx(model.distance_)
    assert bound * 0.8 <= found <= bound + 1e-12
    assert model.before_ == pytest.approx(measure(fitted.predict(X), group, distance))


def test_equal_groups_get_equal_numbers_by_the_nearest_map():
    generator = np.random.default_rng(3)
    score = generator.normal(size=12)
    group = np.repeat([0, 1], 6)
    model = QuantileBarycentre(Given(), prefit=True).fit(
        score[:, None], score, sensitive_features=group
    )
    predicted = model.predict(score[:, None], sensitive_features=group)
    np.testing.assert_allclose(np.sort(predicted[:6]), np.sort(predicted[6:]))
    # The barycentre of two samples of one size is the middle of an optimal assignment.
    one, two = score[:6], score[6:]
    rows, columns = linear_sum_assignment((one[:, None] - two) ** 2)
    np.testing.assert_allclose(predicted[:6][rows], (one[rows] + two[columns]) / 2)


def test_predictions_follow_the_units_and_keep_the_order_within_groups():
    X, y, group = draw()
    args = {"sensitive_features": group}
    model = QuantileBarycentre(LinearRegression(), bound=0.05)
    first = model.fit(X, y, **args).predict(X, **args)
    np.testing.assert_allclose(
        model.fit(X, 7 * y - 3, **args).predict(X, **args), 7 * first - 3, rtol=1e-6
    )
    plain = model.fit(X, y, **args).estimator_.predict(X)
    for each in "abc":
        order = np.argsort(plain[group == each])
        assert (np.diff(first[group == each][order]) >= -1e-9).all()


def test_frames_frozen_regressors_and_fresh_rows():
    X, y, group = draw()
    given = pd.DataFrame({"group": group, "other": "x"})
    frozen = FrozenEstimator(HistGradientBoostingRegressor(max_iter=20).fit(X, y))
    model = QuantileBarycentre(frozen, bound=0.05).fit(X, y, sensitive_features=given)
    fresh, target, other = draw(seed=1)
    given = pd.DataFrame({"other": "x", "group": other})
    predicted = model.predict(fresh, sensitive_features=given)
    before = measure(frozen.predict(fresh), other, "k")
    assert measure(predicted, other, "k") < before / 2
    assert model.score(fresh, target, sensitive_features=given) > 0.3


def test_many_equal_predictions_are_warned_of():
    group = np.repeat(["a", "b"], 50)
    score = np.concatenate([np.zeros(40), np.arange(10.0), np.arange(50.0)])
    with pytest.warns(TrainingWarning):
        QuantileBarycentre(Given(), prefit=True).fit(
            score[:, None], score, sensitive_features=group
        )


@pytest.mark.parametrize(
    "setting", [{"distance": "x"}, {"bound": -1}, {"estimator": LogisticRegression()}]
)
def test_what_cannot_be_is_refused(setting):
    X, y, group = draw(n=60)
    with pytest.raises(ConfigError):
        QuantileBarycentre(**{"estimator": LinearRegression(), **setting}).fit(
            X, y, sensitive_features=group
        )


def test_groups_that_the_fit_had_not_are_refused():
    X, y, group = draw(n=60)
    model = QuantileBarycentre(LinearRegression(), bound=0.5).fit(X, y, sensitive_features=group)
    with pytest.raises(InputError):
        model.predict(X[:1], sensitive_features=["z"])
    crossed = {"one": ["a", "a", "b"] * 20, "two": ["c", "d", "c"] * 20}
    model.fit(X, y, sensitive_features=crossed)
    with pytest.raises(InputError):
        model.predict(X[:1], sensitive_features={"one": ["b"], "two": ["d"]})


@pytest.mark.parametrize("bound", [0.0, 0.4, 1.1, 9.0])
def test_the_least_shift_within_a_bound_on_mean_residuals(bound):
    generator = np.random.default_rng(4)
    group, weight = generator.integers(0, 4, 200), generator.uniform(0.5, 2, 200)
    score = generator.normal(size=200)
    y = score + np.array([0.0, 0.3, 1.0, -0.8])[group] + 0.1 * generator.normal(size=200)
    model = ResidualShift(bound=bound).fit(score, y, sensitive_features=group, sample_weight=weight)
    moved = model.predict(score, sensitive_features=group)
    share = np.bincount(group, weight) / weight.sum()
    residual = np.bincount(group, weight * (y - score)) / np.bincount(group, weight)
    left = np.bincount(group, weight * (y - moved)) / np.bincount(group, weight)
    assert np.ptp(left) <= bound + 1e-12
    apart = np.array([np.eye(4)[i] - np.eye(4)[j] for i in range(4) for j in range(4) if i != j])
    found = minimize(
        lambda shift: share @ shift**2,
        residual,
        constraints=LinearConstraint(apart, apart @ residual - bound, np.inf),
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(model.shift_, found.x, atol=1e-5)
    assert np.average((moved - score) ** 2, weights=weight) <= found.fun + 1e-9


@pytest.mark.parametrize(
    "rule", [ResidualShift(bound=0.3), QuantileBarycentre(distance="wasserstein", bound=0.3)]
)
def test_a_bound_is_in_units_that_scaled_predictions_are_given(rule, tmp_path):
    X, y, group = draw()
    score, y, groups = X[:, 0] + 0.1 * (group == "a"), y / 1000, {"group": group}
    plain = clone(rule).fit(score, y, sensitive_features=groups)
    scaled = clone(rule).fit(score / 70, y / 70, sensitive_features=groups, unit=70.0)
    moved = plain.predict(score, sensitive_features=groups)
    assert np.abs(moved - score).max() > 0.01
    np.testing.assert_allclose(
        70 * scaled.predict(score / 70, sensitive_features=groups), moved, atol=1e-9
    )
    loaded = load_model(plain.save(tmp_path / "rule"))
    np.testing.assert_array_equal(loaded.predict(score, sensitive_features=groups), moved)
    with pytest.raises(InputError):
        loaded.predict(score[:1], sensitive_features={"group": ["z"]})
    pooled = clone(rule).set_params(unseen="pooled").fit(score, y, sensitive_features=groups)
    assert np.isfinite(pooled.predict(score[:1], sensitive_features={"group": ["z"]})).all()


def test_parameters_are_those_of_scikit_learn():
    check_parameters_default_constructible("rule", QuantileBarycentre(LinearRegression()))
