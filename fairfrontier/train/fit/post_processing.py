"""Fitting a post-processor on the stored scores of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairfrontier.prepare.split import Part, Split
from fairfrontier.train.base import Estimator
from fairfrontier.train.postprocess.base import PostProcessor, score_part
from fairfrontier.train.postprocess.model import PostProcessed, fit_processor, require_calibration
from fairfrontier.train.prediction import Prediction, predict_part, predict_variants


def fit_behind(
    processor: PostProcessor, model: Estimator, stored: Mapping[str, Prediction], split: Split
) -> dict[str, Prediction]:
    """Fit a post-processor behind a model, and return what both decide about every part.

    Parameters
    ----------
    processor : PostProcessor
        Unfitted; it is fitted on the calibration part and tuned on the validation part.
    model : Estimator
        Fitted.
    stored : mapping of str to Prediction
        What the model says about every part.
    split : Split
        With a calibration part.
    """
    require_calibration(split)
    checked = stored["validation"].score if "validation" in stored else None
    fit_processor(processor, split, stored["calibration"].score, checked)
    chain = PostProcessed(model, processor)
    return {name: _decide(chain, part, stored[name]) for name, part in split.parts()}


def refuse(processor: Any, split: Split) -> str | None:
    """Return why a post-processor does not suit a split; None where it does."""
    reason: str | None = processor.supports(split.replace(feature_names=("score",)))
    return reason


def _decide(chain: PostProcessed, part: Part, stored: Prediction) -> Prediction:
    """Return a post-processor's decisions from the stored scores of its model.

    The score stays the model's estimate of P(Y=1|x), unless it is this that is corrected.
    """
    decided = predict_part(chain.processor, score_part(part, stored.score))
    rescores = chain.processor.rescores
    variants, rescored = predict_variants(chain, part)
    return replace(
        decided,
        score=decided.score if rescores else stored.score,
        counterfactuals=variants,
        counterfactual_scores=rescored if rescores else stored.counterfactual_scores,
    )
