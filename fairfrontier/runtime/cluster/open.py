"""Open a cluster, and close it with all that it has started.

The certificate by which the processes of a cluster on this machine know each other.

Work on the workers of a cluster that may lose them.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fairfrontier.runtime.cluster.config import CLUSTER_CLASSES, ClusterConfig
from fairfrontier.runtime.errors import ClusterError, StoreError, need
from fairfrontier.runtime.thread import count_cores, thread_environment
from fairfrontier.runtime.writer import drafting, find_user, make_private, recover


def make_certificate(folder: Path) -> Any:
    """Return the security of a new certificate and its key, as files in a folder.

    `Security.temporary` would write both to the machine's temporary files whenever it reads them,
    and its certificate is not valid before now: a clock that is set back would stop the workers.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from distributed.security import Security

    own, name = ec.generate_private_key(ec.SECP256R1()), x509.NameAttribute
    subject = x509.Name([name(x509.NameOID.COMMON_NAME, "fairfrontier")])
    made = x509.CertificateBuilder(subject, subject, own.public_key(), x509.random_serial_number())
    now = datetime.now(UTC)
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=365))
    pem = serialization.Encoding.PEM
    certificate, key = folder / "cluster.crt", folder / "cluster.pem"
    certificate.write_bytes(made.sign(own, hashes.SHA256()).public_bytes(pem))
    key.touch(mode=0o600)
    key.write_bytes(
        own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=str(certificate),
        **{f"tls_{role}_cert": str(certificate) for role in roles},
        **{f"tls_{role}_key": str(key) for role in roles},
    )


# Seconds within which workers that are started anew are expected.
RETURN = 20.0
# Seconds between checks that the scheduler is there.
LOOK = 1.0


