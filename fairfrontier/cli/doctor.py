"""What an installation and a project have, what they lack, and the command that mends it.

What computes is imported here within checks alone: it may be what is broken.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from pydantic import Field

from fairfrontier.cli.terminal import write_bytes
from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.runtime.finder import FOLDERS, Kind, list_names
from fairfrontier.runtime.home import SHIPPED, VARIABLE
from fairfrontier.runtime.option import AsJson, NameOrFile, ProjectOptions
from fairfrontier.runtime.version import find_own_version

PACKAGE = "fairfrontier"
# Distributions whose modules have other names.
MODULES = {
    "markdown-it-py": "markdown_it",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "xgboost-cpu": "xgboost",
}
# Two builds of one module, of which one is needed.
BOOSTERS = ("cpu", "gpu")
# For those who change the library.
OTHERS = ("build", "dev", "docs")
# Less than a study's results and the store may take together.
LEAST_BYTES = 256 * 2**20


class DoctorConfig(ProjectOptions):
    """What is looked at: the options of a command."""

    cluster: NameOrFile | None = Field(
        default=None,
        description="Open this cluster, too, and call a function on it: a name in conf/clusters or "
        "a YAML file.",
    )
    verify: bool = Field(
        default=False, description="Compare every entry of the store with its digests."
    )
    as_json: AsJson = False


@dataclass(frozen=True)
class Finding:
    """What was found of a thing: it works, is absent and can be done without, or is wrong."""

    about: str
    state: Literal["ok", "absent", "wrong"]
    found: str
    mend: str = ""


def examine(config: DoctorConfig) -> Iterator[Finding]:
    """Yield what is found of the installation, of this machine, and of the project."""
    yield from _guard(PACKAGE, _check_package)
    yield from _guard("libraries", _check_libraries)
    yield from _guard("extras", _check_extras)
    yield from _guard("device", _check_device)
    yield from _guard("memory", _check_memory)
    try:
        home = config.home
    except FairfrontierError as error:
        yield Finding("project", "wrong", error.fault, error.mend)
        return
    yield from _check_project(home, config)
    yield from _guard("store", lambda: _check_store(home, verify=config.verify))
    yield from _check_folders(home)
    yield from _guard("clusters", lambda: _check_clusters(home))
    if config.cluster is not None:
        cluster = config.cluster
        yield from _guard("cluster", lambda: _open_cluster(cluster, home))


def _guard(about: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield what a check finds; an error of it is a finding, too."""
    try:
        yield from check()
    except FairfrontierError as error:
        yield Finding(about, "wrong", error.fault, error.mend)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        yield Finding(about, "wrong", reason, f"pip install --force-reinstall {PACKAGE}")


def _check_package() -> Iterator[Finding]:
    where = Path(__file__).parents[2]
    found = f"{find_own_version()} in {where}, Python {platform.python_version()}"
    yield Finding(PACKAGE, "ok", f"{found}, {platform.platform(terse=True)}")


def _read_requirements() -> list[Requirement]:
    """Return what the installed package requires; PackageNotFoundError for a bare checkout."""
    return [Requirement(text) for text in metadata.requires(PACKAGE) or ()]


def _check_libraries() -> Iterator[Finding]:
    """Yield a finding for every library that is missing, of another version or broken; else one."""
    needed = [each for each in _read_requirements() if _applies(each)]
    faults = [finding for each in needed if (finding := _check_library(each)) is not None]
    yield from faults
    if not faults:
        names = ("numpy", "pandas", "scikit-learn", "scipy", "pyarrow")
        shown = ", ".join(f"{name} {metadata.version(name)}" for name in names)
        yield Finding("libraries", "ok", f"all {len(needed)} can be imported: {shown}, …")


def _applies(requirement: Requirement, extra: str = "") -> bool:
    """Return whether a requirement is of an extra, or of none, on this machine."""
    marker = requirement.marker
    if extra and (marker is None or marker.evaluate({"extra": ""})):
        return False
    return marker is None or marker.evaluate({"extra": extra})


