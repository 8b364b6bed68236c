"""A rule as a small, self-explanatory JSON: thresholds by group, and how decisions are drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from fairfrontier.models.thresholds.ramp import Rate
from fairfrontier.models.thresholds.rule import (
    UNSEEN,
    DecisionRule,
    Knots,
    MixtureRule,
    RampRule,
    Scale,
    ThresholdRule,
    rescale,
)
from fairfrontier.prepare.table.column import MISSING_LEVEL
from fairfrontier.runtime.config import Model, fault, parse
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.runtime.text_file import read_json

FORMAT = "fairfrontier thresholds"
VERSION = 1
SIGNED = {
    "probability": "f = 2 * score - 1",
    "margin": "f = 2 / (1 + exp(-score)) - 1",
    "signed": "f = score",
    "points": "f is on straight lines between the knots (score, f), and constant beyond them",
}
RAMP = "h = min(1, max(0, (f - threshold) / width))"
STEP = "h = 1 if f > threshold, h = coin if f == threshold, else h = 0"
MIXTURE = "h = the sum of the shares whose threshold is below f"
LINE = (
    "h = min(1, max(0, level + slope * (f - centre))); without a slope h = 1 if f > centre, "
    "h = level if f == centre, else h = 0"
)
UNSEEN_GROUPS = (
    "A group that is not in thresholds is refused where unseen is 'refuse'; else it is decided by "
    "the threshold of that group, its levels joined by '×', or where unseen is 'pooled' by the "
    f"threshold whose levels are all '{UNSEEN}'. Missing values are a level like others."
)
MIX = (
    "mix(z): z = (z XOR (z >> 30)) * 0xBF58476D1CE4E5B9; "
    "z = (z XOR (z >> 27)) * 0x94D049BB133111EB; return z XOR (z >> 31)"
)
DRAW = (
    "All on unsigned 64-bit integers, modulo 2^64, with G = 0x9E3779B97F4A7C15 and "
    f"{MIX}. a = mix(seed + G); b = mix(a + G); "
    "u = (mix(mix(id * G + a) + b) >> 11) * 2^-53. "
    "The decision is 1 if u < h, else 0: it depends on the seed, the row's id, its score and its "
    "group alone. Scores, f, h and u are in double precision."
)
IDS = (
    "A whole number, or its decimal text, is that number modulo 2^64; any other text is the first "
    "8 bytes of the SHA-256 of its UTF-8, read as a little-endian unsigned integer. Without a "
    "column of ids the id is the number of the row in the file, from 0."
)
LEVELS = (
    "Levels are text without blanks around it; a whole number is written without decimals (2, not "
    "2.0), and a missing value is the level 'missing'."
)
CHECKED_IDS = (0, 1, 2, 3)

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class ScoreSection(Model):
    """What the scores are."""

    column: str
    scale: Scale
    signed: str
    knots: tuple[tuple[float, float], ...] = Field((), max_length=1000, exclude_if=lambda x: not x)

    @model_validator(mode="after")
    def _check(self) -> ScoreSection:
        table, ranked = np.array(self.knots or [(0.0, -1.0)]), self.scale == "points"
        rising = np.isfinite(table).all() and (np.diff(table, axis=0) > 0).all()
        if not rising or np.abs(table[:, 1]).max() > 1.0 or bool(self.knots) != ranked:
            raise fault("no knots of points ascend within -1 to 1", "Fit the rule again.")
        return self


class GroupSection(Model):
    """What the groups are."""

    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    levels: str = LEVELS
    missing: Literal["missing"] = MISSING_LEVEL  # type: ignore[assignment]
    unseen: str = "refuse"
    unseen_groups: str = UNSEEN_GROUPS


class RuleSection(Model):
    """The formula; ``width`` is that of a ramp, 0 where there is none."""

    width: Annotated[float, Field(ge=0.0)]
    formula: str


class GroupThreshold(Model):
    """One group's threshold t on the scale of f ∈ [−1, 1], and its ``coin`` h where f = t.

    ``group`` maps columns to levels. On the input's scale h is 0 up to ``zero_up_to`` and 1 from
    ``one_from``; None where no score reaches it. ``n`` is the number of fitted rows, ``rate``
    E[h | group] on them.
    """

    group: Mapping[str, str]
    threshold: float
    coin: Share
    zero_up_to: float | None
    one_from: float | None
    n: Annotated[int, Field(ge=0)]
    rate: Share


class GroupMixture(Model):
    """One group's thresholds on the scale of f ∈ [−1, 1], of which one is drawn by its share.

    ``cuts`` are they on the input's scale, None for those beyond it: all or no scores are chosen.
    ``group``, ``n`` and ``rate`` are as in `GroupThreshold`.
    """

    group: Mapping[str, str]
    thresholds: Annotated[tuple[float, ...], Field(min_length=1)]
    shares: tuple[Share, ...]
    cuts: tuple[float | None, ...]
    n: Annotated[int, Field(ge=0)]
    rate: Share

    @model_validator(mode="after")
    def _check(self) -> GroupMixture:
        aligned = len(self.thresholds) == len(self.shares)
        if not (aligned and abs(sum(self.shares) - 1.0) < 1e-9):
            raise fault(
                "the shares of a group are not one for each threshold, or do not add up to 1",
                "Give every threshold the probability with which it is drawn.",
            )
        return self


class GroupLine(Model):
    """One group's clipped line of f ∈ [−1, 1]; None is an infinite slope.

    ``group``, ``n`` and ``rate`` are as in `GroupThreshold`.
    """

    group: Mapping[str, str]
    centre: float
    level: float
    slope: float | None
    n: Annotated[int, Field(ge=0)]
    rate: Share


class TargetSection(Model):
    """The constraint on the fitted rows: by how much the criterion's rate may differ (budget).

    Where ``rate`` is given, every group's rate lies within budget/2 of it; a pair is those of true
    and false positives.
    """

    rate: Share | tuple[Share, Share] | None
    budget: Annotated[float, Field(ge=0.0)]
    criterion: str = "parity"


class DrawSection(Model):
    """How decisions are drawn; ``column`` has the ids, or else row numbers are the ids."""

    seed: int
    algorithm: str = DRAW
    column: str | None = None
    ids: str = IDS
    check: Mapping[str, tuple[int | float, ...]]


class InputSection(Model):
    """The source of the thresholds: a table's file, or a dataset and the digest of its Split.

    ``rows`` are those of the table, or of the part that the rule was chosen on.
    """

    file: str
    sha256: str
    rows: int


class Rulebook(Model):
    """Everything that is needed to decide on new scores.

    h = clip((f − t_k)/γ, 0, 1) for a score f of group k, or the probability of a `MixtureRule` or
    `RampRule`; the decision is 1{u < h} with u drawn by seed and row id. ``thresholds`` are in
    ascending order of the groups' levels.
    """

    format: Literal["fairfrontier thresholds"] = FORMAT  # type: ignore[assignment]
    version: Literal[1] = VERSION  # type: ignore[assignment]
    score: ScoreSection
    groups: GroupSection
    rule: RuleSection
    thresholds: Annotated[
        tuple[GroupThreshold, ...] | tuple[GroupMixture, ...] | tuple[GroupLine, ...],
        Field(min_length=1),
    ]
    target: TargetSection
    draw: DrawSection
    input: InputSection

    @model_validator(mode="after")
    def _check(self) -> Rulebook:
        for threshold in self.thresholds:
            if tuple(threshold.group) != self.groups.columns:
                raise fault(
                    f"the thresholds have a group of {', '.join(threshold.group)} where "
                    f"groups.columns is {', '.join(self.groups.columns)}",
                    "Name the same columns in this order.",
                )
        if len(set(self.cells)) < len(self.cells):
            raise fault("two thresholds are for one group", "Leave one of them out.")
        if self.groups.unseen != "refuse" and self.unseen_cell not in self.cells:
            raise fault(
                f"groups.unseen is {self.groups.unseen}, which has no threshold",
                "Say refuse, pooled with a threshold for it, or a group of the thresholds.",
            )
        for where, stated, meant in self._list_statements():
            if stated != meant:
                raise fault(
                    f"{where} is not what is computed",
                    "Fit the rule again; these sentences describe it, and do not change it.",
                )
        return self

    def _list_statements(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield what the file says of how decisions are made: its key, its value, and the truth."""
        rule, score = self.decision_rule, self.score
        yield "score.signed", score.signed, SIGNED[score.scale]
        yield "groups.levels", self.groups.levels, LEVELS
        yield "rule.formula", self.rule.formula, _state_formula(rule)
        yield "draw.algorithm", self.draw.algorithm, DRAW
        yield "draw.ids", self.draw.ids, IDS
        yield "draw.check", dict(self.draw.check), check_draws(self.draw.seed)
        for position, group in enumerate(self.thresholds):
            for key, meant in _describe_group(rule, position, score.scale, score.knots).items():
                if not _agree(value := getattr(group, key), meant):
                    yield f"thresholds.{position}.{key}", value, meant

    @property
    def unseen_cell(self) -> tuple[str, ...]:
        """The group by whose threshold others are decided; empty where they are refused."""
        if self.groups.unseen == "refuse":
            return ()
        if self.groups.unseen == "pooled":
            return (UNSEEN,) * len(self.groups.columns)
        return tuple(self.groups.unseen.split("×"))

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The groups, one level for each column."""
        return tuple(tuple(threshold.group.values()) for threshold in self.thresholds)

    @cached_property
    def decision_rule(self) -> DecisionRule:
        """The rule by group code."""

        def gather(name: str) -> np.ndarray:
            rows = [getattr(each, name) for each in self.thresholds]
            return np.array([np.inf if row is None else row for row in rows], dtype=np.float64)

        if isinstance(self.thresholds[0], GroupMixture):
            return MixtureRule(gather("thresholds"), gather("shares"))
        if isinstance(self.thresholds[0], GroupLine):
            return RampRule(gather("centre"), gather("level"), gather("slope"))
        return ThresholdRule(self.rule.width, gather("threshold"), gather("coin"))

    def encode(
        self, cell: np.ndarray, levels: tuple[tuple[str, ...], ...], where: str
    ) -> np.ndarray:
        """Return the positions of rows' combinations of levels among ``cells``, int64.

        ``cell`` is each row's position in ``levels``. Unknown combinations have the position of
        those that ``groups.unseen`` names; where it refuses them they are a DataError.
        """
        codes = {group: code for code, group in enumerate(self.cells)}
        columns, other = self.groups.columns, self.unseen_cell
        unknown = [group for group in levels if group not in codes]
        if unknown and not other:
            raise DataError(
                f"{where} has rows of the group {name_cell(columns, unknown[0])}, for which the "
                "rule has no threshold.",
                "Fit thresholds on rows of every group, merge small groups in the table, or say "
                "in the rule's groups.unseen by which threshold others are decided.",
            )
        positions = [codes[group if group in codes else other] for group in levels]
        return np.asarray(np.array(positions, dtype=np.int64)[cell])

    def decide_unseen(self, unseen: str) -> Rulebook:
        """Return the rule with another policy for groups without a threshold, or ConfigError."""
        data = self.model_dump(mode="json")
        data["groups"]["unseen"] = unseen
        return parse(Rulebook, data, "the rule")

    def decide(self, probability: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return decisions drawn by row id, int8."""
        return (uniforms(self.draw.seed, ids) < probability).astype(np.int8)

    def write(self, path: str | Path) -> None:
        """Write the JSON, which `read_rulebook` and ``fairfrontier debias --apply`` read."""
        text = json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
        Path(path).write_text(text, encoding="utf-8")


