"""Claims: statements in words that a study checks against its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fairfrontier.runtime.config import Model, fault, parse
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.study.config import Block, ParameterRow, StudyConfig, one_or_more

PartName = Literal["train", "calibration", "validation", "test"]
Setting = Mapping[str, Any]

# Functions of the difference left − right and of the slack.
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda gap, slack: gap > slack,
    ">=": lambda gap, slack: gap >= -slack,
    "<": lambda gap, slack: gap < -slack,
    "<=": lambda gap, slack: gap <= slack,
    "==": lambda gap, slack: abs(gap) <= slack,
    "!=": lambda gap, slack: abs(gap) > slack,
}


class RowAt(ParameterRow):
    """A row of a block: ``budro``, or one setting of a row that sweeps.

    ``{row: budro, budget: 0.1}`` is the setting of ``budro`` whose budget is 0.1; the setting must
    have every key but ``row``.
    """

    row: str = Field(description="The row's label.")

    def __str__(self) -> str:
        values = ", ".join(
            f"{key.replace('_', ' ')} {value}" for key, value in self.parameters.items()
        )
        return f"{self.row} at {values}" if values else self.row

    def match(self, label: str, setting: Setting) -> bool:
        """Return whether a row's label and setting are the ones meant."""
        return label == self.row and all(
            key in setting and setting[key] == value for key, value in self.parameters.items()
        )


def _name_row(value: Any) -> Any:
    return {"row": value} if isinstance(value, str) else value


Row = Annotated[RowAt, BeforeValidator(_name_row, json_schema_input_type=str | RowAt)]
Rows = Annotated[tuple[Row, ...], one_or_more(str | RowAt), Field(min_length=1)]
Names = Annotated[tuple[str, ...], one_or_more(str), Field(min_length=1)]


