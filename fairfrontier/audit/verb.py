"""The verb ``audit``: decisions or scores of groups in, what can be said of the groups out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairfrontier.audit import auditing, files, plain, plain_files
from fairfrontier.audit.auditing import Findings, Progress
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.plain import PlainFindings

# Of both kinds: a folder gets the files of one, and loses those of the other.
FILES = tuple(sorted({*files.FILES, *plain_files.FILES}))


def audit(config: AuditConfig, progress: Progress | None = None) -> Findings | PlainFindings:
    """Audit decisions or scores by groups, which may be known with noise only.

    Parameters
    ----------
    config : AuditConfig
        Which table or model; where it says how wrong the groups are, they are noisy.
    progress : callable, optional
        Called with the name of a pass and the share of it that is done, from 0 to 1.

    Returns
    -------
    Findings or PlainFindings
        Of noisy groups, see `run_audit`; of others, see `run_plain_audit`. `write` leaves either in
        a folder.

    Raises
    ------
    FairfrontierError
        As these two do.

    Notes
    -----
    O(n log n), memory about 100 bytes a row of a table.

    Examples
    --------
    >>> config = AuditConfig(
    ...     table="decisions.csv", decisions="hired", groups=("sex", "race")
    ... )  # doctest: +SKIP
    >>> audit(config).impact  # doctest: +SKIP
    """
    run = auditing.run_audit if config.noisy else plain.run_plain_audit
    return run(config, progress)


def list_passes(config: AuditConfig) -> tuple[str, ...]:
    """Return the names of the passes over the rows."""
    return auditing.PASSES if config.noisy else plain.PASSES


def check_options(config: AuditConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    check = auditing.check_config if config.noisy else plain.check_plain
    check(config)
    config.check_results(config.inputs(), FILES)


def write(findings: Findings | PlainFindings, folder: Path, started: float) -> dict[str, Any]:
    """Write the files of an audit to a folder, and return the content of audit.json.

    ``started`` is when the work began, by ``time.monotonic``. All files but audit.json and the
    report's number of seconds depend only on the rows, in any order, and the configuration.

    Raises
    ------
    StoreError
        When the folder cannot be written; then no file in it has changed.
    """
    if isinstance(findings, PlainFindings):
        return plain_files.write_plain_audit(findings, folder, started, FILES)
    return files.write_audit(findings, folder, started, FILES)
