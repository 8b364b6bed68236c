"""The function of this stage: a dataset's name or YAML in, a Split out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairfrontier.prepare.config.dataset import (
    DatasetConfig,
    check_columns,
    expand_rest,
    list_pairs,
    mention_columns,
    read_dataset,
    replace_noise,
)
from fairfrontier.prepare.config.section import Source
from fairfrontier.prepare.embedding.feature import (
    TextFeatures,
    add_versions,
    digest_text,
    encode_versions,
    fit_text,
)
from fairfrontier.prepare.source.fetch import fetch_source, peek
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.prepare.split import Part, Split
from fairfrontier.prepare.splitting.encoder import (
    Block,
    Encoder,
    fit_column,
    list_fitted,
    make_encoder,
)
from fairfrontier.prepare.splitting.plan import Plan, Request, SelectOn, make_plan
from fairfrontier.prepare.table.reader import Piece, cut_table, list_sources, reading
from fairfrontier.prepare.table.rows import (
    Table,
    join_dummies,
    list_compared,
    list_levels,
    refuse_absent,
    type_rows,
    used_columns,
)
from fairfrontier.prepare.text.corpus import read_corpus
from fairfrontier.runtime.cached import cached_by_files
from fairfrontier.runtime.cluster.executor import count_memory
from fairfrontier.runtime.errors import ConfigError, DataError, StoreError, need, refuse_unknown
from fairfrontier.runtime.finder import find_yaml, list_names
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.source import file_digest
from fairfrontier.runtime.store import Store, canonical_json, hash_file
from fairfrontier.runtime.version import version

# Bytes of memory for a cell of a Parquet file, and for a byte of text: as read, and encoded.
CELL, TEXT_BYTE = 64, 10
# A compressed file grows to about so many times its size.
GROWTH = 4
# The share of this machine's memory above which ``memory: auto`` leaves rows in their files.
SHARE = 0.5


def stays_in_files(config: DatasetConfig, file: Path, home: Path) -> bool:
    """Return whether a dataset is prepared as a collection of partitions, not in memory.

    So it is with ``memory: dask``; and with ``auto`` where the estimate exceeds half of the memory
    of this machine, unless it has texts or votes, which only tables in memory have.
    """
    if config.memory == "dask":
        return True
    if config.text or config.source.votes:
        return False
    return estimate_bytes(config.source, home, file.parent) > SHARE * count_memory()


def check_room(rows: int, features: int, file: Path) -> None:
    """Raise a ConfigError where encoded rows would take more than ``SHARE`` of the memory."""
    wanted, memory = 8 * rows * features, count_memory()
    if wanted > SHARE * memory:
        raise ConfigError(
            f"{file}: features makes {features:,} columns of X, which of {rows:,} rows take "
            f"{wanted / 2**30:.1f} of the {memory / 2**30:.1f} GiB of this machine.",
            "Leave columns out, or set memory: dask.",
        )


def estimate_bytes(source: Source, home: Path, folder: Path) -> int:
    """Return about how much memory a table takes, in bytes: 64 a cell, or 10 a byte of text.

    Reads footers of Parquet files and sizes of others; of files that are yet to be fetched it takes
    the ``bytes`` of their sources as text, which count 0 where none are given.
    """
    total = 0
    for file in source.path:
        if not file.sources:
            paths = list_sources(file, source, home, folder)
        elif (here := peek(file, home, folder)) is not None:
            paths = [here]
        else:
            total += TEXT_BYTE * max(origin.bytes or 0 for origin in file.sources)
            continue
        for path in paths:
            if source.format == "parquet":
                total += CELL * _count_cells(path)
            else:
                grown = GROWTH if path.suffix in (".gz", ".zip") else 1
                total += TEXT_BYTE * grown * path.stat().st_size
    return total


def _count_cells(path: Path) -> int:
    import pyarrow.parquet as pq

    with reading(path):
        facts = pq.read_metadata(path)
    return int(facts.num_rows) * int(facts.num_columns)


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


def name_columns(request: Request, columns: Iterable[str]) -> Request:
    """Return a request that names all columns of a table that it uses, which are checked."""
    columns = [*columns]
    check_columns(request.config, columns, request.file)
    return replace(request, config=expand_rest(request.config, columns))


def fit_table(request: Request, progress: Progress | None = None) -> FittedTable:
    """Read a table, decide its parts, and fit the encoder on its training rows."""
    root, path = request.home, request.file
    table = read_corpus(request.config, root, path, progress)
    request = name_columns(request, table.frame.columns)
    config, keep = request.config, request.config.rows.keep
    refuse_absent(list_levels(table.frame, list_compared(keep)), keep, "rows.keep", path)
    frame = type_rows(table.frame, config, path)
    plan = make_plan(frame, request)
    frame = frame.assign(**plan.group_columns(slice(None)))
    if config.text is not None:
        frame[config.text.column] = table.frame.loc[frame.index, config.text.column]
    train = frame.iloc[plan.parts["train"]]
    used = frame.iloc[np.sort(np.concatenate(list(plan.parts.values())))]
    text = fit_text(config, table.frame, train, used, root, path, progress)
    fitted = {
        name: fit_column(train[name], config, path)
        for names in list_fitted(config).values()
        for name in names
    }
    block = None if text is None else text.block
    encoder = make_encoder(config, fitted, plan.group_names, path, block)
    return FittedTable(request, table, frame, plan, encoder, text)


def load_collection(
    request: Request, partitions: int | None = None, *, only_features: bool = False
) -> Split:
    """Load a dataset larger than memory, as Dask arrays of blocks that workers hold; see `load`.

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
    need("dask")
    import dask
    import dask.array as da
    from dask.delayed import delayed

    source, file = request.config.source, request.file
    if request.config.text or source.votes:
        raise ConfigError(
            f"{file}: the backend dask supports neither texts nor votes.",
            "Leave out backend, or memory in the YAML.",
        )
    found = cut_table(source, request.home, file.parent)
    request = name_columns(request, (*found.columns, *source.dummies))
    config, keep = request.config, request.config.rows.keep
    compared, deciding = list_compared(keep), _list_deciding(config)
    raw = [delayed(_read)(piece, config, file) for piece in found.pieces]
    frames = [delayed(type_rows)(frame, config, file) for frame in raw]
    wanted = [
        (delayed(len)(whole), delayed(list_levels)(whole, compared), typed[deciding])
        for whole, typed in zip(raw, frames, strict=True)
    ]
    # The first pass over all blocks meets what is broken in any.
    sizes, seen, pieces = zip(*dask.compute(wanted)[0], strict=True)
    if sum(sizes) == 0:
        raise DataError(f"{file}: the table holds no rows.", "Check that it is complete.")
    present = {name: set[str]().union(*(each[name] for each in seen)) for name in compared}
    refuse_absent(present, keep, "rows.keep", file)
    numbered = zip(pieces, np.cumsum([0, *sizes]), strict=False)
    plan = make_plan(
        pd.concat([piece.set_index(piece.index + start) for piece, start in numbered]), request
    )
    order = plan.parts["train"]
    plan = replace(plan, parts={name: np.sort(rows) for name, rows in plan.parts.items()})
    kept = np.cumsum([0, *map(len, pieces)])
    frames = [
        frame.assign(**plan.group_columns(slice(start, end)))
        for frame, (start, end) in zip(frames, pairwise(kept), strict=True)
    ]

    def select(rows: np.ndarray) -> list[tuple[Any, int]]:
        """Take sorted row positions from the blocks that contain them, with their number."""
        spans = zip(frames, pairwise(np.searchsorted(rows, kept)), kept, strict=False)
        return [
            (frame.iloc[rows[first:last] - start], int(last - first))
            for frame, (first, last), start in spans
            if last > first
        ]

    train = [frame for frame, _ in select(plan.parts["train"])]
    place = np.searchsorted(plan.parts["train"], order)
    (fitted,) = dask.compute(
        {
            name: delayed(_fit)([frame[name] for frame in train], place, config, file)
            for names in list_fitted(config).values()
            for name in names
        }
    )
    encoder = make_encoder(config, fitted, plan.group_names, file)
    edits, width, parts = plan.edits(encoder), len(encoder.feature_names), {}
    for name, rows in plan.parts.items():
        encoded = [
            da.from_delayed(delayed(encoder.encode)(frame), (size, width), dtype=np.float64)
            for frame, size in select(rows)
        ]
        X = da.concatenate(encoded, axis=0)
        if partitions is not None:
            edges = np.linspace(0, rows.size, min(partitions, rows.size) + 1).round().astype(int)
            X = X.rechunk((tuple(np.diff(edges).tolist()), width))
        convert = np.asarray if only_features else partial(_chunk, rows=X.chunks[0])
        parts[name] = plan.part(name, rows, X, edits, convert)
    return plan.split(encoder, parts, request.digest(found.digests))


