"""docs/security.md names tests that exist, and every test of this folder stands in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def list_tests(path):
    """Return the tests of a file as pytest names them, without parameters."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {f"{path}::{name}" for name in names if name.startswith("test_")}


def test_promises_are_kept_by_tests_that_exist():
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/\S+::\w+)`", text))
    promises = [line for line in text.splitlines() if line.startswith("| ")]
    stated = [line for line in promises if not line.startswith("| promised")]
    assert stated
    assert not [line for line in stated if "`tests/" not in line]
    existing = {
        test for path in {name.partition("::")[0] for name in named} for test in list_tests(path)
    }
    assert not named - existing
    own = {
        test
        for path in Path(__file__).parent.glob("test_*.py")
        if path != Path(__file__)
        for test in list_tests(path.relative_to(ROOT).as_posix())
    }
    assert not own - named
