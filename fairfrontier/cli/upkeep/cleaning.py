"""Removing what a project holds, and no command uses at the moment."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairfrontier.cli.upkeep.config import CleanConfig
from fairfrontier.cli.upkeep.inventory import Item, find_links, list_items
from fairfrontier.runtime.errors import ConfigError, nearest
from fairfrontier.runtime.store import CACHE
from fairfrontier.runtime.writer import drafting, lock_folder

# Kinds whose folders are locked one by one while a command writes to them.
LOCKED = ("downloads", "results", "histories")


@dataclass(frozen=True)
class Cleaning:
    """What a project holds (``items``), what was chosen of it, and what commands use of that.

    ``removed`` is what is gone, ``kept`` is why the others that were to go are not, as when another
    user owns them, and ``links`` are folders that lead elsewhere and were left alone.
    """

    items: Sequence[Item]
    chosen: Sequence[Item]
    held: Sequence[Item]
    removed: Sequence[Item]
    kept: Mapping[Path, str]
    links: Sequence[Path]


def clean(config: CleanConfig) -> Cleaning:
    """Choose what a project holds by kind, study, age and damage; remove it if ``yes``.

    What a running command uses stays: a run, a preparation and a choice lock data/cache, a download
    its folder, and results are locked while they are written. An entry is renamed away before it
    is deleted, so that no reader sees half of it.

    Raises
    ------
    ConfigError
        When nothing belongs to the study.
    """
    items, links = list_items(config.home), find_links(config.home)
    chosen = choose_items(items, config, time.time())
    with _locking(chosen, config.home) as free:
        kept = _remove(free) if config.yes else {}
    held = [item for item in chosen if item not in free]
    removed = [item for item in free if config.yes and item.path not in kept]
    return Cleaning(items, chosen, held, removed, kept, links)


def choose_items(items: Sequence[Item], config: CleanConfig, now: float) -> list[Item]:
    """Return the items of the options' kinds, study and age; digests are read for damage."""
    known = {study for item in items for study in item.studies}
    if config.study is not None and config.study not in known:
        raise ConfigError(
            f"Nothing here belongs to a study {config.study!r}.", nearest(config.study, known)
        )
    age = 0.0 if config.older_than is None else config.older_than.total_seconds()
    return [
        item
        for item in items
        if item.kind in config.kind
        and (config.study is None or item.studies == {config.study})
        and now - item.written >= age
        and not (config.damaged and item.fault() is None)
    ]


@contextmanager
def _locking(items: Sequence[Item], home: Path) -> Iterator[list[Item]]:
    """Yield the items that no command uses; until the end of the block none begins to."""
    with ExitStack() as stack:

        def lock(folder: Path) -> bool:
            try:
                stack.callback(os.close, lock_folder(folder, wait=False))
            except OSError:
                return False
            return True

        idle = any(item.is_cached for item in items) and lock(home / CACHE)
        yield [
            item
            for item in items
            if (idle or not item.is_cached)
            and (item.kind not in LOCKED or all(map(lock, _list_locked(item.path))))
        ]


def _list_locked(folder: Path) -> list[Path]:
    """Return a folder and the unfinished work in it: who writes there has locked one of them."""
    drafts = (path for path in folder.rglob(".*@*") if path.is_dir() and not path.is_symlink())
    return [folder, *drafts]


def _remove(items: Sequence[Item]) -> dict[Path, str]:
    """Remove items, and return why those stay that do."""
    kept: dict[Path, str] = {}
    bases: dict[Path, list[Item]] = defaultdict(list)
    for item in items:
        bases[item.base].append(item)
    for base, inside in bases.items():
        try:
            with drafting(base) as trash:
                for number, item in enumerate(inside):
                    try:
                        item.path.rename(trash / str(number))
                    except FileNotFoundError:
                        # Whoever read a damaged entry has removed it.
                        continue
                    except OSError as error:
                        kept[item.path] = error.strerror or str(error)
        except OSError as error:
            kept |= {item.path: error.strerror or str(error) for item in inside}
    return kept
