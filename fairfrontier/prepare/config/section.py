"""The sections of a dataset's YAML, as frozen models that refuse everything else."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from fairfrontier.prepare.split import PART_NAMES
from fairfrontier.runtime.config import Model, fault

OTHERS = "others"
REST = "rest"
# Software that knows no whole numbers with missing cells writes 2 as 2.0.
WHOLE_NUMBER = re.compile(r"^([+-]?[0-9]+)\.0+$")
MISSING_MARKERS = ("NA", "N/A", "NaN", "nan", "null", "NULL")


def level_text(value: Any) -> Any:
    """Write a scalar of YAML or of a table as a level: 2, 2.0, "2" and "2.0" are all "2"."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, str):
        return WHOLE_NUMBER.sub(r"\1", value)
    return value


def listed(value: Any) -> Any:
    """Let a single scalar stand for a list of one."""
    return value if isinstance(value, list | tuple) else [value]


Level = Annotated[str, BeforeValidator(level_text)]
Levels = Annotated[tuple[Level, ...], BeforeValidator(listed), Field(min_length=1)]
Name = Annotated[str, Field(min_length=1)]
PartName = Literal["train", "calibration", "validation", "test"]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# One version, so that it is one file; no option of pip's begins with a letter or digit.
PACKAGE = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*$"


class Origin(Model):
    """Where a file may come from.

    - ``{path: ~/data/table.csv}``: where it may lie already; skipped when it does not;
    - ``{url: "https://…"}``: the file itself, with http or https;
    - ``{url: "https://….zip", file: folder/table.csv, sha256: …}``: a file of a zip archive;
    - ``{package: name==1.2.3, file: name/data/table.csv, sha256: …}``: a file inside a wheel of the
      package index that pip is configured for.

    ``sha256`` and ``bytes`` are of what is downloaded: the file, the archive or the wheel.
    """

    path: Name | None = None
    url: Annotated[str, Field(pattern=r"^https?://[^\s/?#]+[^\s#]*$")] | None = None
    package: Annotated[str, Field(pattern=PACKAGE)] | None = None
    file: Name | None = None
    sha256: Sha256 | None = None
    bytes: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Origin:
        if [self.path, self.url, self.package].count(None) != 2:
            raise fault("say one of path, url and package")
        if self.url and "@" in urlsplit(self.url).netloc:
            raise fault("the url holds a user name, and a dataset is no place for one")
        if self.path and (self.file or self.bytes):
            raise fault("file and bytes say what is downloaded, and a path is not")
        if self.package and not self.file:
            raise fault("file must name what is taken out of the package")
        if self.file and not self.sha256:
            raise fault("sha256 of the archive or wheel must stand beside its file")
        return self


