"""Fitted models on disk without pickle: npz, UBJ for boosters, skops for learners, JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from fairfrontier.runtime.errors import FairfrontierError, StoreError
from fairfrontier.runtime.store import refuse_unsigned
from fairfrontier.runtime.text_file import read_json, refuse_expansion
from fairfrontier.runtime.writer import filling, recover, replacing

MANIFEST = "manifest.json"
FORMAT = 2
# In addition to the types of NumPy and scikit-learn that skops trusts: classes, and one function:
# all others that a model may call have to be named.
TRUSTED = (
    "collections.OrderedDict",
    "fairfrontier.frontier.scores.Scores",
    "fairfrontier.models.baseline.linear_post.Guesser",
    "fairfrontier.models.baseline.linear_post.Logistic",
    "fairfrontier.models.group.SensitiveFeatures",
    "fairfrontier.models.neural.network.Network",
    "fairfrontier.models.regression.predictor.LinearPredictor",
    "functools.partial",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "lightgbm.sklearn.LGBMRegressor",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
    "xgboost.sklearn.XGBRegressor",
    "xgboost.sklearn.XGBRFClassifier",
)
# What gives the names of further classes, asked where a learner has others than these.
KNOWN: list[Callable[[], Collection[str]]] = []
# What an archive of learners may unpack to: so many times its bytes, or this where that is more.
MOST_EXPANSION, SMALL_BYTES = 100, 2**26
# Letters that a library's message takes in ours.
_PLACE = re.compile(r"\[[0-9:]+\] \S+:[0-9]+: ")
REASON = 200


@dataclass(frozen=True)
class State:
    """The fitted attributes of a model, by name.

    ``arrays`` have no object dtypes, ``boosters`` are XGBoost's, of one feature more than the model
    at most, ``learners`` are fitted estimators of scikit-learn, and ``facts`` are numbers, strings,
    and lists and mappings of them.
    """

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    boosters: Mapping[str, Any] = field(default_factory=dict)
    learners: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def take(self, prefix: str, facts: Mapping[str, Any]) -> State:
        """Return the state of a model within this one, whose parts' names begin with a prefix."""
        parts: Any = {
            kind: {
                name.removeprefix(prefix): value
                for name, value in getattr(self, kind).items()
                if name.startswith(prefix)
            }
            for kind in ("arrays", "boosters", "learners")
        }
        return State(**parts, facts=facts)


