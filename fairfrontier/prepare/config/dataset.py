"""A dataset's YAML, its vocabularies and encoders of texts, as models that refuse unknown keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from fairfrontier.prepare.config.section import (
    REST,
    Character,
    Count,
    Expected,
    Features,
    Group,
    Identifier,
    Label,
    Level,
    Missing,
    Name,
    Noise,
    Origin,
    PartName,
    Perturb,
    RowFilter,
    Sha256,
    Source,
    SplitRule,
    listed,
)
from fairfrontier.runtime.config import Model, fault, parse, read_yaml
from fairfrontier.runtime.errors import ConfigError, nearest, refuse_unknown, repeated
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.seeds import derive_generator

# Between the words of a term: "african american", "African-American", also with a hyphen (U+2010),
# a hyphen that does not break (U+2011) or a dash (U+2013).
GAP = r"(?:\s+|[-\u2010\u2011\u2013])"


def lower(text: str) -> str:
    """Return a text in lower case, with every character at its old position."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    # Of all characters only İ becomes two.
    return "".join(char if len(char.lower()) > 1 else char.lower() for char in text)


def name_word(word: str) -> str:
    """Return what two spellings of a word share: lower case, one space for blanks and hyphens."""
    return re.sub(GAP, " ", lower(word))


def _word(value: Any) -> Any:
    if isinstance(value, bool):
        raise fault("YAML reads yes, no, on and off as true and false: put the word in quotes")
    return re.sub(r"\s+", " ", value).strip() if isinstance(value, str) else value


# What is put into texts in place of something shorter makes them that much longer.
LONGEST_WORD = 100
# Without a letter or digit it would have no boundaries.
Word = Annotated[str, Field(pattern=r"\w", max_length=LONGEST_WORD), BeforeValidator(_word)]
Sign = Annotated[str, Field(min_length=1, max_length=LONGEST_WORD), BeforeValidator(_word)]


