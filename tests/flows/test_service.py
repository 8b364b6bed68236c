from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.project import command, environment

PORT = 4271
API = f"http://127.0.0.1:{PORT}/api"


@pytest.mark.slow
def test_a_deployed_run_works_and_the_user_interface_asks_the_right_server(fresh):
    surroundings = environment(fresh)
    with subprocess.Popen(
        command("serve", "--port", str(PORT)),
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
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "prefect", "deployment", "run", "frontier/adult"),
                    *("--param", 'run={"study":"loans","cluster":"inline"}', "--watch"),
                ],
                env={**surroundings, "PREFECT_API_URL": API},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert "'Completed'" in done.stdout, done.stdout + done.stderr
        finally:
            service.send_signal(signal.SIGINT)
            end = time.monotonic() + 20
            while service.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            if service.poll() is None:
                os.kill(service.pid, signal.SIGKILL)
    assert (fresh / "data" / "results" / "loans" / "report.html").is_file()
    assert service.returncode == 0
