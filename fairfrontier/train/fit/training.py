"""Training the models of a fit group, and what they say about every part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairfrontier.runtime.thread import limited_threads
from fairfrontier.train.base import Estimator
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.input import create_model, give_metric, load_split, select_keywords
from fairfrontier.train.prediction import Prediction, predict_part

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, eq=False)
class Fitted:
    """The models of a fit group.

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


def train(
    group: FitGroup,
    home: Path,
    client: Client | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Fitted:
    """Train the models of a group without its post-processor.

    Parameters
    ----------
    group : FitGroup
        The fit.
    home : Path
        The project root.
    client : distributed.Client, optional
        For estimators that train distributed.
    progress : callable, optional
        Called with (steps done, steps) by estimators that report progress.
    """
    with limited_threads(group.threads):
        splits = {each.data: load_split(group, each, home) for each in group.members}
        models = [
            create_model(group, group.estimator, each.parameters, splits[each.data], each.seed)
            for each in group.members
        ]
        reasons = [
            model.supports(splits[each.data])
            for model, each in zip(models, group.members, strict=True)
        ]
        reason = next((each for each in reasons if each is not None), None)
        if reason is not None:
            return Fitted((), (), reason)
        metrics = {data: give_metric(group, split) for data, split in splits.items()}
        data = [
            select_keywords(type(model), splits[each.data], metrics[each.data], client)
            for model, each in zip(models, group.members, strict=True)
        ]
        for alike in _group_by_width(data):
            type(models[0]).fit_batch(
                [models[i] for i in alike], [data[i] for i in alike], progress=progress
            )
        reason = next((each for m in models if (each := getattr(m, "infeasible_", None))), None)
        if reason is not None:
            return Fitted((), (), reason)
        predictions = [
            {name: predict_part(model, part) for name, part in splits[each.data].parts()}
            for model, each in zip(models, group.members, strict=True)
        ]
    return Fitted(models, predictions)


def _group_by_width(data: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Group tables by their number of features: a rare level may be absent from a split."""
    found: dict[int, list[int]] = {}
    for position, each in enumerate(data):
        found.setdefault(each["X"].shape[1], []).append(position)
    return list(found.values())
