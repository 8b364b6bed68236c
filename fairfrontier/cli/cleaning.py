"""What a project holds in data/cache and data/results, and removing what no command uses."""

from __future__ import annotations

import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from fairfrontier.auditing.option import AuditConfig, DebiasConfig
from fairfrontier.deployment.config import ExplainConfig, MonitorConfig
from fairfrontier.deployment.history import HISTORY, SUMMARY
from fairfrontier.models.fit.group import KIND as FIT
from fairfrontier.prepare.embedding.cache import FOLDER as EMBEDDINGS
from fairfrontier.prepare.source.fetch import FOLDER as DOWNLOADS
from fairfrontier.prepare.text.corpus import FOLDER as TABLES
from fairfrontier.report.files import KIND as COPY
from fairfrontier.runtime.config import fault
from fairfrontier.runtime.errors import ConfigError, StoreError, nearest
from fairfrontier.runtime.option import (
    RESULTS,
    AsJson,
    Name,
    ProjectOptions,
    holds_results,
    split_names,
)
from fairfrontier.runtime.store import CACHE, STORE, Store, list_folders
from fairfrontier.runtime.writer import check_owned, drafting, is_draft, recover, taking
from fairfrontier.study.config import name_results
from fairfrontier.study.points import KIND as POINTS
from fairfrontier.study.run import SEARCH

