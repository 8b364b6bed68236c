from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fairfrontier.runtime.errors import ClusterError, StoreError
from flows.server import (
    AUTHENTICATION,
    Server,
    find_running,
    keeping_temporary,
    make_secret,
    set_environment,
    start_server,
)
from tests.project import ROOT
from tests.security.knock import PATHS
from tests.security.sockets import LOOPBACK, knock, list_listening


@pytest.fixture
def clean(monkeypatch):
    """Hide the settings of the tests' own server, and set them back afterwards."""
    for name in [each for each in os.environ if each.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_settings_are_absolute_and_what_the_user_set_stays(clean, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_LOCAL_STORAGE_PATH", "/elsewhere")
    monkeypatch.setenv("no_proxy", "intern")
    set_environment(tmp_path)
    assert os.environ["PREFECT_HOME"] == str(tmp_path / "data" / "prefect")
    assert os.environ["PREFECT_LOCAL_STORAGE_PATH"] == "/elsewhere"
    assert os.environ["DO_NOT_TRACK"] == "1"
    assert os.environ["no_proxy"] == "intern,127.0.0.1,localhost"


def test_a_relative_folder_is_that_of_the_current_one_for_every_process(
    clean, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", "own")
    set_environment(tmp_path)
    assert os.environ["PREFECT_HOME"] == str(tmp_path / "own")


def test_what_is_served_shares_no_temporary_folder(clean, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    tmp_path.chmod(0o700)
    with keeping_temporary(tmp_path):
        own = Path(tempfile.gettempdir())
        assert (own.parent, os.environ["TMPDIR"]) == (tmp_path, str(own))
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert not list(tmp_path.iterdir())
    with pytest.raises(StoreError), keeping_temporary(Path("/proc/no")):
        pass


def test_a_home_that_cannot_be_written_is_told(clean):
    with pytest.raises(StoreError):
        set_environment(Path("/proc/nowhere"))


def test_a_folder_that_others_could_write_to_is_refused(clean, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(StoreError):
        set_environment(tmp_path)
    tmp_path.chmod(0o755)
    set_environment(tmp_path)


@pytest.mark.parametrize(("planted", "mode"), [("", 0o600), ("fairfrontier:known", 0o644)])
def test_a_new_secret_replaces_what_is_there(tmp_path, planted, mode):
    (tmp_path / "secret").write_text(planted)
    (tmp_path / "secret").chmod(mode)
    secret = make_secret(tmp_path)
    assert re.fullmatch(r"fairfrontier:[\w-]{43}", secret)
    assert (tmp_path / "secret").read_text() == secret
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_every_server_has_a_secret_of_its_own(clean, tmp_path):
    set_environment(tmp_path)
    with start_server(tmp_path) as first:
        told = first.secret.read_text()
        assert os.environ[AUTHENTICATION] == told
        del os.environ["PREFECT_API_URL"]
        Server(tmp_path).stop()
        assert first.secret.read_text() == told
    with start_server(tmp_path) as second:
        assert second.secret.read_text() != told


def test_nobody_gets_the_port_of_a_killed_server(clean, tmp_path):
    set_environment(tmp_path)
    with start_server(tmp_path) as server:
        os.kill(int(find_running(tmp_path / "data" / "prefect")[0]), signal.SIGKILL)
        wait_until_gone(tmp_path / "data" / "prefect")
        address = urlsplit(server.url)
        with pytest.raises(OSError, match="in use"):
            socket.create_server((address.hostname, address.port))
        # Whoever asks is not left waiting.
        with pytest.raises(ClusterError):
            server.wait()


def test_a_server_of_the_users_is_used_and_asked_for(clean, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    set_environment(tmp_path)
    monkeypatch.setattr("flows.server.ANSWER_SECONDS", 0.2)
    with start_server(tmp_path) as server:
        assert server.url == "http://127.0.0.1:1/api"
        with pytest.raises(ClusterError):
            server.wait()


def test_a_server_that_does_not_start_points_at_its_log(clean, tmp_path):
    set_environment(tmp_path)
    server = Server(tmp_path)
    with pytest.raises(ClusterError, match=r"server\.log"):
        server.wait(seconds=0.05)
    server.stop()
    assert "PREFECT_API_URL" not in os.environ


def test_a_full_disk_is_said_before_anything_starts(clean, tmp_path, monkeypatch):
    set_environment(tmp_path)
    full = shutil._ntuple_diskusage(1 << 30, 1 << 30, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(StoreError, match=r"disk of .*prefect is full: it has 0\.0 MiB left"):
        Server(tmp_path)
    assert not list((tmp_path / "data" / "prefect").iterdir())


@pytest.mark.slow
def test_a_server_that_ends_says_why(clean, tmp_path):
    set_environment(tmp_path)
    (tmp_path / "data" / "prefect" / "prefect.db").mkdir()
    cause = r"server ended: .*unable to open database"
    with start_server(tmp_path) as server, pytest.raises(ClusterError, match=cause):
        server.wait()


@pytest.mark.once
def test_runs_of_a_project_share_one_server_that_ends_with_the_last(clean, tmp_path, database):
    set_environment(tmp_path)
    folder = tmp_path / "data" / "prefect"
    shutil.copy(database, folder)
    with start_server(tmp_path) as first:
        del os.environ["PREFECT_API_URL"]
        second = Server(tmp_path)
        assert second.url == first.url
        with pytest.raises(StoreError):
            Server(tmp_path, "serve")
        process, url = find_running(folder)
        assert (int(process), url) != (os.getpid(), "")
        second.wait()
    # The run that started it is gone: it still answers the other, and then ends.
    second.wait(seconds=1)
    second.stop()
    wait_until_gone(folder)
    with start_server(tmp_path) as third:
        assert third.url != first.url


def test_another_folder_has_another_server(clean, tmp_path, monkeypatch):
    set_environment(tmp_path)
    with start_server(tmp_path) as first:
        del os.environ["PREFECT_API_URL"]
        monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "other"))
        set_environment(tmp_path)
        with start_server(tmp_path) as other:
            assert other.log == tmp_path / "other" / "server.log"
            assert other.url != first.url


def test_a_killed_run_leaves_no_server(clean, tmp_path):
    code = "import sys, time, flows.server as s; from pathlib import Path; home = Path(sys.argv[1])"
    code += "; s.set_environment(home); s.Server(home); print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert find_running(tmp_path / "data" / "prefect") is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until_gone(tmp_path / "data" / "prefect")


def wait_until_gone(folder):
    end = time.monotonic() + 30
    while find_running(folder) is not None:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def serving(harness):
    """Return a server's Prefect folder and address."""
    return harness.log.parent, harness.url


def ask(url, **headers):
    """Return the status and the headers of the answer to a question about runs."""
    request = urllib.request.Request(f"{url}/flow_runs/filter", b"{}", headers)  # noqa: S310
    request.add_header("Content-Type", "application/json")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def test_only_who_knows_the_secret_is_answered(serving):
    folder, url = serving
    secret = base64.b64encode((folder / "secret").read_bytes()).decode()
    assert ask(url)[0] == 401
    assert ask(url, Authorization="Basic " + base64.b64encode(b"fairfrontier:").decode())[0] == 401
    assert ask(url, Authorization=f"Basic {secret}")[0] == 200


def test_pages_of_other_origins_and_other_names_are_refused(serving):
    folder, url = serving
    known = {
        "Authorization": "Basic " + base64.b64encode((folder / "secret").read_bytes()).decode()
    }
    own = url.removesuffix("/api")
    allowed = "Access-Control-Allow-Origin"
    assert ask(url, **known, Origin=own)[1][allowed] == own
    assert allowed not in ask(url, **known, Origin="http://evil.example")[1]
    assert ask(url, **known, Host="evil.example")[0] == 400


def test_the_secret_and_the_runs_are_their_owners_alone(serving):
    folder, _ = serving
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    if os.getuid() == 0:
        seen = subprocess.run(["cat", folder / "secret"], user=65534, capture_output=True)
        assert b"Permission denied" in seen.stderr


def test_the_server_listens_on_this_machine_only(serving):
    folder, _ = serving
    process = int(find_running(folder)[0])
    assert set(list_listening([process]).values()) == {LOOPBACK}
    # Everybody can read what a process was called with.
    assert (folder / "secret").read_bytes() not in Path(f"/proc/{process}/cmdline").read_bytes()


def test_no_port_answers_another_user(serving):
    folder, _ = serving
    for port in list_listening([int(find_running(folder)[0])]):
        answers = knock(port)
        assert {answers[name].split()[1] for name in PATHS} <= {"401", "404"}, answers
        assert "200" not in answers["text"]


@pytest.mark.slow
def test_no_route_answers_without_the_secret(serving):
    # Open is whether it runs.
    folder, url = serving
    open_paths = {"/api/health", "/api/ready"}
    own = url.removesuffix("/api")
    secret = base64.b64encode((folder / "secret").read_bytes()).decode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    known = {"Authorization": f"Basic {secret}"}
    described = urllib.request.Request(f"{own}/api/openapi.json", headers=known)  # noqa: S310
    with opener.open(described, timeout=30) as answer:
        paths = json.load(answer)["paths"]
    methods = {name.upper() for each in paths.values() for name in each}
    assert {"GET", "POST", "PATCH", "DELETE"} <= methods
    assert len(paths) > 100
    host, _, port = own.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    for path, described in paths.items():
        for method in described:
            full = path if path.startswith("/api") else f"/api{path}"
            connection.request(method.upper(), full.replace("{", "").replace("}", ""))
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 401 or full in open_paths, (method, full, answer.status)
    # Open, too, are pages that every installation has: they show nothing of this one.
    private = [(folder / "secret").read_text(), secret, str(folder)]
    for page in ("/", "/docs", "/openapi.json", "/ui-settings", *open_paths):
        connection.request("GET", page)
        text = connection.getresponse().read().decode()
        assert not [part for part in private if part in text], page
    connection.close()


def hear(address, **arguments):
    """Return what a channel of the server says to a wrong password before it closes."""
    from websockets.exceptions import ConnectionClosed, InvalidStatus
    from websockets.sync.client import connect

    heard = []
    try:
        with connect(address, proxy=None, **arguments) as channel:
            channel.send('{"type": "auth", "token": "fairfrontier:wrong"}')
            while True:
                heard.append(channel.recv(timeout=10))
    except (ConnectionClosed, InvalidStatus):
        return heard


@pytest.mark.parametrize(
    "path", ["events/in", "events/out", "logs/out", "task_runs/subscriptions/scheduled"]
)
def test_no_channel_answers_without_the_secret(serving, path):
    _, url = serving
    address = f"{url.replace('http', 'ws', 1)}/{path}"
    assert hear(address) == []
    # A page's script may connect wherever it wants: browsers ask no server for that.
    said = hear(address, subprotocols=["prefect"], origin="http://evil.example")
    assert "success" not in "".join(said)


def test_a_taken_port_is_told(clean, tmp_path):
    set_environment(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ClusterError):
            Server(tmp_path, "serve", taken.getsockname()[1])
