"""Where processes listen, on Linux."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# The state of a listening socket, and this machine's address, as /proc/net/tcp writes them.
LISTENING, LOOPBACK = "0A", "0100007F"


def list_listening(processes: Iterable[int]) -> set[str]:
    """Return the addresses, as hexadecimal numbers, at which processes listen."""
    found = {
        line.split()[9]: line.split()[1].partition(":")[0]
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
    return {found[socket] for socket in sockets & set(found)}
