"""Packages that can be called: the room ``evaluate`` is also the verb ``fairfrontier.evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(room: str, module: str, function: str) -> None:
    """Let the package ``room`` be called as a function of ``module``, imported on the first call.

    A package and a function cannot share a name in the parent package: Python puts the package
    there whenever one of its modules is imported.
    """

    class Room(ModuleType):
        @property
        def __wrapped__(self) -> Callable[..., Any]:
            """The function; `inspect.signature` and ``help`` of notebooks follow it."""
            verb: Callable[..., Any] = getattr(import_module(module), function)
            return verb

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.__wrapped__(*args, **kwargs)

    sys.modules[room].__class__ = Room
