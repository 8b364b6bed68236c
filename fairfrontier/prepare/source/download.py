"""One file over HTTP: resumed where it stopped, and checked before it gets its name."""

from __future__ import annotations

import errno
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.store import hash_file
from fairfrontier.runtime.writer import flush

Progress = Callable[[str, int, int | None], None]

TIMEOUT = httpx.Timeout(30.0, connect=15.0)
REDIRECTS = 10
# In a row and without a byte between them; the pause doubles each time.
ATTEMPTS = 4
PAUSE_SECONDS = 0.5
# More than this must be announced by the source: a server that never ends would fill the disk.
LIMIT_BYTES = 4 * 2**30


class FetchError(DataError):
    """A file could not be had from where it should come from."""


class UnreachableError(FetchError):
    """A file is not here and no server gives it: another way, or another day, may work."""


class Part:
    """What has arrived of a file, beside the place where the whole will be.

    Parameters
    ----------
    folder : Path
        Holds ``.part`` and ``.part.json``; one process at a time may write them.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".part"
        self._facts = folder / ".part.json"

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return self.path.stat().st_size if self.path.exists() else 0

    def validator(self, url: str) -> str | None:
        """Return what identifies the version that arrived from this URL, where it is known."""
        try:
            facts = json.loads(self._facts.read_text(encoding="utf-8"))
            return str(facts["validator"]) if facts["url"] == url else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def note(self, url: str, validator: str | None) -> None:
        """Keep what identifies the version that is arriving."""
        if validator is None:
            self._facts.unlink(missing_ok=True)
        else:
            facts = {"url": url, "validator": validator}
            self._facts.write_text(json.dumps(facts), encoding="utf-8")

    def digest(self) -> str:
        """Return the sha256 of what has arrived."""
        return hash_file(self.path)

    def publish(self, name: str) -> Path:
        """Give the whole its name, at once."""
        flush(self.path)
        place = self.path.with_name(name)
        self.path.replace(place)
        self._facts.unlink(missing_ok=True)
        return place

    def drop(self) -> None:
        """Remove what has arrived."""
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)


def download(
    url: str,
    folder: Path,
    name: str,
    sha256: str,
    *,
    size: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download a file whose digest is known.

    Parameters
    ----------
    url : str
        http or https; redirects are followed to these only.
    folder : Path
        Gets the file, and the part of it while it arrives. The caller holds its lock.
    name : str
        The file's name there.
    sha256 : str
        Of the file, in hexadecimal.
    size : int, optional
        Its bytes, where they are known; needed above ``LIMIT_BYTES``.
    progress : callable, optional
        Called with (name, bytes that arrived, bytes in all or None).

    Returns
    -------
    Path
        The file, whole and verified; it never bears this name before.

    Raises
    ------
    UnreachableError
        When the server refuses, or the connection breaks ``ATTEMPTS`` times without a byte more.
        What arrived is kept, and the next call goes on from there.
    FetchError
        When the file has another digest or size, or is too large. What arrived is removed.
    OSError
        When it cannot be written.

    Notes
    -----
    A download is resumed by Range, with If-Range where the server named the version. The digest
    has the last word: when it is wrong after a resumption, the file is fetched once from its start.
    O(bytes) time, O(1) memory.
    """
    part = Part(folder)
    if part.size and part.digest() == sha256:
        return part.publish(name)
    again = False
    with _open_client() as client:
        while True:
            try:
                resumed = _receive_all(client, url, name, part, size, progress)
            except FetchError as error:
                if not isinstance(error, UnreachableError):
                    part.drop()
                raise
            digest = part.digest()
            if digest == sha256:
                return part.publish(name)
            length = part.size
            part.drop()
            if again or not resumed:
                raise FetchError(
                    f"{url} gave {length} bytes with sha256 {digest[:12]}…, and {sha256[:12]}… "
                    "is expected.",
                    "Correct the sha256 if the file was changed on purpose.",
                )
            again = True


