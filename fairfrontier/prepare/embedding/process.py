"""A process of its own for a sentence encoder that somebody else may have written.

Native libraries run what its graph and its tokenizer say: loops without end, arrays larger than
memory, and whatever makes them crash or write to the terminal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np

from fairfrontier.runtime.errors import StoreError

# In a request, and of an answer that is a fault.
TEXTS, LINE = 1024, 10_000
MEND = "Export the bundle again, or restore the folder from where it was copied."
# The modules are found where this process found them.
CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fairfrontier.prepare.embedding.service import serve; serve(sys.argv[2], sys.argv[3])"
)


class EncoderProcess:
    """Encodes texts by the files of a folder, in a process that starts with the first of them."""

    def __init__(self, folder: Path, threads: int, dimension: int) -> None:
        # It starts later, when the current folder may be another.
        self._folder, self._threads, self._dimension = folder.absolute(), threads, dimension
        self._lock, self._owner = threading.Lock(), 0
        self._process: subprocess.Popen[bytes] | None = None

    def __reduce__(self) -> tuple[type, tuple[Path, int, int]]:
        """Start another process where it is unpickled, as joblib's workers do."""
        return type(self), (self._folder, self._threads, self._dimension)

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return float32 of shape (n_texts, dimension); StoreError where that takes too much."""
        pieces = [texts[start : start + TEXTS] for start in range(0, len(texts), TEXTS)]
        with self._lock:
            vectors = [self._ask(piece) for piece in pieces]
        return np.concatenate([np.empty((0, self._dimension), dtype=np.float32), *vectors])

    def _ask(self, texts: list[str]) -> np.ndarray:
        process, shape = self._start(), (len(texts), self._dimension)
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        complete = False
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(texts).encode() + b"\n")
                process.stdin.flush()
            line = process.stdout.readline(LINE)
            if line and (fault := json.loads(line)):
                raise StoreError(*fault)
            content = process.stdout.read(4 * shape[0] * shape[1]) if line else b""
            complete = bool(line) and len(content) == 4 * shape[0] * shape[1]
        finally:
            # What it has not said yet would be taken for the next answer.
            if not complete:
                self._process = None
                code = _stop(process)
        if not complete:
            slow = code in (-signal.SIGPROF, -signal.SIGALRM)
            reason = "its texts take too long" if slow else f"its process ended with {code}"
            raise StoreError(
                f"The encoder of texts in {self._folder} cannot be run: {reason}.", MEND
            )
        return np.frombuffer(content, dtype=np.float32).reshape(shape)

    def _start(self) -> subprocess.Popen[bytes]:
        # A fork of this process must not share the pipes.
        if self._process is None or self._owner != os.getpid():
            paths, arguments = json.dumps(sys.path), (str(self._folder), str(self._threads))
            # -P: else a json.py of the current folder, which may be a bundle, would be imported.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-c", CODE, paths, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._owner = os.getpid()
            weakref.finalize(self, _stop, self._process)
        return self._process


def _stop(process: subprocess.Popen[bytes]) -> int:
    """End a process, and return its exit code: its own where it has ended by itself."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    with suppress(subprocess.TimeoutExpired):
        return process.wait(1)
    process.kill()
    return process.wait()
