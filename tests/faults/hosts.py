"""Hosts on one machine: network namespaces with a loopback and an address each, TLS between them.

A study runs on one host, Dask's scheduler on another, its workers on two more. They share this
machine's files, as hosts share a file system. A fault is one of their network or of a whole host.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from fairfrontier.runtime.cluster.open import make_certificate
from tests.faults.fault import LONG, Undisturbed, is_sentence, run_long, start_long
from tests.faults.job import Scene, count_differences, wait_until

STUDY, SCHEDULER, FIRST, SECOND = range(4)
PORT = 8786
# Seconds after which a study is said to hang.
LONGEST = 600
# Words in front of a command that may make networks, as root of a user namespace.
OWN = ("unshare", "--user", "--map-root-user", "--net")


def do(*words: object) -> None:
    """Run a command of the system that must succeed."""
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


class Network:
    """Four hosts, 10.77.0.1 to 10.77.0.4, on one switch."""

    def __enter__(self) -> Network:
        self._stack, self._holders = ExitStack(), list[subprocess.Popen]()
        do("ip", "link", "add", "switch", "type", "bridge")
        self._stack.callback(do, "ip", "link", "delete", "switch")
        do("ip", "link", "set", "switch", "up")
        here = Path("/proc/self/ns/net").readlink()
        for host in range(4):
            holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            self._stack.callback(holder.wait)
            self._stack.callback(holder.kill)
            self._holders.append(holder)
            namespace = Path(f"/proc/{holder.pid}/ns/net")
            assert wait_until(lambda own=namespace: own.readlink() != here)
            peer = ("peer", "name", "eth0", "netns", holder.pid)
            do("ip", "link", "add", f"port{host}", "type", "veth", *peer)
            self._stack.callback(do, "ip", "link", "delete", f"port{host}")
            do("ip", "link", "set", f"port{host}", "master", "switch", "up")
            own = self.on(host)
            do(*own, "ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                do(*own, "ip", "link", "set", device, "up")
        return self

    def __exit__(self, *fault: object) -> None:
        self._stack.close()

    def address(self, host: int) -> str:
        """Return a host's address."""
        return f"10.77.0.{host + 1}"

    def on(self, host: int) -> Sequence[str]:
        """Return the words in front of a command that runs on a host."""
        return ("nsenter", "--target", str(self._holders[host].pid), "--net")

    def plug(self, host: int, state: str) -> None:
        """Connect a host (``up``) or cut its link (``down``)."""
        do("ip", "link", "set", f"port{host}", state)

    def narrow(self, host: int) -> None:
        """Let a host send 1 Mbit/s."""
        rule = ("tbf", "rate", "1mbit", "burst", "16kb", "latency", "400ms")
        do(*self.on(host), "tc", "qdisc", "add", "dev", "eth0", "root", *rule)


