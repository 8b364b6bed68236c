"""Where processes listen, on Linux, and what another user hears there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# The state of a listening socket, and this machine's address, as /proc/net/tcp writes them.
LISTENING, LOOPBACK = "0A", "0100007F"

# An interpreter that every user of the machine may run.
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
STRANGER = 65534


def knock(port: int, *certificate: Path) -> dict[str, str]:
    """Return what a port answers to another user, where we may act as one, or to anybody else."""
    script = Path(__file__).with_name("knock.py").read_text()
    user = {"user": STRANGER, "group": STRANGER, "extra_groups": []} if os.getuid() == 0 else {}
    words = [PYTHON, "-c", script, str(port), *map(str, certificate)]
    done = subprocess.run(words, capture_output=True, check=True, **user)
    return json.loads(done.stdout)


def list_listening(processes: Iterable[int]) -> dict[int, str]:
    """Return the ports at which processes listen, with their addresses as hexadecimal numbers."""
    found = {
        line.split()[9]: line.split()[1].split(":")
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text().splitlines()[1:]
        if line.split()[3] == LISTENING
    }
    sockets = set()
    for process in processes:
        # Processes end, and files are closed, as this is read.
        with suppress(FileNotFoundError):
            for handle in Path(f"/proc/{process}/fd").iterdir():
                with suppress(FileNotFoundError):
                    sockets.add(str(handle.readlink()).removeprefix("socket:[").rstrip("]"))
    listening = (found[socket] for socket in sockets & set(found))
    return {int(port, 16): address for address, port in listening}
