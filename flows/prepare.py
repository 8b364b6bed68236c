"""The prepare flow: load a table as its YAML describes it, and show its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from fairfrontier.prepare.description import PrepareConfig
from flows.artifact import FetchArtifact, make_key, publish_table
from flows.history import mark_run
from tasks.prepare import prepare_table


@flow(name="prepare", flow_run_name="{run.dataset}", persist_result=False)
def prepare(run: PrepareConfig) -> list[dict[str, Any]]:
    """Load a dataset and return one row per part: sizes, the label's mean, shares of groups.

    The rows are plain numbers, also published as a table artifact.
    """
    import pandas as pd

    mark_run()
    name = Path(run.dataset).stem
    rows = prepare_table(run.dataset, run.seed, str(run.home), FetchArtifact(name))
    publish_table(make_key(name), "parts", pd.DataFrame(rows), f"Parts of {name}")
    return rows
