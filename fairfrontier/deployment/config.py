"""The options of using a bundle: of scoring, of explaining, of watching it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from fairfrontier.runtime.config import fault
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.option import (
    File,
    Name,
    Names,
    ProjectOptions,
    ResultOptions,
    name_table,
    read_numbers,
)

# As in the measures of a study; those of decisions alone need no labels.
RATES = ("selection_rate", "accuracy", "tpr", "tnr", "fpr", "fnr")
# A rate of all rows is limited in the direction in which it gets worse.
LEAST, MOST = ("accuracy", "tpr", "tnr"), ("fpr", "fnr")
LIMITED = (
    *LEAST,
    *MOST,
    *(f"{rate}_{kind}:" for rate in RATES for kind in ("difference", "ratio", "min", "max")),
)
# A share of it for each check has to be told from 0 beside 1.
LEAST_ALPHA = 1e-12
Kind = Literal["difference", "ratio", "min", "max"]


@dataclass(frozen=True)
class Limit:
    """A bound on a rate.

    The largest ``difference`` between the groups of an attribute and the largest (``max``) rate are
    at most ``bound``; the smallest ``ratio`` and the smallest (``min``) rate at least. The
    attribute is empty where all rows are one group.
    """

    name: str
    rate: str
    kind: Kind
    attribute: str
    bound: float

    @property
    def fewest(self) -> int:
        """How many groups with rows it takes."""
        return 2 if self.kind in ("difference", "ratio") else 1


def read_limit(name: str, bound: float) -> Limit:
    """Return a limit such as selection_rate_difference:sex, as the error of a validator if none."""
    measure, _, attribute = name.partition(":")
    if not attribute and measure in (*LEAST, *MOST):
        return Limit(name, measure, "min" if measure in LEAST else "max", "", bound)
    rate, _, kind = measure.rpartition("_")
    if not attribute or rate not in RATES or kind not in ("difference", "ratio", "min", "max"):
        raise fault(
            f"{name!r} is no rate, or difference, ratio, min or max of a rate between groups",
            nearest(name if not attribute else f"{measure}:", LIMITED),
        )
    return Limit(name, rate, kind, attribute, bound)  # type: ignore[arg-type]


def check_limits(limits: dict[str, float]) -> dict[str, float]:
    """Refuse what is no limit of a rate."""
    for name, bound in limits.items():
        limit = read_limit(name, bound)
        if not 0.0 <= bound <= 1.0:
            raise fault(f"the limit {bound:g} of {name} is no share", "Give a number in 0 to 1.")
        if limit.kind in ("ratio", "min") and bound == 0.0:
            raise fault(f"the limit 0 of {name} could not be passed", "Give a number above 0.")
    return limits


def check_period(name: str) -> str:
    """Refuse a name that could not be part of a file's."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name):
        raise fault(
            f"{name!r} is no name of a period", "Use letters, digits, dots and dashes, as 2026-W47."
        )
    return name


Limits = Annotated[
    dict[Name, float],
    read_numbers(
        "further limit", "Write limits as selection_rate_difference:sex=0.1,accuracy=0.8."
    ),
    AfterValidator(check_limits),
]
Period = Annotated[str, AfterValidator(check_period)]


class MonitorConfig(ResultOptions):
    """Which bundle is watched on which new rows; the options of a command and of a flow."""

    command: ClassVar[str] = "monitor"

    bundle: File = Field(description="The folder of a bundle.")
    table: File = Field(
        description="Parquet or CSV with the rows of a new period, or with the labels of one."
    )
    period: Period | None = Field(
        default=None, description="Name of the period, as 2026-W47; that of the table by default."
    )
    row_id: Name | None = Field(
        default=None,
        description="Column of row ids, by which labels may come later; the bundle's by default.",
    )
    labelled: bool = Field(default=False, description="Refuse a table without labels.")
    accepted: Name | None = Field(
        default=None,
        description="The class that selection rates are of; the favourable one by default.",
    )
    limit: Limits | None = Field(
        default=None,
        description="Limits, as selection_rate_difference:sex=0.1,accuracy=0.8; those of the first "
        "period hold for all.",
    )
    alpha: float | None = Field(
        default=None,
        ge=LEAST_ALPHA,
        lt=1.0,
        description="Probability of any false alarm, over all groups, rates and periods; that of "
        "the first period, and there 0.05, by default.",
    )

    @property
    def name(self) -> str:
        """The name of the bundle's folder, or of the study in whose results `select` put it."""
        parts = self.bundle.resolve().parts[1:]
        named = [part for part in parts if part not in ("choice", "bundle")]
        return named[-1] if named else "bundle"

    @property
    def period_name(self) -> str:
        """The period, by default the name of the table; ConfigError where that is none."""
        name = name_table(self.table) if self.period is None else self.period
        try:
            return check_period(name)
        except ValueError:
            raise ConfigError(
                f"{name!r}, from the name of the table, is no name of a period.",
                "Name the period with --period, in letters, digits, dots and dashes.",
            ) from None


Amounts = Annotated[
    dict[Name, int | float],
    read_numbers(
        "amount of places",
        "Write race=Black:0.12, a share of the places, or race=Black:60, a number of them.",
        ":",
        lambda text: int(text) if text.isdecimal() else float(text),
    ),
]

# Rows that are explained by default.
ROWS = 1_000


class ScoreConfig(ProjectOptions):
    """What is decided on: the options of a command."""

    bundle: File = Field(description="The folder of a bundle.")
    table: File = Field(description="Raw rows: Parquet, a folder of Parquet files, or CSV.")
    out: File = Field(
        default=Path("decisions.parquet"), description="The file of decisions, Parquet."
    )
    row_id: Name | None = Field(
        default=None, description="Column of row ids, in place of the bundle's."
    )
    keep: Names = Field(
        default=(), description="Columns of the table that are copied beside the decisions."
    )
    drop_refused: bool = Field(
        default=False, description="Leave refused rows out of the file, as an audit needs it."
    )
    places: int | None = Field(
        default=None, ge=1, description="Give so many places, by score; the others wait in order."
    )
    floor: Amounts | None = Field(
        default=None,
        description="The least places of groups: race=Black:0.12 of all, or race=Black:60.",
    )
    ceiling: Amounts | None = Field(default=None, description="The most places of groups.")

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name


class ExplainConfig(ResultOptions):
    """Which bundle's scores are explained, on which rows: the options of a command."""

    command: ClassVar[str] = "explain"

    bundle: File = Field(description="The folder of a bundle.")
    table: File = Field(description="Raw rows: Parquet, a folder of Parquet files, or CSV.")
    accepted: Name | None = Field(
        default=None,
        description="Which of several classes is explained; the favourable one by default.",
    )
    rows: int = Field(
        default=ROWS, ge=1, description="Rows that are explained; of more, so many are drawn."
    )

    @property
    def name(self) -> str:
        """The name of the table."""
        return name_table(self.table)
