"""Fitting the post-processors of a fit group on the stored scores of its models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fairfrontier.prepare.split import Part
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.train.base import Estimator
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.input import create_model, load_split
from fairfrontier.train.fit.kept import read_facts
from fairfrontier.train.fit.score_file import read_scores
from fairfrontier.train.fit.training import Fitted
from fairfrontier.train.postprocess.base import score_part
from fairfrontier.train.postprocess.model import (
    PostProcessed,
    fit_processor,
    refuse_unknown_groups,
    require_calibration,
    score_split,
)
from fairfrontier.train.prediction import Prediction, predict_part, predict_variants
from fairfrontier.train.registry import load_model


def fit_behind(group: FitGroup, base: Path, home: Path) -> Fitted:
    """Fit the post-processors of a group on the scores of its models.

    Parameters
    ----------
    group : FitGroup
        With ``then``.
    base : Path
        Where the store keeps the fit of ``group.base``.
    home : Path
        The project root.
    """
    skipped = read_facts(base)["skipped"]
    if skipped is not None:
        return Fitted((), (), skipped)
    parameters = dict(group.then or {})
    name = parameters.pop("method")
    processors: list[Estimator] = []
    predictions: list[dict[str, Prediction]] = []
    with limited_threads(group.threads):
        for number, member in enumerate(group.members):
            split = load_split(group, member, home)
            processor = create_model(group, name, parameters, split, member.seed)
            reason = processor.supports(split.replace(feature_names=("score",)))
            if reason is not None:
                return Fitted((), (), reason)
            require_calibration(split)
            stored = read_scores(base / f"scores-{number}.npz")
            checked = stored["validation"].score if "validation" in stored else None
            scored = score_split(split, stored["calibration"].score, checked)
            refuse_unknown_groups(split, processor)
            fit_processor(processor, scored)
            chain = PostProcessed(load_model(base / f"model-{number}"), processor)
            processors.append(processor)
            predictions.append(
                {part.name: _decide(chain, part, stored[part.name]) for _, part in split.parts()}
            )
    return Fitted(processors, predictions)


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
