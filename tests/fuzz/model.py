"""Altered model folders, as someone who can write to them may leave them.

``python -m tests.fuzz.model FOLDER COUNT SEED`` saves models in FOLDER and alters a copy of one,
FOLDER/work, COUNT times: a crash leaves there what caused it.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import SVR

from fairfrontier import create
from fairfrontier.metric.registry import learn
from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.train.booster import NUMBERS as UBJ_NUMBERS
from fairfrontier.train.booster import parse_ubj
from fairfrontier.train.persistence import MANIFEST, _digest
from fairfrontier.train.registry import METHODS, load_model
from tests.fuzz.altered import alter, start
from tests.train.tables import make_split

SPLIT = make_split(100)
VALUES = [0, 1, -1, 2, 2**31, -(2**63), 10**12, 1e308, 0.5, True, None, "", "x", [], {}, [1], "\0"]
NUMBERS = [0, 1, -1, 2, 7, 255, 2**31 - 1, -(2**31), 2**62]
BYTES = [0, 1, 2, 127, 128, 255, ord("L"), ord("["), ord("9"), ord("{")]
# Method, its parameters, and how many of a hundred mutations are its.
MODELS = {
    "gbdt": ({"n_estimators": 3}, 20),
    "random_forest": ({"n_estimators": 2, "max_depth": 3}, 24),
    "fair_boosting": ({"n_estimators": 2, "budget": 0.0, "learner": "tree"}, 10),
    "fair_boosting spline": ({"n_estimators": 1, "budget": 0.0, "learner": "spline"}, 4),
    "fair_boosting k_neighbors": ({"n_estimators": 1, "budget": 0.0, "learner": "k_neighbors"}, 4),
    "fair_boosting newton_tree": ({"n_estimators": 1, "budget": 0.0, "learner": "newton_tree"}, 4),
    "fair_boosting SVR": ({"n_estimators": 1, "budget": 0.0, "learner": SVR()}, 4),
    "nn": ({"steps": 5, "hidden": [4]}, 8),
    "k_neighbors": ({"n_neighbors": 3}, 4),
    "linear": ({}, 4),
    "hardt": ({}, 7),
    "randomized_threshold": ({}, 7),
}
# How many are of every other method, where time is given for it; the default suite does without.
OTHERS = 3 if "FUZZ" in os.environ else 0


def list_models() -> dict[str, tuple[dict[str, Any], int]]:
    """Return the models that are altered, by name, like ``MODELS``."""
    # Those that learn from counterfactuals are networks, like nn.
    others = {
        name: (dict(method.example), OTHERS)
        for name, method in METHODS.all().items()
        if OTHERS and name not in MODELS and "counterfactuals" not in method.fit_needs
    }
    return MODELS | others


def save_boosting(folder: Path, model: Any = None) -> Path:
    """Save a model of fair boosting, fitted."""
    train = SPLIT.train
    model = model or create("fair_boosting", n_estimators=1, budget=0.0)
    folder = model.fit(train.X, train.y, metric=learn("subspace", SPLIT)).save(folder)
    return Path(folder)


def save_models(base: Path) -> dict[str, Path]:
    """Save a fitted model of every kind of file."""
    train = SPLIT.train
    folders = {}
    for name, (parameters, _) in list_models().items():
        model = create(name.partition(" ")[0], **parameters)
        score = np.clip(train.X[:, 1] / 4 + 0.5, 0, 1)
        X = score if "groups" in model.predict_needs else train.X
        offered = {"groups": train.groups, "metric": learn("subspace", SPLIT)}
        given = {key: value for key, value in offered.items() if key in model.fit_needs}
        folders[name] = model.fit(X, train.y, **given).save(base / name)
    return folders


def mangle_json(text: str, rng: random.Random) -> str:
    """Change, remove, add or nest a value of a JSON text, or some of its characters."""
    if rng.random() < 0.2:
        return mangle_bytes(text.encode(), rng).decode("latin-1")
    tree = json.loads(text)
    owner, key = tree, rng.choice(list(tree))
    while isinstance(owner[key], dict | list) and owner[key] and rng.random() < 0.85:
        owner = owner[key]
        key = rng.choice(list(owner)) if isinstance(owner, dict) else rng.randrange(len(owner))
    kind = rng.randrange(6)
    if kind == 0:
        del owner[key]
    elif kind == 1 and isinstance(owner, dict):
        owner[rng.choice([*map(str, VALUES), *owner])] = owner[key]
    elif kind == 2 and isinstance(owner[key], int | float):
        owner[key] = owner[key] + rng.choice([-1, 1, 0.5, 1000])
    elif kind == 3:
        other = rng.choice(list(tree))
        owner[key] = json.loads(json.dumps(tree[other]))
    else:
        owner[key] = rng.choice(VALUES)
    changed = json.dumps(tree)
    if rng.random() < 0.02:
        depth = rng.choice([900, 100_000])
        changed = changed[:-1] + ', "deep": ' + "[" * depth + "]" * depth + "}"
    return changed


def mangle_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change some bytes; sometimes cut or repeat."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.choice(BYTES)
    if rng.random() < 0.1:
        start = rng.randrange(len(changed))
        return bytes(changed[:start] + changed[: rng.randrange(start + 1)])
    return bytes(changed)


def mangle_trees(content: bytes, rng: random.Random) -> bytes:
    """Change a value of a booster's file, or some of its bytes."""
    if rng.random() < 0.3:
        return mangle_bytes(content, rng)
    tree = parse_ubj(content)
    owner, key = tree, rng.choice(list(tree))
    while isinstance(owner[key], dict | list) and owner[key] and rng.random() < 0.95:
        owner = owner[key]
        key = rng.choice(list(owner)) if isinstance(owner, dict) else rng.randrange(len(owner))
    value = owner[key]
    if isinstance(value, np.ndarray) and value.size and rng.random() < 0.8:
        value = owner[key] = value.copy()
        with np.errstate(all="ignore"):
            value[rng.randrange(value.size)] = np.array(rng.choice(NUMBERS)).astype(value.dtype)
    elif isinstance(value, np.ndarray):
        owner[key] = np.resize(value, rng.choice([0, 1, value.size + 1]))
    elif isinstance(value, int | float):
        owner[key] = rng.choice([value - 1, value + 1, *NUMBERS])
    elif isinstance(value, str):
        owner[key] = rng.choice(["", "0", "1", "2", "-1", "1e9", "[nan]", "x", value + "0"])
    elif isinstance(owner, dict):
        other = rng.choice(list(owner))
        owner[key], owner[other] = owner[other], value
    else:
        owner[key] = owner[rng.randrange(len(owner))]
    return write_ubj(tree)


