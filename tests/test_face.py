"""What `import fairfrontier as ff` shows."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import fairfrontier as ff
from fairfrontier.metrics import verb

FACE = {
    "Frontier",
    "Study",
    "audit",
    "create",
    "debias",
    "evaluate",
    "explain",
    "init",
    "learn",
    "load",
    "load_bundle",
    "load_model",
    "monitor",
    "post_process",
    "run_study",
    "score",
    "select",
}


def test_the_public_names_are_there():
    assert set(ff.__all__) == FACE
    assert set(dir(ff)) >= FACE
    for name in FACE:
        assert callable(getattr(ff, name)), name
    with pytest.raises(AttributeError, match="'lode'"):
        ff.lode  # noqa: B018


def test_verbs_are_functions_whatever_was_imported():
    assert ff.evaluate is verb.evaluate
    for name in ("audit", "debias", "evaluate", "monitor"):
        assert inspect.isfunction(getattr(ff, name)), name


def test_the_package_is_imported_without_libraries():
    code = (
        "import sys; before = set(sys.modules); import fairfrontier\n"
        "print(*{name.partition('.')[0] for name in sys.modules.keys() - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"fairfrontier", *sys.stdlib_module_names}