def _check_library(requirement: Requirement) -> Finding | None:
    """Return what is wrong with a library, or None; it is imported."""
    name = requirement.name
    install = f"pip install '{name}{requirement.specifier}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, "wrong", "is not installed", install)
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(name, "wrong", f"{version} is not {requirement.specifier}", install)
    try:
        if name == "matplotlib":
            from fairfrontier.figure.frontier import import_matplotlib

            import_matplotlib()
        importlib.import_module(MODULES.get(name, name.replace("-", "_")))
    except FairfrontierError as error:
        return Finding(name, "wrong", error.fault, error.mend)
    # Compiled libraries raise anything.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        again = f"pip install --force-reinstall '{name}=={version}'"
        return Finding(name, "wrong", f"{version} cannot be imported: {reason}", again)
    return None


def _check_extras() -> Iterator[Finding]:
    """Yield what is there of each extra; one build of XGBoost is needed."""
    known = metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    requirements = _read_requirements()
    extras = {
        name: [each for each in requirements if _applies(each, name)]
        for name in sorted({*known} - {*OTHERS})
    }
    lacking = {name: [each for each in of if not _has(each)] for name, of in extras.items()}
    builds = [each for name in BOOSTERS for each in extras[name] if "xgboost" in each.name]
    boosters = [build for build in builds if _has(build)]
    if not boosters:
        mend = f"pip install '{PACKAGE}[cpu]', or [gpu] on a machine with a GPU"
        yield Finding("xgboost", "wrong", "is not installed, and boosting needs it", mend)
    elif fault := _check_library(boosters[0]):
        yield fault
    for name, missing in lacking.items():
        versions = ", ".join(
            f"{each.name} {metadata.version(each.name)}" for each in extras[name] if _has(each)
        )
        if not missing:
            yield Finding(f"extra {name}", "ok", versions)
        elif name not in BOOSTERS:
            lacks = ", ".join(each.name for each in missing)
            yield Finding(f"extra {name}", "absent", f"{lacks} not installed", _install_extra(name))


def _has(requirement: Requirement) -> bool:
    with suppress(metadata.PackageNotFoundError):
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    return False


def _install_extra(name: str) -> str:
    return f"pip install '{PACKAGE}[{name}]'"


def _check_device() -> Iterator[Finding]:
    seen = any(Path("/dev").glob("nvidia[0-9]*")) or shutil.which("nvidia-smi") is not None
    mend = f"{_install_extra('gpu')}, without xgboost-cpu" if seen else ""
    try:
        import cupy
    except ImportError as error:
        machine = "has an NVIDIA device" if seen else "shows no NVIDIA device"
        why = "CuPy is not installed" if error.name == "cupy" else f"CuPy: {error}"
        yield Finding("device", "absent", f"{why}; this machine {machine}", mend)
        return
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except Exception as error:
        yield Finding("device", "absent", f"CuPy {cupy.__version__} finds no device: {error}")
        return
    yield Finding("device", "ok", f"{count} by CuPy {cupy.__version__}: {name}")
    import xgboost

    if not xgboost.build_info().get("USE_CUDA"):
        yield Finding("XGBoost on the device", "absent", "this build has no CUDA", mend)


def _check_memory() -> Iterator[Finding]:
    from fairfrontier.runtime.cluster.executor import count_memory, count_physical_memory
    from fairfrontier.runtime.thread import count_cores

    physical, usable = count_physical_memory(), count_memory()
    limited = f", by the container's limit, of {write_bytes(physical)}"
    found = f"{write_bytes(usable)}{limited if usable < physical else ''}; cores: {count_cores()}"
    yield Finding("memory", "ok", found)


