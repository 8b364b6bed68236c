"""The unit of work: what one method trains together on one split.

A fit in the store.

The splits and metrics of a fit group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fairfrontier.models.objective import Objective
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.loader import SplitRequest
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import Store
from fairfrontier.similarity.fair_metric import FairMetric
from fairfrontier.similarity.kept import MetricRequest, load_metric

KIND = "fit"
# Of an entry's files; another number requires new fits.
LAYOUT = 1


def read_facts(folder: Path) -> dict[str, Any]:
    """Return ``seconds``, ``skipped`` and ``reports`` (one for each model) of a stored fit."""
    facts: dict[str, Any] = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    return facts


@dataclass(frozen=True)
class Member:
    """One model of a fit group.

    Attributes
    ----------
    seed : int
        Of the split; also the estimator's ``random_state`` where it takes one and none is given.
    parameters : mapping
        Resolved parameters of the estimator; group attributes by name or column.
    setting : mapping
        The ``setting`` in points.parquet.
    noise : float or None
        Share of wrong groups; as in the dataset's YAML when None.
    """

    seed: int
    parameters: Mapping[str, Any]
    setting: Mapping[str, Any]
    noise: float | None = None

    @property
    def data(self) -> tuple[int, float | None]:
        """The seed and the noise, which alone determine a member's split within a group."""
        return self.seed, self.noise


@dataclass(frozen=True)
class FitGroup:
    """Models that are trained together: usually one, several for a batched method's sweep.

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
        Whether a validation part is taken out of train.
    threads : int
        Threads of BLAS, OpenMP and XGBoost during the fit.
    members : tuple of Member
        At least one.
    certificate : mapping or None
        ``metric``, ``budgets``, ``rows`` and ``parts`` of certificates; not used in training.
    then : mapping or None
        The post-processor fitted on the scores of these models: ``method`` and its parameters.
    minimum : int
        Rows that its points need of a level for a rate; not used in training.
    objective : str, mapping or None
        What the cuts of the models serve; None keeps those of the methods.
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
    objective: Objective | None = None

    @property
    def base(self) -> FitGroup:
        """The same models without the post-processor."""
        return replace(self, then=None)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The distinct seeds of the members, in their order."""
        return tuple(dict.fromkeys(member.seed for member in self.members))

    def find_split(self, member: Member) -> SplitRequest:
        """Return the split that a member is trained on."""
        return SplitRequest(self.dataset, member.seed, self.rows, self.select_on, member.noise)

    def is_collection(self, home: Path) -> bool:
        """Return whether the rows of its splits stay in the table's files."""
        return self.find_split(self.members[0]).is_collection(home)

    def find_metric(self, member: Member) -> MetricRequest | None:
        """Return the metric for a member's method, if the group names one."""
        if self.metric is None:
            return None
        return MetricRequest.of(self.metric, self.find_split(member), self.threads)

    def find_certified(self, member: Member) -> MetricRequest | None:
        """Return the metric under which a member is certified, if any."""
        if self.certificate is None:
            return None
        metric = self.certificate["metric"]
        return MetricRequest.of(metric, self.find_split(member), self.threads)


def load_split(group: FitGroup, member: Member, home: Path) -> Split:
    """Return the split of a member; the last few are cached, since groups share them."""
    return group.find_split(member).load(home)


def find_metric(group: FitGroup, member: Member) -> MetricRequest | None:
    """Return the metric of a member's split for its method; None where it takes none."""
    takes = METHODS.find(group.estimator).fit_takes
    return group.find_metric(member) if "metric" in takes else None


def give_metric(group: FitGroup, member: Member, store: Store, home: Path) -> FairMetric | None:
    """Load the metric of `find_metric`; ConfigError when the method needs one and none is named."""
    request = find_metric(group, member)
    if request is not None:
        return load_metric(request, store, home)
    if "metric" in METHODS.find(group.estimator).fit_needs:
        raise ConfigError(
            f"The method {group.estimator!r} needs a fair metric, and none is given.",
            "Add `metric: {name: subspace}` to the study.",
        )
    return None
