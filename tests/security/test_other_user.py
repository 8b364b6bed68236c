"""What another user of this machine can do: shown as that user where the tests run as root."""

from __future__ import annotations

import fcntl
import os
import ssl
import subprocess
import tempfile
from pathlib import Path

import dask
import pytest
from distributed.security import Security

from fairfrontier.runtime.cluster.config import ClusterConfig
from fairfrontier.runtime.cluster.open import call_worker, open_cluster
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.writer import filling, make_private, recover
from flows.server import lock, make_secret
from tests.cli.process import children, wait_for
from tests.flows.served import serve, start_run
from tests.security.knock import PATHS
from tests.security.knock import knock as heard
from tests.security.sockets import LOOPBACK, PYTHON, STRANGER, knock, list_listening

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def attempt(*command):
    """Run a command as another user; return whether it succeeded, and what it wrote."""
    done = subprocess.run(
        command, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, check=False
    )
    return done.returncode == 0, done.stdout


@pytest.fixture
def shared():
    """Return a folder in which everybody may write, as in /tmp."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@as_root
def test_the_secret_is_its_owners_alone(shared):
    (shared / "open").write_text("for all")
    assert attempt("cat", shared / "open") == (True, b"for all")
    make_secret(shared)
    assert attempt("cat", shared / "secret") == (False, b"")


@as_root
def test_a_folder_that_another_user_made_is_not_used(shared):
    folder = shared / "prefect"
    assert attempt("mkdir", folder)[0]
    with pytest.raises(StoreError, match="belongs to another user"):
        make_private(folder)
    # Its owner could lead the link to another folder later.
    (shared / "mine").mkdir(mode=0o700)
    assert attempt("ln", "-s", shared / "mine", shared / "link")[0]
    with pytest.raises(StoreError, match="belongs to another user"):
        make_private(shared / "link")
    (shared / "own").symlink_to(shared / "mine")
    make_private(shared / "own")


@as_root
def test_no_other_user_locks_what_starts_the_server(shared):
    held = lock(shared / "start.lock", fcntl.LOCK_EX)
    held.close()
    assert not attempt("flock", "--nonblock", shared / "start.lock", "true")[0]


@as_root
def test_the_drafts_of_another_user_are_left_alone(shared):
    (shared / "audit.json").write_text("mine")
    (shared / "thesis.txt").write_text("mine")
    for draft in (".complete@0", ".unfinished@0"):
        lay = f"cd {shared}; mkdir {draft}; cd {draft}; echo forged > audit.json"
        assert attempt("sh", "-c", f"{lay}; echo thesis.txt > .removed")[0]
    # What another user lists in a folder of ours.
    (shared / ".complete@1").mkdir()
    (shared / ".complete@1").chmod(0o777)
    assert attempt("sh", "-c", f"echo thesis.txt > {shared}/.complete@1/.removed")[0]
    with filling(shared) as work:
        (work / "decisions.csv").write_text("new")
    recover(shared)
    assert (shared / "audit.json").read_text() == (shared / "thesis.txt").read_text() == "mine"
    assert sorted(path.name for path in shared.glob(".*")) == [
        ".complete@0",
        ".complete@1",
        ".unfinished@0",
    ]


@pytest.fixture
def others():
    """Return the ports at which servers of other tests listen, which run in this process."""
    return set(list_listening([os.getpid(), *children(os.getpid())]))


@pytest.fixture
def workers(others, shared):
    """Return a cluster's client, where others have made the folders that Dask would use."""
    for name in ("dask-scratch-space", f"fairfrontier-{os.getuid()}"):
        (shared / name).mkdir()
        (shared / name).chmod(0o777)
    with (
        dask.config.set({"temporary-directory": str(shared)}),
        open_cluster(ClusterConfig(kind="local", workers=1)) as client,
    ):
        yield client


def test_workers_keep_their_files_to_themselves_and_listen_to_this_machine_only(workers, shared):
    # Workers import modules from this folder, and unpickle what they spilled there.
    [(process, folder)] = workers.run(
        lambda dask_worker: (os.getpid(), dask_worker.local_directory)
    ).values()
    above = [
        path for path in Path(folder).parents if path.is_relative_to(shared) and path != shared
    ]
    assert above
    assert above[-1].stat().st_mode & 0o777 == 0o700
    assert above[-1].stat().st_uid == os.getuid()
    [key] = shared.rglob("*.pem")
    assert key.stat().st_mode & 0o777 == 0o600
    listening = list_listening([os.getpid(), process, *children(os.getpid())])
    assert set(listening.values()) == {LOOPBACK}
    if os.getuid() == 0:
        assert attempt("ls", folder) == (False, b"")
        assert attempt("touch", f"{folder}/evil.py") == (False, b"")
        assert attempt("cat", f"/proc/{process}/environ") == (False, b"")


@pytest.mark.skipif(PYTHON is None, reason="another user needs a Python of the system")
def test_no_port_of_a_cluster_answers_another_user(others, workers, shared):
    # A certificate of the stranger's own, and the cluster's, which only its owner can read.
    own, made = shared / "own", Security.temporary()
    own.mkdir()
    (own / "crt").write_text(made.tls_client_cert)
    (own / "pem").write_text(made.tls_client_key)
    [key] = shared.rglob("cluster.pem")
    speaking = set()
    for port in set(list_listening([os.getpid(), *children(os.getpid())])) - others:
        answers = knock(port, own / "crt", own / "pem")
        # Pages of the status are off; what speaks TLS says nothing but alerts.
        pages = [answers[name] for name in PATHS if answers[name]]
        assert {page.split()[1] for page in pages} <= {"404", "405"}, answers
        assert not answers["tls"] + answers["certificate"], answers
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(key.with_suffix(".crt"), key)
        if not pages and heard(port, b"", context):
            speaking.add(port)
    # The scheduler, the nanny and the worker: who has the certificate is answered.
    assert len(speaking) == 3
    assert call_worker(workers, abs, -1) == 1


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="another user needs a Python of the system")
def test_no_port_of_what_serves_deployed_runs_answers_another_user(fresh):
    port, tried = 4272, set()
    with serve(fresh, port) as service, start_run(fresh, port) as run:

        def ended():
            """Try the ports that the server, the worker or the run have opened since."""
            found = list_listening([service.pid, *children(service.pid)])
            assert set(found.values()) <= {LOOPBACK}
            for number in set(found) - tried:
                answers = knock(number)
                if number == port:
                    # The interface's own page, which asks for the password, is open.
                    of_api = {answers[name][9:12] for name in ("settings", "runs", "deployments")}
                    assert of_api == {"401"}, answers
                else:
                    # Of the worker, with a token for every run, which it is cancelled through.
                    assert not any(answers.values()), (number, answers)
            tried.update(found)
            return run.poll() is not None

        wait_for(ended)
        assert "'Completed'" in run.stdout.read()
    assert port in tried
