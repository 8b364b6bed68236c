"""Datasets larger than memory: the same Split, with Dask arrays in it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, cast

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.delayed import Delayed, delayed

from fairfrontier.prepare.config.dataset import DatasetConfig, check_columns, expand_rest
from fairfrontier.prepare.config.section import Source
from fairfrontier.prepare.source.archive import ZIP_START
from fairfrontier.prepare.split import Split
from fairfrontier.prepare.splitting.encoder import (
    Encoder,
    Statistics,
    filled_columns,
    make_encoder,
    quantile_edges,
    refuse_empty,
)
from fairfrontier.prepare.splitting.plan import Request, make_plan
from fairfrontier.prepare.table.column import (
    as_levels,
    keep_rows,
    make_columns,
    tidy,
    unique_levels,
    used_columns,
)
from fairfrontier.prepare.table.table import (
    PART_COLUMN,
    check_digest,
    check_header,
    check_start,
    list_files,
    read_text,
    strip_text,
    text_errors,
    text_options,
    unpack,
)
from fairfrontier.runtime.errors import ConfigError, DataError, explain_missing
from fairfrontier.runtime.store import hash_file

BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Blocks:
    """A raw table in pieces that are read when they are needed.

    Attributes
    ----------
    frames : tuple of Delayed
        DataFrames, in the order of the rows.
    columns : tuple of str
    digests : tuple of str
        sha256 of each file.
    """

    frames: tuple[Delayed, ...]
    columns: tuple[str, ...]
    digests: tuple[str, ...]


def read_blocks(source: Source, home: Path, folder: Path) -> Blocks:
    """List the pieces of all files: row groups of Parquet, 64 MiB of text, whole zipped files.

    Raises
    ------
    ConfigError, DataError
        As ``table.read_table``, as far as the start of a file shows it.
    """
    frames: list[Delayed] = []
    digests: list[str] = []
    columns: list[str] = []
    for file in source.path:
        for path in list_files(file, source, home, folder):
            digest = hash_file(path)
            check_digest(path, digest, file.sha256 or source.sha256)
            if source.format == "parquet":
                names, pieces = _parquet(path)
            else:
                names, pieces = _text(path, source, file.skip_rows)
            if columns and names != columns:
                raise DataError(
                    f"The columns of {path} differ from those of the files before it.",
                    "Files of one source must have the same columns in the same order.",
                )
            columns = names
            frames.extend(
                delayed(_clean)(piece, source.format, file.part, path) for piece in pieces
            )
            digests.append(digest)
    if any(file.part for file in source.path):
        columns = [*columns, PART_COLUMN]
    return Blocks(tuple(frames), tuple(columns), tuple(digests))


def _parquet(path: Path) -> tuple[list[str], list[Delayed]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(
            f"{path} is not a Parquet file: {str(error).splitlines()[0]}",
            "Check source.format and fetch the file again.",
        ) from None
    with file:
        names = list(file.schema_arrow.names)
        check_header(names, path)
        return names, [delayed(_row_group)(path, group) for group in range(file.num_row_groups)]


def _row_group(path: Path, group: int) -> pd.DataFrame:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return cast(pd.DataFrame, file.read_row_group(group).to_pandas(ignore_metadata=True))


def _text(path: Path, source: Source, skip_rows: int) -> tuple[list[str], list[Delayed]]:
    with path.open("rb") as stream:
        start = stream.read(4)
    if start == ZIP_START:
        frame = delayed(_read_whole)(path, source, skip_rows)
        # A zip archive has no beginning that could be read alone: its first row needs the whole.
        return list(_read_whole(path, source, skip_rows).columns), [frame]
    zipped = start[:2] == b"\x1f\x8b"
    with text_errors(path, source):
        with _open(path, zipped=zipped) as stream:
            unpack(stream.read(65536), path)
        with _open(path, zipped=zipped) as stream:
            check_start(stream, path, source, skip_rows)
        frame = dd.read_csv(
            str(path),
            blocksize=None if zipped else BLOCK_BYTES,
            compression="gzip" if zipped else None,
            **text_options(source, skip_rows),
        )
    return [str(name).strip() for name in frame.columns], frame.to_delayed()


def _read_whole(path: Path, source: Source, skip_rows: int) -> pd.DataFrame:
    return read_text(path.read_bytes(), path, source, skip_rows)


@contextmanager
def _open(path: Path, *, zipped: bool) -> Iterator[IO[bytes]]:
    with path.open("rb") as stream:
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=stream) if zipped else stream)


def _clean(frame: pd.DataFrame, kind: str, part: str | None, path: Path) -> pd.DataFrame:
    frame = tidy(frame) if kind == "parquet" else strip_text(frame, path)
    return frame if part is None else frame.assign(**{PART_COLUMN: part})


def _prepare(frame: pd.DataFrame, config: DatasetConfig, file: Path) -> pd.DataFrame:
    """Keep rows of one block and give its columns their types."""
    return make_columns(keep_rows(frame, config, file), config, file)


def load_collection(request: Request, partitions: int | None = None) -> Split:
    """Load a dataset with Dask arrays.

    Parameters
    ----------
    request : Request
    partitions : int, optional
        Partitions of every part; one per block of the source that holds rows of it by default.

    Returns
    -------
    Split
        As ``loader.load`` makes it, with rows of each part in the table's order and every array a
        Dask array; all arrays of a part have the same chunks along rows, one along columns.

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
            f"{request.file}: the backend dask reads no texts and counts no votes.",
            "Leave out backend.",
        )
    blocks = read_blocks(request.config.source, request.home, request.file.parent)
    check_columns(request.config, blocks.columns, request.file)
    config = expand_rest(request.config, blocks.columns)
    request = replace(request, config=config)
    prepared = [delayed(_prepare)(frame, config, request.file) for frame in blocks.frames]
    lengths = [delayed(len)(frame) for frame in blocks.frames]
    small = _small_columns(config)
    # Reading is I/O of this process or of the workers of the active client.
    sizes, sides = dask.compute(lengths, [frame[small] for frame in prepared])
    if sum(sizes) == 0:
        raise DataError(f"{request.file}: the table holds no rows.", "Check that it is complete.")
    starts = np.cumsum([0, *sizes])
    side = pd.concat(
        [each.set_index(each.index + start) for each, start in zip(sides, starts, strict=False)]
    )
    plan = make_plan(side, request)
    plan = replace(plan, parts={name: np.sort(rows) for name, rows in plan.parts.items()})
    kept = np.cumsum([0, *(len(each) for each in sides)])
    frames = [
        delayed(_with_groups)(frame, plan.group_columns(slice(start, end)))
        for frame, start, end in zip(prepared, kept, kept[1:], strict=False)
    ]
    train = _select(frames, kept, plan.parts["train"])
    encoder = make_encoder(config, fit_statistics(train, config, request), plan.group_names,
                           request.file)  # fmt: skip
    edits = plan.edits(encoder)
    parts = {}
    for name, rows in plan.parts.items():
        X = _encode(_select(frames, kept, rows), encoder)
        if partitions is not None:
            X = X.rechunk((_even(rows.size, partitions), X.shape[1]))
        parts[name] = plan.part(name, rows, X, edits, partial(_place, rows=X.chunks[0]))
    return plan.split(encoder, parts, request.digest(blocks.digests))


