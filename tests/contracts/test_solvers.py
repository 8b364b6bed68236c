"""Solvers are functions: only an estimator's own class assigns to its attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TRAIN = Path(__file__).resolve().parents[2] / "fairfrontier" / "train"


def list_targets(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement assigns to, and the object of a ``setattr``."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
        targets = [ast.Attribute(node.args[0], "?_")]
    else:
        targets = []
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def find_foreign(tree: ast.Module) -> list[str]:
    """Return the fitted attributes (``x_``) that are assigned outside of any class.

    Within a class only ``self`` and, in class methods that fit several models, the models of that
    class are assigned to.
    """
    owned = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for inner in ast.walk(node)
    }
    return [
        f"{target.value.id}.{target.attr}"
        for node in ast.walk(tree)
        if node not in owned
        for target in list_targets(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.attr.endswith("_")
    ]


@pytest.mark.parametrize("path", sorted(TRAIN.rglob("*.py")), ids=lambda path: path.stem)
def test_nobody_writes_to_an_estimator(path):
    assert find_foreign(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "line", ["model.weight_ = 1", "a, model.b_ = 1, 2", "model.b_ += 1", "setattr(model, name, 1)"]
)
def test_what_is_written_outside_is_found(line):
    assert find_foreign(ast.parse(f"def fit(model, name):\n    {line}"))
    assert not find_foreign(ast.parse(f"class Model:\n    def fit(model, name):\n        {line}"))