def _open_client() -> httpx.Client:
    try:
        return httpx.Client(
            timeout=TIMEOUT,
            follow_redirects=True,
            max_redirects=REDIRECTS,
            # Compression on the way would count other bytes than those of the file.
            headers={"Accept-Encoding": "identity", "User-Agent": "fairfrontier"},
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise UnreachableError(
            f"The proxy that the environment names cannot be used: {str(error).rstrip('.')}.",
            "Correct HTTP_PROXY, HTTPS_PROXY and ALL_PROXY.",
        ) from None


def _receive_all(
    client: httpx.Client,
    url: str,
    name: str,
    part: Part,
    size: int | None,
    progress: Progress | None,
) -> bool:
    """Receive until the file is whole; a broken connection is tried again, a refusal is not.

    Returns
    -------
    bool
        Whether bytes of several requests, and so of several versions, may stand beside each other.
    """
    failures = 0
    resumed = False
    while True:
        arrived = part.size
        resumed = resumed or arrived > 0
        try:
            if _receive(client, url, name, part, size, progress):
                return resumed
        except (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL) as error:
            raise UnreachableError(
                f"{url} leads somewhere else than to http and https, or in a circle: "
                f"{str(error).rstrip('.')}.",
                "Correct the URL.",
            ) from None
        except UnicodeError as error:
            # Of the codec for host names; httpx lets it through.
            raise UnreachableError(
                f"{url} is, or leads to, a host whose name cannot be: {str(error).rstrip('.')}.",
                "Correct the URL.",
            ) from None
        except httpx.TransportError as error:
            failures = 1 if part.size > arrived else failures + 1
            if failures >= ATTEMPTS:
                raise _broken(url, part, error) from None
            time.sleep(PAUSE_SECONDS * 2 ** (failures - 1))


def _broken(url: str, part: Part, error: httpx.TransportError) -> UnreachableError:
    reason = str(error).rstrip(".") or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        mend = "Name the certificates that your network needs in SSL_CERT_FILE."
    elif part.size:
        mend = f"Run again to go on from the {part.size} bytes that are here."
    else:
        mend = "Run where the network is."
    return UnreachableError(f"{url} cannot be reached: {reason}.", mend)


def _receive(
    client: httpx.Client,
    url: str,
    name: str,
    part: Part,
    size: int | None,
    progress: Progress | None,
) -> bool:
    """Make one request; False asks for another, from where the part ends now."""
    offset = part.size
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    validator = part.validator(url)
    if offset and validator:
        headers["If-Range"] = validator
    with client.stream("GET", url, headers=headers) as response:
        status = response.status_code
        start, total = _read_extent(response)
        misplaced = start not in (0, offset)
        if offset and (status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE or misplaced):
            part.drop()
            return False
        if status not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT) or misplaced:
            raise UnreachableError(
                f"{url} answers {f'{status} {response.reason_phrase}'.strip()}.",
                "Correct the URL, or run where it may be read.",
            )
        _check_extent(url, total, size)
        _check_space(part.path.parent, (total or start) - start)
        part.note(url, _name_version(response))
        with part.path.open("ab" if start else "wb") as stream:
            arrived = start
            # As they come: blocks of a size would lose a partial one when the connection breaks.
            for block in response.iter_raw():
                arrived += len(block)
                _check_extent(url, arrived, size, whole=False)
                stream.write(block)
                if progress is not None:
                    progress(name, arrived, total or size)
    if total is None or arrived >= total:
        return True
    # A server may give less than was asked for, which is no end unless it gives nothing.
    if arrived == start:
        raise httpx.ReadError(f"it gives no more than {arrived} of {total} bytes")
    return False


def _read_extent(response: httpx.Response) -> tuple[int, int | None]:
    """Return where the body starts in the file (-1: it is not said), and the file's bytes."""
    if response.status_code == httpx.codes.PARTIAL_CONTENT:
        said = re.fullmatch(
            r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip()
        )
        if said is None:
            return -1, None
        return int(said[1]), None if said[2] == "*" else int(said[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _check_extent(url: str, arrived: int | None, size: int | None, *, whole: bool = True) -> None:
    """Refuse a file that is, or becomes, another size than the source states or than is sane."""
    if arrived is None:
        return
    if size is not None and (arrived > size or (whole and arrived != size)):
        raise FetchError(
            f"{url} has {'' if whole else 'at least '}{arrived} bytes, and its source states "
            f"{size}.",
            "Correct `bytes` if the file was changed on purpose.",
        )
    if size is None and arrived > LIMIT_BYTES:
        raise FetchError(
            f"{url} has {'' if whole else 'at least '}{arrived / 1e9:.1f} GB, and more than "
            f"{LIMIT_BYTES / 1e9:.1f} GB must be announced.",
            "State its size as `bytes` beside the url if it is that large.",
        )


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e6:.1f} MB are needed, {free / 1e6:.1f} are free")


def _name_version(response: httpx.Response) -> str | None:
    """Return a strong ETag, or the time of change; what a later If-Range may send."""
    tag: str = response.headers.get("ETag", "")
    if tag and not tag.startswith("W/"):
        return tag
    changed: str | None = response.headers.get("Last-Modified")
    return changed
