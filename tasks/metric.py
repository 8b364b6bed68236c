"""Prefect's door to fair metrics: learn one once, so that a fault shows before the fits start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from fairfrontier.metric import learn
from fairfrontier.prepare import load


@task(task_run_name="learn the metric of {dataset}", tags=["metric"], cache_policy=NO_CACHE)
def learn_metric(
    metric: dict[str, Any],
    dataset: str,
    seed: int,
    rows: int | None,
    select_on: str | None,
    home: str,
) -> dict[str, Any]:
    """Learn a fair metric on a split and return its size as plain numbers."""
    split = load(dataset, seed, rows=rows, select_on=select_on, home=Path(home))  # type: ignore[arg-type]
    parameters = {name: value for name, value in metric.items() if name != "name"}
    learnt = learn(metric["name"], split, **parameters)
    return {
        "metric": metric["name"],
        "features": int(learnt.sigma.shape[0]),
        "directions": int(learnt.directions.shape[0]),
    }
