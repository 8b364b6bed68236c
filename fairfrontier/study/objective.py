"""Which objective a study has, and the parameters by which methods serve it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from fairfrontier.models.objective import OWN, RANKED, Objective, list_serving
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.split import Task
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.config import StudyConfig, split_name

if TYPE_CHECKING:
    from fairfrontier.models.base import Estimator

COSTS = "{costs: {false_positive: 1, false_negative: 5}}"
# Measures that need these have no value of all rows, or none in every study.
SPECIAL = frozenset(
    {"membership", "counterfactuals", "counterfactual_score", "certificate", "box", "gap"}
    | {"true_group", "costs"}
)


def find_objective(study: StudyConfig, dataset: DatasetConfig, where: str) -> Objective | None:
    """Return the objective that methods can serve: of classes, unless each keeps its own.

    A ConfigError refuses what is no objective of the dataset's task; ``where`` is the study's file.
    """
    from fairfrontier.metrics.measure.registry import MEASURES

    objective, task = study.objective, dataset.label.task
    if objective == OWN:
        return None
    if not isinstance(objective, str):
        if task == "binary":
            return objective
        raise ConfigError(
            f"{where}: objective gives costs of errors of two classes, and {study.dataset} poses a "
            f"{task} task.",
            f"Choose among: {', '.join(list_objectives(task))}, or {OWN}.",
        )
    measure = MEASURES.all().get(split_name(objective)[0])
    suits = measure is not None and task in measure.task and measure.direction != "none"
    if suits and (task == "regression" or objective in RANKED):
        return None if task == "regression" else objective
    known = list_objectives(task)
    listed = f"Choose among: {', '.join(known)}, or {OWN}"
    mend = f"{listed}." if measure else nearest(objective, [*known, OWN])
    raise ConfigError(
        f"{where}: objective (by default frontier.accuracy) is {objective!r}, which is no "
        f"objective of a {task} task.",
        f"{listed} with frontier.accuracy: {objective}." if suits else mend,
    )


def list_objectives(task: Task) -> list[str]:
    """Return what the objective of a study may be, besides ``own``."""
    whole = list_whole(task)
    if task == "regression":
        return whole
    ranked = [name for name in RANKED if name in whole]
    return [*ranked, COSTS] if task == "binary" else ranked


def list_whole(task: Task) -> list[str]:
    """Return the measures of a task that have a value of all rows, which can be good or bad."""
    from fairfrontier.metrics.measure.registry import MEASURES
    from fairfrontier.metrics.verb import list_groups

    return sorted(
        name
        for name, measure in MEASURES.all().items()
        if task in measure.task
        and measure.direction != "none"
        and not measure.needs & SPECIAL
        and "" in list_groups(measure, task, ["group"])
    )


def serve(
    method: type[Estimator], objective: Objective | None, own: Collection[str], key: str
) -> dict[str, Any]:
    """Return those parameters of a method by which it serves an objective.

    ``own`` are the parameters that a row gives itself, in place of these. A ConfigError that opens
    with ``key`` refuses costs for a method that cannot serve them.
    """
    # Regressions have no objective of classes.
    if objective is None or not hasattr(method, "objectives"):
        return {}
    serving = list_serving(objective, method)
    costs = isinstance(objective, Mapping) and "objective" in serving and "objective" not in own
    if costs and not _takes(method, objective):
        from fairfrontier.models.thresholds.base import PostProcessor

        rule = issubclass(method, PostProcessor)
        other = "Choose group_thresholds, which serves costs, or give" if rule else "Give"
        raise ConfigError(
            f"{key}: {method.name} serves {' and '.join(method.objectives)} only, and the study's "
            "objective gives costs.",
            f"{other} {method.name} an objective of its own: {method.objectives[-1]}.",
        )
    return serving


def _takes(method: Any, objective: Objective) -> bool:
    """Return whether a method accepts an objective beside its other defaults."""
    try:
        method(objective=objective).check()
    except ConfigError:
        return False
    except TypeError:
        # It has parameters without a default.
        return True
    return True
