"""The YAML of a method: named presets and grids that studies refer to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from fairfrontier.runtime.config import Model, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import list_names


class MethodFile(Model):
    """``conf/methods/METHOD.yaml``: named presets and grids of one method."""

    method: str
    # preset -> dataset or "any" -> parameters
    presets: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    # grid -> parameter -> values
    grids: dict[str, dict[str, list[Any]]] = Field(default_factory=dict)
    notes: str = ""

    @classmethod
    def read(cls, name: str, home: Path) -> Self:
        """Return the file of a method in the project or the package; empty without one."""
        path = list_names("method", home).get(name)
        return cls(method=name) if path is None else parse(cls, read_yaml(path), path)

    def preset(self, name: str | None, lineage: Sequence[str], key: str) -> dict[str, Any]:
        """Return a preset's parameters for the nearest dataset of a lineage, or those for any."""
        if name is None:
            return {}
        if name not in self.presets:
            raise ConfigError(
                f"{key}: {self.method} has no preset {name!r}.", nearest(name, self.presets)
            )
        by_dataset = self.presets[name]
        for dataset in (*lineage, "any"):
            if dataset in by_dataset:
                return dict(by_dataset[dataset])
        raise ConfigError(
            f"{key}: the preset {name!r} of {self.method} has nothing for {lineage[0]}.",
            f"It covers {', '.join(sorted(by_dataset))}; give the parameters in the study.",
        )

    def grid(self, name: str | None, key: str) -> dict[str, list[Any]]:
        """Return a grid: parameter -> values."""
        if name is None:
            return {}
        if name not in self.grids:
            raise ConfigError(
                f"{key}: {self.method} has no grid {name!r}.", nearest(name, self.grids)
            )
        return dict(self.grids[name])
