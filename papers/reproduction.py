"""Comparing a study with its paper: its claims, and the published numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic.json_schema import GenerateJsonSchema

from fairfrontier.report.finding import open_template
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import Store
from fairfrontier.study.config import StudyConfig
from fairfrontier.study.frontier import StudyResults, list_fits
from fairfrontier.study.reproduction import Reproduction
from papers.checking import check_claims
from papers.claim import Claim, read_claims
from papers.claim import refuse_claims as refuse_claims
from papers.comparison import compare
from papers.figure.oracle_calls import time_calls
from papers.publication import Publication, read_publication

TEMPLATE = Path(__file__).with_name("reproduced.html.j2")
# Differences from the paper above this are marked.
WORTH_A_NOTE = 0.03


def list_mentions(study: StudyConfig, where: str) -> Iterator[tuple[str, str, str]]:
    """Yield the measures of claims: the claim's id, the part, and ``measure:group``."""
    for claim in read_claims(study, where):
        yield from ((claim.id, claim.check.part, name) for name in claim.check.measure)


def follows_curve(study: StudyConfig, home: Path) -> bool:
    """Return whether the published table is a curve, of which settings are points."""
    if study.published is None:
        return False
    try:
        publication, table = read_publication(study.published.reproduces, home)
    except ConfigError:
        # A missing table is refused where it is needed.
        return False
    return publication.tables[table].along is not None


def describe_claim(generator: type[GenerateJsonSchema]) -> dict[str, Any]:
    """Return the JSON Schema of a claim."""
    return Claim.model_json_schema(schema_generator=generator)


def hold_to_paper(results: StudyResults, store: Store | None, home: Path) -> Reproduction:
    """Check a study's claims, and compare it with the table that it reproduces, if any.

    ``store`` holds the fits, for claims about their seconds. A ConfigError refuses a published
    table that does not exist, or whose rows do not fit the study's.
    """
    study, plan = results.study, results.plan
    timed = any(claim.speed is not None for claim in read_claims(study))
    seconds = time_calls(plan, store, home) if timed and store is not None else {}
    claims = check_claims(study, results.points, plan, seconds=seconds, home=home)
    page = open_template(TEMPLATE)
    if study.published is None:
        return Reproduction(claims, html=page.render(claims=claims, published=None))
    publication, table = read_publication(study.published.reproduces, home)
    fits, select_on = list_fits(plan, "published"), study.published.select_on
    published = compare(results.points, fits, publication, table, study.profile, select_on)
    shown = tabulate(published, publication, table)
    html = page.render(claims=claims, published=shown, worth_a_note=WORTH_A_NOTE)
    return Reproduction(claims, published, html)


def tabulate(published: pd.DataFrame, publication: Publication, name: str) -> dict[str, Any]:
    """Return the table "published / ours ± sd" by row and measure, for the report."""
    table = publication.tables[name]
    rows = []
    for row, cells in published.groupby("row", sort=False):
        numbers = table.rows.get(str(row))
        rows.append(
            {
                "label": numbers.label if numbers else row,
                "row": row,
                "remark": numbers.remark if numbers else "",
                "cells": {cell["measure"]: cell for cell in cells.to_dict("records")},
                "ours": bool(cells["ours_mean"].notna().any()),
            }
        )
    return {
        "measures": list(dict.fromkeys(published["measure"])),
        "rows": rows,
        "n_splits": int(published["n_splits"].max()),
        "spread_kind": published["spread_kind"].iloc[0],
        "source": publication.source,
        "title": table.title,
        "where": table.where,
        "verified": table.verified,
    }