class SourceFile(Model):
    """One file of a table: where it is, lines to skip at its top, the part its rows belong to.

    Either it lies at ``path``, or ``sources`` say where it may come from; with both, ``path`` is
    looked at first. Its ``sha256`` is needed with ``sources``, which are all to give these bytes.
    """

    path: Name | None = None
    sources: tuple[Origin, ...] = ()
    skip_rows: Annotated[int, Field(ge=0)] = 0
    part: PartName | None = None
    sha256: Sha256 | None = None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where the file may come from: the path, then the sources."""
        return ((Origin(path=self.path),) if self.path else ()) + self.sources

    @model_validator(mode="after")
    def _check(self) -> SourceFile:
        if self.path is None and not self.sources:
            raise fault("say path (where the file is) or sources (where it may come from)")
        if self.sources and not self.sha256:
            raise fault("sources need the sha256 of the file itself beside them")
        for origin in self.sources:
            if origin.sha256 not in (None, self.sha256) and not origin.file:
                raise fault("the sources of a file give the same bytes, and one has another sha256")
        return self


def _files(value: Any) -> Any:
    each = value if isinstance(value, list) else [value]
    return [{"path": entry} if isinstance(entry, str) else entry for entry in each]


def _file(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class Votes(Model):
    """A second file, of the table's format and with a header: one opinion on a row per line.

    ``column``: what is voted on, which becomes a column of the table: the level that most lines
    with the row's ``by`` hold, ``tie`` where several have the most.
    """

    path: Annotated[SourceFile, BeforeValidator(_file)]
    by: Name
    column: Name
    tie: Level | None = None


class Source(Model):
    """Where rows come from. Several files are read one after the other as one table.

    ``columns`` names the columns of files without a header; ``missing`` lists markers of missing
    cells beside the empty one; ``part`` of a file becomes a column named ``part``; ``votes`` adds
    a column that many people's opinions make.
    """

    path: Annotated[tuple[SourceFile, ...], BeforeValidator(_files), Field(min_length=1)]
    format: Literal["csv", "parquet", "whitespace"] = "csv"
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    sha256: Sha256 | None = None
    columns: tuple[Name, ...] | None = None
    missing: tuple[Level, ...] = MISSING_MARKERS
    votes: Votes | None = None

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """All files: those of the table, then that of the votes."""
        return (*self.path, *((self.votes.path,) if self.votes else ()))

    @property
    def ballots(self) -> Source | None:
        """The source of the votes, as one of its own."""
        if self.votes is None:
            return None
        changes = {"path": (self.votes.path,), "sha256": None, "columns": None, "votes": None}
        return self.model_copy(update=changes)

    @model_validator(mode="after")
    def _check(self) -> Source:
        if self.sha256 and len(self.path) > 1:
            raise fault("sha256 here stands for one file; with several, give each its own")
        if self.columns and len(set(self.columns)) < len(self.columns):
            double = sorted({name for name in self.columns if self.columns.count(name) > 1})
            raise fault(f"columns names {', '.join(double)} more than once")
        if self.format == "parquet" and (self.columns or any(f.skip_rows for f in self.path)):
            raise fault("a parquet file names its own columns: leave out columns and skip_rows")
        if self.format == "whitespace" and not self.columns:
            raise fault("whitespace-separated files have no header: name their columns")
        return self


class Label(Model):
    """What is learnt.

    Regression targets are mapped from ``range`` to [0, 1] when it is given; ``clip`` moves what
    lies outside to the nearer end. With ``positive`` a regression target is 1 where the column
    holds one of these levels and 0 elsewhere: what is predicted is then a share, not a class.
    """

    column: Name
    task: Literal["binary", "multiclass", "regression"] = "binary"
    positive: Levels | None = None
    names: tuple[Name, Name] | None = None
    favourable: Level | None = None
    meaning: str = ""
    range: tuple[float, float] | None = None
    clip: bool = False

    @model_validator(mode="after")
    def _check(self) -> Label:
        if (self.task == "multiclass" and self.positive) or (self.task != "binary" and self.names):
            raise fault(f"positive and names belong to a binary label, and this one is {self.task}")
        if self.task == "regression" and self.positive and self.range:
            raise fault(
                "positive makes targets of 0 and 1, and range maps numbers: give one of them"
            )
        if self.task != "regression" and self.range:
            raise fault(f"range belongs to a regression label, and this one is {self.task}")
        if self.clip and not self.range:
            raise fault("clip needs a range to clip to")
        if self.range and not self.range[0] < self.range[1]:
            raise fault("range must be [lowest, highest] with lowest < highest")
        return self


class Quantile(Model):
    """Numeric columns cut at quantiles of the training rows, one-hot."""

    columns: Annotated[tuple[Name, ...], BeforeValidator(listed)]
    bins: Annotated[int, Field(ge=2, le=256)] = 4


class TextFeature(Model):
    """How the texts of the section ``text`` become features.

    ``encoder``: ``auto`` (MiniLM where it can be had, else TF-IDF), ``tfidf``, a name of
    ``conf/encoders``, or the path of vectors of one's own, ``.npy`` or ``.parquet``, for the rows
    that ``ids`` names (a column of the table and of the Parquet file); without it rows are numbered
    from 0. ``max_tokens`` is where a sentence encoder cuts longer texts.
    """

    encoder: Name = "auto"
    max_tokens: Annotated[int, Field(ge=3)] = 256
    ids: Name | None = None

    @property
    def supplied(self) -> bool:
        """Whether the vectors are the user's own."""
        return self.encoder.endswith((".npy", ".parquet"))

    @model_validator(mode="after")
    def _check(self) -> TextFeature:
        if self.ids and not self.encoder.endswith(".parquet"):
            raise fault("ids names a column of a Parquet file of vectors")
        return self


def _text_feature(value: Any) -> Any:
    return {"encoder": value} if isinstance(value, str) else value