class PairedRows(Model):
    """Rows on the left, each compared with its own row on the right or all with a single one."""

    left: tuple[Any, ...] = Field(description="The rows on the left.")
    right: tuple[Any, ...] | None = Field(
        default=None, description="One row for all on the left, or one for each."
    )

    @model_validator(mode="after")
    def _sides_match(self) -> Self:
        if self.right and len(self.right) not in (1, len(self.left)):
            raise fault(
                f"there are {len(self.left)} rows on the left and {len(self.right)} on the right",
                "Give one right row for each left one, or one for all.",
            )
        return self

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield each left row with its right one, or with None where there is none."""
        right = self.right or (None,)
        yield from zip(self.left, right if len(right) > 1 else right * len(self.left), strict=True)


class Comparison(PairedRows):
    """Two rows, or a row and a number, compared in one or more measures, all of which must hold.

    The means over seeds are compared: ``left relation right`` or ``left relation value``. Lists of
    rows are compared one by one, a single right side with each.

    With ``noise``, a sampling error δ is allowed for: ``>=`` then means not below by more than δ,
    ``>`` above by more than δ, ``==`` no further than δ, ``!=`` further. Against a value, δ is the
    reach of the row's own 95% interval towards it on one split, averaged over the seeds. Two rows
    are compared split by split: δ = t·sd/√S, of their differences on S splits; with one split
    δ = sqrt(δ_l² + δ_r²), as if their errors were independent. A largest difference, which is
    never below 0, is above 0 by sampling alone: compare signed gaps with 0.
    """

    left: Rows = Field(description="Rows on the left.")
    right: Rows | None = Field(
        default=None, description="One row for all on the left, or one for each."
    )
    value: float | None = Field(default=None, description="A number in place of rows.")
    measure: Names = Field(description="Measures, all of which must hold.")
    relation: Literal[">", ">=", "<", "<=", "==", "!="] = Field(
        description="How left stands to right."
    )
    tolerance: float = Field(default=1e-9, ge=0, description="Difference that == allows for.")
    noise: bool = Field(default=False, description="Whether a sampling error is allowed for.")
    part: PartName = Field(
        default="test", description="The part that is measured.", examples=["validation"]
    )
    block: Block | None = Field(
        default=None,
        description="The block whose rows are meant; published by default, where there is one.",
    )

    @model_validator(mode="after")
    def _can_fail(self) -> Self:
        unsigned = [name for name in self.measure if name.partition(":")[0].endswith("_difference")]
        if self.noise and self.value == 0 and self.relation in (">", "!=") and unsigned:
            raise fault(
                f"{unsigned[0]} is never below 0, so sampling alone puts it above",
                "Compare a signed gap, with the relation !=.",
            )
        if (self.right is None) == (self.value is None):
            raise fault(
                "a comparison has one right side", "Give right (a row) or value (a number)."
            )
        return self


class Trend(Model):
    """A row that sweeps a parameter, in one or more measures, all of which must follow.

    The means over seeds are taken in ascending order of the parameter. They are ``rising`` when the
    last is above the first and no step goes down by more than ``tolerance``; ``falling`` is the
    reverse.
    """

    row: Row = Field(description="The row that sweeps.")
    along: str = Field(description="The parameter that it sweeps.")
    direction: Literal["rising", "falling"] = Field(description="Where the means go.")
    measure: Names = Field(description="Measures, all of which must follow.")
    tolerance: float = Field(
        default=0.0, ge=0, description="Step in the other direction that is allowed."
    )
    part: PartName = Field(
        default="test", description="The part that is measured.", examples=["validation"]
    )
    block: Block | None = Field(
        default=None,
        description="The block whose rows are meant; published by default, where there is one.",
    )


class EqualHarm(PairedRows):
    """Rows compared in accuracy where they are equally unfair; every comparison must hold.

    The study's ``frontier.accuracy`` and the first of ``frontier.fairness`` are compared, both
    turned so that less is better: a cost and a harm. Rows that sweep are curves through the
    settings on their lower convex envelope of ``select_on``; see ``curve.Curve``. The left curve
    is evaluated at the harm of every setting of the right one, times ``share``:
    ``left relation factor · right``, where ``<=``, ``>=`` and ``==`` allow ``tolerance``, and
    ``<`` and ``>`` need a difference above it. A left curve that does more harm everywhere has
    an infinite cost.
    """

    left: Names = Field(description="Labels of rows.")
    right: Names | None = Field(
        default=None, description="One label for all on the left, or one for each."
    )
    published: str | None = Field(
        default=None,
        description="``FILE.TABLE``, a paper's curve of cost and harm, instead of ``right``.",
    )
    relation: Literal[">", ">=", "<", "<=", "=="] = Field(
        description="How the cost of left stands to that of right."
    )
    share: float = Field(
        default=1.0, gt=0, le=1, description="Part of right's harm at which left is evaluated."
    )
    factor: float = Field(default=1.0, gt=0, description="Multiplies the cost of right.")
    tolerance: float = Field(default=0.0, ge=0, description="Difference that is allowed for.")
    common: bool = Field(
        default=False, description="Whether left is evaluated only where it reaches the harm."
    )
    part: PartName = Field(
        default="test", description="The part that is measured.", examples=["validation"]
    )
    block: Block | None = Field(
        default="frontier", description="The block whose rows are meant.", examples=["published"]
    )

    # The frontier names the measures.
    measure: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _has_one_right_side(self) -> Self:
        if (self.right is None) == (self.published is None):
            raise fault("it has one right side", "Give right (rows) or published (a table).")
        return self


class Speed(Model):
    """Rows whose oracle answers in at most ``factor`` times the seconds of the right row's.

    Medians over the fits of the seconds per call, on the machine that ran them.
    """

    left: Names = Field(description="Labels of the rows.")
    right: str = Field(description="Label of the row that they are compared with.")
    factor: float = Field(gt=0, description="Multiplies the seconds of right.")

    measure: ClassVar[tuple[str, ...]] = ()
    part: ClassVar[PartName] = "train"
    block: ClassVar[Block | None] = "frontier"


class Claim(Model):
    """A statement that the study checks: in words, and in one of four ways."""

    id: str = Field(pattern=r"^[a-z0-9-]+$", description="Its name in tables.")
    sentence: str = Field(description="What is claimed, in words.")
    compare: Comparison | None = Field(
        default=None, description="Two rows, or a row and a number, are compared."
    )
    trend: Trend | None = Field(default=None, description="Measures follow a swept parameter.")
    equal_harm: EqualHarm | None = Field(
        default=None, description="Costs are compared where rows are equally unfair."
    )
    speed: Speed | None = Field(default=None, description="Seconds of oracles are compared.")

    @model_validator(mode="after")
    def _is_checked_in_one_way(self) -> Self:
        ways = (self.compare, self.trend, self.equal_harm, self.speed)
        if sum(way is not None for way in ways) != 1:
            raise fault(
                "a claim is checked in one way", "Give one of compare, trend, equal_harm and speed."
            )
        return self

    @property
    def check(self) -> Comparison | Trend | EqualHarm | Speed:
        """How it is checked."""
        check = self.compare or self.trend or self.equal_harm or self.speed
        assert check is not None  # noqa: S101 - ensured by the validator
        return check

    @property
    def rows(self) -> Iterator[RowAt]:
        """The rows that it names."""
        match self.check:
            case Comparison(left=left, right=right):
                yield from (*left, *(right or ()))
            case Trend(row=row):
                yield row
            case EqualHarm(left=labels, right=others):
                yield from (RowAt(row=label) for label in (*labels, *(others or ())))
            case Speed(left=labels, right=other):
                yield from (RowAt(row=label) for label in (*labels, other))


class Claims(Model):
    """The claims of a study."""

    claims: tuple[Claim, ...]


def read_claims(study: StudyConfig, where: str = "") -> tuple[Claim, ...]:
    """Return the claims of a study; a ConfigError names the file ``where`` and the key."""
    return parse(Claims, {"claims": study.claims}, where or f"Study {study.study}").claims


def choose_block(study: StudyConfig, block: Block | None) -> tuple[Block, str]:
    """Return the block of a claim, and the part on which its settings are chosen.

    A claim without one is about the published block where the study has it.
    """
    if block == "frontier" or (block is None and study.published is None):
        return "frontier", study.select_on
    return "published", "train" if study.published is None else study.published.select_on


def order_settings(
    trend: Trend, settings: Iterable[tuple[str, Setting]]
) -> list[tuple[float, Setting]]:
    """Return the settings of a trend's row with their values of its parameter, ascending."""
    values = [
        (float(setting[trend.along]), setting)
        for label, setting in settings
        if trend.row.match(label, setting) and _is_number(setting.get(trend.along))
    ]
    return sorted(values, key=lambda pair: pair[0])


