"""The splits and metrics of a fit group."""

from __future__ import annotations

from pathlib import Path

from fairfrontier.metric.fair_metric import FairMetric
from fairfrontier.metric.kept import MetricRequest, load_metric
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import Store
from fairfrontier.train.fit.group import FitGroup, Member
from fairfrontier.train.registry import METHODS


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
