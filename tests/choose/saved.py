"""Bundles of every kind, and their digests after an edit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fairfrontier as ff
from fairfrontier.deployment.bundle import (
    FORMAT,
    MANIFEST,
    Mixture,
    _digest,
    _digest_files,
    describe_reference,
    list_facts,
    make_bundle,
)
from fairfrontier.models.thresholds.model import post_process
from fairfrontier.prepare.loader import fit_table, make_request
from fairfrontier.prepare.row import RowEncoder
from fairfrontier.prepare.split import Split
from tests.deployment.watched import DATASET, make_rows
from tests.prepare.embedding.graph import make_config

ROWS = 60
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


def seal(folder: Path, manifest: dict[str, Any] | None = None) -> None:
    """Write the digests that the files of a bundle need; given a manifest, that of itself alone."""
    if manifest is None:
        manifest = json.loads((folder / MANIFEST).read_text())
        manifest.pop("sha256", None)
        manifest["files"] = _digest_files(folder)
    (folder / MANIFEST).write_text(json.dumps({**manifest, "sha256": _digest(manifest)}))