class OrName:
    """Lets the schema of a section offer a name, which `resolve_vocabulary` replaces beforehand."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


def _refuse_doubles(words: Iterable[str]) -> None:
    seen: set[str] = set()
    for word in words:
        if name_word(word) in seen:
            raise fault(f"{word!r} is listed twice; case, and a hyphen for a blank, do not count")
        seen.add(name_word(word))


class Terms(Model):
    """Words that may replace each other, and families of words that name one identity."""

    vocabulary: Identifier = Field(description="Its name, after which the file is named.")
    description: str = Field(default="", description="A line on it.")
    terms: tuple[Word, ...] = Field(
        min_length=2, description="Words, or several words, that may replace each other."
    )
    families: Mapping[Name, Annotated[tuple[Word, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Identity -> words that mention it, terms or not; plurals are listed, too.",
    )
    notes: str = Field(default="", description="Who chose the words.")

    @model_validator(mode="after")
    def _check(self) -> Terms:
        _refuse_doubles(self.terms)
        for words in self.families.values():
            _refuse_doubles(words)
        return self

    def draw(self, count: int, seed: int) -> Terms:
        """Return the vocabulary of ``count`` terms drawn without replacement, in its order."""
        generator = derive_generator("vocabulary", self.vocabulary, seed)
        drawn = {*generator.permutation(np.array(self.terms, dtype=object))[:count]}
        return self.model_copy(update={"terms": tuple(t for t in self.terms if t in drawn)})


class Context(Model):
    """What a word becomes where it stands alone ("saw her.") and elsewhere ("her book")."""

    alone: Word = Field(description="At the end, before punctuation and before certain words.")
    otherwise: Word = Field(description="Elsewhere.")


class Link(Model):
    """Words that join possessives, and those that may follow: "her or his"."""

    by: tuple[Sign, ...] = Field(description="Words and signs that join.")
    to: tuple[Word, ...] = Field(description="Possessives that may follow.")


class Swap(Model):
    """Words that become their counterparts of the other gender."""

    vocabulary: Identifier = Field(description="Its name, after which the file is named.")
    description: str = Field(default="", description="A line on it.")
    pairs: Mapping[Word, Word] = Field(
        default_factory=dict, description="Words that become each other."
    )
    one_way: Mapping[Word, Word] = Field(
        default_factory=dict, description="Words that become others, and do not come back."
    )
    context: Mapping[Word, Context] = Field(
        default_factory=dict, description="Words with two forms, by what comes behind them."
    )
    alone_before: tuple[Word, ...] = Field(
        default=(),
        description="Words before which a word of ``context`` stands alone.",
        examples=[["and", "is", "was"]],
    )
    link: Link | None = Field(
        default=None, description="What is skipped before it is seen what comes behind a word."
    )
    names: Mapping[Name, tuple[Word, ...]] = Field(
        default_factory=dict,
        description="Two lists of first names: one becomes a random one of the other list.",
    )
    notes: str = Field(default="", description="Who chose the words.")

    @model_validator(mode="after")
    def _check(self) -> Swap:
        if self.names and (len(self.names) != 2 or not all(self.names.values())):
            raise fault("names must be two lists that are not empty")
        names = [name for names in self.names.values() for name in names]
        pairs = [*self.pairs, *self.pairs.values()]
        _refuse_doubles([*pairs, *self.one_way, *self.context, *names])
        return self

    @property
    def changes(self) -> dict[str, str]:
        """Word -> what it becomes in every position."""
        back = {second: first for first, second in self.pairs.items()}
        return {**self.one_way, **self.pairs, **back}


MASK = "[MASK]"
PREFIX = "mention:"
TERMS = "text:terms"
WORDS = "text:words"
# Every version is drawn after those before it: their number counts twice.
MOST_DRAWN = 256
# Scores are kept under the names of part, field, set and variant, with slashes between them.
SetName = Annotated[Name, Field(pattern=r"^[^/]*$")]


class Mask(Model):
    """A word that is masked: one that another column names, or one token of the text."""

    column: Name | None = Field(
        default=None, description="Column of the word, which is masked everywhere in the text."
    )
    tokens: Name | None = Field(
        default=None, description="Column that lists the text's tokens.", examples=["tokens"]
    )
    index: Name | None = Field(
        default=None,
        description="Column of the position, among them, of the one that is masked.",
        examples=["profession_index"],
    )
    by: Annotated[Name, Field(max_length=LONGEST_WORD)] = Field(
        default=MASK, description="What stands in its place.", examples=["_"]
    )

    @model_validator(mode="after")
    def _check(self) -> Mask:
        if (self.tokens is None) != (self.index is None):
            raise fault("tokens and index go together")
        if (self.column is None) == (self.tokens is None):
            raise fault("give either column (the word that is masked) or tokens and index")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(name for name in (self.column, self.tokens, self.index) if name)


class VersionRule(Model):
    """A set of counterfactual texts: rewordings of a row that a fair model treats alike.

    - ``{terms: identity}``: every term of a vocabulary is replaced by one other, in one version per
      term;
    - ``{swap: gender}``: the text as it is, and with its words exchanged for those of the other
      gender; a training row has the latter only.
    """

    terms: Annotated[Terms, OrName()] | None = Field(
        default=None, description="Words that replace each other: a name, a path, or the content."
    )
    swap: Annotated[Swap, OrName()] | None = Field(
        default=None, description="Words of two genders: a name, a path, or the content."
    )
    known: int | None = Field(
        default=None, ge=2, description="How many of the terms are seen before the test part."
    )
    draw: Mapping[PartName, Count] = Field(
        default_factory=dict,
        description="Part -> how many versions of a row are drawn, instead of one per term.",
    )
    rows: Mapping[PartName, Count] = Field(
        default_factory=dict,
        description="Part -> how many of the rows that could have versions do, drawn at random; "
        "all by default.",
    )

    @model_validator(mode="after")
    def _check(self) -> VersionRule:
        if (self.terms is None) == (self.swap is None):
            raise fault("give either terms (one replaces all) or swap (words are exchanged)")
        if self.swap and (self.known or self.draw):
            raise fault("known and draw belong to terms: a swap has one version")
        if self.terms and self.known and self.known > len(self.terms.terms):
            raise fault(
                f"known is {self.known}, and the vocabulary has {len(self.terms.terms)} terms"
            )
        for part, count in self.draw.items():
            if self.terms and count > min(MOST_DRAWN, len(self.terms.terms)):
                raise fault(
                    f"draw is {count} for {part}, of {len(self.terms.terms)} terms; at most "
                    f"{MOST_DRAWN} versions are drawn"
                )
        return self


class Text(Model):
    """What is done to a column of texts, in the order of the keys.

    The columns ``text:words`` (number of words) and, with ``mentions``, ``text:terms`` (number of
    its terms) and one ``mention:FAMILY`` for each of its families, yes or no, are added.
    """

    column: Name = Field(description="The column of the texts.")
    lower: tuple[Name, ...] = Field(
        default=(), description="Columns whose levels are converted to lower case first."
    )
    enclosed: Character | None = Field(
        default=None,
        description="A quotation mark that is removed from both ends of cells that it encloses, "
        "and halved where it is doubled inside.",
    )
    replace: Mapping[Name, Annotated[str, Field(max_length=LONGEST_WORD)]] = Field(
        default_factory=dict,
        description="Characters -> what replaces them, after which texts are composed (NFC) and "
        "every run of blanks becomes one blank.",
    )
    mask: Mask | None = Field(default=None, description="A word that would reveal the label.")
    first: Count | None = Field(
        default=None,
        description="How many words are kept; the others are neither read nor searched.",
    )
    mentions: Annotated[Terms, OrName()] | None = Field(
        default=None, description="A vocabulary whose words are counted: a name, path or content."
    )
    versions: Mapping[SetName, VersionRule] = Field(
        default_factory=dict, description="Sets of counterfactual texts, by name."
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of the table that it reads."""
        return (*self.reads_rows, *self.lower)

    @property
    def reads_rows(self) -> tuple[str, ...]:
        """Those of them without which there is no text."""
        return (self.column, *(self.mask.columns if self.mask else ()))

    @property
    def claims(self) -> tuple[str, ...]:
        """The columns of this section, which are features only if they are named as such."""
        return (*self.reads_rows, *self.makes)

    @property
    def makes(self) -> tuple[str, ...]:
        """The columns that it adds to the table."""
        if self.mentions is None:
            return (WORDS,)
        return (WORDS, TERMS, *(PREFIX + name for name in self.mentions.families))


