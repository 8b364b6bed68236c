"""Rows of another day to arrays, as the training rows were: what cannot be used is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from fairfrontier.prepare.config.dataset import WORDS, DatasetConfig
from fairfrontier.prepare.config.section import REST, Unseen
from fairfrontier.prepare.embedding.encoder import load_encoder, save_encoder
from fairfrontier.prepare.embedding.feature import SuppliedBlock, TextBlock
from fairfrontier.prepare.loader import FittedTable
from fairfrontier.prepare.splitting.encoder import (
    GROUP_PREFIX,
    Attribute,
    Binary,
    Encoder,
    OneHot,
    Raw,
    find_groups,
    take_levels,
)
from fairfrontier.prepare.splitting.plan import Edit, make_edits
from fairfrontier.prepare.table.column import (
    LARGEST,
    MISSING_LEVEL,
    Cells,
    as_levels,
    find_doubtful,
    mask_numbers,
    parse_numbers,
    read_column,
    unique_levels,
)
from fairfrontier.prepare.table.rows import (
    find_rows,
    find_wrong,
    join_dummies,
    list_numbers,
    policy_of,
    used_columns,
)
from fairfrontier.prepare.text.corpus import prepare_texts
from fairfrontier.runtime.errors import ConfigError, nearest, refuse_unknown, repeated
from fairfrontier.runtime.text_file import read_json, write_json
from fairfrontier.runtime.thread import count_cores

FILE, TEXT = "encoder.json", "text"
# Of a row, in all sets: a bundle's own limits are those of whoever made it.
MOST_VERSIONS = 2**12


@dataclass(eq=False)
class Refusals:
    """Why each of so many rows is refused; only the first reason counts.

    ``texts[code[i]]`` is the reason of row i, empty where there is none.
    """

    n_samples: int
    texts: list[str] = field(default_factory=lambda: [""])

    def __post_init__(self) -> None:
        self.code = np.zeros(self.n_samples, dtype=np.int32)

    def add(self, rows: np.ndarray, reason: str) -> None:
        """Refuse rows, a mask, that are not refused yet."""
        rows = rows & (self.code == 0)
        if rows.any():
            self.code[rows] = len(self.texts)
            self.texts.append(reason)

    def add_infinite(self, answers: np.ndarray) -> np.ndarray:
        """Refuse the accepted rows whose answers, (n_accepted, n_answers), are not all finite.

        Returns a mask of the others among them.
        """
        finite = np.isfinite(answers).all(axis=1)
        rows = np.zeros(self.n_samples, dtype=bool)
        rows[self.accepted] = ~finite
        self.add(rows, "the model gives no finite answer")
        return np.asarray(finite)

    @property
    def accepted(self) -> np.ndarray:
        """A mask of the rows that are not refused."""
        return np.asarray(self.code == 0)

    @property
    def reasons(self) -> np.ndarray:
        """The reason of every row, an array of str; empty where it is not refused."""
        return np.array(self.texts, dtype=object)[self.code]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows as arrays.

    ``X`` is float64 of shape (n_samples, n_features), ``groups`` int64 of shape (n_samples,
    n_attributes) with −1 where a row is of no group, and ``columns`` the cleaned columns. Where
    ``refusals`` has a reason, X means nothing. ``unseen`` has a mask, bool of shape (n_samples,),
    for every column with levels that training had not.
    """

    X: np.ndarray
    groups: np.ndarray
    columns: pd.DataFrame
    refusals: Refusals
    unseen: Mapping[str, np.ndarray] = field(default_factory=dict)

    def count_unseen(self) -> dict[str, int]:
        """Return how many accepted rows have a level of a column that training had not."""
        accepted = self.refusals.accepted
        counts = {name: int((rows & accepted).sum()) for name, rows in self.unseen.items()}
        return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True, eq=False)