def refuse_claims(
    study: StudyConfig, settings: Mapping[Block, Sequence[tuple[str, Setting]]], where: str
) -> None:
    """Raise a ConfigError, naming the file ``where``, for claims that the rows cannot answer.

    These have a repeated id, an unknown row, a comparison of a row with several settings, or a
    trend along a parameter that the row does not sweep. ``settings`` are (label, setting) of each
    block, without seeds.
    """
    seen: set[str] = set()
    for claim in read_claims(study, where):
        prefix = f"{where}: claim {claim.id}"
        if claim.id in seen:
            raise ConfigError(f"{where}: the claim {claim.id!r} appears twice.", "Rename one.")
        seen.add(claim.id)
        block, _ = choose_block(study, claim.check.block)
        if block not in settings:
            raise ConfigError(
                f"{prefix} compares rows of a published block, which the study does not have.",
                "Add the block, or write block: frontier.",
            )
        for row in claim.rows:
            own = [setting for label, setting in settings[block] if label == row.row]
            if not own:
                raise ConfigError(
                    f"{prefix} names {row.row!r}, which is no row of the {block} block.",
                    nearest(row.row, {label for label, _ in settings[block]}),
                )
            for key in row.parameters:
                if not any(key in setting for setting in own):
                    raise ConfigError(
                        f"{prefix} names {row}, but the settings of {row.row} have no {key!r}.",
                        nearest(key, {known for setting in own for known in setting}),
                    )
        if claim.trend is not None:
            _refuse_trend(claim.trend, settings[block], prefix)
        elif claim.compare is not None:
            _refuse_several(claim, settings[block], prefix)


def _refuse_several(claim: Claim, settings: Sequence[tuple[str, Setting]], where: str) -> None:
    for row in claim.rows:
        matching = [setting for label, setting in settings if row.match(label, setting)]
        if len(matching) > 1:
            raise ConfigError(
                f"{where} names {str(row)!r}, which sweeps several settings.",
                f"Name one of them, for example {_write_example(row, matching)}.",
            )
        if not matching:
            raise ConfigError(
                f"{where} names {str(row)!r}, a setting that the row does not have.",
                "Name one that it sweeps.",
            )


def _refuse_trend(trend: Trend, settings: Sequence[tuple[str, Setting]], where: str) -> None:
    values = [value for value, _ in order_settings(trend, settings)]
    if len(set(values)) < 2:
        raise ConfigError(
            f"{where} follows {trend.row.row!r} along {trend.along!r}, of which the row has fewer "
            "than two values.",
            f"List several numbers: {trend.along}: [0.1, 1, 10], for example.",
        )
    if len(set(values)) < len(values):
        raise ConfigError(
            f"{where} follows {str(trend.row)!r} along {trend.along!r}, but the row sweeps other "
            "parameters too.",
            f"Fix the others: row: {{row: {trend.row.row}, OTHER: VALUE}}.",
        )


def _write_example(row: RowAt, matching: Sequence[Setting]) -> str:
    first = matching[0]
    differing = [key for key in first if any(other.get(key) != first[key] for other in matching)]
    values = ", ".join(f"{key}: {first[key]}" for key in (*row.parameters, *differing))
    return f"{{row: {row.row}, {values}}}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
