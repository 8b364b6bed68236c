"""A finished run as a short JSON file, to be committed as evidence."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.runtime.cached import stamp
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.home import SHIPPED, check_links
from fairfrontier.runtime.text_file import is_plain
from fairfrontier.runtime.writer import filling, settle
from fairfrontier.study.config import StudyConfig
from papers.claim import read_claims
from papers.publication import read_publication

# The measures of the papers' tables, where a dataset has them.
MEASURES = ("accuracy", "balanced_accuracy", "consistency", "gap_max", "gap_rms")
# Records live here; changing them does not change the code that was run.
RUNS = "data/reference/runs"


def record_run(study: StudyConfig, folder: Path, home: Path) -> Path:
    """Write data/reference/runs/STUDY@PROFILE.json from the results in a folder, and return it.

    It holds study, profile, commit, machine, versions, seconds, claims, and per method, setting and
    measure the mean and standard deviation over splits on the test part. What a killed run left is
    completed first. StoreError is raised without results, or where the file cannot be written or
    would replace another one; ConfigError where a link leads into another project.
    """
    settle(folder)
    files = [folder / name for name in ("points.parquet", "summary.json")]
    before = [*map(stamp, files)]
    try:
        points = pd.read_parquet(folder / "points.parquet")
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{folder} holds no finished run.",
            f"Run `fairfrontier run {study.study} --profile {study.profile}` first.",
        ) from error
    if [*map(stamp, files)] != before:
        raise StoreError(f"The results in {folder} were replaced meanwhile.", "Try again.")
    test = points[points.part == "test"]
    names = (test.measure + ":" + test.group).str.removesuffix(":")
    # Levels and cross products are left out unless the study names them: the record is a table to
    # compare with, not an audit.
    plain = test.measure.isin(MEASURES) & ~test.group.str.contains("[=×]")
    test = test[plain | names.isin(_list_mentioned(study, home))]
    by = ["method", "setting", "measure", "group"]
    table = test.groupby(by, sort=True).value.agg(["mean", "std", "count"]).reset_index()
    record = {
        "study": study.study,
        "profile": study.profile,
        "commit": _commit(home),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "seconds": summary["seconds"],
        "versions": summary["versions"],
        "claims": _round(summary["claims"]),
        "part": "test",
        "rows": [_describe_row(row) for row in table.to_dict("records")],
    }
    path = home / RUNS / f"{study.study}@{study.profile}.json"
    check_links(path.parent, home)
    if os.path.lexists(path) and not _is_record(path, [*record]):
        raise StoreError(f"{path} is no record of a run, and would be replaced.", "Move it away.")
    with filling(path.parent, what="record", mend="Mend its permissions.") as work:
        (work / path.name).write_text(_layout(record), encoding="utf-8")
    return path


def _is_record(path: Path, keys: Sequence[str]) -> bool:
    """Whether a file is what `record_run` writes."""
    try:
        record = json.loads(path.read_bytes()) if is_plain(path) else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and [*record] == [*keys]


def _describe_row(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    return {
        "method": row["method"],
        "setting": json.loads(row["setting"]),
        "measure": f"{row['measure']}:{row['group']}" if row["group"] else row["measure"],
        "mean": None if pd.isna(row["mean"]) else round(float(row["mean"]), 5),
        "sd": None if pd.isna(row["std"]) else round(float(row["std"]), 5),
        "n_splits": int(row["count"]),
    }


def _list_mentioned(study: StudyConfig, home: Path) -> set[str]:
    """Return the measures that the frontier, the claims and the published table name."""
    named = {study.frontier.accuracy, *study.frontier.fairness}
    for claim in read_claims(study):
        named |= set(claim.check.measure)
    if study.published is not None:
        publication, table = read_publication(study.published.reproduces, home)
        named |= set(publication.tables[table].sources)
    return named


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Mapping):
        return {key: _round(item) for key, item in value.items()}
    return [_round(item) for item in value] if isinstance(value, list) else value


def _layout(record: dict[str, Any]) -> str:
    """Return JSON with one row of the table or one claim per line, for readable diffs."""
    text = json.dumps({**record, "claims": [], "rows": []}, indent=1, ensure_ascii=False)
    for name in ("claims", "rows"):
        lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in record[name])
        if lines:
            text = text.replace(f'"{name}": []', f'"{name}": [\n  {lines}\n ]')
    return text + "\n"


def _commit(home: Path) -> str:
    """Return the commit of the checkout, marked dirty where files other than records differ.

    Only the package's own is asked for: git runs programs that a repository's settings name.
    """
    if home.resolve() != SHIPPED:
        return "unknown"
    changed = ["status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude){RUNS}"]
    options: dict[str, Any] = {"cwd": home, "capture_output": True, "text": True, "check": True}
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], **options)  # noqa: S607
        differ = subprocess.run(["git", *changed], **options)  # noqa: S603, S607
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    commit: str = head.stdout.strip()
    return f"{commit}-dirty" if differ.stdout.strip() else commit
