"""What a split holds, as digests: results that were made of equal arrays have equal keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.prepare.embedding.variant import encode_versions
from fairfrontier.prepare.request import SplitRequest, Unseen
from fairfrontier.prepare.source.download import Progress
from fairfrontier.prepare.split import Part, Split
from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.source import file_digest
from fairfrontier.runtime.store import Store, canonical_json

KIND = "split"
# What prepares; that its bytes changed only asks for another look at the arrays.
PACKAGES = ("fairfrontier.prepare", "fairfrontier.runtime")
LIBRARIES = ("numpy", "pandas", "pyarrow", "scikit-learn", "scipy", "onnxruntime", "tokenizers")
FILE = "split.json"


@dataclass(frozen=True)
class SplitDigest:
    """What a split holds.

    Attributes
    ----------
    facts : str
        Digest of all that is no array: the names of dataset, features, classes and groups, the
        task, what is protected; and whether any part has weights and true groups.
    parts : mapping of str to mapping of str to str
        Part -> field -> digest. The fields are the arrays of `Part`, and of its counterfactual
        sets ``variants`` (features) and ``variant_groups``.
    """

    facts: str
    parts: Mapping[str, Mapping[str, str]]

    @property
    def whole(self) -> str:
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
    """Return what a split holds, from the store where it is known, else by preparing it.

    Parameters
    ----------
    request : SplitRequest
        Which split.
    store : Store
        Keeps digests under the fingerprint of what the split is made from, the request, and the
        bytes of the code that prepares.
    home : Path
        The project root.
    progress : callable, optional
        As ``fairfrontier.prepare.load`` takes it.

    Returns
    -------
    SplitDigest

    Raises
    ------
    FairfrontierError
        When the split cannot be prepared.

    Notes
    -----
    A look-up costs a millisecond, and microseconds once it was made in this process. Otherwise the
    split is prepared and every counterfactual version made once, O(bytes).
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
    found = digest_arrays(split)
    # Of a store that cannot be written nothing is asked but what it holds.
    with suppress(StoreError), store.writing(KIND, key, description) as work:
        content = {"facts": found.facts, "parts": found.parts}
        (work / FILE).write_text(canonical_json(content) + "\n", encoding="utf-8")
    return found


def digest_arrays(split: Split) -> SplitDigest:
    """Return the digests of what a split holds.

    Parameters
    ----------
    split : Split
        In memory.

    Returns
    -------
    SplitDigest

    Notes
    -----
    O(bytes), a copy of X at a time: of a counterfactual version only what it changes is hashed.
    ``Split.digest``, which names what the split was made from, is no part of it.
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
                "sets": {key: list(each.names) for key, each in part.counterfactuals.items()},
            }
            for name, part in split.parts()
        },
    }
    return SplitDigest(
        hashlib.sha256(canonical_json(_order(facts)).encode()).hexdigest(),
        {name: _digest_part(part) for name, part in split.parts()},
    )


def _order(value: Any) -> Any:
    """Keep the order of mappings, which sorted keys would forget: groups come in columns."""
    if isinstance(value, Mapping):
        return [[key, _order(each)] for key, each in value.items()]
    return [_order(each) for each in value] if isinstance(value, list | tuple) else value


def _digest_part(part: Part) -> dict[str, str]:
    fields = ("ids", "X", "y", "groups", "protected", "weight", "true_groups")
    known = {name: getattr(part, name) for name in fields}
    digests = {name: _hash(array) for name, array in known.items() if array is not None}
    if part.counterfactuals:
        digests |= _digest_versions(part)
    return digests


def _digest_versions(part: Part) -> dict[str, str]:
    """Return the digests of what the versions change: the rows, the columns, what stands there."""
    variants, groups = hashlib.sha256(), hashlib.sha256()
    for each in part.counterfactuals.values():
        _add(variants, np.arange(part.n_samples) if each.rows is None else each.rows)
        for variant in each:
            for digest, array, plain in (
                (variants, variant.X, part.X),
                (groups, variant.groups, part.groups),
            ):
                changed = array != plain
                rows = np.flatnonzero(changed.any(axis=1))
                columns = np.flatnonzero(changed.any(axis=0))
                for some in (rows, columns, array[np.ix_(rows, columns)]):
                    _add(digest, some)
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
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
