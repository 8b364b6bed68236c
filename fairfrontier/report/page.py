"""The report of a study: one HTML file that needs no network."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from fairfrontier.figure.certificate import Exposure
from fairfrontier.figure.frontier import COLOURS
from fairfrontier.report.explorer import (
    LIGHTER,
    RATES,
    list_commands,
    pack,
    read_library,
    read_script,
    tabulate_explorer,
)
from fairfrontier.report.finding import embed, name_pool, open_template, show_setting
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study import drawing
from fairfrontier.study.config import split_name
from fairfrontier.study.expand import Planned
from fairfrontier.study.frontier import list_fits, orient, summarise
from fairfrontier.study.reproduction import Reproduction
from fairfrontier.study.results import StudyResults

AGGREGATES = ("selection_rate_ratio", "gap_max", "gap_rms", "disparity", "square_loss_max")
FOUR_FIFTHS = 0.8
# Proposition 2.3 is applied at this difference of log-odds: odds that are e times as high.
LOG_ODDS = 1.0
# Differences from the paper above this are marked.
WORTH_A_NOTE = 0.03
TEMPLATE = Path(__file__).with_name("report.html.j2")
# What a report is made of, besides Python.
SOURCES = tuple(sorted(path for path in TEMPLATE.parent.iterdir() if path.suffix in (".j2", ".js")))
# Images would be fetched from the network.
_NOTES = MarkdownIt("commonmark", {"html": False}).disable("image")


def render_report(
    results: StudyResults,
    summary: Mapping[str, Any],
    figure: bytes,
    reproduction: Reproduction,
    pictures: Mapping[str, drawing.Picture] = MappingProxyType({}),
    exposed: Mapping[tuple[str, str], Exposure] = MappingProxyType({}),
    models: pd.DataFrame | None = None,
    counts: pd.DataFrame | None = None,
    asked: Sequence[str] = (),
) -> str:
    """Return the report as HTML, in which all text from data or configuration is escaped.

    ``figure`` is the frontier's PNG, ``pictures`` are further figures by their registered names,
    and ``exposed`` has the worst moves behind the certificates by (method, setting). ``models`` is
    from `list_models`, ``counts`` from `average_counts`, and commands name study and folder as they
    were ``asked`` for.
    """
    study = results.study
    table = summarise(results.points, list_fits(results.plan, "frontier"), "test")
    commands = list_commands(results, models, asked)
    explorer = tabulate_explorer(results, table, reproduction, commands, counts)
    script, allowed = read_script()
    palette = {"light": COLOURS, "dark": [LIGHTER.get(each, each) for each in COLOURS]}
    return open_template(TEMPLATE).render(
        study=study,
        summary=summary,
        figure=base64.b64encode(figure).decode(),
        pictures=[
            {"about": drawing.FIGURES.find(name), **embed(picture)}
            for name, picture in pictures.items()
        ],
        settings=_tabulate_settings(results, summary["worse_than_plain"]),
        claims=reproduction.claims,
        published=reproduction.shown,
        cards=_make_cards(results, table, exposed),
        runs=_list_runs(results.plan),
        notes=render_notes(study.notes),
        measures=list(study.frontier.fairness),
        worth_a_note=WORTH_A_NOTE,
        log_odds=LOG_ODDS,
        tau=LOG_ODDS**2 / 4,
        # The project's own, which no text from data is part of.
        script=Markup(script),  # noqa: S704
        allowed=allowed,
        palette=palette,
        packed={"library": read_library(), "data": pack(json.dumps(explorer, allow_nan=False))},
    )


def render_notes(text: str) -> Markup:
    """Return notes in Markdown as HTML; HTML in them is escaped."""
    # markdown-it escapes everything, and refuses links that run scripts.
    return Markup(_NOTES.render(text))  # noqa: S704


def _tabulate_settings(
    results: StudyResults, worse: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return one row per setting with all its measures, the chosen ones first."""
    frontier, accuracy = results.frontier, results.study.frontier.accuracy
    remarks = {(row["method"], canonical_json(row["setting"])): row for row in worse}
    rows: list[dict[str, Any]] = []
    for (method, setting), table in frontier.groupby(["method", "setting"], sort=False):
        first = table.iloc[0]
        rows.append(
            {
                "method": method,
                "setting": show_setting(
                    str(setting), results.budgets.get((str(method), str(setting)), {})
                ),
                "worse": remarks.get((str(method), str(setting))),
                "chosen": bool(table["on_frontier"].any()),
                "joint": bool(first["on_joint_frontier"]),
                "accuracy": (first["accuracy"], first["accuracy_low"], first["accuracy_high"]),
                "n_seeds": int(first["n_seeds"]),
                "fairness": {
                    row["fairness"]: {
                        "value": row["fairness_value"],
                        "low": row["fairness_low"],
                        "high": row["fairness_high"],
                        "chosen": bool(row["on_frontier"]),
                    }
                    for row in table.to_dict("records")
                },
            }
        )

    def rank(row: Mapping[str, Any]) -> tuple[bool, bool, float]:
        score = orient(accuracy, np.array([row["accuracy"][0]], dtype=np.float64))[0]
        return not row["chosen"], not row["joint"], -float(score)

    return sorted(rows, key=rank)


