"""What a chosen model answers to rows, the same for a row in any batch and order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fairfrontier.choose.mixture import Mixture
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.train.base import Classifier, read_keywords
from fairfrontier.train.postprocess.base import number_cells
from fairfrontier.train.postprocess.model import PostProcessed

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