def connect(cluster: Any, **options: Any) -> Any:
    """Return a new client of a cluster, or of the scheduler of an address.

    What Dask computes by it waits for workers as `call_worker` does. OSError is raised when no
    scheduler answers.
    """
    from distributed import Client, futures_of

    class CheckedClient(Client):
        def get(self, dsk: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
            sync = options.pop("sync", True)
            packed = super().get(dsk, keys, *arguments, sync=False, **options)
            if not sync:
                return packed
            futures = futures_of(packed)
            try:
                with _naming_losses():
                    _wait(self, futures)
                    return self.gather(packed)
            finally:
                for future in futures:
                    future.release()

    return CheckedClient(cluster, set_as_default=False, **options)


def call_worker(client: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns on a worker.

    Raises
    ------
    ClusterError
        When the scheduler is gone, no worker comes back, or several in a row were lost with the
        function.
    """
    with _naming_losses():
        _require_scheduler(client)
        future = client.submit(function, *arguments, pure=False)
        try:
            _wait(client, [future])
            return future.result()
        finally:
            future.release()


@contextmanager
def _naming_losses() -> Iterator[None]:
    """Turn Dask's errors about lost workers and schedulers into a ClusterError."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"{error.allowed_failures + 1} workers in a row were lost at the same work.",
            "Check their memory and their logs, and run it again.",
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise ClusterError(
            "The scheduler of the cluster does not answer any more.",
            "Start it, and run this again, or choose another cluster with --cluster.",
        ) from error


def _require_scheduler(client: Any) -> None:
    """Raise CommClosedError for a client that would keep what is submitted, and wait for ever."""
    from distributed.comm import CommClosedError

    if client.status != "running":
        raise CommClosedError("the connection is closed")


def _wait(client: Any, futures: Sequence[Any]) -> None:
    """Wait until work is done, or some of it has failed; raise where no worker is left to do it."""
    watch = _watch_workers(client)
    while (pending := [each for each in futures if not each.done()]) and not any(
        each.status == "error" for each in futures
    ):
        _require_scheduler(client)
        next(watch)
        with suppress(TimeoutError):
            pending[0].exception(timeout=LOOK)


def _watch_workers(client: Any) -> Iterator[None]:
    """Look at each step whether there are workers; where none is, start new ones, or give up.

    A nanny that is told to restart its worker while the worker starts never starts another. Workers
    of a clock that is set back are silent until it is as late again: Dask counts by that clock.
    """
    import dask
    from dask.utils import parse_timedelta
    from distributed.comm import CommClosedError

    patience = parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout"))
    seen, asked = time.monotonic(), False
    while True:
        yield
        try:
            workers = client.scheduler_info(n_workers=1)["workers"]
        except OSError as error:
            raise CommClosedError("the scheduler is gone") from error
        missing = 0.0 if workers else time.monotonic() - seen
        if workers:
            seen, asked = time.monotonic(), False
        elif missing > patience + max(patience, RETURN):
            raise ClusterError(
                f"The cluster has had no worker for {missing:.0f} s.",
                "Check the workers' memory and their logs, and run it again.",
            )
        elif missing > patience + LOOK and not asked:
            # By now Dask has removed the lost ones from what it believes to run.
            asked, wanted = True, getattr(client.cluster, "worker_spec", ())
            if wanted:
                client.cluster.scale(len(wanted))


_log = logging.getLogger(__name__)
# The folder of this user's clusters among the machine's temporary files.
PRIVATE = f"fairfrontier-{find_user(0)}"
# Python puts the current folder, which may be anybody's, before the standard library for what it
# starts as `python -c` and `python -m`, as multiprocessing and Dask do.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
# What nannies set before a worker imports NumPy, as OpenBLAS requires.
ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
# Dask has glibc return all memory at once, and a fit's arrays are mapped anew each time: a fifth of
# a study's seconds. These keep up to 32 MB that were freed, of arrays below 8 MB.
DASK_TRIM = {"MALLOC_TRIM_THRESHOLD_": 65536}
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": 1 << 25, "MALLOC_MMAP_THRESHOLD_": 1 << 23}


def can_start_processes() -> bool:
    """Whether Dask is here, and this program can have workers, which import its main module again.

    A script would run again in each of them, unless it asks whether it is ``__main__``.
    """
    if not find_spec("distributed"):
        return False
    main = sys.modules["__main__"]
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    # A notebook and an interactive Python have no file; nor is a package's __main__ imported again.
    if path is None or (spec is not None and spec.name.endswith(".__main__")):
        return True
    with suppress(OSError):
        return b"__main__" in Path(path).read_bytes()
    return True


@contextmanager
def open_cluster(config: ClusterConfig) -> Iterator[Any]:
    """Open the cluster, yield its client, or None for kind ``inline``, and close it.

    The client is not made Dask's default. A local process runs one fit at a time (one Dask thread).
    The number of workers is not adapted: distributed XGBoost hangs when a worker that holds data
    leaves.

    Raises
    ------
    ClusterError
        When a scheduler does not answer, or no worker comes in time.
    ConfigError
        When a library is missing.
    """
    if config.kind == "inline":
        yield None
        return
    # What distributed configures as it is imported would go with the settings below.
    need("dask", "distributed", "cryptography")
    import dask

    # Its messages about every connection do not belong in a run's terminal; errors are raised.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    environment = _worker_environment(config)
    settings: dict[str, Any] = {ENVIRONMENT: environment}
    # Dask gives up a dead worker after 15 s, but a busy machine needs longer to start another.
    settings["distributed.deploy.lost-worker-timeout"] = f"{config.timeout}s"
    if config.kind in ("local", "cuda"):
        settings["distributed.scheduler.worker-ttl"] = f"{config.silence}s"
    if config.kind != "scheduler" and not config.dashboard:
        # Its pages list tasks and memory to everybody who reaches this machine.
        settings["distributed.scheduler.http.routes"] = []
        settings["distributed.worker.http.routes"] = []
    with _scratch(config) as scratch, dask.config.set(settings), _own_environment(environment):
        cluster = None
        client = None
        local = config.kind == "local"
        try:
            if config.kind == "scheduler":
                client = connect(config.address, security=_security(config), timeout=config.timeout)
            else:
                # IPython's %reset removes what multiprocessing asks for.
                vars(sys.modules["__main__"]).setdefault("__spec__", None)
                cluster = _start(config, scratch)
                client = connect(cluster, timeout=config.timeout)
                if local:
                    # Those wanted earlier would be waited for without end.
                    cluster.scale(config.workers or count_cores())
            own = getattr(cluster, "worker_spec", ()) if config.kind in ("local", "cuda") else ()
            _await_workers(client, len(own) or 1, config.timeout)
            if own:
                client.run(_ignore_interrupts)
            if (config.dashboard or config.kind == "scheduler") and client.dashboard_link:
                # Without bokeh its pages are empty.
                more = "" if find_spec("bokeh") else " (empty without bokeh: pip install bokeh)"
                _log.info("Dask's dashboard: %s%s", client.dashboard_link, more)
        except BaseException as error:
            _close(client, cluster, kill=local)
            # Classes of other libraries raise anything at options that they do not take.
            if isinstance(error, ClusterError) or not isinstance(error, Exception):
                raise
            where = config.address or config.kind
            reason = " ".join(str(error).split())
            raise ClusterError(
                f"The cluster {where!r} had no worker within {config.timeout:g} s: {reason}.",
                "Check that it runs, or choose another with --cluster.",
            ) from error
        lost = False
        try:
            yield client
        except ClusterError:
            lost = True
            raise
        finally:
            _close(client, cluster, kill=local and lost)


def _worker_environment(config: ClusterConfig) -> dict[str, Any]:
    """Return what Dask sets for its workers, with the threads of each.

    Where Dask watches a worker's memory, its own settings stay: a worker that keeps what it freed
    could be stopped at 80% of its memory for good. So do those of a user's configuration.
    """
    import dask

    given: dict[str, Any] = dask.config.get(ENVIRONMENT, {})
    watched = config.kind != "local" or config.memory is not None
    kept = {} if watched or not DASK_TRIM.items() <= given.items() else KEPT_MEMORY
    here = config.kind in ("local", "cuda")
    each = max(1, count_cores() // (config.workers or count_cores())) if here else 1
    return given | kept | thread_environment(config.threads or each) | SAFE_PATH


@contextmanager
def _own_environment(names: Iterable[str]) -> Iterator[None]:
    """Set the safe path before multiprocessing's resource tracker starts; restore variables after.

    Nannies set their workers' in this process, where the next cluster's would not replace them.
    """
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(SAFE_PATH)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def clear_killed() -> None:
    """Remove what killed clusters of this user left: a run that goes on may need none any more."""
    # Dask's own setting of another place is not asked for: that would import it.
    for folder in _list_private(Path(tempfile.gettempdir()).absolute()):
        if folder.is_dir():
            with suppress(OSError, StoreError):
                make_private(folder)
                recover(folder)


def _await_workers(client: Any, expected: int, timeout: float) -> None:
    """Wait for workers, for each so long after the one before.

    Dask's own wait reads the clock of the day, which may be set.
    """
    count, since = 0, time.monotonic()
    while count < expected:
        if time.monotonic() - since > timeout:
            raise TimeoutError(f"{count} of {expected} workers came")
        time.sleep(0.05)
        known = len(client.scheduler_info(n_workers=-1)["workers"])
        if known > count:
            count, since = known, time.monotonic()


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which reaches every process of the terminal, in workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _scratch(config: ClusterConfig) -> Iterator[Path | None]:
    """Set a folder for a local cluster's files, removed at the end; killed clusters' go first."""
    if config.kind not in ("local", "cuda"):
        yield None
        return
    import dask

    with drafting(_find_private()) as scratch, dask.config.set(temporary_directory=str(scratch)):
        yield scratch


def _find_private() -> Path:
    """Return a folder of temporary files that nobody else can read or write to.

    Dask would take one that anybody made; workers import modules from there and unpickle what they
    spilled.
    """
    import dask

    base = Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir()).absolute()
    for folder in _list_private(base):
        with suppress(OSError, StoreError):
            make_private(folder)
            return folder
    return Path(tempfile.mkdtemp(prefix=f"{PRIVATE}-", dir=base))


def _list_private(base: Path) -> list[Path]:
    """Return the folders that `_find_private` may have made: others stand in where one is taken."""
    return [base / PRIVATE, *sorted(base.glob(f"{PRIVATE}-*"))]


def _start(config: ClusterConfig, scratch: Path | None) -> Any:
    from distributed import LocalCluster

    options = dict(config.options)
    if scratch is not None and "protocol" not in options:
        # Else anybody on this machine could run functions in the workers. UCX has no TLS.
        options["security"] = make_certificate(scratch)
    if config.kind == "local":
        return LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            # Without an address the scheduler would still take port 8787.
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": config.dashboard},
            memory_limit=config.memory or 0,
            # A worker that ends between two heartbeats prints a traceback; errors of tasks reach
            # the client in any case.
            silence_logs=logging.CRITICAL,
            **options,
        )
    if config.kind == "cuda":
        factory = _import("dask_cuda", "LocalCUDACluster", config.kind)
        count = {} if config.workers is None else {"n_workers": config.workers}
        return factory(
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            **count,
            **options,
        )
    module, name = CLUSTER_CLASSES[config.kind]
    if module == "dask_jobqueue":
        # Its workers are on other machines, so that the scheduler listens to the whole network.
        options = {
            "security": True,
            "shared_temp_directory": str(Path.cwd()),
            # SAFE_PATH for jobs, which start with an environment of their own.
            "python": f"{sys.executable} -P",
            **options,
        }
    factory = _import(module, name, config.kind)
    submit = str(getattr(getattr(factory, "job_cls", None), "submit_command", "")).partition(" ")[0]
    if submit and shutil.which(submit) is None:
        # Else workers would be waited for that nobody has asked for.
        raise ClusterError(
            f"There is no {submit} here, which starts the workers of a cluster {config.kind!r}.",
            "Run this where jobs are submitted, or choose another cluster with --cluster.",
        )
    cluster = factory(**options)
    cluster.scale(config.workers or 1)
    return cluster


def _import(module: str, name: str, kind: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ClusterError(
            f"A cluster of kind {kind!r} needs {package}, which cannot be imported here: {error}.",
            f"Install {package}, or choose another cluster with --cluster.",
        ) from error


def _security(config: ClusterConfig) -> Any:
    if config.tls_ca_file is None:
        return None
    from distributed.security import Security

    for path in (config.tls_ca_file, config.tls_cert, config.tls_key):
        if path is not None and not Path(path).is_file():
            raise ClusterError(f"The TLS file {path} is missing.", "Correct the cluster's YAML.")
    return Security(
        tls_ca_file=config.tls_ca_file,
        tls_client_cert=config.tls_cert,
        tls_client_key=config.tls_key,
        require_encryption=True,
    )


def _close(client: Any, cluster: Any, *, kill: bool) -> None:
    """Close both, where there are any; ``kill`` this process's workers first.

    Dask waits without end for those that have not started, or do not answer.
    """
    workers = multiprocessing.active_children() if kill else []
    for process in workers:
        if process.name.startswith("Dask Worker"):
            process.kill()
    for resource in (client, cluster):
        if resource is not None:
            resource.close()
