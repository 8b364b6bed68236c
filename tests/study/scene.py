"""Small studies that are run for their figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fairfrontier.runtime.store import Store
from fairfrontier.study.check import load_study
from fairfrontier.study.drawing import Scene
from fairfrontier.study.frontier import build_results
from fairfrontier.study.points import tabulate_group
from fairfrontier.study.resolve import expand

ROOT = Path(__file__).resolve().parents[2]


def run_study(path: Path, content: Mapping[str, Any]) -> Scene:
    """Write a study and run it; its fits are stored in the file's folder for the next one."""
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True))
    resolved = load_study(path, home=ROOT)
    plan, store = expand(resolved), Store(path.parent / "store")
    points = pd.concat([tabulate_group(planned.group, store, ROOT) for planned in plan])
    points, frontier = points.reset_index(drop=True), pd.DataFrame()
    if resolved.study.certificate:
        frontier = build_results(resolved.study, plan, points, {}).frontier
    return Scene(resolved.study, plan, points, frontier, store, ROOT)