class Features(Model):
    """Which columns become features, and how.

    ``numeric``: standardised; ``quantile``: binned and one-hot; ``cut``: column -> the inner edges
    of its bins, each of which holds its upper edge, one-hot; ``categorical``: one-hot, ordered
    by level; ``binary``: column -> the level that becomes 1, one column named COLUMN_LEVEL;
    ``passthrough``: numbers as they are; ``groups``: group attributes as they are seen (noise
    included), one-hot; ``text``: the vectors of texts. ``levels`` fixes the levels of categorical
    columns in advance. ``rest`` for numeric or categorical takes every column that nothing else
    uses, except those in ``drop``.
    """

    numeric: tuple[Name, ...] | Literal["rest"] = ()
    quantile: Quantile | None = None
    cut: Mapping[Name, Annotated[tuple[float, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    categorical: tuple[Name, ...] | Literal["rest"] = ()
    binary: Mapping[Name, Level] = Field(default_factory=dict)
    passthrough: tuple[Name, ...] = ()
    groups: tuple[Name, ...] = ()
    text: Annotated[TextFeature | None, BeforeValidator(_text_feature)] = None
    levels: Mapping[Name, Levels] = Field(default_factory=dict)
    drop: tuple[Name, ...] = ()

    @property
    def binned(self) -> tuple[Name, ...]:
        """The columns that are cut into bins."""
        return (*(self.quantile.columns if self.quantile else ()), *self.cut)

    @model_validator(mode="after")
    def _check(self) -> Features:
        if self.numeric == REST and self.categorical == REST:
            raise fault("only one of numeric and categorical can be 'rest'")
        for name, edges in self.cut.items():
            if any(low >= high for low, high in pairwise(edges)):
                raise fault(f"the edges of cut.{name} do not rise")
            if self.quantile and name in self.quantile.columns:
                raise fault(f"{name} stands under quantile and under cut")
        if self.drop and REST not in (self.numeric, self.categorical):
            raise fault("drop only has a meaning beside 'rest'")
        return self


def _group_levels(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return {level_text(level): [level] for level in value}
    return value


class Group(Model):
    """A protected attribute, made from one column or crossed from others.

    - ``{column: sex}``: every level is a group;
    - ``{column: race, levels: {non-White: others, White: [White]}}``: named, merged, in this order;
    - ``{column: age, below: 25, names: [young, older]}``: 0 is below, 1 is not below;
    - ``{cross: [sex, race]}``: every combination of attributes.
    """

    column: Name | None = None
    levels: Annotated[Mapping[Level, Levels] | None, BeforeValidator(_group_levels)] = None
    below: float | None = None
    names: tuple[Name, Name] | None = None
    cross: Annotated[tuple[Name, ...], Field(min_length=2)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Group:
        if (self.column is None) == (self.cross is None):
            raise fault("say either column (what it is made from) or cross (which it combines)")
        if self.cross and (self.levels or self.below is not None):
            raise fault("a cross product takes its levels from the attributes it combines")
        if self.levels and self.below is not None:
            raise fault("say either levels or below")
        if self.names and self.below is None:
            raise fault("names go with below; name levels as {name: levels}")
        if self.levels is not None and len(self.levels) < 2:
            raise fault("one level makes no group to compare with: give at least two")
        if self.levels and list(self.levels.values()).count((OTHERS,)) > 1:
            raise fault("only one level can stand for the others")
        return self


class Condition(Model):
    """A comparison that a row must pass to be kept; a missing cell passes none."""

    is_in: Levels | None = Field(None, alias="in")
    is_not: Levels | None = Field(None, alias="not")
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _check(self) -> Condition:
        if not self.model_fields_set:
            raise fault("a condition needs one of in, not, at_least, at_most, above, below")
        return self


class RowFilter(Model):
    """Which rows are kept: those that pass every condition and lack none of these cells."""

    keep: Mapping[Name, Condition] = Field(default_factory=dict)
    drop_missing: tuple[Name, ...] = ()


class Missing(Model):
    """What a missing cell means: an error, a dropped row, a level of its own, or a fitted value."""

    numeric: Literal["error", "drop", "mean", "median"] = "error"
    categorical: Literal["error", "drop", "category"] = "error"
    columns: Mapping[Name, Literal["error", "drop", "category", "mean", "median"]] = Field(
        default_factory=dict
    )


class SplitRule(Model):
    """How rows are dealt to parts.

    - ``permutation``: the legacy generator's permutation of all rows, parts in order;
    - ``random``: the same with NumPy's current generator;
    - ``stratified``: shares of every class alike (scikit-learn's StratifiedShuffleSplit);
    - ``per_group``: shares inside every group of ``group``;
    - ``column``: ``column`` says it; each part lists its levels (``part`` of a source file too).

    A part is given as a count, a share, or ``rest``. ``of``: only rows that pass these conditions
    are dealt, by ``permutation``, ``random`` or ``stratified``; ``others``: part -> how many of the
    rest, drawn at random, are added to it. ``seeds``: split i uses seeds[i]; beyond the
    list, and without one, i itself. ``validation_share``: what select_on="validation" takes out of
    train.
    """

    kind: Literal["permutation", "random", "stratified", "per_group", "column"]
    train: Any
    calibration: Any = None
    validation: Any = None
    test: Any = None
    group: Name | None = None
    column: Name | None = None
    of: Mapping[Name, Condition] = Field(default_factory=dict)
    others: Mapping[PartName, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = ()
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.2

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that are asked for, in order."""
        return {name: getattr(self, name) for name in PART_NAMES if getattr(self, name) is not None}

    @model_validator(mode="before")
    @classmethod
    def _levels(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("kind") == "column":
            return {
                key: tuple(level_text(level) for level in listed(value))
                if key in PART_NAMES and value is not None
                else value
                for key, value in data.items()
            }
        return data

    @model_validator(mode="after")
    def _check(self) -> SplitRule:
        if (self.kind == "per_group") != (self.group is not None):
            raise fault("group goes with kind: per_group, and per_group needs it")
        if (self.kind == "column") != (self.column is not None):
            raise fault("column goes with kind: column, and kind: column needs it")
        if self.of and self.kind in ("column", "per_group"):
            raise fault(f"of goes with a split at random, and kind is {self.kind}")
        if self.others and not self.of:
            raise fault("others are the rows that of leaves out, and there is no of")
        for other in self.others:
            if other not in self.parts:
                raise fault(f"others adds rows to {other}, and there is no such part")
        if self.kind == "column":
            return self
        amounts = list(self.parts.values())
        shares = 0.0
        for name, amount in self.parts.items():
            if amount == REST:
                continue
            if isinstance(amount, bool) or not isinstance(amount, int | float):
                raise fault(f"{name} must be a count, a share between 0 and 1, or rest")
            if isinstance(amount, float) and not 0 < amount < 1:
                raise fault(f"{name} is {amount}, and a share lies between 0 and 1")
            if isinstance(amount, int) and amount < 1:
                raise fault(f"{name} is {amount}, and a count is at least 1")
            if isinstance(amount, int) and self.kind == "per_group":
                raise fault(f"{name} is a count, and parts inside each group are shares")
            shares += amount if isinstance(amount, float) else 0.0
        if amounts.count(REST) > 1:
            raise fault("only one part can be the rest")
        if shares > 1 + 1e-9:
            raise fault(f"the shares add up to {shares:g}, which is more than 1")
        return self


class Noise(Model):
    """Wrong group labels: a ``share`` of rows moved to another group uniformly, or a confusion.

    ``confusion[true][seen]`` is the probability that a row of group ``true`` is seen in ``seen``;
    what a row of the matrix leaves to 1 stays in the true group.
    """

    share: Annotated[float, Field(ge=0, le=1)] | None = None
    confusion: Mapping[Level, Mapping[Level, Annotated[float, Field(ge=0, le=1)]]] | None = None

    @model_validator(mode="after")
    def _check(self) -> Noise:
        if (self.share is None) == (self.confusion is None):
            raise fault("say either share or confusion")
        for true, seen in (self.confusion or {}).items():
            if sum(seen.values()) > 1 + 1e-9:
                raise fault(f"the probabilities of confusion.{true} add up to more than 1")
        return self


class DropCase(Model):
    """Rows of these groups (all of them) with this label."""

    groups: Mapping[Name, Level]
    label: Level | None = None


class Drop(Model):
    """Training rows that satisfy any of ``where`` are dropped with ``probability``."""

    where: Annotated[tuple[DropCase, ...], BeforeValidator(listed), Field(min_length=1)]
    probability: Annotated[float, Field(ge=0, le=1)]


class Perturb(Model):
    """What is done to the data on purpose, seeded, before encoding."""

    noisy_groups: Mapping[Name, Noise] = Field(default_factory=dict)
    drop: Drop | None = None
