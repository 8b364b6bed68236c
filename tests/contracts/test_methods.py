"""What every registered method keeps to, on a table of 150 training rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

from fairfrontier.metrics.verb import evaluate
from fairfrontier.models.base import Estimator
from fairfrontier.models.registry import METHODS, create, load_model
from fairfrontier.models.thresholds.base import GroupRule
from fairfrontier.prepare.split import CounterfactualSet, Part, Split, Variant
from fairfrontier.runtime.errors import InputError, StoreError
from fairfrontier.runtime.finder import find_yaml, list_names
from fairfrontier.similarity.registry import learn

ROOT = Path(__file__).resolve().parents[2]
FIT_KEYWORDS = {
    "sensitive_features",
    "metric",
    "sample_weight",
    "validation",
    "counterfactuals",
    "true_groups",
    "client",
    "progress",
    "unit",
}
CASES = [(name, task) for name, cls in METHODS.all().items() for task in sorted(cls.task)]
COUNTED = [(name, task) for name, task in CASES if METHODS.all()[name].weights_are_counts]
TOLD = [(name, task) for name, task in CASES if "progress" in METHODS.all()[name].fit_takes]

SCORERS = [name for name, cls in METHODS.all().items() if issubclass(cls, GroupRule)]

every_method = pytest.mark.parametrize("name", METHODS.all())
every_case = pytest.mark.parametrize(("name", "task"), CASES)


@dataclass(frozen=True, eq=False)
class ScoredVariants:
    """The variants of a part, with a model's score as their one feature."""

    variants: CounterfactualSet
    model: LogisticRegression | LinearRegression

    @property
    def names(self) -> tuple[str, ...]:
        return self.variants.names

    @property
    def n_samples(self) -> int:
        return self.variants.n_samples

    @property
    def rows(self) -> np.ndarray | None:
        return self.variants.rows

    def __iter__(self) -> Iterator[Variant]:
        for each in self.variants:
            yield replace(each, X=score(self.model, each.X))

    def take(self, rows: np.ndarray) -> ScoredVariants:
        return ScoredVariants(self.variants.take(rows), self.model)


def score(model: LogisticRegression | LinearRegression, X: np.ndarray) -> np.ndarray:
    """Return P(Y=1|x) or the prediction as one column."""
    if isinstance(model, LinearRegression):
        return model.predict(X)[:, None]
    return model.predict_proba(X)[:, 1:]


def score_part(part: Part, model: LogisticRegression | LinearRegression) -> Part:
    sets = {name: ScoredVariants(each, model) for name, each in part.counterfactuals.items()}
    return replace(part, X=score(model, part.X), counterfactuals=sets)


@cache
def score_split(split: Split) -> Split:
    """Return the split as a post-processor is given it: the scores of a model for its features."""
    chosen = LogisticRegression(max_iter=1000) if split.train.classes else LinearRegression()
    model = chosen.fit(split.train.X, split.train.y)
    parts = {name: score_part(part, model) for name, part in split.parts()}
    return split.replace(feature_names=("score",), protected_columns={}, **parts)


def splits_for(name: str, tiny: dict[str, Split]) -> dict[str, Split]:
    """Return the splits that a method is held to."""
    if not issubclass(METHODS.all()[name], GroupRule):
        return tiny
    return {
        task: score_split(split) if task in METHODS.all()[name].task else split
        for task, split in tiny.items()
    }


@pytest.fixture
def splits(name: str, tiny: dict[str, Split]) -> dict[str, Split]:
    """Return, by task, what the method of a test is given."""
    return splits_for(name, tiny)


def make(name: str, **parameters: Any) -> Estimator:
    return create(name, **{**METHODS.all()[name].example, **parameters})


def keywords(model: Estimator, split: Split, part: Part) -> dict[str, Any]:
    """Return what ``fit`` takes of what the house has, for the rows of a part."""
    offered = {
        "sample_weight": lambda: part.weight,
        "sensitive_features": lambda: part.groups,
        "true_groups": lambda: part.groups,
        "metric": lambda: learn("subspace", split),
        "validation": lambda: split.validation,
        "counterfactuals": lambda: part.counterfactuals,
    }
    return {key: offered[key]() for key in sorted(model.fit_takes) if key in offered}


