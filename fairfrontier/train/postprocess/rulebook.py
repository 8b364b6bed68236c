"""A rule as a small, self-explanatory JSON: thresholds by group, and how decisions are drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field, model_validator

from fairfrontier.prepare.split import Split
from fairfrontier.prepare.table.column import MISSING_LEVEL
from fairfrontier.prepare.table.score_table import Scale
from fairfrontier.runtime.config import Model, fault, parse
from fairfrontier.runtime.errors import ConfigError, DataError
from fairfrontier.runtime.seeds import uniforms
from fairfrontier.runtime.writer import recover
from fairfrontier.train.postprocess.model import PostProcessed
from fairfrontier.train.postprocess.randomized_threshold import RandomizedThreshold
from fairfrontier.train.postprocess.rule import ThresholdRule

FORMAT = "fairfrontier thresholds"
VERSION = 1
SIGNED = {
    "probability": "f = 2 * score - 1",
    "margin": "f = 2 / (1 + exp(-score)) - 1",
    "signed": "f = score",
}
RAMP = "h = min(1, max(0, (f - threshold) / width))"
STEP = "h = 1 if f > threshold, h = coin if f == threshold, else h = 0"
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


class GroupSection(Model):
    """What the groups are."""

    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    levels: str = LEVELS
    missing: Literal["missing"] = MISSING_LEVEL  # type: ignore[assignment]


class RuleSection(Model):
    """The formula."""

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


class TargetSection(Model):
    """The constraint |E[h | group] − rate| ≤ budget/2 on the fitted rows."""

    rate: Share
    budget: Annotated[float, Field(ge=0.0)]


class DrawSection(Model):
    """How decisions are drawn; ``column`` has the ids, or else row numbers are the ids."""

    seed: int
    algorithm: str = DRAW
    column: str | None = None
    ids: str = IDS
    check: Mapping[str, tuple[int | float, ...]]


class InputSection(Model):
    """The source of the thresholds: a table's file, or a dataset and the digest of its Split.

    ``rows`` are those of the table, or of the calibration part.
    """

    file: str
    sha256: str
    rows: int


class Rulebook(Model):
    """Everything that is needed to decide on new scores.

    h = clip((f − t_k)/γ, 0, 1) for a score f of group k; the decision is 1{u < h} with u drawn by
    seed and row id. ``thresholds`` are in ascending order of the groups' levels.
    """

    format: Literal["fairfrontier thresholds"] = FORMAT  # type: ignore[assignment]
    version: Literal[1] = VERSION  # type: ignore[assignment]
    score: ScoreSection
    groups: GroupSection
    rule: RuleSection
    thresholds: Annotated[tuple[GroupThreshold, ...], Field(min_length=1)]
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
        for where, stated, meant in self._list_statements():
            if stated != meant:
                raise fault(
                    f"{where} is not what is computed",
                    "Fit the rule again; these sentences describe it, and do not change it.",
                )
        return self

    def _list_statements(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield what the file says of how decisions are made: its key, its value, and the truth."""
        width, scale = self.rule.width, self.score.scale
        yield "score.signed", self.score.signed, SIGNED[scale]
        yield "groups.levels", self.groups.levels, LEVELS
        yield "rule.formula", self.rule.formula, RAMP if width > 0 else STEP
        yield "draw.algorithm", self.draw.algorithm, DRAW
        yield "draw.ids", self.draw.ids, IDS
        yield "draw.check", dict(self.draw.check), check_draws(self.draw.seed)
        for position, group in enumerate(self.thresholds):
            for key, signed in {"zero_up_to": 0.0, "one_from": width}.items():
                value, meant = getattr(group, key), rescale(group.threshold + signed, scale)
                if value is None or meant is None or not math.isclose(value, meant, abs_tol=1e-9):
                    yield f"thresholds.{position}.{key}", value, meant

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The groups, one level for each column."""
        return tuple(tuple(threshold.group.values()) for threshold in self.thresholds)

    @cached_property
    def threshold_rule(self) -> ThresholdRule:
        """The rule by group code."""
        return ThresholdRule(
            self.rule.width,
            np.array([threshold.threshold for threshold in self.thresholds]),
            np.array([threshold.coin for threshold in self.thresholds]),
        )

    def decide(self, probability: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return decisions drawn by row id, int8."""
        return (uniforms(self.draw.seed, ids) < probability).astype(np.int8)

    def write(self, path: str | Path) -> None:
        """Write the JSON, which `read_rulebook` and ``fairfrontier debias --apply`` read."""
        text = json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
        Path(path).write_text(text, encoding="utf-8")


