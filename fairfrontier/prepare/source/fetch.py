"""Files that a dataset names by their digest: local, or downloaded once and kept.

A wheel of the package index, found and fetched by pip as the user configured it, is data here:
nothing is installed, and no code of it runs.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urlsplit

from fairfrontier.prepare.config.section import Origin, Source, SourceFile
from fairfrontier.prepare.source.archive import DAMAGE, open_member
from fairfrontier.prepare.source.partial_file import PartialFile
from fairfrontier.prepare.source.progress import BYTES, Progress, show_progress
from fairfrontier.runtime.errors import DataError, FetchError, UnreachableError, need
from fairfrontier.runtime.home import read_path
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.text_file import is_plain
from fairfrontier.runtime.writer import drafting, locking

FOLDER = Path("data", "cache", "downloads")
_log = logging.getLogger(__name__)


def fetch_source(
    source: Source, file: Path, home: Path, progress: Progress | None = None
) -> Source:
    """Return a source whose files are all local; those with ``sources`` get a path instead.

    ``file`` is the dataset's YAML: named in errors, as is the key; relative paths are also looked
    up beside it. ``progress`` is called with (name, bytes that arrived, bytes in total or None).

    Raises
    ------
    UnreachableError
        When a file is not here and no source provides it; names where to put it.
    FetchError
        When a source or a path has another file, or the disk is full.
    """

    def locate(key: str, part: SourceFile) -> Path:
        try:
            return fetch(part.origins, str(part.sha256), home, progress, folder=file.parent)
        except FetchError as error:
            raise type(error)(f"{file}: {key}: {error.fault}", error.mend) from error

    return _locate_files(source, locate)


def find_source(source: Source, file: Path, home: Path) -> Source | None:
    """Return what `fetch_source` returns if nothing has to be fetched, else None."""

    def locate(_: str, part: SourceFile) -> Path | None:
        return find(part.origins, str(part.sha256), home, folder=file.parent)

    located = _locate_files(source, locate)
    return None if any(part.sources for part in located.files) else located


def _locate_files(source: Source, locate: Callable[[str, SourceFile], Path | None]) -> Source:
    """Return the source with the located path in place of the sources of each file."""

    def replace(key: str, file: SourceFile) -> SourceFile:
        path = locate(key, file) if file.sources else None
        return file if path is None else file.model_copy(update={"path": str(path), "sources": ()})

    files = tuple(replace(f"source.path.{i}", file) for i, file in enumerate(source.path))
    votes = source.votes
    if votes is not None:
        votes = votes.model_copy(update={"path": replace("source.votes.path", votes.path)})
    return source.model_copy(update={"path": files, "votes": votes})


def find(
    origins: Sequence[Origin], sha256: str, home: Path, *, folder: Path | None = None
) -> Path | None:
    """Return a file with this digest that is on this disk, or None.

    It is a local path among the origins, looked up below ``home``, then below ``folder``, or what
    was fetched before. A local path with other content is a FetchError.
    """
    cache = home / FOLDER / sha256
    with explain_disk(cache):
        for path in _list_local(origins, home, folder or home):
            mend = "Move it away, or correct the sha256 if it was changed on purpose."
            _check_digest(path, sha256, str(path), mend)
            return path
        return _find_kept(cache, sha256)


def peek(file: SourceFile, home: Path, folder: Path) -> Path | None:
    """Return the file that `find` would look at first, whose digest is not checked, or None."""
    cache = home / FOLDER / str(file.sha256)
    with explain_disk(cache):
        return next(chain(_list_local(file.origins, home, folder), list_kept(cache)), None)


def fetch(
    origins: Sequence[Origin],
    sha256: str,
    home: Path,
    progress: Progress | None = None,
    *,
    folder: Path | None = None,
) -> Path:
    """Return a file with this digest: local, downloaded before, or from the first source with it.

    Downloads are kept as ``data/cache/downloads/SHA256/NAME`` of the project. Of several processes
    or threads that need the same file one fetches it and the others wait. An interrupted download
    continues where it stopped. Every call hashes the file, at some 1 GB/s.

    Raises
    ------
    UnreachableError
        When the file is not here and no source provides it.
    FetchError
        When a source or a path has another file, or the disk is full.
    """
    path = find(origins, sha256, home, folder=folder)
    if path is not None:
        return path
    cache = home / FOLDER / sha256
    with explain_disk(cache), show_progress(progress, BYTES) as show:
        return _keep(cache, sha256, lambda: _try_each(origins, sha256, home, show))


def _list_local(origins: Sequence[Origin], home: Path, folder: Path) -> Iterator[Path]:
    for local in (read_path(origin.path) for origin in origins if origin.path):
        yield from (base / local for base in (home, folder) if is_plain(base / local))


def list_kept(cache: Path) -> Iterator[Path]:
    """Yield the files in a folder of the cache."""
    # Names that begin with a dot belong to unfinished work.
    for path in sorted(cache.iterdir()) if cache.is_dir() else ():
        if not path.name.startswith(".") and is_plain(path):
            yield path


def _check_digest(path: Path, sha256: str, name: str, mend: str) -> None:
    digest = hash_file(path)
    if digest != sha256:
        raise FetchError(f"{name} has sha256 {digest[:12]}…, and {sha256[:12]}… is expected.", mend)


def _keep(cache: Path, sha256: str, make: Callable[[], Path]) -> Path:
    """Return the file in a folder of the cache; a missing one is made under the folder's lock."""
    cache.mkdir(parents=True, exist_ok=True)
    with locking(cache):
        return _find_kept(cache, sha256) or make()


def _find_kept(cache: Path, sha256: str) -> Path | None:
    """Return the file in a folder of the cache that has the digest, whatever its name."""
    return next((path for path in list_kept(cache) if hash_file(path) == sha256), None)


