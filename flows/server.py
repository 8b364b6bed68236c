"""The Prefect server of a project's runs: a process on loopback that ends with the last of them.

Prefect's own ephemeral server prints pages of tracebacks at a successful exit, and is orphaned by
kill -9. This one logs to server.log in Prefect's folder and is shared by the runs of a project that
go on at the same time: two servers would write to one SQLite file. Two file locks show who uses it,
and the system releases them however a process ends. ``server.lock`` is held by the server, which
writes its process and address into it; ``runs.lock`` is held, shared, by every run that uses the
server, which ends when it can lock that file exclusively. It answers those who know the line in
``secret``, which only its owner can read, and which is another one for every server: whoever takes
the port of one that has ended is told nothing that opens the next. This module does not import
Prefect, whose environment has to be set first.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Literal

from fairfrontier.runtime.errors import ClusterError, StoreError
from fairfrontier.runtime.home import read_path
from fairfrontier.runtime.writer import drafting, filling, make_private

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")
START_SECONDS = 120.0
# An empty database with its log takes 6 MiB, a run some more.
ROOM_BYTES = 16 << 20
# Within which a server of the user's has to answer.
ANSWER_SECONDS = 10.0
# How often a server asks whether the last run that uses it has ended.
POLL_SECONDS = 0.5
# Prefect's client sends the content of this variable to the server.
AUTHENTICATION = "PREFECT_API_AUTH_STRING"
# The user interface asks for a password without saying where it is.
SIGN_IN = """<style>body:has(input[placeholder="admin:pass"])::after {
content: "The password is in the file that `make serve` names, data/prefect/secret by default.";
position: fixed; bottom: 2rem; left: 0; right: 0; text-align: center; font: 1rem sans-serif;
}</style></head>"""
Scope = Literal["run", "serve"]


def set_environment(home: Path, *, console_level: str | None = None) -> None:
    """Set Prefect's settings as environment variables, before Prefect is imported.

    Prefect's home becomes data/prefect in the project. The terminal shows its log from
    ``console_level`` on; the server gets all of it. Variables that the user has set are kept.
    Relative paths in ``[tool.prefect]`` would depend on the current folder; these are absolute, and
    worker processes inherit them.
    """
    folder = find_folder(home)
    # Deployed runs have another current folder.
    os.environ["PREFECT_HOME"] = str(folder)
    settings = {
        "PREFECT_PROFILES_PATH": str(folder / "profiles.toml"),
        "PREFECT_LOCAL_STORAGE_PATH": str(folder / "storage"),
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
        settings["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = console_level
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    # Proxies do not reach the loopback address.
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*hosts, *HOSTS]))
    try:
        make_private(folder)
    except StoreError as error:
        raise StoreError(error.fault, f"{error.mend[:-1]}: PREFECT_HOME names it.") from None
    except OSError as error:
        raise _not_writable(folder, error) from error


def _not_writable(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"Prefect's folder {folder} cannot be written: {error.strerror}.",
        "Make the project's data folder writable, or set PREFECT_HOME.",
    )


@contextmanager
def keeping_temporary(folder: Path) -> Iterator[None]:
    """Let this process, and those that it starts, have temporary files in Prefect's folder.

    In a shared one Prefect's runner takes a folder of a fixed name, which another user may own.
    What was killed before is removed.
    """
    with ExitStack() as stack:
        try:
            own = stack.enter_context(drafting(folder))
        except OSError as error:
            raise _not_writable(folder, error) from error
        os.environ["TMPDIR"] = tempfile.tempdir = str(own)
        yield


def find_folder(home: Path) -> Path:
    """Return Prefect's folder: PREFECT_HOME where it is set, else data/prefect of the project."""
    named = os.environ.get("PREFECT_HOME")
    return read_path(named).absolute() if named else home / "data" / "prefect"


def make_secret(folder: Path) -> str:
    """Return the password of a new server, and keep it in a file that only its owner can read."""
    secret = f"fairfrontier:{secrets.token_urlsafe(32)}"
    draft = folder / ".secret"
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)
    draft.replace(folder / "secret")
    return secret


def check_room(folder: Path) -> None:
    """Raise StoreError when there is no room for Prefect's database in a folder."""
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise StoreError(
            f"The disk of {folder} is full: it has {free / 2**20:.1f} MiB left, and Prefect's "
            f"database needs {ROOM_BYTES / 2**20:g}.",
            "Free some space, or set PREFECT_HOME to a folder on another disk.",
        )


