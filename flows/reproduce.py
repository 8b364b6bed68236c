"""The reproduce flow: every study that reproduces a table or a figure of a paper."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from fairfrontier.prepare.source.download import UnreachableError
from fairfrontier.runtime.errors import FairfrontierError
from flows.frontier import frontier, restore
from flows.history import mark_run
from flows.option import ReproduceOptions


@flow(name="reproduce", flow_run_name="reproduce {run.profile}", persist_result=False)
def reproduce(run: ReproduceOptions) -> list[dict[str, Any]]:
    """Run every study that reproduces something; one that fails does not stop the others.

    One whose data cannot be reached, as on a machine without a network, is left out and named; data
    that is another than stated is a fault.

    Parameters
    ----------
    run : ReproduceOptions
        Which profile, and where.

    Returns
    -------
    list of dict
        What `flows.frontier.frontier` returns, per study; for one that was left out ``study`` and
        ``unavailable``, a sentence.

    Raises
    ------
    FairfrontierError
        The first fault, after all studies have had their turn.
    """
    mark_run()
    done = []
    faults: list[Exception] = []
    # The heart of this flow beats for all: each of its own would be waited for up to a second.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        for each in run.plan():
            try:
                # A run of its own takes the server longer than files are put back.
                done.append(restore(each) or frontier(each))
            except UnreachableError as error:
                done.append({"study": each.study, "unavailable": error.fault})
            except FairfrontierError as error:
                faults.append(type(error)(f"Study {each.study}: {error.fault}", error.mend))
            except Exception as error:
                error.add_note(f"In study {each.study}.")
                faults.append(error)
    if faults:
        raise faults[0]
    return done
