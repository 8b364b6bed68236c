"""What a fit group is given: its splits and its metrics."""

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
    """Return the split of a member; the last few are kept, since groups share them."""
    return group.find_split(member).load(home)


def find_metric(group: FitGroup, member: Member) -> MetricRequest | None:
    """Return which metric a member's method is given; None where it takes none."""
    takes = METHODS.find(group.estimator).fit_takes
    return group.find_metric(member) if "metric" in takes else None


def give_metric(group: FitGroup, member: Member, store: Store, home: Path) -> FairMetric | None:
    """Return the metric of a member's split for its method; None where it takes none.

    Raises
    ------
    ConfigError
        When the method needs a metric and the group names none.
    """
    request = find_metric(group, member)
    if request is not None:
        return load_metric(request, store, home)
    if "metric" in METHODS.find(group.estimator).fit_needs:
        raise ConfigError(
            f"The method {group.estimator!r} needs a fair metric, and none is given.",
            "Add `metric: {name: subspace}` to the study.",
        )
    return None