def _read(piece: Piece, config: DatasetConfig, file: Path) -> pd.DataFrame:
    return join_dummies(piece.read(), config.source, file)


def _fit(
    cells: list[pd.Series], place: np.ndarray, config: DatasetConfig, file: Path
) -> dict[str, Block]:
    return fit_column(pd.concat(cells, ignore_index=True).iloc[place], config, file)


def _chunk(array: np.ndarray, rows: tuple[int, ...]) -> Any:
    """Return an array of the calling process as a Dask array with the chunks of X."""
    import dask.array as da

    return da.from_array(array, chunks=(rows, *((size,) for size in array.shape[1:])))


def _list_deciding(config: DatasetConfig) -> list[str]:
    """Return the columns that decide the split: all but plain features."""
    mentions, (_, levels) = mention_columns(config), used_columns(config)
    keys = ["label.column", "features.binary", "groups", "protected", "split.of", "weight"]
    keys.append("split.column")
    names = [name for key in keys for name in mentions[key]]
    return list(
        dict.fromkeys([*names, *(name for name in mentions["counterfactuals"] if name in levels)])
    )


def check_request(
    seed: int, rows: int | None, select_on: str | None, backend: str, partitions: int | None
) -> None:
    """Raise a ConfigError for invalid parameters of `load`."""
    if not isinstance(seed, Integral) or seed < 0:
        raise ConfigError(f"seed is {seed!r}.", "Give a whole number, 0 or more.")
    for name, number in {"rows": rows, "partitions": partitions}.items():
        if number is not None and number < 1:
            raise ConfigError(f"{name} is {number}.", "Give 1 or more, or leave it out.")
    for name, value, known in (
        ("select_on", select_on, ("train", "validation")),
        ("backend", backend, ("numpy", "dask")),
    ):
        refuse_unknown([] if value is None else [value], known, f"{name} is")
    if partitions is not None and backend != "dask":
        raise ConfigError("partitions is given without backend='dask'.", "Leave it out.")


