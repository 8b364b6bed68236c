"""Running a flow from the terminal, on a server for the time of the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairfrontier.cli.terminal import log_to_terminal, telling_how_to_resume


def run_on_server(home: Path, check: Callable[[], None], start: Callable[[], None]) -> None:
    """Check the options while the server starts, then run the flow there."""
    from flows.server import set_environment, start_server

    # Errors are printed once, by this module; the server's log has the details.
    set_environment(home, console_level="CRITICAL")
    log_to_terminal()
    with start_server(home) as server:
        check()
        # Prefect takes two seconds to import, as its server does to start.
        import flows.frontier  # noqa: F401
        from flows.history import crash_dead_runs, flush_workers

        server.wait()
        crash_dead_runs()
        try:
            with telling_how_to_resume("What is finished is kept", "go on", "python -m flows"):
                start()
        finally:
            flush_workers()
