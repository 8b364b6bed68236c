"""What a study reproduces, in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.cli.command import read_summary, show_end
from fairfrontier.cli.terminal import print_table
from fairfrontier.runtime.text_file import read_csv


def show_reproduced(done: dict[str, Any]) -> None:
    """Print published numbers beside ours, or the claims of a study of figures."""
    if (Path(done["folder"]) / "published.csv").is_file():
        _show_published(done)
    else:
        _show_claims(done)


def _show_published(done: dict[str, Any]) -> None:
    path = Path(done["folder"]) / "published.csv"
    table = read_csv(path)
    for whose, spread in (("published", "spread"), ("ours", "sd")):
        pairs = zip(table[f"{whose}_mean"], table[f"{whose}_{spread}"], strict=True)
        table[whose] = [_join_spread(*pair) for pair in pairs]
    columns = ["row", "measure", "published", "ours", "n_splits", "table"]
    shown = table[columns].rename(columns={"n_splits": "splits"})
    title, keep = f"{done['study']}: published / ours ± sd", ("published", "ours")
    print_table(title, shown, keep=keep, complete=str(path))
    show_end(done)


def _show_claims(done: dict[str, Any]) -> None:
    words = {True: "held", False: "not held", None: "not known"}
    rows = [(words[claim["held"]], claim["sentence"]) for claim in read_summary(done)["claims"]]
    print_table(f"{done['study']}: claims", pd.DataFrame(rows, columns=["", "claim"]))
    show_end(done)


def _join_spread(mean: float, spread: float) -> str:
    """Write a mean with its spread, on one line; either is NaN where it is unknown."""
    if mean != mean:
        return "-"
    return f"{mean:.3f}" if spread != spread else f"{mean:.3f} ± {spread:.3f}"
