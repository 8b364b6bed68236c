"""A Prefect server with user interface, the deployments, and a worker: for scheduled runs."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairfrontier.runtime.errors import ClusterError, ConfigError
from fairfrontier.runtime.home import VARIABLE
from flows.server import (
    POLL_SECONDS,
    Server,
    find_folder,
    keeping_temporary,
    read_error,
    set_environment,
    start_server,
)

POOL = "fairfrontier"
# What a run may not choose, though Prefect would let whoever starts it: anybody's code would run.
FIXED = frozenset({"command", "env", "working_dir"})
CHECKOUT = Path(__file__).resolve().parents[1]


def serve_all(home: Path, port: int, say: Callable[[str], None]) -> None:
    """Serve on the loopback address until interrupted; ``say`` prints what is ready.

    Raises ConfigError if prefect.yaml cannot be deployed, ClusterError if the port is taken, or the
    server does not start or ends.
    """
    # As Ctrl-C: the runs and the worker end before the server does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    os.environ.pop("PREFECT_API_URL", None)
    os.environ[VARIABLE] = str(home)
    set_environment(home)
    with keeping_temporary(find_folder(home)), start_server(home, "serve", port) as server:
        server.wait()
        from flows.history import crash_dead_runs

        crash_dead_runs()
        say(f"Prefect's server and user interface: {server.url.removesuffix('/api')}")
        say(f"Its password is the line in {server.secret}. For Prefect's own command, in a shell:")
        secret = shlex.quote(str(server.secret))
        say(f"  export PREFECT_API_URL={server.url} PREFECT_API_AUTH_STRING=$(cat {secret})")
        asyncio.run(_create_pool())
        register_deployments()
        say(f"Deployments are registered; the worker of pool {POOL!r} waits. Ctrl-C ends it all.")
        try:
            asyncio.run(_work(server))
        except KeyboardInterrupt:
            say("Stopped.")


def register_deployments() -> None:
    """Register what prefect.yaml describes, as `prefect --no-prompt deploy --all` does."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    completed = subprocess.run(  # noqa: S603
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    if completed.returncode:
        last = (completed.stdout + completed.stderr).strip().splitlines()[-1:]
        raise ConfigError(
            f"{CHECKOUT / 'prefect.yaml'} could not be deployed: {' '.join(last)}.",
            "Correct it; `.venv/bin/prefect --no-prompt deploy --all` shows the whole message.",
        )


async def _create_pool() -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectNotFound
    from prefect.workers.process import ProcessWorker

    async with get_client() as client:
        template = restrict_jobs(ProcessWorker.get_default_base_job_template())
        try:
            await client.read_work_pool(POOL)
            await client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=template))
        except ObjectNotFound:
            pool = WorkPoolCreate(name=POOL, type="process", base_job_template=template)
            await client.create_work_pool(pool)


def restrict_jobs(template: dict[str, Any]) -> dict[str, Any]:
    """Return a pool's template in which a run cannot choose its command, folder or environment."""
    variables = template["variables"]
    command = shlex.join([sys.executable, "-P", "-m", "flows.deployed"])
    return {
        "job_configuration": {
            **_leave_out_fixed(template["job_configuration"]),
            "command": command,
        },
        "variables": {**variables, "properties": _leave_out_fixed(variables["properties"])},
    }


def _leave_out_fixed(section: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name not in FIXED}


async def _work(server: Server) -> None:
    """Work on scheduled runs until the server ends."""
    from prefect.workers.process import ProcessWorker

    work = asyncio.create_task(ProcessWorker(work_pool_name=POOL, name=POOL).start())
    while not server.has_ended():
        done, _ = await asyncio.wait([work], timeout=POLL_SECONDS)
        if done:
            return work.result()
    # Its runs, too: they would ask whoever takes the port.
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    raise ClusterError(
        f"The Prefect server ended{read_error(server.log)}.", f"Its log is {server.log}."
    )
