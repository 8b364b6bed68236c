"""Expanding a study into the fit groups that it trains."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairfrontier.models.fit.group import KIND, FitGroup, Member
from fairfrontier.models.fit.key import key
from fairfrontier.models.registry import METHODS
from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.store import Store, canonical_json
from fairfrontier.study.config import Block
from fairfrontier.study.resolve import ResolvedRow, ResolvedStudy

# The most models trained together: more are hardly faster, and a long sweep would leave cores idle.
BATCH_SIZE = 5


@dataclass(frozen=True)
class Planned:
    """A fit group, trained once, and the blocks of the study that show it."""

    blocks: tuple[Block, ...]
    group: FitGroup


def expand(resolved: ResolvedStudy) -> tuple[Planned, ...]:
    """Return the fit groups of a study; see `expand_rows`."""
    return expand_rows(resolved.study.study, resolved.rows)


def expand_rows(study: str, rows: Sequence[ResolvedRow]) -> tuple[Planned, ...]:
    """Return the fit groups of resolved rows, those of the published block first.

    There is one per row × sweep value × seed; a batched method has groups of up to BATCH_SIZE
    values and seeds of a row that share their structure. A fit that both blocks ask for comes once,
    with both named. ``setting`` holds what the row itself says (preset, grid, swept and fixed
    parameters, metric, post-processor), the rows and the part selected on: enough that (dataset,
    method, setting, seed) names one fit, whatever the profile. A ConfigError refuses two different
    fits with the same name.
    """
    where = f"Study {study}"
    batches: dict[str, tuple[ResolvedRow, list[Member], list[Block]]] = {}
    names: dict[tuple[str, str, int], tuple[ResolvedRow, str]] = {}
    shared: Counter[tuple[str, Block]] = Counter()
    for row in rows:
        for seed in row.seeds:
            name = (row.shared["method"], canonical_json(row.setting), seed)
            together: dict[str, Any] = {
                "of": row.shared,
                "block": row.block,
                "structure": row.structure,
            }
            if not row.across_splits:
                together |= {"seed": seed, "noise": row.noise}
            batch = canonical_json(together if row.structure is not None else {"name": name})
            if name in names:
                other, batch = names[name]
                if not row.trains_like(other):
                    raise ConfigError(
                        f"{where}: two different fits are both called {name[0]} {name[1]}.",
                        "Give one of the rows another label.",
                    )
                batches[batch][2].append(row.block)
                shared[batch, row.block] += 1
                continue
            names[name] = (row, batch)
            members = batches.setdefault(batch, (row, [], [row.block]))[1]
            members.append(Member(seed, row.parameters, row.setting, row.noise))
    for (batch, block), count in shared.items():
        row, of_batch, _ = batches[batch]
        if count < len(of_batch):
            raise ConfigError(
                f"{where}: the {block} block asks for {count} of the {len(of_batch)} "
                f"fits of {row.shared['method']} that the {row.block} block trains at once.",
                "Ask for the same seeds and values in both, or give one of the rows another label.",
            )
    return tuple(
        Planned(tuple(dict.fromkeys(blocks)), FitGroup(**row.shared, members=part))
        for row, members, blocks in batches.values()
        for part in _share_out(members)
    )


def _share_out(members: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
    """Yield parts of at most BATCH_SIZE members, of sizes as equal as possible."""
    parts = -(-len(members) // BATCH_SIZE)
    cuts = [len(members) * part // parts for part in range(parts + 1)]
    for first, stop in itertools.pairwise(cuts):
        yield tuple(members[first:stop])


# Where the store keeps the models of a study, so that a chosen one can be loaded.

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
