"""The unit of work: what one method trains together on one split, and what it leaves behind."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import fairfrontier.metric.registry
import fairfrontier.train.registry
from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.prepare.fingerprint import fingerprint
from fairfrontier.prepare.loader import load
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.arrays import device_present
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.recall import recall
from fairfrontier.runtime.source import source_digest
from fairfrontier.runtime.store import Store
from fairfrontier.runtime.thread import limited_threads
from fairfrontier.train.base import Estimator
from fairfrontier.train.fit.score_file import read_scores, write_scores
from fairfrontier.train.postprocess.base import score_part
from fairfrontier.train.postprocess.model import (
    PostProcessed,
    fit_processor,
    name_columns,
    refuse_unknown_groups,
    require_calibration,
    score_split,
)
from fairfrontier.train.prediction import Prediction, predict_part, predict_variants
from fairfrontier.train.registry import load_model

if TYPE_CHECKING:
    from distributed import Client

KIND = "fit"
# What the numbers of a fit depend on; a new version of one of them asks for a new fit.
LIBRARIES = (
    "array-api-compat",
    "fairlearn",
    "numpy",
    "pandas",
    "scikit-learn",
    "scipy",
    "skops",
    "xgboost-cpu",
)


@dataclass(frozen=True)
class Member:
    """One model of a fit group.

    Attributes
    ----------
    seed : int
        Which split; also the estimator's ``random_state`` where it takes one and has none.
    parameters : mapping
        Resolved parameters of the estimator; group attributes by name or column.
    setting : mapping
        What points.parquet shows as ``setting``.
    noise : float or None
        Share of wrong groups; what the dataset's YAML says when None.
    """

    seed: int
    parameters: Mapping[str, Any]
    setting: Mapping[str, Any]
    noise: float | None = None

    @property
    def data(self) -> tuple[int, float | None]:
        """What its split depends on, of all that a group's members can differ in."""
        return self.seed, self.noise


