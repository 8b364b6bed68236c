"""What an audit of noisy groups leaves behind: bounds, conclusions, the noise, and a report."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.audit.auditing import Findings, check_config
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.figure import draw_bounds
from fairfrontier.audit.report import render_audit
from fairfrontier.figure.frontier import name_measure
from fairfrontier.prepare.table.audit_table import digest_table
from fairfrontier.report.summary import list_versions
from fairfrontier.report.text_file import write_csv, write_json
from fairfrontier.runtime.writer import filling

FILES = ("bounds.csv", "bounds.png", "conclusions.csv", "noise.csv", "report.html", "audit.json")


def check_options(config: AuditConfig) -> None:
    """Raise a FairfrontierError for what can be known to be wrong before a row is read."""
    check_config(config)
    config.check_results(config.inputs(), FILES)


def write_audit(findings: Findings, folder: Path, started: float) -> dict[str, Any]:
    """Write what an audit leaves behind.

    Parameters
    ----------
    findings : Findings
        From `run_audit`.
    folder : Path
        Gets the ``FILES``. Other files in it stay.
    started : float
        When the work began, by ``time.monotonic``.

    Returns
    -------
    dict
        What stands in audit.json.

    Raises
    ------
    StoreError
        When the folder cannot be written; then no file in it has changed.

    Notes
    -----
    All files but audit.json and the report's number of seconds depend on the rows and the
    configuration alone, and not on the order of the rows.
    """
    with filling(folder, FILES) as work:
        picture = draw_bounds(findings.bounds, findings.config.budget, findings.rests_on)
        (work / "bounds.png").write_bytes(picture.png)
        write_csv(findings.bounds, work / "bounds.csv")
        write_csv(findings.conclusions, work / "conclusions.csv")
        write_csv(findings.description, work / "noise.csv")
        summary = summarise(findings, folder.name)
        summary["seconds"] = round(time.monotonic() - started, 3)
        report = render_audit(findings, summary, picture)
        (work / "report.html").write_text(report, encoding="utf-8")
        write_json(summary, work / "audit.json")
    return summary


def summarise(findings: Findings, name: str) -> dict[str, Any]:
    """Return what was audited and what came of it, as plain values; None where nothing is known."""
    config, noise = findings.config, findings.noise
    verdicts = [
        {key: _plain(value) for key, value in row.items()} | {"sentence": say(row, config.budget)}
        for row in findings.verdicts().to_dict("records")
    ]
    held = sum(each["verdict"] != "open" for each in verdicts)
    given: dict[str, Any] = {"from": findings.source}
    if config.level is not None:
        given["level"] = config.level
    for option in ("confusion", "auxiliary"):
        path = getattr(config, option)
        if path is not None:
            given |= {"file": path.name, "sha256": digest_table(path)}
    if config.true_group is not None:
        given["true_group"] = config.true_group
    if noise.counts is not None:
        given["rows"] = int(noise.counts.sum())
    if config.prior is not None:
        given["prior"] = dict(config.prior)
    return {
        "name": name,
        "subject": findings.subject,
        "noise": {
            **given,
            "groups": list(noise.names),
            "noisy_groups": list(noise.noisy_names),
            "confusion": noise.confusion.tolist(),
            "posterior": noise.posterior.tolist(),
        },
        "budget": config.budget,
        "confidence": config.confidence if findings.rests_on == "limit" else None,
        "rates": list(config.rates),
        "rests_on": findings.rests_on,
        "counts": {
            "rows": findings.rows.n_samples,
            "noisy_groups": len(noise.noisy_names),
            "true_groups": len(noise.names),
            "conclusions": len(verdicts),
            "held": held,
            "open": len(verdicts) - held,
        },
        "overall": {
            row["measure"]: _plain(row["value"])
            for row in findings.bounds.loc[findings.bounds["bound"] == "overall"].to_dict("records")
        },
        "conclusions": verdicts,
        "versions": list_versions(),
    }


def say(row: dict[Any, Any], budget: float) -> str:
    """Return a conclusion as a sentence."""
    rate, group = name_measure(str(row["measure"])), row["group"]
    other = f"that of {row['other']}" if row["other"] else "that of all rows"
    margin = f" by more than {budget:g}" if not row["other"] and budget > 0 else ""
    low, high = row["low"], row["high"]
    if row["verdict"] == "below":
        return f"{rate} of {group} is lower than {other}{margin}: by {-high:.3f} to {-low:.3f}."
    if row["verdict"] == "above":
        return f"{rate} of {group} is higher than {other}{margin}: by {low:.3f} to {high:.3f}."
    if row["verdict"] == "within":
        if row["other"] or budget == 0:
            return f"{rate} of {group} equals {other}."
        return f"{rate} of {group} is within {budget:g} of {other}: {low:+.3f} to {high:+.3f}."
    if math.isnan(low) or math.isnan(high):
        return f"{rate} of {group} against {other} stays open: a group may have no such row."
    return f"{rate} of {group} against {other} stays open: {low:+.3f} to {high:+.3f}."


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
