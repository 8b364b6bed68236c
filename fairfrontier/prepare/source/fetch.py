"""Files that a dataset names by their digest: found here, or fetched once and kept."""

from __future__ import annotations

import errno
import fcntl
import logging
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from fairfrontier.prepare.config.section import Origin, Source, SourceFile
from fairfrontier.prepare.source.archive import DAMAGE, open_member
from fairfrontier.prepare.source.download import (
    FetchError,
    Part,
    Progress,
    UnreachableError,
    download,
)
from fairfrontier.prepare.source.package import download_wheel, find_wheel
from fairfrontier.prepare.source.progress import show_bytes
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.store import hash_file

FOLDER = Path("data", "cache", "downloads")
# File systems without locks; there the digest alone tells of two writers.
LOCKLESS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
_log = logging.getLogger(__name__)


def fetch_source(
    source: Source, file: Path, home: Path, progress: Progress | None = None
) -> Source:
    """Return a source all of whose files are on this disk; what is not there is fetched.

    Parameters
    ----------
    source : Source
    file : Path
        The dataset's YAML: named in errors; relative paths are also looked up beside it.
    home : Path
        The project; downloads are kept in its ``data/cache/downloads``.
    progress : callable, optional
        Called with (name, bytes that arrived, bytes in all or None), beside the bar of a terminal.

    Returns
    -------
    Source
        Files that had ``sources`` have a path instead; the others are as they were.

    Raises
    ------
    UnreachableError
        When a file is not here and no source answers; names the YAML, the key, and where to put it.
    FetchError
        When a source or a path has another file, or the disk is full; names YAML and key.
    """

    def locate(key: str, each: SourceFile) -> Path:
        try:
            return fetch(each.origins, str(each.sha256), home, progress, folder=file.parent)
        except FetchError as error:
            raise type(error)(f"{file}: {key}: {error.fault}", error.mend) from error

    return _settle(source, locate)


def find_source(source: Source, file: Path, home: Path) -> Source | None:
    """Return what `fetch_source` returns if nothing has to be fetched, else None."""

    def locate(_: str, each: SourceFile) -> Path | None:
        return find(each.origins, str(each.sha256), home, folder=file.parent)

    settled = _settle(source, locate)
    return None if any(each.sources for each in settled.files) else settled


def _settle(source: Source, locate: Callable[[str, SourceFile], Path | None]) -> Source:
    """Put the path that is found in the place of a file's sources."""

    def settle(key: str, each: SourceFile) -> SourceFile:
        path = locate(key, each) if each.sources else None
        changes = {} if path is None else {"path": str(path), "sources": ()}
        return each.model_copy(update=changes)

    files = tuple(settle(f"source.path.{place}", each) for place, each in enumerate(source.path))
    votes = source.votes
    if votes is not None:
        votes = votes.model_copy(update={"path": settle("source.votes.path", votes.path)})
    return source.model_copy(update={"path": files, "votes": votes})


def find(
    origins: Sequence[Origin], sha256: str, home: Path, *, folder: Path | None = None
) -> Path | None:
    """Return a file that is on this disk: a path of the user's, or what was fetched before.

    Parameters
    ----------
    origins : sequence of Origin
    sha256 : str
        Of the file.
    home, folder : Path
        Relative paths are looked up below ``home``, then below ``folder``.

    Returns
    -------
    Path or None
        Its bytes have the digest.

    Raises
    ------
    FetchError
        When a path of the user's holds another file.
    """
    cache = home / FOLDER / sha256
    with _explain_disk(cache):
        for origin in origins:
            given = Path(origin.path or "").expanduser()
            places = (base / given for base in (home, folder or home))
            place = next((each for each in places if origin.path and each.is_file()), None)
            if place is None:
                continue
            digest = hash_file(place)
            if digest != sha256:
                raise FetchError(
                    f"{place} has sha256 {digest[:12]}…, and {sha256[:12]}… is expected.",
                    "Move it away, or correct the sha256 if it was changed on purpose.",
                )
            return place
        return _find_kept(cache, sha256)


def fetch(
    origins: Sequence[Origin],
    sha256: str,
    home: Path,
    progress: Progress | None = None,
    *,
    folder: Path | None = None,
) -> Path:
    """Return a file with this digest: one that is here, or from the first source that has it.

    Paths of the user's are looked at first, then ``data/cache/downloads/SHA256``, then URLs and
    packages in their order.

    Parameters
    ----------
    origins : sequence of Origin
        Where the file may come from.
    sha256 : str
        Of the file itself, in hexadecimal.
    home : Path
        The project.
    progress : callable, optional
        Called with (name, bytes that arrived, bytes in all or None).
    folder : Path, optional
        Where relative paths are looked up beside ``home``.

    Returns
    -------
    Path
        Whole and verified. A download is ``data/cache/downloads/SHA256/NAME``.

    Raises
    ------
    UnreachableError
        When it is not here and no source answers, and what to do.
    FetchError
        When a source or a path has another file, or the disk is full.

    Notes
    -----
    Of several processes or threads that want the same file one fetches it and the others wait. An
    interrupted download goes on where it stopped. Every byte is hashed on each call, some 1 GB/s.
    """
    here = find(origins, sha256, home, folder=folder)
    if here is not None:
        return here
    cache = home / FOLDER / sha256
    with _explain_disk(cache), show_bytes(progress) as tell:
        return _keep(cache, sha256, lambda: _try_each(origins, sha256, home, tell))


def _keep(cache: Path, sha256: str, make: Callable[[], Path]) -> Path:
    """Return the file of a folder of the cache; make it while nobody else does."""
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache):
        return _find_kept(cache, sha256) or make()