def _check_project(home: Path, config: DoctorConfig) -> Iterator[Finding]:
    kinds: tuple[Kind, ...] = ("dataset", "study")
    own = {
        kind: sum(path.is_relative_to(home) for path in list_names(kind, home).values())
        for kind in kinds
    }
    if config.conf is not None:
        how = "by --conf"
    elif os.environ.get(VARIABLE):
        how = f"by {VARIABLE}"
    elif any((home / FOLDERS[kind]).is_dir() for kind in kinds):
        how = "the nearest folder that holds conf/"
    else:
        how = "the current folder, as none here or above holds conf/"
    counts = f"datasets of its own: {own['dataset']}, studies: {own['study']}"
    yield Finding("project", "ok", f"{home}, {how}; {counts}")
    if not (SHIPPED / FOLDERS["study"]).is_dir():
        mend = f"pip install --force-reinstall {PACKAGE}"
        yield Finding("package", "wrong", f"{SHIPPED} lacks what comes with the package", mend)


def _check_store(home: Path, *, verify: bool) -> Iterator[Finding]:
    from fairfrontier.runtime.secret import VARIABLE as SECRET
    from fairfrontier.runtime.secret import find_key
    from fairfrontier.runtime.store import open_store

    store = open_store(home)
    entries = list(store.list_entries())
    kinds = Counter(kind for kind, _, _ in entries)
    size = sum(
        path.lstat().st_size
        for _, _, entry in entries
        for path in entry.rglob("*")
        if path.is_file()
    )
    signed = f"signed by {SECRET}" if find_key() is not None else f"not signed ({SECRET} is unset)"
    counts = ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items()))
    held = f"{write_bytes(size)} ({counts})" if entries else "nothing yet"
    yield Finding("store", "ok", f"{held}; {signed}")
    if verify:
        damaged = [entry for kind, key, entry in entries if store.find_fault(kind, key)]
        if damaged:
            mend = "fairfrontier clean --damaged --yes; what needs them makes them again"
            found = f"{len(damaged):,} of {len(entries):,} entries damaged, as {damaged[0]}"
            yield Finding("digests", "wrong", found, mend)
        else:
            yield Finding("digests", "ok", f"all {len(entries):,} entries are whole")


def _check_folders(home: Path) -> Iterator[Finding]:
    from fairfrontier.runtime.writer import check_folder

    folders = {
        "data/cache": home / "data" / "cache",
        "data/results": home / "data" / "results",
        "temporary files": Path(tempfile.gettempdir()),
    }
    for about, folder in folders.items():
        try:
            check_folder(folder)
        except FairfrontierError as error:
            yield Finding(about, "wrong", error.fault, f"chmod u+w {folder}, or choose another")
            continue
        nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(nearest).free
        found = f"{folder} is writable, {write_bytes(free)} free"
        enough = free >= LEAST_BYTES
        mend = "" if enough else "fairfrontier clean shows what can be removed"
        yield Finding(about, "ok" if enough else "wrong", found, mend)


def _check_clusters(home: Path) -> Iterator[Finding]:
    """Yield a finding for every description that cannot be used; else one."""
    from fairfrontier.runtime.cluster.config import load_cluster

    known = list_names("cluster", home)
    sound = True
    for name, path in known.items():
        try:
            config = load_cluster(name, home)
        except FairfrontierError as error:
            sound = False
            yield Finding(f"cluster {name}", "wrong", error.fault, error.mend)
            continue
        files = filter(None, (config.tls_ca_file, config.tls_cert, config.tls_key))
        if missing := [file for file in files if not Path(file).is_file()]:
            sound = False
            found = f"there is no TLS file {', '.join(missing)}"
            yield Finding(f"cluster {name}", "wrong", found, f"Put it there, or correct {path}")
    if sound:
        yield Finding("clusters", "ok", f"{', '.join(known)}; --cluster NAME opens one")


def _open_cluster(name: str, home: Path) -> Iterator[Finding]:
    from fairfrontier.runtime.cluster.config import load_cluster
    from fairfrontier.runtime.cluster.open import open_cluster

    started = time.monotonic()
    config = load_cluster(name, home)
    with open_cluster(config) as client:
        if client is None:
            yield Finding(f"cluster {name}", "ok", "fits run in the process of the command")
            return
        client.submit(os.getpid, pure=False).result(timeout=config.timeout)
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
    seconds = time.monotonic() - started
    yield Finding(f"cluster {name}", "ok", f"{workers} workers answered within {seconds:.0f} s")
