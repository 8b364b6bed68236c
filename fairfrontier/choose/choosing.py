"""The command of a choice, and the files that it leaves behind."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from markdown_it import MarkdownIt
from markupsafe import Markup

from fairfrontier.choose.config import SelectConfig
from fairfrontier.choose.select import Choice, Export, MixedChoice, Study, prepare_export, select
from fairfrontier.deployment.bundle import MANIFEST, ClassifierBundle, judge
from fairfrontier.deployment.explanation import (
    CARD_ORDERS,
    COLUMNS_AT_MOST,
    Explanation,
    count_rows,
    draw_explanation,
    draw_rows,
    explain,
    fill,
)
from fairfrontier.figure.frontier import list_swept
from fairfrontier.metrics.verb import leave_out_small, tabulate
from fairfrontier.models.prediction import predict_part, task_of
from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import is_address
from fairfrontier.prepare.loader import FittedTable
from fairfrontier.prepare.split import Part
from fairfrontier.prepare.splitting.encoder import GROUP_PREFIX
from fairfrontier.prepare.table.rows import used_columns
from fairfrontier.report.finding import embed, list_versions, name_pool, open_template
from fairfrontier.runtime.errors import ConfigError, StoreError, escape_controls
from fairfrontier.runtime.home import check_links
from fairfrontier.runtime.option import RESULTS
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.text_file import list_rows, read_json, to_csv, write_json
from fairfrontier.runtime.writer import check_owned, recover, replacing, restore, settle
from fairfrontier.study.check import load_study
from fairfrontier.study.config import StudyOptions, shorten
from fairfrontier.study.frontier import name_measures
from fairfrontier.study.query import find_passed, read_query

# The papers of a choice: what is known, with n and intervals, and what people have to add.

PAPERS = ("card.md", "datasheet.md", "technical-file.md")
HERE = Path(__file__).parent
# Rates of a level that the card shows; measures.csv has all.
BY_GROUP = {
    "binary": ("selection_rate", "tpr", "fpr", "accuracy"),
    "multiclass": ("accuracy",),
    "regression": ("mae", "rmse", "mean_residual", "disparity"),
}
OVERALL = {
    "binary": ("accuracy", "balanced_accuracy", "auc", "selection_rate", "tpr", "fpr"),
    "multiclass": ("accuracy", "balanced_accuracy"),
    "regression": ("rmse", "mae", "r2"),
}
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
# What hubs of models call a task.
PIPELINES = {"binary": "classification", "multiclass": "classification", "regression": "regression"}


def describe_card(
    choice: Choice | MixedChoice,
    export: Export,
    explanation: Explanation,
    commands: Mapping[str, str],
) -> dict[str, Any]:
    """Return what a card says, as plain values: what the bundle's manifest says, and more.

    ``table`` has every measure on the test rows, those of the bundle's own model, with 95%
    intervals, without levels of few rows; ``explained`` the means of the explanation, which is of
    test rows, and ``picture`` shows them.
    """
    bundle, part, study = export.bundle, export.test, choice.study
    config = export.table.request.config
    minimum = int(study.facts["minimum"])
    task, prediction = task_of(part), predict_part(choice.model, part)
    if task == "binary":
        # As in the study, scores are those of the model, and decisions those of the rule behind it.
        score = judge(choice.model, part.X, part.groups, part.ids).score
        prediction = replace(prediction, score=score)
    table = leave_out_small(tabulate(prediction, part, minimum=minimum), part, minimum)
    table["name"] = name_measures(table)
    measures = table.set_index("name")
    overall = [name for name in OVERALL[task] if name in measures.index]
    bounded = [name for name in choice.selected if name in measures.index]
    fairness = [name for name in study.fairness if name in measures.index]
    explained = explanation.tabulate(minimum)
    passed = find_passed(choice.bounds, table).to_dict("records")
    models = [
        (each.method, json.dumps(dict(each.setting), sort_keys=True, ensure_ascii=False), share)
        for each, share in choice.components
    ]
    return {
        **bundle.manifest,
        "name": f"{study.facts['study']}: {' and '.join(model[0] for model in models)}",
        "description": config.description or config.notes,
        "meaning": config.label.meaning,
        "task": task,
        # What 0 and 1 mean where a regression is measured.
        "scale": config.label.range,
        "scaled": config.label.scaled,
        "texts": config.features.text is not None,
        "protected": sorted({*bundle.encoder.features} & {*bundle.encoder.grouped}),
        "parts": [(name, rows.n_samples) for name, rows in export.table.encode().parts()],
        "models": models,
        "selected": [
            (name, value, choice.certified.get(name), *_read(measures, name))
            for name, value in choice.selected.items()
        ],
        "passed": [row | {"bound": str(choice.bounds[row["name"]])} for row in passed],
        "kept": [
            (str(bound), *_read(measures, name)[:3])
            for name, bound in choice.bounds.items()
            if name not in {row["name"] for row in passed}
        ],
        "measures": [
            (name, *_read(measures, name))
            for name in dict.fromkeys((*overall, *bounded, *fairness))
        ],
        "groups": [
            _tabulate_groups(part, measures, name, BY_GROUP[task], minimum)
            for name in part.attributes
        ],
        "by_group": BY_GROUP[task],
        "unit": explanation.unit,
        "base": explanation.base,
        "explained": explained,
        "picture": draw_explanation(explained, explanation.unit),
        "values": _tabulate_values(explained),
        "unseen": bundle.encoder.unseen,
        "versions": list_versions(),
        "commands": dict(commands),
        "part": str(choice.components[0][0].setting["select_on"]),
        "data": describe_data(export.table, bundle.manifest["accepted"], minimum),
        "table": table[["name", "value", "n", "low", "high", "left_out"]],
    }


def _read(measures: pd.DataFrame, name: str) -> tuple[float, float, float, int]:
    """Return value, low, high and n of a measure; NaN where there is none."""
    if name not in measures.index:
        return np.nan, np.nan, np.nan, 0
    row = measures.loc[[name]].to_dict("records")[0]
    return float(row["value"]), float(row["low"]), float(row["high"]), int(row["n"])


def _tabulate_groups(
    part: Part, measures: pd.DataFrame, attribute: str, names: Sequence[str], minimum: int
) -> dict[str, Any]:
    """Return the rates of every level of an attribute; levels with few rows have none, as one."""
    shown = [
        (level, int(mask.sum()), [_read(measures, f"{name}:{attribute}={level}") for name in names])
        for level, mask in _pool(part.attributes[attribute], part.group(attribute), minimum)
    ]
    return {"attribute": attribute, "levels": shown}


def _pool(
    levels: Sequence[str], codes: np.ndarray, minimum: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every level of enough rows with the mask of these, then all others as one."""
    small = np.bincount(codes, minlength=len(levels)) < minimum
    for code, level in enumerate(levels):
        if not small[code]:
            yield level, codes == code
    if small.any():
        yield name_pool(int(small.sum())), small[codes]


