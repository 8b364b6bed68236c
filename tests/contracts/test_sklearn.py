"""Every registered method under scikit-learn's own checks of estimators, and in its tools."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy.sparse import issparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairfrontier.models.base import Classifier, Estimator
from fairfrontier.models.registry import METHODS, create
from fairfrontier.models.thresholds.base import PostProcessor, read_scores
from fairfrontier.prepare.split import Variant
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.similarity.fair_metric import FairMetric

# Parameters with which a method learns the checks' small tables, beyond its ``example``.
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "adversarial_debiasing": {"strength": 0.01},
    "budro": {"budget": 0.0},
    "clp": {"strength": 0.1, "steps": 40, "learning_rate": 0.1},
    "fair_boosting": {"budget": 0.0, "n_estimators": 2},
    "fair_classification": {"solver": "grid_search", "grid_size": 2, "threshold": 0.5},
    "fair_regression_classifier": {"budget": 1.0},
    "fair_regression": {"label_range": [-10.0, 10.0], "n_grid": 200, "budget": 1.0},
    "group_thresholds": {"bound": 1.0},
    "hardt": {"scale": "margin", "attributes": 1},
    # A tie of ten is the second class to us, and the first to the checks.
    "k_neighbors": {"n_neighbors": 5},
    # Every group has a selection rate, but one without a positive row has no true positive rate.
    "noisy_dro": {"criterion": "demographic_parity", "iterations": 5, "learning_rate": 0.5},
    "noisy_ideal": {"iterations": 5, "learning_rate": 0.5, "game_steps": 10},
    "noisy_naive": {"criterion": "demographic_parity"},
    "noisy_soft_assignment": {"iterations": 5, "learning_rate": 0.5},
    "noisy_true_groups": {"criterion": "demographic_parity"},
    "threshold_descent": {"scale": "margin"},
    "reductions": {"solver": "grid_search", "grid_size": 2},
    "reject_option": {"scale": "margin", "budget": 1.0},
    "sensei": {"steps": 20, "learning_rate": 0.1, "subspace_steps": 1, "full_steps": 1},
    "sensr": {"steps": 20, "learning_rate": 0.1, "subspace_steps": 1, "full_steps": 1},
    "shift_inference": {"scale": "margin", "attributes": 1},
}

BEHIND = {
    "group_thresholds": {"estimator": LogisticRegression()},
    "quantile_barycentre": {"estimator": LinearRegression()},
    "residual_shift": {"estimator": LinearRegression()},
    "randomized_threshold": {"estimator": LogisticRegression()},
}

# Checks that a method fails, with the reason.
TRAIN, WEIGHT = "check_classifiers_train", "check_sample_weight_equivalence_on_dense_data"
DRAWN_ROWS = {WEIGHT: "weights act on rows that are drawn, and a repeated row is another draw"}
DRAWN_DECISIONS = {TRAIN: "decisions are drawn, and predict_proba is their probability"}
FOLDED = dict.fromkeys(
    (WEIGHT, WEIGHT.replace("dense", "sparse")), "a repeated row may be in another fold"
)
ONE_SIDE = "the check's targets are all on one side of the threshold between the classes"
FAILING: Mapping[str, Mapping[str, str]] = {
    "adversarial_debiasing": DRAWN_ROWS,
    "clp": DRAWN_ROWS,
    "constant": {TRAIN: "a tie is the second class to us, and the first to the checks"},
    "fair_boosting": {WEIGHT: "pseudo-residuals are fitted over rows, each counting once"},
    "fair_classification": {"check_estimators_dtypes": ONE_SIDE, "check_fit2d_1feature": ONE_SIDE},
    "fair_regression": {
        "check_fit2d_1sample": "one row is one group, which is what is refused",
        "check_regressor_data_not_an_array": "the check's targets lie outside label_range",
    },
    "linear": {"check_class_weight_classifiers": "class_weight is balanced or None, as in YAML"},
    "linear_post": {WEIGHT: "a repeated row may be in another fold"},
    "nn": DRAWN_ROWS,
    "project_nn": DRAWN_ROWS,
    "quantile_barycentre": FOLDED,
    "random_forest": DRAWN_ROWS,
    "randomized_threshold": DRAWN_DECISIONS,
    "threshold_descent": DRAWN_DECISIONS,
    "sensei": DRAWN_ROWS,
    "sensr": DRAWN_ROWS,
}


class Mirrored:
    """Counterfactual sets in which the first feature of every row has the other sign."""

    names = ("mirrored",)
    rows = None

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    @property
    def n_samples(self) -> int:
        return len(self.X)

    def __iter__(self):
        mirrored = self.X.copy()
        mirrored[:, 0] *= -1
        yield Variant("mirrored", mirrored, np.zeros((len(mirrored), 1), dtype=np.int64))

    def take(self, rows: np.ndarray) -> Mirrored:
        return Mirrored(self.X[rows])


def read_table(X: Any) -> np.ndarray:
    """Return rows as a table of numbers; zeros for what is none, which the method is to refuse."""
    try:
        table = X.toarray() if issparse(X) else np.asarray(X)
        if table.ndim == 2 and table.size:
            return np.nan_to_num(table.real.astype(np.float64), posinf=0.0, neginf=0.0)
    except (TypeError, ValueError):
        pass
    shape = getattr(X, "shape", ())
    return np.zeros((shape[0], max(1, shape[1])) if len(shape) == 2 else (1, 1))


def make_groups(X: Any) -> np.ndarray:
    """Return groups that follow from the rows alone, and an attribute that all rows share."""
    parity = np.floor(997 * read_table(X)[:, 0]) % 2
    return np.stack([parity, 0 * parity], axis=1).astype(np.int64)


def make_ids(X: Any) -> np.ndarray:
    """Return row ids that follow from the rows alone."""
    return (1e6 * np.abs(read_table(X)[:, 0])).astype(np.int64)


def make_metric(X: Any) -> FairMetric:
    """Return the Euclidean metric."""
    whole = np.eye(read_table(X).shape[1])
    return FairMetric(whole, whole, whole[:0])


OFFERED = {
    "sensitive_features": make_groups,
    "metric": make_metric,
    "counterfactuals": lambda X: {"mirrored": Mirrored(read_table(X))},
}


def supply(cls: type[Estimator]) -> type[Estimator]:
    """Return the class with what the checks do not give made up from the rows.

    Its ``fit`` has no keyword but ``sample_weight``, and its predictions have none. A rule that
    takes no estimator reads the first feature as its score.
    """
    scored = issubclass(cls, PostProcessor) and "estimator" not in inspect.signature(cls).parameters

    def fit(self, X, y, sample_weight=None):
        made = {key: OFFERED[key](X) for key in cls.fit_needs}
        return cls.fit(self, X, y, sample_weight=sample_weight, **made)

    def fit_unweighted(self, X, y):
        return cls.fit(self, X, y, **{key: OFFERED[key](X) for key in cls.fit_needs})

    def ask(name):
        def answer(self, X, **given):
            made = {"sensitive_features": make_groups(X)}
            if "ids" in inspect.signature(getattr(cls, name)).parameters:
                made["ids"] = make_ids(X)
            return getattr(super(found, self), name)(X, **{**made, **given})

        return answer

    def score(self, X, y, sample_weight=None):
        return super(found, self).score(X, y, sample_weight, sensitive_features=make_groups(X))

    changed: dict[str, Any] = {
        "fit": fit if "sample_weight" in cls.fit_takes else fit_unweighted,
        "__module__": __name__,
    }
    if cls.predict_needs:
        asked = [name for name in ("predict", "predict_proba") if hasattr(cls, name)]
        changed |= {name: ask(name) for name in asked} | {"score": score}
    found = type(cls.__name__, (First, cls) if scored else (cls,), changed)
    # Found by its name, as pickling asks.
    globals()[cls.__name__] = found
    return found


class First:
    """A post-processor to which the first of the features is the score."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = False
        # One feature alone need not do.
        tags.classifier_tags.poor_score = True
        return tags

    def validate_training(self, X, y, *aligned, sample_weight=None):
        rows, codes = Classifier.validate_training(self, X, y, *aligned)
        self.scale_, self.knots_ = self.scale, ()
        return read_scores(rows[:, 0], self.scale, self.name), codes

    def validate_rows(self, X):
        return read_scores(Classifier.validate_rows(self, X)[:, 0], self.scale, self.name)


