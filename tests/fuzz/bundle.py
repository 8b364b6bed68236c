"""Altered bundles, as someone who can write to them may leave them, digests included.

``python -m tests.fuzz.bundle FOLDER COUNT SEED`` makes bundles in FOLDER and alters a copy of one,
FOLDER/work, COUNT times: a crash leaves there what caused it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fairfrontier as ff
from fairfrontier.audit.config import AuditConfig
from fairfrontier.audit.verb import audit
from fairfrontier.choose.bundle import (
    FORMAT,
    MANIFEST,
    _digest,
    _digest_files,
    load_bundle,
    make_bundle,
)
from fairfrontier.choose.config import ExplainConfig
from fairfrontier.choose.content import list_facts
from fairfrontier.choose.explanation import explain_table
from fairfrontier.choose.mixture import Mixture
from fairfrontier.choose.view import describe_reference
from fairfrontier.monitor.config import MonitorConfig
from fairfrontier.monitor.monitoring import watch
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import FILE as ENCODER
from fairfrontier.prepare.row import TEXT, RowEncoder
from fairfrontier.prepare.split import Split
from fairfrontier.runtime.errors import FairfrontierError
from fairfrontier.train.persistence import MANIFEST as MODEL_MANIFEST
from fairfrontier.train.postprocess.model import post_process
from tests.fuzz.altered import alter, start
from tests.fuzz.model import mangle_archive, mangle_bytes, mangle_json, mangle_model
from tests.monitor.watched import DATASET, make_rows
from tests.prepare.embedding.graph import make_config

ROWS = 60
VERBS = ("decide", "audit", "monitor", "explain")
SPLIT = "split: {kind: random, train: 0.4, calibration: 0.3, test: 0.3}"
TABLE = DATASET.replace("split: {kind: random, train: 0.4, test: 0.6}", SPLIT)
BANDS = TABLE.replace("sex: {column: sex}", "sex: {column: income, below: 3}")
LABEL = "label: {column: outcome, positive: repaid}"
NUMBER = TABLE.replace(LABEL, "label: {column: debt, task: regression, range: [0, 9], clip: true}")
CLASSES = TABLE.replace(LABEL, "label: {column: job, task: multiclass}")
TEXTS = f"{TABLE}text: {{column: note, versions: {{gender: {{swap: gender}}}}}}\n"
WORDS = TEXTS.replace("[region]", "[region], text: tfidf")
GRAPH = TEXTS.replace("[region]", "[region], text: {encoder: minilm, max_tokens: 12}")


def fit(method: str, **parameters: Any) -> Callable[[Split], Any]:
    """Return what fits a method."""
    return lambda split: ff.create(method, **parameters).fit(split.train.X, split.train.y)


def fit_rule(split: Split) -> Any:
    """Fit thresholds by group behind a model."""
    return post_process(fit("linear")(split), split, "group_thresholds", attributes=["origin"])


def fit_mixture(split: Split) -> Mixture:
    """Fit a model of which one in three decisions is another's."""
    return Mixture(fit("linear")(split), fit_rule(split), 1 / 3)


# Kind -> its dataset, and what is fitted on it.
BUNDLES: dict[str, tuple[str, Callable[[Split], Any]]] = {
    "linear": (TABLE, fit("linear")),
    "trees": (BANDS, fit("gbdt", n_estimators=2, max_depth=2)),
    "rule": (TABLE, fit_rule),
    "mixture": (TABLE, fit_mixture),
    "regression": (NUMBER, fit("gbdt_regression", n_estimators=2, max_depth=2)),
    "classes": (CLASSES, fit("linear")),
    "tfidf": (WORDS, fit("linear")),
    "graph": (GRAPH, fit("linear")),
}


def make_table(seed: int, n: int) -> pd.DataFrame:
    """Return rows with a text, a number and a job more."""
    rng = np.random.default_rng(seed)
    words = np.array(["he", "she", "nurse", "sold", "the", "bicycle", "lawyer", "bread", "Ömer"])
    rows = make_rows(seed, n)
    rows["origin"] = rows["origin"].replace("elsewhere", "here")
    notes = [" ".join(rng.choice(words, 5)) for _ in range(n)]
    debt = (rows["income"] + rng.normal(size=n)).clip(0).round(3)
    return rows.assign(note=notes, debt=debt, job=rng.choice(["clerk", "baker", "none"], n))


def save_bundles(base: Path, kinds: Iterable[str] = BUNDLES) -> dict[str, Path]:
    """Write a bundle of every kind, and a table for them, rows.csv."""
    for folder in ("conf/datasets", "data/raw"):
        (base / folder).mkdir(parents=True)
    make_table(0, 400).to_csv(base / "data/raw/credit-lines.csv", index=False)
    make_table(1, ROWS).to_csv(base / "rows.csv", index=False)
    make_config(base)
    return {name: save_bundle(base, name) for name in kinds}


