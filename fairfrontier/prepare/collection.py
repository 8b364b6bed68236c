"""Datasets larger than memory: the same Split, with Dask arrays in it."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, cast

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.delayed import Delayed, delayed

from fairfrontier.prepare.config.dataset import DatasetConfig, check_columns, expand_rest
from fairfrontier.prepare.config.source import Source
from fairfrontier.prepare.source.archive import ZIP_START, most_unpacked, refuse_growth
from fairfrontier.prepare.split import Split
from fairfrontier.prepare.splitting.encoder import (
    Statistics,
    filled_columns,
    free_columns,
    make_encoder,
    quantile_edges,
    refuse_empty,
    refuse_unlisted,
)
from fairfrontier.prepare.splitting.plan import Request, make_plan
from fairfrontier.prepare.table.column import (
    as_levels,
    join_dummies,
    list_compared,
    list_levels,
    refuse_absent,
    unique_levels,
    used_columns,
)
from fairfrontier.prepare.table.parquet import parquet_errors
from fairfrontier.prepare.table.table import (
    PART_COLUMN,
    check_digest,
    check_part,
    check_same,
    make_frame,
    open_parquet,
    read_header,
    read_text,
    text_errors,
    text_options,
    tidy_text,
    tidy_typed,
    type_rows,
    unpack,
    walk_files,
)
from fairfrontier.runtime.errors import ConfigError, DataError, explain_missing
from fairfrontier.runtime.store import hash_file

BLOCK_BYTES = 64 * 2**20
# What Dask looks at before it reads, no more than a block.
SAMPLE_BYTES = 2**18


@dataclass(frozen=True, eq=False)
class Blocks:
    """A raw table in pieces that are read when they are needed.

    ``frames`` are delayed DataFrames in the order of the rows, ``digests`` the sha256 of each file.
    """

    frames: tuple[Delayed, ...]
    columns: tuple[str, ...]
    digests: tuple[str, ...]


def read_blocks(source: Source, home: Path, folder: Path) -> Blocks:
    """List the pieces of all files: row groups of Parquet, 64 MiB of text, whole zipped files."""
    frames: list[Delayed] = []
    digests: list[str] = []
    columns: list[str] = []
    for file, path in walk_files(source, home, folder):
        digest = hash_file(path)
        check_digest(path, digest, file.sha256 or source.sha256)
        if source.format == "parquet":
            names, pieces = _parquet(path, source)
        else:
            names, pieces = _text(path, source, file.skip_rows)
        check_same(names, columns or names, path)
        if file.part is not None:
            check_part(names, path)
        columns = names
        frames.extend(delayed(_clean)(piece, source, file.part, path) for piece in pieces)
        digests.append(digest)
    if any(file.part for file in source.path):
        columns = [*columns, PART_COLUMN]
    columns = [*columns, *source.dummies]
    return Blocks(tuple(frames), tuple(columns), tuple(digests))


def _parquet(path: Path, source: Source) -> tuple[list[str], list[Delayed]]:
    with parquet_errors(path), open_parquet(path, path, path.stat().st_size, source) as opened:
        groups = range(opened.metadata.num_row_groups)
        return opened.schema.names, [delayed(_row_group)(path, source, group) for group in groups]


def _row_group(path: Path, source: Source, group: int) -> pd.DataFrame:
    with parquet_errors(path), open_parquet(path, path, path.stat().st_size, source) as opened:
        return tidy_typed(make_frame(opened.decode(opened.file.read_row_group(group))), source)


def _text(path: Path, source: Source, skip_rows: int) -> tuple[list[str], list[Delayed]]:
    with path.open("rb") as stream:
        start = stream.read(4)
    if start == ZIP_START:
        # The first row of a zip archive cannot be read without the others.
        columns = _read_all(path, source, skip_rows).columns
        return list(columns), [delayed(_read_all)(path, source, skip_rows)]
    zipped = start[:2] == b"\x1f\x8b"
    with text_errors(path, source):
        with _open(path, zipped=zipped) as stream:
            unpack(stream.read(65536), path)
            most = most_unpacked(path.stat().st_size, source.unpacked)
            if zipped and stream.seek(most + 1) > most:
                raise refuse_growth(path, most)
        with _open(path, zipped=zipped) as stream:
            header = read_header(stream, path, source, skip_rows)
        try:
            frame = dd.read_csv(
                str(path),
                blocksize=None if zipped else BLOCK_BYTES,
                sample=min(SAMPLE_BYTES, BLOCK_BYTES),
                compression="gzip" if zipped else None,
                **text_options(source, header),
            )
        except (pd.errors.ParserError, UnicodeError):
            raise
        except ValueError as error:
            raise DataError(
                f"{path} cannot be cut into blocks of rows: {str(error).strip().splitlines()[0]}",
                "Check its quotes and the ends of its lines.",
            ) from None
    pieces = [delayed(tidy_text)(piece, path, source, header) for piece in frame.to_delayed()]
    return header.columns, pieces


def _read_all(path: Path, source: Source, skip_rows: int) -> pd.DataFrame:
    return read_text(path.read_bytes(), path, source, skip_rows)


@contextmanager
def _open(path: Path, *, zipped: bool) -> Iterator[IO[bytes]]:
    with path.open("rb") as stream:
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=stream) if zipped else stream)


def _clean(frame: pd.DataFrame, source: Source, part: str | None, path: Path) -> pd.DataFrame:
    frame = frame if part is None else frame.assign(**{PART_COLUMN: part})
    return join_dummies(frame, source, path)


def load_collection(
    request: Request, partitions: int | None = None, *, only_features: bool = False
) -> Split:
    """Load a dataset with Dask arrays; see `fairfrontier.prepare.loader.load`.

    Parts have ``partitions`` partitions, or one per block of the source that has rows of them. Rows
    of each part are in the table's order; all arrays of a part have the same chunks along rows, and
    one along columns. With ``only_features`` X alone is a Dask array, as studies want it: the other
    arrays, which this process has anyway, remain ndarrays.

    Notes
    -----
    Labels, groups, protected attributes and row numbers (O(n) numbers) pass through the calling
    process; features never do. The source is read once for those, then once for each kind of
    statistic, then whenever X is computed: persist X to keep it. Quantiles and medians gather one
    column at a time on one worker, because approximate ones would not agree with the in-memory
    encoder.
    """
    if request.config.text or request.config.source.votes:
        raise ConfigError(
            f"{request.file}: the backend dask supports neither texts nor votes.",
            "Leave out backend, or memory in the YAML.",
        )
    blocks = read_blocks(request.config.source, request.home, request.file.parent)
    check_columns(request.config, blocks.columns, request.file)
    config = expand_rest(request.config, blocks.columns)
    request = replace(request, config=config)
    prepared = [delayed(type_rows)(frame, config, request.file) for frame in blocks.frames]
    lengths = [delayed(len)(frame) for frame in blocks.frames]
    keep = config.rows.keep
    compared = list_compared(keep)
    levels = [delayed(list_levels)(frame, compared) for frame in blocks.frames]
    small = _small_columns(config)
    # The first pass over all blocks meets what is broken in any.
    with text_errors(Path(config.source.path[0].path or request.file), config.source):
        sizes, found, pieces = dask.compute(lengths, levels, [frame[small] for frame in prepared])
    if sum(sizes) == 0:
        raise DataError(f"{request.file}: the table holds no rows.", "Check that it is complete.")
    refuse_absent(_join_levels(found, compared), keep, "rows.keep", request.file)
    starts = np.cumsum([0, *sizes])
    numbered = zip(pieces, starts, strict=False)
    plan = make_plan(
        pd.concat([piece.set_index(piece.index + start) for piece, start in numbered]), request
    )
    plan = replace(plan, parts={name: np.sort(rows) for name, rows in plan.parts.items()})
    kept = np.cumsum([0, *map(len, pieces)])
    frames = [
        frame.assign(**plan.group_columns(slice(start, end)))
        for frame, (start, end) in zip(prepared, pairwise(kept), strict=True)
    ]
    train = _select(frames, kept, plan.parts["train"])
    encoder = make_encoder(config, fit_statistics(train, config, request), plan.group_names,
                           request.file)  # fmt: skip
    edits = plan.edits(encoder)
    parts = {}
    for name, rows in plan.parts.items():
        X = _select(frames, kept, rows).array(encoder.encode, len(encoder.feature_names))
        if partitions is not None:
            X = X.rechunk((_even(rows.size, partitions), X.shape[1]))
        convert = np.asarray if only_features else partial(_chunk, rows=X.chunks[0])
        parts[name] = plan.part(name, rows, X, edits, convert)
    return plan.split(encoder, parts, request.digest(blocks.digests))


def _chunk(array: np.ndarray, rows: tuple[int, ...]) -> da.Array:
    """Return an array of the calling process as a Dask array with the chunks of X."""
    return da.from_array(array, chunks=(rows, *((size,) for size in array.shape[1:])))


def _small_columns(config: DatasetConfig) -> list[str]:
    """Return the columns that decide the split: all but plain features."""
    _, levels = used_columns(config)
    edited = {column for columns in config.counterfactuals.values() for column in columns}
    wanted = [config.label.column, *config.features.binary, *config.split.of]
    wanted += [group.column for group in config.groups.values() if group.column]
    wanted += [
        name
        for name, kind in config.protected.items()
        if name not in config.groups or kind == "continuous"
    ]
    wanted += [name for name in levels if name in edited]
    wanted += [name for name in (config.weight, config.split.column) if name]
    return list(dict.fromkeys(wanted))


@dataclass(frozen=True, eq=False)
class Selection:
    """The rows of one part as delayed DataFrames, none of them empty, and their row counts."""

    frames: tuple[Delayed, ...]
    sizes: tuple[int, ...]

    def array(self, function: Callable[[pd.DataFrame], np.ndarray], width: int) -> da.Array:
        """Return what a function makes of the blocks as one Dask array, (n_samples, width)."""
        pieces = [
            da.from_delayed(delayed(function)(frame), (size, width), dtype=np.float64)
            for frame, size in zip(self.frames, self.sizes, strict=True)
        ]
        return da.concatenate(pieces, axis=0)

    def numbers(self, columns: list[str]) -> da.Array:
        """Return numeric columns as one Dask array of float64, shape (n_samples, n_columns)."""
        return self.array(partial(_numbers, columns=columns), len(columns))


def _numbers(frame: pd.DataFrame, columns: list[str]) -> np.ndarray:
    return frame[columns].to_numpy(dtype=np.float64)


def _select(frames: list[Delayed], kept: np.ndarray, rows: np.ndarray) -> Selection:
    """Take sorted row positions from the blocks that contain them."""
    bounds = np.searchsorted(rows, kept)
    local = [rows[i:j] - start for (i, j), start in zip(pairwise(bounds), kept, strict=False)]
    return Selection(
        tuple(frame.iloc[some] for frame, some in zip(frames, local, strict=True) if some.size),
        tuple(int(some.size) for some in local if some.size),
    )


def _even(n: int, partitions: int) -> tuple[int, ...]:
    """Return the sizes of at most ``partitions`` chunks that differ by one row at most."""
    edges = np.linspace(0, n, min(partitions, n) + 1).round().astype(int)
    return tuple(int(size) for size in np.diff(edges))


def fit_statistics(train: Selection, config: DatasetConfig, request: Request) -> Statistics:
    """Fit statistics on the training rows, with dask-ml where it agrees with scikit-learn."""
    try:
        from dask_ml.impute import SimpleImputer
        from dask_ml.preprocessing import Categorizer, StandardScaler
    except ModuleNotFoundError as error:
        raise explain_missing(error) or error from None

    features = config.features
    fill: dict[str, float] = {}
    for name, rule in filled_columns(config).items():
        column = train.numbers([name])
        if rule == "mean":
            fill[name] = float(SimpleImputer(strategy="mean").fit(column).statistics_[0])
        else:
            fill[name] = float(delayed(np.nanmedian)(delayed(column)).compute())
        refuse_empty(name, rule, fill[name], request.file)
    numeric = list(features.numeric)
    mean: dict[str, float] = {}
    scale: dict[str, float] = {}
    if numeric:
        values = train.numbers(numeric)
        missing = np.array([fill.get(name, np.nan) for name in numeric])
        scaler = StandardScaler().fit(da.where(da.isnan(values), missing, values))
        # A constant column's variance can come out as rounding noise instead of zero.
        noise = 10 * np.finfo(np.float64).eps * np.maximum(np.abs(scaler.mean_), 1)
        mean = dict(zip(numeric, map(float, scaler.mean_), strict=True))
        sizes = np.where(scaler.scale_ > noise, scaler.scale_, 1.0)
        scale = dict(zip(numeric, map(float, sizes), strict=True))
    edges: dict[str, tuple[float, ...]] = {}
    if features.quantile:
        for name in features.quantiles:
            column = train.numbers([name])[:, 0]
            filled = da.where(da.isnan(column), fill.get(name, np.nan), column)
            edges[name] = delayed(quantile_edges)(delayed(filled), features.quantile.bins).compute()
    levels: dict[str, tuple[str, ...]] = {}
    if free := free_columns(config):
        pieces = [frame[free].apply(as_levels) for frame in train.frames]
        empty = pd.DataFrame({name: pd.Series(dtype="str") for name in free})
        frame = dd.from_delayed(pieces, meta=empty, verify_meta=False)
        categorizer = Categorizer(columns=pd.Index(free)).fit(frame)
        for name in free:
            levels[name] = unique_levels(pd.Series(categorizer.categories_[name].categories))
    if features.levels:
        pieces = [delayed(list_levels)(frame, features.levels) for frame in train.frames]
        for name, found in _join_levels(dask.compute(*pieces), features.levels).items():
            refuse_unlisted(name, found, config, request.file)
    return Statistics(mean, scale, fill, edges, levels)


def _join_levels(
    found: Sequence[Mapping[str, set[str]]], names: Iterable[str]
) -> dict[str, set[str]]:
    """Return the levels of columns in all blocks from those in each."""
    return {name: set[str]().union(*(each[name] for each in found)) for name in names}
