"""What the worker starts for a run: Prefect's engine, which keeps the server, and ends with it."""

from __future__ import annotations

import fcntl
import os
import runpy
import sys
import threading
import time
from pathlib import Path

from flows.server import POLL_SECONDS, find_running, lock


def main() -> None:
    """Run the flow run that the environment names, unless its server has ended."""
    folder = Path(os.environ["PREFECT_HOME"])
    # Held by this process until it ends, so that the server outlasts it.
    _use = lock(folder / "runs.lock", fcntl.LOCK_SH)
    if not _is_running(folder):
        sys.exit(f"The server of {folder} has ended.")
    threading.Thread(target=_end_with_server, args=(folder,), daemon=True).start()
    runpy.run_module("prefect.engine", run_name="__main__")


def _is_running(folder: Path) -> bool:
    running = find_running(folder)
    return running is not None and running[1] == os.environ.get("PREFECT_API_URL")


def _end_with_server(folder: Path) -> None:
    """End this process when a server was killed: another user may have taken its port."""
    while _is_running(folder):
        time.sleep(POLL_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