def read_error(log: Path) -> str:
    """Return the last error in a server's log, after a colon; "" without one."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return f": {errors[-1].rstrip('.')}" if errors else ""


def lock(path: Path, how: int) -> IO[str] | None:
    """Lock a file, which is closed to release it; return None when another process has it.

    ``how`` is one of fcntl's LOCK_ constants. A file system without locks refuses nobody.
    """
    # Whoever can read a file can lock it.
    path.touch(0o600)
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        file.close()
        return None
    except OSError:
        pass
    return file


def find_running(folder: Path) -> tuple[str, str] | None:
    """Return the process and the address of the server that runs in a folder, if one does."""
    free = lock(folder / "server.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
    if free is not None:
        free.close()
        return None
    process, _, url = (folder / "server.lock").read_text(encoding="utf-8").partition(" ")
    return process, url


class Server:
    """The Prefect server that a run uses: the user's, the one of another run, or a new child.

    The scope "run" omits the user interface and the scheduler; ``port`` is that of a new server, 0
    for a free one. ``url`` is the address of the API, also put into PREFECT_API_URL; the paths
    ``log`` and ``secret`` are those of its output and of the password of its user interface.

    Raises
    ------
    StoreError
        When Prefect's folder cannot be written or its disk is full, or ``serve`` finds the server
        of a run there.
    ClusterError
        When the port is taken.
    """

    def __init__(self, home: Path, scope: Scope = "run", port: int = 0) -> None:
        folder = find_folder(home)
        self.log, self.secret = folder / "server.log", folder / "secret"
        self._child: subprocess.Popen[str] | None = None
        self._use: IO[str] | None = None
        self._listener: socket.socket | None = None
        given = os.environ.get("PREFECT_API_URL")
        if given and scope == "run":
            self.url = given
            return
        check_room(folder)
        try:
            self._use = lock(folder / "runs.lock", fcntl.LOCK_SH)
            starting = lock(folder / "start.lock", fcntl.LOCK_EX)
        except OSError as error:
            raise _not_writable(folder, error) from error
        atexit.register(self.stop)
        with starting or nullcontext():
            running = find_running(folder)
            if running and scope == "serve":
                self.stop()
                raise StoreError(
                    f"The Prefect server of another run, process {running[0]}, uses {folder}.",
                    "Wait until that run ends, or set PREFECT_HOME to another folder.",
                )
            try:
                secret = self.secret.read_text("utf-8") if running else make_secret(folder)
            except OSError as error:
                self.stop()
                raise _not_writable(folder, error) from error
            os.environ[AUTHENTICATION] = secret
            self.url = running[1] if running else self._start(folder, scope, port)
        os.environ["PREFECT_API_URL"] = self.url

    def _start(self, folder: Path, scope: Scope, port: int) -> str:
        """Start a server in a folder where none runs, and return its address."""
        listener = self._listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen(512)
        except OSError as error:
            self.stop()
            raise ClusterError(
                f"No server can listen on {LOOPBACK}, port {port or 'any'}: {error.strerror}.",
                "Choose another port, or set PREFECT_API_URL to a server that runs.",
            ) from error
        try:
            log = self.log.open("w", encoding="utf-8")
        except OSError as error:
            self.stop()
            raise _not_writable(folder, error) from error
        number = listener.fileno()
        with log:
            child = self._child = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "flows.server", scope, str(number), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).resolve().parents[1],
                pass_fds=[number],
                start_new_session=True,  # Ctrl-C is for the run, which then stops its server
            )
        # It has the lock by which other runs find it.
        _pipe(child.stdout).readline()
        threading.Thread(target=self._turn_away, args=(child, listener), daemon=True).start()
        return f"http://{LOOPBACK}:{listener.getsockname()[1]}/api"

    def has_ended(self) -> bool:
        """Return whether the server that this process started has ended by itself."""
        return self._child is not None and self._child.poll() is not None

    def _turn_away(self, child: subprocess.Popen[str], listener: socket.socket) -> None:
        """Keep the port of a server that was killed: clients would tell another user the secret."""
        while child.poll() is None:
            time.sleep(POLL_SECONDS)
        # Otherwise it was stopped, or left to other runs.
        while self._child is child:
            with suppress(OSError):
                listener.settimeout(POLL_SECONDS)
                listener.accept()[0].close()

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until the server answers; raise ClusterError when it does not."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        end = time.monotonic() + (seconds if self._use else ANSWER_SECONDS)
        while True:
            try:
                patience = max(0.1, min(5.0, end - time.monotonic()))
                with opener.open(f"{self.url}/health", timeout=patience):
                    return
            except urllib.error.HTTPError:
                return  # it answers, and may require a key that Prefect's client has
            except OSError as error:
                reason = error
            ended = self.has_ended()
            if not ended and time.monotonic() < end:
                time.sleep(0.05)
                continue
            if self._use is None:
                raise ClusterError(
                    f"PREFECT_API_URL is {self.url}, where nothing answers: {reason}.",
                    "Start that server, or unset PREFECT_API_URL: a run then starts its own.",
                )
            self.stop()
            check_room(self.log.parent)
            fault = "ended" if ended else f"did not start within {seconds:g} s"
            raise ClusterError(
                f"The Prefect server {fault}{read_error(self.log)}.", f"Its log is {self.log}."
            )

    def stop(self) -> None:
        """Stop using the server, which ends unless another run uses it."""
        atexit.unregister(self.stop)
        use, self._use = self._use, None
        if use is None:
            return
        for name in ("PREFECT_API_URL", AUTHENTICATION):
            os.environ.pop(name, None)
        use.close()
        child, self._child = self._child, None
        # The port is free when the server has ended.
        with self._listener or nullcontext():
            if child is not None:
                _end(child, Path(use.name))


def _end(child: subprocess.Popen[str], runs: Path) -> None:
    """End a server unless other runs use it, which hold the lock."""
    last = lock(runs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _pipe(child.stdin).close()
    _pipe(child.stdout).close()
    if last is None:
        child.returncode = 0  # it serves other runs, and Popen would warn that it runs
        return
    with last:
        child.terminate()
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def start_server(home: Path, scope: Scope = "run", port: int = 0) -> Iterator[Server]:
    """Start a server without waiting for it, and stop it at the end; see `Server`."""
    server = Server(home, scope, port)
    try:
        yield server
    finally:
        server.stop()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # noqa: S101
    return stream


def serve(scope: str, listener: socket.socket, folder: Path) -> None:
    """Run the server on a socket, and end with the last run that uses it; say when it is locked."""
    taken = listener.getsockname()[1]
    url = f"http://{LOOPBACK}:{taken}/api"
    os.environ["PREFECT_SERVER_API_AUTH_STRING"] = os.environ[AUTHENTICATION]
    # Pages of other origins and other names for this address (DNS rebinding) get no answer.
    origins = [f"http://{host}:{taken}" for host in HOSTS]
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = ",".join(origins)
    # The user interface asks this address; its default is port 4200.
    os.environ.setdefault("PREFECT_SERVER_UI_API_URL", url)
    os.environ.setdefault("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT", "false")
    os.environ.setdefault("PREFECT_UI_STATIC_DIRECTORY", str(folder / "ui"))
    running = lock(folder / "server.lock", fcntl.LOCK_EX)
    assert running is not None  # noqa: S101
    running.truncate(0)
    running.write(f"{os.getpid()} {url}")
    running.flush()
    sys.stdout.write("\n")
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with_last_run, args=(folder,), daemon=True).start()

    import uvicorn
    from prefect.server.api.server import create_app
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    app = TrustedHostMiddleware(create_app(ephemeral=scope == "run", final=True), list(HOSTS))
    for page in Path(os.environ["PREFECT_UI_STATIC_DIRECTORY"]).glob("*/index.html"):
        text = page.read_text(encoding="utf-8")
        if SIGN_IN not in text:
            with filling(page.parent, what="page") as work:
                (work / page.name).write_text(text.replace("</head>", SIGN_IN), encoding="utf-8")
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def _end_with_last_run(folder: Path) -> None:
    """Wait for the end of the run that started this server, then of the others."""
    sys.stdin.buffer.read()
    # Locked to the end: a run that starts now waits, and then starts another server.
    while (_last := lock(folder / "runs.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(2)  # the signal is ignored during startup
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])), Path(sys.argv[3]))