def write_ubj(value: Any) -> bytes:
    """Return UBJSON as XGBoost writes it, with arrays of numbers typed."""

    def write_text(text: str) -> bytes:
        return b"L" + struct.pack(">q", len(text.encode())) + text.encode()

    if isinstance(value, np.ndarray):
        marker = next(mark for mark, kind in UBJ_NUMBERS.items() if np.dtype(kind) == value.dtype)
        return f"[${marker}#L".encode() + struct.pack(">q", value.size) + value.tobytes()
    if isinstance(value, dict):
        items = [write_text(name) + write_ubj(each) for name, each in value.items()]
        return b"{" + b"".join(items) + b"}"
    if isinstance(value, list):
        return b"[#L" + struct.pack(">q", len(value)) + b"".join(map(write_ubj, value))
    if isinstance(value, str):
        return b"S" + write_text(value)
    if isinstance(value, bool) or value is None:
        return {True: b"T", False: b"F", None: b"Z"}[value]
    kind = ">d" if isinstance(value, float) else ">q"
    return (b"D" if isinstance(value, float) else b"L") + struct.pack(kind, value)


def mangle_array(content: bytes, rng: random.Random) -> bytes:
    """Change the header of an array, its values, shape or type."""
    kind = rng.randrange(6)
    if kind == 0:
        return mangle_bytes(content, rng)
    if kind == 1:
        shape = tuple(rng.choice(NUMBERS) for _ in range(rng.randrange(4)))
        header = f"{{'descr': '{rng.choice(['<f8', '<i8', '|O', '<U9', '|V0', '<f2'])}', "
        header += f"'fortran_order': {rng.choice([True, False])}, 'shape': {shape}, }}"
        size = int.from_bytes(content[8:10], "little")
        return content[:10] + header.ljust(size)[:size].encode() + content[10 + size :]
    array = np.load(io.BytesIO(content)).copy()
    if kind == 2 and array.size and array.dtype.kind in "iufb":
        flat = array.reshape(-1)
        with np.errstate(all="ignore"):
            flat[rng.randrange(flat.size)] = np.array(rng.choice([*NUMBERS, 0.5])).astype(
                flat.dtype
            )
    elif kind == 3 and array.dtype.names and array.size:
        name = rng.choice(array.dtype.names)
        array[name][rng.randrange(array.size)] = rng.choice(
            NUMBERS[:2] if name[0] == "m" else NUMBERS
        )
    elif kind == 4:
        shapes = [(), (0,), (1,), (array.size,), (1, *array.shape), array.shape[::-1], (3, 2)]
        array = np.resize(array, rng.choice(shapes))
    elif not array.dtype.names:
        with np.errstate(all="ignore"):
            array = array.astype(rng.choice(["<f8", ">i4", "?", "<U3", "<c16", "<f2", "u1"]))
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def mangle_archive(content: bytes, rng: random.Random) -> bytes:
    """Change a member of an archive, or the archive."""
    if rng.random() < 0.15:
        return mangle_bytes(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    if "schema.json" in members and rng.random() < 0.5:
        name = "schema.json"
    kind = rng.randrange(12)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[name] = rng.choice(list(members.values()))
    elif name == "schema.json":
        members[name] = mangle_json(members[name].decode(), rng).encode()
    else:
        members[name] = mangle_array(members[name], rng)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice([0, 0, 0, 8])) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    return out.getvalue()


