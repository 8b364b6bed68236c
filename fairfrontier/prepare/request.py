"""Which split is requested: a dataset, a seed, and how much of it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fairfrontier.prepare.config.dataset import read_dataset, replace_noise
from fairfrontier.prepare.embedding.feature import digest_text
from fairfrontier.prepare.loader import load, make_request
from fairfrontier.prepare.size import stays_in_files
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.prepare.split import Split
from fairfrontier.prepare.splitting.plan import SelectOn
from fairfrontier.prepare.table.file import list_sources
from fairfrontier.runtime.errors import DataError
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.recall import recall
from fairfrontier.runtime.store import canonical_json, hash_file


@dataclass(frozen=True)
class SplitRequest:
    """The arguments of `fairfrontier.prepare.loader.load` that identify a split."""

    dataset: str
    seed: int = 0
    rows: int | None = None
    select_on: SelectOn | None = None
    noise: float | None = None

    def fingerprint(self, home: Path) -> str:
        """Return the sha256 of the raw files, of what shapes the arrays, and of the request.

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


class Unseen:
    """An argument that a cache ignores."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unseen)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=4)
def _load(
    request: SplitRequest,
    home: Path,
    digest: str,  # an edited table or YAML is another split
    progress: Unseen,
) -> Split:
    arguments = asdict(request)
    arguments |= {"home": home, "progress": progress.value}
    if request.is_collection(home):
        from fairfrontier.prepare.collection import load_collection

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


@recall
def _is_collection(dataset: str, home: Path) -> bool:
    path = find_yaml("dataset", dataset, home)
    return stays_in_files(read_dataset(path, home), path, home)


@recall
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
    description: dict[str, Any] = {
        "files": files,
        "config": config.shape(),
        "seed": request.seed,
        "rows": request.rows,
        "select_on": request.select_on,
    }
    if request.is_collection(home):
        description["memory"] = "dask"
    if config.features.text is not None:
        description["text"] = digest_text(config.features.text, home, path)
    return hashlib.sha256(canonical_json(description).encode()).hexdigest()
