"""One Prefect server for all tests of the flows, in a folder of its own."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flows.server import AUTHENTICATION, Server, set_environment, start_server

# Prefect reads its settings at its first import, which happens when the tests are collected.
_folder = tempfile.TemporaryDirectory(prefix="fairfrontier-prefect-", ignore_cleanup_errors=True)
os.environ["PREFECT_HOME"] = _folder.name
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW"] = "ignore"


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return the server of this process's tests; one that several wrote to made some wait 60 s."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    from flows.history import flush_workers

    home = tmp_path_factory.getbasetemp() / "served"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_HOME")
        set_environment(home)
        with start_server(home) as server:
            server.wait()
            _keep_empty(server.log.parent)
            secret = os.environ[AUTHENTICATION]
            with temporary_settings({PREFECT_API_URL: server.url, PREFECT_API_AUTH_STRING: secret}):
                yield server
                flush_workers()


def _keep_empty(folder: Path) -> None:
    """Copy the database before anything runs, with what is still in its log."""
    with (
        closing(sqlite3.connect(folder / "prefect.db")) as old,
        closing(sqlite3.connect(folder / "empty.db")) as new,
    ):
        old.backup(new)


@pytest.fixture(scope="session")
def database(harness: Server) -> Path:
    """Return an empty database of Prefect's: making one takes 6 s."""
    return harness.log.parent / "empty.db"


@pytest.fixture(scope="session")
def inline(harness: Server, project: Path) -> tuple[dict[str, Any], bytes]:
    """Return what an uninterrupted run in one process says, and its points.parquet."""
    from fairfrontier.study.config import RunOptions
    from flows.frontier import frontier

    done = frontier(RunOptions(study="loans", conf=str(project), cluster="inline"))
    return done, (Path(done["folder"]) / "points.parquet").read_bytes()
