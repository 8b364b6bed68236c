"""A fit in the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KIND = "fit"
# Of an entry's files; another number requires new fits.
LAYOUT = 1


def read_facts(folder: Path) -> dict[str, Any]:
    """Return ``seconds``, ``skipped`` and ``reports`` (one for each model) of a stored fit."""
    facts: dict[str, Any] = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    return facts