def resolve_vocabulary(data: Any, path: Path, home: Path | None) -> Any:
    """Return a dataset's YAML with the content of the vocabularies in place of their names."""
    text = data.get("text") if isinstance(data, Mapping) else None
    if not isinstance(text, Mapping):
        return data

    def resolve(section: Any, key: str) -> Any:
        name = section.get(key) if isinstance(section, Mapping) else None
        if not isinstance(name, str):
            return section
        content = read_yaml(find_yaml("vocabulary", name, home, beside=path.parent))
        return {**section, key: content}

    resolved = dict(resolve(text, "mentions"))
    versions = resolved.get("versions")
    if isinstance(versions, Mapping):
        resolved["versions"] = {
            name: resolve(resolve(rule, "terms"), "swap") for name, rule in versions.items()
        }
    return {**data, "text": resolved}


class PinnedFile(Model):
    """A file by its digest, and where it may come from."""

    sha256: Sha256 = Field(description="Digest of the file itself.")
    sources: tuple[Origin, ...] = Field(min_length=1, description="Where it may come from.")


class EncoderConfig(Model):
    """A sentence encoder: an ONNX graph of token states and a file of the tokenizers library."""

    encoder: Name = Field(description="Its name, after which the file is named.")
    description: str = Field(default="", description="A line on it.")
    dimension: Count = Field(description="Numbers of a vector.")
    positions: int = Field(ge=3, description="Most tokens that the graph takes.")
    weights: PinnedFile = Field(description="The ONNX graph.")
    tokenizer: PinnedFile = Field(description="The tokenizer's JSON.")
    notes: str = Field(default="", description="Whose it is, and under which licence.")


def read_encoder(name: str, home: Path, also: Iterable[str] = ()) -> EncoderConfig:
    """Read an encoder of ``conf/encoders``, the project's or the package's.

    ``also`` lists what else a user could have named, for the error message.
    """
    path = find_yaml("encoder", name, home, also=also)
    config = parse(EncoderConfig, read_yaml(path), path)
    if config.encoder != name:
        raise ConfigError(
            f"{path}: encoder: the file calls itself {config.encoder!r}.",
            f"Call it {name!r}, as the file is named.",
        )
    return config


