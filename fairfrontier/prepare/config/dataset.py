"""A dataset's YAML, as frozen models that refuse unknown keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from fairfrontier.prepare.config.section import (
    REST,
    Count,
    Features,
    Group,
    Identifier,
    Label,
    Level,
    Missing,
    Name,
    Noise,
    Perturb,
    RowFilter,
    Source,
    SplitRule,
    listed,
)
from fairfrontier.prepare.config.text import SetName, Text, resolve_vocabulary
from fairfrontier.runtime.config import Model, fault, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest, repeated
from fairfrontier.runtime.finder import find_yaml


def _protected(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    if not all(isinstance(name, str) for name in value):
        raise fault("a list of protected attributes holds names", "Write kinds as {name: kind}.")
    return dict.fromkeys(value, "auto")


class Limits(Model):
    """The most that a dataset may ask for: more is refused before it fills the memory."""

    levels: Count = Field(
        default=1000,
        description="Levels of a categorical column and of an attribute, crossed ones included, "
        "and variants of a counterfactual set.",
        examples=[5000],
    )
    features: Count = Field(default=10_000, description="Columns of X.", examples=[20_000])

    def check(self, kind: str, number: int, where: str, mend: str) -> None:
        """Raise a ConfigError when ``where`` asks for more than one of the limits."""
        most = getattr(self, kind)
        if number > most:
            raise ConfigError(
                f"{where}, and limits.{kind} is {most:,}.", f"{mend}, or raise limits.{kind}."
            )


def _refuse_repeated(levels: tuple[str, ...]) -> tuple[str, ...]:
    if double := repeated(levels):
        raise fault(f"{double[0]!r} is listed twice")
    return levels


Values = Annotated[
    Annotated[tuple[Level, ...], Field(min_length=1), AfterValidator(_refuse_repeated)] | None,
    BeforeValidator(
        lambda value: None if value == "all" else listed(value),
        json_schema_input_type=Level | tuple[Level, ...] | None,
    ),
]
Edited = Annotated[Mapping[Name, Values], Field(min_length=1)]


def _offer_extends(schema: dict[str, Any]) -> None:
    """Add the key that `read_dataset` takes out, and which may bring all others but the name."""
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Another dataset, by name or file, whose sections apply where this file has "
        "none of that key.",
    }
    required = [key for key in schema["required"] if key != "dataset"]
    schema["required"] = ["dataset"]
    schema["anyOf"] = [{"required": ["extends"]}, {"required": required}]


Kind = Literal["auto", "continuous", "categorical"]


class DatasetConfig(Model):
    """A dataset: a table, what is learnt of it, from what, and who is protected."""

    model_config = ConfigDict(json_schema_extra=_offer_extends)

    dataset: Identifier = Field(description="Its name, after which the file is named.")
    description: str = Field(default="", description="A line on it, for lists.")
    source: Source = Field(description="Where the rows come from.")
    memory: Literal["auto", "dask"] = Field(
        default="auto",
        description="dask: rows stay in their files, and features only ever on workers; auto: so "
        "where the table is estimated at more than half of this machine's memory.",
        examples=["dask"],
    )
    label: Label = Field(description="What is learnt.")
    features: Features = Field(description="Which columns become features, and how.")
    groups: Mapping[Name, Group] = Field(
        default_factory=dict, description="Attributes by which people are compared."
    )
    protected: Annotated[
        Mapping[Name, Kind],
        BeforeValidator(_protected, json_schema_input_type=tuple[Name, ...] | Mapping[Name, Kind]),
    ] = Field(
        default_factory=dict,
        description="Attributes that a fair metric ignores, each a group or a column: a list, or "
        "attribute -> ``continuous`` (its numbers are used) or ``categorical`` (its codes). In a "
        "list, and with ``auto``, what is used as a number is continuous.",
    )
    counterfactuals: Mapping[SetName, Edited] = Field(
        default_factory=dict,
        description="Versions of a row that are to be treated alike: set -> column -> levels, or "
        "``all``; several columns make every combination.",
    )
    rows: RowFilter = Field(
        default=RowFilter(), description="Rows that are kept, before everything else."
    )
    missing: Missing = Field(
        default=Missing(), description="What a missing cell of a feature means."
    )
    weight: Name | None = Field(
        default=None, description="Column of the rows' weights.", examples=["weight"]
    )
    text: Text | None = Field(default=None, description="How a column of texts is cleaned.")
    split: SplitRule = Field(description="How rows are assigned to parts.")
    perturb: Perturb = Field(
        default=Perturb(), description="Deliberate changes, after the split and before encoding."
    )
    limits: Limits = Field(
        default=Limits(),
        description="The most that the dataset may ask for.",
        examples=[{"levels": 5000}],
    )
    notes: str = Field(default="", description="What a reader of results has to know.")

    @model_validator(mode="after")
    def _check(self) -> DatasetConfig:
        mentions = _mention_columns(self)
        for key in ("numeric", "categorical", "quantile", "cut", "binary", "passthrough"):
            if self.label.column in mentions[f"features.{key}"]:
                raise fault(f"features uses {self.label.column!r}, which is the label")
        plain = [name for name, group in self.groups.items() if not group.cross]
        for name, group in self.groups.items():
            if "=" in name:
                raise fault(
                    f"groups.{name}: measures are named attribute=level",
                    "Give the attribute a name without =; its column may have any.",
                )
            for other in group.cross or ():
                if other not in plain:
                    raise fault(f"groups.{name} crosses {other!r}", nearest(other, plain))
        for name in (*self.counterfactuals, *(self.text.versions if self.text else ())):
            if "=" in name:
                raise fault(
                    f"the set {name!r} has an =, behind which measures name a budget",
                    "Give it a name without =.",
                )
        cases = self.perturb.drop.where if self.perturb.drop else ()
        named = {
            "features.groups": self.features.groups,
            "split.group": (self.split.group,) if self.split.group else (),
            "perturb.noisy_groups": tuple(self.perturb.noisy_groups),
            "perturb.drop": tuple(name for case in cases for name in case.groups),
        }
        for key, names in named.items():
            for name in names:
                if name not in self.groups:
                    raise fault(f"{key} names no group {name!r}", nearest(name, self.groups))
        for name in self.perturb.noisy_groups:
            if name not in plain:
                raise fault(f"perturb.noisy_groups: {name} is a cross product", "Name its parts.")
        if self.split.kind == "stratified" and self.label.task == "regression":
            raise fault("split.kind: stratified needs classes, not a regression target")
        return self

    @model_validator(mode="after")
    def _check_texts(self) -> DatasetConfig:
        feature = self.features.text
        versions = self.text.versions if self.text else {}
        if feature and self.text is None:
            raise fault("features.text needs a section text, which names the column")
        if versions and feature is None:
            raise fault("text.versions make no difference without features.text")
        if versions and feature and feature.supplied:
            raise fault(
                f"text.versions need an encoder, and {feature.encoder} contains fixed vectors",
                "Name an encoder under features.text, or leave out text.versions.",
            )
        if double := sorted(set(versions) & set(self.counterfactuals)):
            raise fault(f"{double[0]} is named under counterfactuals and under text.versions")
        return self

    @property
    def set_names(self) -> tuple[str, ...]:
        """Names of all counterfactual sets: those of columns, then those of texts."""
        return (*self.counterfactuals, *(self.text.versions if self.text else ()))

    def shape(self) -> Any:
        """Return what shapes the arrays, ready for JSON: no prose, no paths, no digests.

        Mappings become lists of pairs, because their order is that of codes and columns and must
        survive writers that sort keys.
        """
        location = {"path", "sources", "sha256"}
        prose = {"notes", "description"}
        shape = self.model_dump(
            mode="json",
            by_alias=True,
            exclude={
                "notes": True,
                "description": True,
                "memory": True,
                "limits": True,
                "label": {"meaning"},
                "source": {
                    "sha256": True,
                    "width": True,
                    "unpacked": True,
                    "path": {"__all__": location},
                    "votes": {"path": location},
                },
                # The chosen encoder has its own digest.
                "features": {"text": {"encoder", "max_tokens"}},
                "text": {
                    "mentions": prose,
                    "versions": {"__all__": dict.fromkeys(("terms", "swap"), prose)},
                },
            },
        )
        # What most datasets lack leaves no trace in their digests.
        marks = ("encoding", "decimal", "thousands", "units", "ages", "spellings", "dummies")
        optional = {
            "source": ("votes", *marks),
            "label": ("above",),
            "features": ("text",),
            "split": ("of", "others"),
        }
        if shape["text"] is None:
            del shape["text"]
        for section, keys in optional.items():
            for key in keys:
                if shape[section][key] in (None, {}):
                    del shape[section][key]
        return list_pairs(shape)


def list_pairs(value: Any) -> Any:
    """Return a value with its mappings as lists of pairs, whose order sorted keys would lose."""
    if isinstance(value, Mapping):
        return [[key, list_pairs(item)] for key, item in value.items()]
    return [list_pairs(item) for item in value] if isinstance(value, list | tuple) else value


def read_dataset(path: Path, home: Path | None = None) -> DatasetConfig:
    """Read a dataset's YAML; relative names of ``extends`` are looked up beside the file first.

    With ``extends: NAME`` the sections of conf/datasets/NAME.yaml apply wherever this file has no
    section of that key; sections are replaced as a whole.
    """
    return parse(DatasetConfig, resolve_vocabulary(_extend(path, home), path, home), path)


def replace_noise(config: DatasetConfig, noise: float | None, path: Path) -> DatasetConfig:
    """Return the dataset with another share of wrong groups, in every attribute that has noise."""
    if noise is None:
        return config
    if not 0 <= noise <= 1:
        raise ConfigError(f"The noise {noise} is no share of rows.", "Give a number from 0 to 1.")
    if not config.perturb.noisy_groups:
        raise ConfigError(
            f"{path}: a noise of {noise} is requested, but perturb names no noisy groups.",
            "Name the attribute: perturb: {noisy_groups: {race: {share: 0.1}}}, for example.",
        )
    noisy = {name: Noise(share=noise) for name in config.perturb.noisy_groups}
    perturb = config.perturb.model_copy(update={"noisy_groups": noisy})
    return config.model_copy(update={"perturb": perturb})


def read_lineage(path: Path, home: Path | None = None) -> tuple[str, ...]:
    """Return the name of a dataset's file, of the one it extends, and so on to the last."""
    return tuple(file.stem for file, _ in _follow(path, home))