@dataclass(frozen=True)
class SplitRequest:
    """The arguments of `fairfrontier.prepare.loader.load` that identify a split."""

    dataset: str
    seed: int = 0
    rows: int | None = None
    select_on: SelectOn | None = None
    noise: float | None = None

    def fingerprint(self, home: Path) -> str:
        """Return a digest of the raw files, of what shapes the arrays, and of the request.

        Requests with the same fingerprint give the same arrays, as long as the code of this stage
        stays the same. Every raw file is read, O(bytes), except for those with ``sources``, whose
        stated digest is taken. This determines which encoder of texts ``auto`` means, and may fetch
        it.
        """
        return _fingerprint(self, home)

    def is_collection(self, home: Path) -> bool:
        """Return whether the rows stay in the table's files; see `stays_in_files`."""
        return _is_collection(self.dataset, home)

    def load(self, home: Path, progress: Progress | None = None) -> Split:
        """Return the split, X of a collection as Dask arrays; the last few are kept."""
        return _load(self, home, self.fingerprint(home), Unseen(progress))


@dataclass(frozen=True)
class Unseen:
    """An argument that a cache ignores."""

    value: Any = field(compare=False)


@lru_cache(maxsize=4)
def _load(
    request: SplitRequest,
    home: Path,
    digest: str,  # an edited table or YAML is another split
    progress: Unseen,
) -> Split:
    arguments = {**asdict(request), "home": home, "progress": progress.value}
    if request.is_collection(home):
        asked = make_request(arguments.pop("dataset"), **arguments)
        split = load_collection(asked, only_features=True)
    else:
        split = load(arguments.pop("dataset"), **arguments)
    if request.fingerprint(home) != digest:
        raise DataError(
            f"The table or the YAML of {request.dataset} changed while it was read.",
            "Run again when no other program writes to it.",
        )
    return split


