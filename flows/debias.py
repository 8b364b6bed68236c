"""The debias flow: a table of any model's scores in, thresholds, decisions and an audit out."""

from __future__ import annotations

import time
from typing import Any

from prefect import flow

from fairfrontier.auditing.debias import PASSES
from fairfrontier.auditing.debiased import FILES, check_options
from fairfrontier.auditing.option import DebiasConfig
from flows.artifact import publish_debiasing
from flows.table_progress import open_run
from tasks.debias import decide, fit_thresholds


@flow(name="debias", flow_run_name="{run.name}", persist_result=False)
def debias(run: DebiasConfig) -> dict[str, Any]:
    """Fit thresholds by group on a table of scores, decide on its rows, and audit the decisions.

    Returns ``folder`` and the content of summary.json. A FairfrontierError changes no file of an
    earlier run.
    """
    started = time.monotonic()
    with open_run(run, check_options, PASSES) as (slug, progress):
        summary = decide(fit_thresholds(run, progress), started, progress)
    publish_debiasing(slug, run.folder, FILES)
    return {"folder": str(run.folder), **summary}