def _protected(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    if not all(isinstance(name, str) for name in value):
        raise fault("a list of protected attributes holds names", "Write kinds as {name: kind}.")
    return dict.fromkeys(value, "auto")


class Limits(Model):
    """The most that a dataset may ask for: more is refused before it fills the memory."""

    levels: Count = Field(
        default=1000,
        description="Levels of a categorical column and of an attribute, crossed ones included, "
        "and variants of a counterfactual set.",
        examples=[5000],
    )
    features: Count = Field(default=10_000, description="Columns of X.", examples=[20_000])

    def check(self, kind: str, number: int, where: str, mend: str) -> None:
        """Raise a ConfigError when ``where`` asks for more than one of the limits."""
        most = getattr(self, kind)
        if number > most:
            raise ConfigError(
                f"{where}, and limits.{kind} is {most:,}.", f"{mend}, or raise limits.{kind}."
            )


def _refuse_repeated(levels: tuple[str, ...]) -> tuple[str, ...]:
    if double := repeated(levels):
        raise fault(f"{double[0]!r} is listed twice")
    return levels


Values = Annotated[
    Annotated[tuple[Level, ...], Field(min_length=1), AfterValidator(_refuse_repeated)] | None,
    BeforeValidator(
        lambda value: None if value == "all" else listed(value),
        json_schema_input_type=Level | tuple[Level, ...] | None,
    ),
]
Edited = Annotated[Mapping[Name, Values], Field(min_length=1)]


def _offer_extends(schema: dict[str, Any]) -> None:
    """Add the key that `read_dataset` takes out, and which may bring all others but the name."""
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Another dataset, by name or file, whose sections apply where this file has "
        "none of that key.",
    }
    required = [key for key in schema["required"] if key != "dataset"]
    schema["required"] = ["dataset"]
    schema["anyOf"] = [{"required": ["extends"]}, {"required": required}]


Kind = Literal["auto", "continuous", "categorical"]


