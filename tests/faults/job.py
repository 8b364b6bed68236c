"""Commands in a project of their own, and what they leave: files, processes, temporary files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.auditing.noisy_rows import make_table
from tests.auditing.scored import make_scores
from tests.project import command, environment, make_project

LIBRARY, FLOWS = "fairfrontier", "flows"
# What Dask keeps for its next workers.
DASK = {f"fairfrontier-{os.getuid()}", "dask-scratch-space", "global.lock", "purge.lock"}
# What processes of a killed command may take to notice.
PATIENCE = 30.0


@dataclass(frozen=True)
class Job:
    """A command; ``kills`` of 200 are its."""

    arguments: tuple[str, ...]
    kills: int
    module: str = LIBRARY


_RUN, _REPRODUCE = ("run", "loans", "--profile", "short", "--cluster"), ("reproduce", "--cluster")
_SCORES = "scores.csv --scores s --groups sex,race --labels y --ids id"
_DECISIONS = "decisions.csv --decisions decision --labels y --group group --level 0.1"
JOBS = {
    "run": Job((*_RUN, "inline"), 60),
    "run, two workers": Job((*_RUN, "two.yaml"), 40),
    "select": Job(("select", "chosen"), 20),
    "debias": Job(("debias", *_SCORES.split()), 30),
    "audit": Job(("audit", *_DECISIONS.split()), 30),
    "reproduce": Job((*_REPRODUCE, "inline"), 12, FLOWS),
    "reproduce, two workers": Job((*_REPRODUCE, "two.yaml"), 8, FLOWS),
}


def make_template(folder: Path) -> Path:
    """Make the project that every scene copies, with an empty database of Prefect's."""
    if not folder.is_dir():
        home = make_project(folder.with_suffix(".new"))
        make_scores(1500).to_csv(home / "scores.csv", index=False)
        make_table().to_csv(home / "decisions.csv", index=False)
        (home / "two.yaml").write_text("kind: local\nworkers: 2\n")
        # It shares no fit with the others.
        (home / "conf" / "studies" / "chosen.yaml").write_text(
            "study: chosen\ndataset: loans\nmethods: {gbdt: {n_estimators: [3, 4]}}\nseeds: 1\n"
            "frontier: {fairness: [gap_rms:origin]}\n"
        )
        run = command("run", "chosen", "--cluster", "inline")
        subprocess.run(run, env=environment(home), capture_output=True, check=True)
        prefect = home / "data" / "prefect"
        prefect.mkdir(mode=0o700)
        upgrade = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
        changes = {"PREFECT_HOME": str(prefect)}
        subprocess.run(upgrade, env=environment(home, **changes), capture_output=True, check=True)
        home.rename(folder)
    return folder


class Scene:
    """A copy of the project, with a folder for temporary files."""

    def __init__(self, folder: Path, template: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self.home, self.temporary = folder, folder / "home", folder / "tmp"
        shutil.copytree(template, self.home)
        self.temporary.mkdir()
        self.settings = environment(self.home, TMPDIR=str(self.temporary))
        self._sessions: set[int] = set()

    def start(self, job: Job, *before: str, umask: int = -1, **changes: str) -> subprocess.Popen:
        """Start a command, behind the words ``before``; its messages go to a file."""
        with (self.folder / "messages").open("w") as messages:
            return subprocess.Popen(
                [*before, *command(*job.arguments, module=job.module)],
                env={**self.settings, **changes},
                cwd=self.home,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                umask=umask,
            )

    def run(self, job: Job, **options: str | int) -> tuple[int, float]:
        """Run a command to its end; return the exit code and seconds."""
        started = time.monotonic()
        forked = job.module == LIBRARY and not options
        code = self.run_forked(job) if forked else self.start(job, **options).wait(600)
        return code, time.monotonic() - started

    def run_forked(self, job: Job, delay: float | None = None) -> int:
        """Run a command of the library in a fork of this process, which has imported it.

        It is killed after ``delay`` seconds, so that no kill is wasted on imports. Returns the exit
        code.
        """
        process = get_context("fork").Process(target=self._call, args=(job,))
        process.start()
        self._sessions.add(process.pid)
        process.join(delay)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode

    def _call(self, job: Job) -> None:
        from fairfrontier.cli.command import main

        os.setsid()
        os.chdir(self.home)
        os.environ.clear()
        os.environ.update(self.settings)
        messages = os.open(self.folder / "messages", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(messages, stream)
        sys.argv = ["fairfrontier", *job.arguments]
        main()

    def kill(self, job: Job, delay: float) -> bool:
        """Kill a command after a time, and wait for its processes; False where it ended before."""
        if job.module == LIBRARY:
            killed = self.run_forked(job, delay) == -signal.SIGKILL
        else:
            process = self.start(job)
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                process.kill()
            killed = process.wait() == -signal.SIGKILL
        wait_until(lambda: not self.processes())
        return killed

    def said(self) -> str:
        """Return the messages of the last command."""
        return (self.folder / "messages").read_text(errors="replace")

    def processes(self) -> list[int]:
        """Return the processes that work in this project."""
        mark, found = f"FAIRFRONTIER_HOME={self.home}\0".encode(), []
        for path in Path("/proc").glob("[0-9]*"):
            # It may have ended, or be another user's.
            with suppress(OSError):
                state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
                marked = mark in (path / "environ").read_bytes()
                if state != "Z" and (marked or int(session) in self._sessions):
                    found.append(int(path.name))
        return found

    def leftovers(self) -> list[str]:
        """Return unfinished work, temporary files and sockets, and processes."""
        wait_until(lambda: not self.processes())
        hidden = [path for path in self.home.rglob(".*") if path.name != ".gitignore"]
        temporary = [p for p in self.temporary.rglob("*") if p.name not in DASK]
        names = [str(path.relative_to(self.folder)) for path in (*hidden, *temporary)]
        return names + [f"process {number}" for number in self.processes()]

    def results(self) -> dict[str, str]:
        """Return file -> digest of all results, without the seconds that they took."""
        return digest_files(self.home / "data" / "results")


def digest_files(folder: Path) -> dict[str, str]:
    """Return file -> digest of a folder, without seconds."""
    digests = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.suffix == ".json":
            facts = json.loads(content)
            content = json.dumps({**facts, "seconds": None}).encode()
        elif path.suffix == ".html":
            content = re.sub(rb"<b>[\d.,]+</b> seconds", b"", content)
        digests[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return digests


def count_differences(found: dict[str, str], expected: dict[str, str]) -> int:
    """Return how many files are missing, too many or of other content."""
    return sum(found.get(name) != expected.get(name) for name in found.keys() | expected.keys())


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Wait until a condition holds; return whether it does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
