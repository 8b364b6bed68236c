"""The outcome of a study's search in the store: a second run finds its fits without a search."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fairfrontier.runtime.finder import list_names
from fairfrontier.runtime.source import file_digest
from fairfrontier.runtime.store import hash_file
from fairfrontier.study.config import MethodRow
from fairfrontier.study.resolve import Resolver
from fairfrontier.study.results import Searched

if TYPE_CHECKING:
    from fairfrontier.study.run import StudyRun
    from fairfrontier.study.searching.search import Outcome

KIND = "search"
FILE = "search.json"


def keep_search(study: StudyRun, outcome: Outcome, fits: int) -> None:
    """Keep what a search of some fits chose, unless a trial failed, which may not fail again.

    ``study`` is the run as it was before the search.
    """
    if outcome.failed:
        return
    rows = [[label, row.model_dump(mode="json", exclude_unset=True)] for label, row in outcome.rows]
    kept = {"trials": outcome.trials, "fits": fits, "untried": outcome.untried, "rows": rows}
    description = _describe(study)
    with study.store.writing(KIND, study.store.key(KIND, description), description) as folder:
        (folder / FILE).write_text(json.dumps(kept), encoding="utf-8")


def recall_search(study: StudyRun) -> StudyRun:
    """Return the run with the fits of its search in the plan, if the store has all of them.

    Otherwise it is returned as it is: a search that was interrupted, or whose data, code or
    settings have changed, is searched again, and finds those of its trials that are the same.
    """
    if study.study.search is None or not study.is_known:
        return study
    files = study.store.list_files(KIND, study.store.key(KIND, _describe(study)))
    if files is None:
        return study
    from fairfrontier.study.searching.search import Search

    kept = json.loads(files[FILE].read_text(encoding="utf-8"))
    resolver = Resolver(study.study, study.home, f"Study {study.study.study}")
    search = Search(study.study, study.study.search, resolver)
    for label, row in kept["rows"]:
        search.show(label, MethodRow.model_validate(row))
    searched = Searched(kept["trials"], kept["fits"], 0, (), tuple(kept["untried"]))
    plan = (*study.plan, *search.outcome.planned.values())
    recalled = replace(study, plan=plan, searched=searched)
    return recalled if recalled.is_complete else study


def _describe(study: StudyRun) -> dict[str, Any]:
    """Return what decides a search besides the trials' measures, whose keys tell of the data."""
    return {
        "study": study.study.model_dump(mode="json"),
        "plan": study.points,
        "methods": {
            name: hash_file(path) for name, path in list_names("method", study.home).items()
        },
        "source": file_digest(),
        "optuna": version("optuna"),
    }