@cached_by_files
def _is_collection(dataset: str, home: Path) -> bool:
    path = find_yaml("dataset", dataset, home)
    return stays_in_files(read_dataset(path, home), path, home)


@cached_by_files
def _fingerprint(request: SplitRequest, home: Path) -> str:
    path = find_yaml("dataset", request.dataset, home)
    config = replace_noise(read_dataset(path, home), request.noise, path)
    files: list[str] = []
    for file in config.source.files:
        if file.sources:
            # Loading refuses any other file.
            files.append(str(file.sha256))
        else:
            files.extend(map(hash_file, list_sources(file, config.source, home, path.parent)))
    feature = config.features.text
    text = None if feature is None else digest_text(feature, home, path)
    asked = Request(config, path, home, request.seed, request.rows, request.select_on)
    memory = "dask " if request.is_collection(home) else ""
    return memory + asked.digest(tuple(files), text)


KIND = "split"
# When the source of these changes, arrays are hashed again.
PACKAGES = ("fairfrontier.prepare", "fairfrontier.runtime")
LIBRARIES = ("numpy", "pandas", "pyarrow", "scikit-learn", "scipy", "onnxruntime", "tokenizers")
FILE = "split.json"


@dataclass(frozen=True)
class SplitDigest:
    """The digests of a split: of its facts, and of the fields of its parts.

    ``facts`` is the digest of all that is no array: the names of dataset, features, classes and
    groups, the task, what is protected; and whether any part has weights and true groups. ``parts``
    maps part -> field -> digest; the fields are the arrays of `Part`, and of its counterfactual
    sets ``variants`` (features) and ``variant_groups``.
    """

    facts: str
    parts: Mapping[str, Mapping[str, str]]

    @property
    def total(self) -> str:
        """The digest of everything."""
        return self.select(lambda _, __: True)

    def select(self, wanted: Callable[[str, str], bool]) -> str:
        """Return the digest of the facts, and of the fields for which ``wanted(part, field)``."""
        chosen = {
            part: {field: digest for field, digest in fields.items() if wanted(part, field)}
            for part, fields in self.parts.items()
        }
        text = canonical_json({"facts": self.facts, "parts": chosen})
        return hashlib.sha256(text.encode()).hexdigest()


def digest_split(
    request: SplitRequest, store: Store, home: Path, progress: Progress | None = None
) -> SplitDigest:
    """Return the digests of a split, from the store or by preparing it.

    The store has them under the fingerprint of what the split is made from, the request, and the
    source of this room. A look-up costs a millisecond, and microseconds when repeated in a process;
    else the split is prepared and every counterfactual version made once, O(bytes).
    """
    return _digest(request, request.fingerprint(home), store.folder, home, Unseen(progress))


def knows_split(request: SplitRequest, store: Store, home: Path) -> bool:
    """Return whether the store has a split's digest, so that it need not be prepared for that."""
    description = _describe(request.fingerprint(home))
    return store.path(KIND, store.key(KIND, description)).is_dir()


def _describe(fingerprint: str) -> dict[str, Any]:
    libraries = {}
    for name in LIBRARIES:
        # Those of texts may not be installed.
        with suppress(PackageNotFoundError):
            libraries[name] = version(name)
    return {"fingerprint": fingerprint, "source": file_digest(PACKAGES), "libraries": libraries}


