"""XGBoost's collective among workers: rendezvous, and sums over all of them."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from fairfrontier.train.dask.placement import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairfrontier.train.dask.placement import Placement

# Seconds within which all workers must have started: the others would wait for a dead one.
MEETING = 120
# Of Linux, which Python does not name: the key by which packets to a socket are signed (RFC 2385).
KEY = 32
# Any sender, by an address of which no bit counts; a socket of IPv6 takes those of IPv4, too.
ALL = struct.pack("=H126x", socket.AF_INET)
ALL_6 = struct.pack("=H126x", socket.AF_INET6)
ALL_MAPPED = struct.pack("=H6x16s104x", socket.AF_INET6, b"\0" * 10 + b"\xff\xff" + b"\0" * 4)


def convene(placed: Placement) -> Mapping[str, Any]:
    """Start a tracker for the workers that hold something.

    Returns keywords of `communicating`, for one task on each of those workers. All tasks must run
    at once: each needs a free thread.
    """
    with guarded(placed.client):
        keywords: dict[str, Any] = placed.client.run_on_scheduler(
            _start_tracker, len(placed.objects), int(placed.timeout)
        )
    return keywords


@contextmanager
def communicating(**peers: Any) -> Iterator[None]:
    """Join the other workers, whose sums `add_up` returns, by the keywords of `convene`.

    XGBoost opens a port to the whole network at which four bytes of anybody's end the fit. It is
    needed at the end alone, by this process: until then, on Linux, nothing reaches it.
    """
    from xgboost.dask import CommunicatorContext

    before = _list_listening()
    with CommunicatorContext(**peers):
        opened = _list_listening() - before
        # Fits of others may open ports of this process, too; this one's is always among them.
        if sys.platform != "linux" or len(opened) != 1:
            yield
            return
        [(number, _)] = opened
        with socket.socket(fileno=os.dup(number)) as listener, _unheard(listener):
            yield


@contextmanager
def _unheard(listener: socket.socket) -> Iterator[None]:
    """Let the system drop every packet to a socket meanwhile: by a key that nobody knows."""

    def expect(key: bytes) -> None:
        """Set the key, or by an empty one take it back, where the system knows how."""
        for sender in (ALL,) if listener.family == socket.AF_INET else (ALL_6, ALL_MAPPED):
            # As struct tcp_md5sig has it, with the flag that a number of bits follows.
            signature = sender + struct.pack("=BBHi80s", 1, 0, len(key), 0, key)
            with suppress(OSError):
                listener.setsockopt(socket.IPPROTO_TCP, KEY, signature)

    expect(secrets.token_bytes(16))
    try:
        yield
    finally:
        expect(b"")


def _list_listening() -> set[tuple[int, Any]]:
    """Return the numbers and addresses of this process's sockets that listen."""
    return {
        (each.fd, each.laddr)
        for each in psutil.Process().net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }


def add_up(values: np.ndarray) -> np.ndarray:
    """Return the sum over all workers, to the same bits on each of them; inside a communicator.

    A ring: each worker sends and receives the array's size twice, whatever their number.
    """
    from xgboost.collective import Op, allreduce

    # XGBoost returns a flat array.
    total: np.ndarray = allreduce(values, Op.SUM).reshape(values.shape)
    return total


def _start_tracker(n_workers: int, timeout: int, dask_scheduler: Any = None) -> dict[str, Any]:
    """Start a tracker on the scheduler's host, which all workers can reach."""
    from distributed.comm import get_address_host
    from xgboost.tracker import RabitTracker

    host = get_address_host(dask_scheduler.address)
    tracker = RabitTracker(n_workers=n_workers, host_ip=host, sortby="task", timeout=MEETING)
    tracker.start()
    Thread(target=_end_tracker, args=(tracker,), daemon=True).start()
    # Workers wait for each other's sums as long as a request may take.
    return {**tracker.worker_args(), "dmlc_timeout": timeout}


def _end_tracker(tracker: Any) -> None:
    # A dead worker ends it with an error, which the request to the workers reports better. The
    # error recurs when the tracker is freed, which must not be left to Python's garbage collector.
    for end in (tracker.wait_for, tracker.free):
        with suppress(Exception):
            end()
