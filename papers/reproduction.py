"""Comparing a study with its paper: its claims, and the published numbers."""

from __future__ import annotations

from pathlib import Path

from fairfrontier.runtime.store import Store
from fairfrontier.study.frontier import list_fits
from fairfrontier.study.publication import Reproduction, read_publication
from fairfrontier.study.results import StudyResults
from papers.claim import check_claims
from papers.comparison import compare
from papers.figure.oracle_calls import time_calls


def hold_to_paper(results: StudyResults, store: Store | None, home: Path) -> Reproduction:
    """Check a study's claims, and compare it with the table that it reproduces, if any.

    ``store`` holds the fits, for claims about their seconds. A ConfigError refuses a published
    table that does not exist, or whose rows do not fit the study's.
    """
    study, plan = results.study, results.plan
    timed = any(claim.speed is not None for claim in study.claims)
    seconds = time_calls(plan, store, home) if timed and store is not None else {}
    claims = check_claims(study, results.points, plan, seconds=seconds, home=home)
    if study.published is None:
        return Reproduction(claims)
    publication, table = read_publication(study.published.reproduces, home)
    fits, select_on = list_fits(plan, "published"), study.published.select_on
    published = compare(results.points, fits, publication, table, study.profile, select_on)
    return Reproduction(claims, publication, published)