def _tabulate_values(explained: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the means of SHAP values, of all rows and by attribute, of the first columns."""
    columns = explained.loc[explained["attribute"] == "", "column"].head(COLUMNS_AT_MOST)
    kept = explained[explained["column"].isin(columns)]
    return [
        {
            "attribute": attribute,
            "levels": list(rows.groupby("level", sort=False)["n"].first().items()),
            "rows": [
                (column, each["mean_abs"].iloc[0], each["mean"].tolist())
                for column, each in rows.groupby("column", sort=False)
            ],
        }
        for attribute, rows in kept.groupby("attribute", sort=False)
    ]


def describe_data(table: FittedTable, accepted: str | None, minimum: int) -> dict[str, Any]:
    """Return what a datasheet says of a table, in counts over all rows that are used.

    ``accepted`` is the one of several classes whose share is among them.
    """
    config, plan, frame = table.request.config, table.plan, table.frame
    label, y = config.label, plan.target.y
    means = "label 1" if label.task == "binary" else f"mean of {label.column}"
    if label.range is not None:
        y = label.range[0] + (label.range[1] - label.range[0]) * y
    if accepted is not None:
        means, y = f"share of {accepted}", y == plan.target.classes.index(accepted)
    elif len(plan.target.classes) > 2:
        # The codes of classes have no mean.
        means, y = "share of the favourable class, none named", np.full(y.size, np.nan)
    numbers, _ = used_columns(config)
    raw = table.raw.frame.loc[frame.index]
    block_columns = dict.fromkeys(block.column for block in table.encoder.blocks)
    used = [name for name in block_columns if not name.startswith(GROUP_PREFIX)]
    groups = []
    for position, attribute in enumerate(plan.attributes):
        levels = [
            (level, n, mask.mean(), y[mask].mean() if n >= minimum else np.nan)
            for level, mask in _pool(attribute.names, plan.groups[:, position], minimum)
            for n in [int(mask.sum())]
        ]
        groups.append({"attribute": attribute.name, "levels": levels})
    policies = {"numeric": config.missing.numeric, "categorical": config.missing.categorical}
    return {
        "rows": len(frame),
        "left_out": len(table.raw.frame) - len(frame),
        "filter": "rows.keep, rows.drop_missing or missing: drop of its YAML",
        "digests": list(table.raw.digests),
        "columns": [
            (name, _name_use(name, numbers, config), int(raw[name].isna().sum())) for name in used
        ],
        "label": means,
        "label_missing": int(raw[label.column].isna().sum()),
        "groups": groups,
        "missing": [f"Missing {kind} cells: {policy}." for kind, policy in policies.items()],
    }


def _name_use(name: str, numbers: Collection[str], config: DatasetConfig) -> str:
    """Return what a column is used as."""
    if config.text is not None and name == config.text.column:
        return "text"
    return "number" if name in numbers else "level"


def tabulate_data(card: Mapping[str, Any]) -> pd.DataFrame:
    """Return the numbers of a datasheet, a row for each: number, name, level, value."""
    data = card["data"]
    rows: list[tuple[str, str, str, float]] = [
        ("rows", "used", "", data["rows"]),
        ("rows", "left out", "", data["left_out"]),
        *(("rows", name, "", count) for name, count in card["parts"]),
        *(("missing", name, "", count) for name, _, count in data["columns"]),
        ("missing", card["label"], "", data["label_missing"]),
    ]
    for each in data["groups"]:
        for level, *values in each["levels"]:
            names = ("rows", "share", "label")
            rows += [
                (name, each["attribute"], level, value)
                for name, value in zip(names, values, strict=True)
            ]
    return pd.DataFrame(rows, columns=["number", "name", "level", "value"])


def render_card(card: Mapping[str, Any]) -> dict[str, str]:
    """Return file name -> text of the papers.

    The card is Markdown with the header that hubs of models read, and the same as HTML; the
    datasheet of the data and the draft of a technical file after Annex IV of the EU's AI Act are
    Markdown.
    """
    picture = embed(card["picture"])
    content = {**card, "header": write_header(card), "picture": picture}
    papers = dict[str, str]()
    for name in PAPERS:
        text = open_template(HERE / f"{name}.j2").render(content)
        # Names in a table may hold what steers the terminal in which the paper is read.
        papers[name] = "\n".join(map(escape_controls, text.split("\n")))
    page = _MARKDOWN.render(papers["card.md"].split("\n---\n", 1)[1])
    # Names and numbers are escaped: tags are those of the template alone.
    for old, new in (
        ("<table>", '<div class="scroll"><table>'),
        ("</table>", "</table></div>"),
        ('src="explain.png"', f'src="data:image/png;base64,{picture["code"]}"'),
    ):
        page = page.replace(old, new)
    head, *sections = map(Markup, page.split("<h2>"))
    filled = {"name": card["name"], "head": head, "sections": sections}
    return {**papers, "card.html": open_template(HERE / "card.html.j2").render(filled)}


def write_header(card: Mapping[str, Any]) -> str:
    """Return the YAML header of a model card, as hubs of models index it."""
    metrics = [
        {"type": name.partition(":")[0], "name": name, "value": round(value, 6)}
        for name, value, *_ in card["measures"]
        if np.isfinite(value)
    ]
    task = f"{'text' if card['texts'] else 'tabular'}-{PIPELINES[card['task']]}"
    result = {
        "task": {"type": task},
        "dataset": {"type": card["dataset"], "name": card["dataset"], "split": "test"},
        "metrics": metrics,
    }
    header = {
        "library_name": "fairfrontier",
        "pipeline_tag": task,
        "tags": [task, "fairness", "fairfrontier"],
        "datasets": [card["dataset"]],
        "model-index": [{"name": card["name"], "results": [result]}],
    }
    return yaml.safe_dump(header, sort_keys=False, allow_unicode=True)


FOLDER, BUNDLE = "choice", "bundle"
FILES = RESULTS["select"]


def read_finished(options: StudyOptions) -> Study:
    """Return the finished study.

    ConfigError where it was not run, StoreError where what a killed run left cannot be completed.
    """
    study = load_study(options.study, options.profile, options.home).study
    folder = options.find_folder(study)
    settle(folder)
    if not (folder / "points.parquet").is_file():
        raise ConfigError(
            f"{study.study} has no results in {folder}.",
            f"Run it first: fairfrontier run {shlex.quote(options.study)}",
        )
    return Study(folder, options.home, study.describe(folder))


def choose(config: SelectConfig) -> Choice | MixedChoice:
    """Return what the options choose; see `select`."""
    query = read_query(config.query)
    return select(
        read_finished(config),
        query.measure,
        query.bounds,
        seed=config.seed,
        confidence=config.confidence if config.certified else None,
        mixture=config.mixture,
        policy=config.policy,
        groups_at_decision=not config.no_groups_at_decision,
    )


def write_choice(choice: Choice | MixedChoice, config: SelectConfig) -> dict[str, Any]:
    """Write the folder of a choice into that of its study, and return the content of choice.json.

    It holds the bundle, a model card as Markdown and HTML, a datasheet with its numbers as
    ``datasheet.csv``, a draft of a technical file, ``measures.csv`` of the test rows,
    ``decisions.parquet`` of their ids and decisions, means of SHAP values as ``explain.csv`` and
    ``explain.png``, and ``choice.json``.

    Raises
    ------
    ConfigError
        When a link leads into another project.
    StoreError
        When there is a folder of that name that no choice wrote, or that holds something else
        besides, such as a paper that somebody completed, or it cannot be written.
    """
    folder = choice.study.folder / FOLDER
    check_links(folder, config.home)
    restore(folder)
    recover(folder)
    owned = list_owned(folder)
    check_owned(folder, owned)
    check_papers(folder)
    export = prepare_export(choice, config.row_id, config.unseen)
    commands = list_commands(config, export, folder, partial(shorten, home=config.home))
    explained, most = export.reader, None
    if isinstance(explained, ClassifierBundle) and explained.favourable is None:
        # An explanation names its class, and takes none for the good one.
        most = str(export.decided[explained.answer].mode().iloc[0])
    rows = draw_rows(export.rows, config.explain_rows or count_rows(explained))
    orders = None if config.explain_rows else CARD_ORDERS
    explanation = explain(explained, rows, most, orders=orders)
    card = describe_card(choice, export, explanation, commands)
    summary = {
        "query": config.query,
        "policy": config.policy,
        "models": list(export.bundle.manifest["models"]),
        "part": card["part"],
        "selected": dict(choice.selected),
        "certified": dict(choice.certified),
        "passed": list_rows(pd.DataFrame(card["passed"])),
        "needed_groups": list(export.bundle.needed_groups),
        "folder": FOLDER,
        "commands": commands,
    }
    mend = "Give a folder that can be written, with --out."
    with replacing(folder, owned, what="choice", mend=mend) as work:
        (work / BUNDLE).mkdir()
        export.bundle.fill(work / BUNDLE)
        (work / "measures.csv").write_bytes(to_csv(card["table"]))
        (work / "datasheet.csv").write_bytes(to_csv(tabulate_data(card)))
        fill(work, explanation, card["explained"], card["picture"])
        kept = export.decided[["id", export.bundle.answer]]
        kept.to_parquet(work / "decisions.parquet", index=False)
        for name, text in render_card(card).items():
            (work / name).write_text(text, encoding="utf-8")
        write_json(summary | {"papers": _hash_papers(work)}, work / "choice.json")
        # Another choice may have come there meanwhile, with other files in its bundle.
        owned |= list_owned(folder)
        check_papers(folder)
    # Files may be shared, and name no folder of the machine; the terminal names what works here.
    here = list_commands(config, export, folder, _find_near)
    swept = list_swept(choice.study.frontier)
    tables = {"measures": card["table"], "passed": card["passed"]}
    return summary | tables | {"folder": str(folder), "commands": here, "swept": swept}


def list_commands(
    config: SelectConfig, export: Export, folder: Path, name_path: Callable[[Path], str]
) -> dict[str, str]:
    """Return the commands that made a choice and that come next, by what they do."""
    shown = name_path(folder / BUNDLE)
    source = export.table.request.config.source.path[0].path
    source = "TABLE" if source is None or is_address(source) else source
    if not Path(source).is_absolute() and (config.home / source).exists():
        source = name_path(config.home / source)
    following = {
        "score": ["score", shown, source, "--out", "decisions.parquet"],
        "explain": ["explain", shown, source],
        "audit": ["audit", source, "--model", shown],
        "monitor": ["monitor", shown, "NEW_TABLE"],
    }
    if isinstance(export.bundle, ClassifierBundle) and export.bundle.several:
        for name in ("explain", "audit", "monitor"):
            facts = export.bundle.manifest
            following[name] += ["--accepted", facts["accepted"] or facts["classes"][-1]]
    if not export.bundle.encoder.attributes:
        del following["audit"]
    written = {name: shlex.join(["fairfrontier", *words]) for name, words in following.items()}
    return config.write_commands(name_path) | written


def list_owned(folder: Path) -> set[str]:
    """Return the files of the choice in a folder, by what its bundle lists; none without one."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        listed = (MANIFEST, *read_json(folder / BUNDLE / MANIFEST)["files"])
        return {*FILES, *(f"{BUNDLE}/{name}" for name in listed)} - {BUNDLE}
    return set()


def check_papers(folder: Path) -> None:
    """Raise StoreError when somebody completed a paper of a choice that is to go."""
    written = {}
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        written = dict(read_json(folder / "choice.json")["papers"])
    for name, digest in _hash_papers(folder).items():
        if digest != written.get(name):
            raise StoreError(
                f"{folder / name} is not as the last choice left it.",
                "Move it away, or remove it: a new choice writes its own.",
            )


def _hash_papers(folder: Path) -> dict[str, str]:
    return {name: hash_file(folder / name) for name in PAPERS if (folder / name).is_file()}


def _find_near(path: Path) -> str:
    """Return a path as it is reached from the current folder."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near