@lru_cache(maxsize=4096)
def _digest(
    request: SplitRequest, fingerprint: str, folder: Path, home: Path, progress: Unseen
) -> SplitDigest:
    store = Store(folder)
    description = _describe(fingerprint)
    key = store.key(KIND, description)
    entry = store.read(KIND, key)
    if entry is not None:
        return SplitDigest(**json.loads((entry / FILE).read_text(encoding="utf-8")))
    split = request.load(home, progress.value)
    # All texts at once, with all cores; versions are then looked up.
    encode_versions(split, progress.value)
    made_from = canonical_json(description) if request.is_collection(home) else ""
    digest = digest_arrays(split, made_from)
    # A store that cannot be written is still read.
    with suppress(StoreError), store.writing(KIND, key, description) as work:
        (work / FILE).write_text(canonical_json(asdict(digest)) + "\n", encoding="utf-8")
    return digest


def digest_arrays(split: Split, made_from: str = "") -> SplitDigest:
    """Return the digests of a split; O(bytes) in memory, with a copy of X at a time.

    Of a counterfactual version only what it changes is hashed. ``Split.digest``, which names what
    the split was made from, is no part of it. Features of a collection are not made for this: what
    they are ``made_from`` stands for them, with the sizes of their partitions.
    """
    facts: dict[str, Any] = {
        "dataset": split.dataset,
        "seed": split.seed,
        "task": split.task,
        "feature_names": split.feature_names,
        "protected_columns": split.protected_columns,
        "protected_kinds": split.protected_kinds,
        "favourable": split.favourable,
        **({} if split.train.units == (0.0, 1.0) else {"units": split.train.units}),
        "parts": {
            name: {
                "attributes": part.attributes,
                "classes": part.classes,
                "weighted": bool(np.ptp(part.weight) > 0),
                "noisy": part.true_groups is not None,
                "sets": {key: list(sets.names) for key, sets in part.counterfactuals.items()},
            }
            for name, part in split.parts()
        },
    }
    return SplitDigest(
        hashlib.sha256(canonical_json(list_pairs(facts)).encode()).hexdigest(),
        {name: _digest_part(part, made_from) for name, part in split.parts()},
    )


def _digest_part(part: Part, made_from: str) -> dict[str, str]:
    fields = ("ids", "X", "y", "groups", "protected", "weight", "true_groups")
    arrays = {name: getattr(part, name) for name in fields}
    lazy = {}
    if made_from:
        text = f"{made_from} {part.name} {arrays.pop('X').chunks}"
        fields = ("X", *(("variants", "variant_groups") if part.counterfactuals else ()))
        lazy = dict.fromkeys(fields, hashlib.sha256(text.encode()).hexdigest())
    digests = {name: _hash(array) for name, array in arrays.items() if array is not None}
    if part.counterfactuals and not lazy:
        digests |= _digest_versions(part)
    return digests | lazy


def _digest_versions(part: Part) -> dict[str, str]:
    """Return the digests of what the versions change: rows, columns, and new values."""
    variants, groups = hashlib.sha256(), hashlib.sha256()
    for sets in part.counterfactuals.values():
        _add(variants, np.arange(part.n_samples) if sets.rows is None else sets.rows)
        for variant in sets:
            for digest, array, original in (
                (variants, variant.X, part.X),
                (groups, variant.groups, part.groups),
            ):
                changed = array != original
                rows = np.flatnonzero(changed.any(axis=1))
                columns = np.flatnonzero(changed.any(axis=0))
                for piece in (rows, columns, array[np.ix_(rows, columns)]):
                    _add(digest, piece)
    return {"variants": variants.hexdigest(), "variant_groups": groups.hexdigest()}


def _hash(array: np.ndarray) -> str:
    digest = hashlib.sha256()
    _add(digest, array)
    return digest.hexdigest()


def _add(digest: hashlib._Hash, array: np.ndarray) -> None:
    digest.update(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
