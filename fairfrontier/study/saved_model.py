"""Where the store keeps the models of a study, so that a chosen one can be loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fairfrontier.runtime.store import Store, canonical_json
from fairfrontier.study.expand import Planned
from fairfrontier.train.fit.group import FitGroup
from fairfrontier.train.fit.kept import KIND
from fairfrontier.train.fit.key import key
from fairfrontier.train.registry import METHODS

COLUMNS = ("method", "setting", "seed", "model", "post_processor", "needs_groups")


def list_models(plan: Sequence[Planned], store: Store, home: Path) -> pd.DataFrame:
    """Return the folder of every stored model of a study: a frame with the columns ``COLUMNS``.

    ``model`` is a folder for `load_model` and ``post_processor`` that of the rule that decides from
    the model's scores, empty without one; both are relative to ``home``. ``needs_groups`` says
    whether the group of a row is needed to decide on it. Skipped methods have no row.
    """
    rows = []
    for planned in plan:
        group = planned.group
        entry = store.path(KIND, key(group, store, home))
        base = entry if group.then is None else store.path(KIND, key(group.base, store, home))
        for number, member in enumerate(group.members):
            folder = f"model-{number}"
            if not (entry / folder).is_dir():
                continue
            rule = "" if group.then is None else _name(entry / folder, home)
            name = (group.method, canonical_json(member.setting), member.seed)
            rows.append((*name, _name(base / folder, home), rule, needs_groups(group)))
    table = pd.DataFrame(rows, columns=list(COLUMNS)).drop_duplicates(ignore_index=True)
    return table.sort_values(["method", "setting", "seed"], kind="stable", ignore_index=True)


def needs_groups(group: FitGroup) -> bool:
    """Return whether models of a fit group have to be told a row's group when they decide."""
    deciding = [group.estimator, *([] if group.then is None else [str(group.then["method"])])]
    known = filter(None, map(METHODS.get, deciding))
    return any("groups" in method.predict_needs for method in known)


def _name(folder: Path, home: Path) -> str:
    return Path(os.path.relpath(folder, home)).as_posix()