@dataclass(frozen=True)
class FitGroup:
    """What is trained together: one model as a rule, several of a batched method's sweep.

    Attributes
    ----------
    dataset : str
        Name of a dataset or path of its YAML.
    method : str
        Label of the row in the results.
    estimator : str
        Registered short name of the method.
    metric : mapping or None
        ``{"name": "subspace", ...}`` for methods that take a fair metric.
    rows : int or None
        Training rows kept (a seeded sample); all when None.
    select_on : {"validation", "train"}
        Whether a validation part is carved out of train.
    threads : int
        Threads of BLAS, OpenMP and XGBoost during the fit.
    members : tuple of Member
        At least one.
    certificate : mapping or None
        What its points certify: ``metric``, ``budgets``, ``rows`` and ``parts``; training does not
        see it.
    then : mapping or None
        The post-processor fitted on the scores of these models: ``method`` and its parameters.
    minimum : int
        Rows that its points need of a level for a rate; training does not see it.
    """

    dataset: str
    method: str
    estimator: str
    metric: Mapping[str, Any] | None
    rows: int | None
    select_on: Literal["validation", "train"]
    threads: int
    members: tuple[Member, ...]
    certificate: Mapping[str, Any] | None = None
    then: Mapping[str, Any] | None = None
    minimum: int = 10

    @property
    def base(self) -> FitGroup:
        """The same models without the post-processor."""
        return replace(self, then=None)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The splits of the members, each once, in their order."""
        return tuple(dict.fromkeys(each.seed for each in self.members))


def describe(group: FitGroup, home: Path) -> dict[str, Any]:
    """Return all that a fit's outcome depends on; what it is called or audited by is left out.

    Parameters
    ----------
    group : FitGroup
        The fit.
    home : Path
        The project root.

    Returns
    -------
    dict
        Plain values: configuration, digests of the data and of the source that runs, versions.
    """
    cls = fairfrontier.train.registry.METHODS.find(group.estimator)
    modules = [__name__, cls.__module__]
    metric = _metric_of(group, cls)
    if metric is not None:
        modules.append(fairfrontier.metric.registry.METRICS.find(metric["name"]).__module__)
    if group.then is not None:
        modules.append(fairfrontier.train.registry.METHODS.find(group.then["method"]).__module__)
    return {
        **({"then": group.then} if group.then is not None else {}),
        "estimator": group.estimator,
        "members": [{"seed": each.seed, "parameters": each.parameters} for each in group.members],
        "metric": metric,
        "data": [_digest_split(group, each, home) for each in group.members],
        "threads": group.threads,
        "device": "cupy" if "cupy" in cls.backends and device_present() else "numpy",
        "source": source_digest(modules),
        "libraries": _versions(),
    }


def key(group: FitGroup, store: Store, home: Path) -> str:
    """Return the key of a fit in the store; see ``describe``."""
    return store.key(KIND, describe(group, home))


def fit(
    group: FitGroup,
    store: Store,
    home: Path,
    *,
    client: Client | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """Train a fit group unless the store holds it, and return its key.

    The entry holds, for member i, ``model-i/`` (as the estimator saves it) and ``scores-i.npz``
    (scores and decisions on every part and on every counterfactual variant); and ``fit.json``
    (seconds; why the method was skipped where it does not support the split, or found no model
    within its constraints and says so in ``infeasible_``; what its models report of their training
    in ``report_``, plain numbers and lists of them). A group with a post-processor trains, or
    finds, the models in an entry of their own; its ``model-i/`` is the post-processor.

    Parameters
    ----------
    group : FitGroup
        The fit.
    store : Store
        Where it is kept.
    home : Path
        The project root.
    client : distributed.Client, optional
        For estimators that train distributed.
    progress : callable, optional
        Called with (steps done, steps) by estimators that report progress.

    Returns
    -------
    str
        Key of the entry of kind ``"fit"``.

    Raises
    ------
    FairfrontierError
        For whatever the user can mend in configuration or data.
    """
    description = describe(group, home)
    found = store.key(KIND, description)
    if store.read(KIND, found) is not None:
        return found
    started = time.monotonic()
    work = _train if group.then is None else _post_process
    models, predictions, reason = work(group, store, home, client, progress)
    with store.writing(KIND, found, description) as folder:
        for number, parts in enumerate(predictions):
            models[number].save(folder / f"model-{number}")
            write_scores(folder / f"scores-{number}.npz", parts)
        facts = {
            "seconds": round(time.monotonic() - started, 3),
            "skipped": reason,
            "reports": [getattr(model, "report_", {}) for model in models[: len(predictions)]],
        }
        (folder / "fit.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return found


# The models of a group, what they say about every part, and why they were skipped.
_Fitted = tuple[Sequence[Estimator], list[dict[str, Prediction]], str | None]


def _train(
    group: FitGroup,
    store: Store,  # noqa: ARG001 - as _post_process
    home: Path,
    client: Client | None,
    progress: Callable[[int, int], None] | None,
) -> _Fitted:
    with limited_threads(group.threads):
        splits = {each.data: load_split(group, each, home) for each in group.members}
        models = [
            _create(group, group.estimator, each.parameters, splits[each.data], each.seed)
            for each in group.members
        ]
        reasons = [
            model.supports(splits[each.data])
            for model, each in zip(models, group.members, strict=True)
        ]
        reason = next((each for each in reasons if each is not None), None)
        if reason is not None:
            return models, [], reason
        metrics = {data: _metric_for(group, split) for data, split in splits.items()}
        data = [
            _keywords(group.estimator, splits[each.data], metrics[each.data], client)
            for each in group.members
        ]
        for alike in _group_by_width(data):
            type(models[0]).fit_batch(
                [models[i] for i in alike], [data[i] for i in alike], progress=progress
            )
        reason = next((each for m in models if (each := getattr(m, "infeasible_", None))), None)
        if reason is not None:
            return models, [], reason
        predictions = [
            {name: predict_part(model, part) for name, part in splits[each.data].parts()}
            for model, each in zip(models, group.members, strict=True)
        ]
    return models, predictions, None


def _group_by_width(data: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Group tables by their number of features: a rare level may be absent from a split."""
    found: dict[int, list[int]] = {}
    for position, each in enumerate(data):
        found.setdefault(each["X"].shape[1], []).append(position)
    return list(found.values())


