"""What a fit group is given: its splits, its metrics, its estimators and their keywords."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.metric.registry import learn
from fairfrontier.prepare.fingerprint import fingerprint
from fairfrontier.prepare.loader import load
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.recall import recall
from fairfrontier.train.attribute import name_columns
from fairfrontier.train.base import Estimator
from fairfrontier.train.fit.group import FitGroup, Member
from fairfrontier.train.registry import METHODS, create

if TYPE_CHECKING:
    from distributed import Client


def load_split(group: FitGroup, member: Member, home: Path) -> Split:
    """Return the split of a member; the last few are kept, since groups share them."""
    digest = find_fingerprint(group, member, home)
    return _load(group.dataset, *member.data, group.rows, group.select_on, home, digest)


def find_fingerprint(group: FitGroup, member: Member, home: Path) -> str:
    """Return the fingerprint of a member's split; see `fairfrontier.prepare.fingerprint`."""
    return _fingerprint(group.dataset, *member.data, group.rows, group.select_on, home)


def learn_metric(metric: Mapping[str, Any], split: Split) -> FairMetric:
    """Learn what a study's ``metric:`` describes: its name, and the learner's parameters."""
    parameters = dict(metric)
    return learn(parameters.pop("name"), split, **parameters)


def find_metric(group: FitGroup) -> dict[str, Any] | None:
    """Return what describes the metric of a group; None where its method takes none."""
    if "metric" not in METHODS.find(group.estimator).fit_takes:
        return None
    return dict(group.metric) if group.metric is not None else None


def create_model(
    group: FitGroup, method: str, parameters: Mapping[str, Any], split: Split, seed: int
) -> Any:
    """Create an estimator with the group's threads, and attributes as columns."""
    cls = METHODS.find(method)
    chosen = dict(parameters)
    known = cls().get_params(deep=False)
    for name, number in {"n_jobs": group.threads, "random_state": seed}.items():
        if name in known:
            chosen.setdefault(name, number)
    return create(method, **name_columns(cls, chosen, split, group.method))


def give_metric(group: FitGroup, split: Split) -> FairMetric | None:
    """Return the metric of a split for a group's method; None where it takes none.

    Raises
    ------
    ConfigError
        When the method needs a metric and the group names none.
    """
    metric = find_metric(group)
    if metric is not None:
        return learn_metric(metric, split)
    if "metric" in METHODS.find(group.estimator).fit_needs:
        raise ConfigError(
            f"The method {group.estimator!r} needs a fair metric, and none is given.",
            "Add `metric: {name: subspace}` to the study.",
        )
    return None


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