def _find_kept(cache: Path, sha256: str) -> Path | None:
    """Return the file in a folder of the cache; whatever it is called, its digest counts."""
    if not cache.is_dir():
        return None
    for path in sorted(cache.iterdir()):
        # Names that begin with a dot are of unfinished work.
        if path.name.startswith(".") or not path.is_file():
            continue
        if hash_file(path) == sha256:
            return path
        refused = path.with_name(f".refused-{path.name}")
        # Another process may have done so, and a shared cache may be read-only.
        with suppress(OSError):
            path.replace(refused)
            _log.warning("%s is not what its folder is named after; it is now %s.", path, refused)
    return None


def _try_each(origins: Sequence[Origin], sha256: str, home: Path, progress: Progress) -> Path:
    """Fetch from the first source that has the file; the cache's folder is locked."""
    cache = home / FOLDER / sha256
    remote = [origin for origin in origins if origin.path is None]
    failures: list[DataError] = []
    for origin in remote:
        name = name_file(origin)
        _log.info("Fetching %s from %s.", name, origin.package or origin.url)
        try:
            if origin.file is None:
                url = str(origin.url)
                return download(url, cache, name, sha256, size=origin.bytes, progress=progress)
            archive = _fetch_archive(origin, home, progress)
            return _take_out(archive, origin, cache, sha256)
        except DataError as error:
            failures.append(error)
    looked = [str(origin.path) for origin in origins if origin.path is not None]
    if not failures:
        raise UnreachableError(
            f"There is no file {' or '.join(looked)}.", "Put it there, or name a url or a package."
        )
    name = name_file(remote[0])
    reasons = "; ".join(error.fault.rstrip(".") for error in failures)
    mend = f"{failures[-1].mend.rstrip('.')}, or put the file at {cache / name}"
    packed = [f"{home / FOLDER / str(origin.sha256)}/" for origin in remote if origin.file]
    if packed:
        mend += f" or the archive that holds it into {packed[0]}"
    # A source that answers with something else than the file is a fault to be mended.
    silent = all(isinstance(error, UnreachableError) for error in failures)
    kind = UnreachableError if silent else FetchError
    raise kind(f"{name} cannot be had: {reasons}.", f"{mend}.")


def _fetch_archive(origin: Origin, home: Path, progress: Progress) -> Path:
    """Return the archive that a source's file is in: a zip file of a URL, or a wheel."""
    sha256 = str(origin.sha256)
    cache = home / FOLDER / sha256

    def make() -> Path:
        if origin.package is None:
            url = str(origin.url)
            name = clean_name(urlsplit(url).path)
            return download(url, cache, name, sha256, size=origin.bytes, progress=progress)
        return _fetch_wheel(origin, cache, progress)

    return _keep(cache, sha256, make)


def _fetch_wheel(origin: Origin, cache: Path, progress: Progress) -> Path:
    """Fetch a wheel ourselves, or let pip do it where we are refused."""
    package, sha256 = str(origin.package), str(origin.sha256)
    url = find_wheel(package, sha256)
    address = urlsplit(url)
    if address.scheme == "file":
        return _admit(Path(url2pathname(address.path)), cache, sha256)
    name = clean_name(address.path)
    try:
        return download(url, cache, name, sha256, size=origin.bytes, progress=progress)
    except UnreachableError as refused:
        _log.info("%s Now pip fetches it.", refused.fault)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".pip-") as place:
            return _admit(download_wheel(package, sha256, Path(place)), cache, sha256)


def _admit(path: Path, cache: Path, sha256: str) -> Path:
    """Copy a file of this disk into the cache."""
    part = Part(cache)
    part.drop()
    shutil.copyfile(path, part.path)
    return _publish(part, path.name, sha256, str(path))


def _take_out(archive: Path, origin: Origin, cache: Path, sha256: str) -> Path:
    """Copy a member of an archive into the cache."""
    part = Part(cache)
    part.drop()
    member = str(origin.file)
    try:
        with (
            zipfile.ZipFile(archive) as opened,
            open_member(opened, member, archive) as content,
            part.path.open("wb") as stream,
        ):
            shutil.copyfileobj(content, stream)
    except DAMAGE:
        raise FetchError(f"{archive} is no zip archive.", "Correct the source.") from None
    return _publish(part, name_file(origin), sha256, f"{member} in {archive.name}")


def _publish(part: Part, name: str, sha256: str, what: str) -> Path:
    digest = part.digest()
    if digest == sha256:
        return part.publish(name)
    part.drop()
    raise FetchError(
        f"{what} has sha256 {digest[:12]}…, and {sha256[:12]}… is expected.",
        "Correct the sha256 if the file was changed on purpose.",
    )


def name_file(origin: Origin) -> str:
    """Return the name that a source's file gets in the cache."""
    return clean_name(origin.file or origin.path or urlsplit(str(origin.url)).path)


def clean_name(path: str) -> str:
    """Return the last step of a path or URL as a plain, visible file name."""
    name = re.sub(r"[^\w.+=-]", "_", PurePosixPath(unquote(path)).name)
    return name.lstrip(".")[-100:] or "file"


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; the system lets go of it whenever the process ends."""
    with (folder / ".lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in LOCKLESS:
                raise
        yield


@contextmanager
def _explain_disk(folder: Path) -> Iterator[None]:
    """Say what the disk refuses as a FetchError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FetchError(
                f"There is no space left for {folder}: {error.strerror or error}.",
                "Free some space and run again: a download goes on from what has arrived.",
            ) from None
        raise FetchError(
            f"{error.filename or folder} cannot be used: {error.strerror or error}.",
            "Make it readable, and its folder writable.",
        ) from None