def make_rulebook(
    rule: DecisionRule,
    *,
    score: str,
    scale: Scale,
    columns: tuple[str, ...],
    cells: tuple[tuple[str, ...], ...],
    counts: np.ndarray,
    rates: np.ndarray,
    rate: Rate,
    budget: float,
    seed: int,
    ids: str | None,
    file: str,
    sha256: str,
    rows: int,
    criterion: str = "parity",
    unseen: str = "refuse",
    knots: Knots = (),
) -> Rulebook:
    """Return a fitted rule as a document.

    ``cells`` are the levels of each group code, ``counts`` and ``rates`` the fitted rows of each
    group and E[h | group] on them; ``rate`` and ``budget`` are ρ and ε, ``ids`` the column of row
    ids, and ``file``, ``sha256`` and ``rows`` describe the table of the fit.
    """
    width = rule.width if isinstance(rule, ThresholdRule) else 0.0
    # Rounding must not move a share out of 0 to 1.
    shares = np.clip(rates, 0.0, 1.0).tolist()
    thresholds = tuple(
        _describe_group(rule, code, scale, knots) | {"group": dict(zip(columns, cell, strict=True)),
                                              "n": int(counts[code]), "rate": shares[code]}
        for code, cell in enumerate(cells)
    )  # fmt: skip
    data = {
        "score": {"column": score, "scale": scale, "signed": SIGNED[scale], "knots": knots},
        "groups": GroupSection(columns=columns, unseen=unseen),
        "rule": RuleSection(width=width, formula=_state_formula(rule)),
        "thresholds": thresholds,
        "target": TargetSection(rate=rate, budget=budget, criterion=criterion),
        "draw": DrawSection(seed=seed, column=ids, check=check_draws(seed)),
        "input": InputSection(file=file, sha256=sha256, rows=rows),
    }
    return parse(Rulebook, data, "the rule")


