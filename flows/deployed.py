"""What the worker starts for a run: Prefect's engine, which keeps the server, and ends with it."""

from __future__ import annotations

import fcntl
import os
import runpy
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from flows.server import POLL_SECONDS, lock


def main() -> None:
    """Run the flow run that the environment names, unless its server has ended."""
    folder = Path(os.environ["PREFECT_HOME"])
    # Held by this process until it ends, so that the server outlasts it.
    _use = lock(folder / "runs.lock", fcntl.LOCK_SH)
    if not (folder / "server.lock").exists() or not _is_running(folder):
        sys.exit(f"The server of {folder} has ended.")
    threading.Thread(target=_end_with_server, args=(folder,), daemon=True).start()
    runpy.run_module("prefect.engine", run_name="__main__")


def _is_running(folder: Path) -> bool:
    """Return whether the server that this run asks holds its lock."""
    path = folder / "server.lock"
    process, _, url = path.read_text(encoding="utf-8").partition(" ")
    if url != os.environ.get("PREFECT_API_URL"):
        return False
    with path.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            # A file system without locks.
            return _is_alive(int(process))
    return False


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _end_with_server(folder: Path) -> None:
    """End this process when a server was killed: another user may have taken its port."""
    running = True
    while running:
        time.sleep(POLL_SECONDS)
        # The next look may succeed where this one did not.
        with suppress(OSError):
            running = _is_running(folder)
    os._exit(1)


if __name__ == "__main__":
    main()
