"""Results that a process keeps until a file changes that they were made from."""

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
    """Tell that what is made now depends on a file, or on which files a folder holds.

    To be called before it is read: what is written meanwhile then makes another result.
    """
    noted = _NOTED.get()
    if noted is not None:
        noted.setdefault(path.absolute(), _stamp(path))


def recall(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make a function keep its results until one of the files noted meanwhile changes.

    Parameters
    ----------
    function : callable
        Of hashable arguments.

    Returns
    -------
    callable
        Calls again where the arguments are new, or where a file that `note_file` was told of, in
        the thread of the call, has another time, size or inode, is gone, or is there now.

    Notes
    -----
    A hit costs some microseconds a file. Nothing is forgotten: for results that are small.
    """
    kept: dict[object, tuple[Result, dict[Path, Stamp]]] = {}

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        asked = (args, tuple(sorted(kwargs.items())))
        found = kept.get(asked)
        if found is None or any(_stamp(path) != stamp for path, stamp in found[1].items()):
            files: dict[Path, Stamp] = {}
            token = _NOTED.set(files)
            try:
                found = kept[asked] = function(*args, **kwargs), files
            finally:
                _NOTED.reset(token)
        result, files = found
        noted = _NOTED.get()
        if noted is not None:
            # What is recalled within another such call is made from these files, too.
            for path, stamp in files.items():
                noted.setdefault(path, stamp)
        return result

    return call


def _stamp(path: Path) -> Stamp:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
