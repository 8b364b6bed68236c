"""Downloads over HTTP: resumed when interrupted, and verified before the file gets its name."""

from __future__ import annotations

import functools
import re
import time
from pathlib import Path

import httpx

from fairfrontier.prepare.source.partial_file import PartialFile
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.runtime.errors import FetchError, UnreachableError
from fairfrontier.runtime.store import hash_file

TIMEOUT = httpx.Timeout(30.0, connect=15.0)
# Consecutive, without so many bytes that are new; the pause doubles each time.
ATTEMPTS, LEAST_BYTES = 4, 64 * 2**10
PAUSE_SECONDS = 0.5
# Sources must state larger sizes: an endless response would fill the disk.
LIMIT_BYTES = 4 * 2**30
HEADERS = {
    # Compressed transfers would have other sizes than the file.
    "Accept-Encoding": "identity",
    "User-Agent": "fairfrontier",
}
# A size in a header; Python refuses to read thousands of digits.
_SIZE = "[0-9]{1,18}"


def download(
    url: str,
    folder: Path,
    name: str,
    sha256: str,
    *,
    size: int | None = None,
    progress: Progress = lambda *_: None,
) -> Path:
    """Download a file with a known digest into a folder, and return its path.

    The caller holds the folder's lock. ``size`` is needed above ``LIMIT_BYTES``; ``progress`` is
    called with (name, bytes that arrived, bytes in total or None). A download is resumed by Range;
    when the digest is wrong after a resumption, the file is fetched once from the start. O(bytes)
    time, O(1) memory.

    Raises
    ------
    UnreachableError
        When the server refuses, gives too little ``ATTEMPTS`` times.
        What arrived is kept, and the next call continues from there.
    FetchError
        When the file has another digest, or is too large. What arrived is removed.
    OSError
        When it cannot be written.
    """
    part = PartialFile(folder)
    if part.size and hash_file(part.path) == sha256:
        return part.publish(name)
    try:
        with httpx.Client(
            timeout=TIMEOUT,
            headers=HEADERS,
            follow_redirects=True,
            event_hooks={"request": [functools.partial(_refuse_downgrade, url)]},
        ) as client:
            for again in (False, True):
                resumed = _receive(client, url, name, part, size, progress)
                digest = hash_file(part.path)
                if digest == sha256:
                    return part.publish(name)
                length = part.size
                part.drop()
                if again or not resumed:
                    break
    # Addresses, redirects and proxies that cannot be; UnicodeError is from the codec for hosts.
    except (httpx.RequestError, httpx.InvalidURL, ImportError, ValueError) as error:
        raise UnreachableError(
            f"{url} cannot be fetched: {str(error).rstrip('.')}.",
            "Correct the URL, or HTTP_PROXY, HTTPS_PROXY and ALL_PROXY.",
        ) from None
    raise FetchError(
        f"{url} gave {length} bytes with sha256 {digest[:12]}…, and {sha256[:12]}… is expected.",
        "Correct the sha256 if the file was changed on purpose.",
    )


def _refuse_downgrade(url: str, request: httpx.Request) -> None:
    """Refuse http after https."""
    if httpx.URL(url).scheme == "https" and request.url.scheme == "http":
        raise UnreachableError(f"{url} redirects to http.", "Correct the URL.")


def _receive(
    client: httpx.Client,
    url: str,
    name: str,
    part: PartialFile,
    size: int | None,
    progress: Progress,
) -> bool:
    """Receive until the file is complete; return whether several requests contributed bytes.

    A broken connection is retried, a refusal is not.
    """
    failures = 0
    resumed = False
    # What is lost and comes again is nothing new.
    most = part.size
    while True:
        resumed = resumed or part.size > 0
        failed = None
        try:
            if _request(client, url, name, part, size, progress):
                return resumed
        except httpx.UnsupportedProtocol:
            raise
        except httpx.TransportError as error:
            failed = error
        failures = 1 if part.size >= most + LEAST_BYTES else failures + 1
        most = max(most, part.size)
        if failures >= ATTEMPTS:
            raise _broken(url, part, failed or httpx.ReadError("it gives few bytes at a time"))
        if failed or failures > 1:
            time.sleep(PAUSE_SECONDS * 2 ** (failures - 1))


def _request(
    client: httpx.Client,
    url: str,
    name: str,
    part: PartialFile,
    size: int | None,
    progress: Progress,
) -> bool:
    """Make one request; False asks for another one, from the current end of the part."""
    offset = part.size
    headers = {"Range": f"bytes={offset}-"} if offset else {}
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
        arrived = start
        _check_size(url, part, total or 0, size)
        with part.open(anew=not start) as stream:
            # Of any size: fixed blocks would lose a partial one when the connection breaks.
            for block in response.iter_raw():
                arrived += len(block)
                _check_size(url, part, arrived, size)
                stream.write(block)
                progress(name, arrived, total or size)
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


def _check_size(url: str, part: PartialFile, arrived: int, size: int | None) -> None:
    """Refuse a file that is larger than stated, or than what need not be stated."""
    most = size or LIMIT_BYTES
    if arrived > most:
        part.drop()
        raise FetchError(
            f"{url} has more than {most} bytes.",
            "State its size as `bytes` beside the url if it is that large.",
        )


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
