"""A server of files on loopback that keeps a record, and misbehaves when it is told to."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    """What the server has at a path.

    ``cuts``: each answer in turn ends after so many bytes, whatever its header announced.
    ``most``: no answer to a range is longer, and its header says so.
    """

    content: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    length: bool = True
    cuts: list[int] = field(default_factory=list)
    most: int | None = None
    delay: float = 0.0
    password: str | None = None


@dataclass
class Asked:
    """A request as it came."""

    path: str
    range: str | None


class Server(ThreadingHTTPServer):
    """Serves ``pages`` and lists what was ``asked``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, Page] = {}
        self.asked: list[Asked] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def add(self, path: str, content: bytes = b"", **facts: object) -> str:
        self.pages[path] = Page(content, **facts)
        return self.url(path)

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that leave."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        ranges = self.headers.get("Range")
        self.server.asked.append(Asked(self.path, ranges))
        page = self.server.pages.get(self.path, Page(b"nothing", status=404))
        time.sleep(page.delay)
        if page.password is not None:
            expected = "Basic " + base64.b64encode(page.password.encode()).decode()
            if self.headers.get("Authorization") != expected:
                page = Page(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        body, status, headers = page.content, page.status, dict(page.headers)
        if ranges and page.ranges and status == 200:
            start = int(ranges.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                status, body = 416, b""
            else:
                end = len(body) if page.most is None else min(len(body), start + page.most)
                headers["Content-Range"] = f"bytes {start}-{max(end - 1, start)}/{len(body)}"
                status, body = 206, body[start:end]
        if page.length:
            headers["Content-Length"] = str(len(body))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: page.cuts.pop(0)] if page.cuts else body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve() -> Iterator[Server]:
    """Run a server for a while."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
