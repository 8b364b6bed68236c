"""The digest of the code that a result came from."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.store import Store

KIND = "source"
PACKAGES = ("fairfrontier",)
_ROOT = Path(__file__).resolve().parents[2]
# Calls whose strings are messages: they are read by people and shape no number.
_SPEAKERS = ("require", "warn")
_DOTTED = re.compile(r"\w+(\.\w+)+")
# A string in the place of every message.
_MESSAGE = ast.Constant("")


def source_digest(
    modules: Iterable[str],
    *,
    within: Iterable[str] = PACKAGES,
    root: Path | None = None,
    store: Store | None = None,
) -> str:
    """Return the digest of the source that the modules run: theirs and all they import from here.

    The import closure is found by reading, not by running: every ``import`` statement counts, at
    the top or inside a function, except under ``if TYPE_CHECKING``. These do not count: comments,
    docstrings, line numbers and formatting; messages, which are the strings of ``raise`` and
    ``assert`` statements and of calls of ``require`` and ``warn``; and the names of the modules,
    as long as they are imported by ``from ... import``: a file counts by what it says and by the
    content of the files that it takes names from.

    Parameters
    ----------
    modules : iterable of str
        Dotted names, in any order, e.g. ``"fairfrontier.train.individual.clp"``. They may be of
        another distribution, whose own package is then followed, too.
    within : iterable of str
        Modules, or packages with all below them, that imports are followed into.
    root : Path, optional
        The folder that holds the packages; the checkout by default.
    store : Store, optional
        Keeps the answer until a byte of the packages changes: reading the syntax of a hundred
        files takes a second.

    Returns
    -------
    str
        sha256 in hexadecimal. The syntax tree differs between minor versions of Python, and so
        does the digest.

    Raises
    ------
    ValueError
        When a module has no source.

    Notes
    -----
    Modules that are found while running (``importlib``, ``pkgutil``) are not followed: name them.
    Nor are the ``__init__`` files above a module, which hold nothing in this project but doors.
    A string that is the dotted path of an object here counts by its last word, unless its module
    is in the closure: a stored model may name its classes so.
    Computed once per process for the same modules: code that is loaded no longer changes.
    """
    names, prefixes = frozenset(modules), frozenset(within)
    place = (root or _ROOT).resolve()
    if store is None:
        return _digest(names, prefixes, place)
    return _keep(names, prefixes, place, store.folder)


@functools.cache
def file_digest(packages: tuple[str, ...] = PACKAGES, *, root: Path | None = None) -> str:
    """Return the digest of every byte of the sources below some packages.

    Parameters
    ----------
    packages : tuple of str
        Dotted names.
    root : Path, optional
        The folder that holds them; the checkout by default.

    Returns
    -------
    str
        sha256 in hexadecimal.

    Notes
    -----
    Some milliseconds for a hundred files. Computed once per process.
    """
    base = (root or _ROOT).resolve()
    digest = hashlib.sha256()
    for package in packages:
        top = _find(package, base)
        if top is None:
            continue
        for path in sorted(top.parent.rglob("*.py")) if top.name == "__init__.py" else [top]:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{package} {path.relative_to(top.parent)} {content}\n".encode())
    return digest.hexdigest()


@functools.cache
def _keep(modules: frozenset[str], within: frozenset[str], root: Path, folder: Path) -> str:
    packages = tuple(sorted({*PACKAGES, *(module.partition(".")[0] for module in modules)}))
    description = {
        "modules": sorted(modules),
        "within": sorted(within),
        "files": file_digest(packages, root=root),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    store = Store(folder)
    key = store.key(KIND, description)
    entry = store.read(KIND, key)
    if entry is not None:
        return str(json.loads((entry / "source.json").read_text(encoding="utf-8")))
    found = _digest(modules, within, root)
    # A store that cannot be written has it computed again.
    with suppress(StoreError), store.writing(KIND, key, description) as folder:
        (folder / "source.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    return found


@functools.cache
def _digest(modules: frozenset[str], within: frozenset[str], root: Path) -> str:
    files: dict[str, _File] = {}
    for module in modules:
        path = _find(module, root)
        if path is None:
            raise ValueError(f"{module} has no source below {root}")
        files[module] = _read(path, module, root)
    guests = {module.partition(".")[0] for module in modules} - set(PACKAGES)
    followed = tuple(f"{prefix}." for prefix in within | guests)
    waiting = list(files)
    while waiting:
        for module in files[waiting.pop()].modules:
            path = _find(module, root) if f"{module}.".startswith(followed) else None
            if module not in files and path is not None:
                files[module] = _read(path, module, root)
                waiting.append(module)
    lines = sorted(_describe(each, files) for each in files.values())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class _File:
    """What one file says.

    Attributes
    ----------
    content : str
        Digest of its syntax without what does not count.
    imports : tuple of (str, str)
        Module and what is taken from it, as text.
    paths : tuple of (str, str)
        Module and last word of strings that are dotted paths.
    """

    content: str
    imports: tuple[tuple[str, str], ...]
    paths: tuple[tuple[str, str], ...]

    @property
    def modules(self) -> list[str]:
        return [module for module, _ in self.imports]


def _describe(file: _File, closure: Mapping[str, _File]) -> str:
    """Return a line on one file: modules stand there as their content, or not at all."""
    taken = sorted(
        f"{closure[module].content if module in closure else ''} {names}"
        for module, names in file.imports
    )
    named = sorted(f"{module}.{word}" for module, word in file.paths if module in closure)
    return " ".join([file.content, *taken, *named])


def _find(module: str, root: Path) -> Path | None:
    """Return the file of a module, or None where it has none of its own."""
    top, _, below = module.partition(".")
    if top in PACKAGES:
        place = root / top
    else:
        spec = importlib.util.find_spec(top) if top.isidentifier() else None
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return None
        place = Path(spec.origin).with_suffix("")
        if place.name == "__init__":
            place = place.parent
    if below:
        place = place.joinpath(*below.split("."))
    for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if path.is_file():
            return path
    return None


@functools.cache
def _read(path: Path, module: str, root: Path) -> _File:
    tree = ast.parse(path.read_bytes(), filename=str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    reader = _Reader(package, {*PACKAGES, module.partition(".")[0]}, root)
    reader.visit(tree)
    reader.rename(tree)
    content = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return _File(content, tuple(reader.imports), tuple(reader.paths))


class _Reader(ast.NodeTransformer):
    """Takes out of a file what does not count, and notes what it imports."""

    def __init__(self, package: str, own: set[str], root: Path) -> None:
        self.package = package
        self.own = own
        self.root = root
        self.imports: list[tuple[str, str]] = []
        self.paths: list[tuple[str, str]] = []
        self.bound: dict[str, str] = {}

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._strip(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._strip(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._strip(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._strip(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return _Silencer().visit(self.generic_visit(node))  # type: ignore[no-any-return]

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = getattr(node.func, "attr", getattr(node.func, "id", None))
        if called in _SPEAKERS:
            node.args = [_MESSAGE if _is_text(each) else each for each in node.args]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if not ast.unparse(node.test).endswith("TYPE_CHECKING"):
            return self.generic_visit(node)
        # Not run, and so nothing of it counts.
        return [self.visit(each) for each in node.orelse]

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            module, _, word = node.value.rpartition(".")
            if module.partition(".")[0] in self.own and _find(module, self.root):
                self.paths.append((module, word))
                return ast.Constant(word)
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        own = [each for each in node.names if each.name.partition(".")[0] in self.own]
        self.imports += [(each.name, "whole") for each in own]
        for each in own:
            if each.asname:
                self._bind(each.asname)
        node.names = [each for each in node.names if each not in own]
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        base = node.module or ""
        if node.level:
            parts = self.package.split(".")
            above = parts[: len(parts) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        if base.partition(".")[0] not in self.own:
            return node
        names = []
        for each in node.names:
            if _find(f"{base}.{each.name}", self.root):
                self.imports.append((f"{base}.{each.name}", "whole"))
                self._bind(each.asname or each.name)
            else:
                names.append(f"{each.name} as {each.asname or each.name}")
        if names:
            self.imports.append((base, ", ".join(sorted(names))))
        return None

    def rename(self, tree: ast.AST) -> None:
        """Give modules that are used by name one that does not depend on theirs."""
        if self.bound:
            for node in ast.walk(tree):
                if isinstance(node, ast.Name):
                    node.id = self.bound.get(node.id, node.id)

    def _bind(self, name: str) -> None:
        self.bound.setdefault(name, f"module {len(self.bound)}")

    def _strip(
        self, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ) -> ast.AST:
        first = node.body[0] if node.body else None
        value = first.value if isinstance(first, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            del node.body[0]
        return self.generic_visit(node)


class _Silencer(ast.NodeTransformer):
    """Empties every string."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return _MESSAGE if isinstance(node.value, str) else node

    def visit_JoinedStr(self, _: ast.JoinedStr) -> ast.AST:
        return _MESSAGE


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
