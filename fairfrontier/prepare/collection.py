"""Datasets larger than memory: the same Split, of blocks that Dask's workers hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd
from dask.delayed import Delayed, delayed

from fairfrontier.prepare.config.dataset import DatasetConfig, check_columns, expand_rest
from fairfrontier.prepare.split import Split
from fairfrontier.prepare.splitting.encoder import (
    Statistics,
    Wanted,
    fit_column,
    list_wanted,
    make_encoder,
)
from fairfrontier.prepare.splitting.plan import Request, make_plan
from fairfrontier.prepare.table.reader import Piece, cut_table
from fairfrontier.prepare.table.rows import (
    join_dummies,
    list_compared,
    list_levels,
    refuse_absent,
    type_rows,
    used_columns,
)
from fairfrontier.runtime.errors import ConfigError, DataError


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
    process; features never do. The source is read once for those, once for
    the statistics of features, and then whenever X is computed: persist X to keep it. A column that
    has statistics is gathered on one worker, in the order of the rows in memory: its statistics,
    and all that is encoded by them, are the same bits as in memory.
    """
    if request.config.text or request.config.source.votes:
        raise ConfigError(
            f"{request.file}: the backend dask supports neither texts nor votes.",
            "Leave out backend, or memory in the YAML.",
        )
    source, file = request.config.source, request.file
    found = cut_table(source, request.home, file.parent)
    columns = (*found.columns, *source.dummies)
    check_columns(request.config, columns, file)
    config = expand_rest(request.config, columns)
    request = replace(request, config=config)
    raw = [delayed(_read)(piece, config, file) for piece in found.pieces]
    prepared = [delayed(type_rows)(frame, config, file) for frame in raw]
    lengths = [delayed(len)(frame) for frame in raw]
    keep = config.rows.keep
    compared = list_compared(keep)
    levels = [delayed(list_levels)(frame, compared) for frame in raw]
    small = _small_columns(config)
    # The first pass over all blocks meets what is broken in any.
    sizes, seen, pieces = dask.compute(lengths, levels, [frame[small] for frame in prepared])
    if sum(sizes) == 0:
        raise DataError(f"{file}: the table holds no rows.", "Check that it is complete.")
    present = {name: set[str]().union(*(each[name] for each in seen)) for name in compared}
    refuse_absent(present, keep, "rows.keep", file)
    starts = np.cumsum([0, *sizes])
    numbered = zip(pieces, starts, strict=False)
    plan = make_plan(
        pd.concat([piece.set_index(piece.index + start) for piece, start in numbered]), request
    )
    order = plan.parts["train"]
    plan = replace(plan, parts={name: np.sort(rows) for name, rows in plan.parts.items()})
    kept = np.cumsum([0, *map(len, pieces)])
    frames = [
        frame.assign(**plan.group_columns(slice(start, end)))
        for frame, (start, end) in zip(prepared, pairwise(kept), strict=True)
    ]
    train = _select(frames, kept, plan.parts["train"])
    place = np.searchsorted(plan.parts["train"], order)
    fitted = {
        name: delayed(_fit)([frame[name] for frame in train.frames], place, wanted, file)
        for name, wanted in list_wanted(config).items()
    }
    (statistics,) = dask.compute(fitted)
    encoder = make_encoder(config, statistics, plan.group_names, file)
    edits = plan.edits(encoder)
    parts = {}
    for name, rows in plan.parts.items():
        X = _select(frames, kept, rows).array(encoder.encode, len(encoder.feature_names))
        if partitions is not None:
            X = X.rechunk((_even(rows.size, partitions), X.shape[1]))
        convert = np.asarray if only_features else partial(_chunk, rows=X.chunks[0])
        parts[name] = plan.part(name, rows, X, edits, convert)
    return plan.split(encoder, parts, request.digest(found.digests))


def _read(piece: Piece, config: DatasetConfig, file: Path) -> pd.DataFrame:
    return join_dummies(piece.read(), config.source, file)


def _fit(cells: list[pd.Series], place: np.ndarray, wanted: Wanted, file: Path) -> Statistics:
    return fit_column(pd.concat(cells, ignore_index=True).iloc[place], wanted, file)


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
