"""Packages that can be called: the room ``evaluate`` is also the verb ``fairfrontier.evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(room: str, module: str, function: str) -> None:
    """Let a package be called as a function of it, which is imported on the first call.

    A package and a function of one name cannot both stand in the package above: Python puts the
    package there whenever one of its modules is imported.

    Parameters
    ----------
    room : str
        The package, as its ``__name__``.
    module : str
        Dotted name of the module that holds the function.
    function : str
        Its name there.
    """

    class Room(ModuleType):
        @property
        def __wrapped__(self) -> Callable[..., Any]:
            """The function; `inspect.signature` and ``help`` of notebooks follow it."""
            found: Callable[..., Any] = getattr(import_module(module), function)
            return found

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.__wrapped__(*args, **kwargs)

    sys.modules[room].__class__ = Room
