"""Where the store keeps the models of a study, so that one that was chosen can be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fairfrontier.runtime.store import Store, canonical_json
from fairfrontier.study.expand import Planned
from fairfrontier.train.fit.kept import KIND
from fairfrontier.train.fit.key import key

COLUMNS = ("method", "setting", "seed", "model", "post_processor")


def list_models(plan: Sequence[Planned], store: Store, home: Path) -> pd.DataFrame:
    """Return the folder of every model of a study that the store holds.

    Parameters
    ----------
    plan : sequence of Planned
        What was run.
    store : Store
        Holds the fits.
    home : Path
        The project root, which folders are relative to where they lie in it.

    Returns
    -------
    DataFrame
        Columns method, setting, seed, as in points.parquet; model, a folder for `load_model`; and
        post_processor, that of the rule that decides from the model's scores, empty where there is
        none. Methods that were left out have no row.
    """
    rows = []
    for each in plan:
        group = each.group
        entry = store.path(KIND, key(group, store, home))
        base = entry if group.then is None else store.path(KIND, key(group.base, store, home))
        for number, member in enumerate(group.members):
            folder = f"model-{number}"
            if not (entry / folder).is_dir():
                continue
            rule = "" if group.then is None else _name(entry / folder, home)
            name = (group.method, canonical_json(member.setting), member.seed)
            rows.append((*name, _name(base / folder, home), rule))
    table = pd.DataFrame(rows, columns=list(COLUMNS)).drop_duplicates(ignore_index=True)
    return table.sort_values(["method", "setting", "seed"], kind="stable", ignore_index=True)


def _name(folder: Path, home: Path) -> str:
    inside = folder.is_relative_to(home)
    return (folder.relative_to(home) if inside else folder).as_posix()
