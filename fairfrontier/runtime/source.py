"""The digest of the code that a result came from."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = ("fairfrontier",)
_ROOT = Path(__file__).resolve().parents[2]


def source_digest(modules: Iterable[str], *, root: Path | None = None) -> str:
    """Return the digest of the source that the modules run: theirs and all they import from here.

    The import closure is found by reading, not by running: every ``import`` statement counts, at
    the top or inside a function, except under ``if TYPE_CHECKING``. Comments, docstrings, line
    numbers and formatting do not count.

    Parameters
    ----------
    modules : iterable of str
        Dotted names inside the project's packages, in any order.
    root : Path, optional
        The folder that holds the packages; the checkout by default.

    Returns
    -------
    str
        sha256 in hexadecimal. The syntax tree differs between minor versions of Python, and so
        does the digest.

    Raises
    ------
    ValueError
        When a module has no source below ``root``.

    Notes
    -----
    Modules that are found while running (``importlib``, ``pkgutil``) are not followed: name them.
    Computed once per process for the same modules: code that is loaded no longer changes.
    """
    return _digest(frozenset(modules), (root or _ROOT).resolve())


@functools.cache
def _digest(modules: frozenset[str], root: Path) -> str:
    for module in modules:
        if _find(module, root) is None:
            raise ValueError(f"{module} has no source below {root}")
    closure: dict[str, str] = {}
    waiting = set(modules)
    while waiting:
        module = waiting.pop()
        path = _find(module, root)
        if path is None or module in closure:
            continue
        digest, imported = _read(path, module)
        closure[module] = digest
        waiting |= imported - closure.keys()
        if "." in module:  # importing a.b.c runs a and a.b first
            waiting.add(module.rpartition(".")[0])
    lines = "".join(f"{module} {closure[module]}\n" for module in sorted(closure))
    return hashlib.sha256(lines.encode()).hexdigest()


def _find(module: str, root: Path) -> Path | None:
    """Return the file of a module, or None where it is none of the project's."""
    if module.partition(".")[0] not in PACKAGES:
        return None
    place = root.joinpath(*module.split("."))
    for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if path.is_file():
            return path
    return None


@functools.cache
def _read(path: Path, module: str) -> tuple[str, frozenset[str]]:
    """Return the digest of one file, and the names that it may import."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    imported = frozenset(_imports(tree, package))
    node: ast.AST
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            _strip_docstring(node)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imported


def _strip_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> None:
    first = node.body[0] if node.body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        del node.body[0]


def _imports(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        yield base
        # What is imported may itself be a module; names that are none are not found as files.
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.orelse:
            yield from _imports(child, package)
    else:
        for below in ast.iter_child_nodes(node):
            yield from _imports(below, package)
