"""Results that a process caches until a file changes that they were made from."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Stamp = tuple[int, int, int] | None

_NOTED: ContextVar[dict[Path, Stamp] | None] = ContextVar("_NOTED", default=None)


def note_file(path: Path) -> None:
    """Note that the present result depends on a file, or on the files of a folder.

    Call it before reading, so that a later write invalidates the result.
    """
    noted = _NOTED.get()
    if noted is not None:
        noted.setdefault(path.absolute(), stamp(path))


def cached_by_files(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Cache a function's results by its hashable arguments until a file noted meanwhile changes.

    A file that `note_file` noted in the thread of the call has changed if its time, size or inode
    differs, or if it was removed or created. A hit costs some microseconds a file. Nothing is
    evicted: only for small results.
    """
    cache: dict[object, tuple[Result, dict[Path, Stamp]]] = {}

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        key = (args, tuple(sorted(kwargs.items())))
        cached = cache.get(key)
        if cached is None or any(stamp(path) != before for path, before in cached[1].items()):
            files: dict[Path, Stamp] = {}
            token = _NOTED.set(files)
            try:
                cached = cache[key] = function(*args, **kwargs), files
            finally:
                _NOTED.reset(token)
        result, files = cached
        noted = _NOTED.get()
        if noted is not None:
            # The result of an enclosing call depends on these files, too.
            for path, before in files.items():
                noted.setdefault(path, before)
        return result

    return call


def stamp(path: Path) -> Stamp:
    """Return what changes when a file is written or replaced: time, size, inode; None without."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
