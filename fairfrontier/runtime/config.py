"""YAML parsed into frozen models that refuse unknown keys."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fairfrontier.runtime.cached import cached_by_files, note_file
from fairfrontier.runtime.errors import ConfigError, nearest, repeated
from fairfrontier.runtime.text_file import read_plain

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

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False
    )

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_truth(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        made = handler(data)
        if isinstance(data, Mapping):
            for name, field in cls.model_fields.items():
                for key in {*spell(name, field)} & {*data}:
                    if _is_taken_for_number(data[key], getattr(made, name)):
                        raise fault(
                            f"{key}: a number is expected, and YAML reads yes, no, on, off, true "
                            "and false as none"
                        )
        return made

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            spelt = [spell(name, field) for name, field in cls.model_fields.items()]
            known = {*cls.model_fields, *itertools.chain.from_iterable(spelt)}
            for key in data:
                if key not in known:
                    usual = [keys[0] for keys in spelt]
                    raise fault(f"there is no key {str(key)!r} here", nearest(str(key), usual))
        return data


def _is_taken_for_number(given: Any, made: Any) -> bool:
    """Whether a truth value has become a number, as pydantic takes 1 for true."""
    if isinstance(given, bool):
        return isinstance(made, int | float) and not isinstance(made, bool)
    if isinstance(given, Mapping) and isinstance(made, Mapping):
        return any(_is_taken_for_number(given[key], made.get(key)) for key in given)
    if isinstance(given, list | tuple) and isinstance(made, list | tuple):
        return any(map(_is_taken_for_number, given, made))
    return False


def spell(name: str, field: Any) -> list[str]:
    """Return the keys under which a field may be given, the usual one first."""
    alias = field.validation_alias
    return (
        [str(key) for key in alias.choices] if isinstance(alias, AliasChoices) else [alias or name]
    )


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


# For what people write by hand: a few aliases of aliases stand for billions of nodes.
DEPTH, NODES = 30, 100_000
MOST_BYTES = 2**21
# What reads as the same number to people and to YAML 1.1.
_DECIMAL = re.compile(
    r"[-+]?(0|[1-9][0-9_]*)?(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[-+]?0+(\.[0-9_]*)?|[-+]?\.(inf|nan)",
    re.IGNORECASE,
)
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """The safe loader, with errors for a key that occurs twice and for nodes without end.

    What is a number or a date to YAML 1.1 alone is text: 010, which it takes for 8, 1:30 for 90,
    and 2024-01-01.
    """

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _count_nodes(node, {}, 0)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        keys = [key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)]
        if twice := repeated(key for key in keys if key != "<<"):
            raise _refuse(f"the key {twice[0]!r} occurs twice", node)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if not _DECIMAL.fullmatch(node.value):
            return self.construct_scalar(node)
        if node.tag == f"{_TAG}int":
            return self.construct_yaml_int(node)
        value = self.construct_yaml_float(node)
        if not math.isfinite(value):
            raise _refuse(f"{node.value[:20]} is not a finite number", node)
        return value


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind in ("int", "float"):
    _Loader.add_constructor(f"{_TAG}{_kind}", _Loader.construct_number)


def _refuse(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _count_nodes(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Return how many nodes a node stands for, aliases written out; raise where it is too many."""
    if depth > DEPTH:
        raise _refuse(f"more than {DEPTH} levels are nested", node)
    if id(node) not in known:
        known[id(node)] = NODES + 1  # for an alias of itself, below
        below = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            below = itertools.chain.from_iterable(below)
        known[id(node)] = 1 + sum(_count_nodes(part, known, depth + 1) for part in below)
    if known[id(node)] > NODES:
        raise _refuse(f"it stands for more than {NODES:,} values", node)
    return known[id(node)]


def read_yaml(path: Path) -> Any:
    """Read a YAML file with the safe loader; duplicate keys are errors.

    Raises
    ------
    ConfigError
        When it cannot be read, or is not YAML.
    """
    # Callers may change the result; a relative path depends on the current folder.
    return copy.deepcopy(_parse_yaml(path.absolute()))


@cached_by_files
def _parse_yaml(path: Path) -> Any:
    note_file(path)
    try:
        text = read_plain(path, MOST_BYTES).decode()
        # An upper bound of how many there are, before they are all read.
        if sum(map(text.count, ",:\n[{")) > NODES:
            raise ValueError(f"it has more than {NODES:,} values")
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise ConfigError(
            f"{path}{where} is not valid YAML: {problem}.", "Correct the syntax there."
        ) from None
    # Values of a tag that they are not make PyYAML raise almost anything.
    except Exception as error:
        raise ConfigError(
            f"{path} cannot be read: {error}.", "Check the path, and its content."
        ) from None