class RowEncoder:
    """What was fitted on training rows, for rows that come later.

    Attributes
    ----------
    config : DatasetConfig
        The dataset, with every column and the positive levels of the label named.
    encoder : Encoder
        Features.
    attributes : tuple of Attribute
        Groups.
    classes : tuple of str
        Names of the classes; of two the second one is positive. Empty for a regression.
    levels : tuple of str
        Levels of the label in the study's table; empty where it is a number.
    unseen : {"zeros", "refuse"}
        A level of a categorical or binary column that no training row had is encoded as zeros, as
        in the other parts of the study's table, or its row is refused.
    is_read : bool
        Whether cells are as the study's reader leaves them.
    """

    config: DatasetConfig
    encoder: Encoder
    attributes: tuple[Attribute, ...]
    classes: tuple[str, ...]
    levels: tuple[str, ...]
    unseen: Unseen = "zeros"
    is_read: bool = False

    @classmethod
    def of(cls, table: FittedTable, unseen: Unseen = "zeros") -> Self:
        """Return the encoder of a fitted table; ConfigError where vectors of texts are supplied."""
        config, plan = table.request.config, table.plan
        if any(isinstance(block, SuppliedBlock) for block in table.encoder.blocks):
            raise ConfigError(
                f"The vectors of texts of {config.dataset} are read from a file, and later rows "
                "have none.",
                "Choose an encoder that makes them: features: {text: {encoder: auto}}.",
            )
        label, levels = config.label, tuple[str, ...]()
        if label.positive is not None or (label.task != "regression" and label.above is None):
            levels = unique_levels(table.frame[label.column])
            where = f"{config.dataset}: label.column: {label.column!r} has {len(levels):,} levels"
            config.limits.check("levels", len(levels), where, "Merge some of them")
        if levels and label.task == "binary" and label.positive is None:
            label = label.model_copy(update={"positive": levels[-1:]})
            config = config.model_copy(update={"label": label})
        # Later rows may lack levels of which versions were made.
        versions = {
            name: {column: wanted or plan.levels.get(column) for column, wanted in edited.items()}
            for name, edited in config.counterfactuals.items()
        }
        config = config.model_copy(update={"counterfactuals": versions})
        return cls(config, table.encoder, plan.attributes, plan.target.classes, levels, unseen)

    def save(self, folder: Path) -> None:
        """Write it into a folder: encoder.json, and the encoder of texts, without pickle."""
        dataset = self.config.model_dump(mode="json", by_alias=True, exclude_none=True)
        dataset["counterfactuals"] = {
            name: {column: levels or "all" for column, levels in edited.items()}
            for name, edited in self.config.counterfactuals.items()
        }
        if REST not in (self.config.features.numeric, self.config.features.categorical):
            # They were left out of the rest, whose columns are named by now.
            dataset["features"].pop("drop", None)
        *blocks, last = self.encoder.blocks
        plain: dict[str, Any] = {
            "dataset": dataset,
            "attributes": [asdict(attribute) for attribute in self.attributes],
            "classes": list(self.classes),
            "levels": list(self.levels),
            "unseen": self.unseen,
        }
        if isinstance(last, TextBlock):
            save_encoder(last.encoder, folder / TEXT)
            plain["text"] = {"column": last.column, "names": list(last.names)}
        else:
            blocks.append(last)
        write_json({**plain, "encoder": Encoder(tuple(blocks)).to_json()}, folder / FILE)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what ``save`` wrote; nothing is unpickled.

        Whatever else the files hold raises an exception: ValueError, or that of a library.
        """
        plain = read_json(folder / FILE)
        config = DatasetConfig.model_validate(plain["dataset"])
        attributes = TypeAdapter(tuple[Attribute, ...]).validate_python(plain["attributes"])
        encoder = Encoder.from_json(plain["encoder"])
        if config.features.text is not None and config.text is not None:
            text, names = load_encoder(folder / TEXT, count_cores()), plain["text"]["names"]
            block = TextBlock(config.text.column, tuple(map(str, names)), encoder=text)
            encoder = Encoder((*encoder.blocks, block))
        config.limits.check("features", len(encoder.feature_names), FILE, "Leave columns out")
        classes, levels = (tuple(map(str, plain[key])) for key in ("classes", "levels"))
        unseen = TypeAdapter(Unseen).validate_python(plain["unseen"])
        return cls(config, encoder, attributes, classes, levels, unseen)

    @property
    def text_block(self) -> TextBlock | None:
        """What makes vectors of texts; None where there are none."""
        last = self.encoder.blocks[-1]
        return last if isinstance(last, TextBlock) else None

    @property
    def set_names(self) -> tuple[str, ...]:
        """The names of the counterfactual sets of rows, and of texts that are encoded."""
        return self.config.set_names if self.text_block else tuple(self.config.counterfactuals)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that features are made of, with those that are made of texts."""
        sources = dict.fromkeys(block.column for block in self.encoder.blocks)
        plain = [name for name in sources if not name.startswith(GROUP_PREFIX)]
        return tuple(dict.fromkeys([*plain, *self._find_columns(self.config.features.groups)]))

    @property
    def features(self) -> tuple[str, ...]:
        """The columns of a table that features are made of."""
        return self._trace(self.columns)

    @property
    def described(self) -> tuple[str, ...]:
        """The columns whose distribution is described: of a text the number of its words."""
        text = self.config.text
        own = (WORDS if text and name == text.column else name for name in self.columns)
        return tuple(dict.fromkeys(own))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the attributes."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def grouped(self) -> tuple[str, ...]:
        """The columns of a table that groups are made of."""
        return self.find_columns(self.names)

    def find_columns(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the columns of a table that some of the attributes are made of."""
        return self._trace(self._find_columns(names))

    def _find_columns(self, names: Iterable[str]) -> tuple[str, ...]:
        known = {attribute.name: attribute for attribute in self.attributes}
        found = (known[other] for name in names for other in known[name].cross or (name,))
        return tuple(dict.fromkeys(str(attribute.column) for attribute in found))

    def _trace(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the columns of a table that these are made of: texts, masked words, dummies."""
        text, found = self.config.text, dict[str, None]()
        dummies = self.config.source.dummies
        for name in itertools.chain.from_iterable(dummies.get(name, (name,)) for name in columns):
            made = text is not None and name in (text.column, *text.makes)
            found |= dict.fromkeys(text.reads_rows if text is not None and made else (name,))
        return tuple(found)

    def check_columns(
        self, columns: Iterable[str], needed: Collection[str], table: Path | str = "The table"
    ) -> None:
        """Raise a ConfigError for a table without a column of a feature or a needed attribute."""
        present = [*columns]
        names = (*self.features, *self.find_columns(needed))
        refuse_unknown(names, {*present}, f"{table} has no column", ", which the model decides by")
        if double := [name for name in repeated(present) if name in names]:
            raise ConfigError(
                f"{table} has several columns {double[0]!r}, by which the model decides.",
                "Leave one.",
            )

    def encode(self, frame: pd.DataFrame, needed: Collection[str] = ()) -> EncodedRows:
        """Encode raw rows; refuse what the configuration does not say how to use.

        Parameters
        ----------
        frame : DataFrame
            Raw columns, numbers as numbers or text; others than those of features, groups and
            ``rows.keep`` are not looked at.
        needed : collection of str
            The attributes without which a row is refused. Columns of others may be missing.

        Raises
        ------
        ConfigError
            When a column is missing.
        DataError
            When a column holds lists or records, or levels that are floats of 2⁵³ or more.

        Notes
        -----
        O(n · n_features). Every row is encoded by itself: neither order nor batch matters.
        """
        self.check_columns(frame.columns, needed)
        refusals = Refusals(len(frame))
        columns = self._clean(frame, {*self.columns, *self._find_columns(needed)}, refusals)
        unseen = self._find_unseen(columns)
        for name, rows in unseen.items() if self.unseen == "refuse" else ():
            refusals.add(rows, f"{name} has a level that training had not")
        groups = find_groups(self.attributes, columns)
        for position, attribute in enumerate(self.attributes):
            if attribute.name in {*self.config.features.groups, *needed}:
                refusals.add(groups[:, position] < 0, f"{attribute.name} is of no known group")
            if attribute.name in self.config.features.groups:
                names = np.array([*attribute.names, None], dtype=object)
                columns[GROUP_PREFIX + attribute.name] = names[groups[:, position]]
        with np.errstate(over="ignore"):
            X = self.encoder.encode(columns)
        # Raw cells are refused as they are read.
        encoded = X.dtype != object
        for name, spans in self.encoder.spans(self.columns).items() if encoded else ():
            for span in spans:
                refusals.add((np.abs(X[:, span]) > LARGEST).any(axis=1), f"{name} is too large")
        return EncodedRows(X, groups, columns, refusals, unseen)

    def read_labels(self, frame: pd.DataFrame, table: Path | str = "The table") -> np.ndarray:
        """Return 1 where the label is positive, 0 elsewhere, NaN where it is missing; float64.

        Of a regression return its target as the study scales it.

        Raises
        ------
        DataError
            When a label is none of the study's table, or no finite number.
        """
        label = self.config.label
        numeric = label.column in list_numbers(self.config)
        column = self._read(frame[label.column], is_number=numeric)
        if label.positive is None:
            numbers = parse_numbers(column).to_numpy()
            doubtful = find_doubtful(frame[label.column], self.config.source)
            self._check_labels(column, np.isfinite(numbers) & ~doubtful, table)
            if label.above is not None:
                return np.where(np.isnan(numbers), np.nan, numbers > label.above)
            low, high = label.range or (0.0, 1.0)
            numbers = numbers.clip(low, high) if label.clip else numbers
            return (numbers - low) / (high - low)
        column = as_levels(column)
        self._check_labels(column, column.isin(self.levels).to_numpy(), table)
        return np.where(column.isna(), np.nan, column.isin(label.positive))

    def _check_labels(self, column: pd.Series, known: np.ndarray, table: Path | str) -> None:
        """Raise a DataError for a cell of the label that is neither known nor missing."""
        wrong = column.notna().to_numpy() & ~known
        what, mend = "no finite number", "Where a label is unknown, leave the cell empty."
        if self.levels and wrong.any():
            what = "a label that the study's table had not"
            mend = f"{nearest(str(column[wrong].iloc[0]), self.levels)} {mend}"
        Cells(column, "", table).refuse(wrong, f", {what}", mend)

    def unscale(self, values: np.ndarray) -> np.ndarray:
        """Return predictions of a regression in the units of its column."""
        low, high = self.config.label.range or (0.0, 1.0)
        return low + (high - low) * values

    def encode_versions(self) -> dict[str, tuple[Edit, ...]]:
        """Return the counterfactual sets of the dataset, encoded; ConfigError for too many."""
        levels: dict[str, tuple[str, ...]] = {}
        sets = self.config.counterfactuals
        for edited in sets.values():
            for column, wanted in edited.items():
                levels[column] = (*levels.get(column, ()), *(wanted or ()))
        count = sum(
            math.prod(len(wanted or levels[column]) for column, wanted in edited.items())
            for edited in sets.values()
        )
        refuse_versions(count, self.config)
        return make_edits(self.config, levels, self.encoder, self.attributes, self.config.dataset)

    def _clean(
        self, frame: pd.DataFrame, required: Collection[str], refusals: Refusals
    ) -> pd.DataFrame:
        """Return features and groups with their types; refuse rows by cells of what is required."""
        config = self.config
        numbers, _ = used_columns(config)
        computed, raw = {*list_numbers(config)}, dict[str, pd.Series]()
        for name in self.list_read(frame.columns, self.names):
            raw[name] = self._read(frame[name], is_number=name in computed)
            asked = name in required or name in config.rows.keep
            if name in computed and asked and not self.is_read:
                doubtful = find_doubtful(frame[name], config.source)
                refusals.add(doubtful, f"{name} is in doubt: its point may stand between thousands")
        for name, dummies in config.source.dummies.items():
            if {*dummies} <= {*raw}:
                one = config.source.model_copy(update={"dummies": {name: dummies}})
                raw[name] = join_dummies(pd.DataFrame(raw), one, "The table")[name]
        cleaned = self._read_texts(raw, refusals)
        for name, condition in config.rows.keep.items():
            # What is known later only, as an outcome is, can have no column here.
            if name in raw:
                cells = parse_numbers(raw[name]) if condition.by_value else raw[name]
                passed = find_rows(pd.DataFrame({name: cells}), {name: condition}, "", "")
                refusals.add(~passed, f"{name} is outside of what the model was made for")
        raw_missing = {
            each.column for each in self.encoder.blocks if isinstance(each, Raw) and each.accepted
        }
        # Columns whose missing cells are of a group.
        grouped = {
            each.column
            for each in self.attributes
            if each.others is not None or MISSING_LEVEL in (each.codes or {})
        }
        for name in dict.fromkeys((*self.columns, *self._find_columns(self.names))):
            if name not in raw or name in cleaned:
                continue
            numeric = name in numbers
            column = parse_numbers(raw[name]) if numeric else as_levels(raw[name])
            absent = (raw[name] if numeric else column).isna().to_numpy()
            policy = policy_of(name, config, numeric=numeric)
            filled = policy in ("mean", "median", "category") and name in self.columns
            filled |= name in raw_missing
            filled |= policy == "category" and name in grouped
            for reason, rows in find_wrong(raw[name], column).items() if numeric else ():
                if name in required:
                    refusals.add(rows, f"{name} is {reason}")
            if name in required and (not filled or name in config.rows.drop_missing):
                refusals.add(absent, f"{name} is missing")
            cleaned[name] = column.fillna(MISSING_LEVEL) if policy == "category" else column
        return pd.DataFrame(cleaned, index=frame.index)

    def _find_unseen(self, columns: pd.DataFrame) -> dict[str, np.ndarray]:
        """Return masks of the cells with levels that training had not, by column."""
        unseen = {}
        for block in self.encoder.blocks:
            known = isinstance(block, OneHot | Binary | Raw) and block.levels
            if known and block.column in columns:
                cells = take_levels(columns[block.column])
                unseen[block.column] = (cells.notna() & ~cells.isin(known)).to_numpy(bool)
        return {name: rows for name, rows in unseen.items() if rows.any()}

    def _read_texts(
        self, stripped: dict[str, pd.Series], refusals: Refusals
    ) -> dict[str, pd.Series]:
        """Add the columns that are made of texts to those read; return the texts, by column."""
        text = self.config.text
        if text is None or not {*text.reads_rows} <= {*stripped}:
            return {}
        frame = pd.DataFrame({name: stripped[name].astype(object) for name in text.reads_rows})
        if text.mask is not None:
            columns = frame[list(text.mask.columns)]
            empty = columns.isna() | (columns.astype("str") == "")
            for name in columns:
                refusals.add(empty[name].to_numpy(), f"{name} is missing")
            # Refused rows are masked like the others.
            word = {text.mask.tokens: "['0']"}
            for name in text.reads_rows:
                frame.loc[empty.any(axis=1), name] = word.get(name, "0")
        made = prepare_texts(frame, text.model_copy(update={"lower": ()}), "The table")
        stripped |= {name: made[name] for name in text.makes}
        return {text.column: made[text.column], WORDS: made[WORDS]}

    def list_read(
        self, columns: Iterable[str] | None, needed: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return those of a table's columns, or of any, that `encode` has to be given."""
        named = (*self.features, *self.find_columns(needed), *self._trace(self.config.rows.keep))
        present = set(named if columns is None else columns)
        return tuple(name for name in dict.fromkeys(named) if name in present)

    def _read(self, column: pd.Series, *, is_number: bool) -> pd.Series:
        """Return a column as the study's reader left it."""
        text, source = self.config.text, self.config.source
        read = column if self.is_read else read_column(column, source)
        read = mask_numbers(read, source) if is_number else read
        return as_levels(read).str.lower() if text and read.name in text.lower else read


def refuse_versions(count: int, config: DatasetConfig) -> None:
    """Raise ConfigError for more versions of a row, or of its text, than a bundle may make."""
    if count > MOST_VERSIONS:
        raise ConfigError(
            f"The counterfactual sets of {config.dataset} make {count:,} versions of a row, and "
            f"{MOST_VERSIONS:,} are made at most.",
            "List fewer levels or terms, or draw fewer, and export the bundle again.",
        )
