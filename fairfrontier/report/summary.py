"""summary.json: what was run, the frontier, and which claims held."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairfrontier.report.finding import list_versions
from fairfrontier.report.plain import find_worse
from fairfrontier.runtime.finder import is_path
from fairfrontier.runtime.text_file import list_rows
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