def fit(model: Estimator, split: Split, part: Part | None = None, **changes: Any) -> Estimator:
    part = part or split.train
    return model.fit(part.X, part.y, **{**keywords(model, split, part), **changes})


def answer(model: Estimator, part: Part, **changes: Any) -> np.ndarray:
    """Return probabilities, or values for a regression."""
    offered = {"sensitive_features": part.groups, "ids": part.ids, **changes}
    needed = {key: offered[key] for key in sorted(model.predict_needs)}
    ask = model.predict_proba if part.classes else model.predict
    return ask(part.X, **needed)


@cache
def fitted(name: str, task: str, splits: tuple[tuple[str, Split], ...]) -> Estimator:
    return fit(make(name), dict(splits)[task])


@pytest.fixture
def trained(request: pytest.FixtureRequest, tiny: dict[str, Split]) -> tuple[Estimator, Split]:
    """Return a model that several tests look at and none changes, with its split."""
    name, task = request.getfixturevalue("name"), request.getfixturevalue("task")
    splits = splits_for(name, tiny)
    return fitted(name, task, tuple(splits.items())), splits[task]


def test_there_are_methods():
    assert {"gbdt", "project", "reweigh", "budro"} <= set(METHODS.all())


@every_method
def test_says_what_it_is(name):
    cls = METHODS.all()[name]
    assert cls.name == name
    assert cls.task
    assert cls.task <= {"binary", "multiclass", "regression"}
    assert cls.backends
    assert set(cls.backends) <= {"numpy", "cupy"}
    assert cls.paper
    assert cls.__doc__
    assert "References" in cls.__doc__
    assert isinstance(cls.example, Mapping)


@every_method
def test_fit_takes_what_the_house_offers(name):
    cls = METHODS.all()[name]
    assert list(inspect.signature(cls.fit).parameters)[:3] == ["self", "X", "y"]
    assert cls.fit_needs <= cls.fit_takes <= FIT_KEYWORDS
    assert cls.predict_needs <= {"sensitive_features", "ids"}
    assert set(cls.group_parameters) <= set(inspect.signature(cls).parameters)


@every_method
def test_init_stores_and_nothing_else(name):
    model = make(name)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert twin.set_params(**model.get_params()).get_params() == model.get_params()
    stored = {key: value for key, value in vars(model).items() if not key.startswith("_")}
    assert stored == model.get_params(deep=False)
    for key, each in inspect.signature(METHODS.all()[name]).parameters.items():
        assert each.default is not inspect.Parameter.empty, f"{key} has no default"


@every_case
def test_answers_are_probabilities(name, task, trained):
    model, split = trained
    given = answer(model, split.test)
    assert given.dtype == np.float64
    assert np.isfinite(given).all()
    if task == "regression":
        assert given.shape == split.test.y.shape
        return
    classes = len(split.test.classes)
    assert given.shape == (split.test.n_samples, classes)
    assert given.min() >= 0
    np.testing.assert_allclose(given.sum(axis=1), 1.0, atol=1e-12)
    if not model.randomized and not model.predict_needs:
        decided = model.predict(split.test.X)
        assert decided.dtype == np.int64
        expected = given[:, 1] >= 0.5 if task == "binary" else given.argmax(axis=1)
        np.testing.assert_array_equal(decided, expected)


@every_case
def test_learns_something(name, task, trained):
    # A constant answer would pass every other test of this file, and is one method's own.
    model, split = trained
    assert (np.ptp(answer(model, split.train), axis=0).max() > 1e-3) == (name != "constant")


@every_case
def test_answers_do_not_depend_on_the_batch(name, task, trained):
    model, split = trained
    whole = answer(model, split.test)
    rows = np.array([7, 3, 30, 11])
    np.testing.assert_allclose(answer(model, split.test.take(rows)), whole[rows], rtol=1e-12)


@every_case
def test_same_seed_same_answers(name, task, trained):
    model, split = trained
    again = fit(make(name), split)
    assert answer(again, split.test).tobytes() == answer(model, split.test).tobytes()


@every_case
def test_fit_forgets_the_fit_before(name, task, trained):
    model, split = trained
    used = fit(make(name), split, split.train.take(np.arange(60)))
    refitted = fit(used, split)
    assert refitted is used
    assert answer(refitted, split.test).tobytes() == answer(model, split.test).tobytes()


