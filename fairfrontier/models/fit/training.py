"""Training of models together, each on its split, and their predictions on every part.

Predictions on disk: those of a fitted model on every part, in one npz.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from fairfrontier.models.base import Classifier, Estimator
from fairfrontier.models.objective import Objective
from fairfrontier.models.prediction import Prediction, predict_part
from fairfrontier.models.registry import METHODS, create, name_columns
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.cluster.executor import Block, LazyRows, hold, is_collection, open_rows
from fairfrontier.similarity.fair_metric import FairMetric

if TYPE_CHECKING:
    from distributed import Client

    from fairfrontier.prepare.splitting.plan import Edits

# Parts of the training rows, each scored by a model of the others, where no part is for validation.
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Fitted:
    """The models of a fit and their predictions on every part; none if ``skipped`` says why."""

    models: Sequence[Estimator]
    predictions: Sequence[Mapping[str, Prediction]]
    skipped: str | None = None


def create_model(
    method: str, parameters: Mapping[str, Any], split: Split, seed: int, threads: int, label: str
) -> Any:
    """Create an estimator with a seed and threads where it takes them, and attributes as columns.

    ``parameters`` take precedence. ``label`` is the user's name of the row, for messages.
    """
    cls = METHODS.find(method)
    chosen = dict(parameters)
    known = cls().get_params(deep=False)
    for name, number in {"n_jobs": threads, "random_state": seed}.items():
        if name in known:
            chosen.setdefault(name, number)
    named = name_columns(cls, chosen, list(split.train.attributes), split.dataset, label)
    return create(method, **named)


def train(
    models: Sequence[Any],
    splits: Sequence[Split],
    give_metric: Callable[[int], FairMetric | None],
    client: Client | None = None,
    progress: Callable[[int, int], None] | None = None,
    objective: Objective | None = None,
) -> Fitted:
    """Train models of one method together, each on its split, unless a split does not suit them.

    ``give_metric`` returns the metric of the model at a position. ``client`` is for estimators that
    train distributed, ``progress`` is called with (steps done, steps). Cuts are chosen for the
    ``objective``, where there is one.
    """
    reasons = (
        model.supports(split) or find_reason(model, split, client, objective)
        for model, split in zip(models, splits, strict=True)
    )
    reason = next((reason for reason in reasons if reason is not None), None)
    if reason is not None:
        return Fitted((), (), reason)
    learnt = [_hold_out(model, split) for model, split in zip(models, splits, strict=True)]
    data = [
        select_keywords(type(model), split, give_metric(position), client)
        for position, (model, split) in enumerate(zip(models, learnt, strict=True))
    ]
    # A rare level may be absent from a split: tables of different widths train apart.
    widths = [keywords["X"].shape[1] for keywords in data]
    for width in dict.fromkeys(widths):
        alike = [position for position in range(len(models)) if widths[position] == width]
        type(models[0]).fit_batch(
            [models[i] for i in alike], [data[i] for i in alike], progress=progress
        )
    reason = next((why for model in models if (why := getattr(model, "infeasible_", None))), None)
    if reason is not None:
        return Fitted((), (), reason)
    if objective is not None and chooses_cut(type(models[0])):
        for model, split, keywords in zip(models, learnt, data, strict=True):
            _tune_cut(model, split, keywords, objective)
    for model, split in zip(models, splits, strict=True):
        model.feature_names_in_ = np.asarray(split.feature_names, dtype=object)
    predictions = [
        predict_parts(model, dict(split.parts()))
        for model, split in zip(models, splits, strict=True)
    ]
    return Fitted(models, predictions)


def find_reason(
    model: Any, split: Split, client: Client | None, objective: Objective | None = None
) -> str | None:
    """Return why a method cannot be trained on rows in partitions; None if it can, or in memory."""
    if not is_collection(split.train.X):
        return None
    reason = model.needs_all_rows(*split.train.X.shape, len(split.train.classes))
    if reason is None and split.validation is None:
        if objective is not None and chooses_cut(type(model)) and split.task == "binary":
            return f"{model.name} chooses its cut on validation rows where rows stay in partitions."
        if getattr(model, "early_stopping", None) is not None:
            return (
                f"{model.name} stops early on validation rows where rows stay in partitions: "
                "declare some, or set early_stopping: null."
            )
    if reason is None and model.needs_workers and client is None:
        return f"{model.name} trains on partitions that workers hold: choose --cluster local."
    return reason  # type: ignore[no-any-return]


def predict_parts(model: Any, parts: Mapping[str, Part]) -> dict[str, Prediction]:
    """Return the predictions of a model on parts; see `predict_part`.

    Of parts whose X is a Dask array by one pass over the source for all of them; only scores and
    decisions come to this process.
    """
    if not any(is_collection(part.X) for part in parts.values()):
        return {name: predict_part(model, part) for name, part in parts.items()}
    return map_parts(_predict, model, parts)


def map_parts(
    function: Callable[..., Prediction], model: Any, parts: Mapping[str, Part]
) -> dict[str, Prediction]:
    """Return the function's predictions of the model on every block of parts, computed together."""
    import dask

    planned = {}
    for name, part in parts.items():
        rows = cast("LazyRows", open_rows(hold(part.X), ids=part.ids, groups=part.groups))
        planned[name] = rows.plan(function, model, _empty(part))
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


