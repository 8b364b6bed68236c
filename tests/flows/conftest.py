"""One Prefect server for all tests of the flows, in a folder of its own."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

# Prefect reads its settings at its first import, which happens when the tests are collected.
_folder = tempfile.TemporaryDirectory(prefix="fairfrontier-prefect-", ignore_cleanup_errors=True)
os.environ["PREFECT_HOME"] = _folder.name
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW"] = "ignore"


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty database of Prefect's, made once for all processes: it takes 6 s."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with (folder / "prefect.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        path = folder / "prefect.db"
        if not path.exists():
            home = folder / "prefect"
            subprocess.run(
                [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"],
                env={**os.environ, "PREFECT_HOME": str(home)},
                capture_output=True,
                check=True,
            )
            copy_database(home / "prefect.db", folder / "copy.db")
            (folder / "copy.db").rename(path)
    return path


def copy_database(source: Path, target: Path) -> None:
    """Copy a database with what is still in its log."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


@pytest.fixture(scope="session")
def harness() -> Iterator[None]:
    """Run a Prefect server for the session."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture(scope="session")
def inline(harness: None, project: Path) -> tuple[dict[str, Any], bytes]:
    """Return what an uninterrupted run in one process says, and its points.parquet."""
    from fairfrontier.study.option import RunOptions
    from flows.frontier import frontier

    done = frontier(RunOptions(study="loans", conf=str(project), cluster="inline"))
    return done, (Path(done["folder"]) / "points.parquet").read_bytes()