def save_bundle(home: Path, name: str) -> Path:
    """Write the bundle of one kind."""
    dataset, fit_model = BUNDLES[name]
    path = home / "conf/datasets/credit-lines.yaml"
    path.write_text(dataset)
    table = fit_table(make_request("credit-lines", home=home))
    split = table.encode()
    manifest = {
        "format": FORMAT,
        "study": "credit-lines",
        "row_id": "case",
        "minimum": 5,
        "seed": 0,
    }
    manifest |= {"accepted": "baker" if name == "classes" else None, "certificate": None}
    metric = ff.learn("subspace", split) if name in ("linear", "rule") else None
    bundle = make_bundle(fit_model(split), RowEncoder.of(table), manifest, metric=metric)
    manifest |= list_facts(bundle)
    test = pd.read_csv(home / "data/raw/credit-lines.csv").loc[split.test.ids]
    bundle.reference = describe_reference(bundle, test, bundle.encode(test), 5)
    return bundle.write(home / name)


def list_files(folder: Path) -> list[str]:
    """Return the files of a bundle, those that decide more than once."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    often = [name for name in names if name == ENCODER or name.startswith(TEXT)]
    return [*names, *often, *often]


def mangle_bundle(folder: Path, rng: random.Random) -> str:
    """Change one file of a bundle, with the digests that are then needed; return its name."""
    name = rng.choice(list_files(folder))
    path = folder / name
    if (path.parent / MODEL_MANIFEST).is_file():
        name = f"{path.parent.name}/{mangle_model(path.parent, rng)}"
    elif path.suffix == ".npz":
        path.write_bytes(mangle_archive(path.read_bytes(), rng))
    elif path.suffix == ".json":
        mangle = rng.choice([mangle_json, mangle_json, mangle_types])
        path.write_bytes(mangle(path.read_text(), rng).encode("utf-8", "surrogatepass"))
    else:
        path.write_bytes(mangle_bytes(path.read_bytes(), rng))
    # Its own text may be none any more.
    with suppress(ValueError, AttributeError, TypeError, RecursionError):
        seal(folder)
    return name


def mangle_types(text: str, rng: random.Random) -> str:
    """Write a number as text, or give a mapping the key of another one, with null."""
    tree = json.loads(text)
    owners = list(walk(tree))
    mappings = [owner for owner in owners if isinstance(owner, dict)]
    places = [
        (owner, key)
        for owner in owners
        for key, value in (owner.items() if isinstance(owner, dict) else enumerate(owner))
        if isinstance(value, int | float)
    ]
    if places and rng.random() < 0.5:
        owner, key = rng.choice(places)
        owner[key] = str(owner[key])
    else:
        rng.choice(mappings)[rng.choice([key for each in mappings for key in each])] = None
    return json.dumps(tree)


def walk(tree: Any) -> Iterator[Any]:
    """Yield the mappings and lists of a JSON text."""
    if isinstance(tree, dict | list):
        yield tree
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from walk(value)


def seal(folder: Path, manifest: dict[str, Any] | None = None) -> None:
    """Write the digests that the files of a bundle need; given a manifest, that of itself alone."""
    if manifest is None:
        manifest = json.loads((folder / MANIFEST).read_text())
        manifest.pop("sha256", None)
        manifest["files"] = _digest_files(folder)
    (folder / MANIFEST).write_text(json.dumps({**manifest, "sha256": _digest(manifest)}))


def ask(table: Path, folder: Path, verb: str) -> str:
    """Return what loading and using a bundle came to; what is no sentence is raised."""
    nowhere = folder.parent / "nowhere"
    try:
        bundle = load_bundle(folder)
    except FairfrontierError:
        return "refused"
    try:
        match verb:
            case "decide":
                bundle.decide(pd.read_csv(table))
            case "audit":
                audit(AuditConfig(model=folder, table=table, out=nowhere, minimum=5))
            case "monitor":
                watch(MonitorConfig(bundle=folder, table=table, out=nowhere))
            case "explain":
                explain_table(ExplainConfig(bundle=folder, table=table, rows=8))
    except FairfrontierError:
        return "refused when asked"
    return "answered"


def run(base: Path, count: int, seed: int) -> Counter[str]:
    """Alter bundles ``count`` times; return how often each outcome came."""
    folders = save_bundles(base / "saved")

    def draw(rng: random.Random) -> tuple[str, str]:
        return rng.choice(list(folders)), rng.choice(VERBS)

    asked = partial(ask, base / "saved" / "rows.csv")
    return alter(base, count, seed, folders=folders, draw=draw, mangle=mangle_bundle, ask=asked)


if __name__ == "__main__":
    start(run)
