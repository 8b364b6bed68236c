"""Fitted models on disk without pickle: npz, UBJ for boosters, skops for learners, JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile

import numpy as np

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.writer import filling, recover
from fairfrontier.train.booster import read_booster

MANIFEST = "manifest.json"
# What reading a damaged model raises, JSON that is nested too deep and a broken archive included.
DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, BadZipFile)
FORMAT = 2
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
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
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
            with (
                (folder / "arrays.npz").open("rb") as file,
                np.load(file, allow_pickle=False) as stored,
            ):
                arrays = {key: stored[key] for key in stored.files}
        return manifest["parameters"], State(arrays, boosters, learners, manifest["facts"])
    except DAMAGED as error:
        raise StoreError(f"{folder} holds no complete model.", mend) from error


@contextmanager
def restoring(folder: Path) -> Iterator[None]:
    """Raise StoreError where parameters or state do not fit this version's class."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{folder} holds a model of another version of fairfrontier.",
            "Train it again with this one.",
        ) from error


def find_strangers(learner: Any) -> list[str]:
    """Return the types in a learner that are not trusted when it is read."""
    import skops.io

    return sorted(set(skops.io.get_untrusted_types(data=skops.io.dumps(learner))) - set(TRUSTED))


def _read_learner(path: Path) -> Any:
    """Read a learner of trusted types only, which are checked before anything is built."""
    import skops.io

    try:
        strangers = sorted(set(skops.io.get_untrusted_types(file=path)) - set(TRUSTED))
        if not strangers:
            return skops.io.load(path, trusted=list(TRUSTED))
    except (BadZipFile, ImportError, AttributeError) as error:
        raise ValueError(f"{path} was not written by skops") from error
    raise StoreError(
        f"The file {path} holds types that are not trusted: {', '.join(strangers)}.",
        "Load only models that you saved yourself; train this one again.",
    )