def _follow(path: Path, home: Path | None) -> list[tuple[Path, Any]]:
    """Return a dataset's file with its content, then the one that it extends, and so on."""
    chain: dict[Path, Any] = {}
    while True:
        data = chain[path] = read_yaml(path)
        if not isinstance(data, Mapping) or "extends" not in data:
            return list(chain.items())
        name = str(data["extends"])
        folder = path.parent.absolute()
        base = find_yaml(
            "dataset", name, home, beside=folder, folders=[folder], where=f"{path}: extends"
        )
        if base in chain:
            raise ConfigError(f"{path}: extends: {name!r} leads back here.", "Break the circle.")
        path = base


def _extend(path: Path, home: Path | None) -> Any:
    merged, *others = [data for _, data in reversed(_follow(path, home))]
    for data in others if isinstance(merged, Mapping) else ():
        merged = {**merged, **{key: value for key, value in data.items() if key != "extends"}}
    return merged


def check_columns(config: DatasetConfig, columns: Iterable[str], file: Path | str) -> None:
    """Raise a ConfigError when a configuration names a column that the table lacks."""
    present = set(columns)
    for key, names in _mention_columns(config).items():
        for name in names:
            if name not in present:
                raise ConfigError(
                    f"{file}: {key}: the table has no column {name!r}.", nearest(name, present)
                )
    features = expand_rest(config, present).features
    listed = (*features.categorical, *features.binary)
    for name in features.levels:
        if name not in listed:
            raise ConfigError(
                f"{file}: features.levels: {name!r} is no categorical or binary feature.",
                "Add it to those, or take its levels out.",
            )


