"""Digests of the content of a split: results made from equal arrays have equal keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.prepare.config.dataset import list_pairs
from fairfrontier.prepare.embedding.variant import encode_versions
from fairfrontier.prepare.request import SplitRequest, Unseen
from fairfrontier.prepare.source.progress import Progress
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.source import file_digest
from fairfrontier.runtime.store import Store, canonical_json

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
    return {"fingerprint": fingerprint, "source": file_digest(PACKAGES), "libraries": _versions()}


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


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
