"""Claims: statements in words that a study checks on its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fairfrontier.runtime.config import Model, fault
from fairfrontier.runtime.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fairfrontier.study.config import StudyConfig

Block = Literal["frontier", "published"]
PartName = Literal["train", "calibration", "validation", "test"]
Setting = Mapping[str, Any]

# Of the difference left − right, and what is forgiven.
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda gap, slack: gap > slack,
    ">=": lambda gap, slack: gap >= -slack,
    "<": lambda gap, slack: gap < -slack,
    "<=": lambda gap, slack: gap <= slack,
    "==": lambda gap, slack: abs(gap) <= slack,
    "!=": lambda gap, slack: abs(gap) > slack,
}


class RowAt(BaseModel):
    """A row of a block: ``budro``, or one setting of a row that sweeps.

    ``{row: budro, budget: 0.1}`` is the setting of ``budro`` whose budget is 0.1; every key but
    ``row`` is one that the setting must have.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    row: str

    @property
    def at(self) -> dict[str, Any]:
        """What the setting must hold."""
        return dict(self.model_extra or {})

    def __str__(self) -> str:
        told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in self.at.items())
        return f"{self.row} at {told}" if told else self.row

    def match(self, label: str, setting: Setting) -> bool:
        """Tell whether a row's label and setting are what is meant."""
        return label == self.row and all(
            key in setting and setting[key] == value for key, value in self.at.items()
        )


def _one_row(value: Any) -> Any:
    return {"row": value} if isinstance(value, str) else value


