"""The YAML of a study of a drafted dataset."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.prepare.draft.config import DraftOptions
from fairfrontier.prepare.draft.draft import (
    MINIMUM,
    DatasetDraft,
    draft_dataset,
    read_raw,
    write_comment,
    write_dataset,
    write_remark,
    write_value,
)
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import ConfigError, FairfrontierError
from fairfrontier.runtime.finder import FOLDERS
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.option import make_absolute
from fairfrontier.runtime.writer import filling, recover
from fairfrontier.study.config import choose_measures, choose_methods

# Attributes that a first frontier trades against accuracy, unless somebody names them.
MOST_ATTRIBUTES = 3
# A label whose rarer class has a smaller share is not served by accuracy.
BALANCED = 0.2
TRIALS = 40


def write_study(draft: DatasetDraft, dataset: DatasetConfig, *, named: bool) -> str:
    """Return the YAML of a study of a drafted dataset; ``named`` attributes are all compared."""
    main = [attribute.name for attribute in draft.attributes]
    others = [] if named else main[MOST_ATTRIBUTES:]
    main = [name for name in main if name not in others]
    compared = dataset.model_copy(
        update={
            "groups": {name: dataset.groups[name] for name in main},
            "counterfactuals": {
                name: columns for name, columns in dataset.counterfactuals.items() if name in main
            },
        }
    )
    lines = [
        *write_comment("Drafted by `fairfrontier init`: what is compared, and by what."),
        f"study: {write_value(draft.name)}",
        f"dataset: {write_value(draft.name)}",
    ]
    if dataset.label.task == "regression":
        objective, remark = "rmse", "the loss that all methods keep low"
    else:
        rare = draft.rare is not None and draft.rare < BALANCED
        objective = "balanced_accuracy" if rare else "accuracy"
        remark = "or f1, auc, {costs: {false_positive: 1, false_negative: 5}}, ..."
        if dataset.label.task == "multiclass":
            remark = "or balanced_accuracy" if objective == "accuracy" else "or accuracy"
        if rare:
            remark = f"one class has {draft.rare:.0%} of the rows; {remark}"
    lines += write_remark(f"objective: {objective}", remark)
    if dataset.label.task == "binary":
        lines += [
            *write_comment("Individual fairness, in minutes more: take the # off three lines."),
            "#metric: {name: subspace}",
        ]
    lines.append("methods:")
    methods = choose_methods(compared, has_metric=False)
    for label, row in methods.items():
        lines.append(f"  {write_value(label)}: {write_value(row)}")
    if dataset.label.task == "binary":
        lines += ["#  budro: {}", "#  sensei: {}"]
    # Half of the trials are budgets, of which each row gets three; few rows can tell no more apart.
    trials = 6 * sum(map(bool, methods.values()))
    trials = trials if draft.minimum < MINIMUM else max(TRIALS, trials)
    remark = "settings that are tried; more make a denser frontier"
    lines += write_remark(f"search: {{trials: {trials}}}", remark)
    if draft.minimum < MINIMUM:
        remark = f"rows of a group that a rate takes, {MINIMUM} by default: these rates are rough"
        lines += write_remark(f"minimum: {draft.minimum}", remark)
    lines += ["frontier:", "  fairness:"]
    lines += [f"  - {write_value(measure)}" for measure in choose_measures(compared)]
    if others:
        lines += write_comment(f"Further groups of the dataset: {', '.join(others)}", 2)
    return "\n".join(lines) + "\n"


# A project for a table that nobody has described: a dataset's YAML and a study's.

RAW = Path("data", "raw")


@dataclass(frozen=True)
class Draft:
    """What `init` leaves behind.

    Attributes
    ----------
    dataset, study : Path
        The two YAML files.
    table : Path
        The table they are about.
    summary : str
        What was taken for the label, for protected and for features.
    warnings : tuple of str
        What somebody has to look at.
    command : str
        The command line that computes the first frontier.
    home : Path
        The project's folder.
    """

    dataset: Path
    study: Path
    table: Path
    summary: str
    warnings: tuple[str, ...]
    command: str
    home: Path


def init(table: Any, **options: Any) -> Draft:
    """Draft a dataset and a study, as commented YAML, for a table that nobody has described.

    The separator, encoding, types, missing marks, label, protected attributes, levels,
    counterfactual sets and a split into four parts are guessed, and written with the reasons into
    ``conf/datasets/NAME.yaml`` and ``conf/studies/NAME.yaml`` of a project. Dates, identifiers,
    free text, constants and what gives the label away are left out of the features.

    Parameters
    ----------
    table : path or frame
        A CSV or TSV file (gzip too), Parquet, Feather, Excel (extra `excel`), a folder of Parquet
        files; or a frame of pandas, polars or anything else with ``__arrow_c_stream__``. What the
        loader does not read itself is written to ``data/raw/NAME.parquet``.
    **options
        Fields of `fairfrontier.prepare.draft.config.DraftOptions`: ``label``, ``positive`` (the
        levels that mean 1), ``above`` (a number that makes a binary label of another one),
        ``protected``, ``name``, ``out`` (the project's folder) and ``conf``.

    Returns
    -------
    Draft

    Raises
    ------
    ConfigError
        When a file that would be written is there, a named column is not, or the label is not
        clear.
    DataError
        When the table cannot be read or used.
    StoreError
        When the project's folder cannot be written.

    Notes
    -----
    The table is in memory; O(n log n) for each column. What is drafted is loaded once before
    anything is written.

    Examples
    --------
    >>> draft = ff.init("loans.csv", label="repaid")  # doctest: +SKIP
    >>> ff.run_study(draft.study)  # doctest: +SKIP
    """
    known = parse(DraftOptions, options, "init")
    return draft_project(
        make_absolute(Path(table)) if isinstance(table, str | Path) else table, known
    )


def draft_project(table: Any, options: DraftOptions) -> Draft:
    """Write the files of `init`, whose table is an absolute path or a frame."""
    home = options.out or options.home
    raw = read_raw(table, options.name)
    draft = draft_dataset(raw, options)
    name = draft.name
    files = {kind: home / FOLDERS[kind] / f"{name}.yaml" for kind in ("dataset", "study")}
    kept = home / RAW / f"{name}.parquet"
    recover(files["study"].parent)
    if files["study"].exists():
        raise _refuse(files["study"])
    at = kept if raw.parquet else Path(os.path.normpath(raw.path or kept))
    location = at.relative_to(home) if at.is_relative_to(home) else at
    with ExitStack() as stack:
        # The last folder is filled first: a study is never without its dataset and table.
        study_folder, dataset_folder, *raw_folder = (
            stack.enter_context(
                filling(path.parent, what="draft", check=partial(_check_free, path))
            )
            for path in (files["study"], files["dataset"], *((kept,) if raw.parquet else ()))
        )
        if raw.parquet:
            (raw_folder[0] / kept.name).write_bytes(raw.parquet)
            location = raw_folder[0] / kept.name
        text = write_dataset(draft, str(location))
        dataset = _try(text, dataset_folder / files["dataset"].name, home)
        if raw.parquet:
            text = write_dataset(draft, (RAW / kept.name).as_posix())
            (dataset_folder / files["dataset"].name).write_text(text, encoding="utf-8")
        made = (files["dataset"], kept), (dataset_folder, *raw_folder)
        for path, folder in zip(*made, strict=False):
            # What is the same was left by a draft that was killed before its study, the last file.
            _check_free(path, folder)
        study = write_study(draft, dataset, named=bool(options.protected))
        (study_folder / files["study"].name).write_text(study, encoding="utf-8")
    return Draft(
        files["dataset"],
        files["study"],
        at,
        _summarise(draft),
        tuple(draft.warnings),
        _name_command(name, home),
        home,
    )


def _check_free(path: Path, folder: Path) -> None:
    """Raise a ConfigError where somebody has written another file of that name meanwhile."""
    if path.exists() and path.read_bytes() != (folder / path.name).read_bytes():
        raise _refuse(path)


def _refuse(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} is there already, and nothing is overwritten.",
        "Choose another name with --name, or remove it.",
    )


def _try(text: str, path: Path, home: Path) -> DatasetConfig:
    """Write a dataset's YAML and load it, so that nothing is left behind that does not load."""
    path.write_text(text, encoding="utf-8")
    try:
        fitted = fit_table(make_request(path, home=home))
        fitted.plan.edits(fitted.encoder)
    except FairfrontierError as error:
        raise type(error)(
            f"A dataset cannot be drafted of this table: {error.fault.replace(f'{path}: ', '')}",
            error.mend,
        ) from None
    return read_dataset(path, home)


def _summarise(draft: DatasetDraft) -> str:
    label = draft.label
    meaning = ""
    if positive := label.keys.get("positive"):
        meaning = f" = {positive if isinstance(positive, str) else ' or '.join(positive)}"
    elif "above" in label.keys:
        meaning = f" > {label.keys['above']:g}"
    protected = ", ".join(attribute.column for attribute in draft.attributes)
    features = len(draft.numeric) + len(draft.categorical)
    return (
        f"label {label.column}{meaning}; protected {protected}; {features} features, "
        f"{len(draft.left_out)} columns left out"
    )


def _name_command(name: str, home: Path) -> str:
    """Return the command line that runs the study from the current folder."""
    try:
        here = home.resolve() == find_home()
    except ConfigError:
        here = False
    arguments = ["fairfrontier", "run", name]
    return shlex.join(arguments if here else [*arguments, "--conf", str(home)])