def _make_cards(
    results: StudyResults, table: pd.DataFrame, exposed: Mapping[tuple[str, str], Exposure]
) -> list[dict[str, Any]]:
    """Return an audit card for every setting on some frontier, on the part test."""
    frontier = results.frontier
    chosen = frontier.loc[frontier["on_frontier"]]
    cards = []
    for (method, setting), fits in chosen.groupby(["method", "setting"], sort=False):
        rows = table.loc[(table["method"] == method) & (table["setting"] == setting)]
        found = {str(row["name"]): row for row in rows.to_dict("records")}
        split = {name: split_name(name) for name in found}
        consistency = {
            group: found[name]
            for name, (measure, group) in split.items()
            if measure == "consistency"
        }
        certified = [
            {
                "budget": group.partition("=")[2],
                "box": found.get(f"dif_box:{group}", {}).get("value"),
                "gap": found.get(f"adversarial_gap:{group}"),
                "errors": found.get(f"adversarial_error_gap:{group}"),
                **found[name],
            }
            for name, (measure, group) in split.items()
            if measure == "dif"
        ]
        cards.append(
            {
                "method": method,
                "setting": show_setting(str(setting)),
                "attributes": _audit_attributes(found, split, results.study.minimum),
                "consistency": consistency,
                "certificates": sorted(certified, key=lambda row: float(row["budget"])),
                "exposure": exposed.get((str(method), str(setting))),
                "frontiers": list(fits["fairness"]),
            }
        )
    return sorted(cards, key=lambda card: (card["method"], card["setting"]))


def _audit_attributes(
    found: Mapping[str, Mapping[Any, Any]], split: Mapping[str, tuple[str, str]], minimum: int
) -> list[dict[str, Any]]:
    """Return the rates of every level and the aggregates, by attribute; crossed ones last.

    Levels with fewer rows than the minimum have no rates, and are one row.
    """
    levels: dict[str, dict[str, str]] = {}
    for measure, group in split.values():
        if measure in RATES and "=" in group:
            attribute, _, level = group.partition("=")
            levels.setdefault(attribute, {})[group] = level
    audited = []
    for attribute, groups in sorted(levels.items(), key=lambda item: ("×" in item[0], item[0])):
        rates = [rate for rate in RATES if any(f"{rate}:{group}" in found for group in groups)]
        cells = {group: [found.get(f"{rate}:{group}") for rate in rates] for group in groups}
        rows = [
            {
                "level": level,
                "n": max(cell["n"] for cell in cells[group] if cell is not None),
                "rates": cells[group],
            }
            for group, level in groups.items()
        ]
        small = [row for row in rows if row["n"] < minimum]
        if small:
            pooled = {"level": name_pool(len(small)), "n": sum(row["n"] for row in small)}
            rows = [row for row in rows if row["n"] >= minimum]
            rows.append({**pooled, "rates": [None] * len(rates)})
        ratio = found.get(f"selection_rate_ratio:{attribute}")
        names = {name: f"{name}:{attribute}" for name in AGGREGATES}
        audited.append(
            {
                "attribute": attribute,
                "rates": rates,
                "levels": rows,
                "aggregates": {
                    short: found[name] for short, name in names.items() if name in found
                },
                "below_four_fifths": ratio is not None and ratio["value"] < FOUR_FIFTHS,
            }
        )
    return audited


def _list_runs(plan: Sequence[Planned]) -> list[dict[str, Any]]:
    """Return one row per method, setting and block, with its seeds."""
    runs: dict[tuple[str, str, str], dict[str, Any]] = {}
    for planned in plan:
        group, block = planned.group, ", ".join(planned.blocks)
        for member in group.members:
            setting = json.dumps(dict(member.setting), default=list)
            key = (block, group.method, setting)
            seeds = runs[key]["seeds"] if key in runs else []
            runs[key] = {
                "block": block,
                "method": group.method,
                "estimator": group.estimator,
                "setting": show_setting(setting),
                "parameters": dict(member.parameters),
                "rows": group.rows,
                "select_on": group.select_on,
                "seeds": [*seeds, member.seed],
            }
    return list(runs.values())
