"""Faults other than kills: each is made to happen in a project of its own, and its end described.

A fault is a function of the folder for scenes, the template and what undisturbed jobs leave; it
returns how often it was tried, and a sentence of figures.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.cli.process import children
from tests.faults.job import JOBS, Job, Scene, count_differences, digest_files, wait_until
from tests.project import environment

Undisturbed = dict[str, dict[str, Any]]
Fault = Callable[[Path, Path, Undisturbed], tuple[int, str]]
# More fits than are done when the fault comes.
LONG = Job(("run", "loans", "--cluster", "one.yaml"), 0)


def mask_modes(folder: Path, template: Path, undisturbed: Undisturbed) -> tuple[int, str]:
    """Run everything under two masks, and count the modes that have other bits."""
    wrong = tried = 0
    for mask in (0o077, 0o022):
        scene = Scene(folder / "scene", template)
        given = set(scene.home.rglob("*"))
        for name in ("run, two workers", "debias", "audit", "reproduce"):
            scene.run(JOBS[name], umask=mask)
        # SQLite's journals have the mode of their database, which the template brings.
        journals = set(scene.home.rglob("*.db-*"))
        for path in set(scene.home.rglob("*")) - given - journals:
            tried += 1
            bits = 0o777 if path.is_dir() else 0o666
            # The secret of Prefect's server, and its locks, are their owner's under any mask.
            private = path.name in ("secret", "memo_store.toml") or path.suffix == ".lock"
            expected = 0o600 if private else bits & ~mask
            wrong += stat.S_IMODE(path.stat().st_mode) != expected
    return tried, f"{wrong} files or folders with another mode than umask 077 and 022 ask for"


def fill_disk(folder: Path, template: Path, undisturbed: Undisturbed) -> tuple[int, str]:
    """Give commands disks of sizes from too small to almost enough, then a larger one."""
    script = """