def export_rulebook(
    fitted: RandomizedThreshold | PostProcessed,
    split: Split,
    *,
    score: str = "score",
    ids: str = "id",
) -> Rulebook:
    """Return a fitted randomised threshold as a document, with the names of a split's levels.

    The document gives a table the decisions of ``fitted.predict`` where its column ``score`` holds
    the scores that the rule takes (probabilities, behind `post_process`), ``ids`` the row ids, and
    one column for each of the rule's attributes their levels' names.

    Parameters
    ----------
    fitted : RandomizedThreshold or PostProcessed
        With the criterion parity, without calibration of the scores.
    split : Split
        The one it was fitted on.
    score, ids : str
        Names of the columns of scores and row ids.

    Raises
    ------
    ConfigError
        When the rule is of another kind, or was fitted on other groups than those of the split.
    """
    rule = fitted.processor if isinstance(fitted, PostProcessed) else fitted
    if not isinstance(rule, RandomizedThreshold):
        raise ConfigError(
            f"A rulebook holds randomised thresholds, but {type(rule).__name__} has another rule.",
            "Post-process with randomized_threshold.",
        )
    if not isinstance(rule.rule_, ThresholdRule) or rule.calibration_ is not None:
        kind = "of calibrated scores" if rule.calibration_ is not None else f"for {rule.criterion}"
        raise ConfigError(
            f"A rulebook holds thresholds for parity on uncalibrated scores, not those {kind}.",
            "Fit with criterion parity and without calibrate.",
        )
    try:
        cells = [rule.name_cell(cell, split.train.attributes) for cell in rule.cells_]
    except IndexError:
        raise ConfigError(
            f"The thresholds were fitted on other groups than those of {split.dataset}.",
            "Pass the split that they were fitted on.",
        ) from None
    return make_rulebook(
        rule.rule_,
        score=score,
        scale=rule.scale,
        columns=tuple(cells[0]),
        cells=tuple(tuple(cell.values()) for cell in cells),
        counts=np.array(rule.result_["rows"]),
        rates=np.array(rule.result_["rates"]),
        rate=cast("float", rule.rate_),
        budget=rule.budget,
        seed=int(rule.random_state),
        ids=ids,
        file=split.dataset,
        sha256=split.digest,
        rows=sum(rule.result_["rows"]),
    )


def make_rulebook(
    rule: ThresholdRule,
    *,
    score: str,
    scale: Scale,
    columns: tuple[str, ...],
    cells: tuple[tuple[str, ...], ...],
    counts: np.ndarray,
    rates: np.ndarray,
    rate: float,
    budget: float,
    seed: int,
    ids: str | None,
    file: str,
    sha256: str,
    rows: int,
) -> Rulebook:
    """Return a fitted rule as a document.

    ``cells`` are the levels of each group code, ``counts`` and ``rates`` the fitted rows of each
    group and E[h | group] on them; ``rate`` and ``budget`` are ρ and ε, ``ids`` the column of row
    ids, and ``file``, ``sha256`` and ``rows`` describe the table of the fit.
    """
    thresholds = []
    for code, cell in enumerate(cells):
        threshold, coin = float(rule.threshold[code]), float(rule.coin[code])
        thresholds.append(
            GroupThreshold(
                group=dict(zip(columns, cell, strict=True)),
                threshold=threshold,
                coin=coin,
                zero_up_to=rescale(threshold, scale),
                one_from=rescale(threshold + rule.width, scale),
                n=int(counts[code]),
                # Rounding must not move a share out of 0 to 1.
                rate=min(1.0, max(0.0, float(rates[code]))),
            )
        )
    return Rulebook(
        score=ScoreSection(column=score, scale=scale, signed=SIGNED[scale]),
        groups=GroupSection(columns=columns),
        rule=RuleSection(width=rule.width, formula=RAMP if rule.width > 0 else STEP),
        thresholds=tuple(thresholds),
        target=TargetSection(rate=rate, budget=budget),
        draw=DrawSection(seed=seed, column=ids, check=check_draws(seed)),
        input=InputSection(file=file, sha256=sha256, rows=rows),
    )


def check_draws(seed: int) -> dict[str, tuple[int | float, ...]]:
    """Return a few ids with their u, by which other programs can be checked."""
    return {"ids": CHECKED_IDS, "u": tuple(uniforms(seed, np.array(CHECKED_IDS)).tolist())}


def read_rulebook(path: Path) -> Rulebook:
    """Read a rule's JSON; ConfigError where it cannot be read or is invalid."""
    recover(path.parent)
    try:
        if not path.is_file():  # a device may have no end
            raise OSError("there is no such file")
        data = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(data, ensure_ascii=False).encode()  # raises for half a character
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} cannot be read as JSON: {error}.", "Name the thresholds.json of a debias run."
        ) from None
    return parse(Rulebook, data, path)


def encode_cells(
    cell: np.ndarray,
    levels: tuple[tuple[str, ...], ...],
    cells: tuple[tuple[str, ...], ...],
    columns: tuple[str, ...],
    where: str,
) -> np.ndarray:
    """Return the positions of rows' combinations of levels among ``cells``, int64.

    ``cell`` is each row's position in ``levels``. DataError is raised for unknown combinations.
    """
    codes = {group: code for code, group in enumerate(cells)}
    unknown = [group for group in levels if group not in codes]
    if unknown:
        raise DataError(
            f"{where} has rows of the group {name_cell(columns, unknown[0])}, for which the rule "
            "has no threshold.",
            "Fit thresholds on rows of every group, or merge small groups in the table.",
        )
    return np.asarray(np.array([codes[group] for group in levels], dtype=np.int64)[cell])


def name_cell(columns: tuple[str, ...], cell: tuple[str, ...]) -> str:
    """Return a group's name: ``sex×race=Female×White``."""
    return f"{'×'.join(columns)}={'×'.join(cell)}"


def rescale(signed: float, scale: Scale) -> float | None:
    """Return a point of [−1, 1] on the scale of the scores; None outside."""
    if not -1.0 <= signed <= 1.0:
        return None
    if scale == "probability":
        return (signed + 1.0) / 2.0
    if scale == "margin":
        return None if abs(signed) == 1.0 else 2.0 * math.atanh(signed)
    return signed
