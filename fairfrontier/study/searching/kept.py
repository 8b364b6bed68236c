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
    from fairfrontier.study.searching.search import Search

KIND = "search"
FILE = "search.json"


def keep_search(study: StudyRun, search: Search) -> None:
    """Keep what was tried, unless a trial failed, which may not fail again.

    ``study`` is the run as it was before the search.
    """
    outcome = search.outcome
    if outcome.failed:
        return
    rows = [
        [label, row.model_dump(mode="json", exclude_unset=True), shown]
        for label, row, shown in outcome.rows
    ]
    kept = {"trials": outcome.trials, "absent": outcome.absent, "rows": rows}
    description = _describe(_plan_first(study, search))
    # `fairfrontier clean` finds there what belongs to the study.
    told = description | {"plan": _list_points(replace(study, plan=tuple(search.plan_tried())))}
    with study.store.writing(KIND, study.store.key(KIND, description), told) as folder:
        (folder / FILE).write_text(json.dumps(kept), encoding="utf-8")


def recall_search(study: StudyRun) -> StudyRun:
    """Return the run with the fits of its search in the plan, if the store has all of them.

    Otherwise it is returned as it is: a search that was interrupted, or of which a trial would have
    other points by now, is searched again, and finds those of its trials that are the same.
    """
    if study.study.search is None:
        return study
    from fairfrontier.study.searching.search import Search

    resolver = Resolver(study.study, study.home, f"Study {study.study.study}")
    search = Search(study.study, study.study.search, resolver)
    first = _plan_first(study, search)
    if not first.is_known:
        return study
    key = study.store.key(KIND, _describe(first))
    files = study.store.list_files(KIND, key)
    if files is None:
        return study
    kept = json.loads(files[FILE].read_text(encoding="utf-8"))
    for label, row, shown in kept["rows"]:
        search.record(label, MethodRow.model_validate(row), shown)
    tried = replace(study, plan=tuple(search.plan_tried()))
    if not tried.is_known or _list_points(tried) != study.store.peek(KIND, key).get("plan"):
        return study
    searched = Searched(kept["trials"], 0, 0, (), kept["absent"])
    plan = (*study.plan, *search.outcome.planned.values())
    recalled = replace(study, plan=plan, searched=searched)
    return recalled if recalled.is_complete else study


def _list_points(study: StudyRun) -> list[dict[str, str]]:
    return [{"points": key} for key in study.points]


def _plan_first(study: StudyRun, search: Search) -> StudyRun:
    """Return the run of the fits that are known before the search."""
    return replace(study, plan=(*study.plan, *search.plan_first()))


def _describe(first: StudyRun) -> dict[str, Any]:
    """Return what decides a search; keys of points tell of data, libraries and methods' code."""
    return {
        "study": first.study.model_dump(mode="json"),
        "first": first.points,
        "methods": {
            name: hash_file(path) for name, path in list_names("method", first.home).items()
        },
        "source": file_digest(),
        "optuna": version("optuna"),
    }
