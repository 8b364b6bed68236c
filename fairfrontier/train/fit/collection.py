"""Training on collections, whose rows stay in partitions; what needs them in one place says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.cluster.partition import hold, plan_partitions
from fairfrontier.train.base import SHAPE, Estimator, training_weight
from fairfrontier.train.baseline.fair_gbm import FairGBM
from fairfrontier.train.baseline.linear import MOST_NEWTON, Linear
from fairfrontier.train.baseline.linear_post import Learnt
from fairfrontier.train.baseline.linear_regression import LinearRegression
from fairfrontier.train.fit.partitioned import FITS, Given
from fairfrontier.train.fit.post_processing import fit_behind
from fairfrontier.train.fit.training import Fitted, chooses_cut, select_keywords
from fairfrontier.train.objective import Objective
from fairfrontier.train.postprocess.base import PostProcessor
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.prediction import Prediction, predict_part, predict_variants

if TYPE_CHECKING:
    from distributed import Client

    from fairfrontier.prepare.splitting.plan import Edits

Give = Callable[[int], FairMetric | None]


def train_collections(
    models: Sequence[Any],
    splits: Sequence[Split],
    give_metric: Give,
    client: Client | None = None,
    progress: Callable[[int, int], None] | None = None,
    objective: Objective | None = None,
) -> Fitted:
    """Train models one by one on splits whose X is a Dask array; see `training.train`.

    Labels, groups, weights and scores, O(n) numbers, are in this process; features never are, but
    for one partition at a time where there is no ``client``.
    """
    for model, split in zip(models, splits, strict=True):
        reason = model.supports(split) or find_reason(model, split, client, objective)
        if reason is not None:
            return Fitted((), (), reason)
    predictions: list[Mapping[str, Prediction]] = []
    shared: dict[Any, Learnt] = {}
    for position, (model, split) in enumerate(zip(models, splits, strict=True)):
        metric = give_metric(position)
        if type(model) in FITS:
            _fit_partitions(model, split, metric, client, shared)
        else:
            kept = split.replace(train=replace(split.train, X=hold(split.train.X)))
            keywords = select_keywords(type(model), kept, metric, client)
            type(model).fit_batch([model], [keywords], progress=progress)
        if (reason := getattr(model, "infeasible_", None)) is not None:
            return Fitted((), (), reason)
        if objective is not None and chooses_cut(type(model)) and split.validation is not None:
            part = split.validation
            bare = replace(part, counterfactuals={})
            score = predict_parts(model, {part.name: bare})[part.name].score
            model.tune_cut(score, part.y, part.weight, objective)
        model.name_features(split.feature_names)
        predictions.append(predict_parts(model, dict(split.parts())))
    return Fitted(models, predictions)


def find_reason(
    model: Any, split: Split, client: Client | None, objective: Objective | None = None
) -> str | None:
    """Return why a method cannot be trained on a collection, or None when it can."""
    name = model.name
    if type(model) not in FITS and not model.takes_collections:
        return (
            f"{name} needs all rows in one process's memory, and those of {split.dataset} stay in "
            "partitions."
        )
    lacking = objective is not None and chooses_cut(type(model)) and split.validation is None
    if lacking and split.task == "binary":
        return f"{name} chooses its cut on validation rows where rows stay in partitions."
    if "client" in type(model).fit_takes and client is None:
        return f"{name} trains on partitions that workers hold: choose --cluster local."
    watches = getattr(model, "early_stopping", None) is not None
    if watches and split.validation is None:
        return (
            f"{name} stops early on validation rows where rows stay in partitions: declare some, "
            "or set early_stopping: null."
        )
    trees = getattr(model, "tree_method", "hist")
    if trees == "exact" or (type(model) in FITS and trees != "hist"):
        return f"{name}'s tree method {trees} takes no rows in partitions: set tree_method: hist."
    if type(model) is FairGBM and split.train.n_samples < model.cross_fit_below:
        return (
            f"{name} cross-fits the rates of fewer than {model.cross_fit_below} rows in one "
            "process's memory: set cross_fit_below: 0 for the rates of training rows."
        )
    if type(model) is Linear and (model.folds is not None or model.solver == "lbfgs"):
        return "linear takes neither folds nor solver: lbfgs where rows stay in partitions."
    if type(model) in (Linear, LinearRegression):
        rows = len(split.train.classes) if len(split.train.classes) > 2 else 1
        if rows * split.train.X.shape[1] > MOST_NEWTON:
            return f"{name} takes at most {MOST_NEWTON} coefficients where rows stay in partitions."
    return None


def predict_parts(model: Any, parts: Mapping[str, Part]) -> dict[str, Prediction]:
    """Return the predictions of a model on parts whose X is a Dask array; see `predict_part`.

    One pass over the source for all parts; only scores and decisions come to this process.
    """
    return _map_parts(_predict, model, parts)


def fit_behind_collection(
    processor: PostProcessor, model: Estimator, stored: Mapping[str, Prediction], split: Split
) -> dict[str, Prediction]:
    """Fit a post-processor on stored scores, as `fit_behind` does, and decide on every part.

    Only the counterfactual versions are scored again, partition by partition.
    """
    bare = {name: replace(part, counterfactuals={}) for name, part in split.parts()}
    decided = fit_behind(processor, lambda: model, stored, split.replace(**bare))
    variants = _map_parts(_predict_variants, PostProcessed(model, processor), dict(split.parts()))
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


def _fit_partitions(
    model: Any,
    split: Split,
    metric: FairMetric | None,
    client: Client | None,
    shared: dict[Any, Learnt],
) -> None:
    """Fit a model of one of the methods of ``FITS``."""
    model.check()
    part = split.train
    y = model.learn_target(part.y)
    weight = training_weight(part.weight, part.n_samples)
    state = FITS[type(model)](model, Given(split, y, weight, metric, client, shared))
    model.unpack_state(replace(state, facts={**state.facts, SHAPE: int(part.X.shape[1])}))


def _map_parts(
    function: Callable[..., Prediction], model: Any, parts: Mapping[str, Part]
) -> dict[str, Prediction]:
    """Return the function's predictions of the model on every part, computed together."""
    import dask

    planned = {
        name: plan_partitions(
            function, hold(part.X), (part.ids, part.groups), (model, _empty(part))
        )
        for name, part in parts.items()
    }
    (computed,) = dask.compute(planned)
    return {name: _join(pieces) for name, pieces in computed.items()}