def _mention_columns(config: DatasetConfig) -> dict[str, tuple[str, ...]]:
    """Return every key that names columns, with the columns."""
    features = config.features
    return {
        "label.column": (config.label.column,),
        "features.numeric": () if features.numeric == REST else tuple(features.numeric),
        "features.quantile": features.quantiles,
        "features.cut": tuple(features.cut),
        "features.categorical": () if features.categorical == REST else tuple(features.categorical),
        "features.binary": tuple(features.binary),
        "features.passthrough": features.passthrough,
        "features.levels": tuple(features.levels),
        "features.drop": features.drop,
        "groups": tuple(group.column for group in config.groups.values() if group.column),
        "protected": tuple(
            name
            for name, kind in config.protected.items()
            if name not in config.groups or kind == "continuous"
        ),
        "counterfactuals": tuple(
            column for columns in config.counterfactuals.values() for column in columns
        ),
        "rows.keep": tuple(config.rows.keep),
        "rows.drop_missing": config.rows.drop_missing,
        "missing.columns": tuple(config.missing.columns),
        "weight": (config.weight,) if config.weight else (),
        "text": config.text.claims if config.text else (),
        "split.column": (config.split.column,) if config.split.column else (),
        "split.of": tuple(config.split.of),
        "features.text.ids": (features.text.ids,) if features.text and features.text.ids else (),
    }


def expand_rest(config: DatasetConfig, columns: Iterable[str]) -> DatasetConfig:
    """Return the configuration with ``rest`` replaced by the columns that nothing else uses.

    Columns of groups are left out too.
    """
    features = config.features
    if REST not in (features.numeric, features.categorical):
        return config
    mentions = _mention_columns(config)
    shared = ("missing.columns", "counterfactuals", "features.levels")
    for key in ("rows.keep", "rows.drop_missing", *shared):
        del mentions[key]
    taken = set[str]().union(*mentions.values())
    if any(file.part for file in config.source.path):
        taken.add("part")
    taken.update(*config.source.dummies.values())
    rest = tuple(name for name in columns if name not in taken)
    key = "numeric" if features.numeric == REST else "categorical"
    return config.model_copy(update={"features": features.model_copy(update={key: rest})})
