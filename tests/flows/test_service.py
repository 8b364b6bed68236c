from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from flows.service import restrict_jobs
from tests.project import command, environment

PORT = 4271
API = f"http://127.0.0.1:{PORT}/api"


@pytest.mark.slow
def test_a_deployed_run_works_and_the_user_interface_asks_the_right_server(fresh):
    surroundings = environment(fresh)
    with subprocess.Popen(
        command("serve", "--port", str(PORT), module="flows"),
        env=surroundings,
        cwd=fresh,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as service:
        try:
            lines = iter(service.stdout.readline, "")
            assert any("worker of pool" in line for line in lines)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://127.0.0.1:{PORT}/ui-settings", timeout=10) as answer:
                assert json.load(answer)["api_url"] == API
            secret = (fresh / "data" / "prefect" / "secret").read_text()
            with opener.open(f"http://127.0.0.1:{PORT}/", timeout=10) as answer:
                assert b"The password is the line in" in answer.read()
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "prefect", "deployment", "run", "frontier/adult"),
                    *("--param", 'run={"study":"loans","cluster":"inline"}', "--watch"),
                    # What would run other code, were it listened to.
                    *("--job-variable", f"command=touch {fresh}/owned"),
                    *("--job-variable", "working_dir=/nowhere"),
                    *("--job-variable", 'env={"PYTHONSTARTUP": "x", "PYTHONPATH": "/nowhere"}'),
                ],
                env={**surroundings, "PREFECT_API_URL": API, "PREFECT_API_AUTH_STRING": secret},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert "'Completed'" in done.stdout, done.stdout + done.stderr
            assert not (fresh / "owned").exists()
        finally:
            service.send_signal(signal.SIGINT)
            end = time.monotonic() + 20
            while service.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            if service.poll() is None:
                os.kill(service.pid, signal.SIGKILL)
    assert (fresh / "data" / "results" / "loans" / "report.html").is_file()
    assert service.returncode == 0


def test_a_run_chooses_neither_command_nor_folder_nor_environment(harness):
    from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

    template = restrict_jobs(ProcessWorker.get_default_base_job_template())
    asked = {"command": "touch /tmp/x", "env": {"LD_PRELOAD": "x"}, "working_dir": "/", "name": "a"}
    resolve = ProcessJobConfiguration.from_template_and_values
    done = asyncio.run(resolve(template, asked))
    assert (done.command, done.env, done.working_dir, done.name) == (None, {}, None, "a")
