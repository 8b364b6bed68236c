"""Rows of a study that are worse than the plain method behind them, and why that may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.evaluate.measure.registry import MEASURES
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.config import StudyConfig, split_name
from fairfrontier.study.expand import Planned
from fairfrontier.study.frontier import list_fits, orient, summarise
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.registry import METHODS

# Smaller differences of means are no reason to warn.
MARGIN = 0.01
# By how much more a row loses from training to test rows than the plain method, if it overfits.
OVERFIT = 0.05

Key = tuple[str, str]


def find_worse(
    study: StudyConfig, plan: Sequence[Planned], points: pd.DataFrame
) -> dict[Key, dict[str, Any]]:
    """Return the rows that the plain method beats in the objective and in their kind of fairness.

    Plain is the method's ``plain`` or, behind a post-processor, the method without it. The kinds
    are measures on counterfactual versions for methods with a fair metric or such versions, and all
    others. Both means on test rows are worse by more than ``MARGIN``.

    Returns
    -------
    dict
        (method, setting as canonical JSON) -> ``plain``, the row that beats it, and ``reason``.
    """
    fits, names = list_fits(plan, "frontier"), (study.frontier.accuracy, *study.frontier.fairness)
    part = {name: _tabulate(points, fits, name) for name in ("train", "test")}
    groups = find_groups(plan)
    worse = {}
    for key, group in groups.items():
        own = [
            names[0],
            *(name for name in names[1:] if _is_individual(name) == aims_at_individuals(group)),
        ]
        beaten = [
            base
            for base in _list_plain(group, groups)
            if len(own) > 1 and all(_differ(part["test"], name, base, key) > MARGIN for name in own)
        ]
        if beaten:
            base = max(beaten, key=lambda base: _differ(part["test"], names[0], base, key))
            worse[key] = {"plain": base[0], "reason": _explain(part, names[0], base, key)}
    return worse


def find_groups(plan: Sequence[Planned]) -> dict[Key, FitGroup]:
    """Return the fit groups of the frontier's settings."""
    return {
        (planned.group.method, canonical_json(member.setting)): planned.group
        for planned in plan
        if "frontier" in planned.blocks
        for member in planned.group.members
    }


def _tabulate(points: pd.DataFrame, fits: pd.DataFrame, part: str) -> pd.DataFrame:
    """Return means by (method, setting), a column for each measure."""
    table = summarise(points, fits, part)
    return table.pivot_table(index=["method", "setting"], columns="name", values="value")


def _is_individual(name: str) -> bool:
    needs = MEASURES.find(split_name(name)[0]).needs
    return bool(needs & {"counterfactuals", "counterfactual_score"})


def aims_at_individuals(group: FitGroup) -> bool:
    """Return whether the last thing done for fairness is for individuals."""
    method = METHODS.get(group.estimator)
    individual = {"metric", "counterfactuals"}
    return group.then is None and method is not None and bool(method.fit_needs & individual)


def _list_plain(group: FitGroup, groups: Mapping[Key, FitGroup]) -> Iterator[Key]:
    method = METHODS.get(group.estimator)
    if method is None:
        return
    plain = method.plain if group.then is None else group.estimator
    for key, other in groups.items():
        same = group.then is None and other.estimator == group.estimator
        if other.estimator == plain and other.then is None and not same:
            yield key


def _differ(table: pd.DataFrame, name: str, base: Key, key: Key) -> float:
    """Return by how much a row is better than another one in a measure; NaN where not known."""
    if name not in table or base not in table.index or key not in table.index:
        return np.nan
    column = table[name]
    better, worse = orient(name, np.array([column[base], column[key]]))
    return float(better - worse)


def _explain(part: Mapping[str, pd.DataFrame], accuracy: str, base: Key, key: Key) -> str:
    """Return the likely reason why a row is worse than the plain one."""
    lost = _differ(part["test"], accuracy, base, key) - _differ(part["train"], accuracy, base, key)
    if lost > OVERFIT:
        return (
            "it loses more from training to test rows, and so overfits: fewer or shallower rounds, "
            "or early_stopping with validation rows, may help"
        )
    order = _differ(part["test"], "auc", base, key)
    if order > 2 * MARGIN:
        return (
            f"its AUC is {order:.2f} lower: so tight a constraint leaves little to learn from, and "
            "a smaller budget or strength may help"
        )
    if order <= MARGIN:
        return "its scores order rows as well, so that it is the cut that was chosen on other rows"
    return "nothing in its numbers says why; more seeds would show whether it is chance"
