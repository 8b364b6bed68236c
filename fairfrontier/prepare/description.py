"""What a dataset's parts hold, as a table for people."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from fairfrontier.prepare.split import Split
from fairfrontier.runtime.option import NameOrFile, ProjectOptions, Seed


class PrepareConfig(ProjectOptions):
    """Which dataset is prepared, and which split of it."""

    dataset: NameOrFile = Field(description="A name in conf/datasets, or a YAML file.")
    seed: Seed = Field(default=0, description="Which split.")


def describe_split(split: Split) -> list[dict[str, Any]]:
    """Return one row per part: its size, the label's mean, and the share of each group."""
    table = []
    for name, part in split.parts():
        row: dict[str, Any] = {
            "part": name,
            "rows": part.n_samples,
            "features": int(part.X.shape[1]),
            "label mean": round(float(np.mean(part.y)), 4),
        }
        if split.text_encoder is not None:
            row["texts by"] = split.text_encoder
        for attribute, levels in part.attributes.items():
            codes = part.group(attribute)
            for code, level in enumerate(levels):
                row[f"{attribute}={level}"] = round(float(np.mean(codes == code)), 4)
        table.append(row)
    return table
