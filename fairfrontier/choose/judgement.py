"""Scores and decisions of a chosen model, the same for a row in any batch and order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfrontier.choose.mixture import Mixture
from fairfrontier.train.base import Classifier, read_keywords
from fairfrontier.train.postprocess.base import number_cells
from fairfrontier.train.postprocess.model import PostProcessed

# Rows are predicted in blocks of this many: sums of matrix products depend on a matrix's shape.
BLOCK_ROWS = 1 << 12


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a model makes of rows.

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


def judge(model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray) -> Judgement:
    """Return the scores and decisions of a model on rows, in blocks of ``BLOCK_ROWS``.

    ``X`` is float64 (n_samples, n_features), ``groups`` int64 (n_samples, n_attributes) and ``ids``
    are integers, (n_samples,). The last block is filled up with rows from the start.
    """
    n = len(X)
    rows = np.resize(np.arange(n), -(-n // BLOCK_ROWS) * BLOCK_ROWS)
    judged = [
        _judge_block(model, X[block], groups[block], ids[block])
        for block in rows.reshape(-1, BLOCK_ROWS)
    ]
    fields = zip(*judged, strict=True) if judged else [(np.empty(0),)] * 3
    score, probability, decision = (np.concatenate(field)[:n] for field in fields)
    return Judgement(score, probability, decision.astype(np.int64))


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


def _judge_block(
    model: Any, X: np.ndarray, groups: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return score, probability and decision."""
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
        chance = processor.predict_proba(score, groups=groups)[:, 1]
        decision = processor.predict(score, groups=groups, ids=ids)
        chosen = np.asarray(decision == processor.classes_[-1])
        if processor.rescores:
            score = chance
        return score, chance if processor.randomized else chosen.astype(np.float64), chosen
    keywords = {"groups": groups, "ids": ids}
    given = {name: keywords[name] for name in model.predict_needs}
    score = np.asarray(model.predict_proba(X, **given), dtype=np.float64)[:, 1]
    if type(model).predict is Classifier.predict:
        chosen = score >= model.cut_
    else:
        known, _ = read_keywords(type(model), "predict")
        decision = model.predict(X, **{name: keywords[name] for name in known & {*keywords}})
        chosen = np.asarray(decision == model.classes_[-1])
    return score, score if model.randomized else chosen.astype(np.float64), chosen
