"""Tables and summaries as text files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write CSV in which every float reads back as itself."""
    table.to_csv(path, index=False, lineterminator="\n")


def write_json(summary: Mapping[str, Any], path: Path) -> None:
    """Write JSON in the order of the keys; ValueError for a number that is not finite."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.write_text(text, encoding="utf-8")
