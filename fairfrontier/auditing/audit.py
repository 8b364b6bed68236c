"""The verb ``audit``: decisions or scores of groups in, what can be said of the groups out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairfrontier.auditing import known_groups, noisy_groups
from fairfrontier.auditing.option import AuditConfig
from fairfrontier.auditing.subject import Findings, Progress
from fairfrontier.prepare.table.frame import as_file
from fairfrontier.report.finding import write_finding
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.option import RESULTS

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
        Of noisy groups, see `run_noisy_audit`; of others, see `run_known_audit`. `write` leaves
        them in a folder.

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
        run = noisy_groups.run_noisy_audit if table.noisy else known_groups.run_known_audit
        return run(table, progress)
    if isinstance(table, Path | str):
        return audit(parse(AuditConfig, {"table": table, **options}, "ff.audit"), progress)
    config = parse(AuditConfig, {"table": Path("table.parquet"), **options}, "ff.audit")
    with as_file(table, config.columns().used() if config.model is None else {}) as path:
        return audit(config.model_copy(update={"table": path}), progress)


def list_passes(config: AuditConfig) -> tuple[str, ...]:
    """Return the names of the passes over the rows."""
    return noisy_groups.PASSES if config.noisy else known_groups.PASSES


def check_options(config: AuditConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    check = noisy_groups.check_noisy if config.noisy else known_groups.check_known
    check(config)
    config.check_results(config.inputs(), FILES)


def write(findings: Findings, folder: Path, started: float) -> dict[str, Any]:
    """Write the files of an audit, and return the content of audit.json; see `write_finding`."""
    return write_finding("audit", folder, lambda _: findings, started)
