"""The audit flow: decisions or scores of groups in, what can be said of the groups out."""

from __future__ import annotations

import time
from typing import Any

from prefect import flow

from fairfrontier.auditing.audit import FILES, check_options, list_passes
from fairfrontier.auditing.option import AuditConfig
from flows.artifact import publish_audit
from flows.table_progress import open_run
from tasks.audit import examine, report


@flow(name="audit", flow_run_name="{run.name}", persist_result=False)
def audit(run: AuditConfig) -> dict[str, Any]:
    """Compare groups in decisions or scores; of noisy groups, say what holds of the true ones.

    Returns ``folder`` and the content of audit.json. A FairfrontierError changes no file of an
    earlier run.
    """
    started = time.monotonic()
    with open_run(run, check_options, list_passes(run)) as (slug, progress):
        summary = report(examine(run, progress), started)
    publish_audit(slug, run.folder, FILES)
    return {"folder": str(run.folder), **summary}