def _place(array: np.ndarray, rows: tuple[int, ...]) -> da.Array:
    """Turn an array of the calling process into a Dask array with the chunks of X."""
    return da.from_array(array, chunks=(rows, *((size,) for size in array.shape[1:])))


def _small_columns(config: DatasetConfig) -> list[str]:
    """Return the columns that decide the split: all but plain features."""
    _, levels = used_columns(config)
    wanted = [config.label.column]
    wanted += [group.column for group in config.groups.values() if group.column]
    wanted += list(config.features.binary)
    wanted += [name for name in config.protected if name not in config.groups]
    wanted += [name for name, kind in config.protected.items() if kind == "continuous"]
    wanted += [name for each in config.counterfactuals.values() for name in each if name in levels]
    wanted += [name for name in (config.weight, config.split.column) if name]
    wanted += list(config.split.of)
    return list(dict.fromkeys(wanted))


def _with_groups(frame: pd.DataFrame, columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
    return frame.assign(**columns)


@dataclass(frozen=True, eq=False)
class Selection:
    """The rows of one part, block by block; blocks without any are left out.

    Attributes
    ----------
    frames : tuple of Delayed
        DataFrames.
    sizes : tuple of int
        Their row counts.
    """

    frames: tuple[Delayed, ...]
    sizes: tuple[int, ...]

    def array(self, columns: list[str]) -> da.Array:
        """Return numeric columns as one Dask array of float64, shape (n_samples, n_columns)."""
        pieces = [
            da.from_delayed(
                delayed(_numbers)(frame, columns), (size, len(columns)), dtype=np.float64
            )
            for frame, size in zip(self.frames, self.sizes, strict=True)
        ]
        return da.concatenate(pieces, axis=0)


def _numbers(frame: pd.DataFrame, columns: list[str]) -> np.ndarray:
    return frame[columns].to_numpy(dtype=np.float64)


def _select(frames: list[Delayed], kept: np.ndarray, rows: np.ndarray) -> Selection:
    """Pick sorted row positions out of the blocks that hold them."""
    bounds = np.searchsorted(rows, kept)
    picked: list[Delayed] = []
    sizes: list[int] = []
    for block, frame in enumerate(frames):
        local = rows[bounds[block] : bounds[block + 1]] - kept[block]
        if local.size:
            picked.append(delayed(_take)(frame, local))
            sizes.append(int(local.size))
    return Selection(tuple(picked), tuple(sizes))


def _take(frame: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    return frame.iloc[rows]


def _encode(selection: Selection, encoder: Encoder) -> da.Array:
    width = len(encoder.feature_names)
    pieces = [
        da.from_delayed(delayed(encoder.encode)(frame), (size, width), dtype=np.float64)
        for frame, size in zip(selection.frames, selection.sizes, strict=True)
    ]
    return da.concatenate(pieces, axis=0)


def _even(n: int, partitions: int) -> tuple[int, ...]:
    """Return the sizes of at most ``partitions`` chunks that differ by one row at most."""
    edges = np.linspace(0, n, min(partitions, n) + 1).round().astype(int)
    return tuple(int(size) for size in np.diff(edges))


def fit_statistics(train: Selection, config: DatasetConfig, request: Request) -> Statistics:
    """Fit everything on the training rows, with dask-ml where it gives what scikit-learn gives.

    Raises
    ------
    DataError
        When a column to be filled has no value in train.
    """
    try:
        from dask_ml.impute import SimpleImputer
        from dask_ml.preprocessing import Categorizer, StandardScaler
    except ModuleNotFoundError as error:
        raise explain_missing(error) or error from None

    features = config.features
    fill: dict[str, float] = {}
    for name, rule in filled_columns(config).items():
        column = train.array([name])
        if rule == "mean":
            fill[name] = float(SimpleImputer(strategy="mean").fit(column).statistics_[0])
        else:
            fill[name] = float(delayed(np.nanmedian)(delayed(column)).compute())
        refuse_empty(name, rule, fill[name], request.file)
    numeric = list(features.numeric)
    mean: dict[str, float] = {}
    scale: dict[str, float] = {}
    if numeric:
        values = train.array(numeric)
        missing = np.array([fill.get(name, np.nan) for name in numeric])
        scaler = StandardScaler().fit(da.where(da.isnan(values), missing, values))
        # A constant column's variance can come out as rounding noise instead of zero.
        noise = 10 * np.finfo(np.float64).eps * np.maximum(np.abs(scaler.mean_), 1)
        mean = dict(zip(numeric, map(float, scaler.mean_), strict=True))
        sizes = np.where(scaler.scale_ > noise, scaler.scale_, 1.0)
        scale = dict(zip(numeric, map(float, sizes), strict=True))
    edges: dict[str, tuple[float, ...]] = {}
    for name in features.quantile.columns if features.quantile else ():
        column = train.array([name])[:, 0]
        filled = da.where(da.isnan(column), fill.get(name, np.nan), column)
        bins = features.quantile.bins if features.quantile else 0
        edges[name] = delayed(quantile_edges)(delayed(filled), bins).compute()
    free = [name for name in features.categorical if name not in features.levels]
    levels: dict[str, tuple[str, ...]] = {}
    if free:
        pieces = [delayed(_levels)(frame, free) for frame in train.frames]
        empty = pd.DataFrame({name: pd.Series(dtype="str") for name in free})
        frame = dd.from_delayed(pieces, meta=empty, verify_meta=False)
        categorizer = Categorizer(columns=pd.Index(free)).fit(frame)
        for name in free:
            found = categorizer.categories_[name].categories
            levels[name] = unique_levels([pd.Series(found)])
    return Statistics(mean, scale, fill, edges, levels)


def _levels(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame({name: as_levels(frame[name]) for name in columns})