def _post_process(
    group: FitGroup,
    store: Store,
    home: Path,
    client: Client | None,
    progress: Callable[[int, int], None] | None,
) -> _Fitted:
    folder = store.path(KIND, fit(group.base, store, home, client=client, progress=progress))
    skipped = read_facts(folder)["skipped"]
    if skipped is not None:
        return [], [], skipped
    parameters = dict(group.then or {})
    name = parameters.pop("method")
    processors: list[Estimator] = []
    predictions: list[dict[str, Prediction]] = []
    with limited_threads(group.threads):
        for number, member in enumerate(group.members):
            split = load_split(group, member, home)
            processor = _create(group, name, parameters, split, member.seed)
            reason = processor.supports(split.replace(feature_names=("score",)))
            if reason is not None:
                return [], [], reason
            require_calibration(split)
            stored = read_scores(folder / f"scores-{number}.npz")
            checked = stored["validation"].score if "validation" in stored else None
            scored = score_split(split, stored["calibration"].score, checked)
            refuse_unknown_groups(split, processor)
            fit_processor(processor, scored)
            chain = PostProcessed(load_model(folder / f"model-{number}"), processor)
            processors.append(processor)
            predictions.append(
                {part.name: _decide(chain, part, stored[part.name]) for _, part in split.parts()}
            )
    return processors, predictions, None


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


def load_split(group: FitGroup, member: Member, home: Path) -> Split:
    """Return the split of a member; the last few are kept, since groups share them."""
    digest = _digest_split(group, member, home)
    return _load(group.dataset, *member.data, group.rows, group.select_on, home, digest)


def learn_metric(metric: Mapping[str, Any], split: Split) -> FairMetric:
    """Learn what a study's ``metric:`` describes: its name, and the learner's parameters."""
    parameters = dict(metric)
    return fairfrontier.metric.registry.learn(parameters.pop("name"), split, **parameters)


def read_facts(folder: Path) -> dict[str, Any]:
    """Return ``seconds``, ``skipped`` and ``reports`` (one for each model) of a stored fit."""
    facts: dict[str, Any] = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    return facts


def _metric_of(group: FitGroup, cls: type[Estimator]) -> dict[str, Any] | None:
    if "metric" not in cls.fit_takes:
        return None
    return dict(group.metric) if group.metric is not None else None


def _create(
    group: FitGroup, method: str, parameters: Mapping[str, Any], split: Split, seed: int
) -> Any:
    """Create an estimator with the group's threads, and attributes as columns."""
    cls = fairfrontier.train.registry.METHODS.find(method)
    chosen = dict(parameters)
    known = cls().get_params(deep=False)
    for name, number in {"n_jobs": group.threads, "random_state": seed}.items():
        if name in known:
            chosen.setdefault(name, number)
    chosen = name_columns(cls, chosen, split, group.method)
    return fairfrontier.train.registry.create(method, **chosen)


def _metric_for(group: FitGroup, split: Split) -> FairMetric | None:
    cls = fairfrontier.train.registry.METHODS.find(group.estimator)
    metric = _metric_of(group, cls)
    if metric is None:
        if "metric" in cls.fit_needs:
            raise ConfigError(
                f"The method {group.estimator!r} needs a fair metric, and none is given.",
                "Add `metric: {name: subspace}` to the study.",
            )
        return None
    return learn_metric(metric, split)


def _keywords(
    method: str, split: Split, metric: FairMetric | None, client: Client | None
) -> dict[str, Any]:
    """Return X, y and those keywords of ``fit`` that the method takes and the split has."""
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
    takes = fairfrontier.train.registry.METHODS.find(method).fit_takes
    chosen = {name: value for name, value in known.items() if name in takes and value is not None}
    return {"X": train.X, "y": train.y, **chosen}


def _digest_split(group: FitGroup, member: Member, home: Path) -> str:
    return _fingerprint(group.dataset, *member.data, group.rows, group.select_on, home)


@lru_cache(maxsize=4)
def _load(
    dataset: str,
    seed: int,
    noise: float | None,
    rows: int | None,
    select_on: Literal["validation", "train"],
    home: Path,
    digest: str,  # noqa: ARG001 - an edited table or YAML is another split
) -> Split:
    return load(dataset, seed, rows=rows, select_on=select_on, home=home, noise=noise)


@recall
def _fingerprint(
    dataset: str,
    seed: int,
    noise: float | None,
    rows: int | None,
    select_on: Literal["validation", "train"],
    home: Path,
) -> str:
    return fingerprint(dataset, seed, rows=rows, select_on=select_on, home=home, noise=noise)


@cache
def _versions() -> dict[str, str]:
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            # The GPU build of XGBoost goes by another name.
            found[name] = importlib.metadata.version("xgboost")
    return found
