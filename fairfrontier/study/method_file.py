"""The YAML of a method: named presets and grids that studies refer to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fairfrontier.runtime.config import Model, fault, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import list_names


class Dimension(Model):
    """A parameter that a search may choose: a range of numbers, or a list of values."""

    low: int | float | None = Field(
        default=None, description="Lowest value; two integers range over integers."
    )
    high: int | float | None = Field(default=None, description="Highest value.")
    log: bool = Field(default=False, description="Whether the range is one of magnitudes.")
    choices: tuple[Any, ...] | None = Field(
        default=None,
        description="Values without an order, in place of a range.",
        examples=[["tree", "linear"]],
    )
    loose: Literal["low", "high"] | None = Field(
        default=None,
        description="Of a parameter that trades the objective for fairness: its end of least "
        "fairness.",
    )
    instead_of: str | None = Field(
        default=None,
        description="The parameter that says the same in other units, and takes precedence where "
        "a row gives it.",
    )

    @model_validator(mode="after")
    def _is_a_range_or_a_list(self) -> Self:
        ranged = self.low is not None and self.high is not None and self.low < self.high
        if self.choices and (self.low, self.high, self.loose) == (None, None, None):
            return self
        if self.choices is not None or not ranged or (self.log and not float(self.low or 0) > 0):
            raise fault(
                "it is no range and no list", "Give low and high, above 0 where log, or choices."
            )
        return self

    @property
    def distribution(self) -> Any:
        """What Optuna draws from."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices is not None:
            return CategoricalDistribution(self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log)
        return FloatDistribution(float(self.low or 0), float(self.high or 0), log=self.log)

    def read(self, value: Any) -> Any:
        """Return a drawn value with four digits."""
        return float(f"{value:.4g}") if isinstance(value, float) else value

    def at(self, position: float) -> Any:
        """Return the value at a position from 0, the tight end, to 1, the loose end."""
        low, high = float(self.low or 0), float(self.high or 0)
        share = position if self.loose != "low" else 1 - position
        value = low * (high / low) ** share if self.log else low + (high - low) * share
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return round(value) if whole else self.read(value)


class MethodFile(Model):
    """``conf/methods/METHOD.yaml``: named presets and grids of one method, and what is searched."""

    method: str = Field(description="Registered name of the method, after which the file is named.")
    presets: dict[str, dict[str, dict[str, Any]]] = Field(
        default_factory=dict, description="Preset -> dataset, or ``any`` -> parameters."
    )
    grids: dict[str, dict[str, list[Any]]] = Field(
        default_factory=dict, description="Grid -> parameter -> values."
    )
    space: dict[str, Dimension] = Field(
        default_factory=dict, description="Parameter -> where a search looks."
    )
    notes: str = Field(
        default="", description="Where the numbers come from.", examples=["Of the paper's table 4."]
    )

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
