"""The audit flow: decisions with noisy groups in, what holds for every assignment out."""

from __future__ import annotations

import time
from typing import Any

from prefect import flow

from fairfrontier.audit.auditing import PASSES
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.files import FILES, check_options
from flows.artifact import publish_audit
from flows.table_progress import open_run
from tasks.audit import bound_rates, report


@flow(name="audit", flow_run_name="{run.name}", persist_result=False)
def audit(run: AuditConfig) -> dict[str, Any]:
    """Bound the rates of true groups from decisions with noisy groups, and say what holds.

    Returns ``folder`` and the content of audit.json. A FairfrontierError changes no file of an
    earlier run.
    """
    started = time.monotonic()
    with open_run(run, check_options, PASSES) as (slug, progress):
        summary = report(bound_rates(run, progress), started)
    publish_audit(slug, run.folder, FILES)
    return {"folder": str(run.folder), **summary}
