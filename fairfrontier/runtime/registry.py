"""One registry for methods, fair metrics, measures and figures."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from importlib.abc import InspectLoader
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from fairfrontier.runtime.errors import ConfigError, explain_missing, nearest

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries by short name, registered by a decorator that calls `add`.

    On the first look-up, modules are found by walking ``packages`` to any depth for sources in
    which a line begins with the decorator, ``@method(...)`` or ``method(...)(function)``, and by
    the entry points of ``group``, each of which names a module (or an object of it) of another
    distribution. Other modules stay unimported. ``kind`` is what an entry is called in messages.
    """

    def __init__(self, kind: str, decorator: str, packages: tuple[str, ...], group: str) -> None:
        self.kind = kind
        self.decorator = decorator
        self.packages = packages
        self.group = group
        self._entries: dict[str, Entry] = {}
        self._origins: dict[str, tuple[str, str]] = {}
        self._discovered = False

    def add(self, name: str, entry: Entry, source: Any) -> None:
        """Register ``entry`` under ``name``; ``source`` is its function or class.

        Raises
        ------
        ValueError
            When another function or class has the name, a programming error.
        """
        origin = (source.__module__, source.__qualname__)
        if self._origins.setdefault(name, origin) != origin:
            raise ValueError(
                f"{name!r} names two {self.kind}s: {'.'.join(self._origins[name])} and "
                f"{'.'.join(origin)}"
            )
        self._entries[name] = entry

    def all(self) -> dict[str, Entry]:
        """Return every entry by its name, sorted by name.

        Raises
        ------
        ConfigError
            When an entry point cannot be imported, or a module lacks a library of an extra.
        """
        if not self._discovered:
            for package in self.packages:
                for module in self._find_modules(package):
                    self._import(module)
            for point in entry_points(group=self.group):
                self._load(point)
            self._discovered = True
        return dict(sorted(self._entries.items()))

    def find(self, name: str) -> Entry:
        """Return the entry registered under ``name``.

        Raises
        ------
        ConfigError
            When there is none; offers the nearest name.
        """
        if name not in self._entries:
            known = self.all()
            if name not in known:
                raise ConfigError(f"There is no {self.kind} {name!r}.", nearest(name, known))
        return self._entries[name]

    def _find_modules(self, package: str) -> Iterator[str]:
        path = importlib.import_module(package).__path__
        for finder, name, _ in pkgutil.walk_packages(path, f"{package}."):
            spec = finder.find_spec(name, None)
            loader = spec.loader if spec else None
            source = loader.get_source(name) if isinstance(loader, InspectLoader) else None
            if source and re.search(rf"^\s*@?{self.decorator}\(", source, re.MULTILINE):
                yield name

    def _import(self, module: str) -> None:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = explain_missing(error)
            if missing is None:
                raise
            raise missing from error

    def _load(self, point: EntryPoint) -> None:
        try:
            point.load()
        except Exception as error:
            package = point.dist.name if point.dist else point.value
            raise ConfigError(
                f"The {self.kind} {point.name!r} of the package {package} cannot be imported: "
                f"{type(error).__name__}: {error}.",
                f"Correct {point.value}, or uninstall {package}.",
            ) from error
