"""The digest of what a split is made from, without making it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fairfrontier.prepare.config.dataset import read_dataset, replace_noise
from fairfrontier.prepare.embedding.feature import digest_text
from fairfrontier.prepare.splitting.plan import SelectOn
from fairfrontier.prepare.table.table import list_files
from fairfrontier.runtime.finder import find_yaml
from fairfrontier.runtime.store import canonical_json, hash_file


def fingerprint(
    name: str | Path,
    seed: int = 0,
    *,
    rows: int | None = None,
    select_on: SelectOn | None = None,
    home: Path,
    noise: float | None = None,
) -> str:
    """Return the sha256 of the raw files, of what shapes the arrays, and of the request.

    Parameters
    ----------
    name, seed, rows, select_on, home, noise
        As in ``fairfrontier.prepare.load``.

    Returns
    -------
    str
        Two requests with the same fingerprint give the same arrays, as long as the code of this
        stage stays the same.

    Raises
    ------
    ConfigError
        When the dataset or a file of it is not there.

    Notes
    -----
    Reads every raw file once, O(bytes); nothing is parsed. A file that has ``sources`` is neither
    read nor fetched: its stated digest is taken. Which encoder of texts ``auto`` stands for is
    settled here, if it was not yet: that may fetch one.
    """
    path = find_yaml("dataset", name, home)
    config = replace_noise(read_dataset(path, home), noise, path)
    files: list[str] = []
    for file in config.source.files:
        if file.sources:
            # Loading refuses any other file, so that this needs none.
            files.append(str(file.sha256))
        else:
            found = list_files(file, config.source, home, path.parent)
            files.extend(hash_file(each) for each in found)
    request: dict[str, Any] = {"seed": seed, "rows": rows, "select_on": select_on}
    if config.features.text is not None:
        request["text"] = digest_text(config.features.text, home, path)
    text = canonical_json({"files": files, "config": config.shape(), **request})
    return hashlib.sha256(text.encode()).hexdigest()
