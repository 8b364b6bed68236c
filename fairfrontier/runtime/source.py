"""The digest of the code that made a result."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.store import Store

KIND = "source"
PACKAGES = ("fairfrontier",)
_ROOT = Path(__file__).resolve().parents[2]
# Calls whose strings are messages, which affect no number.
_SPEAKERS = ("require", "warn")
# Replaces every message.
_MESSAGE = ast.Constant("")


def source_digest(
    modules: Iterable[str],
    *,
    within: Iterable[str] = PACKAGES,
    without: Iterable[str] = (),
    root: Path | None = None,
    store: Store | None = None,
) -> str:
    """Return the sha256 of the source that the modules run: theirs and all they import from here.

    The import closure is found by reading, not by running: every ``import`` statement counts, at
    the top or inside a function, except under ``if TYPE_CHECKING``. These do not count: comments,
    docstrings, line numbers and formatting; and messages, which are the strings of ``raise`` and
    ``assert`` statements and of calls of ``require`` and ``warn``.

    Parameters
    ----------
    modules : iterable of str
        Dotted names, in any order, e.g. ``"fairfrontier.models.individual.sensr"``; for one of
        another distribution imports of that package are followed, too, and the versions count of
        that distribution and of those that any file of the package imports.
    within : iterable of str
        Modules, or packages with all below them, that imports are followed into.
    without : iterable of str
        Modules in these that imports are not followed into.
    root : Path, optional
        The folder that holds the packages; the checkout by default.
    store : Store, optional
        Caches the digest until a byte of the packages changes: parsing a hundred files takes a
        second.

    Raises
    ------
    ValueError
        When a module has no source.

    Notes
    -----
    Modules that are found at run time (``importlib``, ``pkgutil``) are not followed: name them. Nor
    are the ``__init__`` files above a module. The digest is computed once per process, and differs
    between minor versions of Python.
    """
    names, prefixes, left_out = frozenset(modules), frozenset(within), frozenset(without)
    base = (root or _ROOT).resolve()
    if store is None:
        return _digest(names, prefixes, left_out, base)
    return _keep(names, prefixes, left_out, base, store.folder)


@functools.cache
def file_digest(packages: tuple[str, ...] = PACKAGES, *, root: Path | None = None) -> str:
    """Return the sha256 of every byte of the sources below some packages in ``root``."""
    base = (root or _ROOT).resolve()
    digest = hashlib.sha256()
    for package in packages:
        for name, path in _list_files(package, base):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{package} {name} {content}\n".encode())
    return digest.hexdigest()


@functools.cache
def _guest_versions(modules: frozenset[str], root: Path) -> dict[str, str]:
    """Return the versions of what modules of other distributions run: their own and its imports."""
    guests = {module.partition(".")[0] for module in modules} - {*PACKAGES}
    names = set(guests)
    for guest in guests:
        for _, path in _list_files(guest, root):
            try:
                tree = ast.parse(path.read_bytes(), filename=str(path))
            except (SyntaxError, ValueError):
                # A template, which nobody imports.
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    names.update(alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
    names -= {*PACKAGES, *sys.stdlib_module_names}
    owners = importlib.metadata.packages_distributions() if names else {}
    found = {owner for name in names for owner in owners.get(name, ())}
    return {owner: importlib.metadata.version(owner) for owner in sorted(found)}


def _list_files(package: str, root: Path) -> list[tuple[Path, Path]]:
    """Return the sources of a package or a module, each as it is called within, too."""
    top = _find(package, root)
    if top is None:
        return []
    paths = sorted(top.parent.rglob("*.py")) if top.name == "__init__.py" else [top]
    return [(path.relative_to(top.parent), path) for path in paths]


@functools.cache
def _keep(
    modules: frozenset[str],
    within: frozenset[str],
    without: frozenset[str],
    root: Path,
    folder: Path,
) -> str:
    packages = tuple(sorted({*PACKAGES, *(module.partition(".")[0] for module in modules)}))
    description = {
        "modules": sorted(modules),
        "within": sorted(within),
        "without": sorted(without),
        "files": file_digest(packages, root=root),
        "libraries": _guest_versions(modules, root),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    store = Store(folder)
    key = store.key(KIND, description)
    entry = store.read(KIND, key)
    if entry is not None:
        return str(json.loads((entry / "source.json").read_text(encoding="utf-8")))
    digest = _digest(modules, within, without, root)
    # Without a writable store it is computed again each time.
    with suppress(StoreError), store.writing(KIND, key, description) as folder:
        (folder / "source.json").write_text(json.dumps(digest) + "\n", encoding="utf-8")
    return digest


@functools.cache
def _digest(
    modules: frozenset[str], within: frozenset[str], without: frozenset[str], root: Path
) -> str:
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
            counts = f"{module}.".startswith(followed) and module not in without
            path = _find(module, root) if counts else None
            if module not in files and path is not None:
                files[module] = _read(path, module, root)
                waiting.append(module)
    lines = sorted(file.content for file in files.values())
    lines += [f"{name} {number}" for name, number in _guest_versions(modules, root).items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class _File:
    """A file: the digest of what counts in it, and the modules that it imports."""

    content: str
    modules: tuple[str, ...]


def _find(module: str, root: Path) -> Path | None:
    """Return the file of a module, or None if it has no Python source."""
    top, _, below = module.partition(".")
    if top in PACKAGES:
        base = root / top
    else:
        spec = importlib.util.find_spec(top) if top.isidentifier() else None
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return None
        base = Path(spec.origin).with_suffix("")
        if base.name == "__init__":
            base = base.parent
    if below:
        base = base.joinpath(*below.split("."))
    for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
        if path.is_file():
            return path
    return None


@functools.cache
def _read(path: Path, module: str, root: Path) -> _File:
    tree = ast.parse(path.read_bytes(), filename=str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    reader = _Reader(package, {*PACKAGES, module.partition(".")[0]}, root)
    content = hashlib.sha256(ast.dump(reader.visit(tree)).encode()).hexdigest()
    return _File(content, tuple(reader.modules))


class _Reader(ast.NodeTransformer):
    """Removes from a file what does not count, and notes its imports."""

    def __init__(self, package: str, own: set[str], root: Path) -> None:
        self.package = package
        self.own = own
        self.root = root
        self.modules: list[str] = []

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
            node.args = [_MESSAGE if _is_text(arg) else arg for arg in node.args]
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if getattr(node.test, "attr", getattr(node.test, "id", None)) != "TYPE_CHECKING":
            return self.generic_visit(node)
        # Not executed.
        return [self.visit(statement) for statement in node.orelse]

    def visit_Import(self, node: ast.Import) -> ast.AST:
        self.modules += [each.name for each in node.names if self._is_own(each.name)]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        base = node.module or ""
        if node.level:
            parts = self.package.split(".")
            above = parts[: len(parts) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        for each in node.names if self._is_own(base) else ():
            module = f"{base}.{each.name}"
            self.modules.append(module if _find(module, self.root) else base)
        return node

    def _is_own(self, module: str) -> bool:
        return module.partition(".")[0] in self.own

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
