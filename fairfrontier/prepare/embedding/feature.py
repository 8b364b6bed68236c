"""Texts of a dataset as features, by an encoder or a user's vectors, and versions of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from fairfrontier.prepare.config.dataset import DatasetConfig, read_dataset
from fairfrontier.prepare.config.section import PartName, TextFeature
from fairfrontier.prepare.embedding.encoder import (
    TextEncoder,
    choose_encoder,
    determine_encoder,
    digest_encoder,
)
from fairfrontier.prepare.level import level_text
from fairfrontier.prepare.source.archive import most_unpacked, refuse_growth
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.prepare.split import Part, Split, Variant
from fairfrontier.prepare.splitting.encoder import Block, Encoder
from fairfrontier.prepare.splitting.plan import Request, split_seed
from fairfrontier.prepare.table.frame import PlainParquet, is_number, is_text
from fairfrontier.prepare.table.reader import resolve
from fairfrontier.prepare.text.version import Versions, make_versions
from fairfrontier.runtime.errors import ConfigError, DataError, refuse_unknown
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.store import canonical_json, hash_file
from fairfrontier.runtime.text_file import is_plain
from fairfrontier.runtime.thread import count_cores

# The name of such vectors in results, before the name of the file.
SUPPLIED = "file:"


def read_embeddings(path: Path, ids: Sequence[Any], *, id_column: str = "id") -> np.ndarray:
    """Return vectors of the rows ``ids`` in their order, float32 of shape (n_samples, dimension).

    ``path`` is an ``.npy`` file of shape (n, d), in which row i belongs to ``ids[i]``; or a Parquet
    file of a column of ids, of which 7 and "7" are the same, and either one column of lists of d
    numbers or d columns of numbers, in their order, which may contain more rows. Nothing is
    unpickled: arrays of Python objects are refused.

    Raises
    ------
    ConfigError
        When the file or the column does not exist.
    DataError
        When rows are missing, repeated, or not finite numbers.
    """
    if not is_plain(path):
        raise ConfigError(f"There is no file {path}.", "Check the path.")
    wanted = _as_text(ids)
    if path.suffix == ".npy":
        vectors = _read_array(path)
        if vectors.ndim != 2 or len(vectors) != len(wanted) or vectors.size == 0:
            raise DataError(
                f"{path} has shape {vectors.shape}, and ({len(wanted)}, numbers) is expected.",
                "Save one row of numbers for every row of the table, in its order.",
            )
    else:
        vectors = _read_parquet(path, id_column, wanted)
    if vectors.dtype.kind not in "fiu":
        raise DataError(
            f"{path} holds values of type {vectors.dtype}, and numbers are expected.",
            "Save the vectors as float32.",
        )
    with np.errstate(over="ignore"):
        chosen = np.ascontiguousarray(vectors, dtype=np.float32)
    bad = np.flatnonzero(~np.isfinite(chosen).all(axis=1))
    if bad.size:
        raise DataError(
            f"{path} holds NaN, infinite or too large numbers in {len(bad)} rows, the first of "
            f"them with id {wanted[bad[0]]}.",
            "Encode these texts again, or drop their rows.",
        )
    return chosen


def _read_array(path: Path) -> np.ndarray:
    try:
        # A path would stay open where it begins like an archive and is none.
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
    # NumPy raises almost anything for a damaged file.
    except Exception:
        array = None
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"{path} is no array of numbers: it is damaged, another format, or holds Python "
            "objects, which are never unpickled.",
            "Save it again by numpy.save(path, array.astype('float32')).",
        )
    return array


def _read_parquet(path: Path, id_column: str, wanted: pd.Index) -> np.ndarray:
    """Return the vectors of the ids that are wanted."""
    try:
        most = most_unpacked(path.stat().st_size)
        with PlainParquet(path, most, refuse_growth(path, most, "Save it as npy.")) as opened:
            opened.check_cells(1)
            table = opened.decode(opened.file.read())
        names = table.column_names
    # Arrow raises more than ArrowInvalid, and column names may be no UTF-8.
    except (pa.ArrowException, ValueError, OSError, MemoryError, OverflowError):
        raise DataError(f"{path} is no Parquet file.", "Write it again.") from None
    refuse_unknown([id_column], names, f"{path} has no column")
    ids = table.column(id_column)
    if ids.null_count or not (pa.types.is_integer(ids.type) or is_text(ids.type)):
        raise DataError(
            f"{path}: {id_column}: ids are of type {ids.type} with {ids.null_count} missing.",
            "Give every row an integer or a string.",
        )
    # pandas writes some indexes as columns.
    others = [name for name in names if name != id_column and not name.startswith("__index_level_")]
    vectors = _stack(table.select(others), path)
    present = _as_text(ids.to_numpy().tolist())
    if not present.is_unique:
        double = present[present.duplicated()]
        raise DataError(
            f"{path} has the id {double[0]} more than once.", "Keep one vector for every id."
        )
    order: np.ndarray = present.get_indexer(wanted)
    missing = wanted[order < 0]
    if len(missing):
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise DataError(
            f"{path} lacks {len(missing)} of {len(wanted)} rows (ids {some}).",
            "Encode these texts too, or drop their rows.",
        )
    chosen: np.ndarray = vectors[order]
    return chosen


def _stack(table: pa.Table, path: Path) -> np.ndarray:
    """Return columns of numbers, or one of lists of them, as rows of shape (n, d)."""
    columns = [column.combine_chunks() for column in table.columns]
    if len(columns) == 1 and hasattr(columns[0], "value_lengths"):
        lengths = columns[0].value_lengths().unique().to_pylist()
        if len(lengths) != 1 or not lengths[0]:
            raise DataError(
                f"{path}: the lists of numbers are not all of one length.",
                "Write one vector of the same length for every row.",
            )
        columns = [columns[0].flatten()]
    kinds = {column.type for column in columns}
    if not columns or not all(map(is_number, kinds)):
        raise DataError(
            f"{path}: beside the ids stand columns of {', '.join(map(str, kinds)) or 'nothing'}, "
            "and numbers are expected.",
            "Keep the ids and the numbers of the vectors, or one column of lists.",
        )
    flat = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
    rows: np.ndarray = flat.reshape(len(table), -1)
    return rows


def _as_text(ids: Sequence[Any]) -> pd.Index:
    return pd.Index([str(level_text(value)) for value in ids], dtype=object)


@dataclass(frozen=True, eq=False, kw_only=True)
class TextBlock(Block):
    """The vectors that an encoder makes of texts, as float64."""

    encoder: TextEncoder

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the vectors, shape (n_samples, dimension)."""
        return self.encoder.encode(column.tolist()).astype(np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class SuppliedBlock(Block):
    """The vectors that a user supplies, looked up by the row numbers of the table."""

    vectors: np.ndarray
    rows: pd.Index

    def encode(self, column: pd.Series) -> np.ndarray:
        """Return the vectors, shape (n_samples, dimension)."""
        return self.vectors[self.rows.get_indexer(column.index)].astype(np.float64)


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """How the texts of a split become features: the block for their column, and its digest."""

    name: str
    digest: str
    block: TextBlock | SuppliedBlock


def fit_text(
    config: DatasetConfig,
    frame: pd.DataFrame,
    train: pd.DataFrame,
    used: pd.DataFrame,
    home: Path,
    file: Path,
    progress: Progress | None = None,
) -> TextFeatures | None:
    """Return how a dataset's texts become features; None where they do not.

    ``frame`` is the entire table; an encoder learns from the ``train`` rows only. The texts of the
    ``used`` rows, those of all parts, are encoded here at once.
    """
    feature = config.features.text
    if feature is None or config.text is None:
        return None
    column = config.text.column
    if feature.supplied:
        path = resolve(feature.encoder, home, file.parent)
        # An npy has a row for every row of the table, a Parquet file for those in use.
        kept = frame.index if path.suffix == ".npy" else used.index
        ids = frame.loc[kept, feature.ids] if feature.ids else kept
        vectors = read_embeddings(path, ids.tolist(), id_column=feature.ids or "id")
        names = _name_columns(column, vectors.shape[1])
        supplied = SuppliedBlock(column, names, vectors=vectors, rows=kept)
        name = f"{SUPPLIED}{path.name}"
        return TextFeatures(name, digest_text(feature, home, file), supplied)
    encoder = choose_encoder(
        determine_encoder(feature.encoder, home, progress),
        home=home,
        max_tokens=feature.max_tokens,
        threads=count_cores(),
        progress=progress,
    ).fit(train[column].tolist())
    # Repeated texts are encoded once; the blocks then look them up.
    encoder.encode(used[column].tolist(), progress)
    names = _name_columns(column, encoder.dimension)
    block = TextBlock(column, names, encoder=encoder)
    return TextFeatures(encoder.name, digest_text(feature, home, file), block)


def digest_text(feature: TextFeature, home: Path, file: Path) -> str:
    """Return the digest of what makes vectors of a dataset's texts, besides the texts."""
    if not feature.supplied:
        name = determine_encoder(feature.encoder, home)
        return digest_encoder(name, home, feature.max_tokens)
    content = hash_file(resolve(feature.encoder, home, file.parent))
    described = canonical_json({"file": content, "ids": feature.ids})
    return hashlib.sha256(described.encode()).hexdigest()


def name_encoder(dataset: str | Path, home: Path) -> str | None:
    """Return the name in results of the encoder of a dataset's texts; None without one."""
    path = find_yaml("dataset", dataset, home)
    feature = read_dataset(path, home).features.text
    if feature is None:
        return None
    if feature.supplied:
        return f"{SUPPLIED}{Path(feature.encoder).name}"
    return determine_encoder(feature.encoder, home)


def _name_columns(column: str, dimension: int) -> tuple[str, ...]:
    return tuple(f"{column}_{number}" for number in range(dimension))


@dataclass(frozen=True, eq=False)
class TextVariants:
    """A counterfactual set over the texts of one part; iterating makes one variant at a time.

    X and groups are those of the part, not copied; ``columns`` of X are the vector of the text, and
    ``taken`` is the subset of rows to which the set is restricted. Vectors are encoded, or looked
    up, once: a set that was iterated over keeps 4 · dimension · n_versions · n_rows bytes. A
    version does not change the groups of a row, which are made from other columns.
    """

    X: np.ndarray
    groups: np.ndarray
    columns: slice
    versions: Versions
    encoder: TextEncoder
    taken: np.ndarray | None = None
    _version_row: np.ndarray = field(init=False, repr=False)
    _encoded: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Compute the position of each row of X among the versions, −1 without one."""
        row = np.full(len(self.X), -1, dtype=np.int64)
        row[self.versions.rows] = np.arange(self.versions.rows.size)
        object.__setattr__(self, "_version_row", row if self.taken is None else row[self.taken])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variants, in the order they come."""
        return self.versions.names

    @property
    def n_samples(self) -> int:
        """Number of rows of every variant."""
        return self._version_row.size

    @property
    def rows(self) -> np.ndarray:
        """Positions of the rows that have versions, ascending."""
        return np.flatnonzero(self._version_row >= 0)

    def __len__(self) -> int:
        return len(self.versions.versions)

    def __iter__(self) -> Iterator[Variant]:
        rows = self.rows
        for number, name in enumerate(self.names):
            X = self.X.copy() if self.taken is None else self.X[self.taken]
            groups = self.groups if self.taken is None else self.groups[self.taken]
            X[rows, self.columns] = self._vectors(number)[self._version_row[rows]]
            yield Variant(name, X, groups)

    def take(self, rows: np.ndarray) -> TextVariants:
        """Return the same set for a subset of the rows."""
        return replace(self, taken=rows if self.taken is None else self.taken[rows])

    def _vectors(self, number: int) -> np.ndarray:
        """Return float32 of shape (n_rows, dimension) for one version."""
        if number not in self._encoded:
            texts = self.versions.versions[number].write().texts
            self._encoded[number] = self.encoder.encode(texts)
        return self._encoded[number]


def add_versions(
    part: Part, frame: pd.DataFrame, request: Request, encoder: Encoder, text: TextFeatures
) -> Part:
    """Return a part with the counterfactual sets of its texts in addition to the others.

    ``frame`` has the rows of the part, with the column of texts.
    """
    config = request.config
    if not isinstance(text.block, TextBlock) or config.text is None:
        return part
    column = config.text.column
    (columns,) = encoder.spans([column])[column]
    texts = frame[column].tolist()
    seed = split_seed(config.split, request.seed)
    sets = {
        name: TextVariants(
            part.X,
            part.groups,
            columns,
            make_versions(name, rule, texts, part.ids, cast(PartName, part.name), seed),
            text.block.encoder,
        )
        for name, rule in config.text.versions.items()
    }
    return replace(part, counterfactuals={**part.counterfactuals, **sets})


def encode_versions(split: Split, progress: Progress | None = None) -> int:
    """Encode all versions of a split's texts at once, into the encoder's cache; return how many."""
    sets = [
        variants
        for _, part in split.parts()
        for variants in part.counterfactuals.values()
        if isinstance(variants, TextVariants)
    ]
    texts = [text for variants in sets for text in variants.versions.texts]
    if texts:
        sets[0].encoder.encode(texts, progress)
    return len(texts)


def list_changes(part: Part) -> pd.DataFrame:
    """Return every word that the versions of a part's texts replace.

    The columns are ``set``, ``version``, and those of `Rewriting.table`; the frame is empty where
    there are no counterfactual texts.
    """
    tables = [
        variants.versions.table().assign(set=name)
        for name, variants in part.counterfactuals.items()
        if isinstance(variants, TextVariants)
    ]
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    return table[["set", "version", *table.columns.drop(["set", "version"])]]
