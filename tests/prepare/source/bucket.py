"""A bucket on loopback that speaks as much of S3 as reading takes, and keeps a record."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Bucket(ThreadingHTTPServer):
    """Serves ``objects``, key -> content and its second; lists the keys that were ``read``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.read: list[str] = []
        self.status = 200
        # Answers to a range end after so many bytes, and the next one is refused.
        self.most: int | None = None

    def put(self, key: str, content: bytes, second: int = 1_600_000_000) -> None:
        self.objects[key] = (content, second)

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that leave."""


class Handler(BaseHTTPRequestHandler):
    server: Bucket

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        # One bucket, whatever its name is.
        key = unquote(address.path).lstrip("/").partition("/")[2]
        if self.server.status != 200:
            self._answer(self.server.status, b"")
        elif "list-type" in address.query:
            self._answer(200, self._list(parse_qs(address.query)))
        elif key not in self.server.objects:
            self._answer(404, b"")
        else:
            self._give(key)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _list(self, asked: dict[str, list[str]]) -> bytes:
        prefix, cut = asked.get("prefix", [""])[0], asked.get("delimiter", [""])[0]
        keys = sorted(key for key in self.server.objects if key.startswith(prefix))
        rest = {key: key.removeprefix(prefix) for key in keys}
        inside = [key for key in keys if not cut or cut not in rest[key]]
        folders = {prefix + rest[k].partition(cut)[0] + cut for k in keys if k not in inside}
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_stamp(self.server.objects[key][1])}"
            f"</LastModified><Size>{len(self.server.objects[key][0])}</Size></Contents>"
            for key in inside
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>"
            for each in sorted(folders)
        )
        return (
            f"<ListBucketResult><KeyCount>{len(inside)}</KeyCount><IsTruncated>false</IsTruncated>"
            f"{contents}{common}</ListBucketResult>"
        ).encode()

    def _give(self, key: str) -> None:
        content, second = self.server.objects[key]
        headers = {"Last-Modified": formatdate(second, usegmt=True)}
        ranges, status = self.headers.get("Range"), 200
        if self.command == "HEAD":
            self._answer(200, content, headers)
            return
        self.server.read.append(key)
        if ranges:
            first, last = ranges.removeprefix("bytes=").split("-")
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            content, status = content[int(first) : int(last) + 1], 206
        self._answer(status, content, headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _stamp(second: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.347Z")


@contextmanager
def serve_bucket() -> Iterator[Bucket]:
    """Run a bucket for a while."""
    with Bucket() as bucket:
        thread = threading.Thread(target=bucket.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield bucket
        finally:
            bucket.shutdown()
            thread.join()