def _try_each(origins: Sequence[Origin], sha256: str, home: Path, progress: Progress) -> Path:
    """Fetch from the first source that has the file; the caller holds the cache's lock."""
    cache = home / FOLDER / sha256
    remote = [origin for origin in origins if origin.path is None]
    failures: list[DataError] = []
    for origin in remote:
        name = name_file(origin)
        _log.info("Fetching %s from %s.", name, origin.package or origin.url)
        try:
            if origin.file is None:
                return _download(str(origin.url), cache, sha256, origin, progress)
            archive = _fetch_archive(origin, home, progress)
            return _extract(archive, origin, cache, sha256)
        except DataError as error:
            failures.append(error)
    if not failures:
        paths = " or ".join(str(origin.path) for origin in origins if origin.path is not None)
        raise UnreachableError(
            f"There is no file {paths}.", "Put it there, or name a url or a package."
        )
    name = name_file(remote[0])
    reasons = "; ".join(error.fault.rstrip(".") for error in failures)
    mend = f"{failures[-1].mend.rstrip('.')}, or put the file at {cache / name}"
    packed = [f"{home / FOLDER / str(origin.sha256)}/" for origin in remote if origin.file]
    if packed:
        mend += f" or the archive that contains it into {packed[0]}"
    # A source that provides another file is a fault to be corrected.
    unreachable = all(isinstance(error, UnreachableError) for error in failures)
    kind = UnreachableError if unreachable else FetchError
    raise kind(f"{name} cannot be obtained: {reasons}.", f"{mend}.")


def _fetch_archive(origin: Origin, home: Path, progress: Progress) -> Path:
    """Return the archive that contains a source's file: a zip file of a URL, or a wheel."""
    sha256 = str(origin.sha256)
    cache = home / FOLDER / sha256

    def make() -> Path:
        if origin.package is None:
            return _download(str(origin.url), cache, sha256, origin, progress)
        with drafting(cache) as work:
            wheel = download_wheel(origin.package, sha256, work)
            with wheel.open("rb") as content:
                return _copy(content, cache, wheel.name, sha256, str(wheel))

    return _keep(cache, sha256, make)


def _download(url: str, cache: Path, sha256: str, origin: Origin, progress: Progress) -> Path:
    # It takes a tenth of a second to import, and most runs fetch nothing.
    need("httpx")
    from fairfrontier.prepare.source.download import download

    name = clean_name(urlsplit(url).path)
    return download(url, cache, name, sha256, size=origin.bytes, progress=progress)


def _extract(archive: Path, origin: Origin, cache: Path, sha256: str) -> Path:
    """Copy a member of an archive into the cache."""
    member = str(origin.file)
    try:
        with zipfile.ZipFile(archive) as opened, open_member(opened, member, archive) as content:
            return _copy(content, cache, name_file(origin), sha256, f"{member} in {archive.name}")
    except DAMAGE:
        raise FetchError(f"{archive} is no zip archive.", "Correct the source.") from None


def _copy(content: IO[bytes], cache: Path, name: str, sha256: str, source: str) -> Path:
    """Copy a file with a known digest into the cache."""
    part = PartialFile(cache)
    try:
        with part.open() as stream:
            shutil.copyfileobj(content, stream)
        _check_digest(
            part.path, sha256, source, "Correct the sha256 if the file was changed on purpose."
        )
        return part.publish(name)
    finally:
        part.drop()


def name_file(origin: Origin) -> str:
    """Return the name of a source's file in the cache."""
    return clean_name(origin.file or origin.path or urlsplit(str(origin.url)).path)


def clean_name(path: str) -> str:
    """Return the last component of a path or URL as a plain, visible file name."""
    name = re.sub(r"[^\w.+=-]", "_", PurePosixPath(unquote(path)).name)
    # Of a few bytes, since a name of letters beyond ASCII is longer than it looks.
    return name.encode()[-100:].decode(errors="ignore").lstrip(".") or "file"


@contextmanager
def explain_disk(folder: Path) -> Iterator[None]:
    """Turn errors of the disk into a FetchError."""
    try:
        yield
    except OSError as error:
        raise FetchError(
            f"{error.filename or folder} cannot be used: {error.strerror or error}.",
            "Free some space, or make it readable and its folder writable, and run again.",
        ) from None


# Data files do not depend on the Python version of their package.
WHEEL_ONLY = ("--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--quiet")
# Without a network pip's five attempts take half a minute to fail.
DEFAULTS = {"PIP_RETRIES": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def download_wheel(package: str, sha256: str, folder: Path) -> Path:
    """Let pip, with its credentials and proxy, download a wheel into an empty folder.

    -P keeps a pip.py of the current folder out. FetchError where the index has another wheel,
    UnreachableError where it gives none.
    """
    need("pip")
    requirement = folder / "wheel.txt"
    requirement.write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
    to = ("--dest", str(folder), "--requirement", str(requirement))
    done = subprocess.run(  # noqa: S603 - arguments are checked names, and no shell reads them
        [sys.executable, "-P", "-m", "pip", "download", *WHEEL_ONLY, *to],
        cwd=folder,
        env={**DEFAULTS, **os.environ, "PIP_NO_INPUT": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if wheels and not done.returncode:
        return wheels[0]
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ")] or lines or ["no reason"]
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise FetchError(
            f"The package index has {package} with another sha256 than {sha256[:12]}….",
            "Correct the sha256 if the package was changed on purpose.",
        )
    raise UnreachableError(
        f"pip download fails: {errors[-1].removeprefix('ERROR: ').rstrip('.')}.",
        "Check `python -m pip config list`, and that the package index can be reached.",
    )
