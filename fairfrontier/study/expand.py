"""Expanding a study: what it trains, as fit groups."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairfrontier.runtime.errors import ConfigError
from fairfrontier.runtime.home import find_home
from fairfrontier.runtime.store import canonical_json
from fairfrontier.study.check import check
from fairfrontier.study.claim import Block
from fairfrontier.study.config import DEFAULT_PROFILE
from fairfrontier.study.read import read_study
from fairfrontier.study.resolve import ResolvedRow, ResolvedStudy, resolve
from fairfrontier.train.fit.group import FitGroup, Member

# Models trained at once at most: more are hardly faster, and a long sweep would leave cores idle.
AT_ONCE = 5


@dataclass(frozen=True)
class Planned:
    """A fit group and the blocks of the study that show it.

    Attributes
    ----------
    blocks : tuple of {"published", "frontier"}
        At least one; a group that both blocks ask for is trained once.
    group : FitGroup
        What is trained.
    """

    blocks: tuple[Block, ...]
    group: FitGroup


def load_study(
    name_or_path: str | Path, profile: str = DEFAULT_PROFILE, home: Path | None = None
) -> ResolvedStudy:
    """Read a study, resolve what it names, and check it.

    Parameters
    ----------
    name_or_path : str or Path
        A name in ``conf/studies``, or the path of a YAML file.
    profile : str, default "default"
        How much is run; ``default`` is the study as it stands.
    home : Path, optional
        The project root; found from the current folder by default.

    Returns
    -------
    ResolvedStudy
        Its ``study`` is the configuration; `expand` gives what it trains.

    Raises
    ------
    ConfigError
        Naming the file, the key and what was expected.
    """
    home = home or find_home()
    study, path = read_study(name_or_path, profile, home)
    resolved = resolve(study, home, path)
    check(resolved)
    return resolved


def expand(resolved: ResolvedStudy) -> tuple[Planned, ...]:
    """Expand a study into the fit groups that it trains.

    Parameters
    ----------
    resolved : ResolvedStudy
        From `load_study`.

    Returns
    -------
    tuple of Planned
        One per row x sweep value x seed, the published block first; a fit that both blocks ask
        for comes once, with both named. A batched method has groups of up to AT_ONCE
        values and seeds of a row that share their structure.

    Raises
    ------
    ConfigError
        When two different fits would carry the same method, setting and seed in the results.

    Notes
    -----
    ``setting`` holds what the row says itself (preset, grid, swept and fixed parameters, metric,
    post-processor), the rows and the part selected on: enough that (dataset, method, setting,
    seed) names one fit, whatever the profile.
    """
    where = f"Study {resolved.study.study}"
    batches: dict[str, tuple[ResolvedRow, list[Member], list[Block]]] = {}
    names: dict[tuple[str, str, int], tuple[ResolvedRow, str]] = {}
    shared: Counter[tuple[str, Block]] = Counter()
    for row in resolved.rows:
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
                other, where = names[name]
                if not row.trains_like(other):
                    raise ConfigError(
                        f"{where}: two different fits are both called {name[0]} {name[1]}.",
                        "Give one of the rows another label.",
                    )
                batches[where][2].append(row.block)
                shared[where, row.block] += 1
                continue
            names[name] = (row, batch)
            members = batches.setdefault(batch, (row, [], [row.block]))[1]
            members.append(Member(seed, row.parameters, row.setting, row.noise))
    for (where, block), count in shared.items():
        row, of_batch, _ = batches[where]
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
    """Yield parts of AT_ONCE members at most, as equal as can be."""
    parts = -(-len(members) // AT_ONCE)
    cuts = [len(members) * part // parts for part in range(parts + 1)]
    for first, stop in itertools.pairwise(cuts):
        yield tuple(members[first:stop])