def _digest(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        # A pipe would be waited for, and a device never end.
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> Any:
    """Return the manifest of a saved model."""
    return read_json(folder / MANIFEST)


def write_state(
    folder: Path,
    name: str,
    parameters: Mapping[str, Any],
    state: State,
    trusted: Collection[str] | None = None,
) -> Path:
    """Write a model into a new or empty folder, all at once; ``trusted`` as in `write_learner`."""
    existed = folder.is_dir()
    if existed:
        recover(folder)
        if any(folder.iterdir()):
            raise StoreError(f"The folder {folder} is not empty.", "Save the model to a new one.")
    # A folder that exists may be one that cannot be renamed, as a mounted one.
    writing = filling if existed else replacing
    with writing(folder, what="model", mend="Choose a folder that can be written.") as work:
        if state.arrays:
            np.savez(work / "arrays.npz", allow_pickle=False, **dict(state.arrays))
        for key, booster in state.boosters.items():
            import xgboost

            if not isinstance(booster, xgboost.Booster):
                raise StoreError(
                    f"The booster {key!r} of the method {name!r} is a {type(booster).__name__} of "
                    f"{type(booster).__module__}, and boosters are XGBoost's.",
                    "Return it among the learners of its state.",
                )
            # XGBoost's own writer tells of a full disk in an error of its own.
            (work / f"{key}.ubj").write_bytes(booster.save_raw("ubj"))
        for key, learner in state.learners.items():
            write_learner(learner, work / f"{key}.skops", trusted)
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


def read_state(
    folder: Path, name: str, trusted: Collection[str] = ()
) -> tuple[dict[str, Any], State]:
    """Read a model's parameters and state, checking the method's name and every digest.

    ``trusted`` as in `Estimator.load`.
    """
    import xgboost

    mend = "Train it again, or restore the folder from where it was saved."
    with reading(folder, mend):
        if folder.resolve() != folder.absolute():
            # A link leads there from a place that no store knows.
            refuse_unsigned(folder.resolve().parent)
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
        # A path leads elsewhere, or to the same file under any number of names.
        if strangers := manifest["files"].keys() - {path.name for path in folder.iterdir()}:
            raise FileNotFoundError(min(strangers))
        for listed, digest in manifest["files"].items():
            path = folder / listed
            if _digest(path) != digest:
                raise StoreError(f"The file {path} is not what was saved.", mend)
            if path.suffix == ".ubj":
                boosters[path.stem] = xgboost.Booster(model_file=bytearray(path.read_bytes()))
            elif path.suffix == ".skops":
                learners[path.stem] = read_learner(path, trusted)
        if "arrays.npz" in manifest["files"]:
            path = folder / "arrays.npz"
            refuse_expansion(path)
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = {key: stored[key] for key in stored.files}
        return manifest["parameters"], State(arrays, boosters, learners, manifest["facts"])


def write_learner(learner: Any, path: Path, trusted: Collection[str] | None = None) -> None:
    """Write learners of scikit-learn; StoreError for types beyond skops's and ``trusted`` ones.

    ``trusted`` is None where only the reader will say which further types it trusts.
    """
    import skops.io

    try:
        skops.io.dump(learner, path, compression=ZIP_DEFLATED, compresslevel=1)
    except OSError:
        raise
    # Libraries raise anything for objects that they cannot write.
    except Exception as error:
        raise StoreError(
            f"A learner cannot be saved: {_tell(error)}.",
            "Keep what skops writes in its attributes.",
        ) from error
    if trusted is not None and (strangers := _list_types(trusted, file=path)[1]):
        raise StoreError(
            "A learner with types that would not be read again is not saved: "
            f"{', '.join(strangers)}.",
            "Name those of your own by trusted=, or in the `trusted` of a method's class.",
        )


def read_learner(path: Path, trusted: Collection[str]) -> Any:
    """Read what `write_learner` wrote; nothing is built before all types in it are trusted."""
    import skops.io

    with ZipFile(path) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > max(SMALL_BYTES, MOST_EXPANSION * path.stat().st_size):
        raise ValueError(f"{path} would unpack to {total} bytes")
    types, strangers = _list_types(trusted, file=path)
    if strangers:
        raise StoreError(
            f"The file {path} holds types that are not trusted: {', '.join(strangers)}.",
            "If you saved it yourself, name them: load_model(folder, trusted=[...]).",
        )
    return skops.io.load(path, trusted=types)


def _list_types(trusted: Collection[str], **archive: Any) -> tuple[list[str], list[str]]:
    """Return the types in an archive that skops does not trust, and those that nobody does."""
    import skops.io

    types = sorted(skops.io.get_untrusted_types(**archive))
    known = {*TRUSTED, *trusted}
    if not known.issuperset(types):
        known.update(*(give() for give in KNOWN))
    return types, [each for each in types if each not in known]


@contextmanager
def reading(folder: Path, mend: str, what: str = "model") -> Iterator[None]:
    """Raise StoreError, with the reason, where the files of a model or bundle cannot be read."""
    try:
        yield
    except FairfrontierError:
        raise
    # Libraries raise almost anything for bytes that nobody wrote: zlib.error, SyntaxError, …
    except Exception as error:
        fault = f"{folder} holds no complete {what}: {_tell(error)}."
        raise StoreError(fault, mend) from error


def _tell(error: Exception) -> str:
    """Return what an exception says, in one line."""
    # Nothing else here needs them.
    from pydantic import ValidationError

    from fairfrontier.runtime.config import read_first_fault

    if isinstance(error, ValidationError):
        first = read_first_fault(error)
        text = ": ".join(filter(None, (".".join(first.where), first.fault)))
    elif isinstance(error, ValueError | OSError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    # XGBoost says before and after it when and where in its own code it was.
    text = _PLACE.sub("", " ".join(text.strip().partition("\n")[0].split())).rstrip(".")
    return text if len(text) <= REASON else f"{text[:REASON]}…"


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
