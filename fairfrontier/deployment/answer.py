"""What a chosen model, or a mixture of two, answers to rows, in any batch and order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.metrics.statistic.rate import TNR, TPR
from fairfrontier.models.base import Classifier, read_keywords
from fairfrontier.models.persistence import reading
from fairfrontier.models.registry import load_model
from fairfrontier.models.thresholds.base import number_cells
from fairfrontier.models.thresholds.model import PostProcessed
from fairfrontier.runtime.errors import ConfigError, StoreError, require
from fairfrontier.runtime.seeds import derive_integer, uniforms
from fairfrontier.runtime.text_file import read_json, write_json
from fairfrontier.study.config import split_name
from fairfrontier.study.mixture import AGGREGATES, find_rates, is_linear

FILE = "mixture.json"
MODEL, RULE = "model", "post_processor"
COMPONENTS = ("first", "second")
# Margins within rounding of 0 are met.
TOLERANCE = 1e-12
# Smaller shares of one model decide next to nothing: such a mixture is one model.
LEAST_SHARE = 1e-6


class Mixture:
    """Two models of which one, drawn for every row, decides.

        P(decision = 1 | x) = (1 − share) h₁(x) + share h₂(x)

    with h the decision of a model, or its probability where that is random. Every rate is then the
    same mean of the two models' rates, in expectation: a mixture attains every point between them.

    Parameters
    ----------
    first, second : estimator or PostProcessed
        Fitted on the same two classes and features.
    share : float
        The probability that ``second`` decides, in [0, 1].
    random_state : int, default 0
        Seed of the draws.

    Raises
    ------
    ConfigError
        For another share, or models of other classes or of more than two.

    Notes
    -----
    Which model decides on a row depends on (``random_state``, row id) alone: the same row is
    decided by the same model in any batch or order. Prediction costs what both models cost.
    """

    randomized = True

    def __init__(self, first: Any, second: Any, share: float, random_state: int = 0) -> None:
        if not 0.0 <= share <= 1.0:
            raise ConfigError(f"The share of the second model is {share}.", "Give 0 to 1.")
        if len(first.classes_) != 2 or not np.array_equal(first.classes_, second.classes_):
            raise ConfigError(
                "Models of a mixture decide between the same two classes.",
                "Mix models of two classes that were fitted on the same labels.",
            )
        self.first, self.second = first, second
        self.share, self.random_state = float(share), int(random_state)

    @property
    def classes_(self) -> np.ndarray:
        """The labels in ascending order; the last one is the positive one."""
        return np.asarray(self.first.classes_)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The names of the first model's features; AttributeError where it has none."""
        names: np.ndarray = self.first.feature_names_in_
        return names

    @property
    def predict_needs(self) -> frozenset[str]:
        """Keywords of ``predict_proba``: those of both models."""
        return frozenset(self.first.predict_needs | self.second.predict_needs)

    def predict_proba(
        self, X: np.ndarray, *, groups: np.ndarray | None = None, ids: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the exact probabilities of the decisions 0 and 1, float64, (n_samples, 2)."""
        keywords = {"groups": groups, "ids": ids}
        first, second = (_decide(model, X, keywords) for model in (self.first, self.second))
        chance = (1.0 - self.share) * first + self.share * second
        return np.column_stack([1.0 - chance, chance])

    def predict(
        self, X: np.ndarray, *, ids: np.ndarray, groups: np.ndarray | None = None
    ) -> np.ndarray:
        """Return decisions as labels, shape (n_samples,), drawn by the rows' ``ids``, integers."""
        keywords = {"groups": groups, "ids": ids}
        first, second = (_predict(model, X, keywords) for model in (self.first, self.second))
        return np.where(self.draw(ids), second, first)

    def draw(self, ids: np.ndarray) -> np.ndarray:
        """Return for which rows the second model decides, bool of shape (n_samples,)."""
        # Models that draw by the same seed must not draw with the same numbers.
        drawn = uniforms(derive_integer("mixture", self.random_state), ids)
        return np.asarray(drawn < self.share)

    def save(self, folder: str | Path) -> Path:
        """Write both models and the share to a new folder, without pickle.

        Raises
        ------
        StoreError
            When the folder is not empty or cannot be written.
        """
        folder = Path(folder)
        if folder.is_dir() and any(folder.iterdir()):
            raise StoreError(f"The folder {folder} is not empty.", "Save the mixture to a new one.")
        for name, model in zip(COMPONENTS, (self.first, self.second), strict=True):
            chain = isinstance(model, PostProcessed)
            (model.model if chain else model).save(folder / name / MODEL)
            if chain:
                model.processor.save(folder / name / RULE)
        # Last, so that a folder with this file is complete.
        write_json({"share": self.share, "random_state": self.random_state}, folder / FILE)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what ``save`` wrote; nothing is unpickled.

        Raises
        ------
        StoreError
            When a file is missing, or one of a model was altered.
        """
        folder = Path(folder)
        models = []
        with reading(folder, "Name a folder that Mixture.save() wrote."):
            facts = read_json(folder / FILE)
            share, seed = facts["share"], facts["random_state"]
            require(type(share) is float and type(seed) is int, "share or seed")
            for name in COMPONENTS:
                model: Any = load_model(folder / name / MODEL)
                if (folder / name / RULE).is_dir():
                    model = PostProcessed(model, load_model(folder / name / RULE))
                models.append(model)
            return cls(models[0], models[1], share, seed)


def _decide(model: Any, X: np.ndarray, keywords: dict[str, Any]) -> np.ndarray:
    """Return the probability of deciding 1, which is 0 or 1 where nothing is random."""
    if not model.randomized:
        return np.asarray(_predict(model, X, keywords) == model.classes_[-1], dtype=np.float64)
    given = {name: keywords[name] for name in model.predict_needs}
    return np.asarray(model.predict_proba(X, **given)[:, 1])


def _predict(model: Any, X: np.ndarray, keywords: dict[str, Any]) -> np.ndarray:
    known, _ = read_keywords(type(model), "predict")
    return np.asarray(model.predict(X, **{name: keywords[name] for name in known & {*keywords}}))


def list_margins(name: str, bound: float, values: pd.DataFrame) -> np.ndarray:
    """Return numbers linear in the decision rule, all ≥ 0 where a measure keeps its bound.

    ``values`` is as for `find_rates`; the result has shape (n_settings, n_margins). ConfigError for
    a measure that no finite number of linear ones bounds.
    """
    measure, group = split_name(name)
    direction = MEASURES.find(measure).direction
    if is_linear(name):
        value = values[[name]].to_numpy(dtype=np.float64)
        above, below = value - bound, bound - value
        if direction == "zero":
            return np.hstack([value + bound, below])
        return np.asarray(above if direction == "higher" else below)
    aggregation, position = AGGREGATES.get(measure, ("", None))
    kept = [TNR, TPR] if position is None else [position]
    rates = find_rates(values, group)[..., kept]
    rates = rates[:, ~np.isnan(rates).any(axis=(0, 2))]
    first, second = rates[:, :, None], rates[:, None]
    match aggregation, direction:
        case ("difference" | "gap_max", _):
            margins = bound - (first - second)
        case ("ratio", _):
            margins = first - bound * second
        case ("max", "lower"):
            margins = bound - rates
        case ("min", "higher"):
            margins = rates - bound
        case _:
            raise ConfigError(
                f"A mixture of two settings cannot be bounded in {name}.",
                "Bound rates, or their largest difference, smallest ratio, maximum or minimum.",
            )
    return np.asarray(margins.reshape(len(values), -1))


def find_mixture(objective: np.ndarray, margins: np.ndarray) -> tuple[int, int, float] | None:
    """Return the best mixture of two settings: the first, the second and its share.

        maximise (1 − p) s_i + p s_j   subject to   (1 − p) m_i + p m_j >= 0

    ``objective``, shape (n_settings,), and ``margins``, (n_settings, n_margins), are linear in the
    decision rule, so that for each pair the shares that meet the bounds are an interval. A share of
    0 is the first setting alone, and 1 the second; those between are at least `LEAST_SHARE` away
    from both. None where no pair meets the bounds. O(n_settings² n_margins).
    """
    margins = margins + TOLERANCE
    best, found = -np.inf, None
    for first, start in enumerate(margins):
        step = margins - start
        with np.errstate(divide="ignore", invalid="ignore"):
            root = -start / step
        least = np.where(step > 0, root, 0.0).max(axis=1, initial=0.0)
        most = np.where(step < 0, root, 1.0).min(axis=1, initial=1.0)
        # The second alone does not meet the bounds where the largest share is below 1.
        most = np.where(most < 1.0, np.minimum(most, 1.0 - LEAST_SHARE), 1.0)
        most = np.where((most >= 0.0) & (most < LEAST_SHARE), 0.0, most)
        feasible = (least <= most) & ~((step == 0) & (start < 0)).any(axis=1)
        # The order of a pair in which the second is better stands for both.
        feasible &= objective >= objective[first]
        value = objective[first] + np.maximum(most, 0.0) * (objective - objective[first])
        value = np.where(feasible, value, -np.inf)
        second = int(value.argmax())
        if value[second] > best + TOLERANCE:
            best, found = value[second], (first, second, float(most[second]))
    return found


# Rows are predicted in blocks of this many: sums of matrix products depend on a matrix's shape.
BLOCK_ROWS = 1 << 12
Block = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, ...]]


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a model of two classes makes of rows.

    Attributes
    ----------
    score : ndarray of float64, shape (n_samples,)
        P(Y=1|x).
    probability : ndarray of float64, shape (n_samples,)
        The probability of deciding 1; 0 or 1 where nothing is drawn.
    decision : ndarray of int64, shape (n_samples,)
        0 or 1; drawn by row id where it is random.
    """

    score: np.ndarray
    probability: np.ndarray
    decision: np.ndarray


@dataclass(frozen=True, eq=False)
class OneClass:
    """A model of several classes as one of two: whether it decides for the class ``code``."""

    model: Any
    code: int
    n_classes: int
    randomized: ClassVar[bool] = False

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the probabilities of the other classes and of this one, (n_samples, 2)."""
        one = _classify_block(self.model, self.n_classes, X, np.zeros((len(X), 0)), np.zeros(0))
        return np.column_stack([1.0 - one[:, self.code], one[:, self.code]])


@dataclass(frozen=True, eq=False)
class Above:
    """A regression as a model of two classes: whether it predicts more than ``cut``.

    The score is the expected prediction, in the units of the model as ``cut`` is.
    """

    model: Any
    cut: float

    @property
    def randomized(self) -> bool:
        """Whether predictions are drawn."""
        return find_chance(self.model).size > 1


def judge(model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray) -> Judgement:
    """Return the scores and decisions of a model of two classes on rows.

    ``X`` is float64 (n_samples, n_features), ``groups`` int64 (n_samples, n_attributes) and ``ids``
    are integers, (n_samples,).
    """
    judged = _run_blocks(lambda *rows: _judge_block(model, *rows), 3, X, groups, ids)
    score, probability, decision = judged
    return Judgement(score, probability, decision.astype(np.int64))


def classify(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray, n_classes: int
) -> np.ndarray:
    """Return P(Y=k|x) of a model of several classes, float64, shape (n_samples, n_classes)."""
    run = lambda *rows: (_classify_block(model, n_classes, *rows),)  # noqa: E731
    return _run_blocks(run, 1, X, groups, ids)[0].reshape(-1, n_classes)


def predict_numbers(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a regression may predict, with which probabilities, and what it predicts.

    Of shape (n_samples, K), (K,) and (n_samples,), float64. The last is drawn by row id where K is
    more than 1, as `MixtureEstimator.sample` draws.
    """
    chance = _read_chance(model)
    components, drawn = _run_blocks(lambda *rows: _predict_block(model, *rows), 2, X, groups, ids)
    return components.reshape(-1, chance.size)[:, chance > 0], find_chance(model), drawn


def find_chance(model: Any) -> np.ndarray:
    """Return the probabilities, above 0, of what a regression may predict, shape (K,)."""
    chance = _read_chance(model)
    return chance[chance > 0]


def list_components(model: Any) -> Iterator[Any]:
    """Yield the models of a mixture, or the model itself."""
    if isinstance(model, Mixture):
        yield from (model.first, model.second)
    else:
        yield model


def find_unfitted(model: Any, groups: np.ndarray) -> np.ndarray:
    """Return which rows are of a combination of groups that a rule was fitted without, bool."""
    unfitted = np.zeros(len(groups), dtype=bool)
    for component in list_components(model):
        if isinstance(component, PostProcessed) and not component.processor.takes_unseen:
            processor = component.processor
            cells, code = number_cells(processor.cross(groups))
            known = set(map(tuple, processor.cells_.tolist()))
            unknown = np.array([tuple(cell) not in known for cell in cells.tolist()], dtype=bool)
            unfitted |= unknown[code]
    return unfitted


def _run_blocks(
    run: Block, arrays: int, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the ``arrays`` that ``run`` makes of rows in blocks of ``BLOCK_ROWS``.

    The last block is filled up with rows from the start.
    """
    n = len(X)
    if not n:
        return (np.empty(0),) * arrays
    rows = np.resize(np.arange(n), -(-n // BLOCK_ROWS) * BLOCK_ROWS)
    found = [run(X[block], groups[block], ids[block]) for block in rows.reshape(-1, BLOCK_ROWS)]
    return tuple(np.concatenate(each)[:n] for each in zip(*found, strict=True))


def _give(model: Any, groups: np.ndarray, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the keywords that a model's predictions need."""
    keywords = {"groups": groups, "ids": ids}
    return {name: keywords[name] for name in model.predict_needs}


def _classify_block(
    model: Any, n_classes: int, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> np.ndarray:
    """Return P(Y=k|x); a class without training rows has 0."""
    probability = np.zeros((len(X), n_classes))
    probability[:, model.classes_] = model.predict_proba(X, **_give(model, groups, ids))
    return probability.clip(0.0, 1.0)


def _read_chance(model: Any) -> np.ndarray:
    """Return the probabilities of a regression's regressors, of which it may have one."""
    drawn = hasattr(model, "predict_components")
    return np.asarray(model.probability_ if drawn else [1.0], dtype=np.float64)


def _predict_block(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the predictions of every regressor, and of the drawn one."""
    given = _give(model, groups, ids)
    if not hasattr(model, "predict_components"):
        predicted = np.asarray(model.predict(X, **given), dtype=np.float64)
        return predicted[:, None], predicted
    components = np.asarray(model.predict_components(X, **given), dtype=np.float64)
    steps = np.cumsum(_read_chance(model))[:-1]
    drawn = np.searchsorted(steps, uniforms(model.random_state, ids), side="right")
    return components, components[np.arange(len(X)), drawn]


def _judge_block(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return score, probability and decision."""
    if isinstance(model, OneClass):
        classes = _classify_block(model.model, model.n_classes, X, groups, ids)
        chosen = classes.argmax(axis=1) == model.code
        return classes[:, model.code], chosen.astype(np.float64), chosen
    if isinstance(model, Above):
        components, drawn = _predict_block(model.model, X, groups, ids)
        chance = _read_chance(model.model)
        above = ((components > model.cut) @ chance).clip(0.0, 1.0)
        return components @ chance, above, drawn > model.cut
    if isinstance(model, Mixture):
        first, second = (_judge_block(each, X, groups, ids) for each in list_components(model))
        score, probability = (
            (1.0 - model.share) * one + model.share * other
            for one, other in zip(first[:2], second[:2], strict=True)
        )
        return score, probability, np.where(model.draw(ids), second[2], first[2])
    if isinstance(model, PostProcessed):
        processor = model.processor
        score = _judge_block(model.model, X, groups, ids)[0]
        # A rule refuses to decide on rows any of which has no score; that row alone is refused.
        taken = np.where(np.isfinite(score), score, 0.5)
        chance = processor.predict_proba(taken, groups=groups)[:, 1]
        decision = processor.predict(taken, groups=groups, ids=ids)
        chosen = np.asarray(decision == processor.classes_[-1])
        if processor.rescores:
            score = np.where(np.isfinite(score), chance, np.nan)
        return score, chance if processor.randomized else chosen.astype(np.float64), chosen
    given = _give(model, groups, ids)
    score = np.asarray(model.predict_proba(X, **given), dtype=np.float64)[:, 1]
    if type(model).predict is Classifier.predict:
        chosen = score >= model.cut_
    else:
        known, _ = read_keywords(type(model), "predict")
        keywords = {"groups": groups, "ids": ids}
        decision = model.predict(X, **{name: keywords[name] for name in known & {*keywords}})
        chosen = np.asarray(decision == model.classes_[-1])
    return score, score if model.randomized else chosen.astype(np.float64), chosen
