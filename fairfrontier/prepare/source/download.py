"""Downloads over HTTP: resumed when interrupted, and verified before the file gets its name."""

from __future__ import annotations

import errno
import functools
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from fairfrontier.prepare.source.partial_file import PartialFile
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.runtime.errors import FetchError, UnreachableError
from fairfrontier.runtime.store import hash_file

TIMEOUT = httpx.Timeout(30.0, connect=15.0)
REDIRECTS = 10
# Consecutive, without so many bytes that are new; the pause doubles each time.
ATTEMPTS, LEAST_BYTES = 4, 64 * 2**10
PAUSE_SECONDS = 0.5
# Sources must state larger sizes: an endless response would fill the disk.
LIMIT_BYTES = 4 * 2**30
# A size in a header; Python refuses to read thousands of digits.
_SIZE = "[0-9]{1,18}"


def download(
    url: str,
    folder: Path,
    name: str,
    sha256: str,
    *,
    size: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Download a file with a known digest into a folder, and return its path.

    The caller holds the folder's lock. ``size`` is needed above ``LIMIT_BYTES``; ``progress`` is
    called with (name, bytes that arrived, bytes in total or None). A download is resumed by Range,
    with If-Range where the server identified the version; when the digest is wrong after a
    resumption, the file is fetched once from the start. O(bytes) time, O(1) memory.

    Raises
    ------
    UnreachableError
        When the server refuses, gives too little ``ATTEMPTS`` times.
        What arrived is kept, and the next call continues from there.
    FetchError
        When the file has another digest or size, or is too large. What arrived is removed.
    OSError
        When it cannot be written.
    """
    part = PartialFile(folder)
    if part.size and hash_file(part.path) == sha256:
        return part.publish(name)
    again = False
    with _open_client(url) as client:
        while True:
            try:
                resumed = _Transfer(client, url, name, part, size, progress).run()
            except FetchError as error:
                if not isinstance(error, UnreachableError):
                    part.drop()
                raise
            digest = hash_file(part.path)
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


def _refuse_downgrade(url: str, request: httpx.Request) -> None:
    """Refuse http after https."""
    if httpx.URL(url).scheme == "https" and request.url.scheme == "http":
        raise UnreachableError(f"{url} redirects to http.", "Correct the URL.")


def _open_client(url: str) -> httpx.Client:
    try:
        return httpx.Client(
            timeout=TIMEOUT,
            event_hooks={"request": [functools.partial(_refuse_downgrade, url)]},
            # Compressed transfers would have other sizes than the file.
            headers={"Accept-Encoding": "identity", "User-Agent": "fairfrontier"},
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise UnreachableError(
            f"The proxy of the environment cannot be used: {str(error).rstrip('.')}.",
            "Correct HTTP_PROXY, HTTPS_PROXY and ALL_PROXY.",
        ) from None


@contextmanager
def _streaming(client: httpx.Client, url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
    """Yield what a URL answers behind its redirects, whose own bodies are not read."""
    request = client.build_request("GET", url, headers=headers)
    for _ in range(REDIRECTS + 1):
        response = client.send(request, stream=True)
        try:
            if response.next_request is None:
                yield response
                return
            request = response.next_request
        finally:
            response.close()
    raise httpx.TooManyRedirects(f"it redirects more than {REDIRECTS} times", request=request)


@dataclass(frozen=True)
class _Transfer:
    """One download, of ``size`` bytes if known, into a partial file by any number of requests."""

    client: httpx.Client
    url: str
    name: str
    part: PartialFile
    size: int | None
    progress: Progress | None

    def run(self) -> bool:
        """Receive until the file is complete; return whether several requests contributed bytes.

        A broken connection is retried, a refusal is not.
        """
        failures = 0
        resumed = False
        # What is lost and comes again is nothing new.
        most = self.part.size
        while True:
            resumed = resumed or self.part.size > 0
            failed = None
            try:
                if self._request():
                    return resumed
            except (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL) as error:
                raise UnreachableError(
                    f"{self.url} redirects in a circle, or to other than http and https: "
                    f"{str(error).rstrip('.')}.",
                    "Correct the URL.",
                ) from None
            except UnicodeError as error:
                # From the codec for host names; httpx does not catch it.
                raise UnreachableError(
                    f"{self.url} has, or redirects to, an invalid host name: "
                    f"{str(error).rstrip('.')}.",
                    "Correct the URL.",
                ) from None
            except httpx.TransportError as error:
                failed = error
            failures = 1 if self.part.size >= most + LEAST_BYTES else failures + 1
            most = max(most, self.part.size)
            if failures >= ATTEMPTS:
                failed = failed or httpx.ReadError("it gives few bytes at a time")
                raise _broken(self.url, self.part, failed)
            if failed or failures > 1:
                time.sleep(PAUSE_SECONDS * 2 ** (failures - 1))

    def _request(self) -> bool:
        """Make one request; False asks for another one, from the current end of the part."""
        offset = self.part.size
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        validator = self.part.validator(self.url)
        if offset and validator:
            headers["If-Range"] = validator
        with _streaming(self.client, self.url, headers) as response:
            status = response.status_code
            start, total = _read_extent(response)
            misplaced = start not in (0, offset)
            if offset and (status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE or misplaced):
                self.part.drop()
                return False
            if status not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT) or misplaced:
                raise UnreachableError(
                    f"{self.url} answers {f'{status} {response.reason_phrase}'.strip()}.",
                    "Correct the URL, or run where it may be read.",
                )
            _check_extent(self.url, total, self.size)
            _check_space(self.part.path.parent, (total or start) - start)
            self.part.note(self.url, _name_version(response))
            with self.part.open(anew=not start) as stream:
                arrived = start
                # Of any size: fixed blocks would lose a partial one when the connection breaks.
                for block in response.iter_raw():
                    arrived += len(block)
                    _check_extent(self.url, arrived, self.size, complete=False)
                    stream.write(block)
                    if self.progress is not None:
                        self.progress(self.name, arrived, total or self.size)
        if total is None or arrived >= total:
            return True
        # A server may send less than requested, which is an error only if it sends nothing.
        if arrived == start:
            raise httpx.ReadError(f"it gives no more than {arrived} of {total} bytes")
        return False


def _broken(url: str, part: PartialFile, error: httpx.TransportError) -> UnreachableError:
    reason = str(error).rstrip(".") or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        mend = "Name the certificates that your network needs in SSL_CERT_FILE."
    elif part.size:
        mend = f"Run again to continue from the {part.size} bytes that are here."
    else:
        mend = "Check the network connection."
    return UnreachableError(f"{url} cannot be reached: {reason}.", mend)


def _read_extent(response: httpx.Response) -> tuple[int, int | None]:
    """Return the offset of the body in the file (-1 if unknown), and the size of the file."""
    if response.status_code == httpx.codes.PARTIAL_CONTENT:
        stated = response.headers.get("Content-Range", "").strip()
        match = re.fullmatch(rf"bytes ({_SIZE})-{_SIZE}/({_SIZE}|\*)", stated)
        if match is None:
            return -1, None
        return int(match[1]), None if match[2] == "*" else int(match[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if re.fullmatch(_SIZE, length) else None


def _check_extent(
    url: str, arrived: int | None, size: int | None, *, complete: bool = True
) -> None:
    """Refuse a file whose size is, or becomes, other than stated, or unreasonable."""
    if arrived is None:
        return
    least = "" if complete else "at least "
    if size is not None and (arrived > size or (complete and arrived != size)):
        raise FetchError(
            f"{url} has {least}{arrived} bytes, and its source states {size}.",
            "Correct `bytes` if the file was changed on purpose.",
        )
    if size is None and arrived > LIMIT_BYTES:
        raise FetchError(
            f"{url} has {least}{arrived / 1e9:.1f} GB, and more than {LIMIT_BYTES / 1e9:.1f} GB "
            "must be announced.",
            "State its size as `bytes` beside the url if it is that large.",
        )


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed / 1e6:.1f} MB are needed, {free / 1e6:.1f} are free")


def _name_version(response: httpx.Response) -> str | None:
    """Return a strong ETag, or the modification date, for a later If-Range; of ASCII alone."""
    tag: str = response.headers.get("ETag", "")
    modified: str = response.headers.get("Last-Modified", "")
    named = tag if tag and not tag.startswith("W/") else modified
    return named if named and named.isascii() else None
