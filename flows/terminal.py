"""Running a flow from the terminal, on a server that lives as long as the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairfrontier.cli.terminal import log_to_terminal, telling_how_to_resume


def run_on_server(home: Path, check: Callable[[], None], start: Callable[[], None]) -> None:
    """Check what is asked for while the server starts, then run the flow there.

    Parameters
    ----------
    home : Path
        The project root.
    check : callable
        Raises what is wrong with what is asked for.
    start : callable
        Runs the flow.
    """
    from flows.server import set_environment, start_server

    # What goes wrong is said once, by this module, and in full by the server's log.
    set_environment(home, console_level="CRITICAL")
    log_to_terminal()
    with start_server(home) as server:
        check()
        server.wait()
        from flows.history import crash_dead_runs, send_rest

        crash_dead_runs()
        try:
            with telling_how_to_resume("What is finished is kept", "go on", "python -m flows"):
                start()
        finally:
            send_rest()
