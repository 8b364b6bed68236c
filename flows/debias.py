"""The debias flow: a table of any model's scores in, thresholds, decisions and an audit out."""

from __future__ import annotations

import time
from typing import Any

from prefect import flow

from fairfrontier.debias.config import DebiasConfig
from fairfrontier.debias.debiasing import PASSES
from fairfrontier.debias.files import FILES, check_options
from flows.artifact import make_key, publish_debiasing
from flows.history import mark_run
from flows.table_progress import show_passes
from tasks.debias import decide, fit_thresholds


@flow(name="debias", flow_run_name="{run.name}", persist_result=False)
def debias(run: DebiasConfig) -> dict[str, Any]:
    """Fit thresholds by group on a table of scores, decide on its rows, and audit the decisions.

    Parameters
    ----------
    run : DebiasConfig
        Which table and columns, and what the decisions are held to.

    Returns
    -------
    dict
        ``folder``, and what stands in summary.json.

    Raises
    ------
    FairfrontierError
        For whatever the user can mend; then no file of an earlier run has changed.
    """
    started = time.monotonic()
    mark_run()
    check_options(run)
    slug = make_key("debias", run.folder.name)
    with show_passes(run.name, PASSES, slug) as progress:
        summary = decide(fit_thresholds(run, progress), started, progress)
    publish_debiasing(slug, run.folder, FILES)
    return {"folder": str(run.folder), **summary}
