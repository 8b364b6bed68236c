"""What the shell completes: names of the project, found without importing what computes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

from fairfrontier.cli.terminal import find_project
from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.runtime.finder import Kind, list_names

# A shell would evaluate what other names of files may hold, and a command take some for options.
PLAIN = re.compile(r"(?!-)[\w@+.,/-]+")
Completion = Callable[[Any, str], list[str]]


def find_completion(command: str, name: str, literal: Any) -> Completion | None:
    """Return what completes an option of a command: by its values, or else by its name."""
    if values := get_args(literal):
        return lambda ctx, incomplete: [*map(str, values)]  # noqa: ARG005
    find = FINDERS.get(f"{command}.{name}") or FINDERS.get(name)
    return None if find is None else _guard(find)


def _guard(find: Callable[[Any, Path], Iterable[str]]) -> Completion:
    """Return a completion of the project's names; a fault of the project completes nothing."""

    def complete(ctx: Any, incomplete: str) -> list[str]:  # noqa: ARG001
        try:
            return sorted(filter(PLAIN.fullmatch, find(ctx, find_project(ctx.params.get("conf")))))
        # YAML may hold anything.
        except (FairfrontierError, OSError, ValueError, AttributeError, TypeError):
            return []

    return complete


def _find_yaml(kind: Kind, *others: str) -> Callable[[Any, Path], Iterable[str]]:
    return lambda _, home: {*list_names(kind, home), *others}


def _find_profiles(ctx: Any, home: Path) -> Iterable[str]:
    from fairfrontier.runtime.config import read_yaml
    from fairfrontier.runtime.finder import find_yaml

    # Parsing ends at --profile, which has no value yet, and leaves the words before it.
    study = ctx.params.get("study") or next(iter(ctx.args), "")
    content = read_yaml(find_yaml("study", study, home))
    return ["default", *map(str, content.get("profiles") or ())]


def _find_bundles(_: Any, home: Path) -> Iterable[str]:
    """Return the bundles of finished studies, as they are reached from the current folder."""
    here = Path.cwd()
    found = (path.parent for path in home.glob("data/results/*/choice/bundle/bundle.json"))
    return [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in found]


def _find_results(_: Any, home: Path) -> Iterable[str]:
    return {path.parent.name for path in home.glob("data/results/*/summary.json")}


def _find_kinds(_: Any, __: Path) -> Iterable[str]:
    from fairfrontier.cli.upkeep.config import KINDS

    return KINDS


def _find_limits(_: Any, __: Path) -> Iterable[str]:
    from fairfrontier.deployment.config import LIMITED

    # Shells split words at a colon: the attribute is typed.
    return [name.removesuffix(":") for name in LIMITED]


# By the name of an option, or by COMMAND.NAME where commands differ.
FINDERS: dict[str, Callable[[Any, Path], Iterable[str]]] = {
    "study": _find_yaml("study"),
    "clean.kind": _find_kinds,
    "clean.study": _find_results,
    "dataset": _find_yaml("dataset"),
    "cluster": _find_yaml("cluster", "auto"),
    "profile": _find_profiles,
    "bundle": _find_bundles,
    "model": _find_bundles,
    "limit": _find_limits,
}