def _empty(part: Part) -> Part:
    """Return a part without rows, which travels with a function."""
    fields = ("ids", "y", "protected", "weight", "true_groups")
    none: dict[str, Any] = dict.fromkeys(fields)
    return _fill(replace(part, **none), None, None, None)


def _fill(part: Part, X: Any, ids: Any, groups: Any) -> Part:
    """Return a part with the rows of one partition."""
    sets = {
        key: replace(cast("Edits", each), X=X, groups=groups)
        for key, each in part.counterfactuals.items()
    }
    return replace(part, X=X, ids=ids, groups=groups, counterfactuals=sets)


def _predict(
    X: np.ndarray, ids: np.ndarray, groups: np.ndarray, model: Any, part: Part
) -> Prediction:
    # Workers with several threads share it, and XGBoost's boosters are set at every prediction.
    found = predict_part(deepcopy(model), _fill(part, X, ids, groups))
    # A view of a dictionary cannot travel.
    return replace(
        found,
        counterfactuals=dict(found.counterfactuals),
        counterfactual_scores=dict(found.counterfactual_scores),
    )


def _predict_variants(
    X: np.ndarray, ids: np.ndarray, groups: np.ndarray, model: Any, part: Part
) -> Prediction:
    decided, scored = predict_variants(deepcopy(model), _fill(part, X, ids, groups))
    nothing = np.empty(0)
    return Prediction(nothing, nothing, dict(decided), counterfactual_scores=dict(scored))


def _join(pieces: Sequence[Prediction]) -> Prediction:
    """Return the predictions of partitions, one after the other, as one."""
    first = pieces[0]
    return Prediction(
        score=np.concatenate([piece.score for piece in pieces]),
        decision=np.concatenate([piece.decision for piece in pieces]),
        counterfactuals={
            key: tuple(
                (name, np.concatenate([piece.counterfactuals[key][at][1] for piece in pieces]))
                for at, (name, _) in enumerate(variants)
            )
            for key, variants in first.counterfactuals.items()
        },
        components=(
            None
            if first.components is None
            else np.concatenate([np.asarray(piece.components) for piece in pieces])
        ),
        probability=first.probability,
        counterfactual_scores={
            key: tuple(
                np.concatenate([piece.counterfactual_scores[key][at] for piece in pieces])
                for at in range(len(scores))
            )
            for key, scores in first.counterfactual_scores.items()
        },
    )
