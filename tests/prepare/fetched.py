"""Files that datasets need and that are not committed: fetched by this module, never by a test.

python -m tests.prepare.fetched
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fairfrontier.prepare.config.dataset import PinnedFile, read_dataset, read_encoder
from fairfrontier.prepare.config.section import SourceFile
from fairfrontier.prepare.source.fetch import fetch, find
from fairfrontier.runtime.errors import UnreachableError

ROOT = Path(__file__).resolve().parents[2]
_FILES = sorted((ROOT / "conf" / "datasets").glob("*.yaml"))
_CONFIGS = {path.stem: read_dataset(path, ROOT) for path in _FILES}
# Not committed; tables that users bring are not fetched, either.
FETCHED = {name for name, config in _CONFIGS.items() if any(f.sources for f in config.source.files)}
OWN = {
    name
    for name, config in _CONFIGS.items()
    if config.expected.read == "never" or "downloads/" in str(config.source.path[0].path)
}
ENCODER = "minilm"


def list_files(name: str) -> list[PinnedFile | SourceFile]:
    """Return the files of a dataset, or of the encoder, that are fetched."""
    if name == ENCODER:
        encoder = read_encoder(name, ROOT)
        return [encoder.weights, encoder.tokenizer]
    source = read_dataset(ROOT / "conf" / "datasets" / f"{name}.yaml", ROOT).source
    if name in OWN and not (ROOT / str(source.path[0].path)).exists():
        pytest.skip(f"{name} is a table that users bring")
    return [file for file in source.files if file.sources]


def require_files(name: str) -> None:
    """Skip a test whose files were not fetched."""
    for file in list_files(name):
        if find(file.sources, str(file.sha256), ROOT) is None:
            pytest.skip(f"{name} is not in data/cache/downloads; `make test-fetched` gets it")


def main() -> None:
    """Fetch all files, and say which are out of reach; FetchError for one with another digest."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("fairfrontier").setLevel(logging.INFO)
    for name in (*sorted(FETCHED), ENCODER):
        try:
            for file in list_files(name):
                fetch(file.sources, str(file.sha256), ROOT)
        except UnreachableError as error:
            print(f"{name} is not tested: {error}", flush=True)


if __name__ == "__main__":
    main()
