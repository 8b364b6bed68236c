"""Training models together, each on its split, and what they say about every part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.prepare.split import Part, Split
from fairfrontier.train.base import Estimator
from fairfrontier.train.prediction import Prediction, predict_part
from fairfrontier.train.registry import METHODS, create, name_columns

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, eq=False)
class Fitted:
    """The models of a fit.

    Attributes
    ----------
    models : sequence of Estimator
        One for each member; none where they were skipped.
    predictions : sequence of mapping of str to Prediction
        What each of them says about every part.
    skipped : str or None
        Why there are none.
    """

    models: Sequence[Estimator]
    predictions: Sequence[Mapping[str, Prediction]]
    skipped: str | None = None


def create_model(
    method: str, parameters: Mapping[str, Any], split: Split, seed: int, threads: int, label: str
) -> Any:
    """Create an estimator with a seed and threads of its own, and attributes as columns.

    Parameters
    ----------
    method : str
        Registered short name.
    parameters : mapping
        Where they name a seed or threads, those hold.
    split : Split
        Whose group attributes are meant.
    seed, threads : int
    label : str
        What the user calls the row, for messages.
    """
    cls = METHODS.find(method)
    chosen = dict(parameters)
    known = cls().get_params(deep=False)
    for name, number in {"n_jobs": threads, "random_state": seed}.items():
        if name in known:
            chosen.setdefault(name, number)
    return create(method, **name_columns(cls, chosen, split, label))


def train(
    models: Sequence[Any],
    splits: Sequence[Split],
    give_metric: Callable[[int], FairMetric | None],
    client: Client | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Fitted:
    """Train models of one method together, unless a split does not suit them.

    Parameters
    ----------
    models : sequence of Estimator
        Unfitted; they are fitted here.
    splits : sequence of Split
        One for each model.
    give_metric : callable
        Position -> the metric that the model there is given.
    client : distributed.Client, optional
        For estimators that train distributed.
    progress : callable, optional
        Called with (steps done, steps) by estimators that report progress.
    """
    reasons = [model.supports(split) for model, split in zip(models, splits, strict=True)]
    reason = next((each for each in reasons if each is not None), None)
    if reason is not None:
        return Fitted((), (), reason)
    data = [
        select_keywords(type(model), split, give_metric(position), client)
        for position, (model, split) in enumerate(zip(models, splits, strict=True))
    ]
    for alike in _group_by_width(data):
        type(models[0]).fit_batch(
            [models[i] for i in alike], [data[i] for i in alike], progress=progress
        )
    reason = next((each for m in models if (each := getattr(m, "infeasible_", None))), None)
    if reason is not None:
        return Fitted((), (), reason)
    predictions = [
        {name: predict_part(model, part) for name, part in split.parts()}
        for model, split in zip(models, splits, strict=True)
    ]
    return Fitted(models, predictions)


def select_keywords(
    cls: type[Estimator], split: Split, metric: FairMetric | None, client: Client | None
) -> dict[str, Any]:
    """Return X, y and those keywords of ``fit`` that a method takes and the split has."""
    train: Part = split.train
    known = {
        "client": client,
        "metric": metric,
        "sample_weight": train.weight,
        "groups": train.groups,
        "true_groups": train.true_groups,
        "validation": split.validation,
        "counterfactuals": train.counterfactuals,
    }
    chosen = {
        name: value for name, value in known.items() if name in cls.fit_takes and value is not None
    }
    return {"X": train.X, "y": train.y, **chosen}


def _group_by_width(data: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Group tables by their number of features: a rare level may be absent from a split."""
    found: dict[int, list[int]] = {}
    for position, each in enumerate(data):
        found.setdefault(each["X"].shape[1], []).append(position)
    return list(found.values())