@every_case
def test_input_and_parameters_stay_as_they_are(name, task, splits):
    split = splits[task]
    part = split.train.take(np.arange(split.train.n_samples))
    model = make(name)
    before = model.get_params()
    given = {"X": part.X, "y": part.y, **keywords(model, split, part)}
    arrays = {key: each for key, each in given.items() if isinstance(each, np.ndarray)}
    if "metric" in given:
        arrays |= {f"metric.{key}": each for key, each in vars(given["metric"]).items()}
    copies = {key: each.copy() for key, each in arrays.items()}
    for each in arrays.values():
        each.flags.writeable = False
    model.fit(**given)
    answer(model, part)
    for key, each in arrays.items():
        np.testing.assert_array_equal(each, copies[key], err_msg=key)
    assert model.get_params() == before


GROUPED = [case for case in CASES if "sensitive_features" in METHODS.all()[case[0]].fit_takes]


@pytest.mark.parametrize(("name", "task"), GROUPED)
def test_sensitive_features_are_of_any_kind(name, task, splits):
    split = splits[task]
    codes = split.train.groups[:, :1]
    levels = np.array([f"level {code}" for code in range(codes.max() + 1)])
    keys = sorted({"sensitive_features", "true_groups"} & METHODS.all()[name].fit_takes)

    def answer_on(train: Any, test: Any) -> np.ndarray:
        given = dict.fromkeys(keys, train)
        model = fit(make(name), split.replace(validation=None), **given)
        return answer(model, split.test, sensitive_features=test)

    column = split.test.groups[:, :1]
    wanted = answer_on(codes, column)
    text, asked = levels[codes[:, 0]], levels[column[:, 0]]
    other = {"noise": np.arange(len(asked)), "group": asked}
    for train, test in (
        (codes[:, 0].astype(np.float64), column[:, 0].astype(object)),
        (text, asked),
        (text[:, None].astype(object), asked.tolist()),
        (pd.Series(text, name="group", dtype="category"), pd.DataFrame(other)),
        (pa.table({"group": text}), other),
    ):
        assert np.array_equal(answer_on(train, test), wanted)
    missing = np.where(codes[:, 0] > 0, text, None)
    for refused in (codes + 0.5, np.where(codes > 0, codes, np.nan), missing):
        with pytest.raises(InputError):
            answer_on(refused, column)


@every_case
def test_saved_and_loaded_answers_alike(name, task, trained, tmp_path):
    model, split = trained
    folder = model.save(tmp_path / "model")
    kinds = {path.suffix for path in folder.iterdir()}
    assert kinds <= {".json", ".npz", ".ubj", ".skops"}
    for loaded in (type(model).load(folder), load_model(folder)):
        assert type(loaded) is type(model)
        assert loaded.get_params() == model.get_params()
        np.testing.assert_equal(getattr(loaded, "history_", None), getattr(model, "history_", None))
        for part in (split.train, split.test):
            assert answer(loaded, part).tobytes() == answer(model, part).tobytes()
    # What was loaded can be saved again.
    again = type(model).load(loaded.save(tmp_path / "again"))
    assert answer(again, split.test).tobytes() == answer(model, split.test).tobytes()


@every_case
def test_damage_to_a_saved_model_is_found(name, task, trained, tmp_path):
    model, _ = trained
    folder = model.save(tmp_path / "model")
    with pytest.raises(StoreError, match="not empty"):
        model.save(folder)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(StoreError):
            type(model).load(folder)
        path.write_bytes(whole)
    type(model).load(folder)


@every_case
def test_supports_says_why_not(name, task, splits):
    model = make(name)
    for other, split in splits.items():
        reason = model.supports(split)
        if other not in model.task:
            assert reason
            assert reason.endswith(".")
    assert model.supports(splits[task]) is None


@pytest.mark.parametrize(("name", "task"), COUNTED)
def test_order_of_rows_does_not_matter(name, task, trained):
    model, split = trained
    rows = np.random.default_rng(1).permutation(split.train.n_samples)
    shuffled = fit(make(name), split, split.train.take(rows))
    np.testing.assert_allclose(answer(shuffled, split.test), answer(model, split.test), atol=2e-3)