def _state_formula(rule: DecisionRule) -> str:
    """Return the formula of a rule in words."""
    if isinstance(rule, MixtureRule):
        return MIXTURE
    if isinstance(rule, RampRule):
        return LINE
    return RAMP if rule.width > 0 else STEP


def _agree(stated: Any, meant: Any) -> bool:
    """Return whether numbers, lists of them or None are the same up to rounding."""
    if isinstance(stated, tuple):
        return len(stated) == len(meant) and all(map(_agree, stated, meant))
    if stated is None or meant is None:
        return stated is meant
    return math.isclose(stated, meant, abs_tol=1e-9)


def _describe_group(rule: DecisionRule, code: int, *scale: Any) -> dict[str, Any]:
    """Return the fields of one group's rule."""
    if isinstance(rule, MixtureRule):
        own = rule.threshold[code].tolist()
        cuts = [rescale(each, *scale) for each in own]
        return {"thresholds": own, "shares": rule.share[code].tolist(), "cuts": cuts}
    if isinstance(rule, RampRule):
        slope = float(rule.slope[code])
        line = {"centre": float(rule.centre[code]), "level": float(rule.level[code])}
        return {**line, "slope": slope if math.isfinite(slope) else None}
    threshold = float(rule.threshold[code])
    return {
        "threshold": threshold,
        "coin": float(rule.coin[code]),
        "zero_up_to": rescale(threshold, *scale),
        "one_from": rescale(threshold + rule.width, *scale),
    }


def check_draws(seed: int) -> dict[str, tuple[int | float, ...]]:
    """Return a few ids with their u, by which other programs can be checked."""
    return {"ids": CHECKED_IDS, "u": tuple(uniforms(seed, np.array(CHECKED_IDS)).tolist())}


def read_rulebook(path: Path) -> Rulebook:
    """Read a rule's JSON; ConfigError where it cannot be read or is invalid."""
    try:
        data = read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read as JSON: {error}.", "Name the thresholds.json of a debias run."
        ) from None
    return parse(Rulebook, data, path)


def name_cell(columns: tuple[str, ...], cell: tuple[str, ...]) -> str:
    """Return a group's name: ``sex×race=Female×White``."""
    return f"{'×'.join(columns)}={'×'.join(cell)}"