mount -t tmpfs -o size={full}k none {data} && cp -a {kept}/. {data} || exit 99
mount -o remount,size=$(( $(df -k --output=used {data} | tail -1) + {room} ))k {data} || exit 98
"$@"; code=$?
cp -a {data}/results {first} 2>/dev/null
mount -o remount,size={full}k {data}
"$@" 2>> {second} || code="$code again $?"
cp -a {data}/. {kept}; umount {data}; echo $code > {code}"""
    counts = dict.fromkeys(("refused", "sentence", "partly", "differences", "leftovers"), 0)
    names, sizes = ("run", "debias", "audit"), 6
    for name in names:
        needed = 100 if name == "audit" else 500
        for step in range(sizes):
            scene = Scene(folder / "scene", template)
            data, kept = scene.home / "data", scene.folder / "kept"
            before = scene.results()
            shutil.copytree(data, kept)
            paths = {each: scene.folder / each for each in ("first", "second", "code")}
            shell = script.format(
                full=1 << 17, data=data, kept=kept, room=needed * step // sizes, **paths
            )
            process = scene.start(
                JOBS[name],
                "unshare",
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                shell,
                "sh",
            )
            process.wait()
            if not paths["code"].exists():
                return 0, "not tried: no disk can be mounted here (unshare, mount)"
            code = paths["code"].read_text().strip()
            first = digest_files(paths["first"])
            counts["refused"] += code == "2"
            counts["sentence"] += code == "2" and is_sentence(scene.said())
            counts["partly"] += code == "2" and count_differences(first, before) > 0
            shutil.rmtree(data)
            kept.rename(data)
            counts["differences"] += count_differences(scene.results(), undisturbed[name]["files"])
            counts["leftovers"] += len(scene.leftovers())
    return len(names) * sizes, (
        "{refused} ended with exit code 2, {sentence} of them with a sentence, {partly} left "
        "results behind; with room again {differences} files differ, {leftovers} leftovers"
    ).format(**counts)


def is_sentence(said: str) -> bool:
    """Return whether a command ended with a sentence and its mend, and without a traceback."""
    last = said.strip().splitlines()[-1:] or [""]
    return "Traceback" not in said and last[0].endswith(".")


def fill_prefects_disk(folder: Path, template: Path, _: Undisturbed) -> tuple[int, str]:
    """Start a flow whose Prefect has a disk of 4 MiB."""
    scene = Scene(folder / "scene", template)
    prefect = scene.home / "data" / "prefect"
    shutil.rmtree(prefect)
    prefect.mkdir(mode=0o700)
    shell = f'mount -t tmpfs -o size=4096k,mode=700 none {prefect} && exec "$@"'
    words = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell, "sh")
    started = time.monotonic()
    code = scene.start(JOBS["reproduce"], *words).wait()
    named = "is full" in scene.said() and is_sentence(scene.said())
    how = "named in a sentence" if named else "not named"
    return 1, f"{how}, exit code {code}, after {time.monotonic() - started:.0f} s"


def stop_worker(folder: Path, template: Path, _: Undisturbed) -> tuple[int, str]:
    """Send SIGSTOP to the only worker, which may be silent for 5 s."""
    expected = run_long(Scene(folder / "scene", template), "kind: local\nworkers: 1\n")
    scene = Scene(folder / "scene", template)
    process = start_long(scene, "kind: local\nworkers: 1\nsilence: 5\n")
    worker = max(pid for pid in children(process.pid) if is_worker(pid))
    os.kill(worker, signal.SIGSTOP)
    started = time.monotonic()
    code = process.wait(300)
    seconds = time.monotonic() - started
    differences = count_differences(scene.results(), expected)
    return 1, (
        f"exit code {code} after {seconds:.0f} s with silence: 5, {differences} files differ, "
        f"{len(scene.leftovers())} leftovers"
    )


def is_worker(process: int) -> bool:
    """Return whether a process was spawned to work, not to track resources."""
    return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()


def start_long(scene: Scene, cluster: str, *before: str) -> subprocess.Popen:
    """Start a study of 24 fits, behind the words ``before``, and wait for the second."""
    study = scene.home / "conf" / "studies" / "loans.yaml"
    study.write_text(study.read_text().replace("seeds: 2", "seeds: 6", 1))
    (scene.home / "one.yaml").write_text(cluster)
    fits = scene.home / "data" / "cache" / "store" / "fit"
    enough = len(list(fits.glob("*/*"))) + 2
    process = scene.start(LONG, *before)
    assert wait_until(lambda: len(list(fits.glob("*/*"))) >= enough, 300), scene.said()
    return process


def run_long(scene: Scene, cluster: str) -> dict[str, str]:
    """Run that study undisturbed, and return the digests of what it leaves."""
    assert start_long(scene, cluster).wait(600) == 0, scene.said()
    return scene.results()


def kill_scheduler(folder: Path, template: Path, _: Undisturbed) -> tuple[int, str]:
    """Kill the scheduler of a running cluster, and go on without a cluster."""
    expected = run_long(Scene(folder / "scene", template), "kind: inline\n")
    code = (
        "import time; from distributed import LocalCluster\n"
        "c = LocalCluster(n_workers=1, processes=False, dashboard_address=':0', protocol='tcp')\n"
        "print(c.scheduler_address, flush=True); time.sleep(3600)"
    )
    scene = Scene(folder / "scene", template)
    words = [sys.executable, "-c", code]
    settings = environment(scene.home)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=settings) as scheduler:
        address = scheduler.stdout.readline().strip()
        process = start_long(scene, f"kind: scheduler\naddress: {address}\n")
        scheduler.kill()
        started = time.monotonic()
        ended = process.wait(300)
        seconds = time.monotonic() - started
    how = "in a sentence" if is_sentence(scene.said()) else "without a sentence"
    (scene.home / "one.yaml").write_text("kind: inline\n")
    again, _ = scene.run(LONG)
    differences = count_differences(scene.results(), expected)
    return 1, (
        f"exit code {ended} {how} after {seconds:.1f} s; the next run, inline, exit code {again}, "
        f"{differences} files differ, {len(scene.leftovers())} leftovers"
    )


def replace_table(folder: Path, template: Path, undisturbed: Undisturbed) -> tuple[int, str]:
    """Replace the table of scores, or of decisions, now and then while a command runs."""
    counts = {"old": 0, "new": 0, "refused": 0, "other": 0}
    draw, tables = random.Random(0), {"debias": "scores.csv", "audit": "decisions.csv"}  # noqa: S311
    for name, table in tables.items():
        scene = Scene(folder / "scene", template)
        lines = (scene.home / table).read_text().splitlines()
        changed = "\n".join([lines[0], *lines[2:], lines[1]]) + "\n"
        (scene.home / table).write_text(changed)
        scene.run(JOBS[name])
        new, old = scene.results(), undisturbed[name]["files"]
        for _ in range(10):
            scene = Scene(folder / "scene", template)
            before = scene.results()
            contents = itertools.cycle([changed, (scene.home / table).read_text()])
            process = scene.start(JOBS[name])
            while process.poll() is None:
                (scene.home / "next").write_text(next(contents))
                (scene.home / "next").replace(scene.home / table)
                time.sleep(draw.uniform(0, 0.5))
            code, found = process.returncode, scene.results()
            if code == 2 and is_sentence(scene.said()) and found == before:
                counts["refused"] += 1
            else:
                counts["old" if found == old else "new" if found == new else "other"] += 1
    return sum(counts.values()), (
        "results of the old table {old} times, of the new one {new}, refused {refused}, "
        "of both or of neither {other}"
    ).format(**counts)


def turn_clock(folder: Path, template: Path, undisturbed: Undisturbed) -> tuple[int, str]:
    """Set the clock an hour forth, two back and right again, under every command.

    Twice a second, or three times where there are workers: Dask restarts them at a jump.
    """
    library = find_faketime()
    if library is None:
        return 0, "not tried: libfaketime is not installed (pip install libfaketime)"
    told = failed = differences = leftovers = 0
    for name, job in JOBS.items():
        scene = Scene(folder / "scene", template)
        clock = scene.folder / "clock"
        pause = undisturbed[name]["seconds"] / 3 if "two workers" in name else 0.5
        clock.write_text("+0")
        process = scene.start(
            job,
            LD_PRELOAD=str(library),
            FAKETIME_TIMESTAMP_FILE=str(clock),
            FAKETIME_NO_CACHE="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
            DONT_FAKE_MONOTONIC="1",
            NO_FAKE_STAT="1",
        )
        for hours in turns():
            clock.with_suffix(".new").write_text(f"{hours:+d}h")
            clock.with_suffix(".new").replace(clock)
            try:
                process.wait(pause)
                break
            except subprocess.TimeoutExpired:
                continue
        if process.returncode == 2 and is_sentence(scene.said()):
            told += 1
            process = scene.start(job)
            process.wait()
        failed += process.returncode != 0
        differences += count_differences(scene.results(), undisturbed[name]["files"])
        leftovers += len(scene.leftovers())
    return len(JOBS), (
        f"{told} ended with a sentence and were run again; {failed} failed, {differences} files "
        f"differ, {leftovers} leftovers"
    )


def find_faketime() -> Path | None:
    """Return the library that fakes the time; Debian's 0.9.10 makes Python's sleeps fail."""
    found = importlib.util.find_spec("libfaketime")
    place = Path("vendor", "libfaketime", "src", "libfaketime.so.1")
    library = Path(found.origin).parent / place if found and found.origin else None
    return library if library and library.is_file() else None


def turns() -> Iterator[int]:
    """Yield hours by which the clock is wrong."""
    yield from itertools.cycle((0, 1, -1))


FAULTS: dict[str, Fault] = {
    "umask 077 and 022": mask_modes,
    "disk full": fill_disk,
    "Prefect's disk full": fill_prefects_disk,
    "worker stopped": stop_worker,
    "scheduler killed": kill_scheduler,
    "table replaced while read": replace_table,
    "clock set back and forth": turn_clock,
}
