"""Every registered method trains on rows that stay in partitions, or says why not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import dask.array as da
import numpy as np
import pytest

from fairfrontier.models.fit.post_processing import fit_behind, fit_behind_blocks
from fairfrontier.models.fit.training import find_reason, predict_parts, train
from fairfrontier.models.prediction import predict_part
from fairfrontier.models.registry import METHODS, create
from fairfrontier.models.thresholds.base import GroupRule
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.cluster.executor import computing_on
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.similarity.registry import METRICS, learn
from tests.models.tables import make_split

# What is not among these needs all rows in one process's memory.
TRAINED = {
    *("constant", "gbdt", "gbdt_regression", "project", "reweigh"),
    *("linear", "linear_post", "linear_regression"),
    *("budro", "fair_regression", "fair_regression_classifier"),
    *("nn", "project_nn", "adversarial_debiasing", "sensr", "sensei", "clp"),
}
CASES = [
    (name, task)
    for name, cls in METHODS.all().items()
    for task in sorted(cls.task)
    if not issubclass(cls, GroupRule)
]
RULES = [name for name, cls in METHODS.all().items() if issubclass(cls, GroupRule)]


def assert_equal(found: np.ndarray, wanted: np.ndarray, trees: int) -> None:
    """Compare to rounding: leaves are float32, whose gradients partitions add in another order."""
    most = float(np.abs(wanted).max(initial=0.0))
    error = (trees + 1) * 2.0**-23 * most if trees else 1e-9
    np.testing.assert_allclose(found, wanted, rtol=0 if trees else 1e-7, atol=error)


def spread_part(part: Part) -> Part:
    """Return the part with X as a Dask array of three partitions or more."""
    X = da.from_array(part.X, chunks=(part.n_samples // 3, part.X.shape[1]))
    sets = {key: replace(each, X=X) for key, each in part.counterfactuals.items()}
    return replace(part, X=X, counterfactuals=sets)


def spread(split: Split) -> Split:
    return split.replace(**{name: spread_part(part) for name, part in split.parts()})


@pytest.mark.parametrize(("name", "task"), CASES)
def test_trains_as_in_memory_or_says_why_not(name, task, tiny, client):
    split, example = tiny[task], METHODS.all()[name].example
    lazy = spread(split)
    reason = find_reason(create(name, **example), lazy, client)
    assert (reason is None) == (name in TRAINED)
    if reason is not None:
        assert name in reason
        assert train([create(name, **example)], [lazy], learn, client).skipped == reason
        return
    trees = example.get("n_estimators", 0)
    metric = learn("subspace", split)
    expected = train([create(name, **example)], [split], lambda _: metric)
    fitted = train([create(name, **example)], [lazy], lambda _: metric, client)
    assert fitted.skipped is expected.skipped is None
    for part, wanted in expected.predictions[0].items():
        found = fitted.predictions[0][part]
        assert_equal(found.score, wanted.score, trees)
        assert_equal(found.decision, wanted.decision, trees)
        for key, variants in wanted.counterfactuals.items():
            for (named, decision), (other, found_one) in zip(
                variants, found.counterfactuals[key], strict=True
            ):
                assert named == other
                assert_equal(found_one, decision, trees)


@pytest.mark.parametrize("least", [0.0, 0.1])
def test_targets_that_are_shares_are_regressed_as_in_memory(least, tiny, client):
    split = tiny["regression"]
    y = split.train.y
    shares = least + (1 - 2 * least) * (y - y.min()) / np.ptp(y)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    split = split.replace(train=replace(split.train, y=shares, weight=weight))
    models = [create("linear_regression", loss="logistic", penalty=1e-2) for _ in range(2)]
    expected = train([models[0]], [split], lambda _: None)
    found = train([models[1]], [spread(split)], lambda _: None, client)
    for part, wanted in expected.predictions[0].items():
        assert np.ptp(wanted.score) > 0
        assert_equal(found.predictions[0][part].score, wanted.score, 0)


@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize("workers", [True, False])
@pytest.mark.parametrize("criterion", ["parity", "equalized_odds"])
def test_fair_boosting_is_that_of_rows_in_memory(criterion, workers, judged, tiny, client):
    split = tiny["binary"]
    weight = np.random.default_rng(0).integers(1, 4, split.train.n_samples) / 2.0
    split = split.replace(train=replace(split.train, weight=weight))
    split = split if judged else split.replace(validation=None)
    chosen = {"n_estimators": 8, "max_depth": 3, "bound": 0.02, "scale_pos_weight": 2.0}
    make = partial(create, "fair_gbm", criterion=criterion, cross_fit_below=0, **chosen)
    models = [make(), make()]
    expected = train([models[0]], [split], lambda _: None)
    found = train([models[1]], [spread(split)], lambda _: None, client if workers else None)
    assert np.abs(models[0].multiplier_).max() > 0
    np.testing.assert_allclose(models[1].multiplier_, models[0].multiplier_, atol=1e-9)
    assert models[1].report_ == pytest.approx(models[0].report_, abs=1e-9)
    for part, wanted in expected.predictions[0].items():
        assert_equal(found.predictions[0][part].score, wanted.score, trees=8)


@pytest.mark.parametrize("name", ["gbdt", "fair_gbm"])
def test_bins_of_partitions_are_at_most_as_many_as_asked_for(name, tiny, client):
    rules = {"cross_fit_below": 0} if name == "fair_gbm" else {}
    most = {}
    for bins in (4, 256):
        model = create(name, n_estimators=10, max_bin=bins, **rules)
        train([model], [spread(tiny["binary"])], lambda _: None, client)
        nodes = model.booster_.trees_to_dataframe()
        cuts = nodes[nodes["Feature"] != "Leaf"].groupby("Feature")["Split"].nunique()
        most[bins] = cuts.max()
    assert most[4] <= 4 < most[256]


def test_rules_of_one_table_share_what_is_learnt(tiny, client):
    bounds = (0.0, 0.1)
    models = [create("linear_post", n_estimators=2, folds=2, bound=each) for each in bounds]
    lazy = spread(tiny["binary"])
    train(models, [lazy, lazy], lambda _: None, client)
    one, other = (model.guesser_.label_trees for model in models)
    assert one is other
    assert models[0].price_.tolist() != models[1].price_.tolist()


@pytest.mark.parametrize("workers", [True, False])
def test_a_fold_may_have_no_row_of_a_partition(workers, tiny, client):
    split = tiny["binary"]
    n = split.train.n_samples
    X = da.from_array(split.train.X, chunks=((1, 1, n - 3, 1), -1))
    lazy = spread(split)
    lazy = lazy.replace(train=replace(lazy.train, X=X))
    # A bound that binds makes prices, which are right to the tolerance of their solver alone.
    chosen = {"n_estimators": 2, "max_depth": 2, "folds": 2, "bound": 1.0}
    models = [create("linear_post", **chosen) for _ in range(2)]
    expected = train([models[0]], [split], lambda _: None).predictions[0]
    fitted = train([models[1]], [lazy], lambda _: None, client if workers else None)
    for part, wanted in expected.items():
        # Calibration sums the trees of both kinds.
        assert_equal(fitted.predictions[0][part].score, wanted.score, 2 + 2)


@pytest.mark.parametrize(
    ("name", "workers"), [("budro", True), *product(["clp", "sensei", "sensr"], [True, False])]
)
@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_early_stopping_is_that_of_rows_in_memory(name, workers, task, tiny, client):
    split = tiny[task]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, split.train.n_samples)
    split = split.replace(train=replace(split.train, weight=weight))
    metric = learn("subspace", split)
    # Fast enough to overfit, so that a round before the last is the best.
    longer = {"n_estimators": 60, "learning_rate": 0.9} if name == "budro" else {}
    if name != "budro":
        longer = {"steps": 60, "record_every": 5, "learning_rate": 0.1, "dtype": "float64"}
    chosen = METHODS.all()[name].example | longer | {"early_stopping": 3}
    models = [create(name, **chosen) for _ in range(2)]
    expected = train([models[0]], [split], lambda _: metric)
    with computing_on(client if workers else None):
        found = train([models[1]], [spread(split)], lambda _: metric, client if workers else None)
    rounds = [len(next(iter(model.history_.values()))) for model in models]
    assert rounds[0] == rounds[1] < (59 if name == "budro" else 12)
    for part, wanted in expected.predictions[0].items():
        trees = 60 if name == "budro" else 0
        assert_equal(found.predictions[0][part].score, wanted.score, trees)


def test_a_net_draws_its_rows_from_partitions_once(tiny):
    split, passes = tiny["binary"], []

    def count(block):
        passes.append(len(block))
        return block

    X = split.train.X
    lazy = da.from_array(X, chunks=(len(X), -1)).map_blocks(count, meta=np.empty((0, 0)))
    with computing_on(None):
        create("nn", hidden=4, batch_size=10, steps=3).fit(lazy, split.train.y)
    assert passes == [len(X)]


@pytest.mark.parametrize("name", METRICS.all())
def test_metrics_are_those_of_rows_in_memory_or_refused(name, tiny, client):
    split = tiny["binary"]
    if name not in ("subspace", "face"):
        with pytest.raises(ConfigError, match=f"{name}.* learnt from rows in memory"):
            learn(name, spread(split))
        return
    found = learn(name, spread(split)).sigma
    if name == "face":
        np.testing.assert_allclose(found, learn(name, split).sigma, atol=1e-10)
        return
    # L-BFGS, in memory, ends where no entry of the gradient exceeds 1e-6.
    np.testing.assert_allclose(found, learn(name, split).sigma, atol=1e-4)
    np.testing.assert_array_equal(found, learn(name, split, solver="newton").sigma)


@pytest.mark.parametrize("name", ["sensei", "sensr"])
def test_adversaries_steps_have_no_rounding_of_partitions_to_amplify(name):
    split = make_split(2000)
    chosen = METHODS.all()[name].example | {"dtype": "float64", "steps": 300, "subspace_rate": None}
    with computing_on(None):
        models = [
            create(name, **chosen).fit(
                rows.train.X, rows.train.y, metric=learn("subspace", rows, solver="newton")
            )
            for rows in (split, spread(split))
        ]
    for here, found in zip(*(model.network_.arrays for model in models), strict=True):
        np.testing.assert_array_equal(found, here)


def test_continuous_attributes_are_not_regressed(tiny, client):
    split = tiny["binary"]
    lazy = spread(split.replace(protected_kinds={"sex": "continuous"}))
    with pytest.raises(ConfigError, match="does not regress 'sex'"):
        learn("subspace", lazy)
    assert learn("subspace", lazy, regress=[]).sigma.shape == (split.train.X.shape[1],) * 2


@pytest.mark.parametrize("name", RULES)
def test_rules_decide_as_in_memory(name, tiny):
    numeric = "regression" in METHODS.all()[name].task
    split = tiny["regression" if numeric else "binary"]
    lazy = spread(split)
    trees = create("gbdt_regression" if numeric else "gbdt", n_estimators=3)
    model = trees.fit(split.train.X, split.train.y)
    rules = [create(name, **METHODS.all()[name].example) for _ in range(2)]
    with computing_on(None):
        stored = predict_parts(model, dict(lazy.parts()))
        found = fit_behind_blocks(rules[0], model, stored, lazy)
    inside = {key: predict_part(model, part) for key, part in split.parts()}
    expected = fit_behind(rules[1], lambda: model, inside, split)
    for part, wanted in expected.items():
        np.testing.assert_array_equal(found[part].score, wanted.score)
        np.testing.assert_array_equal(found[part].decision, wanted.decision)
        for key, variants in wanted.counterfactuals.items():
            for (_, decision), (_, other) in zip(
                variants, found[part].counterfactuals[key], strict=True
            ):
                np.testing.assert_array_equal(other, decision)
            scores = zip(
                found[part].counterfactual_scores[key],
                wanted.counterfactual_scores[key],
                strict=True,
            )
            for one, other in scores:
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "parameters", "word"),
    [
        ("gbdt", {"tree_method": "exact"}, "tree method exact"),
        ("gbdt", {"tree_method": "approx"}, "tree method approx"),
        ("fair_gbm", {}, "cross_fit_below: 0"),
        ("linear", {"folds": 3}, "folds"),
        ("linear", {"solver": "lbfgs"}, "lbfgs"),
    ],
)
def test_what_a_method_cannot_do_with_partitions_is_said(name, parameters, word, tiny, client):
    assert word in str(find_reason(create(name, **parameters), spread(tiny["binary"]), client))


def test_without_workers_only_what_needs_none_trains(tiny):
    lazy = spread(tiny["binary"])
    assert "--cluster local" in str(find_reason(create("budro"), lazy, None))
    assert find_reason(create("gbdt"), lazy, None) is None


def test_a_cut_and_an_early_end_need_validation_rows(tiny):
    lazy = spread(tiny["binary"]).replace(validation=None)
    stopped = create("sensei", early_stopping=5)
    assert "early_stopping: null" in str(find_reason(stopped, lazy, None))
    assert find_reason(create("gbdt"), lazy, None) is None
    assert "validation rows" in str(find_reason(create("gbdt"), lazy, None, "accuracy"))
