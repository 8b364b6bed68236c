"""Where fits run: in this process, on local processes, on CUDA devices, or on a Dask cluster."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, model_validator

from fairfrontier.runtime.cluster_option import LOCAL_OPTIONS, LONGEST, check_memory
from fairfrontier.runtime.config import Model, fault, parse, read_first_fault, read_yaml
from fairfrontier.runtime.errors import ClusterError, ConfigError, StoreError, nearest
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.thread import count_cores, thread_environment
from fairfrontier.runtime.writer import drafting, make_private, recover

# Short name -> module and class; those of dask-jobqueue and dask-kubernetes take keywords.
CLUSTER_CLASSES: dict[str, tuple[str, str]] = {
    "slurm": ("dask_jobqueue", "SLURMCluster"),
    "pbs": ("dask_jobqueue", "PBSCluster"),
    "sge": ("dask_jobqueue", "SGECluster"),
    "lsf": ("dask_jobqueue", "LSFCluster"),
    "oar": ("dask_jobqueue", "OARCluster"),
    "htcondor": ("dask_jobqueue", "HTCondorCluster"),
    "moab": ("dask_jobqueue", "MoabCluster"),
    "kubernetes": ("dask_kubernetes.operator", "KubeCluster"),
}
# Seconds within which restarted workers are expected.
RETURN = 20.0
# Seconds between checks that the scheduler is there.
LOOK = 1.0
# Workers of a cluster, and threads of each.
MOST = 10_000
# The folder of this user's clusters among the machine's temporary files.
PRIVATE = f"fairfrontier-{os.getuid()}"
OWN_KINDS = ("inline", "local", "cuda", "scheduler")
# Kinds that a project may not take for something else under the same name: `auto` chooses them.
PLAIN_KINDS = ("inline", "local", "cuda")


class ClusterConfig(Model):
    """A cluster as conf/clusters/NAME.yaml describes it.

    Attributes
    ----------
    kind : str
        ``inline`` (no cluster: fits run one after the other in this process), ``local``
        (processes on this machine), ``cuda`` (one process per CUDA device, by dask-cuda),
        ``scheduler`` (a running one), or a key of ``CLUSTER_CLASSES``.
    workers : int or None
        Worker processes; None takes one per core (local) or per device (cuda).
    threads : int or None
        Threads with which BLAS, OpenMP and XGBoost start in each local process; None divides the
        cores evenly. A fit sets its own ``threads``.
    memory : str or None
        Memory limit of a local worker, e.g. ``"4GiB"``; None sets none.
    dashboard : bool
        Whether a local cluster serves Dask's dashboard, on loopback.
    address : str or None
        The scheduler, e.g. ``tls://10.0.0.5:8786``.
    tls_ca_file, tls_cert, tls_key : str or None
        Paths of the certificates, for a ``tls://`` scheduler.
    timeout : float
        Seconds to wait for the scheduler and for the first worker, and on this machine for each
        after the one before.
    silence : float
        Seconds without a sign of life after which a local worker is restarted and its fits run
        again; noticed within twice that time. Dask takes no less than 5.
    options : mapping
        Keyword arguments of the cluster's class; on this machine those of `LocalOptions` or
        `CudaOptions`.
    """

    kind: str = "local"
    workers: int | None = Field(default=None, ge=1, le=MOST)
    threads: int | None = Field(default=None, ge=1, le=MOST)
    memory: Annotated[str, AfterValidator(check_memory)] | None = None
    dashboard: bool = False
    address: str | None = None
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    timeout: float = Field(default=60.0, gt=0, le=LONGEST)
    silence: float = Field(default=60.0, gt=0, le=LONGEST)
    options: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agree(self) -> ClusterConfig:
        known = (*OWN_KINDS, *CLUSTER_CLASSES)
        if self.kind not in known:
            raise fault(f"kind is {self.kind!r}", nearest(self.kind, known))
        if (self.kind == "scheduler") != (self.address is not None):
            raise fault("address belongs to kind scheduler", "Give both or neither.")
        tls = [self.tls_ca_file, self.tls_cert, self.tls_key]
        if any(tls) and not all(tls):
            raise fault("tls_ca_file, tls_cert and tls_key belong together", "Give all or none.")
        if any(tls) and self.kind != "scheduler":
            raise fault("TLS files belong to kind scheduler", "Take them out.")
        if self.options and self.kind in ("inline", "scheduler"):
            raise fault(f"kind {self.kind!r} takes no options", "Take them out.")
        if self.kind in LOCAL_OPTIONS:
            try:
                LOCAL_OPTIONS[self.kind].model_validate(self.options)
            except ValidationError as error:
                first = read_first_fault(error)
                where = ".".join(["options", *first.where])
                raise fault(f"{where}: {first.fault}", first.mend) from None
        return self


def load_cluster(name: str | Path, home: Path | None = None) -> ClusterConfig:
    """Read the description of a cluster, by its name in conf/clusters or the path of a YAML file.

    Raises
    ------
    ConfigError
        When there is no such file, or it does not describe a cluster, or one named inline, local
        or cuda is of another kind.
    """
    path = find_yaml("cluster", name, home or find_home())
    config = parse(ClusterConfig, read_yaml(path) or {}, path)
    if str(name) in PLAIN_KINDS and config.kind != name:
        raise ConfigError(
            f"{path}: kind is {config.kind!r} in a file that is called {name}.",
            "Give the file another name, and name it with --cluster.",
        )
    return config


@contextmanager
def open_cluster(config: ClusterConfig) -> Iterator[Any]:
    """Open the cluster, yield its client, or None for kind ``inline``, and close it.

    The client is not made Dask's default. A local process runs one fit at a time (one Dask thread).
    The number of workers is not adapted: distributed XGBoost hangs when a worker that holds data
    leaves.

    Raises
    ------
    ClusterError
        When a library is missing, a scheduler does not answer, or no worker comes in time.
    """
    if config.kind == "inline":
        yield None
        return
    import dask
    from distributed import Client

    # Its messages about every connection do not belong in a run's terminal; errors are raised.
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    environment = thread_environment(config.threads or _threads_each(config))
    # Nannies set these before a worker imports NumPy, as OpenBLAS requires.
    settings: dict[str, Any] = {"distributed.nanny.pre-spawn-environ": environment}
    # Dask gives up a dead worker after 15 s, but a busy machine needs longer to start another.
    settings["distributed.deploy.lost-worker-timeout"] = f"{config.timeout}s"
    if config.kind in ("local", "cuda"):
        settings["distributed.scheduler.worker-ttl"] = f"{config.silence}s"
    if config.kind != "scheduler" and not config.dashboard:
        # Its pages list tasks and memory to everybody who reaches this machine.
        settings["distributed.scheduler.http.routes"] = []
        settings["distributed.worker.http.routes"] = []
    with _scratch(config) as scratch, dask.config.set(settings):
        cluster = None
        client = None
        try:
            if config.kind == "scheduler":
                client = Client(
                    config.address,
                    security=_security(config),
                    timeout=config.timeout,
                    set_as_default=False,
                )
            else:
                cluster = _start(config, scratch)
                client = Client(cluster, timeout=config.timeout, set_as_default=False)
                if config.kind == "local":
                    # Those wanted earlier would be waited for without end.
                    cluster.scale(config.workers or count_cores())
            own = getattr(cluster, "worker_spec", ()) if config.kind in ("local", "cuda") else ()
            _await_workers(client, len(own) or 1, config.timeout)
            if own:
                client.run(_ignore_interrupts)
        # Classes of other libraries raise anything at options that they do not take.
        except Exception as error:
            if config.kind == "local":
                _kill_workers()
            _close(client, cluster)
            where = config.address or config.kind
            reason = " ".join(str(error).split())
            raise ClusterError(
                f"The cluster {where!r} had no worker within {config.timeout:g} s: {reason}.",
                "Check that it runs, or choose another with --cluster.",
            ) from error
        except BaseException:
            _close(client, cluster)
            raise
        try:
            yield client
        except ClusterError:
            if config.kind == "local":
                _kill_workers()
            raise
        finally:
            _close(client, cluster)


def clear_killed() -> None:
    """Remove what killed clusters of this user left: a run that goes on may need none any more."""
    # Dask's own setting of another place is not asked for: that would import it.
    folder = Path(tempfile.gettempdir()).absolute() / PRIVATE
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


def call_worker(client: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns on a worker.

    Raises
    ------
    ClusterError
        When the scheduler is gone, no worker comes back, or several in a row were lost with the
        function.
    """
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    def check() -> None:
        # A client that has lost its scheduler would keep what is submitted, and wait for ever.
        if client.status != "running":
            raise CommClosedError("the connection is closed")

    try:
        check()
        future = client.submit(function, *arguments, pure=False)
        watch = _watch_workers(client)
        try:
            while not future.done():
                check()
                next(watch)
                with suppress(TimeoutError):
                    future.exception(timeout=LOOK)
            return future.result()
        finally:
            future.release()
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
    offset = time.time() - seen
    while True:
        yield
        back = offset - (time.time() - time.monotonic())
        if back > patience:
            raise ClusterError(
                f"The clock was set back by {back:.0f} s, by which Dask's workers count.",
                "Run it again.",
            )
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


