"""The command of a choice: its options, and the files that it leaves behind."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fairfrontier.choose.bundle import MANIFEST
from fairfrontier.choose.card import describe_card, render_card, tabulate_data
from fairfrontier.choose.choice import Choice, MixedChoice
from fairfrontier.choose.explanation import ROWS, draw_rows, explain, fill
from fairfrontier.choose.export import Export, prepare_export
from fairfrontier.choose.policy import NAMES, read_policy
from fairfrontier.choose.query import read_query
from fairfrontier.choose.select import Study, select
from fairfrontier.prepare.row import Unseen
from fairfrontier.runtime.errors import ConfigError, StoreError
from fairfrontier.runtime.option import Name, Seed
from fairfrontier.runtime.text_file import to_csv, write_json
from fairfrontier.runtime.writer import replacing
from fairfrontier.study.expand import load_study
from fairfrontier.study.option import StudyOptions, shorten

FOLDER, BUNDLE = "choice", "bundle"


def _check_policy(text: str) -> str:
    read_policy(text)
    return text


class SelectConfig(StudyOptions):
    """What is chosen from a study: the options of a command."""

    query: str = Field(
        default="",
        description='As "max accuracy subject to selection_rate_difference:sex <= 0.05"; the '
        "study's objective without bounds by default.",
    )
    policy: Annotated[str, AfterValidator(_check_policy)] | None = Field(
        default=None, description=f"Which of those within the bounds: {NAMES}."
    )
    certified: bool = Field(
        default=False, description="Bounds have to hold on fresh rows, with the confidence."
    )
    confidence: float = Field(default=0.95, gt=0.0, lt=1.0, description="Of certified bounds.")
    mixture: bool = Field(default=False, description="Two models may decide, one drawn by row id.")
    no_groups_at_decision: bool = Field(
        default=False, description="Without rules that look at the group of a row."
    )
    seed: Seed | None = Field(
        default=None, description="Which split's model; the first by default."
    )
    row_id: Name | None = Field(
        default=None, description="Column of row ids, by which random decisions are drawn."
    )
    unseen: Unseen = Field(
        default="zeros", description="Levels that training had not: encoded as zeros, or refused."
    )

    def write_commands(self, name_path: Callable[[Path], str]) -> dict[str, str]:
        """Return the commands that ran the study and that choose; ``name_path`` writes paths."""
        study, *options = self._list_words(type(self), name_path)
        select = [study, *([self.query] if self.query else []), *options]
        words = {"run": self._list_words(StudyOptions, name_path), "select": select}
        return {name: shlex.join(["fairfrontier", name, *given]) for name, given in words.items()}

    def _list_words(
        self, options: type[StudyOptions], name_path: Callable[[Path], str]
    ) -> list[str]:
        """Return the study, and those of the options that are not as they are by default."""
        words = [name_path(Path(self.study))]
        for name, field in options.model_fields.items():
            value = getattr(self, name)
            if name not in ("study", "query", "conf") and value != field.default:
                option = f"--{name.replace('_', '-')}"
                shown = name_path(value) if isinstance(value, Path) else str(value)
                words += [option] if value is True else [option, shown]
        return words


def read_finished(options: StudyOptions) -> Study:
    """Return the finished study; ConfigError where it was not run."""
    study = load_study(options.study, options.profile, options.home).study
    folder = options.find_folder(study)
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
    StoreError
        When there is a folder of that name that no choice wrote, or it cannot be written.
    """
    folder = choice.study.folder / FOLDER
    if folder.is_dir() and any(folder.iterdir()) and not (folder / BUNDLE / MANIFEST).is_file():
        raise StoreError(f"{folder} holds something else.", "Move it away.")
    export = prepare_export(choice, config.row_id, config.unseen)
    commands = list_commands(config, export, folder, partial(shorten, home=config.home))
    explanation = explain(export.bundle, draw_rows(export.rows, ROWS))
    card = describe_card(choice, export, explanation, commands)
    summary = {
        "query": config.query,
        "policy": config.policy,
        "models": list(export.bundle.manifest["models"]),
        "part": card["part"],
        "selected": dict(choice.selected),
        "certified": dict(choice.certified),
        "needed_groups": list(export.bundle.needed_groups),
        "folder": FOLDER,
        "commands": commands,
    }
    with replacing(
        folder, what="choice", mend="Give a folder that can be written, with --out."
    ) as (work):
        (work / BUNDLE).mkdir()
        export.bundle.fill(work / BUNDLE)
        (work / "measures.csv").write_bytes(to_csv(card["table"]))
        (work / "datasheet.csv").write_bytes(to_csv(tabulate_data(card)))
        fill(work, explanation, card["explained"], card["picture"])
        kept = export.decided[["id", export.bundle.answer]]
        kept.to_parquet(work / "decisions.parquet", index=False)
        for name, text in render_card(card).items():
            (work / name).write_text(text, encoding="utf-8")
        write_json(summary, work / "choice.json")
    # Files may be shared, and name no folder of the machine; the terminal names what works here.
    here = list_commands(config, export, folder, _find_near)
    return summary | {"folder": str(folder), "commands": here, "measures": card["table"]}


def list_commands(
    config: SelectConfig, export: Export, folder: Path, name_path: Callable[[Path], str]
) -> dict[str, str]:
    """Return the commands that made a choice and that come next, by what they do."""
    shown = name_path(folder / BUNDLE)
    source = export.table.request.config.source.path[0].path or "TABLE"
    following = {
        "score": ["score", shown, source, "--out", "decisions.parquet"],
        "explain": ["explain", shown, source],
        "audit": ["audit", source, "--model", shown],
        "monitor": ["monitor", shown, "NEW_TABLE"],
    }
    if accepted := export.bundle.manifest["accepted"]:
        for name in ("explain", "audit", "monitor"):
            following[name] += ["--accepted", accepted]
    if not export.bundle.encoder.attributes:
        del following["audit"]
    written = {name: shlex.join(["fairfrontier", *words]) for name, words in following.items()}
    return config.write_commands(name_path) | written


def _find_near(path: Path) -> str:
    """Return a path as it is reached from the current folder."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near
