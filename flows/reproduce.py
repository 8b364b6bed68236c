"""The reproduce flow: every study that reproduces a table or a figure of a paper."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from fairfrontier.cli.terminal import show
from fairfrontier.runtime.errors import FairfrontierError, UnreachableError
from flows.frontier import frontier, restore
from flows.history import mark_run
from flows.option import ReproduceOptions
from papers.showing import show_reproduced


@flow(name="reproduce", flow_run_name="reproduce {run.profile}", persist_result=False)
def reproduce(run: ReproduceOptions) -> list[dict[str, Any]]:
    """Run every study that reproduces something, and print what each reproduces when it is done.

    A study that fails does not stop the others.

    Returns what `flows.frontier.frontier` returns, per study. A study whose data cannot be reached,
    as on a machine without a network, is skipped, with the reason under ``unavailable``; data whose
    digest is wrong is an error. The first error is raised after all studies.
    """
    mark_run()
    done = []
    faults: list[Exception] = []
    # One heartbeat is enough: at its end each flow waits for its own up to a second.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        for options in run.plan():
            try:
                # Restoring files takes less time than the server needs for a separate run.
                done.append(restore(options) or frontier(options))
                show_reproduced(done[-1])
            except UnreachableError as error:
                done.append({"study": options.study, "unavailable": error.fault})
                show(f"{options.study} is skipped: {error.fault}")
            except FairfrontierError as error:
                faults.append(type(error)(f"Study {options.study}: {error.fault}", error.mend))
            except Exception as error:
                error.add_note(f"In study {options.study}.")
                faults.append(error)
    if faults:
        raise faults[0]
    return done