class DatasetConfig(Model):
    """A dataset: a table, what is learnt of it, from what, and who is protected."""

    model_config = ConfigDict(json_schema_extra=_offer_extends)

    dataset: Identifier = Field(description="Its name, after which the file is named.")
    description: str = Field(default="", description="A line on it, for lists.")
    source: Source = Field(description="Where the rows come from.")
    memory: Literal["auto", "dask"] = Field(
        default="auto",
        description="dask: rows stay in their files, and features only ever on workers; auto: so "
        "where the table is estimated at more than half of this machine's memory.",
        examples=["dask"],
    )
    label: Label = Field(description="What is learnt.")
    features: Features = Field(description="Which columns become features, and how.")
    groups: Mapping[Name, Group] = Field(
        default_factory=dict, description="Attributes by which people are compared."
    )
    protected: Annotated[
        Mapping[Name, Kind],
        BeforeValidator(_protected, json_schema_input_type=tuple[Name, ...] | Mapping[Name, Kind]),
    ] = Field(
        default_factory=dict,
        description="Attributes that a fair metric ignores, each a group or a column: a list, or "
        "attribute -> ``continuous`` (its numbers are used) or ``categorical`` (its codes). In a "
        "list, and with ``auto``, what is used as a number is continuous.",
    )
    counterfactuals: Mapping[SetName, Edited] = Field(
        default_factory=dict,
        description="Versions of a row that are to be treated alike: set -> column -> levels, or "
        "``all``; several columns make every combination.",
    )
    rows: RowFilter = Field(
        default=RowFilter(), description="Rows that are kept, before everything else."
    )
    missing: Missing = Field(
        default=Missing(), description="What a missing cell of a feature means."
    )
    weight: Name | None = Field(
        default=None, description="Column of the rows' weights.", examples=["weight"]
    )
    text: Text | None = Field(default=None, description="How a column of texts is cleaned.")
    split: SplitRule = Field(description="How rows are assigned to parts.")
    perturb: Perturb = Field(
        default=Perturb(), description="Deliberate changes, after the split and before encoding."
    )
    limits: Limits = Field(
        default=Limits(),
        description="The most that the dataset may ask for.",
        examples=[{"levels": 5000}],
    )
    expected: Expected = Field(
        default=Expected(), description="What is known of the table, which is checked."
    )
    licence: str = Field(default="", description="The terms of the data, in a few words.")
    notes: str = Field(default="", description="What a reader of results has to know.")

    @model_validator(mode="after")
    def _check(self) -> DatasetConfig:
        mentions = mention_columns(self)
        if self.expected.positive is not None and self.label.task != "binary":
            raise fault(f"expected.positive is of two classes, and the label is {self.label.task}")
        for key in ("numeric", "categorical", "quantile", "cut", "binary", "passthrough"):
            if self.label.column in mentions[f"features.{key}"]:
                raise fault(f"features uses {self.label.column!r}, which is the label")
        plain = [name for name, group in self.groups.items() if not group.cross]
        for name, group in self.groups.items():
            if "=" in name:
                raise fault(
                    f"groups.{name}: measures are named attribute=level",
                    "Give the attribute a name without =; its column may have any.",
                )
            for other in group.cross or ():
                if other not in plain:
                    raise fault(f"groups.{name} crosses {other!r}", nearest(other, plain))
        for name in (*self.counterfactuals, *(self.text.versions if self.text else ())):
            if "=" in name:
                raise fault(
                    f"the set {name!r} has an =, behind which measures name a budget",
                    "Give it a name without =.",
                )
        cases = self.perturb.drop.where if self.perturb.drop else ()
        named = {
            "features.groups": self.features.groups,
            "split.group": (self.split.group,) if self.split.group else (),
            "perturb.noisy_groups": tuple(self.perturb.noisy_groups),
            "perturb.drop": tuple(name for case in cases for name in case.groups),
        }
        for key, names in named.items():
            for name in names:
                if name not in self.groups:
                    raise fault(f"{key} names no group {name!r}", nearest(name, self.groups))
        for name in self.perturb.noisy_groups:
            if name not in plain:
                raise fault(f"perturb.noisy_groups: {name} is a cross product", "Name its parts.")
        if self.split.kind == "stratified" and self.label.task == "regression":
            raise fault("split.kind: stratified needs classes, not a regression target")
        return self

    @model_validator(mode="after")
    def _check_texts(self) -> DatasetConfig:
        feature = self.features.text
        versions = self.text.versions if self.text else {}
        if feature and self.text is None:
            raise fault("features.text needs a section text, which names the column")
        if versions and feature is None:
            raise fault("text.versions make no difference without features.text")
        if versions and feature and feature.supplied:
            raise fault(
                f"text.versions need an encoder, and {feature.encoder} contains fixed vectors",
                "Name an encoder under features.text, or leave out text.versions.",
            )
        if double := sorted(set(versions) & set(self.counterfactuals)):
            raise fault(f"{double[0]} is named under counterfactuals and under text.versions")
        return self

    @property
    def set_names(self) -> tuple[str, ...]:
        """Names of all counterfactual sets: those of columns, then those of texts."""
        return (*self.counterfactuals, *(self.text.versions if self.text else ()))

    def shape(self) -> Any:
        """Return what shapes the arrays, ready for JSON: no prose, no paths, no digests.

        Mappings become lists of pairs, because their order is that of codes and columns and must
        survive writers that sort keys.
        """
        location = {"path", "sources", "sha256"}
        prose = {"notes", "description"}
        shape = self.model_dump(
            mode="json",
            by_alias=True,
            exclude={
                "notes": True,
                "description": True,
                "expected": True,
                "licence": True,
                "memory": True,
                "limits": True,
                "label": {"meaning"},
                "source": {
                    "sha256": True,
                    "width": True,
                    "unpacked": True,
                    "path": {"__all__": location},
                    "votes": {"path": location},
                },
                # The chosen encoder has its own digest.
                "features": {"text": {"encoder", "max_tokens"}},
                "text": {
                    "mentions": prose,
                    "versions": {"__all__": dict.fromkeys(("terms", "swap"), prose)},
                },
            },
        )
        # What most datasets lack leaves no trace in their digests.
        marks = ("encoding", "decimal", "thousands", "units", "ages", "spellings", "dummies")
        optional = {
            "source": ("votes", *marks),
            "label": ("above",),
            "features": ("text",),
            "split": ("of", "others"),
        }
        if shape["text"] is None:
            del shape["text"]
        for section, keys in optional.items():
            for key in keys:
                if shape[section][key] in (None, {}):
                    del shape[section][key]
        return list_pairs(shape)


def list_pairs(value: Any) -> Any:
    """Return a value with its mappings as lists of pairs, whose order sorted keys would lose."""
    if isinstance(value, Mapping):
        return [[key, list_pairs(item)] for key, item in value.items()]
    return [list_pairs(item) for item in value] if isinstance(value, list | tuple) else value


def read_dataset(path: Path, home: Path | None = None) -> DatasetConfig:
    """Read a dataset's YAML; relative names of ``extends`` are looked up beside the file first.

    With ``extends: NAME`` the sections of conf/datasets/NAME.yaml apply wherever this file has no
    section of that key; sections are replaced as a whole.
    """
    return parse(DatasetConfig, resolve_vocabulary(_extend(path, home), path, home), path)


