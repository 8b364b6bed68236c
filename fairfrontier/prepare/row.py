"""Rows of another day to arrays, as the training rows were: what cannot be used is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import DatasetConfig
from fairfrontier.prepare.config.section import LONGEST_NAME, REST, Unseen
from fairfrontier.prepare.config.text import WORDS
from fairfrontier.prepare.embedding.feature import SuppliedBlock, TextBlock
from fairfrontier.prepare.embedding.saved import load_encoder, save_encoder
from fairfrontier.prepare.encoded import EncodedRows, Refusals
from fairfrontier.prepare.loader import FittedTable
from fairfrontier.prepare.splitting.counterfactual import Edit, make_edits
from fairfrontier.prepare.splitting.encoder import GROUP_PREFIX, Binary, Encoder, OneHot
from fairfrontier.prepare.splitting.group import Attribute, find_groups
from fairfrontier.prepare.splitting.stored import read_attributes, read_blocks, read_levels
from fairfrontier.prepare.table.cell import (
    clean_typed,
    find_doubtful,
    mask_numbers,
    rewrite_numbers,
    rewrite_typed,
)
from fairfrontier.prepare.table.column import (
    LARGEST,
    MISSING_LEVEL,
    as_levels,
    find_rows,
    join_dummies,
    list_numbers,
    own_column,
    parse_numbers,
    policy_of,
    tidy_column,
    unique_levels,
    used_columns,
)
from fairfrontier.prepare.text.corpus import prepare_texts
from fairfrontier.runtime.errors import ConfigError, DataError, nearest, repeated
from fairfrontier.runtime.text_file import read_json, write_json
from fairfrontier.runtime.thread import count_cores

FILE, TEXT = "encoder.json", "text"
# Of a row, in all sets: a bundle's own limits are those of whoever made it.
MOST_VERSIONS = 2**12


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
    """

    config: DatasetConfig
    encoder: Encoder
    attributes: tuple[Attribute, ...]
    classes: tuple[str, ...]
    levels: tuple[str, ...]
    unseen: Unseen = "zeros"

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

    def for_read_rows(self) -> Self:
        """Return the encoder of rows whose cells the study's reader has rewritten already."""
        source = self.config.source
        marks = rewrite_numbers(pd.Series(source.missing, dtype="str"), source)
        changes: dict[str, Any] = {"decimal": None, "thousands": None, "missing": tuple(marks)}
        changes |= {"units": {}, "ages": {}, "spellings": {}, "dummies": {}}
        config = self.config.model_copy(update={"source": source.model_copy(update=changes)})
        return replace(self, config=config)

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
            assert last.encoder is not None  # noqa: S101
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
        attributes = read_attributes(plain["attributes"], config)
        blocks = read_blocks(plain["encoder"], config, attributes)
        if config.features.text is not None and config.text is not None:
            text = load_encoder(folder / TEXT, count_cores())
            names = tuple(map(str, plain["text"]["names"]))
            if len(names) != text.dimension:
                raise ValueError("it has not one name for every number of a text")
            blocks = (*blocks, TextBlock(config.text.column, names, encoder=text))
        encoder = Encoder(blocks)
        config.limits.check("features", len(encoder.feature_names), FILE, "Leave columns out")
        classes = tuple(map(str, plain["classes"]))
        few = len(classes) < 2 and config.label.task != "regression"
        if max(map(len, classes), default=0) > LONGEST_NAME:
            raise ValueError(f"a class has a name of more than {LONGEST_NAME} letters")
        if not blocks or repeated(encoder.feature_names) or repeated(classes) or few:
            raise ValueError("it has no features or classes, or two of one name")
        if plain["unseen"] not in get_args(Unseen):
            raise ValueError(f"{plain['unseen']!r} is not what happens to unseen levels")
        levels = read_levels(plain["levels"], config.label, classes)
        return cls(config, encoder, attributes, classes, levels, plain["unseen"])

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
        columns = {attribute.name: attribute.column for attribute in self.attributes}
        factors = {attribute.name: attribute.cross for attribute in self.attributes}
        found = (columns[other] for name in names for other in factors[name] or (name,))
        return tuple(dict.fromkeys(str(column) for column in found))

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
        listed = [*columns]
        present = set(listed)
        for name in (*self.features, *self.find_columns(needed)):
            if name not in present:
                raise ConfigError(
                    f"{table} has no column {name!r}, which the model decides by.",
                    nearest(name, present),
                )
            if listed.count(name) > 1:
                raise ConfigError(
                    f"{table} has several columns {name!r}, by which the model decides.",
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
        for name, spans in self.encoder.spans(self.columns).items():
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
        column = self._strip(frame[label.column])
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
        if wrong.any():
            at = int(wrong.argmax())
            level = str(column.iloc[at])
            what = "a label that the study's table had not" if self.levels else "no finite number"
            raise DataError(
                f"{table}: column {column.name!r} holds {level!r} in row {column.index[at]}, "
                f"{what}.",
                (f"{nearest(level, self.levels)} " if self.levels else "")
                + "Where a label is unknown, leave the cell empty.",
            )

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
        numbers, _ = used_columns(self.config)
        read = self.list_read(frame.columns, self.names)
        stripped = {name: self._strip(frame[name]) for name in read}
        for name in list_numbers(self.config):
            if name in stripped and (name in required or name in self.config.rows.keep):
                doubtful = find_doubtful(frame[name], self.config.source)
                refusals.add(doubtful, f"{name} is in doubt: its point may stand between thousands")
        for name, dummies in self.config.source.dummies.items():
            if {*dummies} <= {*stripped}:
                one = self.config.source.model_copy(update={"dummies": {name: dummies}})
                found = pd.DataFrame({dummy: stripped[dummy] for dummy in dummies})
                stripped[name] = join_dummies(found, one, "The table")[name]
        cleaned = self._read_texts(stripped, refusals)
        self._filter(stripped, refusals)
        # Columns whose missing cells are of a group.
        grouped = {
            each.column
            for each in self.attributes
            if each.others is not None or MISSING_LEVEL in (each.codes or {})
        }
        for name in dict.fromkeys((*self.columns, *self._find_columns(self.names))):
            if name not in stripped or name in cleaned:
                continue
            column, numeric = stripped[name], name in numbers
            absent = column.isna().to_numpy()
            policy = policy_of(name, self.config, numeric=numeric)
            if numeric:
                column = parse_numbers(column)
                values = column.to_numpy()
                wrong = {
                    "no number": np.isnan(values) & ~absent,
                    "infinite": np.isinf(values),
                    "too large": np.abs(values) > LARGEST,
                }
                for what, rows in wrong.items():
                    if name in required:
                        refusals.add(rows, f"{name} is {what}")
            else:
                column = as_levels(column)
                if policy == "category":
                    column = column.fillna(MISSING_LEVEL)
            filled = policy in ("mean", "median", "category") and name in self.columns
            filled |= policy == "category" and name in grouped
            if name in required and (not filled or name in self.config.rows.drop_missing):
                refusals.add(absent, f"{name} is missing")
            cleaned[name] = column
        return pd.DataFrame(cleaned, index=frame.index)

    def _find_unseen(self, columns: pd.DataFrame) -> dict[str, np.ndarray]:
        """Return masks of the cells with levels that training had not, by column."""
        unseen = {}
        for block in self.encoder.blocks:
            known = block.levels if isinstance(block, OneHot | Binary) else ()
            if known and block.column in columns:
                seen = as_levels(columns[block.column]).isin(known)
                unseen[block.column] = ~seen.to_numpy(dtype=bool)
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

    def list_read(self, columns: Iterable[str], needed: Collection[str] = ()) -> tuple[str, ...]:
        """Return those of a table's columns that `encode` has to be given."""
        named = (*self.features, *self.find_columns(needed), *self._trace(self.config.rows.keep))
        present = set(columns)
        return tuple(name for name in dict.fromkeys(named) if name in present)

    def _filter(self, columns: Mapping[str, pd.Series], refusals: Refusals) -> None:
        """Refuse rows that the dataset leaves out, by those of its conditions that can be seen.

        A condition on what is known later only, as an outcome is, can have no column here.
        """
        for name, condition in self.config.rows.keep.items():
            if name in columns:
                column = columns[name]
                if condition.by_value:
                    column = parse_numbers(column)
                passed = find_rows(pd.DataFrame({name: column}), {name: condition}, "rows.keep", "")
                refusals.add(~passed, f"{name} is outside of what the model was made for")

    def _strip(self, column: pd.Series) -> pd.Series:
        """Return a column as the study's reader left it."""
        text, source = self.config.text, self.config.source
        parquet = source.format == "parquet"
        column = own_column(column)
        if column.name in source.ages:
            # Days may be times.
            column = as_levels(column)
        if parquet:
            column = rewrite_typed(tidy_column(column), source)
        else:
            column = clean_typed(column, source)
        if column.name in list_numbers(self.config):
            column = mask_numbers(column, source)
        return as_levels(column).str.lower() if text and column.name in text.lower else column


def refuse_versions(count: int, config: DatasetConfig) -> None:
    """Raise ConfigError for more versions of a row, or of its text, than a bundle may make."""
    if count > MOST_VERSIONS:
        raise ConfigError(
            f"The counterfactual sets of {config.dataset} make {count:,} versions of a row, and "
            f"{MOST_VERSIONS:,} are made at most.",
            "List fewer levels or terms, or draw fewer, and export the bundle again.",
        )
