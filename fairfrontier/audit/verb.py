"""The verb ``audit``: decisions or scores of groups in, what can be said of the groups out."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairfrontier.audit import auditing, files, plain, plain_files
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.subject import Findings, Progress
from fairfrontier.prepare.table.frame import to_arrow, write_parquet
from fairfrontier.report.summary import list_versions
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.runtime.option import RESULTS, check_again
from fairfrontier.runtime.text_file import to_csv, write_json
from fairfrontier.runtime.writer import filling

FRAME = "The frame"
# Of both kinds: a folder gets the files of one, and loses those of the other.
FILES = RESULTS["audit"]


def audit(
    table: AuditConfig | Path | str | Any, progress: Progress | None = None, **options: Any
) -> Findings:
    """Audit decisions or scores by groups, which may be known with noise only.

    Parameters
    ----------
    table : AuditConfig, path, or frame
        Which table or model; a path of a table, or a frame of pandas, polars or Arrow, with
        ``options``.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.
    **options
        The fields of `AuditConfig`. Where they say how wrong the groups are, groups are noisy.

    Returns
    -------
    Findings
        Of noisy groups, see `run_audit`; of others, see `run_plain_audit`. `write` leaves them in a
        folder.

    Raises
    ------
    ConfigError
        For options that cannot be, and columns that do not exist.
    DataError
        For a cell that cannot be used.

    Notes
    -----
    O(n log n), memory about 100 bytes a row. A frame is written to a private temporary file, so
    that its cells are read as those of a file.

    Examples
    --------
    >>> found = audit(applicants, decisions="hired", groups=["sex", "race"])  # doctest: +SKIP
    >>> found.impact[["level", "rate", "ratio", "four_fifths"]]  # doctest: +SKIP
    """
    if isinstance(table, AuditConfig):
        run = auditing.run_audit if table.noisy else plain.run_plain_audit
        return run(table, progress)
    if isinstance(table, Path | str):
        return audit(parse(AuditConfig, {"table": table, **options}, "ff.audit"), progress)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        config = parse(AuditConfig, {"table": path, **options}, "ff.audit")
        used = config.columns().used() if config.model is None else {}
        write_parquet(to_arrow(table, used), path, FRAME)
        try:
            return audit(config, progress)
        except FairfrontierError as error:
            said = (each.replace(str(path), FRAME) for each in (error.fault, error.mend))
            raise type(error)(*said) from None


def list_passes(config: AuditConfig) -> tuple[str, ...]:
    """Return the names of the passes over the rows."""
    return auditing.PASSES if config.noisy else plain.PASSES


def check_options(config: AuditConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    check = auditing.check_config if config.noisy else plain.check_plain
    check(config)
    config.check_results(config.inputs(), FILES)


def write(findings: Findings, folder: Path, started: float) -> dict[str, Any]:
    """Write the files of an audit to a folder, and return the content of audit.json.

    Tables without rows are left out, and files of earlier audits removed. ``started`` is when the
    work began, by ``time.monotonic``. All files but audit.json and the report's number of seconds
    depend only on the rows, in any order, and the configuration.

    Raises
    ------
    StoreError
        When the folder cannot be written; then no file in it has changed.
    """
    kind: Any = plain_files if isinstance(findings, plain.PlainFindings) else files
    with filling(folder, FILES, check=check_again(folder, FILES, "audit")) as work:
        for name, table in kind.tabulate(findings).items():
            if not table.empty:
                (work / f"{name}.csv").write_bytes(to_csv(table))
        pictures = kind.draw(findings)
        for name, picture in pictures.items():
            (work / f"{name}.png").write_bytes(picture.png)
        summary = {
            "name": folder.name,
            "subject": findings.subject,
            **kind.summarise(findings),
            "versions": list_versions(),
            "seconds": round(time.monotonic() - started, 3),
        }
        report = kind.render(findings, summary, pictures)
        (work / "report.html").write_text(report, encoding="utf-8")
        write_json(summary, work / "audit.json")
    return summary
