"""Digests of the arrays of every dataset that can be read here.

python -m tests.contracts.arrays            compares them with the kept ones
python -m tests.contracts.arrays --keep     keeps them anew
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fairfrontier.prepare.loader import load
from fairfrontier.prepare.split import Split
from tests.prepare.fetched import FETCHED, OWN

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).with_suffix(".json")
# What is fetched, or brought by users, has no digest here.
NAMES = sorted({path.stem for path in (ROOT / "conf" / "datasets").glob("*.yaml")} - FETCHED - OWN)
FIELDS = ("ids", "X", "y", "groups", "true_groups", "protected", "weight")


def digest_array(array: Any) -> str:
    """Return the sha256 of an array with its dtype and shape."""
    array = np.asarray(array)
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def sort_rows(split: Split) -> Split:
    """Return a split with the rows of every part in the table's order, as they are on Dask."""
    return split.replace(
        **{name: part.take(np.argsort(np.asarray(part.ids))) for name, part in split.parts()}
    )


def digest_split(split: Split) -> dict[str, Any]:
    """Return the digests of all arrays of a split by part, and of the names of features."""
    found: dict[str, Any] = {"features": hashlib.sha256("\n".join(split.feature_names).encode())}
    found["features"] = found["features"].hexdigest()
    for name, part in split.parts():
        arrays = {field: getattr(part, field) for field in FIELDS}
        for key, sets in part.counterfactuals.items():
            for variant in sets:
                arrays[f"{key}: {variant.name}: X"] = variant.X
                arrays[f"{key}: {variant.name}: groups"] = variant.groups
        found[name] = {
            field: digest_array(array) for field, array in arrays.items() if array is not None
        }
    return found


def read_kept() -> dict[str, Any]:
    """Return the kept digests of every dataset."""
    return json.loads(KEPT.read_text(encoding="utf-8"))


def main(keep: bool) -> None:
    """Keep the digests, or say which differ."""
    found = {name: digest_split(load(name, home=ROOT)) for name in NAMES}
    if keep:
        KEPT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    for name, kept in read_kept().items():
        for part, fields in kept.items():
            if found[name][part] != fields:
                print(name, part, "differs")


if __name__ == "__main__":
    main("--keep" in sys.argv)