def fill_part(part: Part, block: Block) -> Part:
    """Return a part without rows with those of a block."""
    return _fill(part, block.X, block["ids"], block["groups"])


def _predict(block: Block, model: Any, part: Part) -> Prediction:
    # Workers with several threads share it, and XGBoost's boosters are set at every prediction.
    found = predict_part(deepcopy(model), fill_part(part, block))
    # A view of a dictionary cannot travel.
    return replace(
        found,
        counterfactuals=dict(found.counterfactuals),
        counterfactual_scores=dict(found.counterfactual_scores),
    )


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


def _hold_out(model: Estimator, split: Split) -> Split:
    """Return the split, with a fifth of the training rows for validation to stop early on."""
    watches = getattr(model, "early_stopping", None) is not None
    if not watches or split.validation is not None or is_collection(split.train.X):
        return split
    part = split.train
    labels = part.y if part.classes else np.zeros_like(part.y)
    if np.bincount(labels.astype(np.int64)).min() < FOLDS:
        return split
    shuffled = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    fitted, held_out = next(iter(shuffled.split(part.X, labels)))
    return split.replace(train=part.take(fitted), validation=part.take(held_out))


def chooses_cut(cls: type[Estimator]) -> bool:
    """Return whether a method leaves it to an objective where its scores are cut."""
    return issubclass(cls, Classifier) and not (cls.randomized or cls.constrains_decisions)


def _tune_cut(
    model: Classifier, split: Split, keywords: Mapping[str, Any], objective: Objective
) -> None:
    """Choose the cut of a model on the validation part, or by cross-fitting where there is none."""
    if split.task != "binary":
        return
    if split.validation is not None:
        part = split.validation
        bare = replace(part, counterfactuals={})
        score = predict_parts(model, {part.name: bare})[part.name].score
    else:
        part = split.train
        folds = min(FOLDS, int(np.bincount(part.y.astype(np.int64)).min()))
        if folds < 2:
            return
        score = np.empty(part.n_samples)
        shuffled = StratifiedKFold(folds, shuffle=True, random_state=0)
        for fitted, held_out in shuffled.split(part.X, part.y):
            rows = split.replace(train=part.take(fitted))
            given = {"metric": keywords.get("metric"), "client": keywords.get("client")}
            copy = clone(model).fit(**select_keywords(type(model), rows, **given))
            rest = replace(part.take(held_out), counterfactuals={})
            score[held_out] = predict_part(copy, rest).score
    model.tune_cut(score, part.y, part.weight, objective)


def select_keywords(
    cls: type[Estimator], split: Split, metric: FairMetric | None, client: Client | None
) -> dict[str, Any]:
    """Return X, y and those keywords of ``fit`` that a method takes and the split has."""
    train = split.train
    known = {
        "client": client,
        "metric": metric,
        "sample_weight": train.weight,
        "sensitive_features": train.groups,
        "true_groups": train.true_groups,
        "validation": split.validation,
        "counterfactuals": train.counterfactuals,
    }
    chosen = {
        name: value for name, value in known.items() if name in cls.fit_takes and value is not None
    }
    return {"X": hold(train.X), "y": train.y, **chosen}


VARIANT, VARIANT_SCORE = "counterfactual", "counterfactual_score"


def write_scores(path: Path, parts: Mapping[str, Prediction]) -> None:
    """Write predictions as one compressed npz: part/field, part/field/set/variant."""
    arrays: dict[str, np.ndarray] = {}
    for name, part in parts.items():
        arrays[f"{name}/score"] = part.score
        arrays[f"{name}/decision"] = part.decision
        if part.components is not None and part.probability is not None:
            arrays[f"{name}/components"] = _narrow(part.components)
            arrays[f"{name}/probability"] = part.probability
        for set_name, variants in part.counterfactuals.items():
            for variant, decision in variants:
                arrays[f"{name}/{VARIANT}/{set_name}/{variant}"] = decision
        for set_name, scores in part.counterfactual_scores.items():
            names = [variant for variant, _ in part.counterfactuals[set_name]]
            for variant, score in zip(names, scores, strict=True):
                arrays[f"{name}/{VARIANT_SCORE}/{set_name}/{variant}"] = _narrow(score)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Return the array in 32 bits where that is exact, as for the scores of trees."""
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    return narrow if np.array_equal(narrow, array) else array


def read_scores(path: Path) -> dict[str, Prediction]:
    """Return the predictions that ``write_scores`` wrote, by part."""
    fields: dict[str, dict[str, np.ndarray]] = {}
    sets: dict[tuple[str, str], dict[str, list[tuple[str, np.ndarray]]]] = {}
    with np.load(path, allow_pickle=False) as stored:
        for name in stored.files:
            part, field, *variant = name.split("/", maxsplit=3)
            array = stored[name].astype(np.float64, copy=False)
            if variant:
                variants = sets.setdefault((part, field), {}).setdefault(variant[0], [])
                variants.append((variant[1], array))
            else:
                fields.setdefault(part, {})[field] = array
    return {
        part: Prediction(
            counterfactuals=MappingProxyType(
                {key: tuple(pairs) for key, pairs in sets.get((part, VARIANT), {}).items()}
            ),
            counterfactual_scores=MappingProxyType(
                {
                    key: tuple(score for _, score in pairs)
                    for key, pairs in sets.get((part, VARIANT_SCORE), {}).items()
                }
            ),
            **arrays,
        )
        for part, arrays in fields.items()
    }