Kind = Literal[
    "fits",
    "measures",
    "copies",
    "inputs",
    "tables",
    "embeddings",
    "downloads",
    "results",
    "histories",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
# What no command makes again by itself goes only when it is named.
NAMED = ("results", "histories")
UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def read_age(value: Any) -> Any:
    """Return the time that a text such as 30d says."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d{1,6})([hdw])", value)
    if found is None:
        raise fault(f"{value!r} is no age", "Write hours, days or weeks, as 12h, 30d or 8w.")
    return timedelta(**{UNITS[found[2]]: int(found[1])})


class CleanConfig(ProjectOptions):
    """What is removed of what a project holds: the options of a command."""

    kind: Annotated[tuple[Kind, ...], BeforeValidator(split_names)] = Field(
        default=tuple(kind for kind in KINDS if kind not in NAMED),
        description=f"Which of {', '.join(KINDS)}; all but the last two by default.",
    )
    study: Name | None = Field(
        default=None, description="Only what belongs to this study and to no other."
    )
    older_than: Annotated[timedelta, BeforeValidator(read_age)] | None = Field(
        default=None, description="Only what was written longer ago, as 12h, 30d or 8w."
    )
    damaged: bool = Field(
        default=False, description="Only entries of the store whose digests do not match."
    )
    yes: bool = Field(default=False, description="Remove it; without, it is only shown.")
    as_json: AsJson = False


FOLDER = Path("data", "results")
# What a command leaves: other folders there are not ours to remove.
MARKS = ("report.html", "explain.csv")
# Commands with a folder of results for each table or bundle, and what they leave.
COMMANDS: Mapping[str, Kind] = {
    AuditConfig.command: "results",
    DebiasConfig.command: "results",
    ExplainConfig.command: "results",
    MonitorConfig.command: "histories",
}
STORED: Mapping[str, Kind] = {FIT: "fits", POINTS: "measures", COPY: "copies", SEARCH: "copies"}


@dataclass(frozen=True)
class Item:
    """A file or folder of the project that is removed as a whole.

    ``studies`` are those that it belongs to, as far as that is known; ``bytes`` are those of its
    files and ``written`` is when the newest was, in seconds since 1970. ``base`` is the folder of
    its kind; ``fault`` finds damage.
    """

    kind: Kind
    path: Path
    base: Path
    studies: frozenset[str]
    bytes: int
    written: float
    fault: Callable[[], str | None]

    @property
    def is_cached(self) -> bool:
        """Whether commands make it again when they need it."""
        return self.kind not in ("results", "histories")


def list_items(home: Path) -> list[Item]:
    """Return what a project holds; links are neither followed nor listed."""
    items = [*_list_store(home), *_list_stored(home, TABLES, "tables")]
    items += [
        _weigh("downloads", folder, home / DOWNLOADS)
        for folder in _list_inside(home, DOWNLOADS, list_folders)
    ]
    items += [
        _weigh("embeddings", path, home / EMBEDDINGS)
        for path in _list_inside(home, EMBEDDINGS, lambda base: sorted(base.glob("*.sqlite")))
        if not path.is_symlink()
    ]
    return [*items, *_list_results(home)]


def list_bases(home: Path) -> list[Path]:
    """Return the folders in which items lie, but for links."""
    results = (FOLDER / name for name in COMMANDS)
    return [
        base
        for relative in (STORE, TABLES, DOWNLOADS, EMBEDDINGS, FOLDER, *results)
        for base in _list_inside(home, relative, lambda base: [base])
    ]


def find_links(home: Path) -> list[Path]:
    """Return the folders of a project that are links, behind which nothing is listed."""
    known = (STORE, TABLES, DOWNLOADS, EMBEDDINGS, FOLDER)
    steps = {home / part for path in known for part in (*path.parents[:-1], path)}
    return sorted(step for step in steps if step.is_symlink())


def _list_inside(home: Path, relative: Path, find: Callable[[Path], list[Path]]) -> list[Path]:
    """Return what is found in a folder of the project; nothing where a link leads to it."""
    base = home / relative
    steps = [home / part for part in (*relative.parents[:-1], relative)]
    return find(base) if base.is_dir() and not any(step.is_symlink() for step in steps) else []


def _list_store(home: Path) -> Iterator[Item]:
    store = Store(home / STORE)
    owners = _find_owners(store) if _list_inside(home, STORE, list_folders) else {}
    for item in _list_stored(home, STORE, "inputs"):
        yield replace(item, studies=frozenset(owners.get(item.path, ())))


def _list_stored(home: Path, relative: Path, other: Kind) -> Iterator[Item]:
    """Yield the entries of a store; those of no kind in ``STORED`` are of the ``other`` kind."""
    if not _list_inside(home, relative, list_folders):
        return
    store = Store(home / relative)
    for kind, key, entry in store.list_entries():

        def find_fault(kind: str = kind, key: str = key) -> str | None:
            return store.find_fault(kind, key)

        yield _weigh(STORED.get(kind, other), entry, store.folder, fault=find_fault)


def _find_owners(store: Store) -> dict[Path, set[str]]:
    """Return the studies of entries: copies and searches name points, and points their fit."""
    owners: dict[Path, set[str]] = defaultdict(set)
    entries = list(store.list_entries())
    points = {key: store.peek(POINTS, key) for kind, key, _ in entries if kind == POINTS}
    fits = {key: store.peek(FIT, key) for kind, key, _ in entries if kind == FIT}
    for kind, key, entry in entries:
        if kind not in (COPY, SEARCH):
            continue
        description = store.peek(kind, key)
        # Of a manifest that says something else nothing is known.
        with suppress(LookupError, TypeError):
            slug = name_results(description["study"]["study"], description["study"]["profile"])
            owners[entry].add(slug)
            for planned in description["plan"]:
                name = str(planned["points"])
                fit = str(points.get(name, {}).get("fit", ""))
                # The model behind a post-processed row.
                base = str(fits.get(fit, {}).get("base", ""))
                for path in (POINTS, name), (FIT, fit), (FIT, base):
                    owners[store.path(*path)].add(slug)
    return owners


def _list_results(home: Path) -> Iterator[Item]:
    for folder in _list_inside(home, FOLDER, list_folders):
        kind = COMMANDS.get(folder.name)
        for path in [folder] if kind is None else list_folders(folder):
            if any((path / mark).is_file() for mark in MARKS):
                name = path.relative_to(home / FOLDER).as_posix()
                # `monitor --out` may have left one anywhere.
                held = "histories" if _holds_history(path) else kind or "results"
                yield _weigh(held, path, path.parent, studies=frozenset({name}))


def weigh_again(item: Item) -> Item:
    """Return an item of the results as it is now; FileNotFoundError where it is gone."""
    kind = "histories" if _holds_history(item.path) else item.kind
    return _weigh(kind, item.path, item.base, studies=item.studies, fault=item.fault)


def _holds_history(folder: Path) -> bool:
    return any(path.name in (HISTORY, SUMMARY) for path in folder.rglob("*"))


def _weigh(
    kind: Kind,
    path: Path,
    base: Path,
    *,
    studies: frozenset[str] = frozenset(),
    fault: Callable[[], str | None] = lambda: None,
) -> Item:
    size, times = 0, list[float]()
    for file in [path] if path.is_file() else path.rglob("*"):
        # Others may be removing it.
        with suppress(OSError):
            facts = file.lstat()
            # Whoever removes it locks it before.
            if is_draft(file.name):
                continue
            if not stat.S_ISDIR(facts.st_mode):
                size += facts.st_size
                times.append(facts.st_mtime)
    written = max(times, default=path.lstat().st_mtime)
    return Item(kind, path, base, studies, size, written, fault)


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
    from fairfrontier.deployment.history import list_kept
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
