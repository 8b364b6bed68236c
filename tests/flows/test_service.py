from __future__ import annotations

import asyncio
import json
import urllib.request

import pytest

from flows.service import restrict_jobs
from tests.flows.served import serve, start_run

PORT = 4271
OWN = f"http://127.0.0.1:{PORT}"


@pytest.mark.slow
def test_a_deployed_run_works_and_the_user_interface_asks_the_right_server(
    fresh, tmp_path, monkeypatch
):
    # What another user may have made in /tmp.
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "runner_storage").write_text("not a folder")
    monkeypatch.setenv("TMPDIR", str(shared))
    with serve(fresh, PORT) as service:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{OWN}/ui-settings", timeout=10) as answer:
            assert json.load(answer)["api_url"] == f"{OWN}/api"
        with opener.open(f"{OWN}/", timeout=10) as answer:
            assert b"The password is the line in" in answer.read()
        # What would run other code, were it listened to.
        told, _ = start_run(
            fresh,
            PORT,
            *("--job-variable", f"command=touch {fresh}/owned"),
            *("--job-variable", "working_dir=/nowhere"),
            *("--job-variable", 'env={"PYTHONSTARTUP": "x", "PYTHONPATH": "/nowhere"}'),
        ).communicate(timeout=120)
        assert "'Completed'" in told
        assert not (fresh / "owned").exists()
    assert (fresh / "data" / "results" / "loans" / "report.html").is_file()
    assert service.returncode == 0
    assert [path.name for path in shared.iterdir()] == ["runner_storage"]
    assert not list((fresh / "data" / "prefect").glob(".*@*"))


def test_a_run_chooses_neither_command_nor_folder_nor_environment(harness):
    from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

    template = restrict_jobs(ProcessWorker.get_default_base_job_template())
    asked = {"command": "touch /tmp/x", "env": {"LD_PRELOAD": "x"}, "working_dir": "/", "name": "a"}
    resolve = ProcessJobConfiguration.from_template_and_values
    done = asyncio.run(resolve(template, asked))
    assert (done.command, done.env, done.working_dir, done.name) == (None, {}, None, "a")