def make_estimators() -> list[Estimator]:
    made = [
        supply(cls)(**{**cls.example, **BEHIND.get(name, {}), **PARAMETERS.get(name, {})})
        for name, cls in METHODS.all().items()
    ]
    # Its rows are its estimator's, as those of rules are.
    linear_post = next(each for each in made if each.name == "linear_post")
    return [*made, clone(linear_post).set_params(estimator=LogisticRegression())]


def expect(estimator: Estimator) -> dict[str, str]:
    """Return the checks that a method is known to fail, with the reason."""
    if estimator.name == "linear_post" and estimator.estimator is not None:
        return {}  # It is the estimator that is trained.
    return dict(FAILING.get(estimator.name, {}))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Limit the threads once: to look for their libraries takes milliseconds."""
    with limited_threads(1):
        yield


# Few steps are too few for an attack to find what it seeks.
@pytest.mark.filterwarnings("ignore::fairfrontier.models.base.TrainingWarning")
@parametrize_with_checks(make_estimators(), expected_failed_checks=expect)
def test_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", METHODS.all())
def test_its_kind_is_known(name):
    cls = METHODS.all()[name]
    model = clone(cls())
    assert is_classifier(model) == (not cls.task <= {"regression"})
    assert is_regressor(model) == (cls.task <= {"regression"})


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


X = np.random.default_rng(0).normal(size=(120, 3))
GROUPS = (X[:, :1] > 0).astype(np.int64)
Y = np.where(X[:, 1] + 0.5 * X[:, 0] > 0, "yes", "no")
METRIC = FairMetric(np.diag([0.0, 1.0, 1.0]), np.eye(3)[:, 1:], np.eye(3)[:1])


@pytest.mark.parametrize("name", ["gbdt", "linear", "nn", "random_forest"])
def test_cross_validation_just_works(name):
    model = create(name, **METHODS.find(name).example)
    assert cross_val_score(model, X, Y, cv=3).shape == (3,)


def test_groups_and_weights_follow_their_rows_through_pipelines_and_searches(routing):
    class Checked(METHODS.find("reweigh")):
        def fit(self, X, y, *, sensitive_features, sample_weight=None):
            assert len(X) == len(y) == len(sensitive_features) == len(sample_weight)
            # Scaling leaves the sign of this feature, and groups are this sign.
            assert np.array_equal(sensitive_features[:, 0] > 0, X[:, 0] > 0)
            return super().fit(
                X, y, sensitive_features=sensitive_features, sample_weight=sample_weight
            )

    model = Checked(n_estimators=3).set_fit_request(sensitive_features=True, sample_weight=True)
    model.set_score_request(sample_weight=True)
    scaled = make_pipeline(
        StandardScaler(with_mean=False).set_fit_request(sample_weight=False), model
    )
    told = {"sensitive_features": GROUPS, "sample_weight": np.ones(len(X))}
    assert cross_val_score(scaled, X, Y, cv=3, params=told).min() > 0.5
    search = GridSearchCV(scaled, {"checked__max_depth": [1, 3]}, cv=3).fit(X, Y, **told)
    assert set(search.predict(X)) == {"no", "yes"}
    assert clone(search.best_estimator_).fit(X, Y, **told).score(X, Y) > 0.5


@pytest.mark.parametrize("name", ["project", "budro"])
def test_a_metric_goes_whole_to_every_fold(routing, name):
    seen = []

    class Checked(METHODS.find(name)):
        def fit(self, X, y, *, metric, sample_weight=None):
            seen.append((len(X), metric))
            return super().fit(X, y, metric=metric, sample_weight=sample_weight)

    model = Checked(n_estimators=2, max_depth=2).set_fit_request(metric=True)
    search = GridSearchCV(model, {"learning_rate": [0.1, 0.3]}, cv=3)
    search.fit(X, Y, metric=METRIC)
    assert {size for size, _ in seen} == {80, 120}
    assert all(metric is METRIC for _, metric in seen)
    assert search.score(X, Y) > 0.5


def test_the_rows_of_groups_follow_post_processors_to_predictions_and_scores(routing):
    score = 1 / (1 + np.exp(-X[:, 1]))
    model = create("reject_option", attributes=0)
    model.set_fit_request(sensitive_features=True).set_score_request(sensitive_features=True)
    found = cross_val_score(model, score[:, None], Y, cv=3, params={"sensitive_features": GROUPS})
    assert found.min() > 0.5


def test_what_is_not_requested_is_named(routing):
    with pytest.raises(UnsetMetadataPassedError, match="sensitive_features"):
        cross_val_score(create("reweigh"), X, Y, params={"sensitive_features": GROUPS})
