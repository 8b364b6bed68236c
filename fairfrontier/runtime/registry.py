"""One registry for methods, fair metrics, measures and figures."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cached_property
from importlib.abc import InspectLoader
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from fairfrontier.runtime.errors import ConfigError, explain_missing, nearest

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries by short name, registered by a decorator that calls `add`.

    Modules are found by walking ``packages`` to any depth for sources in which a line begins with
    the decorator, ``@method("name", ...)`` or ``method(...)(function)``, and by the entry points of
    ``group``, each of which names a module (or an object of it) of another distribution. Other
    modules stay unimported, and so do those that name other entries than the one looked up.
    ``kind`` is what an entry is called in messages.
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
            for module in self._modules:
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
        entry = self.get(name)
        if entry is None:
            raise ConfigError(f"There is no {self.kind} {name!r}.", nearest(name, self.all()))
        return entry

    def get(self, name: str) -> Entry | None:
        """Return the entry registered under ``name``, or None.

        Raises
        ------
        ConfigError
            As `all` does, where no source has the name, and where its module lacks a library.
        """
        if name not in self._entries:
            for module, names in self._modules.items():
                if name in names:
                    self._import(module)
        return self._entries.get(name) or self.all().get(name)

    @cached_property
    def _modules(self) -> dict[str, list[str]]:
        """The modules that register, with the names that stand in their sources."""
        found = {}
        begin = re.compile(rf'^\s*@?{self.decorator}\((?:\s*"(\w+)")?', re.MULTILINE)
        for package in self.packages:
            path = importlib.import_module(package).__path__
            for finder, module, _ in pkgutil.walk_packages(path, f"{package}."):
                spec = finder.find_spec(module, None)
                loader = spec.loader if spec else None
                source = loader.get_source(module) if isinstance(loader, InspectLoader) else None
                if names := begin.findall(source or ""):
                    found[module] = names
        return found

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
