"""Commands that are killed, and what they leave running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from tests.project import command, environment


def kill_when(home, condition, *arguments, module="fairfrontier", **changes):
    """Run the study ``loans``, kill it once the condition holds, and return what ran below it."""
    process = subprocess.Popen(
        command("run", "loans", *arguments, module=module),
        env=environment(home, **changes),
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(condition)
        below = children(process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_for(lambda: all(gone(each) for each in below), 20)
    return below


def wait_for(condition, seconds=180.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def children(process):
    """Return the processes below one, on Linux."""
    told = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [tuple(map(int, line.split())) for line in told.splitlines()]
    found = {process}
    while True:
        more = {pid for pid, parent in pairs if parent in found} - found
        if not more:
            return found - {process}
        found |= more


def gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{process}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "Z"
