"""The options of the commands on the project itself."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, BeforeValidator, Field

from fairfrontier.runtime.config import fault
from fairfrontier.runtime.option import Name, NameOrFile, ProjectOptions, split_names

Kind = Literal[
    "fits",
    "measures",
    "copies",
    "inputs",
    "tables",
    "embeddings",
    "downloads",
    "results",
    "histories",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
# What no command makes again by itself goes only when it is named.
NAMED = ("results", "histories")
UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def read_age(value: Any) -> Any:
    """Return the time that a text such as 30d says."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d{1,6})([hdw])", value)
    if found is None:
        raise fault(f"{value!r} is no age", "Write hours, days or weeks, as 12h, 30d or 8w.")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


def for_programs() -> Any:
    """Return the field of an option --json; a model's own method has that name."""
    return Field(default=False, validation_alias=AliasChoices("json"), description="For programs.")


class CleanConfig(ProjectOptions):
    """What is removed of what a project holds: the options of a command."""

    kind: Annotated[tuple[Kind, ...], BeforeValidator(split_names)] = Field(
        default=tuple(kind for kind in KINDS if kind not in NAMED),
        description=f"Which of {', '.join(KINDS)}; all but the last two by default.",
    )
    study: Name | None = Field(
        default=None, description="Only what belongs to this study and to no other."
    )
    older_than: Annotated[timedelta, BeforeValidator(read_age)] | None = Field(
        default=None, description="Only what was written longer ago, as 12h, 30d or 8w."
    )
    damaged: bool = Field(
        default=False, description="Only entries of the store whose digests do not match."
    )
    yes: bool = Field(default=False, description="Remove it; without, it is only shown.")
    as_json: bool = for_programs()


class DoctorConfig(ProjectOptions):
    """What is looked at: the options of a command."""

    cluster: NameOrFile | None = Field(
        default=None,
        description="Open this cluster, too, and call a function on it: a name in conf/clusters or "
        "a YAML file.",
    )
    verify: bool = Field(
        default=False, description="Compare every entry of the store with its digests."
    )
    as_json: bool = for_programs()
