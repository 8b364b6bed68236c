"""What a project holds in data/cache and data/results, by kind, study and age."""

from __future__ import annotations

import stat
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fairfrontier.audit.config import AuditConfig
from fairfrontier.choose.config import ExplainConfig
from fairfrontier.cli.upkeep.config import Kind
from fairfrontier.debias.config import DebiasConfig
from fairfrontier.monitor.config import MonitorConfig
from fairfrontier.monitor.history import HISTORY, SUMMARY
from fairfrontier.prepare.embedding.cache import FOLDER as EMBEDDINGS
from fairfrontier.prepare.source.fetch import FOLDER as DOWNLOADS
from fairfrontier.prepare.text.corpus import FOLDER as TABLES
from fairfrontier.report.files import KIND as COPY
from fairfrontier.runtime.store import STORE, Store, list_folders
from fairfrontier.runtime.writer import is_draft
from fairfrontier.study.config import name_results
from fairfrontier.study.points import KIND as POINTS
from fairfrontier.study.search import KIND as SEARCH
from fairfrontier.train.fit.kept import KIND as FIT

RESULTS = Path("data", "results")
# What a command leaves: other folders there are not ours to remove.
MARKS = ("report.html", "explain.csv")
# Commands with a folder of results for each table or bundle, and what they leave.
COMMANDS: Mapping[str, Kind] = {
    AuditConfig.command: "results",
    DebiasConfig.command: "results",
    ExplainConfig.command: "results",
    MonitorConfig.command: "histories",
}
KINDS: Mapping[str, Kind] = {FIT: "fits", POINTS: "measures", COPY: "copies", SEARCH: "copies"}


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
    results = (RESULTS / name for name in COMMANDS)
    return [
        base
        for relative in (STORE, TABLES, DOWNLOADS, EMBEDDINGS, RESULTS, *results)
        for base in _list_inside(home, relative, lambda base: [base])
    ]


def find_links(home: Path) -> list[Path]:
    """Return the folders of a project that are links, behind which nothing is listed."""
    known = (STORE, TABLES, DOWNLOADS, EMBEDDINGS, RESULTS)
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
    """Yield the entries of a store; those of no kind in ``KINDS`` are of the ``other`` kind."""
    if not _list_inside(home, relative, list_folders):
        return
    store = Store(home / relative)
    for kind, key, entry in store.list_entries():

        def find_fault(kind: str = kind, key: str = key) -> str | None:
            return store.find_fault(kind, key)

        yield _weigh(KINDS.get(kind, other), entry, store.folder, fault=find_fault)


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
    for folder in _list_inside(home, RESULTS, list_folders):
        kind = COMMANDS.get(folder.name)
        for path in [folder] if kind is None else list_folders(folder):
            if any((path / mark).is_file() for mark in MARKS):
                name = path.relative_to(home / RESULTS).as_posix()
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
