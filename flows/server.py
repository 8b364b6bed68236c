"""The Prefect server of a run: a child on loopback that dies with it.

Prefect's own ephemeral server prints pages of tracebacks at a successful exit, and is orphaned by
kill -9. This one logs to server.log in Prefect's folder, of which one run at a time takes hold, and
ends when its standard input closes, which happens however its parent ends. This module does not
import Prefect: the environment comes first.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from fairfrontier.runtime.errors import ClusterError, StoreError

LOOPBACK = "127.0.0.1"
START_SECONDS = 120.0
# How long a server of the user's may keep silent.
ANSWER_SECONDS = 10.0
Scope = Literal["run", "serve"]


def set_environment(home: Path, *, console_level: str | None = None) -> None:
    """Set Prefect's switches, as absolute environment variables, before Prefect is imported.

    Parameters
    ----------
    home : Path
        The project root: Prefect's home becomes data/prefect in it, unless PREFECT_HOME is set.
    console_level : str, optional
        The level from which Prefect's log shows on the terminal; all of it goes to the server.

    Notes
    -----
    What the user has set stays. Relative paths in ``[tool.prefect]`` would follow the current
    folder; these do not, and worker processes inherit them.
    """
    place = find_place(home)
    switches = {
        "PREFECT_HOME": str(place),
        "PREFECT_PROFILES_PATH": str(place / "profiles.toml"),
        "PREFECT_LOCAL_STORAGE_PATH": str(place / "storage"),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "fairfrontier",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_CLI_PROMPT": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
        "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    }
    if console_level:
        switches["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = console_level
    for name, value in switches.items():
        os.environ.setdefault(name, value)
    # A proxy is no way to loopback.
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*hosts, LOOPBACK, "localhost"]))
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"Prefect's folder {place} cannot be made: {error.strerror}.",
            "Make the project's data folder writable, or set PREFECT_HOME.",
        ) from error


def find_place(home: Path) -> Path:
    """Return Prefect's folder: PREFECT_HOME where it is set, else data/prefect of the project."""
    named = os.environ.get("PREFECT_HOME")
    return Path(named).expanduser().absolute() if named else home / "data" / "prefect"


def hold(place: Path, note: str = "") -> IO[str]:
    """Hold Prefect's folder for this process, which closes what is returned to let go of it.

    Parameters
    ----------
    place : Path
        The folder; the lock is ``run.lock`` in it.
    note : str
        Address of the API, where other runs may use it.

    Raises
    ------
    StoreError
        When another process holds it: two servers would write to one SQLite file.

    Notes
    -----
    The system lets go of the lock however the process ends. Where the file system has no locks,
    nobody is kept out.
    """
    lock = (place / "run.lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with lock:
            process, url = _read_holder(lock)
        mend = "Wait for its end, or give this one a folder of its own: PREFECT_HOME=$(mktemp -d)."
        if url:
            mend = f"Run on its server, with PREFECT_API_URL={url}, or end it."
        raise StoreError(
            f"Another run, process {process}, is going on here and holds {place}.", mend
        ) from None
    except OSError:
        return lock
    lock.truncate(0)
    lock.write(f"{os.getpid()} {note}\n")
    lock.flush()
    return lock


def _read_holder(lock: IO[str]) -> tuple[str, str]:
    """Return the process that holds a folder, and its address; it writes them once it holds it."""
    for _ in range(20):
        lock.seek(0)
        process, _, url = lock.read().strip().partition(" ")
        if process:
            return process, url
        time.sleep(0.05)
    return "unknown", ""


class Server:
    """A Prefect server for the time of a run.

    Parameters
    ----------
    home : Path
        The project root.
    scope : {"run", "serve"}
        ``run`` leaves out the user interface and the scheduler.
    port : int
        0 takes a free one.

    Attributes
    ----------
    url : str
        Address of the API; also put into PREFECT_API_URL.

    Raises
    ------
    StoreError
        When another run holds Prefect's folder, or it cannot be written.
    ClusterError
        When the port is taken.
    """

    def __init__(self, home: Path, scope: Scope = "run", port: int = 0) -> None:
        place = find_place(home)
        self.log = place / "server.log"
        self._child: subprocess.Popen[str] | None = None
        given = os.environ.get("PREFECT_API_URL")
        if given and scope == "run":
            self.url = given
            return
        try:
            self._lock = hold(place, f"http://{LOOPBACK}:{port}/api" if scope == "serve" else "")
            log = self.log.open("w", encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"Prefect's folder {place} cannot be written: {error.strerror}.",
                "Make the project's data folder writable, or set PREFECT_HOME.",
            ) from error
        with log:
            self._child = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "flows.server", scope, str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).resolve().parents[1],
                start_new_session=True,  # Ctrl-C is for the run, which then stops its server
            )
        atexit.register(self.stop)
        told = _pipe(self._child.stdout).readline().strip()
        if not told:
            self.stop()
            raise ClusterError(
                f"No server could listen on {LOOPBACK}, port {port or 'any'} (see {self.log}).",
                "Choose another port, or set PREFECT_API_URL to a server that runs.",
            )
        self.url = f"http://{LOOPBACK}:{told}/api"
        os.environ["PREFECT_API_URL"] = self.url

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until the server answers; raise ClusterError when it does not."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        end = time.monotonic() + (seconds if self._child else ANSWER_SECONDS)
        while True:
            try:
                patience = max(0.1, min(5.0, end - time.monotonic()))
                with opener.open(f"{self.url}/health", timeout=patience):
                    return
            except urllib.error.HTTPError:
                return  # it answers, and may want a key that Prefect's client has
            except OSError as error:
                reason = error
            if self._child is None and time.monotonic() > end:
                raise ClusterError(
                    f"PREFECT_API_URL is {self.url}, where nothing answers: {reason}.",
                    "Start that server, or unset PREFECT_API_URL: a run then brings its own.",
                )
            if self._child is not None and (
                self._child.poll() is not None or time.monotonic() > end
            ):
                self.stop()
                raise ClusterError(
                    f"The Prefect server did not start within {seconds:g} s.",
                    f"Its log is {self.log}.",
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server if it is ours."""
        child, self._child = self._child, None
        if child is None:
            return
        os.environ.pop("PREFECT_API_URL", None)
        _pipe(child.stdin).close()
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        _pipe(child.stdout).close()
        self._lock.close()
        atexit.unregister(self.stop)


@contextmanager
def start_server(home: Path, scope: Scope = "run", port: int = 0) -> Iterator[Server]:
    """Start a server without waiting for it, and stop it in the end; see `Server`."""
    server = Server(home, scope, port)
    try:
        yield server
    finally:
        server.stop()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # noqa: S101
    return stream


def serve(scope: str, port: int) -> None:
    """Be the server: tell the port on standard output, end when standard input closes."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((LOOPBACK, port))
    listener.listen(512)
    taken = listener.getsockname()[1]
    # The user interface asks this address; its default is port 4200.
    os.environ.setdefault("PREFECT_SERVER_UI_API_URL", f"http://{LOOPBACK}:{taken}/api")
    os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
    sys.stdout.write(f"{taken}\n")
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app(ephemeral=scope == "run", final=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(2)  # while it starts it does not listen
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
