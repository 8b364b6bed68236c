"""Learners of scikit-learn on disk: of classes that are known, and checked before they answer."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from sklearn.base import is_classifier
from sklearn.ensemble._forest import BaseForest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree._tree import NODE_DTYPE

from fairfrontier.runtime.errors import StoreError
from fairfrontier.train.node import find_parts, is_tree

# What an archive may unpack to: so many times its own bytes, where that is more than this many.
MOST_EXPANSION, SMALL_BYTES = 100, 2**26
# Of neighbours the most rows, their entries, and the most that answer a row, and of splines the
# columns that a row becomes: predictions make room for so many, or so many for every byte of the
# archive.
ROWS, ENTRIES, NEIGHBORS, COLUMNS = (2**15, 4), (2**20, 16), (2**12, 1 / 16), (2**14, 1)
# Of a spline the entries of its bases, which are made for every prediction, and its degree.
MOST_BASES, MOST_DEGREE = 2**24, 100
# Of an archive, for each object that it says it holds: forests take 24 to 50, linear rounds 20.
LEAST_BYTES = 4
# In addition to NumPy's and scikit-learn's types, which skops trusts.
TRUSTED = (
    "sklearn.tree._tree.Tree",
    "fairfrontier.train.individual.fair_boosting.newton_tree.NewtonTree",
    "fairfrontier.train.individual.fair_boosting.spline.Spline",
)
# How skops stores the learners that have names here: its loader, and the types that it makes. The
# native code of others, as libsvm's, believes the arrays of a file.
KNOWN = {
    "DictNode": {"builtins.dict"},
    "JsonNode": {"builtins.str"},
    "ListNode": {"builtins.list"},
    "NdArrayNode": {
        "numpy.ndarray",
        *(f"numpy.{kind}" for kind in ("bool", "float32", "float64", "int32", "int64")),
    },
    "ObjectNode": {
        "sklearn.ensemble._forest.ExtraTreesClassifier",
        "sklearn.ensemble._forest.ExtraTreesRegressor",
        "sklearn.ensemble._forest.RandomForestClassifier",
        "sklearn.ensemble._forest.RandomForestRegressor",
        "sklearn.linear_model._logistic.LogisticRegression",
        "sklearn.linear_model._ridge.Ridge",
        "sklearn.neighbors._regression.KNeighborsRegressor",
        "sklearn.tree._classes.DecisionTreeClassifier",
        "sklearn.tree._classes.DecisionTreeRegressor",
        "sklearn.tree._classes.ExtraTreeClassifier",
        "sklearn.tree._classes.ExtraTreeRegressor",
        *TRUSTED[1:],
    },
    "TreeNode": {TRUSTED[0]},
    "TupleNode": {"builtins.tuple"},
    "TypeNode": {"builtins.int", "builtins.str"},
}


def write_learner(learner: Any, path: Path, trusted: Collection[str] | None = None) -> None:
    """Write a learner; StoreError for one that would not be read by ``trusted``, or by any names.

    ``trusted`` is None where only the reader will say which further types it trusts.
    """
    import skops.io

    skops.io.dump(learner, path, compression=ZIP_DEFLATED, compresslevel=1)
    with ZipFile(path) as archive:
        _, strangers, others = _open_tree(archive, path)
    if refused := strangers | (set() if trusted is None else others - {*trusted}):
        raise StoreError(
            f"A learner with types that would not be read again is not saved: "
            f"{', '.join(sorted(refused))}.",
            "Choose a learner by its name, or name its classes of scikit-learn in the `trusted` of "
            "the method's class, and keep all else in arrays.",
        )
    for part in find_parts(learner):
        _check_arrays(part, path.stat().st_size)


def read_learner(path: Path, trusted: Collection[str]) -> Any:
    """Read a learner, or a list of them; nothing is built before all types in it are known.

    ``trusted`` names further types of NumPy and scikit-learn. StoreError for others, and for a
    learner whose arrays do not fit each other, which native code would follow unchecked.
    """
    from skops.io._numpy import NdArrayNode
    from skops.io._sklearn import TreeNode

    check_expansion(path)
    with ZipFile(path) as archive:
        root, strangers, others = _open_tree(archive, path)
        if strangers:
            raise StoreError(
                f"The file {path} holds types that are not trusted: "
                f"{', '.join(sorted(strangers))}.",
                "Load only models that you saved yourself; train this one again.",
            )
        if unknown := sorted(others - {*trusted}):
            raise StoreError(
                f"The file {path} holds types that are not read unasked: {', '.join(unknown)}.",
                "If you saved it yourself, name them: load_model(folder, trusted=[...]).",
            )
        for node in _find_nodes(root, set()):
            if isinstance(node, NdArrayNode) and node.type == "numpy":
                check_array(np.asarray(node.construct()))
            if isinstance(node, TreeNode) and not _is_tree(node):
                raise StoreError(
                    f"The file {path} has trees with nodes that lead nowhere.",
                    "Train the model again, or restore the folder from where it was saved.",
                )
        learner = root.construct()
    for part in find_parts(learner):
        _check_arrays(part, path.stat().st_size)
        _settle(part)
    return learner


def _open_tree(archive: ZipFile, path: Path) -> tuple[Any, set[str], set[str]]:
    """Return the root of an archive, unbuilt, and the types in it that are not known here.

    The first are never read, whoever names them; the second where they are named.
    """
    from skops.io._audit import get_tree
    from skops.io._utils import LoadContext

    schema = json.loads(archive.read("schema.json"))
    nodes = _list_states(schema, path.stat().st_size // LEAST_BYTES)
    context = LoadContext(src=archive, protocol=schema["protocol"])
    root = get_tree(schema, context, trusted=list(TRUSTED))
    made = [(node["__loader__"], f"{node['__module__']}.{node['__class__']}") for node in nodes]
    unknown = {name for loader, name in made if name not in KNOWN.get(loader, ())}
    return root, set(root.get_unsafe_set()), unknown


def _is_tree(node: Any) -> bool:
    """Return whether a node of skops makes a sound tree."""
    state = node.children["attrs"].construct()
    # Fields that are arrays would be compared each with each.
    same = np.asarray(state["nodes"]).dtype == NODE_DTYPE
    return same and is_tree(node.children["args"].construct(), state)


def _list_states(schema: Any, most: int) -> list[dict[str, Any]]:
    """Return what a schema of skops says of everything that it makes.

    ValueError where that is more than so many, counted as often as they are used, or objects share
    a member of the archive: each keeps a copy of it.
    """
    states: list[dict[str, Any]] = []
    sizes: dict[Any, int] = {}
    owners: dict[str, Any] = {}

    def add(part: Any) -> None:
        before = len(states)
        is_state = isinstance(part, dict) and not part.keys().isdisjoint(("__loader__", "__id__"))
        if is_state:
            states.append(part)
        if isinstance(part, dict | list):
            for each in part.values() if isinstance(part, dict) else part:
                add(each)
        # skops makes the object of an id once, unless it is 0, and writes it out at every use.
        own, size = part.get("__id__") if is_state else None, len(states) - before
        if own and sizes.setdefault(own, size) != size:
            raise ValueError("it uses objects that it does not write out")
        file = part.get("file") if is_state else None
        if file is not None and not (own and owners.setdefault(file, own) == own):
            raise ValueError(f"several of its objects are made of {file}")

    add(schema)
    if len(states) > most:
        raise ValueError(f"its {len(states)} objects are more than a file of this size holds")
    return states


def _find_nodes(node: Any, seen: set[int]) -> Iterator[Any]:
    """Yield a node of skops and, recursively, all nodes below."""
    if id(node) not in seen:
        seen.add(id(node))
        yield node
        children = getattr(node, "children", node)
        if isinstance(children, dict | list):
            for child in children.values() if isinstance(children, dict) else children:
                yield from _find_nodes(child, seen)


def _settle(part: Any) -> None:
    """Make an estimator that was read independent of numbers that only its writer had counted."""
    # It would start as many threads as the file says.
    if getattr(part, "n_jobs", None) is not None:
        part.n_jobs = 1
    trees = getattr(part, "estimators_", None) if isinstance(part, BaseForest) else None
    if trees is not None and len(trees) != part.n_estimators:
        raise ValueError(f"it has {len(trees)} trees, not {part.n_estimators}")
    if trees is None and hasattr(part, "tree_"):
        trees = [part]
    for tree in trees or ():
        _check_outputs(part, tree.tree_)
    # Its kernels believe the shapes that ``fit`` has checked.
    if type(part) is KNeighborsRegressor and hasattr(part, "_fit_X"):
        part.fit(part._fit_X, part._y)


def _check_outputs(part: Any, tree: Any) -> None:
    """Raise ValueError where a forest or tree has not one output, of its nodes' values.

    Predictions make room for all that it claims.
    """
    claimed = (part.n_classes_, len(part.classes_)) if is_classifier(part) else (1, 1)
    if not part.n_outputs_ == tree.n_outputs == 1 or claimed != (*tree.n_classes.tolist(),) * 2:
        raise ValueError("it claims other outputs or classes than its trees have")


def _check_arrays(part: Any, size: int) -> None:
    """Raise StoreError where a learner's predictions take more memory than those of its kind may.

    ``size`` is that of its archive, of which compressed arrays may be many times larger.
    """
    kind = type(part)
    counts: list[tuple[int, tuple[int, float]]] = []
    if kind in (Ridge, LogisticRegression) and hasattr(part, "coef_"):
        wanted: tuple[int, ...] = ()
        if kind is LogisticRegression:
            wanted = (len(part.classes_) if len(part.classes_) > 2 else 1,)
        shapes = [np.shape(part.intercept_), np.shape(part.coef_)]
        fitting = shapes == [wanted, (*wanted, part.n_features_in_)]
    elif kind is KNeighborsRegressor and hasattr(part, "_fit_X"):
        rows = part._fit_X
        fitting = np.shape(part._y) == np.shape(rows)[:1]
        counts = [(len(rows), ROWS), (rows.size, ENTRIES), (part.n_neighbors, NEIGHBORS)]
    elif hasattr(part, "knots_"):
        n_knots, n_features = part.knots_.shape
        counts = [(n_features * (n_knots + part.degree), COLUMNS)]
        fitting = n_features * (n_knots + part.degree) ** 2 <= MOST_BASES
        fitting = fitting and part.degree <= MOST_DEGREE
    else:
        return
    if not (fitting and all(count <= max(few, each * size) for count, (few, each) in counts)):
        raise StoreError(
            f"A {kind.__name__} whose arrays fit neither each other nor a file of {size:,} bytes "
            "is neither saved nor read.",
            "Fit it again, with fewer neighbours, knots or degrees.",
        )


def check_expansion(path: Path) -> None:
    """Raise ValueError for an archive that unpacks to much more than its own size."""
    with ZipFile(path) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > max(SMALL_BYTES, MOST_EXPANSION * path.stat().st_size):
        raise ValueError(f"{path} would unpack to {total} bytes")


def check_array(array: np.ndarray) -> np.ndarray:
    """Return an array; ValueError where entries of no bytes let a small file claim any number."""
    if array.size and not array.dtype.itemsize:
        raise ValueError(f"it has an array of {array.size} entries without bytes")
    return array
