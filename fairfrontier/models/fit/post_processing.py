"""Fitting a post-processor on the stored scores of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from fairfrontier.models.base import Estimator
from fairfrontier.models.fit.training import fill_part, map_parts
from fairfrontier.models.group import number_cells
from fairfrontier.models.prediction import (
    Prediction,
    Variants,
    predict_part,
    predict_rows,
    predict_variants,
)
from fairfrontier.models.thresholds.base import GroupRule, score_part
from fairfrontier.models.thresholds.model import fit_processor, require_calibration
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.cluster.executor import Block

# Parts of the validation rows, each decided by a rule of the others, where rules are fitted there.
FOLDS = 5


def fit_behind(
    processor: GroupRule,
    load: Callable[[], Estimator],
    stored: Mapping[str, Prediction],
    split: Split,
) -> dict[str, Prediction]:
    """Fit a post-processor on the stored scores of a model; return its predictions by part.

    It is fitted on the part of `require_calibration`, and tuned on the validation part. Where these
    are one, its decisions there are those of rules of other rows, so that no rule is chosen for
    what it does to the rows that it was made from; those on counterfactual versions, which are
    compared with each other alone, are its own. ``load`` returns the model, which is asked only
    where its stored scores are not enough.
    """
    fitted = require_calibration(split).name
    validation = stored["validation"].score if "validation" in stored else None
    fit_processor(processor, split, stored[fitted].score, validation)
    chain = cache(lambda: processor.behind(load()))
    decided = {name: _decide(processor, part, stored[name], chain) for name, part in split.parts()}
    if split.calibration is None and split.validation is not None:
        decided["validation"] = _cross_fit(
            processor, split, split.validation, decided[fitted], stored[fitted].score
        )
    return decided


def fit_behind_blocks(
    processor: GroupRule, model: Estimator, stored: Mapping[str, Prediction], split: Split
) -> dict[str, Prediction]:
    """Fit a post-processor on stored scores, as `fit_behind` does, where rows stay in partitions.

    Only the counterfactual versions are scored again, block by block.
    """
    bare = {name: replace(part, counterfactuals={}) for name, part in split.parts()}
    decided = fit_behind(processor, lambda: model, stored, split.replace(**bare))
    variants = map_parts(_predict_variants, processor.behind(model), dict(split.parts()))
    return {
        name: replace(
            part,
            counterfactuals=variants[name].counterfactuals,
            counterfactual_scores=(variants if processor.rescores else stored)[
                name
            ].counterfactual_scores,
        )
        for name, part in decided.items()
    }


def _predict_variants(block: Block, model: Any, part: Part) -> Prediction:
    decided, scored = predict_variants(deepcopy(model), fill_part(part, block))
    nothing = np.empty(0)
    return Prediction(nothing, nothing, dict(decided), counterfactual_scores=dict(scored))


def _decide(
    processor: GroupRule, part: Part, stored: Prediction, chain: Callable[[], GroupRule]
) -> Prediction:
    """Return a post-processor's decisions from the stored scores of its model.

    The score remains the model's estimate of P(Y=1|x), unless the post-processor corrects it.
    """
    decided = predict_part(processor, score_part(part, stored.score))
    if processor.rescores:
        variants, scores = predict_variants(chain(), part)
        return replace(decided, counterfactuals=variants, counterfactual_scores=scores)
    if processor.monotone:
        variants = _decide_variants(processor, part, stored, chain)
    else:
        variants, _ = predict_variants(chain(), part)
    return replace(
        decided,
        score=stored.score,
        counterfactuals=variants,
        counterfactual_scores=stored.counterfactual_scores,
    )


def _decide_variants(
    processor: GroupRule, part: Part, stored: Prediction, chain: Callable[[], GroupRule]
) -> Mapping[str, Variants]:
    """Return a monotone rule's decisions on every variant, from its stored score.

    That is rounded to 32 bits: rows whose decision depends on what is beyond them are scored again.
    """
    decided: dict[str, Variants] = {}
    for name, variants in part.counterfactuals.items():
        rows = part if variants.rows is None else part.take(variants.rows)
        found = []
        scores = stored.counterfactual_scores[name]
        for variant, score in zip(rows.counterfactuals[name], scores, strict=True):
            decision, highest = (
                predict_rows(processor, rows, bound[:, None], variant.groups)[1]
                for bound in _enclose(score)
            )
            unsure = np.flatnonzero(decision != highest)
            if unsure.size:
                some = rows.take(unsure), variant.X[unsure], variant.groups[unsure]
                decision[unsure] = predict_rows(chain(), *some)[1]
            found.append((variant.name, decision))
        decided[name] = tuple(found)
    return MappingProxyType(decided)


def _enclose(score: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a lower and an upper bound of probabilities that were rounded to 32 bits."""
    narrow = score.astype(np.float32)
    for end in (np.float32(-1), np.float32(2)):
        yield np.clip(np.nextafter(narrow, end), 0, 1).astype(np.float64)


def _cross_fit(
    processor: GroupRule, split: Split, part: Part, decided: Prediction, score: np.ndarray
) -> Prediction:
    """Return a prediction for the part that a rule is fitted on with decisions by rules of folds.

    Folds have rows of every group and class; where one has a single row, there are none.
    """
    labels = [part.y] if part.classes else []
    _, cell = number_cells(np.column_stack([processor.cross(part.groups), *labels]))
    folds = min(FOLDS, int(np.bincount(cell, part.weight > 0).min()))
    if folds < 2:
        return decided
    scored = score_part(part, score)
    decision, rescored = decided.decision.copy(), decided.score.copy()
    shuffled = StratifiedKFold(folds, shuffle=True, random_state=0)
    for others, held_out in shuffled.split(cell, cell):
        rule, rows = clone(processor), split.replace(validation=scored.take(others))
        fit_processor(rule, rows, score[others], score[others])
        found = predict_part(rule, scored.take(held_out))
        decision[held_out], rescored[held_out] = found.decision, found.score
    return replace(
        decided, decision=decision, score=rescored if processor.rescores else decided.score
    )
