"""The audit flow: decisions with noisy groups in, what holds for every assignment out."""

from __future__ import annotations

import time
from typing import Any

from prefect import flow

from fairfrontier.audit.auditing import PASSES
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.files import FILES, check_options
from flows.artifact import make_key, publish_audit
from flows.history import mark_run
from flows.table_progress import show_passes
from tasks.audit import bound_rates, report


@flow(name="audit", flow_run_name="{run.name}", persist_result=False)
def audit(run: AuditConfig) -> dict[str, Any]:
    """Bound the rates of true groups from decisions with noisy groups, and say what holds.

    Parameters
    ----------
    run : AuditConfig
        Which table or model, and what is known of the noise.

    Returns
    -------
    dict
        ``folder``, and what stands in audit.json.

    Raises
    ------
    FairfrontierError
        For whatever the user can mend; then no file of an earlier run has changed.
    """
    started = time.monotonic()
    mark_run()
    check_options(run)
    slug = make_key("audit", run.folder.name)
    with show_passes(run.name, PASSES, slug) as progress:
        summary = report(bound_rates(run, progress), started)
    publish_audit(slug, run.folder, FILES)
    return {"folder": str(run.folder), **summary}
