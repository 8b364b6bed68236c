"""One registry for methods, fair metrics, measures and figures."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from fairfrontier.runtime.errors import ConfigError, explain_missing, nearest

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries by short name, registered by a decorator that calls `add`.

    Modules are found by walking ``packages`` to any depth for sources in which a line begins with
    the decorator, ``@method("name", ...)`` or ``method(...)(function)``, and so are those of other
    distributions: each entry point of ``group`` names a module (or an object of it), or a package
    that is walked. Other modules stay unimported, and so do those that name other entries than the
    one looked up. ``kind`` is what an entry is called in messages.
    """

    def __init__(self, kind: str, decorator: str, packages: tuple[str, ...], group: str) -> None:
        self.kind = kind
        self.decorator = decorator
        self.packages = packages
        self.group = group
        self._entries: dict[str, Entry] = {}
        self._origins: dict[str, tuple[str, str]] = {}
        self._scanned: dict[str, dict[str, dict[str, str]]] = {}
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
                self._import(package)
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
            for package in self.packages:
                self._import(package, name)
        if name not in self._entries:
            for point in entry_points(group=self.group):
                self._load(point, name)
        return self._entries.get(name) or self.all().get(name)

    def definitions(self) -> dict[str, str]:
        """Return the module of every class and function that ``packages`` register, by its name."""
        scanned = [each for package in self.packages for each in self._scan(package).items()]
        return {symbol: module for module, names in scanned for symbol in names.values() if symbol}

    def _scan(self, package: str) -> dict[str, dict[str, str]]:
        """Return the modules of a package that register, with the names in their sources.

        Each name has what is defined below it, the class or function that it is given to.
        """
        if package in self._scanned:
            return self._scanned[package]
        found = {}
        below = r"(?s:.*?)^(?:class|def) (\w+)"
        begin = re.compile(
            rf'^\s*@?{self.decorator}\((?:\s*"(\w+)")?(?:(?={below}))?', re.MULTILINE
        )
        for spec in _walk(package):
            loader = spec.loader
            source = loader.get_source(spec.name) if isinstance(loader, InspectLoader) else None
            if names := begin.findall(source or ""):
                found[spec.name] = dict(names)
        self._scanned[package] = found
        return found

    def _import(self, package: str, name: str | None = None) -> None:
        """Import the modules of a package that register an entry, or any."""
        try:
            for module, names in self._scan(package).items():
                if name is None or name in names:
                    importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = explain_missing(error)
            if missing is None:
                raise
            raise missing from error

    def _load(self, point: EntryPoint, name: str | None = None) -> None:
        """Import what registers an entry, or all, of an entry point."""
        try:
            self._import(point.module, name)
            if name is None:
                point.load()
        except ConfigError:
            raise
        except Exception as error:
            package = point.dist.name if point.dist else point.value
            raise ConfigError(
                f"The {self.kind} {point.name!r} of the package {package} cannot be imported: "
                f"{type(error).__name__}: {error}.",
                f"Correct {point.value}, or uninstall {package}.",
            ) from error


def _walk(package: str) -> Iterator[ModuleSpec]:
    """Yield the specs of a module and all below it."""
    top = importlib.util.find_spec(package)
    if top is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    yield top
    paths = top.submodule_search_locations or ()
    for finder, module, _ in pkgutil.walk_packages(paths, f"{package}."):
        if spec := finder.find_spec(module, None):
            yield spec
