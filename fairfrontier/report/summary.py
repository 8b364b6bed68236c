"""summary.json: what was run, the frontier, and which claims held."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairfrontier.metrics.measure.registry import MEASURES
from fairfrontier.models.fit.group import FitGroup, load_split
from fairfrontier.models.registry import METHODS
from fairfrontier.prepare.config.dataset import read_dataset
from fairfrontier.prepare.embedding.feature import list_changes
from fairfrontier.report.finding import list_versions
from fairfrontier.runtime.finder import find_yaml, is_path
from fairfrontier.runtime.seeds import derive_generator
from fairfrontier.runtime.store import canonical_json
from fairfrontier.runtime.text_file import list_rows
from fairfrontier.study.config import StudyConfig, split_name
from fairfrontier.study.expand import Planned
from fairfrontier.study.frontier import list_fits, orient, summarise
from fairfrontier.study.results import StudyResults


def build_summary(
    results: StudyResults, claims: Sequence[Mapping[str, Any]], seconds: float
) -> dict[str, Any]:
    """Return a study's outcome in plain values, ready for JSON.

    ``seconds`` is the wall-clock time of the run, cached parts included.
    """
    study, frontier, searched = results.study, results.frontier, results.searched
    failed = searched.list_failed() if searched else []
    chosen = frontier.loc[frontier["on_frontier"] | frontier["on_joint_frontier"]]
    return {
        "study": study.study,
        "profile": study.profile,
        # The folders of a path are those of this machine.
        "dataset": Path(study.dataset).name if is_path(study.dataset) else study.dataset,
        "seconds": round(float(seconds), 3),
        "versions": list_versions(),
        "counts": {
            "fits": len(results.plan),
            "points": len(results.points),
            "settings": len(frontier.drop_duplicates(["method", "setting"])),
            "on_frontier": int(frontier.groupby(["method", "setting"])["on_frontier"].any().sum()),
            "claims": len(claims),
            "claims_held": sum(claim["held"] is True for claim in claims),
            **(
                {"trials": searched.trials, "failed_trials": len(searched.failed)}
                if searched
                else {}
            ),
        },
        "select_on": study.select_on,
        "objective": study.objective,
        "accuracy": study.frontier.accuracy,
        "fairness": list(study.frontier.fairness),
        "frontier": [
            {
                **row,
                "setting": json.loads(row["setting"]),
                **results.budgets.get((row["method"], row["setting"]), {}),
            }
            for row in list_rows(chosen)
        ],
        "worse_than_plain": [
            {"method": method, "setting": json.loads(setting), **why}
            for (method, setting), why in find_worse(study, results.plan, results.points).items()
        ],
        "claims": list(claims),
        "skipped": dict(results.skipped),
        "failed_trials": failed,
    }


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


SHOWN = 200


def list_text_changes(groups: Sequence[FitGroup], home: Path) -> pd.DataFrame | None:
    """Return what counterfactual texts changed in the test part of a study's first split.

    At most 200 replaced words, a random sample, each with the row, the set, the version, and an
    excerpt before and after; None for datasets without texts.
    """
    if not groups:
        return None
    group = groups[0]
    if read_dataset(find_yaml("dataset", group.dataset, home), home).features.text is None:
        return None
    split = load_split(group, group.members[0], home)
    table = list_changes(split.test or split.train)
    if table.empty:
        return None
    drawn = derive_generator("changes", split.dataset).permutation(len(table))[:SHOWN]
    return table.iloc[np.sort(drawn)]