class Cluster:
    """A scheduler and two workers with nannies, each on its host, until it is closed."""

    def __init__(self, network: Network, scene: Scene) -> None:
        self.network, self.scene, self._stack = network, scene, ExitStack()
        make_certificate(scene.folder)
        self.files = {
            "ca-file": scene.folder / "cluster.crt",
            "cert": scene.folder / "cluster.crt",
            "key": scene.folder / "cluster.pem",
        }
        self.address = f"tls://{network.address(SCHEDULER)}:{PORT}"
        self.scheduler = self._start(SCHEDULER, "scheduler", "--port", str(PORT))
        worker = ("worker", self.address, "--nthreads", "1", "--nworkers", "1")
        self.workers = {host: self._start(host, *worker) for host in (FIRST, SECOND)}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *fault: object) -> None:
        self._stack.close()

    def _start(self, host: int, *words: str) -> subprocess.Popen:
        options = [f"--tls-{name}={path}" for name, path in self.files.items()]
        options += ["--host", self.network.address(host), "--no-dashboard"]
        log = self._stack.enter_context((self.scene.folder / f"host-{host}").open("w"))
        settings = {
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "30s",
            "DASK_TEMPORARY_DIRECTORY": str(self.scene.folder / f"disk-{host}"),
        }
        process = subprocess.Popen(
            [*self.network.on(host), sys.executable, "-m", "dask", *words, *options],
            env=self.scene.settings | settings,
            cwd=self.scene.home,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self._stack.callback(process.wait)
        self._stack.callback(self.end, process)
        return process

    def end(self, process: subprocess.Popen) -> None:
        """Kill a process with all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def yaml(self) -> str:
        """Return what conf/clusters/scheduler.yaml asks for."""
        names = {"ca-file": "tls_ca_file", "cert": "tls_cert", "key": "tls_key"}
        files = "".join(f"{names[name]}: {path}\n" for name, path in self.files.items())
        return f"kind: scheduler\naddress: {self.address}\n{files}"


def lose_worker(cluster: Cluster) -> None:
    """Kill all processes of a worker's host."""
    cluster.end(cluster.workers[FIRST])


def cut_worker(cluster: Cluster, seconds: float | None) -> None:
    """Cut a worker's host off, for some seconds or for good."""
    cluster.network.plug(FIRST, "down")
    if seconds is not None:
        time.sleep(seconds)
        cluster.network.plug(FIRST, "up")


def narrow_worker(cluster: Cluster) -> None:
    """Make the link of a worker's host narrow."""
    cluster.network.narrow(FIRST)


def slow_worker(cluster: Cluster) -> None:
    """Let a worker's host compute a tenth of the time, for 20 s."""
    for _ in range(20):
        for sign, seconds in ((signal.SIGSTOP, 0.9), (signal.SIGCONT, 0.1)):
            os.killpg(cluster.workers[FIRST].pid, sign)
            time.sleep(seconds)


def cut_study(cluster: Cluster) -> None:
    """Cut the host off on which the study runs."""
    cluster.network.plug(STUDY, "down")


CASES: dict[str, Callable[[Cluster], None]] = {
    "four hosts, undisturbed": lambda _: None,
    "a worker's host lost": lose_worker,
    "a worker's link cut for 20 s": partial(cut_worker, seconds=20.0),
    "a worker's link cut for good": partial(cut_worker, seconds=None),
    "a worker's link at 1 Mbit/s": narrow_worker,
    "a worker at a tenth of its speed for 20 s": slow_worker,
    "the study's link cut for good": cut_study,
}


def run_case(name: str, folder: Path, template: Path) -> str:
    """Return what happened to a study of 24 fits under a fault."""
    expected = run_long(Scene(folder / "scene", template), "kind: inline\n")
    scene = Scene(folder / "scene", template)
    with Network() as network, Cluster(network, scene) as cluster:
        process = start_long(scene, cluster.yaml(), *network.on(STUDY))
        started = time.monotonic()
        try:
            CASES[name](cluster)
            code = process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            return f"still runs after {LONGEST} s"
        finally:
            process.kill()
        seconds = time.monotonic() - started
    outcome = f"exit code {code}"
    if code:
        outcome += " in a sentence" if is_sentence(scene.said()) else " without a sentence"
        (scene.home / "one.yaml").write_text("kind: inline\n")
    outcome += f" after {seconds:.0f} s"
    if code:
        outcome += f"; the next run, inline, exit code {scene.run(LONG)[0]}"
    return f"{outcome}, {count_differences(scene.results(), expected)} files differ"


def separate_hosts(
    name: str, folder: Path, template: Path, _: Undisturbed | None = None
) -> tuple[int, str]:
    """Run a study on four hosts, in networks of a user namespace, under a fault."""
    try:
        do(*OWN, "ip", "link", "add", "switch", "type", "bridge")
    except (OSError, subprocess.CalledProcessError):
        return 0, "not tried: no networks can be made here (unshare, ip)"
    words = [*OWN, sys.executable, "-m", __name__, name, str(folder), str(template)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return 1, done.stdout.strip()


if __name__ == "__main__":
    case, *places = sys.argv[1:]
    print(run_case(case, *map(Path, places)))
