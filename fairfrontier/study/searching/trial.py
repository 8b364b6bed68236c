"""What a trial of a search came to: its points, or why it failed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any

import pandas as pd

from fairfrontier.runtime.errors import ClusterError, FairfrontierError, StoreError, explain_missing
from fairfrontier.study.stage import InterruptedRun

# They would end every other trial, too: the disk, the workers, or who interrupts the run.
ENDING = (StoreError, ClusterError, OSError, CancelledError, InterruptedRun)
# Characters of another library's message that are told.
LONGEST = 300


def collect_trial(fits: Sequence[Any], measures: Sequence[Any]) -> pd.DataFrame | str:
    """Return the points of a trial, or why it has none, from the futures of its stages.

    Whatever a fit raises is the trial's failure, except ``ENDING`` and errors of Dask, which are
    raised. Of a measure only errors that a user can mend are failures.
    """
    try:
        for future in fits:
            future.result()
    except Exception as error:
        if _ends_search(error):
            raise
        return _describe(error)
    try:
        tables = [future.result() for future in measures]
    except FairfrontierError as error:
        if _ends_search(error):
            raise
        return error.fault
    points: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return points


def _ends_search(error: Exception) -> bool:
    foreign = any(cls.__module__.startswith("distributed") for cls in type(error).__mro__)
    return foreign or isinstance(error, ENDING)


def _describe(error: Exception) -> str:
    """Return an error in one sentence: of another library its type, and the first line it says."""
    if isinstance(error, ModuleNotFoundError):
        error = explain_missing(error) or error
    if isinstance(error, FairfrontierError):
        return error.fault
    said = (str(error).strip().splitlines() or [""])[0].strip().removesuffix(".")
    text = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
    raised = f"The fit raised {type(error).__name__}"
    # Its constructor escapes what would steer a terminal.
    return FairfrontierError(f"{raised}: {text}." if text else f"{raised}.", "").fault
