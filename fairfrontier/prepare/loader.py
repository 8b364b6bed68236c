"""The function of this stage: a dataset's name or YAML in, a Split out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import (
    check_columns,
    expand_rest,
    read_dataset,
    replace_noise,
)
from fairfrontier.prepare.embedding.feature import TextFeatures, fit_text
from fairfrontier.prepare.embedding.variant import add_versions
from fairfrontier.prepare.size import check_room
from fairfrontier.prepare.source.fetch import fetch_source
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.prepare.split import Split
from fairfrontier.prepare.splitting.encoder import Encoder, fit_statistics, make_encoder
from fairfrontier.prepare.splitting.plan import Plan, Request, SelectOn, make_plan
from fairfrontier.prepare.table.rows import (
    Table,
    list_compared,
    list_levels,
    refuse_absent,
    type_rows,
)
from fairfrontier.prepare.text.corpus import read_corpus
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.finder import find_yaml, list_names
from fairfrontier.runtime.home import find_home

Backend = Literal["numpy", "dask"]


def load(
    name: str | Path,
    seed: int = 0,
    *,
    rows: int | None = None,
    select_on: SelectOn | None = None,
    home: Path | str | None = None,
    backend: Backend = "numpy",
    partitions: int | None = None,
    noise: float | None = None,
    progress: Progress | None = None,
) -> Split:
    """Load a dataset as a Split; files that its YAML names sources for are fetched first.

    Parameters
    ----------
    name : str or Path
        A name of ``conf/datasets``, the project's or the package's, or the path of a YAML file.
    seed : int
        Which split: an index into the dataset's list of seeds where it has one.
    rows : int, optional
        Keep a seeded sample of at most that many training rows.
    select_on : {"train", "validation"}, optional
        ``"validation"`` takes a validation part out of train where the dataset has none.
    home : Path, optional
        The project; found from the current folder by default.
    backend : {"numpy", "dask"}
        ``"dask"``: every array of every part is a Dask array, all with the same partitions. Rows
        of a part are then in the table's order, whatever the split's kind.
    partitions : int, optional
        Partitions of each part (dask only); as the files are read by default.
    noise : float, optional
        Share of rows whose group is wrong, in place of the shares under the YAML's
        ``perturb: noisy_groups``, which lists the attributes.
    progress : callable, optional
        Called with (name, bytes that arrived, bytes in total or None) while a file is fetched, and
        with (name, texts done, texts in total) while texts are cleaned and encoded.

    Returns
    -------
    Split

    Raises
    ------
    ConfigError
        When the YAML is invalid, or names a column that does not exist.
    DataError
        When the table is not what the YAML promises.

    Notes
    -----
    O(bytes + n · n_features). Encoders are fitted on training rows only, without validation rows.
    An unseen level of an ordinary categorical column encodes as zeros; one of a protected
    attribute is an error.
    """
    check_request(seed, rows, select_on, backend, partitions)
    request = make_request(name, seed, rows, select_on, home, noise, progress)
    if backend == "dask":
        from fairfrontier.prepare.collection import load_collection

        return load_collection(request, partitions)
    return fit_table(request, progress).encode()


def make_request(
    name: str | Path,
    seed: int = 0,
    rows: int | None = None,
    select_on: SelectOn | None = None,
    home: Path | str | None = None,
    noise: float | None = None,
    progress: Progress | None = None,
) -> Request:
    """Read a dataset's YAML and fetch its files; the parameters are those of `load`."""
    root = Path(home).resolve() if home is not None else find_home()
    path = find_yaml("dataset", name, root)
    config = replace_noise(read_dataset(path, root), noise, path)
    if path in list_names("dataset", root).values() and path.stem != config.dataset:
        raise ConfigError(
            f"{path}: dataset: the file calls itself {config.dataset!r}.",
            f"Call it {path.stem!r}, as the file is named.",
        )
    source = fetch_source(config.source, path, root, progress)
    config = config.model_copy(update={"source": source})
    return Request(config, path, root, seed, rows, select_on)


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A table in memory with all that was fitted on its training rows.

    ``raw`` is the table as read, and ``frame`` its used columns of the rows that are kept, both
    indexed by row number; ``request`` names all columns that its configuration uses.
    """

    request: Request
    raw: Table
    frame: pd.DataFrame
    plan: Plan
    encoder: Encoder
    text: TextFeatures | None

    def encode(self) -> Split:
        """Encode every part."""
        plan, encoder, text = self.plan, self.encoder, self.text
        rows = sum(positions.size for positions in plan.parts.values())
        check_room(rows, len(encoder.feature_names), self.request.file)
        edits = plan.edits(encoder)
        parts = {}
        for key, positions in plan.parts.items():
            selected = self.frame.iloc[positions]
            part = plan.part(key, positions, encoder.encode(selected), edits)
            if text is not None:
                part = add_versions(part, selected, self.request, encoder, text)
            parts[key] = part
        digest = self.request.digest(self.raw.digests, None if text is None else text.digest)
        split = plan.split(encoder, parts, digest)
        return split if text is None else split.replace(text_encoder=text.name)


def fit_table(request: Request, progress: Progress | None = None) -> FittedTable:
    """Read a table, decide its parts, and fit the encoder on its training rows."""
    config, root, path = request.config, request.home, request.file
    table = read_corpus(config, root, path, progress)
    check_columns(config, table.frame.columns, path)
    config = expand_rest(config, table.frame.columns)
    request = replace(request, config=config)
    keep = config.rows.keep
    refuse_absent(list_levels(table.frame, list_compared(keep)), keep, "rows.keep", path)
    frame = type_rows(table.frame, config, path)
    plan = make_plan(frame, request)
    frame = frame.assign(**plan.group_columns(slice(None)))
    if config.text is not None:
        frame[config.text.column] = table.frame.loc[frame.index, config.text.column]
    train = frame.iloc[plan.parts["train"]]
    used = frame.iloc[np.sort(np.concatenate(list(plan.parts.values())))]
    text = fit_text(config, table.frame, train, used, root, path, progress)
    statistics = fit_statistics(train, config, path)
    block = None if text is None else text.block
    encoder = make_encoder(config, statistics, plan.group_names, path, block)
    return FittedTable(request, table, frame, plan, encoder, text)


def check_request(
    seed: int, rows: int | None, select_on: str | None, backend: str, partitions: int | None
) -> None:
    """Raise a ConfigError for invalid parameters of `load`."""
    if not isinstance(seed, Integral) or seed < 0:
        raise ConfigError(f"seed is {seed!r}.", "Give a whole number, 0 or more.")
    for name, number in {"rows": rows, "partitions": partitions}.items():
        if number is not None and number < 1:
            raise ConfigError(f"{name} is {number}.", "Give 1 or more, or leave it out.")
    if select_on not in (None, "train", "validation"):
        raise ConfigError(
            f"select_on is {select_on!r}.", nearest(str(select_on), ("train", "validation"))
        )
    if backend not in ("numpy", "dask"):
        raise ConfigError(f"backend is {backend!r}.", nearest(str(backend), ("numpy", "dask")))
    if partitions is not None and backend != "dask":
        raise ConfigError("partitions is given without backend='dask'.", "Leave it out.")