@pytest.mark.parametrize(("name", "task"), COUNTED)
def test_weights_count_rows(name, task, splits):
    split = splits[task]
    n_samples = split.train.n_samples
    counts = np.random.default_rng(2).integers(1, 4, n_samples)
    repeated = fit(make(name), split, split.train.take(np.repeat(np.arange(n_samples), counts)))
    weighted = fit(make(name), split, sample_weight=counts.astype(np.float64))
    np.testing.assert_allclose(
        answer(repeated, split.test), answer(weighted, split.test), atol=2e-3
    )
    # Counts that tie labels to groups change what even a coarse rule answers, once no other rows
    # have a say.
    high, first = split.train.y > split.train.y.mean(), split.train.groups[:, 0] == 0
    leaning = np.where(high == first, 9.0, 1.0)
    alone = {"validation": None} if "validation" in METHODS.all()[name].fit_takes else {}
    plain = fit(make(name), split, **alone)
    leant = fit(make(name), split, sample_weight=leaning, **alone)
    assert np.abs(answer(plain, split.test) - answer(leant, split.test)).max() > 2e-3


@pytest.mark.parametrize(
    ("name", "task"), [case for case in CASES if case[0] in SCORERS and case[1] == "binary"]
)
def test_a_decision_belongs_to_its_row(name, task, trained):
    model, split = trained
    part = split.test
    whole = model.predict(part.X, sensitive_features=part.groups, ids=part.ids)
    assert whole.dtype == np.int64
    assert set(np.unique(whole)) <= {0, 1}
    for rows in (np.arange(10), np.random.default_rng(3).permutation(part.n_samples)):
        some = model.predict(part.X[rows], sensitive_features=part.groups[rows], ids=part.ids[rows])
        np.testing.assert_array_equal(some, whole[rows])
    probability = answer(model, part)[:, 1]
    sure = np.isin(probability, (0.0, 1.0))
    np.testing.assert_array_equal(whole[sure], probability[sure])
    if not model.randomized:
        np.testing.assert_array_equal(whole, probability >= 0.5)


BATCHED = [case for case in CASES if METHODS.all()[case[0]].batched]


@pytest.mark.parametrize(("name", "task"), BATCHED)
def test_a_batch_gives_the_models_of_single_fits(name, task, splits):
    split = splits[task]
    # In single precision Adam makes steps of what is rounded, where a gradient is none.
    exact = {"dtype": "float64"} if "dtype" in METHODS.all()[name]().get_params() else {}
    models, alone = ([make(name, random_state=seed, **exact) for seed in (1, 2)] for _ in range(2))
    if models[0].structure() != models[1].structure():
        models, alone = models[:1], alone[:1]
    part = split.train
    data = [{"X": part.X, "y": part.y, **keywords(model, split, part)} for model in models]
    type(models[0]).fit_batch(models, data)
    for model, other in zip(models, alone, strict=True):
        found, wanted = answer(model, split.test), answer(fit(other, split), split.test)
        np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("name", SCORERS)
def test_features_are_no_scores(name, tiny):
    assert "scores" in make(name).supports(tiny["binary"])


@pytest.mark.parametrize(("name", "task"), TOLD)
def test_progress_counts_up_to_the_end(name, task, splits):
    seen: list[tuple[int, int]] = []
    fit(make(name), splits[task], progress=lambda done, of: seen.append((done, of)))
    assert seen
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


@every_case
def test_can_be_evaluated(name, task, trained):
    model, split = trained
    rows = evaluate(model, split.test)
    assert {"measure", "group", "value", "n", "low", "high", "left_out"} == set(rows.columns)
    assert len(rows) > 0
    assert rows.value.notna().any()


@every_method
def test_presets_are_parameters_that_it_takes(name):
    described = yaml.safe_load(find_yaml("method", name, ROOT).read_text())
    assert described["method"] == name
    for preset in (described.get("presets") or {}).values():
        for parameters in preset.values():
            create(name, **{key: each for key, each in parameters.items() if key != "metric"})
    for grid in (described.get("grids") or {}).values():
        create(name, **{key: each[0] for key, each in grid.items()})


def test_every_file_describes_a_method():
    assert list_names("method", ROOT).keys() == METHODS.all().keys()