def replace_noise(config: DatasetConfig, noise: float | None, path: Path) -> DatasetConfig:
    """Return the dataset with another share of wrong groups, in every attribute that has noise."""
    if noise is None:
        return config
    if not 0 <= noise <= 1:
        raise ConfigError(f"The noise {noise} is no share of rows.", "Give a number from 0 to 1.")
    if not config.perturb.noisy_groups:
        raise ConfigError(
            f"{path}: a noise of {noise} is requested, but perturb names no noisy groups.",
            "Name the attribute: perturb: {noisy_groups: {race: {share: 0.1}}}, for example.",
        )
    noisy = {name: Noise(share=noise) for name in config.perturb.noisy_groups}
    perturb = config.perturb.model_copy(update={"noisy_groups": noisy})
    return config.model_copy(update={"perturb": perturb})


def read_lineage(path: Path, home: Path | None = None) -> tuple[str, ...]:
    """Return the name of a dataset's file, of the one it extends, and so on to the last."""
    return tuple(file.stem for file, _ in _follow(path, home))


def _follow(path: Path, home: Path | None) -> list[tuple[Path, Any]]:
    """Return a dataset's file with its content, then the one that it extends, and so on."""
    chain: dict[Path, Any] = {}
    while True:
        data = chain[path] = read_yaml(path)
        if not isinstance(data, Mapping) or "extends" not in data:
            return list(chain.items())
        name = str(data["extends"])
        folder = path.parent.absolute()
        base = find_yaml(
            "dataset", name, home, beside=folder, folders=[folder], where=f"{path}: extends"
        )
        if base in chain:
            raise ConfigError(f"{path}: extends: {name!r} leads back here.", "Break the circle.")
        path = base


def _extend(path: Path, home: Path | None) -> Any:
    merged, *others = [data for _, data in reversed(_follow(path, home))]
    for data in others if isinstance(merged, Mapping) else ():
        inherited = {key: value for key, value in merged.items() if key != "expected"}
        merged = {**inherited, **{key: value for key, value in data.items() if key != "extends"}}
    return merged


def check_columns(config: DatasetConfig, columns: Iterable[str], file: Path | str) -> None:
    """Raise a ConfigError when a configuration names a column that the table lacks."""
    present = set(columns)
    for key, names in mention_columns(config).items():
        refuse_unknown(names, present, f"{file}: {key}: the table has no column")
    features = expand_rest(config, present).features
    listed = (*features.categorical, *features.binary)
    for name in features.levels:
        if name not in listed:
            raise ConfigError(
                f"{file}: features.levels: {name!r} is no categorical or binary feature.",
                "Add it to those, or take its levels out.",
            )


def mention_columns(config: DatasetConfig) -> dict[str, tuple[str, ...]]:
    """Return every key that names columns, with the columns."""
    features = config.features
    return {
        "label.column": (config.label.column,),
        "features.numeric": () if features.numeric == REST else tuple(features.numeric),
        "features.quantile": features.quantiles,
        "features.cut": tuple(features.cut),
        "features.categorical": () if features.categorical == REST else tuple(features.categorical),
        "features.binary": tuple(features.binary),
        "features.passthrough": features.passthrough,
        "features.levels": tuple(features.levels),
        "features.drop": features.drop,
        "groups": tuple(group.column for group in config.groups.values() if group.column),
        "protected": tuple(
            name
            for name, kind in config.protected.items()
            if name not in config.groups or kind == "continuous"
        ),
        "counterfactuals": tuple(
            column for columns in config.counterfactuals.values() for column in columns
        ),
        "rows.keep": tuple(config.rows.keep),
        "rows.drop_missing": config.rows.drop_missing,
        "missing.columns": tuple(config.missing.columns),
        "weight": (config.weight,) if config.weight else (),
        "text": config.text.claims if config.text else (),
        "split.column": (config.split.column,) if config.split.column else (),
        "split.of": tuple(config.split.of),
        "features.text.ids": (features.text.ids,) if features.text and features.text.ids else (),
    }


def expand_rest(config: DatasetConfig, columns: Iterable[str]) -> DatasetConfig:
    """Return the configuration with ``rest`` replaced by the columns that nothing else uses.

    Columns of groups are left out too.
    """
    features = config.features
    if REST not in (features.numeric, features.categorical):
        return config
    mentions = mention_columns(config)
    shared = ("missing.columns", "counterfactuals", "features.levels")
    for key in ("rows.keep", "rows.drop_missing", *shared):
        del mentions[key]
    taken = set[str]().union(*mentions.values())
    if any(file.part for file in config.source.path):
        taken.add("part")
    taken.update(*config.source.dummies.values())
    rest = tuple(name for name in columns if name not in taken)
    key = "numeric" if features.numeric == REST else "categorical"
    return config.model_copy(update={"features": features.model_copy(update={key: rest})})
