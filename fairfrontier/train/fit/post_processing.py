"""Fitting a post-processor on the stored scores of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fairfrontier.prepare.split import Part, Split
from fairfrontier.train.base import Estimator
from fairfrontier.train.postprocess.base import PostProcessor, score_part
from fairfrontier.train.postprocess.model import PostProcessed, fit_processor, require_calibration
from fairfrontier.train.prediction import Prediction, check_features, predict_part, predict_variants


def fit_behind(
    processor: PostProcessor, model: Estimator, stored: Mapping[str, Prediction], split: Split
) -> dict[str, Prediction]:
    """Fit a post-processor on the stored scores of a model; return its predictions by part.

    It is fitted on the part of `require_calibration`, and tuned on the validation part.
    """
    fitted = require_calibration(split).name
    check_features(model, split.train)
    validation = stored["validation"].score if "validation" in stored else None
    fit_processor(processor, split, stored[fitted].score, validation)
    chain = PostProcessed(model, processor)
    return {name: _decide(chain, part, stored[name]) for name, part in split.parts()}


def _decide(chain: PostProcessed, part: Part, stored: Prediction) -> Prediction:
    """Return a post-processor's decisions from the stored scores of its model.

    The score remains the model's estimate of P(Y=1|x), unless the post-processor corrects it.
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
