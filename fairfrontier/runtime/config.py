"""YAML parsed into frozen models that refuse unknown keys."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.recall import note_file, recall

ModelType = TypeVar("ModelType", bound=BaseModel)


def fault(fault: str, mend: str = "") -> PydanticCustomError:
    """Return the error of a validator, with its fault and its mend in its context."""
    # Pydantic fills only the braces of the template, not those in fault and mend.
    template = "{fault}. {mend}" if mend else "{fault}"
    return PydanticCustomError("fairfrontier", template, {"fault": fault, "mend": mend})


@dataclass(frozen=True)
class FirstFault:
    """The first fault of what a model was given.

    ``where`` are the keys that lead to it and ``kind`` is pydantic's name of the error. ``fault``
    is a clause without a full stop, ``mend`` a sentence or empty, and ``value`` the faulty value.
    """

    where: tuple[str, ...]
    kind: str
    fault: str
    mend: str
    value: Any


def read_first_fault(error: ValidationError) -> FirstFault:
    """Return the first fault of a validation, with the mend if a validator gave one."""
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    ours = first["type"] == "fairfrontier"
    return FirstFault(
        where=tuple(map(str, first["loc"])),
        kind=first["type"],
        fault=str(context["fault"] if ours else first["msg"]).rstrip("."),
        mend=str(context["mend"]) if ours else "",
        value=first.get("input"),
    )


class Model(BaseModel):
    """Base of all sections: frozen, with an error for unknown keys that offers the nearest one."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in data:
                if key not in known and key not in cls.model_fields:
                    raise fault(f"there is no key {str(key)!r} here", nearest(str(key), known))
        return data


def parse(model: type[ModelType], data: Any, file: Path | str) -> ModelType:
    """Validate what a YAML file holds; the file is named in errors.

    Raises
    ------
    ConfigError
        Names the file, the key and what was expected.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{file} holds {type(data).__name__} where keys and values are expected.",
            "Write it as `key: value` lines.",
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = read_first_fault(error)
        key = ".".join(first.where) or "the file as a whole"
        message, mend = first.fault, first.mend
        if first.kind == "missing":
            message, mend = "this key is missing", "Add it."
        elif not mend:
            structured = isinstance(first.value, Mapping | list | BaseModel)
            seen = "" if structured else f" It is {first.value!r} now."
            mend = f"Change the key in the file.{seen}"
        raise ConfigError(f"{file}: {key}: {message}.", mend) from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """The safe loader, with an error for duplicate keys, of which YAML keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} occurs twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Read a YAML file with the safe loader; duplicate keys are errors.

    Raises
    ------
    ConfigError
        When it cannot be read, or is not YAML.
    """
    # Callers may change the result; a relative path depends on the current folder.
    return copy.deepcopy(_parse_yaml(path.absolute()))


@recall
def _parse_yaml(path: Path) -> Any:
    note_file(path)
    try:
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, Loader=_UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise ConfigError(
            f"{path}{where} is not valid YAML: {problem}.", "Correct the syntax there."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "Check the path.") from None
