"""The command of a choice, and the files that it leaves behind."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.choose.card import PAPERS, describe_card, render_card, tabulate_data
from fairfrontier.choose.config import SelectConfig
from fairfrontier.choose.query import read_query
from fairfrontier.choose.select import Choice, Export, MixedChoice, Study, prepare_export, select
from fairfrontier.deployment.bundle import MANIFEST, ClassifierBundle
from fairfrontier.deployment.config import ROWS
from fairfrontier.deployment.explanation import draw_rows, explain, fill
from fairfrontier.figure.frontier import list_swept
from fairfrontier.prepare.config.section import is_address
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.home import check_links
from fairfrontier.runtime.option import RESULTS
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.text_file import list_rows, read_json, to_csv, write_json
from fairfrontier.runtime.writer import check_owned, recover, replacing, restore, settle
from fairfrontier.study.check import load_study
from fairfrontier.study.option import StudyOptions, shorten

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
    explained = export.reader
    if isinstance(explained, ClassifierBundle) and explained.favourable is None:
        # An explanation names its class, and takes none for the good one.
        most = str(export.decided[explained.answer].mode().iloc[0])
        explanation = explain(explained, draw_rows(export.rows, ROWS), most)
    else:
        explanation = explain(explained, draw_rows(export.rows, ROWS))
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
    following = {
        "score": ["score", shown, source, "--out", "decisions.parquet"],
        "explain": ["explain", shown, source],
        "audit": ["audit", source, "--model", shown],
        "monitor": ["monitor", shown, "NEW_TABLE"],
    }
    if isinstance(export.bundle, ClassifierBundle) and export.bundle.several:
        for name in ("explain", "audit", "monitor"):
            following[name] += ["--accepted", export.bundle.manifest["accepted"] or "CLASS"]
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