def _one_measure(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


Row = Annotated[RowAt, BeforeValidator(_one_row)]
Rows = Annotated[tuple[Row, ...], BeforeValidator(_listed), Field(min_length=1)]
Measures = Annotated[tuple[str, ...], BeforeValidator(_one_measure), Field(min_length=1)]


class Comparison(Model):
    """Two rows, or a row and a number, in one measure or several: all must hold.

    The means over seeds on ``part`` are compared: ``left relation right`` or ``left relation
    value``; ``==`` holds to within ``tolerance``. Lists of rows are compared one by one, a single
    right side with each.

    With ``noise`` a sampling error δ takes part: ``>=`` then means not below by more than δ, ``>``
    above by more than δ, ``==`` no further than δ, ``!=`` further. Against a value, δ is the reach
    of the row's own 95% interval towards it on one split, averaged over the seeds. Two rows are
    compared split by split: δ = t·sd/√S, of their differences on S splits; with one split
    δ = sqrt(δ_l² + δ_r²), as if their errors were independent. A largest difference, which is
    never below 0, is above 0 by sampling alone: compare signed gaps with 0.
    """

    left: Rows
    right: Rows | None = None
    value: float | None = None
    measure: Measures
    relation: Literal[">", ">=", "<", "<=", "==", "!="]
    tolerance: float = Field(default=1e-9, ge=0)
    noise: bool = False
    part: PartName = "test"
    block: Block | None = None

    @model_validator(mode="after")
    def _can_fail(self) -> Self:
        folded = [name for name in self.measure if name.partition(":")[0].endswith("_difference")]
        if self.noise and self.value == 0 and self.relation in (">", "!=") and folded:
            raise fault(
                f"{folded[0]} is never below 0, so that sampling alone puts it above",
                "Compare a signed gap, with the relation !=.",
            )
        return self

    @model_validator(mode="after")
    def _has_one_right_side(self) -> Self:
        if (self.right is None) == (self.value is None):
            raise fault(
                "a comparison has one right side", "Give right (a row) or value (a number)."
            )
        if self.right is not None and len(self.right) not in (1, len(self.left)):
            raise fault(
                f"{len(self.left)} rows stand left and {len(self.right)} right",
                "Give one right row for each left one, or one for all.",
            )
        return self

    def pairs(self) -> Iterator[tuple[RowAt, RowAt | None]]:
        """Yield each left row with its right one; None stands for ``value``."""
        right: Sequence[RowAt | None] = self.right or (None,)
        for number, left in enumerate(self.left):
            yield left, right[number if len(right) > 1 else 0]


class Trend(Model):
    """A row that sweeps a parameter, in one measure or several: all must follow the direction.

    The means over seeds on ``part`` are taken in ascending order of the parameter ``along``. They
    are ``rising`` when the last is above the first and no step goes down by more than
    ``tolerance``; ``falling`` is the reverse.
    """

    row: Row
    along: str
    direction: Literal["rising", "falling"]
    measure: Measures
    tolerance: float = Field(default=0.0, ge=0)
    part: PartName = "test"
    block: Block | None = None


class EqualHarm(Model):
    """Rows whose accuracy measure is compared where they are equally unfair: all must hold.

    What is compared are the study's ``frontier.accuracy`` and the first of ``frontier.fairness``,
    both turned so that less is better: a cost and a harm. Rows that sweep are curves through the
    settings on their lower convex envelope of ``select_on``; see ``curve.Curve``. At the harm of
    every setting of the right curve, times ``share``, the left one is asked its cost:
    ``left relation factor · right``, where ``<=``, ``>=`` and ``==`` forgive ``tolerance``, and
    ``<`` and ``>`` ask for a difference above it. A left curve that does more harm everywhere has
    an infinite cost; with ``common`` it is asked only where it gets.

    Attributes
    ----------
    left, right : tuple of str
        Labels of rows; a single right one for all, or one for each left one.
    published : str or None
        ``FILE.TABLE``, a curve of cost and harm as a paper has it, in place of ``right``.
    """

    left: Annotated[tuple[str, ...], BeforeValidator(_one_measure), Field(min_length=1)]
    right: Annotated[tuple[str, ...], BeforeValidator(_one_measure)] = ()
    published: str | None = None
    relation: Literal[">", ">=", "<", "<=", "=="]
    share: float = Field(default=1.0, gt=0, le=1)
    factor: float = Field(default=1.0, gt=0)
    tolerance: float = Field(default=0.0, ge=0)
    common: bool = False
    part: PartName = "test"
    block: Block | None = "frontier"

    # What it compares is what the frontier names.
    measure: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _has_one_right_side(self) -> Self:
        if bool(self.right) == (self.published is not None):
            raise fault("it has one right side", "Give right (rows) or published (a table).")
        if self.right and len(self.right) not in (1, len(self.left)):
            raise fault(
                f"{len(self.left)} rows stand left and {len(self.right)} right",
                "Give one right row for each left one, or one for all.",
            )
        return self

    def pairs(self) -> Iterator[tuple[str, str | None]]:
        """Yield each left row with its right one; None stands for ``published``."""
        right: Sequence[str | None] = self.right or (None,)
        for number, left in enumerate(self.left):
            yield left, right[number if len(right) > 1 else 0]


class Speed(Model):
    """Rows whose oracle answers in at most ``factor`` times the seconds of the right row's.

    Medians over the fits of the seconds that a call takes, on the machine that ran them.
    """

    left: Annotated[tuple[str, ...], BeforeValidator(_one_measure), Field(min_length=1)]
    right: str
    factor: float = Field(gt=0)

    measure: ClassVar[tuple[str, ...]] = ()
    part: ClassVar[PartName] = "train"
    block: ClassVar[Block | None] = "frontier"


class Claim(Model):
    """A statement that the study checks: in words, and in one of four ways."""

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    sentence: str
    compare: Comparison | None = None
    trend: Trend | None = None
    equal_harm: EqualHarm | None = None
    speed: Speed | None = None

    @model_validator(mode="after")
    def _is_checked_in_one_way(self) -> Self:
        ways = (self.compare, self.trend, self.equal_harm, self.speed)
        if sum(each is not None for each in ways) != 1:
            raise fault(
                "a claim is checked in one way", "Give one of compare, trend, equal_harm and speed."
            )
        return self

    @property
    def check(self) -> Comparison | Trend | EqualHarm | Speed:
        """How it is checked."""
        found = self.compare or self.trend or self.equal_harm or self.speed
        assert found is not None  # noqa: S101 - the validator saw to it
        return found

    @property
    def rows(self) -> Iterator[RowAt]:
        """The rows that it names."""
        match self.check:
            case Comparison(left=left, right=right):
                yield from left
                yield from right or ()
            case Trend(row=row):
                yield row
            case EqualHarm(left=labels, right=others):
                yield from (RowAt(row=each) for each in (*labels, *others))
            case Speed(left=labels, right=other):
                yield from (RowAt(row=each) for each in (*labels, other))


def claim_block(study: StudyConfig, claim: Claim) -> Block:
    """Return the block whose rows a claim compares: the published one where there is one."""
    return claim_side(study, claim.check.block)[0]


def claim_side(study: StudyConfig, block: Block | None) -> tuple[Block, str]:
    """Return the block that is meant, and the part on which its settings are chosen."""
    if block == "frontier" or (block is None and study.published is None):
        return "frontier", study.select_on
    return "published", "train" if study.published is None else study.published.select_on


def order_settings(
    trend: Trend, settings: Iterable[tuple[str, Setting]]
) -> list[tuple[float, Setting]]:
    """Return the settings of a trend's row with their values of its parameter, ascending."""
    found = [
        (float(setting[trend.along]), setting)
        for label, setting in settings
        if trend.row.match(label, setting) and _is_number(setting.get(trend.along))
    ]
    return sorted(found, key=lambda each: each[0])


def refuse_claims(
    study: StudyConfig, settings: Mapping[Block, Sequence[tuple[str, Setting]]], where: str
) -> None:
    """Refuse claims about rows that the study does not have, or not once.

    Parameters
    ----------
    study : StudyConfig
        With its claims.
    settings : mapping of block to sequence of (label, setting)
        What the blocks unfold into, without seeds.
    where : str
        The file, which errors name.

    Raises
    ------
    ConfigError
        For an id that stands twice, an unknown row, a comparison of a row with several settings,
        or a trend along a parameter that the row does not sweep.
    """
    seen: set[str] = set()
    for claim in study.claims:
        place = f"{where}: claim {claim.id}"
        if claim.id in seen:
            raise ConfigError(f"{where}: the claim {claim.id!r} stands twice.", "Rename one.")
        seen.add(claim.id)
        block = claim_block(study, claim)
        if block not in settings:
            raise ConfigError(
                f"{place} compares rows of a published block that is not there.",
                "Add the block, or write block: frontier.",
            )
        for row in claim.rows:
            own = [setting for label, setting in settings[block] if label == row.row]
            if not own:
                known = {label for label, _ in settings[block]}
                raise ConfigError(
                    f"{place} names {row.row!r}, no row of the {block} block.",
                    nearest(row.row, known),
                )
            for key in row.at:
                if not any(key in setting for setting in own):
                    raise ConfigError(
                        f"{place} names {row}, but the settings of {row.row} say nothing of "
                        f"{key!r}.",
                        nearest(key, {known for setting in own for known in setting}),
                    )
        if claim.trend is not None:
            _refuse_trend(claim.trend, settings[block], place)
        elif claim.compare is not None:
            _refuse_several(claim, settings[block], place)


def _refuse_several(claim: Claim, settings: Sequence[tuple[str, Setting]], where: str) -> None:
    for row in claim.rows:
        matching = [setting for label, setting in settings if row.match(label, setting)]
        if len(matching) > 1:
            raise ConfigError(
                f"{where} names {str(row)!r}, which sweeps several settings.",
                f"Name one of them, for example {_example(row, matching)}.",
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
            f"{where} follows {trend.row.row!r} along {trend.along!r}, of which it has not two "
            "values.",
            f"List several numbers: {trend.along}: [0.1, 1, 10], for example.",
        )
    if len(set(values)) < len(values):
        raise ConfigError(
            f"{where} follows {str(trend.row)!r} along {trend.along!r}, and it sweeps other "
            "parameters too.",
            f"Hold the others: row: {{row: {trend.row.row}, OTHER: VALUE}}.",
        )


def _example(row: RowAt, matching: Sequence[Setting]) -> str:
    differing = [
        key for key in matching[0] if any(each.get(key) != matching[0][key] for each in matching)
    ]
    told = ", ".join(f"{key}: {matching[0][key]}" for key in (*row.at, *differing))
    return f"{{row: {row.row}, {told}}}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