def mangle_model(folder: Path, rng: random.Random) -> str:
    """Change one file of a model, with the digest that its manifest then needs; return its name."""
    names = sorted(path.name for path in folder.iterdir())
    heavy = [name for name in names if name != MANIFEST] * 3
    name = rng.choice([MANIFEST, *heavy])
    path = folder / name
    if name == MANIFEST:
        path.write_bytes(mangle_json(path.read_text(), rng).encode())
        return name
    mangle = mangle_trees if path.suffix == ".ubj" else mangle_archive
    path.write_bytes(mangle(path.read_bytes(), rng))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = _digest(path)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return name


def ask(folder: Path) -> str:
    """Return what loading and predicting came to: its kind, an error that is no sentence raised."""
    rows = SPLIT.test
    try:
        model = load_model(folder)
    except FairfrontierError:
        return "refused"
    groups = "groups" in model.predict_needs
    keywords = {"groups": rows.groups} if groups else {}
    X = np.linspace(0, 1, len(rows.X)) if groups else rows.X
    try:
        with np.errstate(all="ignore"):
            getattr(model, "predict_proba", model.predict)(X, **keywords)
    except FairfrontierError:
        return "refused when asked"
    return "answered"


def run(base: Path, count: int, seed: int) -> Counter[str]:
    """Alter models ``count`` times; return how often each outcome came."""
    folders = save_models(base / "saved")
    shares = [share for _, share in list_models().values()]

    def draw(rng: random.Random) -> list[str]:
        return rng.choices(list(folders), shares)

    return alter(base, count, seed, folders=folders, draw=draw, mangle=mangle_model, ask=ask)


if __name__ == "__main__":
    start(run)