@contextmanager
def renew(client: Any, workers: int, *, keep: bool = False, timeout: float = 60.0) -> Iterator[Any]:
    """Restart a cluster's workers after one of ``workers`` was lost; yield a new client.

    All workers that have a nanny are restarted, which clears their memory and whatever they are
    stuck in; Dask recomputes what is still needed from its graph. With ``keep`` the same client is
    yielded, since collections that it has persisted are known to no other. For a worker whose nanny
    does not bring it back one waits ``RETURN`` seconds at most.

    Raises
    ------
    TimeoutError
        When no worker comes within ``timeout`` seconds.
    OSError
        When the scheduler is gone.
    """
    from distributed import Client

    known = client.scheduler_info(n_workers=-1)["workers"]
    restartable = [address for address, facts in known.items() if facts["nanny"]]
    if restartable:
        client.restart_workers(restartable, timeout=timeout, raise_for_error=False)
        with suppress(TimeoutError):
            client.wait_for_workers(workers, timeout=min(timeout, RETURN))
    client.wait_for_workers(1, timeout=timeout)
    if keep:
        yield client
        return
    address, security = client.scheduler.address, client.security
    with Client(address, security=security, timeout=timeout, set_as_default=False) as fresh:
        yield fresh


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which reaches every process of the terminal, in workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _threads_each(config: ClusterConfig) -> int:
    if config.kind not in ("local", "cuda"):
        return 1
    return max(1, count_cores() // (config.workers or count_cores()))


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

    base = dask.config.get("temporary-directory", None) or tempfile.gettempdir()
    folder = Path(base).absolute() / PRIVATE
    try:
        make_private(folder)
    except (OSError, StoreError):
        return Path(tempfile.mkdtemp(prefix=f"{PRIVATE}-", dir=base))
    return folder


def _start(config: ClusterConfig, scratch: Path | None) -> Any:
    from distributed import LocalCluster

    options = dict(config.options)
    if scratch is not None and "protocol" not in options:
        # Else anybody on this machine could run functions in the workers. UCX has no TLS.
        options["security"] = _make_certificate(scratch)
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
        options = {"security": True, "shared_temp_directory": str(Path.cwd()), **options}
    cluster = _import(module, name, config.kind)(**options)
    cluster.scale(config.workers or 1)
    return cluster


def _make_certificate(folder: Path) -> Any:
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


def _kill_workers() -> None:
    """Kill this process's workers: Dask closes none that has not started."""
    for process in multiprocessing.active_children():
        if process.name.startswith("Dask Worker"):
            process.kill()


def _close(client: Any, cluster: Any) -> None:
    for resource in (client, cluster):
        if resource is not None:
            resource.close()
