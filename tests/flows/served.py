"""What `make serve` starts: the server, the deployments and the worker of a project."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.project import command, environment


@contextmanager
def serve(home: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """Serve a project, and yield the process once its worker waits; interrupt it in the end."""
    with subprocess.Popen(
        command("serve", "--port", str(port), module="flows"),
        env=environment(home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as service:
        try:
            assert any("worker of pool" in line for line in iter(service.stdout.readline, ""))
            yield service
        finally:
            service.send_signal(signal.SIGINT)
            end = time.monotonic() + 60
            while service.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            if service.poll() is None:
                os.kill(service.pid, signal.SIGKILL)


def start_run(home: Path, port: int, *options: str) -> subprocess.Popen[str]:
    """Let the worker run the study ``loans``; return a process that ends with the run."""
    secret = (home / "data" / "prefect" / "secret").read_text()
    asked = 'run={"study":"loans","cluster":"inline"}'
    words = ["-m", "prefect", "deployment", "run", "frontier/adult", "--param", asked, "--watch"]
    known = {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_API_AUTH_STRING": secret}
    return subprocess.Popen(
        [sys.executable, *words, *options],
        env=environment(home) | known,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
