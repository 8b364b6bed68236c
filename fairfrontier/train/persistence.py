"""Fitted models on disk without pickle: npz, UBJ for boosters, skops for learners, JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from fairfrontier.runtime.errors import FairfrontierError, StoreError
from fairfrontier.runtime.writer import filling, recover
from fairfrontier.train.booster import read_booster
from fairfrontier.train.node import is_tree

MANIFEST = "manifest.json"
FORMAT = 2
# What an archive may unpack to: so many times its own bytes, where that is more than this many.
MOST_EXPANSION, SMALL_BYTES = 100, 2**26
# In addition to NumPy's and scikit-learn's types, which skops trusts. Code that loads trees checks
# their nodes: scikit-learn follows the indices in them unchecked.
TRUSTED = (
    "sklearn.tree._tree.Tree",
    "fairfrontier.train.individual.fair_boosting.newton_tree.NewtonTree",
    "fairfrontier.train.individual.fair_boosting.spline.Spline",
)


@dataclass(frozen=True)
class State:
    """The fitted attributes of a model, by name.

    ``arrays`` have no object dtypes, ``boosters`` are XGBoost's, ``learners`` are fitted estimators
    of scikit-learn, and ``facts`` are numbers, strings, and lists and mappings of them.
    """

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    boosters: Mapping[str, Any] = field(default_factory=dict)
    learners: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def _digest(path: Path) -> str:
    if not path.is_file():
        # A pipe would be waited for, and a device never end.
        raise FileNotFoundError(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_manifest(folder: Path) -> Any:
    """Return the manifest of a saved model."""
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(folder / MANIFEST)
    return json.loads((folder / MANIFEST).read_text())


def write_state(folder: Path, name: str, parameters: Mapping[str, Any], state: State) -> Path:
    """Write a model into a new or empty folder, all at once."""
    if folder.is_dir() and any(folder.iterdir()):
        raise StoreError(f"The folder {folder} is not empty.", "Save the model to a new one.")
    with filling(folder, what="model", mend="Choose a folder that can be written.") as work:
        if state.arrays:
            np.savez(work / "arrays.npz", allow_pickle=False, **dict(state.arrays))
        for key, booster in state.boosters.items():
            booster.save_model(work / f"{key}.ubj")
        for key, learner in state.learners.items():
            import skops.io

            path = work / f"{key}.skops"
            skops.io.dump(learner, path, compression=ZIP_DEFLATED, compresslevel=1)
        manifest = {
            "format": FORMAT,
            "method": name,
            "parameters": dict(parameters),
            "facts": dict(state.facts),
            "files": {path.name: _digest(path) for path in sorted(work.iterdir())},
        }
        # A grid search sets parameters to NumPy scalars.
        text = json.dumps(manifest, sort_keys=True, indent=1, default=np.generic.item)
        (work / MANIFEST).write_text(f"{text}\n")
    return folder


def read_state(folder: Path, name: str) -> tuple[dict[str, Any], State]:
    """Read a model's parameters and state, checking the method's name and every digest."""
    mend = "Train it again, or restore the folder from where it was saved."
    recover(folder)
    with reading(folder, mend):
        manifest = read_manifest(folder)
        arrays: dict[str, np.ndarray] = {}
        boosters: dict[str, Any] = {}
        learners: dict[str, Any] = {}
        if manifest["method"] != name or manifest["format"] != FORMAT:
            raise StoreError(
                f"{folder} holds the method {manifest['method']!r} in format "
                f"{manifest['format']}, not {name!r} in format {FORMAT}.",
                "Load it with the class that saved it.",
            )
        for listed, digest in manifest["files"].items():
            path = folder / Path(listed).name
            if _digest(path) != digest:
                raise StoreError(f"The file {path} is not what was saved.", mend)
            if path.suffix == ".ubj":
                boosters[path.stem] = read_booster(path)
            elif path.suffix == ".skops":
                learners[path.stem] = _read_learner(path)
        if "arrays.npz" in manifest["files"]:
            path = folder / "arrays.npz"
            _check_expansion(path)
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {key: _check_array(stored[key]) for key in stored.files}
        return manifest["parameters"], State(arrays, boosters, learners, manifest["facts"])


@contextmanager
def reading(folder: Path, mend: str) -> Iterator[None]:
    """Raise StoreError where the files of a model cannot be read."""
    try:
        yield
    except FairfrontierError:
        raise
    # Libraries raise almost anything for bytes that nobody wrote: zlib.error, SyntaxError, …
    except Exception as error:
        raise StoreError(f"{folder} holds no complete model.", mend) from error


@contextmanager
def restoring(folder: Path) -> Iterator[None]:
    """Raise StoreError where parameters or state fit neither this version's class nor each other.

    Predictions are tried in the block: altered arrays make NumPy raise almost anything.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(
            f"{folder} holds a model that was altered, or is of another version of fairfrontier.",
            "Train it again with this one.",
        ) from error


def find_strangers(learner: Any) -> list[str]:
    """Return the types in a learner that are not trusted when it is read."""
    import skops.io

    return sorted(set(skops.io.get_untrusted_types(data=skops.io.dumps(learner))) - set(TRUSTED))


def _read_learner(path: Path) -> Any:
    """Read a learner of trusted types only, which are checked before anything is built."""
    from skops.io import get_untrusted_types
    from skops.io._audit import get_tree
    from skops.io._numpy import NdArrayNode
    from skops.io._sklearn import TreeNode
    from skops.io._utils import LoadContext

    _check_expansion(path)
    strangers = sorted(set(get_untrusted_types(file=path)) - set(TRUSTED))
    if strangers:
        raise StoreError(
            f"The file {path} holds types that are not trusted: {', '.join(strangers)}.",
            "Load only models that you saved yourself; train this one again.",
        )
    # What skops.io.load does, with a look at trees before their native code gets what they are of.
    with ZipFile(path) as archive:
        schema = json.loads(archive.read("schema.json"))
        context = LoadContext(src=archive, protocol=schema["protocol"])
        root = get_tree(schema, context, trusted=list(TRUSTED))
        for node in _find_nodes(root, set()):
            if isinstance(node, NdArrayNode) and node.type == "numpy":
                _check_array(np.asarray(node.construct()))
            if isinstance(node, TreeNode) and not is_tree(
                node.children["args"].construct(), node.children["attrs"].construct()
            ):
                raise StoreError(
                    f"The file {path} has trees with nodes that lead nowhere.",
                    "Train the model again, or restore the folder from where it was saved.",
                )
        return root.construct()


def _find_nodes(node: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a node of skops and, recursively, all nodes below."""
    if id(node) not in seen:
        seen.add(id(node))
        yield node
        children = getattr(node, "children", node)
        if isinstance(children, dict | list):
            for child in children.values() if isinstance(children, dict) else children:
                yield from _find_nodes(child, seen)


def _check_expansion(path: Path) -> None:
    """Raise ValueError for an archive that unpacks to much more than its own size."""
    with ZipFile(path) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > max(SMALL_BYTES, MOST_EXPANSION * path.stat().st_size):
        raise ValueError(f"{path} would unpack to {total} bytes")


def _check_array(array: np.ndarray) -> np.ndarray:
    """Return an array; ValueError where entries of no bytes let a small file claim any number."""
    if array.size and not array.dtype.itemsize:
        raise ValueError(f"it has an array of {array.size} entries without bytes")
    return array
