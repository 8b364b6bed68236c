"""Training of fit groups that the store does not hold yet."""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairfrontier.models.base import TrainingWarning
from fairfrontier.models.fit.group import KIND, FitGroup, give_metric, load_split, read_facts
from fairfrontier.models.fit.key import describe
from fairfrontier.models.fit.post_processing import fit_behind, fit_behind_blocks
from fairfrontier.models.fit.training import Fitted, create_model, read_scores, train, write_scores
from fairfrontier.models.prediction import Prediction
from fairfrontier.models.registry import load_model
from fairfrontier.runtime.store import Store
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.similarity.fair_metric import FairMetric

if TYPE_CHECKING:
    from distributed import Client

# Filters of warnings belong to the process, not to a thread.
_WARNING_LOCK = threading.RLock()


def fit(
    group: FitGroup,
    store: Store,
    home: Path,
    *,
    client: Client | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """Train a fit group unless the store holds it, and return the key of its entry.

    The entry holds, for member i, ``model-i/`` (as the estimator saves it) and ``scores-i.npz``
    (scores and decisions on every part and on every counterfactual variant); and ``fit.json``:
    ``seconds``; ``skipped``, why the method does not support the split, or found no model within
    its constraints (``infeasible_``); ``reports``, what its models report of their training in
    ``report_``, plain numbers and lists. A group with a post-processor trains, or finds, the models
    in a separate entry; its ``model-i/`` is the post-processor. ``client`` is for estimators that
    train distributed, ``progress`` is called with (steps done, steps).
    """
    description = describe(group, store, home)
    entry = store.key(KIND, description)
    if store.read(KIND, entry) is not None:
        return entry
    started = time.monotonic()
    if group.then is None:
        fitted = _train(group, store, home, client, progress)
    else:
        base = store.path(KIND, fit(group.base, store, home, client=client, progress=progress))
        fitted = _post_process(group, base, home)
    with store.writing(KIND, entry, description) as folder:
        for number, parts in enumerate(fitted.predictions):
            fitted.models[number].save(folder / f"model-{number}")
            write_scores(folder / f"scores-{number}.npz", parts)
        facts = {
            "seconds": round(time.monotonic() - started, 3),
            "skipped": fitted.skipped,
            "reports": [getattr(model, "report_", {}) for model in fitted.models],
        }
        (folder / "fit.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return entry


def fit_with_warnings(
    group: FitGroup, store: Store, home: Path, **options: Any
) -> tuple[str, tuple[str, ...]]:
    """Fit as `fit` does, and return the key and the distinct training warnings, in their order.

    Other warnings are passed on. A fit that the store holds has no warnings. One fit runs at a time
    in a process, as its threads require anyway.
    """
    with _WARNING_LOCK:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TrainingWarning)
            entry = fit(group, store, home, **options)
        messages: dict[str, None] = {}
        for warning in caught:
            if issubclass(warning.category, TrainingWarning):
                messages[str(warning.message)] = None
            else:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
    return entry, tuple(messages)


def _train(
    group: FitGroup,
    store: Store,
    home: Path,
    client: Client | None,
    progress: Callable[[int, int], None] | None,
) -> Fitted:
    members = group.members
    metrics: dict[Any, FairMetric | None] = {}

    def give_metric_once(position: int) -> FairMetric | None:
        member = members[position]
        if member.data not in metrics:
            metrics[member.data] = give_metric(group, member, store, home)
        return metrics[member.data]

    with limited_threads(group.threads):
        loaded = {member.data: load_split(group, member, home) for member in members}
        splits = [loaded[member.data] for member in members]
        models = [
            create_model(
                group.estimator, member.parameters, split, member.seed, group.threads, group.method
            )
            for member, split in zip(members, splits, strict=True)
        ]
        return train(models, splits, give_metric_once, client, progress, group.objective)


def _post_process(group: FitGroup, base: Path, home: Path) -> Fitted:
    skipped = read_facts(base)["skipped"]
    if skipped is not None:
        return Fitted((), (), skipped)
    parameters = dict(group.then or {})
    name = parameters.pop("method")
    processors: list[Any] = []
    predictions: list[dict[str, Prediction]] = []
    with limited_threads(group.threads):
        for number, member in enumerate(group.members):
            split = load_split(group, member, home)
            processor = create_model(
                name, parameters, split, member.seed, group.threads, group.method
            )
            reason = processor.supports(split.replace(feature_names=("score",)))
            if reason is not None:
                return Fitted((), (), reason)
            load = partial(load_model, base / f"model-{number}")
            stored = read_scores(base / f"scores-{number}.npz")
            if group.is_collection(home):
                predictions.append(fit_behind_blocks(processor, load(), stored, split))
            else:
                predictions.append(fit_behind(processor, load, stored, split))
            processors.append(processor)
    return Fitted(processors, predictions)
