"""What watching a bundle leaves: its history, the rates by period, alarms, and a page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.figure.frontier import name_measure
from fairfrontier.monitor.alarm import LIMIT, REFERENCE
from fairfrontier.monitor.config import MonitorConfig
from fairfrontier.monitor.figure import draw_evidence, draw_rates
from fairfrontier.monitor.history import SUMMARY, name_kept
from fairfrontier.monitor.monitoring import Findings, Progress, check_config, name_period, watch
from fairfrontier.report.finding import embed, list_versions, open_template
from fairfrontier.runtime.config import parse
from fairfrontier.runtime.option import RESULTS, check_again
from fairfrontier.runtime.text_file import list_rows, to_csv, write_json
from fairfrontier.runtime.writer import filling, holding
from fairfrontier.study.drawing import Picture

FILES = RESULTS["monitor"]
TEMPLATE = Path(__file__).with_name("monitor.html.j2")
# Rows of the page's tables; all are in the files.
SHOWN_AT_MOST = 40


def check_options(config: MonitorConfig) -> None:
    """Raise a FairfrontierError for whatever is known to be wrong before a row is read."""
    check_config(config)
    written = [*FILES, name_kept(name_period(config))]
    config.check_results([config.table], written)


def run_monitor(
    bundle: MonitorConfig | Path | str, progress: Progress | None = None, **options: Any
) -> dict[str, Any]:
    """Count a new period of a bundle's rows, or labels that come later, and say what changed.

    Parameters
    ----------
    bundle : MonitorConfig or path
        Which bundle, table and period; the path of a bundle with ``options``.
    progress : callable, optional
        As of `watch`.
    **options
        The fields of `MonitorConfig`: ``table``, ``period``, ``limit`` and so on.

    Returns
    -------
    dict
        The content of monitor.json: ``alarms``, ``raised`` (those that were no event of the flow
        yet), ``limits``, ``counts``, ``drift``, ``periods`` and so on. The ``FILES`` in
        ``config.folder`` are written.

    Raises
    ------
    ConfigError, DataError, StoreError
        As in `watch`; then no file has changed.
    """
    started = time.monotonic()
    config = bundle
    if not isinstance(config, MonitorConfig):
        config = parse(MonitorConfig, {"bundle": config, **options}, "The options of monitor")
    check_options(config)
    with holding(config.folder):
        return write_monitor(watch(config, progress), started)


def write_monitor(findings: Findings, started: float) -> dict[str, Any]:
    """Write the ``FILES`` and the decisions kept of the period; return the content of monitor.json.

    Whoever holds the folder since its history was read may.

    Raises
    ------
    StoreError
        When the folder cannot be written; then no file in it has changed.
    """
    folder, kept = findings.config.folder, name_kept(name_period(findings.config))
    check = check_again(folder, [*FILES, kept], "monitor")
    with filling(folder, FILES, held=True, check=check) as work:
        findings.history.write(work)
        if findings.kept is not None:
            findings.kept.to_parquet(work / kept, index=False)
        (work / "rates.csv").write_bytes(to_csv(findings.rates))
        (work / "checks.csv").write_bytes(to_csv(findings.checks))
        (work / "evidence.csv").write_bytes(to_csv(findings.evidence))
        pictures = {"rates": draw_rates(findings), "evidence": draw_evidence(findings)}
        for name, picture in pictures.items():
            (work / f"{name}.png").write_bytes(picture.png)
        summary = summarise(findings)
        summary["seconds"] = round(time.monotonic() - started, 3)
        report = render_monitor(findings, summary, pictures)
        (work / "report.html").write_text(report, encoding="utf-8")
        write_json(summary, work / SUMMARY)
    return summary


def mark_announced(findings: Findings, names: Iterable[str]) -> None:
    """Note in the history that the alarms of some checks were announced, for good.

    Whoever holds the folder since its history was read may.
    """
    announced = (*findings.history.announced, *names)
    with filling(findings.config.folder, held=True) as work:
        replace(findings.history, announced=announced).write(work)


def summarise(findings: Findings) -> dict[str, Any]:
    """Return what was found as plain values; None for what is unknown."""
    config, history, bundle = findings.config, findings.history, findings.bundle
    period = name_period(config)
    alarms = list_rows(findings.alarms)
    limits = list_rows(findings.checks[findings.checks["kind"] == LIMIT])
    drift = history.drift[history.drift["period"] == period].drop(columns=["entry", "period"])
    return {
        "name": config.folder.name,
        "bundle": {
            "name": config.name,
            "digest": history.bundle,
            "study": bundle.manifest["study"],
            "selected": bundle.class_names[int(bundle.favourable != 0)],
        },
        "period": period,
        "new": findings.new,
        "alpha": history.alpha,
        "alarms": [{**alarm, "sentence": say(alarm)} for alarm in alarms],
        # What a flow makes events of, and then marks.
        "raised": [each["name"] for each in alarms if each["name"] not in history.announced],
        "limits": limits,
        "counts": {
            "periods": len(history.periods),
            "rows": int(history.entries["rows"].sum()),
            "labels": int(history.entries["labelled"].sum()),
            "refused": int(history.entries["refused"].sum()),
            "checks": len(findings.checks),
            "alarms": len(alarms),
        },
        "drift": list_rows(_sort_drift(drift)),
        "periods": _list_periods(findings),
        "versions": list_versions(),
    }


def say(check: Mapping[str, Any]) -> str:
    """Return an alarm as a sentence."""
    name, since = name_measure(check["name"]), check["alarm"]
    if check["kind"] == LIMIT:
        bound = check["high"] if check["low"] == 0 else check["low"]
        return f"{name} has passed its limit {bound:g}, known since {since}."
    group = f" of {check['attribute']}={check['group']}" if check["attribute"] else ""
    return (
        f"{name_measure(check['rate'])}{group} has left {check['low']:.3f} to {check['high']:.3f}, "
        f"where it was on the reference rows, known since {since}."
    )


def _list_periods(findings: Findings) -> list[dict[str, Any]]:
    """Return the periods with their rows, labels, refused rows and those of no known group."""
    sums = findings.history.entries.groupby("period", sort=False)
    table = sums[["rows", "labelled", "refused"]].sum().astype(int)
    return [
        {
            "period": str(name),
            "rows": int(r),
            "labels": int(y),
            "refused": int(n),
            "unknown": findings.history.count_unknown(str(name)),
        }
        for name, r, y, n in table.itertuples()
    ]


def _sort_drift(drift: pd.DataFrame) -> pd.DataFrame:
    """Return columns by how far they drifted beyond chance."""
    beyond = (drift["psi"] / drift["psi_by_chance"]).astype(float)
    return drift.assign(beyond=beyond).sort_values("beyond", ascending=False, kind="stable")


def render_monitor(
    findings: Findings, summary: Mapping[str, Any], pictures: Mapping[str, Picture]
) -> str:
    """Return the page as HTML, in which all text from data or configuration is escaped."""
    compared = findings.checks[findings.checks["kind"] == REFERENCE].sort_values("p", kind="stable")
    return open_template(TEMPLATE).render(
        summary=summary,
        config=findings.config,
        pictures={name: embed(picture) for name, picture in pictures.items()},
        checks=list_rows(compared.head(SHOWN_AT_MOST)),
        more=max(0, len(compared) - SHOWN_AT_MOST),
        drift=summary["drift"][:SHOWN_AT_MOST],
    )
