"""Removing what a project holds, and no command uses at the moment."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fairfrontier.cli.upkeep.config import NAMED, CleanConfig
from fairfrontier.cli.upkeep.inventory import Item, find_links, list_bases, list_items, weigh_again
from fairfrontier.runtime.errors import ConfigError, StoreError, nearest
from fairfrontier.runtime.option import RESULTS, holds_results
from fairfrontier.runtime.store import CACHE
from fairfrontier.runtime.writer import check_owned, drafting, recover, taking

# Kinds whose folders are locked one by one while a command writes to them.
LOCKED = ("downloads", "results", "histories")


@dataclass(frozen=True)
class Cleaning:
    """What a project holds (``items``), what was chosen of it, and what commands use of that.

    ``removed`` is what is gone, ``kept`` is why the others that were to go are not, as when another
    user owns them or they hold a file that no command has written, and ``links`` are folders that
    lead elsewhere and were left alone.
    """

    items: Sequence[Item]
    chosen: Sequence[Item]
    held: Sequence[Item]
    removed: Sequence[Item]
    kept: Mapping[Path, str]
    links: Sequence[Path]


def clean(config: CleanConfig) -> Cleaning:
    """Choose what a project holds by kind, study, age and damage; remove it if ``yes``.

    What a running command uses stays: a run, a preparation and a choice share data/cache, a
    download locks its folder, and results are locked while they are written. An entry is renamed
    away before it is deleted, so that no reader sees half of it.

    Raises
    ------
    ConfigError
        When nothing belongs to the study.
    """
    kept: dict[Path, str] = {}
    held, removed = list[Item](), list[Item]()
    # What was renamed away is deleted last, when nobody waits for a lock any more.
    with ExitStack() as trash, ExitStack() as locks:
        # Which studies need an entry of the cache is known under its lock alone.
        wanted = not {*NAMED}.issuperset(config.kind)
        idle = wanted and locks.enter_context(taking(config.home / CACHE))
        if not config.yes:
            # Who only looks keeps nobody waiting.
            locks.close()
        else:
            # Of one that was killed as it deleted, names of items are lost.
            for base in list_bases(config.home):
                recover(base)
        items, links = list_items(config.home), find_links(config.home)
        chosen = choose_items(items, config, time.time())
        bins: dict[Path, Path] = {}
        for number, item in enumerate(chosen):
            try:
                with ExitStack() as own:
                    if not _is_free(item, own, idle=idle):
                        held.append(item)
                    elif config.yes:
                        if not item.is_cached:
                            _refuse_strangers(item.path)
                        if item.base not in bins:
                            bins[item.base] = trash.enter_context(drafting(item.base))
                        item.path.rename(bins[item.base] / str(number))
                        removed.append(item)
            except FileNotFoundError:
                # Whoever read a damaged entry has removed it.
                removed.append(item)
            except OSError as error:
                kept[item.path] = error.strerror or str(error)
            except StoreError as error:
                kept[item.path] = error.fault.rstrip(".")
    return Cleaning(items, chosen, held, removed if config.yes else [], kept, links)


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


def _refuse_strangers(folder: Path) -> None:
    """Raise StoreError when results or a history hold what no command has written.

    That is a file of none of the commands whose results are there, or a paper of a choice that
    somebody completed.
    """
    # They take a second to import, and most calls clean the cache.
    from fairfrontier.choose.choosing import FOLDER, check_papers, list_owned
    from fairfrontier.monitor.history import list_kept
    from fairfrontier.study.drawing import list_files

    choice = folder / FOLDER
    there = [command for command in RESULTS if holds_results(folder, command)]
    owned = {name for command in there for name in RESULTS[command]}
    if "run" in there:
        owned.update(list_files())
    if "monitor" in there:
        owned.update(path.name for path in list_kept(folder))
    if holds_results(choice, "select"):
        owned.update(f"{FOLDER}/{name}" for name in list_owned(choice))
    check_owned(folder, owned)
    check_papers(choice)


def _is_free(item: Item, locks: ExitStack, *, idle: bool) -> bool:
    """Whether no command uses an item, nor has since it was listed; none begins to meanwhile."""
    if item.is_cached and not idle:
        return False
    if item.kind in LOCKED:
        # Whoever writes there has locked one of these.
        inside = [path for path in item.path.rglob("*") if path.is_dir() and not path.is_symlink()]
        if not all(locks.enter_context(taking(folder)) for folder in (item.path, *inside)):
            return False
    return item.is_cached or weigh_again(item) == item
