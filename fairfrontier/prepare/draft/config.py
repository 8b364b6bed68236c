"""The options of drafting a dataset."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from fairfrontier.runtime.config import fault
from fairfrontier.runtime.option import File, Name, Names, ProjectOptions, split_names


class DraftOptions(ProjectOptions):
    """What somebody knows of a table that is to be described."""

    label: Name | None = Field(
        default=None, description="Column of what is decided or predicted; guessed by default."
    )
    positive: Annotated[tuple[Name, ...], BeforeValidator(split_names)] | None = Field(
        default=None, description="The levels of the label that mean 1."
    )
    above: float | None = Field(
        default=None, description="The label is 1 where its column holds more than this."
    )
    protected: Names = Field(
        default=(), description="Columns of protected attributes; guessed by default."
    )
    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$",
        description="Of the dataset and the study; by default that of the table.",
    )
    out: File | None = Field(
        default=None, description="The project's folder; by default the one that you are in."
    )

    @model_validator(mode="after")
    def _check(self) -> DraftOptions:
        if self.above is not None and self.positive is not None:
            raise fault("above and positive both say what 1 means", "Leave one of them out.")
        if self.label is not None and self.label in self.protected:
            raise fault(f"the label {self.label!r} is not protected as well", "Name it once.")
        return self


class InitConfig(DraftOptions):
    """A file to describe, and what somebody knows of it."""

    table: File = Field(
        description="CSV, TSV (gzip too), Parquet, Feather or Excel; or a folder of Parquet files."
    )
