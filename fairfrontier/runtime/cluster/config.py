"""Where fits run, as YAML says: here, on local processes, on CUDA devices, on a Dask cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from fairfrontier.runtime.config import Model, fault, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest, need
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.home import find_home

# Seconds that are waited at most.
LONGEST = 1e6


def check_memory(value: Any) -> Any:
    """Refuse what Dask does not read as an amount of memory, and amounts below 0."""
    need("dask")
    from dask.utils import parse_bytes

    try:
        amount = parse_bytes(value) if isinstance(value, int | float | str) else -1
    except (ValueError, OverflowError):
        amount = 0 if value in ("auto", "default") else -1
    if amount < 0:
        raise fault(f"{value!r} is no amount of memory", "Write 4GiB, for example.")
    return value


# Keywords of the classes of clusters on this machine, of which none loads code or opens a port to
# others. Their values are Dask's matter.
LOCAL_OPTIONS: dict[str, tuple[str, ...]] = {
    "local": ("death_timeout", "lifetime", "lifetime_restart", "lifetime_stagger", "resources"),
    "cuda": (
        *("CUDA_VISIBLE_DEVICES", "device_memory_limit", "jit_unspill", "memory_limit"),
        *("enable_infiniband", "enable_nvlink", "enable_rdmacm", "enable_tcp_over_ucx", "protocol"),
        *("rmm_async", "rmm_managed_memory", "rmm_maximum_pool_size", "rmm_pool_size"),
    ),
}
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
# Workers of a cluster, and threads of each.
MOST = 10_000
OWN_KINDS = ("inline", "local", "cuda", "scheduler")
KINDS = [*OWN_KINDS, *CLUSTER_CLASSES]
# Kinds that a project may not take for something else under the same name: `auto` chooses them.
PLAIN_KINDS = ("inline", "local", "cuda")


class ClusterConfig(Model):
    """A cluster as ``conf/clusters/NAME.yaml`` describes it."""

    kind: str = Field(
        default="local",
        description="``inline`` (no cluster: fits run one after the other in this process), "
        "``local`` (processes on this machine), ``cuda`` (one process per CUDA device, by "
        "dask-cuda), ``scheduler`` (a running one), or a class of dask-jobqueue or "
        "dask-kubernetes.",
        json_schema_extra={"enum": [*KINDS]},
    )
    workers: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="Worker processes; one per core (local) or per device (cuda) by default.",
        examples=[4],
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="Threads with which BLAS, OpenMP and XGBoost start in each local process; the "
        "cores are divided evenly by default. A fit sets its own ``threads``.",
        examples=[2],
    )
    memory: Annotated[str, AfterValidator(check_memory)] | None = Field(
        default=None,
        description="Memory limit of a local worker; none by default.",
        examples=["4GiB"],
    )
    dashboard: bool = Field(
        default=False,
        description="Whether a local cluster serves Dask's dashboard, on loopback.",
        examples=[True],
    )
    address: str | None = Field(
        default=None, description="The running scheduler.", examples=["tls://10.0.0.5:8786"]
    )
    tls_ca_file: str | None = Field(
        default=None,
        description="For a ``tls://`` scheduler: the authority's certificate.",
        examples=["/etc/dask/ca.pem"],
    )
    tls_cert: str | None = Field(
        default=None,
        description="For a ``tls://`` scheduler: this client's certificate.",
        examples=["/etc/dask/client.pem"],
    )
    tls_key: str | None = Field(
        default=None,
        description="For a ``tls://`` scheduler: the certificate's key.",
        examples=["/etc/dask/client.key"],
    )
    timeout: float = Field(
        default=60.0,
        gt=0,
        le=LONGEST,
        description="Seconds to wait for the scheduler and for the first worker, and on this "
        "machine for each after the one before.",
        examples=[600],
    )
    silence: float = Field(
        default=60.0,
        gt=0,
        le=LONGEST,
        description="Seconds without a sign of life after which a local worker is restarted and "
        "its fits run again; noticed within twice that time. Dask takes no less than 5.",
        examples=[300],
    )
    options: Mapping[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments of the cluster's class; on this machine "
        + "; ".join(f"of kind {kind}: {', '.join(names)}" for kind, names in LOCAL_OPTIONS.items())
        + ".",
        examples=[{"queue": "short", "cores": 4, "memory": "16GiB"}],
    )

    @model_validator(mode="after")
    def _agree(self) -> ClusterConfig:
        # Classes may have been registered since.
        if self.kind not in (*OWN_KINDS, *CLUSTER_CLASSES):
            raise fault(f"kind is {self.kind!r}", nearest(self.kind, KINDS))
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
            for name in self.options:
                if name not in LOCAL_OPTIONS[self.kind]:
                    mend = nearest(name, LOCAL_OPTIONS[self.kind])
                    raise fault(f"options: there is no key {name!r} here", mend)
            if not str(self.options.get("protocol", "ucx")).startswith("ucx"):
                # Others can be encrypted, and would not be.
                raise fault("options.protocol: it is none of ucx", "Write ucx, or leave it out.")
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
