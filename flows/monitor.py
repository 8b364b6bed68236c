"""The monitor flow: a bundle and a new period in, alarms out, each of them an event."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.events import emit_event
from prefect.runtime import flow_run

from fairfrontier.deployment.config import MonitorConfig
from fairfrontier.deployment.monitoring import FILES, PASSES, check_options, mark_announced
from fairfrontier.runtime.writer import holding
from flows.artifact import publish_monitor
from flows.table_progress import open_run
from tasks.monitor import count_rows, report

ALARM = "fairfrontier.alarm.raised"


@flow(name="monitor", flow_run_name="{run.name}", persist_result=False)
def monitor(run: MonitorConfig) -> dict[str, Any]:
    """Count a new period of a bundle's rows, and say which rates changed or passed a limit.

    In ``table``, %G-W%V and what else `strftime` knows stand for the time for which the run was
    scheduled, so that a schedule finds the table of its week. Every alarm is an event, once unless
    a run ends before it could mark it: ``fairfrontier.alarm.raised`` of the resource
    ``fairfrontier.bundle.NAME``, with the label ``fairfrontier.study`` and the alarm as payload.
    Returns ``folder`` and the content of monitor.json. A FairfrontierError changes no file of an
    earlier run.
    """
    started = time.monotonic()
    scheduled = flow_run.get_scheduled_start_time()
    run = run.model_copy(update={"table": Path(scheduled.strftime(str(run.table)))})
    with open_run(run, check_options, PASSES) as (slug, progress), holding(run.folder):
        findings = count_rows(run, progress)
        summary = report(findings, started)
        sent = [
            alarm["name"]
            for alarm in summary["alarms"]
            if alarm["name"] in summary["raised"] and _announce(alarm, summary)
        ]
        # It asks the server, which then has the events, too.
        publish_monitor(slug, run.folder, FILES)
        if sent:
            mark_announced(findings, sent)
    return {"folder": str(run.folder), **summary}


def _announce(alarm: dict[str, Any], summary: dict[str, Any]) -> bool:
    """Make an event of an alarm; return whether Prefect took it."""
    resource = {
        "prefect.resource.id": f"fairfrontier.bundle.{summary['name']}",
        "prefect.resource.name": summary["name"],
        "fairfrontier.study": summary["bundle"]["study"],
    }
    payload = {"period": summary["period"], **alarm}
    return emit_event(ALARM, resource, payload=payload) is not None
